//! The graph of dependencies.

use super::versions::{List, Part, Versions};
use super::{End, Transaction};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::BTreeMap;

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// It appended to this list first.
    Ww(u32),
    /// The other one read what it appended to this list.
    Wr(u32),
    /// It read this list, and the other one appended the next element.
    Rw(u32),
    /// It saw a version of this list, and the other one put a later one: some transaction that saw
    /// the versions of the one ended before some that saw those of the other began.
    Later(u32),
    /// It ended before the other one began.
    Rt,
}

/// A graph with a node for each transaction of a history, in its order.
pub(super) type Graph = DiGraph<(), Edge>;

/// Returns the graph of the committed transactions of a history. All others have no edges.
pub(super) fn graph(history: &[Transaction], versions: &Versions<'_>) -> Graph {
    let mut graph = Graph::new();
    for _ in history {
        graph.add_node(());
    }
    let mut parts: BTreeMap<u32, Vec<(Part, &List)>> = BTreeMap::new();
    for (&part, known) in &versions.lists {
        add_list(&mut graph, versions, part.0, known);
        parts.entry(part.0).or_default().push((part, known));
    }
    for parts in parts.values() {
        add_puts(&mut graph, history, versions, parts);
    }
    add_time(&mut graph, history, versions);
    graph
}

fn add_list(graph: &mut Graph, versions: &Versions<'_>, list: u32, known: &List) {
    let mut add = |from: Option<usize>, to: Option<usize>, edge| {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), edge);
        }
    };
    let writer = |element: Option<&u64>| element.and_then(|&element| versions.writer(list, element));
    for pair in known.order.windows(2) {
        add(writer(pair.first()), writer(pair.last()), Edge::Ww(list));
    }
    for element in &known.unread {
        add(writer(known.order.last()), writer(Some(element)), Edge::Ww(list));
    }
    for view in &known.views {
        let reader = Some(view.transaction);
        let last = view.length.checked_sub(1).and_then(|last| known.order.get(last));
        add(writer(last), reader, Edge::Wr(list));
        // Its own element may be the next one; the one after it then depends on that by ww.
        if view.length < known.order.len() {
            add(reader, writer(known.order.get(view.length)), Edge::Rw(list));
        } else {
            for element in &known.unread {
                add(reader, writer(Some(element)), Edge::Rw(list));
            }
        }
    }
}

/// Adds edges from the last versions of the parts of a list to the puts that came later.
fn add_puts(graph: &mut Graph, history: &[Transaction], versions: &Versions<'_>, parts: &[(Part, &List)]) {
    let spans: Vec<(u64, u64)> =
        parts.iter().map(|&(part, known)| span(history, versions, part.0, known)).collect();
    for (&((list, put), earlier), &(first_end, _)) in parts.iter().zip(&spans) {
        let is_unread = !earlier.unread.is_empty();
        let last = &earlier.order[earlier.order.len().saturating_sub(1)..];
        let last = if is_unread { &earlier.unread[..] } else { last };
        let writers = last.iter().filter_map(|&element| versions.writer(list, element));
        let readers = earlier.views.iter().filter(|view| !is_unread && view.length == earlier.order.len());
        let before: Vec<(usize, Edge)> = writers
            .map(|writer| (writer, Edge::Ww(list)))
            .chain(readers.map(|reader| (reader.transaction, Edge::Rw(list))))
            .collect();
        for (&((_, later), _), &(_, last_begin)) in parts.iter().zip(&spans) {
            let Some(to) = later.filter(|_| later != put).and_then(|later| versions.writer(list, later))
            else {
                continue;
            };
            for &(from, edge) in &before {
                if put.is_none() {
                    graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), edge);
                } else if first_end < last_begin {
                    graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), Edge::Later(list));
                }
            }
        }
    }
}

/// Returns when the first of the transactions that saw or wrote versions of a part ended, and when
/// the last of them began.
fn span(history: &[Transaction], versions: &Versions<'_>, list: u32, known: &List) -> (u64, u64) {
    let written = known.order.iter().chain(&known.unread);
    let writers = written.filter_map(|&element| versions.writer(list, element));
    let all = writers.chain(known.views.iter().map(|view| view.transaction));
    all.fold((u64::MAX, 0), |(first_end, last_begin), at| {
        let end = if let End::Committed(at) = history[at].end { at } else { u64::MAX };
        (first_end.min(end), last_begin.max(history[at].invoked))
    })
}

/// Adds an edge from each transaction to those that began after its end, except edges that follow
/// from others.
fn add_time(graph: &mut Graph, history: &[Transaction], versions: &Versions<'_>) {
    // At equal times a beginning comes first: the two overlap.
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (at, transaction) in history.iter().enumerate().filter(|&(at, _)| versions.is_committed[at]) {
        events.push((transaction.invoked, false, at));
        if let End::Committed(returned) = transaction.end {
            events.push((returned, true, at));
        }
    }
    events.sort_unstable();
    // Ended transactions after whose end no other has begun and ended.
    let mut latest: Vec<(u64, usize)> = Vec::new();
    for (time, is_end, at) in events {
        if is_end {
            latest.retain(|&(ended, _)| ended >= history[at].invoked);
            latest.push((time, at));
        } else {
            for &(_, earlier) in &latest {
                graph.add_edge(NodeIndex::new(earlier), NodeIndex::new(at), Edge::Rt);
            }
        }
    }
}
