//! The search for cycles, from the weakest to the strongest guarantee.

use super::edges::{Edge, Graph, graph};
use super::versions::Versions;
use super::{Anomaly, Finding, Transaction};
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeFiltered, EdgeRef};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

/// A kind of cycle: the edges that it may have, and those of which it has at least one.
struct Shape {
    anomaly: Anomaly,
    /// Edges of any number.
    body: fn(Edge) -> bool,
    /// The edge that the cycle is searched from.
    start: fn(Edge) -> bool,
}

fn is_ww(edge: Edge) -> bool {
    matches!(edge, Edge::Ww(_))
}

fn is_wr(edge: Edge) -> bool {
    matches!(edge, Edge::Wr(_))
}

fn is_rw(edge: Edge) -> bool {
    matches!(edge, Edge::Rw(_))
}

fn is_write_read(edge: Edge) -> bool {
    is_ww(edge) || is_wr(edge)
}

fn is_dependency(edge: Edge) -> bool {
    !is_time(edge)
}

fn is_time(edge: Edge) -> bool {
    matches!(edge, Edge::Rt | Edge::Later(_))
}

/// Edges from which a cycle is searched for in a set of transactions that depend on each other.
const STARTS_MAX: usize = 4096;

const SHAPES: [Shape; 5] = [
    Shape { anomaly: Anomaly::G0, body: is_ww, start: is_ww },
    Shape { anomaly: Anomaly::G1c, body: is_write_read, start: is_wr },
    Shape { anomaly: Anomaly::GSingle, body: is_write_read, start: is_rw },
    Shape { anomaly: Anomaly::G2Item, body: is_dependency, start: is_rw },
    Shape { anomaly: Anomaly::RealTime, body: |_| true, start: is_time },
];

/// Checks a history for strict serializability. Returns the anomalies found, none if it is strictly
/// serializable as far as its reads reveal. Of all cycles through the same transactions, only one of
/// the weakest guarantee broken is returned.
pub fn check(history: &[Transaction]) -> Vec<Finding> {
    let mut versions = Versions::of(history);
    let graph = graph(history, &versions);
    let mut findings = std::mem::take(&mut versions.findings);
    let mut told = HashSet::new();
    for shape in &SHAPES {
        for cycle in cycles(&graph, shape, &told) {
            let nodes: Vec<usize> =
                cycle.iter().filter_map(|&edge| Some(graph.edge_endpoints(edge)?.0.index())).collect();
            told.extend(nodes.iter().copied());
            let explanation = explain(history, &graph, &cycle);
            findings.push(Finding { anomaly: shape.anomaly, transactions: nodes, explanation });
        }
    }
    findings.sort_by_key(|finding| finding.anomaly);
    findings
}

/// Returns a shortest cycle of a shape for each set of transactions that depend on each other, unless
/// one of them is in `told`.
fn cycles(graph: &Graph, shape: &Shape, told: &HashSet<usize>) -> Vec<Vec<EdgeIndex>> {
    let allowed = |edge: Edge| (shape.body)(edge) || (shape.start)(edge);
    let filtered = EdgeFiltered::from_fn(graph, |edge| allowed(*edge.weight()));
    let mut found = Vec::new();
    for component in kosaraju_scc(&filtered) {
        if component.len() < 2 || component.iter().any(|node| told.contains(&node.index())) {
            continue;
        }
        let inside: HashSet<NodeIndex> = component.iter().copied().collect();
        let starts = component.iter().flat_map(|&node| graph.edges(node));
        let starts = starts.filter(|edge| (shape.start)(*edge.weight()) && inside.contains(&edge.target()));
        let mut shortest: Option<Vec<EdgeIndex>> = None;
        for start in starts.take(STARTS_MAX) {
            if let Some(path) = path(graph, shape.body, &inside, start.target(), start.source())
                && shortest.as_ref().is_none_or(|known| path.len() + 1 < known.len())
            {
                shortest = Some(std::iter::once(start.id()).chain(path).collect());
                if shortest.as_ref().is_some_and(|cycle| cycle.len() == 2) {
                    break;
                }
            }
        }
        found.extend(shortest.map(|cycle| rotated(graph, cycle)));
    }
    found.sort();
    found
}

/// Returns a shortest path, by a search in breadth.
fn path(
    graph: &Graph,
    allowed: fn(Edge) -> bool,
    inside: &HashSet<NodeIndex>,
    from: NodeIndex,
    to: NodeIndex,
) -> Option<Vec<EdgeIndex>> {
    let mut reached: HashMap<NodeIndex, EdgeIndex> = HashMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        if node == to {
            let (mut path, mut at) = (Vec::new(), to);
            while at != from {
                let edge = reached[&at];
                path.push(edge);
                at = graph.edge_endpoints(edge)?.0;
            }
            path.reverse();
            return Some(path);
        }
        for edge in graph.edges(node).filter(|edge| allowed(*edge.weight())) {
            let next = edge.target();
            if next != from && inside.contains(&next) && !reached.contains_key(&next) {
                reached.insert(next, edge.id());
                queue.push_back(next);
            }
        }
    }
    None
}

/// Begins a cycle with its lowest transaction.
fn rotated(graph: &Graph, mut cycle: Vec<EdgeIndex>) -> Vec<EdgeIndex> {
    let source = |edge: &EdgeIndex| graph.edge_endpoints(*edge).map(|(source, _)| source);
    let lowest = (0..cycle.len()).min_by_key(|&at| source(&cycle[at])).unwrap_or(0);
    cycle.rotate_left(lowest);
    cycle
}

/// Explains a cycle: its transactions, and why each comes before the next.
fn explain(history: &[Transaction], graph: &Graph, cycle: &[EdgeIndex]) -> String {
    let mut text = String::new();
    let ends = |edge: EdgeIndex| graph.edge_endpoints(edge).map(|(from, to)| (from.index(), to.index()));
    for (from, _) in cycle.iter().filter_map(|&edge| ends(edge)) {
        let _ = writeln!(text, "  T{from}, {}", history[from]);
    }
    for &edge in cycle {
        let Some((from, to)) = ends(edge) else { continue };
        let _ = write!(text, "  T{from} comes before T{to}: ");
        let _ = match graph[edge] {
            Edge::Ww(list) => writeln!(text, "it appended to list {list} first (ww)"),
            Edge::Wr(list) => writeln!(text, "T{to} read what it appended to list {list} (wr)"),
            Edge::Rw(list) => writeln!(text, "it read list {list} without the element of T{to} (rw)"),
            Edge::Later(list) => writeln!(text, "T{to} put list {list} later, as times show"),
            Edge::Rt => writeln!(text, "it ended before T{to} began (real time)"),
        };
    }
    text.push_str("  so these transactions have no order");
    text
}
