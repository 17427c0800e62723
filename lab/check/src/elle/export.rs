//! Histories in the format of Jepsen, for Elle and other checkers of list-append histories.

use super::{End, Step, Transaction};
use std::fmt::Write as _;

/// Returns a history as EDN, an operation a line, for `elle-cli --model list-append`. A transaction
/// without an outcome is of type `:info`.
pub fn to_edn(history: &[Transaction]) -> String {
    let mut lines: Vec<(u64, bool, String)> = Vec::new();
    for transaction in history {
        let (end, kind) = match transaction.end {
            End::Committed(at) => (at, ":ok"),
            End::Aborted(at) => (at, ":fail"),
            End::Unknown => (u64::MAX, ":info"),
        };
        let is_read = kind == ":ok";
        lines.push((transaction.invoked, false, line(transaction, ":invoke", transaction.invoked, false)));
        lines.push((end, true, line(transaction, kind, end.min(i64::MAX as u64), is_read)));
    }
    // At equal times a beginning comes first: the two overlap.
    lines.sort();
    lines.iter().enumerate().fold(String::new(), |mut text, (index, (.., line))| {
        let _ = writeln!(text, "{{:index {index}, {line}}}");
        text
    })
}

fn line(transaction: &Transaction, kind: &str, time: u64, with_reads: bool) -> String {
    let steps: Vec<String> = transaction.steps.iter().map(|step| text(step, with_reads)).collect();
    format!(
        ":type {kind}, :process {}, :f :txn, :time {time}, :value [{}]",
        transaction.client,
        steps.join(" ")
    )
}

fn text(step: &Step, with_reads: bool) -> String {
    match step {
        Step::Append { list, element } => format!("[:append {list} {element}]"),
        Step::Read { list, elements } if with_reads => {
            let elements: Vec<String> = elements.iter().map(u64::to_string).collect();
            format!("[:r {list} [{}]]", elements.join(" "))
        }
        Step::Read { list, .. } => format!("[:r {list} nil]"),
    }
}
