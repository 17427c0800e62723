//! What a transaction publishes. It is sent after the commit, and once, even if the transaction runs
//! again after a conflict.

use crate::fault::Fault;

/// Most bytes of messages that a transaction publishes.
const BYTES_MAX: usize = 256 << 20;

/// A message to a channel, or to a sharded one.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) is_sharded: bool,
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// The messages that a transaction in progress has published.
#[derive(Debug, Default)]
pub(crate) struct Published {
    messages: Vec<Publication>,
    bytes: usize,
}

impl Published {
    /// Adds a message.
    ///
    /// # Errors
    /// Fails if there is no room for it. The transaction must then be discarded.
    pub(crate) fn add(&mut self, is_sharded: bool, channel: &[u8], payload: &[u8]) -> Result<(), Fault> {
        self.bytes += channel.len() + payload.len() + size_of::<Publication>();
        if self.bytes > BYTES_MAX {
            return Err(Fault::ended("ERR the transaction publishes too much; split it"));
        }
        let (channel, payload) = (channel.to_vec(), payload.to_vec());
        self.messages.push(Publication { is_sharded, channel, payload });
        Ok(())
    }

    /// Returns the messages in their order, and forgets them.
    pub(crate) fn take(&mut self) -> Vec<Publication> {
        std::mem::take(self).messages
    }
}
