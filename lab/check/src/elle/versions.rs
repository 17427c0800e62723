//! The versions of lists: who appended each element, what reads saw, and in which order the
//! elements were appended.

use super::{Anomaly, End, Finding, Step, Transaction};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

/// A committed transaction's view of a list, without its own elements.
pub(super) struct View {
    pub(super) transaction: usize,
    /// Number of elements.
    pub(super) length: usize,
    /// Whether it appended to the list after it had read it.
    pub(super) appends: bool,
}

/// The versions of a list after a put, named by its element, or those before all puts.
pub(super) type Part = (u32, Option<u64>);

/// A list, or a part of it.
#[derive(Default)]
pub(super) struct List {
    /// The elements of the longest read, in their order.
    pub(super) order: Vec<u64>,
    /// Committed elements that no read contains.
    pub(super) unread: Vec<u64>,
    pub(super) views: Vec<View>,
}

/// All lists of a history.
pub(super) struct Versions<'h> {
    history: &'h [Transaction],
    /// The transaction that appended an element to a list, and whether it appended more later.
    writers: HashMap<(u32, u64), (usize, bool)>,
    /// The elements that were put.
    puts: HashSet<(u32, u64)>,
    pub(super) lists: BTreeMap<Part, List>,
    /// Whether a transaction took effect.
    pub(super) is_committed: Vec<bool>,
    pub(super) findings: Vec<Finding>,
}

impl<'h> Versions<'h> {
    pub(super) fn of(history: &'h [Transaction]) -> Self {
        let is_committed =
            history.iter().map(|transaction| matches!(transaction.end, End::Committed(_))).collect();
        let mut versions = Self {
            history,
            writers: HashMap::new(),
            puts: HashSet::new(),
            lists: BTreeMap::new(),
            is_committed,
            findings: Vec::new(),
        };
        versions.find_writers();
        for (at, transaction) in history.iter().enumerate() {
            if matches!(transaction.end, End::Committed(_)) {
                versions.read_all(at);
            }
        }
        versions.find_unread();
        versions.find_lost_updates();
        versions
    }

    /// Returns the transaction that appended an element.
    pub(super) fn writer(&self, list: u32, element: u64) -> Option<usize> {
        self.writers.get(&(list, element)).map(|&(at, _)| at)
    }

    /// Returns the part of its list that each element is in, if its transaction took effect.
    pub(super) fn parts(&self) -> HashMap<(u32, u64), Part> {
        let of = |(&part, known): (&Part, &List)| {
            let elements = known.order.iter().chain(&known.unread);
            elements.map(|&element| ((part.0, element), part)).collect::<Vec<_>>()
        };
        self.lists.iter().flat_map(of).collect()
    }

    fn find_writers(&mut self) {
        for (at, transaction) in self.history.iter().enumerate() {
            let mut last = HashMap::new();
            for step in &transaction.steps {
                let (list, element) = match *step {
                    Step::Append { list, element } => (list, element),
                    Step::Put { list, element } => {
                        self.puts.insert((list, element));
                        (list, element)
                    }
                    Step::Read { .. } => continue,
                };
                if self.writers.insert((list, element), (at, false)).is_some() {
                    self.find(
                        Anomaly::Garbage,
                        vec![at],
                        &format!("{element} is appended to list {list} twice"),
                    );
                }
                if let Some(earlier) = last.insert(list, element)
                    && let Some((_, has_more)) = self.writers.get_mut(&(list, earlier))
                {
                    *has_more = true;
                }
            }
        }
    }

    /// Takes in the reads of a committed transaction.
    fn read_all(&mut self, at: usize) {
        let mut own: HashMap<u32, Vec<u64>> = HashMap::new();
        let mut first: BTreeMap<u32, &'h [u64]> = BTreeMap::new();
        for step in &self.history[at].steps {
            match step {
                Step::Append { list, element } => own.entry(*list).or_default().push(*element),
                Step::Put { .. } => {}
                Step::Read { list, elements } => {
                    let mine = own.get(list).map_or(&[][..], Vec::as_slice);
                    let Some(others) = elements.strip_suffix(mine) else {
                        let what = format!("list {list} must end with {mine:?}, its own elements");
                        self.find(Anomaly::Internal, vec![at], &what);
                        continue;
                    };
                    match first.get(list) {
                        None => {
                            first.insert(*list, others);
                        }
                        Some(before) if *before != others => {
                            let what = format!("it reads list {list} as {before:?}, then as {others:?}");
                            self.find(Anomaly::Internal, vec![at], &what);
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        for (list, elements) in first {
            self.view(at, list, elements, own.contains_key(&list));
        }
    }

    fn view(&mut self, at: usize, list: u32, elements: &[u64], appends: bool) {
        let mut seen = HashSet::new();
        for (place, &element) in elements.iter().enumerate() {
            let writer = self.writers.get(&(list, element)).copied();
            let is_late_put = place > 0 && self.puts.contains(&(list, element));
            let Some((writer, has_more)) = writer.filter(|_| seen.insert(element) && !is_late_put) else {
                let what =
                    format!("list {list} holds {element}, which was not appended, or twice, or is a put");
                self.find(Anomaly::Garbage, vec![at], &what);
                return;
            };
            match self.history[writer].end {
                End::Aborted(_) => {
                    let what = format!("list {list} holds {element} of an aborted transaction");
                    self.find(Anomaly::G1a, vec![writer, at], &what);
                }
                End::Unknown => self.is_committed[writer] = true,
                End::Committed(_) => {}
            }
            if has_more && place + 1 == elements.len() && writer != at {
                let what = format!("list {list} ends with {element}, after which its writer appended more");
                self.find(Anomaly::G1b, vec![writer, at], &what);
            }
        }
        let part = (list, elements.first().copied().filter(|&first| self.puts.contains(&(list, first))));
        let known = self.lists.entry(part).or_default();
        let (shorter, longer) = if elements.len() > known.order.len() {
            (&known.order[..], elements)
        } else {
            (elements, &known.order[..])
        };
        if longer.starts_with(shorter) {
            known.order = longer.to_vec();
            known.views.push(View { transaction: at, length: elements.len(), appends });
        } else {
            let what = format!("list {list} is {elements:?} in one read and {:?} in another", known.order);
            self.find(Anomaly::IncompatibleOrder, vec![at], &what);
        }
    }

    fn find_unread(&mut self) {
        let read: HashSet<(u32, u64)> = self
            .lists
            .iter()
            .flat_map(|(&(list, _), known)| known.order.iter().map(move |&element| (list, element)))
            .collect();
        let mut parts: HashMap<(u32, usize), Part> = HashMap::new();
        for (&part, known) in &self.lists {
            parts.extend(known.views.iter().map(|view| ((part.0, view.transaction), part)));
        }
        let mut unread: Vec<(u32, u64)> =
            self.writers.keys().copied().filter(|written| !read.contains(written)).collect();
        unread.sort_unstable();
        for (list, element) in unread {
            let writer = self.writers[&(list, element)].0;
            if self.is_committed[writer] {
                let part = match parts.get(&(list, writer)) {
                    Some(&part) => part,
                    None if self.puts.contains(&(list, element)) => (list, Some(element)),
                    None if self.puts.iter().all(|&(other, _)| other != list) => (list, None),
                    // It may have been appended to any part.
                    None => continue,
                };
                self.lists.entry(part).or_default().unread.push(element);
            }
        }
    }

    fn find_lost_updates(&mut self) {
        let mut lost = Vec::new();
        for (&(list, _), known) in &self.lists {
            let mut appended = HashMap::new();
            for view in known.views.iter().filter(|view| view.appends) {
                if let Some(other) = appended.insert(view.length, view.transaction) {
                    let what = format!("both append to list {list} when it has {} elements", view.length);
                    lost.push((vec![other, view.transaction], what));
                }
            }
        }
        for (transactions, what) in lost {
            self.find(Anomaly::LostUpdate, transactions, &what);
        }
    }

    fn find(&mut self, anomaly: Anomaly, transactions: Vec<usize>, what: &str) {
        let mut explanation = String::new();
        for &at in &transactions {
            let _ = writeln!(explanation, "  T{at}, {}", self.history[at]);
        }
        let _ = write!(explanation, "  {what}");
        self.findings.push(Finding { anomaly, transactions, explanation });
    }
}
