//! Balancing how much the memory nodes of a pool hold ([`Store::rebalance`]).
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), darter::Error> {
//! let store = darter::Store::open("tcp://10.0.0.5:7411")?;
//! store.add_node("10.0.0.6:7411", Duration::from_secs(15))?;
//! let rebalanced = store.rebalance(&mut |_| ControlFlow::Continue(()))?;
//! println!("moved {} bytes", rebalanced.bytes);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::link::{Link, Repeat, attempted};
use crate::store::Store;
use darter_fabric::block_on;
pub use darter_index::NodeFill;
use darter_index::rebalance::rebalance;
pub use darter_index::rebalance::{RebalanceEnd, RebalanceProgress, RebalanceStage, Rebalanced};
use std::ops::ControlFlow;

impl Store {
    /// Moves objects from memory nodes that hold more than their share to those that hold less, while
    /// programs work, until the fullest has at most 1.15 times the mean fill. Fill is the part of a
    /// node's blocks that keys and values take up: of two memory nodes, one twice as large gets twice as
    /// much. A pool that is even already is left as it is.
    ///
    /// Calls `watch` between two steps. If that breaks, if the call fails, or if the process ends, the
    /// pool works, and another call goes on. One process rebalances a pool at a time.
    ///
    /// ```no_run
    /// # use std::ops::ControlFlow;
    /// use darter::rebalance::RebalanceEnd;
    ///
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::open("tcp://10.0.0.5:7411,10.0.0.6:7411")?;
    /// let rebalanced = store.rebalance(&mut |progress| {
    ///     eprintln!("{} of about {} bytes moved", progress.bytes, progress.total_bytes);
    ///     ControlFlow::Continue(())
    /// })?;
    /// let (before, after) = rebalanced.fullest();
    /// println!("the fullest memory node has {after:.2} times the mean, and had {before:.2} times");
    /// assert_eq!(rebalanced.end, RebalanceEnd::Even);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails, with the reason, if the pool is not one of several memory nodes, if one of them is away or
    /// is leaving, while another process rebalances it, or if the index is DART: then nothing has
    /// changed. Fails if a memory node begins to leave, or the pool fails.
    pub fn rebalance(
        &self,
        watch: &mut (dyn FnMut(&RebalanceProgress) -> ControlFlow<()> + Send),
    ) -> Result<Rebalanced, Error> {
        block_on(async {
            let link = &mut Link::open(self.membership())?;
            attempted!(link, Repeat::Always, rebalance(&link.open.index, &mut link.client, &mut *watch).await)
        })
    }
}
