//! `tree`: draws the top of the index, as text or SVG.

mod svg;
mod text;

use crate::Answer;
use crate::arguments::NotationArgs;
use crate::failure::Failure;
use crate::notation::Notation;
use crate::pool::PoolArgs;
use crate::signals::unless_interrupted;
use darter::Store;
use darter::engine::KeySpace;
use darter::report::{TreeEdge, TreeView};
use darter_fabric::files::{Access, write_output};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter tree --levels 2
  darter tree --prefix user: --svg tree.svg")]
pub struct TreeCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    tree: TreeArgs,
}

/// The part of the tree to draw.
#[derive(clap::Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    notation: NotationArgs,
    /// Draw the subtree below this prefix; empty for the whole tree
    #[arg(long, value_name = "KEY", default_value = "")]
    prefix: OsString,
    /// Number of levels to draw
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=64))]
    levels: u64,
    /// Maximum number of children to draw per node; the others are counted
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=257))]
    width: u64,
    /// Write an SVG image to this file instead of text to stdout
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl TreeCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        self.pool.read(|store| self.tree.run(store))
    }
}

impl TreeArgs {
    /// Draws the tree of an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let notation = self.notation.notation();
        let prefix = KeySpace::Program.into_place(notation.argument(&self.prefix)?);
        let view = store.tree(&prefix, self.levels as usize, self.width as usize)?;
        if let Some(path) = &self.svg {
            let picture = svg::draw(&view, notation).to_string();
            let path = path.clone();
            unless_interrupted(move || {
                write_output(&path, Access::Owner, picture.as_bytes())
                    .map_err(|error| Failure::of_output(&path, &error))
            })?;
        } else {
            let mut out = std::io::stdout().lock();
            text::draw(&mut out, &view, notation)?;
            out.flush()?;
        }
        Ok(Answer::Done)
    }
}

/// Maximum characters of a prefix in a picture.
const PREFIX_CHARS_MAX: usize = 40;

/// Returns a prefix as shown in a picture; of a long one only the end. The prefix of a gateway's
/// record begins with `gateway:`.
fn shown(prefix: &[u8], notation: Notation) -> String {
    let space = KeySpace::of_place(prefix);
    let prefix = space.key(prefix);
    match space {
        KeySpace::Gateway => format!("gateway:{}", end_of(prefix, notation)),
        _ => end_of(prefix, notation),
    }
}

fn end_of(prefix: &[u8], notation: Notation) -> String {
    // These bytes suffice for the characters shown.
    let tail = &prefix[prefix.len().saturating_sub(PREFIX_CHARS_MAX)..];
    let text = notation.write(tail);
    let excess = text.chars().count().saturating_sub(PREFIX_CHARS_MAX);
    if excess == 0 && tail.len() == prefix.len() {
        return text;
    }
    format!("…{}", text.chars().skip(excess).collect::<String>())
}

/// Returns the label of the edge to a child: a byte, for example `e` or `\x00`; half bytes, for
/// example `6` or `8-f`; `end` if the key ends at the node; empty for a pair of a page.
fn edge(edge: TreeEdge, notation: Notation) -> String {
    let digit = |nibble: Option<u8>| nibble.map_or_else(|| "end".to_owned(), |nibble| format!("{nibble:x}"));
    match edge {
        TreeEdge::End => digit(None),
        TreeEdge::Byte(byte) => notation.write(&[byte]),
        TreeEdge::Nibbles { first, last } if first == last => digit(first),
        TreeEdge::Nibbles { first, last } => format!("{}-{}", digit(first), digit(last)),
        TreeEdge::Pair => String::new(),
    }
}

/// Returns a short description of a node: its type and, for a leaf, the size of its value.
fn caption(view: &TreeView) -> String {
    match view.value_bytes {
        Some(bytes) => format!("{} {bytes} B", view.label),
        None => view.label.clone(),
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Small trees for the tests of the pictures.

    use darter::GlobalAddr;
    use darter::report::{TreeEdge, TreeView};

    fn node(label: &str, prefix: &[u8], children: Vec<(TreeEdge, TreeView)>, more: u64) -> TreeView {
        let addr = GlobalAddr::new(0, 4096);
        TreeView { label: label.to_owned(), prefix: prefix.to_vec(), addr, children, more, value_bytes: None }
    }

    fn leaf(key: &[u8], value_bytes: u64) -> TreeView {
        TreeView { value_bytes: Some(value_bytes), ..node("leaf", key, Vec::new(), 0) }
    }

    /// Returns a root with a page of one record and one leaf.
    pub(crate) fn paged() -> TreeView {
        let record = TreeView { label: "record".to_owned(), ..leaf(b"pear", 5) };
        let pairs = vec![(TreeEdge::Pair, record), (TreeEdge::Pair, leaf(b"plum", 6))];
        let edge = TreeEdge::Nibbles { first: None, last: Some(15) };
        node("node", b"", vec![(edge, node("page 2/1", b"pear", pairs, 0))], 0)
    }

    /// Returns a root with a node and a leaf below it.
    pub(crate) fn small() -> TreeView {
        let below = node(
            "N8",
            b"a<",
            vec![(TreeEdge::End, leaf(b"a<", 3)), (TreeEdge::Byte(0), leaf(b"a<\0", 4))],
            5,
        );
        node("N256", b"", vec![(TreeEdge::Byte(b'a'), below), (TreeEdge::Byte(b'z'), leaf(b"z", 0))], 0)
    }
}
