//! A connection on which another gateway reports the keys that it changes.

use super::Tracking;
use crate::peers::Sender;
use std::sync::Arc;

/// The messages of another gateway on a connection. When it ends, messages may be lost.
#[derive(Debug)]
pub(crate) struct Meeting {
    pub(crate) sender: Arc<Sender>,
    /// The keys that this gateway's clients track.
    pub(crate) tracking: Arc<Tracking>,
}

impl Drop for Meeting {
    fn drop(&mut self) {
        self.tracking.has_lost(self.sender.id);
    }
}
