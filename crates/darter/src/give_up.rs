//! Giving up memory nodes that are lost for good ([`Store::give_up_nodes`]).
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! # fn main() -> Result<(), darter::Error> {
//! let store = darter::Store::open("tcp://10.0.0.5:7411,10.0.0.6:7411,10.0.0.7:7411")?;
//! let given_up = store.give_up_nodes(&[2], &mut |_| ControlFlow::Continue(()))?;
//! println!("{} keys of known names are gone", given_up.keys);
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::link::{Link, Repeat, attempted};
use crate::store::Store;
use darter_fabric::block_on;
pub use darter_index::give_up::GivenUp;
use darter_index::give_up::give_up;
pub use darter_index::{CutOff, Gap};
use std::ops::ControlFlow;

impl Store {
    /// Gives up memory nodes that do not respond and will not come back: they leave the pool for good,
    /// and everything that the index refers to on them is removed from it. Afterwards the pool is whole,
    /// without the keys that were lost.
    ///
    /// Calls `watch` with what each step has cut off; keys in it are those of the whole index, records of
    /// gateways among them. If `watch` breaks, if the call fails, or if the process ends, another call
    /// goes on, and returns what was still left to cut off.
    ///
    /// ```no_run
    /// # use std::ops::ControlFlow;
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::open("tcp://10.0.0.5:7411,10.0.0.6:7411,10.0.0.7:7411")?;
    /// let given_up = store.give_up_nodes(&[1], &mut |cut| {
    ///     for key in cut.gaps.iter().filter_map(|gap| gap.key()) {
    ///         eprintln!("gone: {}", key.escape_ascii());
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(given_up.is_complete);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails, with the reason and without a change, if a node responds or is memory node 0; if further
    /// nodes do not respond; if other processes have the pool open; or if the index is DART.
    /// Fails if the pool fails or has no room: another call goes on.
    pub fn give_up_nodes(
        &self,
        nodes: &[u8],
        watch: &mut (dyn FnMut(&CutOff) -> ControlFlow<()> + Send),
    ) -> Result<GivenUp, Error> {
        block_on(async {
            let link = &mut Link::open(self.membership())?;
            // Its walk would fail at the lost nodes.
            if let Some(sweeper) = &link.store.sweeper {
                sweeper.rest().await;
            }
            attempted!(
                link,
                Repeat::Always,
                give_up(&link.open.index, &mut link.client, nodes, &mut *watch).await
            )
        })
    }
}
