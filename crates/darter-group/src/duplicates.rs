//! Executed frames whose clients may not have received the reply yet.
//!
//! A frame that is sent again, to this primary or to the next, gets the same reply as the first
//! time, or the reply that it would have got. The results include the words that it read: reading
//! them again could return later changes, which may be newer than a CAS or FAA of the same frame.
//!
//! Frames without effects are not recorded here. Such a frame may be executed again if it is sent
//! again, but not twice without its client's knowledge: a CAS that failed at first could swap then.
//! So frames of an older connection than the channel's newest are not executed, nor are frames of
//! another view.

use super::record::FrameId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// State of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It was not executed, or had no effects.
    New,
    /// It was executed, with these results; its record has this number.
    Executed(Arc<[u8]>, u64),
    /// Its client has the reply.
    Over,
}

/// Frames in the order of their ids, with their record numbers and results.
pub(super) type Frames = VecDeque<(u64, u64, Arc<[u8]>)>;

/// The frames of one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Channel {
    answered: u64,
    frames: Frames,
}

impl Channel {
    /// Returns the index of a frame, or the index at which to insert it.
    fn place(&self, id: u64) -> Result<usize, usize> {
        self.frames.binary_search_by_key(&id, |(id, ..)| *id)
    }
}

/// The frames of all channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    channels: BTreeMap<(u64, u32), Channel>,
}

impl Duplicates {
    pub(super) fn find(&self, frame: &FrameId) -> Known {
        let Some(channel) = self.channels.get(&(frame.session, frame.channel)) else { return Known::New };
        if let Ok(at) = channel.place(frame.id) {
            let (_, lsn, results) = &channel.frames[at];
            return Known::Executed(Arc::clone(results), *lsn);
        }
        if frame.id <= channel.answered { Known::Over } else { Known::New }
    }

    /// Returns the number of the channel's frames whose replies the client does not have, according
    /// to this frame.
    pub(super) fn kept(&self, frame: &FrameId) -> usize {
        let channel = self.channels.get(&(frame.session, frame.channel));
        let has_ended = |(id, ..): &(u64, u64, Arc<[u8]>)| *id <= frame.answered;
        channel.map_or(0, |channel| channel.frames.len() - channel.frames.partition_point(has_ended))
    }

    pub(super) fn executed(&mut self, frame: &FrameId, lsn: u64, results: Arc<[u8]>) {
        let channel = self.channels.entry((frame.session, frame.channel)).or_default();
        channel.answered = channel.answered.max(frame.answered);
        while channel.frames.front().is_some_and(|(id, ..)| *id <= channel.answered) {
            channel.frames.pop_front();
        }
        // Usually the last: a frame that had no effects may have some when it is executed again.
        match channel.place(frame.id) {
            Ok(at) => channel.frames[at] = (frame.id, lsn, results),
            Err(at) => channel.frames.insert(at, (frame.id, lsn, results)),
        }
    }

    /// Returns all channels: session and channel number, the last frame whose reply the client has,
    /// and the frames.
    pub(super) fn channels(&self) -> impl ExactSizeIterator<Item = ((u64, u32), u64, &Frames)> {
        self.channels.iter().map(|(&of, channel)| (of, channel.answered, &channel.frames))
    }

    /// Inserts a channel.
    pub(super) fn put_channel(&mut self, of: (u64, u32), answered: u64, mut frames: Frames) {
        frames.make_contiguous().sort_unstable_by_key(|(id, ..)| *id);
        self.channels.insert(of, Channel { answered, frames });
    }

    /// Removes a session.
    pub(super) fn forget(&mut self, session: u64) {
        self.channels.retain(|(owner, _), _| *owner != session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_known_until_its_reply_has_arrived() {
        let mut known = Duplicates::default();
        let frame = |id, answered| FrameId { session: 7, channel: 0, id, answered };
        assert_eq!(known.find(&frame(1, 0)), Known::New);
        known.executed(&frame(1, 0), 10, [1; 8].into());
        known.executed(&frame(3, 0), 11, [3; 8].into());
        assert_eq!(known.find(&frame(1, 0)), Known::Executed([1; 8].into(), 10));
        assert_eq!(known.find(&frame(2, 0)), Known::New, "it had no effects");
        known.executed(&frame(2, 0), 13, [2; 8].into());
        assert_eq!(known.find(&frame(2, 0)), Known::Executed([2; 8].into(), 13), "the second time");
        assert_eq!(known.find(&frame(3, 0)), Known::Executed([3; 8].into(), 11));
        known.executed(&frame(4, 2), 12, [4; 8].into());
        assert_eq!(known.find(&frame(1, 0)), Known::Over);
        assert_eq!((known.kept(&frame(4, 0)), known.find(&frame(5, 0))), (2, Known::New));
        known.forget(7);
        assert_eq!(known, Duplicates::default());
    }
}
