//! The tree as indented text.
//!
//! ```text
//! N256 ""  mn0+0x1000
//! ├─ a  N8 "a<"  mn0+0x1000
//! │  ├─ end  leaf 3 B "a<"  mn0+0x1000
//! │  └─ … 5 more
//! └─ z  leaf 0 B "z"  mn0+0x1000
//! ```

use super::{caption, edge, shown};
use crate::notation::Notation;
use darter::report::TreeView;
use std::io::{self, Write};

/// Writes the picture, one line per node.
pub(super) fn draw(out: &mut impl Write, view: &TreeView, notation: Notation) -> io::Result<()> {
    writeln!(out, "{}", line(view, notation))?;
    below(out, view, notation, &mut String::new())
}

fn line(view: &TreeView, notation: Notation) -> String {
    format!("{} \"{}\"  {}", caption(view), shown(&view.prefix, notation), view.addr)
}

fn below(out: &mut impl Write, view: &TreeView, notation: Notation, margin: &mut String) -> io::Result<()> {
    let outer = margin.len();
    for (at, (byte, child)) in view.children.iter().enumerate() {
        let is_last = at + 1 == view.children.len() && view.more == 0;
        let (branch, next) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let edge = edge(*byte, notation);
        let gap = if edge.is_empty() { "" } else { "  " };
        writeln!(out, "{margin}{branch}{edge}{gap}{}", line(child, notation))?;
        margin.push_str(next);
        below(out, child, notation, margin)?;
        margin.truncate(outer);
    }
    if view.more > 0 {
        writeln!(out, "{margin}└─ … {} more", view.more)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::samples;

    #[test]
    fn the_picture_shows_every_node_and_what_is_left_out() {
        let mut out = Vec::new();
        draw(&mut out, &samples::small(), Notation::Escaped).unwrap();
        let expected = "\
N256 \"\"  mn0+0x1000
├─ a  N8 \"a<\"  mn0+0x1000
│  ├─ end  leaf 3 B \"a<\"  mn0+0x1000
│  ├─ \\x00  leaf 4 B \"a<\\x00\"  mn0+0x1000
│  └─ … 5 more
└─ z  leaf 0 B \"z\"  mn0+0x1000
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        draw(&mut out, &samples::paged(), Notation::Escaped).unwrap();
        let expected = "\
node \"\"  mn0+0x1000
└─ end-f  page 2/1 \"pear\"  mn0+0x1000
   ├─ record 5 B \"pear\"  mn0+0x1000
   └─ leaf 6 B \"plum\"  mn0+0x1000
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_long_prefix_is_shown_by_its_end() {
        let text = shown(&[b'x'; 1000], Notation::Escaped);
        assert_eq!(text.chars().count(), 41);
        assert!(text.starts_with('…'));
    }

    #[test]
    fn a_record_of_a_gateway_and_an_escaped_key_are_distinguished() {
        assert_eq!(shown(b"\xffkpear", Notation::Escaped), "gateway:kpear");
        assert_eq!(shown(b"\xfe\xffkpear", Notation::Escaped), "\\xffkpear");
        assert_eq!(shown(b"kpear", Notation::Escaped), "kpear");
    }
}
