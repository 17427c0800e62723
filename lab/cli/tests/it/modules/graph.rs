//! Cycles among the modules of a crate: groups of modules each of which reaches all others, and the
//! shortest way around.
//!
//! References between a module and those below it are left out: a module and its children may know
//! each other.

use super::paths::{Reference, References, references};
use super::source::{ModuleId, Sources, Tree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};

/// Modules that reach each other.
#[derive(Debug)]
pub(crate) struct Knot {
    /// The paths of the modules.
    pub(crate) modules: Vec<String>,
    /// One of the shortest ways around, and the references that make it.
    pub(crate) cycle: Vec<Step>,
    /// All references among the modules.
    pub(crate) references: Vec<Step>,
}

/// A reference of one module to the next.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) file: PathBuf,
    pub(crate) reference: Reference,
}

impl fmt::Display for Knot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} modules reach each other: {}", self.modules.len(), self.modules.join(", "))?;
        for (title, steps) in [("the shortest cycle", &self.cycle), ("all references", &self.references)] {
            writeln!(out, "  {title}:")?;
            for Step { from, to, file, reference: (line, text) } in steps {
                writeln!(out, "    {from} -> {to}  at {}:{line}: {text}", file.display())?;
            }
        }
        Ok(())
    }
}

/// Returns the knots among the modules below the crate root `root`, in the order of their names.
pub(crate) fn knots(sources: &Sources, root: &Path) -> Vec<Knot> {
    let tree = Tree::read(sources, root);
    let mut references = references(&tree, sources);
    references.retain(|&(from, to), _| !is_within(&tree, from, to) && !is_within(&tree, to, from));
    let mut next = BTreeMap::<ModuleId, BTreeSet<ModuleId>>::new();
    for &(from, to) in references.keys() {
        next.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<ModuleId, BTreeSet<ModuleId>> =
        next.keys().map(|&module| (module, reached_from(&next, module))).collect();
    let mut left: BTreeSet<ModuleId> = reached
        .iter()
        .filter(|(module, reached)| reached.contains(module))
        .map(|(module, _)| *module)
        .collect();
    let mut knots = Vec::new();
    while let Some(&first) = left.first() {
        let members: BTreeSet<ModuleId> = reached[&first]
            .iter()
            .copied()
            .filter(|module| reached.get(module).is_some_and(|back| back.contains(&first)))
            .collect();
        left.retain(|module| !members.contains(module));
        knots.push(knot(&tree, &references, &next, &members));
    }
    knots
}

/// Returns whether `inner` is `outer` or lies below it.
fn is_within(tree: &Tree, inner: ModuleId, outer: ModuleId) -> bool {
    tree.modules[inner].names.starts_with(&tree.modules[outer].names)
}

type Next = BTreeMap<ModuleId, BTreeSet<ModuleId>>;

/// Returns all that is reached from `start` in one step or more.
fn reached_from(next: &Next, start: ModuleId) -> BTreeSet<ModuleId> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![start];
    while let Some(module) = pending.pop() {
        pending.extend(next.get(&module).into_iter().flatten().filter(|&&to| reached.insert(to)));
    }
    reached
}

/// Returns the shortest way from `start` back to it, both included.
fn shortest_cycle(next: &Next, start: ModuleId) -> Vec<ModuleId> {
    let mut before = BTreeMap::new();
    let mut pending = VecDeque::from([start]);
    while let Some(module) = pending.pop_front() {
        for &to in next.get(&module).into_iter().flatten() {
            if to == start {
                let mut way = vec![start, module];
                while let Some(&last) = way.last().filter(|&&last| last != start) {
                    way.push(before[&last]);
                }
                way.reverse();
                return way;
            }
            before.entry(to).or_insert_with(|| {
                pending.push_back(to);
                module
            });
        }
    }
    unreachable!("each module of a knot reaches itself")
}

fn knot(tree: &Tree, references: &References, next: &Next, members: &BTreeSet<ModuleId>) -> Knot {
    let way = members
        .iter()
        .map(|&module| shortest_cycle(next, module))
        .min_by_key(Vec::len)
        .expect("a knot has modules");
    let name = |module: ModuleId| tree.modules[module].names.join("::");
    let step = |from, to| Step {
        from: name(from),
        to: name(to),
        file: tree.modules[from].file.clone(),
        reference: references[&(from, to)].clone(),
    };
    let mut modules: Vec<String> = members.iter().map(|&module| name(module)).collect();
    modules.sort();
    let within = references.keys().filter(|(from, to)| members.contains(from) && members.contains(to));
    Knot {
        modules,
        cycle: way.windows(2).map(|pair| step(pair[0], pair[1])).collect(),
        references: within.map(|&(from, to)| step(from, to)).collect(),
    }
}
