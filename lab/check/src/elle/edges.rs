//! The graph of dependencies.

use super::versions::{List, Versions};
use super::{End, Transaction};
use petgraph::graph::{DiGraph, NodeIndex};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// It appended to this list first.
    Ww(u32),
    /// The other one read what it appended to this list.
    Wr(u32),
    /// It read this list, and the other one appended the next element.
    Rw(u32),
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
    for (&list, known) in &versions.lists {
        add_list(&mut graph, versions, list, known);
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
