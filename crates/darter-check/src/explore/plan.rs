//! What one run does: who does which operations from which beginning, and what goes wrong when. A plan is a line of text.
//!
//! ```text
//! dart/grow-n4/nodes=1/process=each/holes=/kill=0@17/p0,g1,s;d0,i1,M
//! ```
//!
//! Index, scenario, memory nodes, the processes of the clients (`each` its own, all in `one`, or a digit a client), errors
//! brought back, faults, and each client's operations. A schedule ([`super::schedule`]) behind it makes a replay line.

use super::scenario::Scenario;
use super::subject::{Explored, Holes};
use super::subjects::subject;
use std::fmt;
use std::str::FromStr;

/// One operation of a client. Keys are numbers of the scenario's hot keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Search.
    Get(u8),
    /// Upsert.
    Put(u8),
    /// Insert if absent.
    Insert(u8),
    /// Update if present.
    Update(u8),
    /// Replace if the value is the one the scenario began with.
    Replace(u8),
    /// Delete.
    Delete(u8),
    /// Delete if the value is the one the scenario began with, where the index can.
    DeleteIf(u8),
    /// Search of all hot keys at once.
    MultiGet,
    /// Scan of everything hot, ascending or (`true`) descending.
    Scan(bool),
    /// The same in windows of a few keys, each from behind the last.
    Windows(bool),
    /// Bulk load of all hot keys; or of hot keys of which one is out of order (`true`), which must fail.
    Load(bool),
    /// A round of the pool's upkeep and of the index's.
    Maintain,
    /// A sweep of what the dead have left.
    Sweep,
    /// A process of its own joins the pool, puts a key and leaves.
    Visit(u8),
    /// Something of the index's own that changes no answer: in DART, an adjustment of the prefix list, if one is due.
    Adjust,
    /// The same, whether it is due or not: in DART, a change of the prefix list.
    Restructure,
    /// Nothing, until nobody else can move.
    Rest,
}

impl Op {
    /// The key that it is about, if that is one.
    pub(super) fn key(self) -> Option<u8> {
        self.letter().1
    }

    /// Whether it takes a bounded number of round trips beside clients that have stopped, where the index promises so.
    pub(super) fn is_bounded(self) -> bool {
        !matches!(
            self,
            Self::Load(_)
                | Self::Visit(_)
                | Self::Maintain
                | Self::Sweep
                | Self::Adjust
                | Self::Restructure
                | Self::Rest
        )
    }

    fn letter(self) -> (char, Option<u8>) {
        match self {
            Self::Get(key) => ('g', Some(key)),
            Self::Put(key) => ('p', Some(key)),
            Self::Insert(key) => ('i', Some(key)),
            Self::Update(key) => ('u', Some(key)),
            Self::Replace(key) => ('r', Some(key)),
            Self::Delete(key) => ('d', Some(key)),
            Self::DeleteIf(key) => ('e', Some(key)),
            Self::Visit(key) => ('j', Some(key)),
            Self::MultiGet => ('m', None),
            Self::Scan(false) => ('s', None),
            Self::Scan(true) => ('z', None),
            Self::Windows(false) => ('w', None),
            Self::Windows(true) => ('y', None),
            Self::Load(false) => ('B', None),
            Self::Load(true) => ('U', None),
            Self::Maintain => ('M', None),
            Self::Sweep => ('W', None),
            Self::Adjust => ('A', None),
            Self::Restructure => ('L', None),
            Self::Rest => ('H', None),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.letter() {
            (letter, Some(key)) => write!(f, "{letter}{key}"),
            (letter, None) => write!(f, "{letter}"),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("'{text}' is no operation; those are g0 p0 i0 u0 r0 d0 e0 j0 m s z w y B U M W A L H");
        let mut letters = text.chars();
        let letter = letters.next().ok_or_else(bad)?;
        let rest = letters.as_str();
        if rest.is_empty() {
            return match letter {
                'm' => Ok(Self::MultiGet),
                's' => Ok(Self::Scan(false)),
                'z' => Ok(Self::Scan(true)),
                'w' => Ok(Self::Windows(false)),
                'y' => Ok(Self::Windows(true)),
                'B' => Ok(Self::Load(false)),
                'U' => Ok(Self::Load(true)),
                'M' => Ok(Self::Maintain),
                'W' => Ok(Self::Sweep),
                'A' => Ok(Self::Adjust),
                'L' => Ok(Self::Restructure),
                'H' => Ok(Self::Rest),
                _ => Err(bad()),
            };
        }
        let key = rest.parse::<u8>().map_err(|_| bad())?;
        match letter {
            'g' => Ok(Self::Get(key)),
            'p' => Ok(Self::Put(key)),
            'i' => Ok(Self::Insert(key)),
            'u' => Ok(Self::Update(key)),
            'r' => Ok(Self::Replace(key)),
            'd' => Ok(Self::Delete(key)),
            'e' => Ok(Self::DeleteIf(key)),
            'j' => Ok(Self::Visit(key)),
            _ => Err(bad()),
        }
    }
}

/// One thing that goes wrong. Processes and clients are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process dies when so many of its verbs have executed; what it has posted may still land.
    Kill(u32, u64),
    /// A client's operation is dropped at its so-manieth await.
    Cancel(u32, u64),
    /// A client's operation is dropped when what its so-manieth await waited for has come, and it has not looked yet.
    Drop(u32, u64),
    /// A client, with what it has posted, moves no further after so many of its events until nobody else can move.
    Hold(u32, u64),
    /// A process stops when so many of its verbs have executed, and goes on when all others have ended and its lease is
    /// long over.
    Pause(u32, u64),
    /// A process stops there for ever; nobody is told that it died.
    Stop(u32, u64),
    /// A process loses node 0 when so many of its verbs have executed, and has it again some events later.
    Cut(u32, u64),
    /// A process's so-manieth request for memory finds none.
    Refuse(u32, u64),
    /// All memory nodes lose power when so many verbs have executed altogether.
    Power(u32, u64),
}

impl Fault {
    /// Name, process or client, and when.
    pub fn parts(self) -> (&'static str, u32, u64) {
        match self {
            Self::Kill(who, when) => ("kill", who, when),
            Self::Cancel(who, when) => ("cancel", who, when),
            Self::Drop(who, when) => ("drop", who, when),
            Self::Hold(who, when) => ("hold", who, when),
            Self::Pause(who, when) => ("pause", who, when),
            Self::Stop(who, when) => ("stop", who, when),
            Self::Cut(who, when) => ("cut", who, when),
            Self::Refuse(who, when) => ("refuse", who, when),
            Self::Power(who, when) => ("power", who, when),
        }
    }

    /// The fault of this name.
    pub fn named(name: &str, who: u32, when: u64) -> Option<Self> {
        Some(match name {
            "kill" => Self::Kill(who, when),
            "cancel" => Self::Cancel(who, when),
            "drop" => Self::Drop(who, when),
            "hold" => Self::Hold(who, when),
            "pause" => Self::Pause(who, when),
            "stop" => Self::Stop(who, when),
            "cut" => Self::Cut(who, when),
            "refuse" => Self::Refuse(who, when),
            "power" => Self::Power(who, when),
            _ => return None,
        })
    }

    /// The names of faults that can be asked for.
    pub const NAMES: [&'static str; 9] =
        ["kill", "cancel", "drop", "hold", "pause", "stop", "cut", "refuse", "power"];

    /// Those that indexes survive whose clients wait for each other's locks: who is held for long is taken for dead there.
    pub const BESIDE_LOCKS: [&'static str; 8] =
        ["kill", "cancel", "drop", "pause", "stop", "cut", "refuse", "power"];

    /// Whether it is a client that it happens to, and not a process.
    pub(super) fn is_of_client(name: &str) -> bool {
        matches!(name, "cancel" | "drop" | "hold")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, who, when) = self.parts();
        write!(f, "{name}={who}@{when}")
    }
}

/// What one run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The index.
    pub subject: &'static Explored,
    /// Where it begins.
    pub scenario: &'static Scenario,
    /// Memory nodes.
    pub nodes: u8,
    /// The process of each client, counted from 0 without gaps. Clients of one process are threads that share its view.
    pub processes: Vec<u8>,
    /// Whether clients begin with memory in hand, so that no run is about block grants.
    pub warm: bool,
    /// Errors brought back.
    pub holes: Holes,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Each client's operations.
    pub clients: Vec<Vec<Op>>,
}

impl Plan {
    /// The process of a client.
    pub fn process_of(&self, client: usize) -> u32 {
        self.processes.get(client).copied().unwrap_or_default().into()
    }

    /// How many processes there are.
    pub fn processes(&self) -> u32 {
        self.processes.iter().max().map_or(1, |&last| u32::from(last) + 1)
    }

    /// Whether a client sweeps.
    pub(super) fn sweeps(&self) -> bool {
        self.clients.iter().flatten().any(|&op| op == Op::Sweep)
    }

    /// Processes of their own for so many clients.
    pub(super) fn apart(clients: usize) -> Vec<u8> {
        (0..clients as u8).collect()
    }

    /// Where the clients' processes stand in a line.
    fn processes_text(&self) -> String {
        if self.processes == Self::apart(self.clients.len()) {
            return "each".to_owned();
        }
        if self.processes.iter().all(|&process| process == 0) {
            return "one".to_owned();
        }
        self.processes.iter().map(|&process| char::from_digit(process.into(), 36).unwrap_or('?')).collect()
    }

    /// Reads [`Plan::processes_text`] back, for so many clients.
    fn parse_processes(text: &str, clients: usize) -> Option<Vec<u8>> {
        match text {
            "each" => Some(Self::apart(clients)),
            "one" => Some(vec![0; clients]),
            _ => {
                let digits: Option<Vec<u8>> =
                    text.chars().map(|digit| Some(digit.to_digit(36)? as u8)).collect();
                let mut known = 0;
                let is_new = |&process: &u8| {
                    let is_next = process <= known;
                    known = known.max(process + 1);
                    is_next
                };
                digits.filter(|digits| digits.len() == clients && digits.iter().all(is_new))
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, scenario, nodes, processes: _, warm, holes, faults, clients } = self;
        let (process, start) = (self.processes_text(), if *warm { "warm" } else { "cold" });
        let (index, scenario) = (subject.name, &scenario.name);
        write!(f, "{index}/{scenario}/nodes={nodes}/process={process}/{start}")?;
        for (_, hole) in subject.holes.iter().enumerate().filter(|&(at, _)| holes.has(at)) {
            write!(f, "/hole={}", hole.name)?;
        }
        for fault in faults {
            write!(f, "/{fault}")?;
        }
        f.write_str("/")?;
        for (at, ops) in clients.iter().enumerate() {
            let ops: Vec<String> = ops.iter().map(ToString::to_string).collect();
            write!(f, "{}{}", if at > 0 { ";" } else { "" }, ops.join(","))?;
        }
        Ok(())
    }
}

/// Most clients and operations a line may ask for.
const CLIENTS_MAX: usize = 16;
const OPS_MAX: usize = 1000;

impl FromStr for Plan {
    type Err = String;

    /// Of an index of the registry.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, _) = text.split_once('/').ok_or_else(|| no_plan(text))?;
        Self::parse_for(subject(name)?, text)
    }
}

fn no_plan(text: &str) -> String {
    format!("'{text}' is no plan: it must begin with INDEX/SCENARIO/")
}

impl Plan {
    /// Reads a plan of an index, which need not be in the registry.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_for(subject: &'static Explored, text: &str) -> Result<Self, String> {
        let mut parts: Vec<&str> = text.split('/').collect();
        let ops = parts.pop().unwrap_or_default();
        let [_, scenario, rest @ ..] = &parts[..] else {
            return Err(no_plan(text));
        };
        let mut plan = Self {
            subject,
            scenario: subject.scenario(scenario)?,
            nodes: 1,
            processes: Vec::new(),
            warm: true,
            holes: Holes::default(),
            faults: Vec::new(),
            clients: Vec::new(),
        };
        let mut processes = "each";
        for part in rest {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let bad = || format!("'{part}' is no part of a plan");
            match (name, value) {
                ("nodes", _) => {
                    plan.nodes =
                        value.parse().ok().filter(|nodes| (1..=8).contains(nodes)).ok_or_else(bad)?;
                }
                ("process", _) => processes = value,
                ("warm" | "cold", "") => plan.warm = name == "warm",
                ("hole", _) => {
                    plan.holes = plan.holes.with(subject.hole(value)?);
                }
                _ => {
                    let (who, when) = value.split_once('@').ok_or_else(bad)?;
                    let (who, when) = (who.parse().map_err(|_| bad())?, when.parse().map_err(|_| bad())?);
                    plan.faults.push(Fault::named(name, who, when).ok_or_else(bad)?);
                }
            }
        }
        for client in ops.split(';') {
            let ops: Vec<&str> = client.split(',').filter(|op| !op.is_empty()).collect();
            if ops.len() > OPS_MAX || plan.clients.len() == CLIENTS_MAX {
                return Err(format!("more than {OPS_MAX} operations or {CLIENTS_MAX} clients"));
            }
            plan.clients.push(ops.into_iter().map(str::parse).collect::<Result<_, _>>()?);
        }
        plan.processes = Self::parse_processes(processes, plan.clients.len()).ok_or_else(|| {
            format!(
                "'process={processes}' is none of process=each, process=one, and a digit for each client, such as \
                 process=001"
            )
        })?;
        let keys = plan.scenario.hot.len();
        for op in plan.clients.iter().flatten() {
            if let (_, Some(key)) = op.letter()
                && usize::from(key) >= keys
            {
                return Err(format!("{op}: scenario {} has {keys} keys", plan.scenario.name));
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_read_back_as_written() {
        let line =
            "dart/grow-n4/nodes=2/process=one/cold/hole=trust-express/kill=0@17/power=0@3/p0,g1,s;d0,M,m";
        let plan: Plan = line.parse().unwrap();
        assert_eq!(plan.to_string(), line);
        assert_eq!((plan.clients.len(), plan.faults.len()), (2, 2));
        let line = "dart/plain/nodes=1/process=0010/warm/p0;p1;L;M,M";
        assert_eq!(line.parse::<Plan>().unwrap().to_string(), line);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "dart",
            "dart/nowhere/g0",
            "dart/plain/x9",
            "dart/plain/process=2/g0",
            "dart/plain/process=00/g0",
            "dart/plain/process=02/g0;g0",
            "dart/plain/nodes=0/g0",
            "dart/plain/g99",
            "dart/plain/kill=1/g0",
            "dart/plain/kill=x@y/g0",
            "nobodys/plain/g0",
            "dart/plain/hole=none/g0",
        ] {
            assert!(line.parse::<Plan>().is_err(), "{line}");
        }
    }
}
