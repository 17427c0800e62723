//! The verbs of a frame, executed on this memory: how a memory node serves it to clients across a
//! network.

use super::LocalEndpoint;
use super::endpoint::{Order, Regions};
use crate::wire::FrameVerbs;
use crate::{FabricError, VerbKind};

impl LocalEndpoint {
    /// Executes the verbs of a request on node 0, in their order, and appends their results to
    /// `out`.
    ///
    /// # Errors
    /// Fails as a batch of these verbs does, except that none of them has taken effect then.
    pub fn execute_frame(&mut self, verbs: FrameVerbs<'_>, out: &mut Vec<u8>) -> Result<(), FabricError> {
        self.pool.regions.execute_frame(verbs, out)
    }
}

impl Regions {
    /// [`Regions::execute`] for the verbs of a frame; appends their results to `out`.
    fn execute_frame(&self, verbs: FrameVerbs<'_>, out: &mut Vec<u8>) -> Result<(), FabricError> {
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        // An error means that nothing was done.
        verbs.clone().try_for_each(|(verb, _)| self.locate(&verb).map(drop))?;
        let mut order = Order::default();
        for (verb, carried) in verbs {
            let words = self.locate(&verb)?;
            match verb.kind {
                VerbKind::Read => {
                    let at = out.len();
                    out.resize(at + words.len() * 8, 0);
                    let room = out[at..].chunks_exact_mut(8);
                    room.zip(order.load(words))
                        .for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
                }
                VerbKind::Write => order.store(words, carried.chunks_exact(8).map(word)),
                VerbKind::Cas => {
                    let found = order.cas(&words[0], word(carried), word(&carried[8..]));
                    out.extend_from_slice(&found.to_le_bytes());
                }
                VerbKind::Faa => {
                    let found = order.add(&words[0], word(carried));
                    out.extend_from_slice(&found.to_le_bytes());
                }
            }
        }
        Ok(())
    }
}
