//! Renders one key's history and verdict as lines of plain ASCII for a reader.

use darter_fabric::counted;
use std::fmt::{self, Write as _};

use super::Verdict;
use crate::history::{Action, Operation, Outcome};

/// Histories of up to this many operations are drawn with their intervals.
const DRAWN_UP_TO: usize = 40;

/// Renders a key's operations, one per line, by invocation: its rank in the order found (`-` if it
/// has none, `!` if it could not come next), its index in `operations`, the client, the interval
/// (drawn too if there are no more than 40 operations: `[` invoked, `]` returned, `|` both at once,
/// `>` pending; there is a column for each timestamp that occurs), the action and the result, and,
/// for operations that could not come next, the result they would have had.
///
/// The verdict must be of these operations.
///
/// # Panics
///
/// Panics if it is of others.
pub fn explain(operations: &[Operation], initial: Option<u64>, verdict: &Verdict) -> String {
    let (order, blocked): (&[usize], &[usize]) = match verdict {
        Verdict::Linearizable { order } => (order, &[]),
        Verdict::Violation { longest, blocked } => (longest, blocked),
        Verdict::Unknown { .. } => (&[], &[]),
    };
    let held = order.iter().fold(initial, |held, &index| operations[index].action.apply(held).1);
    let mut text = String::new();
    write_lines(&mut text, operations, initial, verdict, &Ranking { order, blocked, held })
        .expect("writing to a string does not fail");
    text
}

/// The verdict's order of the operations.
struct Ranking<'a> {
    order: &'a [usize],
    blocked: &'a [usize],
    /// The key's value after the order.
    held: Option<u64>,
}

fn write_lines(
    text: &mut String,
    operations: &[Operation],
    initial: Option<u64>,
    verdict: &Verdict,
    Ranking { order, blocked, held }: &Ranking,
) -> fmt::Result {
    let key =
        operations.first().map_or_else(|| "no key".to_owned(), |operation| format!("key {}", operation.key));
    let (count, answered) = (operations.len(), operations.iter().filter(|op| op.returned.is_some()).count());
    write!(
        text,
        "{key}, at first {}, {}, {answered} of them completed: ",
        StateText(initial),
        counted(count as u64, "operation")
    )?;
    match verdict {
        Verdict::Linearizable { .. } => writeln!(text, "linearizable, in the order of the ranks")?,
        Verdict::Violation { .. } => {
            writeln!(text, "NOT linearizable")?;
            let placed = order.iter().filter(|&&index| operations[index].returned.is_some()).count();
            writeln!(
                text,
                "at most {placed} of the completed ones fit one order, as ranked; the key then holds {}, and none \
                 marked ! can come next",
                StateText(*held)
            )?;
        }
        Verdict::Unknown { steps } => writeln!(text, "unknown after {}", counted(*steps, "step"))?,
    }

    let mut ranks = vec![None; count];
    for (rank, &index) in (1..).zip(*order) {
        ranks[index] = Some(rank);
    }
    let mut by_invocation: Vec<usize> = (0..count).collect();
    by_invocation.sort_by_key(|&index| operations[index].invoked);
    let timeline = (count <= DRAWN_UP_TO).then(|| Timeline::new(operations));
    writeln!(text, "{:>6} {:>6} {:>7}  {:<19}  what", "rank", "index", "client", "interval")?;
    for index in by_invocation {
        let operation = &operations[index];
        let is_blocked = blocked.contains(&index);
        let rank: String = match ranks[index] {
            Some(rank) => i32::to_string(&rank),
            None if is_blocked => "!".to_owned(),
            None => "-".to_owned(),
        };
        let interval = match operation.returned {
            Some((returned, _)) => format!("{}..{returned}", operation.invoked),
            None => format!("{}..", operation.invoked),
        };
        write!(text, "{rank:>6} {index:>6} {:>7}  {interval:<19}", operation.client)?;
        if let Some(timeline) = &timeline {
            write!(text, "  {}", timeline.draw(operation))?;
        }
        write!(text, "  {}", ActionText(operation.action))?;
        match operation.returned {
            Some((_, outcome)) => write!(text, " -> {}", OutcomeText(outcome))?,
            None => write!(text, " -> pending")?,
        }
        if is_blocked {
            write!(text, " (would be {})", OutcomeText(operation.action.apply(*held).0))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

/// Maps timestamps to columns.
struct Timeline {
    /// Every timestamp that occurs, in order.
    times: Vec<u64>,
}

impl Timeline {
    fn new(operations: &[Operation]) -> Self {
        let invoked = operations.iter().map(|operation| operation.invoked);
        let returned = operations.iter().filter_map(|operation| Some(operation.returned?.0));
        let mut times: Vec<u64> = invoked.chain(returned).collect();
        times.sort_unstable();
        times.dedup();
        Self { times }
    }

    fn draw(&self, operation: &Operation) -> String {
        let column = |time| self.times.partition_point(|&earlier| earlier < time);
        let (first, end) = (column(operation.invoked), self.times.len());
        let (last, mark) = match operation.returned {
            Some((returned, _)) => (column(returned), ']'),
            None => (end, '>'),
        };
        let bar = |at| match at {
            _ if at == first && at == last => '|',
            _ if at == first => '[',
            _ if at == last => mark,
            _ if first < at && at < last => '=',
            _ => ' ',
        };
        (0..=end).map(bar).collect()
    }
}

/// A state of the key, as text.
pub(super) struct StateText(pub(super) Option<u64>);

impl fmt::Display for StateText {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value}"),
            None => write!(f, "absent"),
        }
    }
}

/// An action, as text.
pub(super) struct ActionText(pub(super) Action);

impl fmt::Display for ActionText {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            Action::Get => write!(f, "get"),
            Action::Put(value) => write!(f, "put {value}"),
            Action::Insert(value) => write!(f, "insert {value}"),
            Action::Update(value) => write!(f, "update {value}"),
            Action::Replace { expected, value } => write!(f, "replace {expected} by {value}"),
            Action::Delete => write!(f, "delete"),
            Action::DeleteIf(expected) => write!(f, "delete {expected}"),
        }
    }
}

/// A result, as text.
pub(super) struct OutcomeText(pub(super) Outcome);

impl fmt::Display for OutcomeText {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            Outcome::Found(state) => write!(f, "found {}", StateText(state)),
            Outcome::Inserted => write!(f, "inserted"),
            Outcome::Replaced => write!(f, "replaced"),
            Outcome::Refused => write!(f, "refused"),
            Outcome::Deleted(true) => write!(f, "deleted"),
            Outcome::Deleted(false) => write!(f, "nothing to delete"),
        }
    }
}
