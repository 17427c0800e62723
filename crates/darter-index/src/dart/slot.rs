//! The slots of DART's nodes: [`crate::radix::slot`] with the types of [`super::node`].

use super::node::NodeType;
pub(crate) use crate::radix::slot::{END, SKIP_MAX};

/// One slot of a node.
pub(crate) type Slot = crate::radix::slot::Slot<NodeType>;

/// What a slot holds, seal aside.
pub(crate) type Held = crate::radix::slot::Held<NodeType>;
