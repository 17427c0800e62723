//! The top of an index's tree, as shown by `darter tree` and the status page.

use darter_fabric::GlobalAddr;

/// The edge from a node to one of its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEdge {
    /// The key ends at the node.
    End,
    /// The next byte of the key.
    Byte(u8),
    /// A range of values of the key's next half byte; `None` stands for the key that ends at the
    /// node.
    Nibbles {
        /// The first value.
        first: Option<u8>,
        /// The last value.
        last: Option<u8>,
    },
    /// The pair is stored in the page.
    Pair,
}

/// A node, page or leaf, with the part of the tree below it that is shown.
#[derive(Clone, Debug)]
pub struct TreeView {
    /// The type: `N16`, `leaf`. For Quiver: `node`, with the trailing half byte of its prefix if
    /// there is one; `page`, with its pairs and records; `record` for a pair stored in the page.
    pub label: String,
    /// The key bytes from the root to here, including compressed ones. For a leaf, its whole key;
    /// for a page, its least key.
    pub prefix: Vec<u8>,
    /// The node's address.
    pub addr: GlobalAddr,
    /// Children in key order, each with its edge.
    pub children: Vec<(TreeEdge, TreeView)>,
    /// Children not shown.
    pub more: u64,
    /// Length of the value in bytes, for a leaf or a record.
    pub value_bytes: Option<u64>,
}

impl TreeView {
    /// Attaches each view to its parent, given by its index in the list. The first view is the top.
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
