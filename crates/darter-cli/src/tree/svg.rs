//! The tree as SVG: levels from top to bottom, a parent centred over its children.
//!
//! Nodes without drawn children take the next free column, from left to right, so no two overlap
//! and the width of the picture is the number of such nodes.

use super::{caption, edge, shown};
use crate::notation::Notation;
use ::svg::Document;
use ::svg::node::element::{Group, Line, Rectangle, Style, Text, Title};
use darter::report::TreeView;

/// Size in pixels of a column, a level, a node's box, and the border.
const COLUMN: f64 = 120.0;
const LEVEL: f64 = 90.0;
const BOX_WIDTH: f64 = 108.0;
const BOX_HEIGHT: f64 = 36.0;
const BORDER: f64 = 20.0;
/// Maximum characters of a prefix in a box.
const BOX_CHARS: usize = 15;

const STYLE: &str = "\
text { font: 12px ui-monospace, monospace; text-anchor: middle; fill: #1d2433 }
.prefix { font-size: 10px; fill: #5a6478 } .edge { font-size: 11px; fill: #8a3b12 }
line { stroke: #9aa3b5 } rect { stroke: #4a5570; fill: #e4ebfa } .leaf rect { fill: #e6f5e4 } .more { fill: #5a6478 }";

/// Returns the picture.
pub(super) fn draw(view: &TreeView, notation: Notation) -> Document {
    let mut canvas =
        Canvas { lines: Group::new(), boxes: Group::new(), next_column: 0.0, depth_max: 0, notation };
    canvas.place(view, 0);
    let width = canvas.next_column * COLUMN + 2.0 * BORDER;
    let height = canvas.depth_max as f64 * LEVEL + BOX_HEIGHT + 2.0 * BORDER;
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .add(Style::new(STYLE))
        .add(
            Rectangle::new()
                .set("width", "100%")
                .set("height", "100%")
                .set("style", "fill: white; stroke: none"),
        )
        .add(canvas.lines)
        .add(canvas.boxes)
}

/// The elements drawn so far. Edges are below the boxes.
struct Canvas {
    lines: Group,
    boxes: Group,
    next_column: f64,
    depth_max: usize,
    notation: Notation,
}

/// Returns the top of a level.
fn top(depth: usize) -> f64 {
    BORDER + depth as f64 * LEVEL
}

impl Canvas {
    /// Returns the middle of the next free column.
    fn take_column(&mut self) -> f64 {
        let middle = BORDER + (self.next_column + 0.5) * COLUMN;
        self.next_column += 1.0;
        middle
    }

    fn draw_box(&mut self, group: Group) {
        let boxes = std::mem::replace(&mut self.boxes, Group::new());
        self.boxes = boxes.add(group);
    }

    fn draw_edge(&mut self, from: f64, to: f64, depth: usize, label: &str) {
        let (y1, y2) = (top(depth) + BOX_HEIGHT, top(depth + 1));
        let line = Line::new().set("x1", from).set("y1", y1).set("x2", to).set("y2", y2);
        // The label is two thirds down, where the edges of a node are apart.
        let label = Text::new(label)
            .set("class", "edge")
            .set("x", from + (to - from) * 0.66 + 4.0)
            .set("y", y1 + (y2 - y1) * 0.66);
        let lines = std::mem::replace(&mut self.lines, Group::new());
        self.lines = lines.add(line).add(label);
    }

    /// Draws a node and everything below it. Returns its middle.
    fn place(&mut self, view: &TreeView, depth: usize) -> f64 {
        self.depth_max = self.depth_max.max(depth);
        let mut middles = Vec::with_capacity(view.children.len() + 1);
        for (byte, child) in &view.children {
            middles.push((self.place(child, depth + 1), edge(*byte, self.notation)));
        }
        if view.more > 0 && !view.children.is_empty() {
            middles.push((self.place_more(view.more, depth + 1), String::new()));
        }
        let middle = match (middles.first(), middles.last()) {
            (Some((first, _)), Some((last, _))) => f64::midpoint(*first, *last),
            _ => self.take_column(),
        };
        for (child, label) in &middles {
            self.draw_edge(middle, *child, depth, label);
        }
        self.draw_node(view, middle, depth);
        middle
    }

    /// Draws a placeholder for the children that are not drawn.
    fn place_more(&mut self, more: u64, depth: usize) -> f64 {
        self.depth_max = self.depth_max.max(depth);
        let middle = self.take_column();
        let text = Text::new(format!("… {more} more"));
        let text = text.set("class", "more").set("x", middle).set("y", top(depth) + 22.0);
        self.draw_box(Group::new().add(text));
        middle
    }

    fn draw_node(&mut self, view: &TreeView, middle: f64, depth: usize) {
        let top = top(depth);
        let prefix = shown(&view.prefix, self.notation);
        let excess = prefix.chars().count().saturating_sub(BOX_CHARS);
        let fitting: String = if excess == 0 {
            format!("\"{prefix}\"")
        } else {
            format!("…{}\"", prefix.chars().skip(excess + 1).collect::<String>())
        };
        let hidden = if view.children.is_empty() && view.more > 0 {
            format!("{} children not drawn, ", view.more)
        } else {
            String::new()
        };
        let rectangle = Rectangle::new()
            .set("x", middle - BOX_WIDTH / 2.0)
            .set("y", top)
            .set("width", BOX_WIDTH)
            .set("height", BOX_HEIGHT)
            .set("rx", 4);
        let group = Group::new()
            .set("class", if view.value_bytes.is_some() { "leaf" } else { "node" })
            .add(Title::new(format!("{hidden}prefix \"{prefix}\", at {}", view.addr)))
            .add(rectangle)
            .add(Text::new(caption(view)).set("x", middle).set("y", top + 15.0))
            .add(Text::new(fitting).set("class", "prefix").set("x", middle).set("y", top + 29.0));
        self.draw_box(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    #[test]
    fn every_node_has_a_box_and_text_is_escaped() {
        let picture = draw(&samples::small(), Notation::Escaped).to_string();
        assert_eq!(picture.matches("<rect").count(), 1 + 5, "{picture}");
        assert_eq!(picture.matches("<line").count(), 5);
        assert!(picture.contains("a&lt;") && !picture.contains("a<\""));
        assert!(picture.contains("… 5 more"));
        assert!(picture.starts_with("<svg"));
        let picture = draw(&samples::paged(), Notation::Escaped).to_string();
        assert_eq!(picture.matches("<rect").count(), 1 + 4, "{picture}");
        assert!(picture.contains("page 2/1") && picture.contains("end-f"));
    }
}
