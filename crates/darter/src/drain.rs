//! Taking a memory node out of a pool ([`Store::drain_node`]).
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! # fn main() -> Result<(), darter::Error> {
//! let store = darter::Store::open("tcp://10.0.0.5:7411,10.0.0.6:7411")?;
//! let drained = store.drain_node(1, &mut |_| ControlFlow::Continue(()))?;
//! println!("moved {} bytes", drained.bytes);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::link::{Link, Repeat, attempted};
use crate::store::Store;
use darter_fabric::block_on;
use darter_index::drain::drain;
pub use darter_index::drain::{DrainProgress, DrainStage, Drained};
use std::ops::ControlFlow;

impl Store {
    /// Moves everything off a memory node and removes it from the pool, while programs work. When
    /// this returns [`Drained::is_removed`] and no member is [`Drained::behind`], the memory node
    /// can be stopped. Its number is not used again.
    ///
    /// Calls `watch` between two steps. If that breaks, if the call fails, or if the process ends, the
    /// pool works and the node stays *leaving*: nothing new is stored there. Another call goes on, and
    /// [`Store::cancel_drain`] puts the node back in use.
    ///
    /// ```no_run
    /// # use std::ops::ControlFlow;
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::open("tcp://10.0.0.5:7411,10.0.0.6:7411")?;
    /// let drained = store.drain_node(1, &mut |progress| {
    ///     eprintln!("{} of about {} bytes moved", progress.bytes, progress.total_bytes);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(drained.is_removed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails, with the reason, if this node cannot leave (memory node 0 cannot), another one is
    /// leaving, the other nodes have too little room, or the index is DART: then nothing has
    /// changed. Fails if the drain is cancelled, or the pool fails.
    pub fn drain_node(
        &self,
        node: u8,
        watch: &mut (dyn FnMut(&DrainProgress) -> ControlFlow<()> + Send),
    ) -> Result<Drained, Error> {
        block_on(async {
            let link = &mut Link::open(self.membership())?;
            attempted!(
                link,
                Repeat::Always,
                drain(&link.open.index, &mut link.client, node, &mut *watch).await
            )
        })
    }

    /// Puts a memory node that is leaving back in use. Returns false if it is not leaving.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::open("tcp://10.0.0.5:7411,10.0.0.6:7411")?;
    /// assert!(store.cancel_drain(1)?, "memory node 1 was not leaving");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the node is empty and is being removed, or if the pool fails.
    pub fn cancel_drain(&self, node: u8) -> Result<bool, Error> {
        block_on(async {
            let link = &mut Link::open(self.membership())?;
            attempted!(link, Repeat::Always, link.open.pool.cancel_removal(&mut link.client, node).await)
        })
    }
}
