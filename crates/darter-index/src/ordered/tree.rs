//! The top of an index's tree, as `darter tree` and the status page show it.

use darter_fabric::GlobalAddr;

/// What leads from a node to one of its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEdge {
    /// The key ends at the node.
    End,
    /// The next byte of the key.
    Byte(u8),
    /// The next half byte of the key, one of several; `None` for the key that ends at the node.
    Nibbles {
        /// The first of them.
        first: Option<u8>,
        /// The last of them.
        last: Option<u8>,
    },
    /// The page holds the pair.
    Pair,
}

/// A node, page or leaf with what is shown below it.
#[derive(Clone, Debug)]
pub struct TreeView {
    /// The type: `N16`, `leaf`; of Quiver `node`, with the half byte that its prefix has beside
    /// whole ones, `page` with its pairs and records, `record` for a pair that lies in the page.
    pub label: String,
    /// The key bytes from the root to here, compressed ones included; a leaf's whole key; a page's
    /// least key.
    pub prefix: Vec<u8>,
    /// Where it lies.
    pub addr: GlobalAddr,
    /// Children in key order, with what leads to each.
    pub children: Vec<(TreeEdge, TreeView)>,
    /// Children not shown.
    pub more: u64,
    /// A leaf's, or a record's, value length in bytes.
    pub value_bytes: Option<u64>,
}

impl TreeView {
    /// Hangs each view under its parent, by the parent's place in the list; the first is the top.
    pub(crate) fn assemble(mut views: Vec<(usize, TreeEdge, Self)>) -> Self {
        while views.len() > 1 {
            if let Some((parent, edge, view)) = views.pop() {
                views[parent].2.children.insert(0, (edge, view));
            }
        }
        views.pop().map_or_else(
            || Self {
                label: String::new(),
                prefix: Vec::new(),
                addr: GlobalAddr::NULL,
                children: Vec::new(),
                more: 0,
                value_bytes: None,
            },
            |(_, _, view)| view,
        )
    }
}
