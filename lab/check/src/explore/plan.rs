//! The plan of a run: the scenario, the operations of each client, and the faults. A plan is a line
//! of text.
//!
//! ```text
//! dart/grow-n4/nodes=1/process=each/warm/kill=0@17/p0,g1,s;d0,i1,M
//! ```
//!
//! Index, scenario, memory nodes, the processes of the clients (`each` its own, all in `one`, or a
//! digit per client), relaxed guarantees of the verbs (`verbs=`), the rule of the medium
//! (`durability=`), the sides that execute verbs (`sides=`, or `groups=` of replicas), faults, and
//! each client's operations. A plan followed by a schedule ([`super::schedule`]) is a replay line;
//! on groups the seed decides, and there is no schedule.

use super::fault::Fault;
use super::fixture::{Fixture, NodeSize};
use super::group_faults::GroupFaults;
use super::op::Op;
use super::outcome::Outcome;
use super::scenario::Scenario;
use super::schedule::Scheduler;
use super::subject::Promises;
use crate::dice::Dice;
use darter_fabric::counted;
use darter_index::checker::Situation;
use darter_sim::{Medium, Relaxations, Side};
use std::fmt;
use std::sync::LazyLock;

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The index.
    pub subject: &'static Explored,
    /// The scenario from which it begins.
    pub scenario: &'static Scenario,
    /// Number of memory nodes.
    pub nodes: u8,
    /// The process of each client, counted from 0 without gaps. Clients of one process are threads
    /// that share its view.
    pub processes: Vec<u8>,
    /// Whether clients begin with some memory, so that runs do not exercise block grants.
    pub warm: bool,
    /// Guarantees of other providers' verbs that these verbs lack.
    pub verbs: Relaxations,
    /// The sides that execute the verbs.
    pub sides: Sides,
    /// When writes reach the medium, and which operations wait for that.
    pub medium: Medium,
    /// The faults of the groups, if the memory nodes are simulated groups of replicas.
    pub groups: Option<GroupFaults>,
    /// The other faults.
    pub faults: Vec<Fault>,
    /// Each client's operations.
    pub clients: Vec<Vec<Op>>,
}

/// The sides that execute the verbs of a run's processes at the memory nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sides {
    /// The nodes' devices, for all processes.
    #[default]
    One,
    /// The nodes' devices for processes with even numbers; their processors for the others. No real
    /// pool runs this way: memory nodes that have a device refuse it.
    Mixed,
}

impl Sides {
    /// Returns the side of a process.
    pub(super) fn of(self, process: u32) -> Side {
        if self == Self::Mixed && !process.is_multiple_of(2) { Side::Processor } else { Side::Device }
    }
}

impl Plan {
    /// Returns the process of a client.
    pub fn process_of(&self, client: usize) -> u32 {
        self.processes.get(client).copied().unwrap_or_default().into()
    }

    /// Returns the number of processes.
    pub fn processes(&self) -> u32 {
        self.processes.iter().max().map_or(1, |&last| u32::from(last) + 1)
    }

    /// Inserts an operation anywhere in any client's.
    pub(super) fn insert(&mut self, op: Op, dice: &mut Dice) {
        let clients = self.clients.len() as u64;
        let ops = &mut self.clients[dice.below(clients) as usize];
        ops.insert(dice.below(ops.len() as u64 + 1) as usize, op);
    }

    /// Returns whether a client loads many pairs at once.
    pub(super) fn has_loads(&self) -> bool {
        self.clients.iter().flatten().any(|op| matches!(op, Op::Load(_)))
    }

    /// Returns whether a client drains a memory node, or moves objects between them.
    pub(super) fn has_drains(&self) -> bool {
        self.clients.iter().flatten().any(|op| matches!(op, Op::Drain | Op::Level))
    }

    /// Whether a memory node is lost for good.
    pub(super) fn loses_nodes(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Lose(..)))
    }

    /// Whether a sweep may find remains even if no fault strikes.
    pub(super) fn has_remains(&self) -> bool {
        self.clients.iter().flatten().any(|op| matches!(op, Op::Visit(_) | Op::Sweep))
    }

    /// Whether a client sweeps.
    pub(super) fn sweeps(&self) -> bool {
        self.clients.iter().flatten().any(|&op| op == Op::Sweep)
    }

    /// Separate processes for `clients` clients.
    pub(super) fn apart(clients: usize) -> Vec<u8> {
        (0..clients as u8).collect()
    }

    /// Whether a client takes a snapshot. Then all clients preserve values for it.
    pub(super) fn has_snapshots(&self) -> bool {
        self.clients.iter().flatten().any(|&op| op == Op::Snapshot)
    }

    /// Returns why this plan cannot run on groups, if it names groups but cannot.
    fn refuses_groups(&self) -> Option<String> {
        self.groups?;
        let is_known = |fault: &Fault| GroupFaults::OF_CLIENTS.contains(&fault.parts().0);
        let known = GroupFaults::OF_CLIENTS.join(", ");
        if self.subject.has_server {
            return Some(format!(
                "groups=: replicas do not run the procedures that {} needs",
                self.subject.name
            ));
        }
        if self.verbs != Relaxations::default() || self.sides != Sides::One || self.medium != Medium::Never {
            return Some("groups= cannot be combined with verbs=, sides= or durability=".to_owned());
        }
        let fault = self.faults.iter().find(|fault| !is_known(fault))?;
        Some(format!("{fault}: with groups= only {known} can strike clients"))
    }

    /// Returns why this plan cannot lose a memory node, if it loses one but cannot.
    fn refuses_losses(&self) -> Option<String> {
        if !self.loses_nodes() {
            return None;
        }
        if !self.subject.promises.survives.contains(&"lose") {
            return Some(format!("lose=: {} cannot be read around lost memory nodes", self.subject.name));
        }
        let is_long = |fault: &Fault| matches!(fault, Fault::Pause(..) | Fault::Stop(..) | Fault::Power(..));
        if self.groups.is_some() || self.faults.iter().any(is_long) {
            return Some("lose= cannot be combined with groups=, pause=, stop= or power=".to_owned());
        }
        let nodes = u32::from(self.nodes);
        let wrong = |fault: &&Fault| matches!(fault, Fault::Lose(node, _) if *node == 0 || *node >= nodes);
        let fault = self.faults.iter().find(wrong)?;
        Some(format!("{fault}: of {} all but node 0 can be lost", counted(nodes.into(), "memory node")))
    }

    /// The clients' processes, in the form of a plan's line.
    fn processes_text(&self) -> String {
        if self.processes == Self::apart(self.clients.len()) {
            return "each".to_owned();
        }
        if self.processes.iter().all(|&process| process == 0) {
            return "one".to_owned();
        }
        self.processes.iter().map(|&process| char::from_digit(process.into(), 36).unwrap_or('?')).collect()
    }

    /// Parses [`Plan::processes_text`] for `clients` clients.
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
        let Self {
            subject,
            scenario,
            nodes,
            processes: _,
            warm,
            verbs,
            sides,
            medium,
            groups,
            faults,
            clients,
        } = self;
        let (process, start) = (self.processes_text(), if *warm { "warm" } else { "cold" });
        let (index, scenario) = (subject.name, &scenario.name);
        write!(f, "{index}/{scenario}/nodes={nodes}/process={process}/{start}")?;
        if *verbs != Relaxations::default() {
            write!(f, "/verbs={verbs}")?;
        }
        if *sides == Sides::Mixed {
            f.write_str("/sides=mixed")?;
        }
        if *medium != Medium::Never {
            write!(f, "/durability={medium}")?;
        }
        if let Some(groups) = groups {
            write!(f, "/groups={groups}")?;
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

/// Maximum number of clients, and of operations, in a line.
const CLIENTS_MAX: usize = 16;
const OPS_MAX: usize = 1000;

pub(super) fn no_plan(text: &str) -> String {
    format!("'{text}' is not a plan: it must begin with INDEX/SCENARIO/")
}

impl Plan {
    /// Parses a plan of an index, which need not be in the registry.
    ///
    /// # Errors
    /// Fails if the text is not such a plan; the error says why.
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
            verbs: Relaxations::default(),
            sides: Sides::One,
            medium: Medium::Never,
            groups: None,
            faults: Vec::new(),
            clients: Vec::new(),
        };
        let mut processes = "each";
        for part in rest {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let bad = || format!("'{part}' is not a part of a plan");
            match (name, value) {
                ("nodes", _) => {
                    plan.nodes =
                        value.parse().ok().filter(|nodes| (1..=8).contains(nodes)).ok_or_else(bad)?;
                }
                ("process", _) => processes = value,
                ("warm" | "cold", "") => plan.warm = name == "warm",
                ("verbs", _) => plan.verbs = value.parse()?,
                ("durability", _) => plan.medium = value.parse()?,
                ("sides", "mixed") => plan.sides = Sides::Mixed,
                ("groups", _) => plan.groups = Some(value.parse()?),
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
        if let Some(why) = plan.refuses_groups().or_else(|| plan.refuses_losses()) {
            return Err(why);
        }
        let keys = plan.scenario.hot.len();
        for op in plan.clients.iter().flatten() {
            if let Some(key) = op.key()
                && usize::from(key) >= keys
            {
                return Err(format!("{op}: scenario {} has {keys} keys", plan.scenario.name));
            }
        }
        Ok(plan)
    }
}

/// A [`Subject`](super::Subject), without its type.
pub struct Explored {
    /// Its name.
    pub name: &'static str,
    /// Its guarantees.
    pub promises: Promises,
    /// Whether it has a server, which faults may strike as the process [`SERVER`](super::SERVER).
    pub has_server: bool,
    /// Whether all clients of a run are threads of one process.
    pub in_one_process: bool,
    /// Situations that must occur in a full exploration.
    pub situations: fn() -> Vec<Situation>,
    pub(super) scenarios: LazyLock<Vec<Scenario>>,
    pub(super) build: fn(&Scenario, u8, NodeSize) -> Fixture,
    pub(super) run: fn(&Fixture, &Plan, &mut dyn Scheduler) -> Outcome,
}

impl Explored {
    /// Returns the scenarios from which runs may begin.
    pub fn scenarios(&'static self) -> &'static [Scenario] {
        &self.scenarios
    }

    /// Returns the scenario of this name.
    ///
    /// # Errors
    /// Fails if there is none; the error lists the names.
    pub fn scenario(&'static self, name: &str) -> Result<&'static Scenario, String> {
        self.scenarios.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.scenarios.iter().map(|scenario| &scenario.name[..]).collect();
            format!("'{name}' is not a scenario of {}; the scenarios are {}", self.name, names.join(", "))
        })
    }

    /// Returns the names of the faults that it survives on memory with this medium. If the medium
    /// keeps acknowledged writes, a power failure is equivalent to the death of all clients.
    pub fn survives(&self, medium: Medium) -> Vec<String> {
        let survives = |name: &str| self.promises.survives.contains(&name);
        let is_durable = |name: &str| name == "power" && medium != Medium::Never && survives("kill");
        let promised = |name: &&&str| survives(name) || is_durable(name);
        Fault::NAMES.iter().filter(promised).map(ToString::to_string).collect()
    }

    /// Builds the fixture of a plan.
    ///
    /// # Panics
    /// Panics if the index fails although nothing disturbs it.
    pub fn fixture(&self, plan: &Plan) -> Fixture {
        let size = if plan.groups.is_some() { NodeSize::OfReplicas } else { NodeSize::Usual };
        (self.build)(plan.scenario, plan.nodes, size)
    }

    /// Runs a plan on its fixture.
    pub fn run(&self, fixture: &Fixture, plan: &Plan, scheduler: &mut dyn Scheduler) -> Outcome {
        (self.run)(fixture, plan, scheduler)
    }
}

impl PartialEq for Explored {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Explored {}

impl fmt::Debug for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
