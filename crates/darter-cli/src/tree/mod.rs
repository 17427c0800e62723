//! `tree`: a picture of the top of the index, as text and as SVG.

mod svg;
mod text;

use crate::Answer;
use crate::arguments::NotationArgs;
use crate::failure::Failure;
use crate::notation::Notation;
use crate::pool::PoolArgs;
use darter::Store;
use darter::report::TreeView;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter tree --levels 2
  darter tree --prefix user: --svg tree.svg")]
pub(crate) struct TreeCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    tree: TreeArgs,
}

/// What to draw.
#[derive(clap::Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    notation: NotationArgs,
    /// Draw the part of the tree below this prefix
    #[arg(long, value_name = "KEY", default_value = "")]
    prefix: OsString,
    /// Levels to draw
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=64))]
    levels: u64,
    /// Children of a node to draw; the rest are counted
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=257))]
    width: u64,
    /// Draw into this file, as SVG, instead of as text
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
        let prefix = notation.argument(&self.prefix)?;
        let view = store.tree(&prefix, self.levels as usize, self.width as usize)?;
        if let Some(path) = &self.svg {
            ::svg::save(path, &svg::draw(&view, notation))
                .map_err(|error| Failure::failed(format_args!("{}: {error}", path.display())))?;
        } else {
            let mut out = std::io::stdout().lock();
            text::draw(&mut out, &view, notation)?;
            out.flush()?;
        }
        Ok(Answer::Done)
    }
}

/// Characters of a prefix in a picture, at most.
const PREFIX_CHARS_MAX: usize = 40;

/// A prefix as a picture shows it: its end, when it is long.
fn shown(prefix: &[u8], notation: Notation) -> String {
    // Enough bytes for the characters shown; the rest need not be written out.
    let tail = &prefix[prefix.len().saturating_sub(PREFIX_CHARS_MAX)..];
    let text = notation.write(tail);
    let excess = text.chars().count().saturating_sub(PREFIX_CHARS_MAX);
    if excess == 0 && tail.len() == prefix.len() {
        return text;
    }
    format!("…{}", text.chars().skip(excess).collect::<String>())
}

/// The byte on an edge: `e`, `\x00`; `end` where the key ends at the node.
fn edge(byte: Option<u8>, notation: Notation) -> String {
    byte.map_or_else(|| "end".to_owned(), |byte| notation.write(&[byte]))
}

/// A node in a few words: its type, or a leaf's value size.
fn caption(view: &TreeView) -> String {
    match view.value_bytes {
        Some(bytes) => format!("{} {bytes} B", view.label),
        None => view.label.clone(),
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! A small tree for the pictures' tests.

    use darter::GlobalAddr;
    use darter::report::TreeView;

    fn node(label: &str, prefix: &[u8], children: Vec<(Option<u8>, TreeView)>, more: u64) -> TreeView {
        let addr = GlobalAddr::new(0, 4096);
        TreeView { label: label.to_owned(), prefix: prefix.to_vec(), addr, children, more, value_bytes: None }
    }

    fn leaf(key: &[u8], value_bytes: u64) -> TreeView {
        TreeView { value_bytes: Some(value_bytes), ..node("leaf", key, Vec::new(), 0) }
    }

    /// A root with a node and a leaf below it.
    pub(crate) fn small() -> TreeView {
        let below = node("N8", b"a<", vec![(None, leaf(b"a<", 3)), (Some(0), leaf(b"a<\0", 4))], 5);
        node("N256", b"", vec![(Some(b'a'), below), (Some(b'z'), leaf(b"z", 0))], 0)
    }
}
