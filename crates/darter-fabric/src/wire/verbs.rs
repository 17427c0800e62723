//! Verbs as encoded in a frame, and their results in its reply.

use super::format::{FramedHead, HEADER_BYTES, RequestHead, RequestKind, VERBS_MAX};
use crate::{Batch, GlobalAddr, Verb, VerbKind};
use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};
use std::ops::Range;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct VerbHead {
    kind: u8,
    flags: u8,
    reserved: [u8; 2],
    words: u32,
    offset: u64,
}

/// The flag of a verb for which no client waits until its word is durable. A node that does not
/// know the flag makes all clients wait.
const VOLATILE: u8 = 1;

const _: () = assert!(size_of::<VerbHead>() == HEADER_BYTES);

/// Appends a verb with its words, which begin at `verb.at` of the batch's buffer.
pub fn put_verb(out: &mut Vec<u8>, verb: &Verb, data: &[u64]) {
    let flags = if verb.is_volatile { VOLATILE } else { 0 };
    let (kind, offset) = (verb.kind as u8, verb.addr.offset());
    let head = VerbHead { kind, flags, reserved: [0; 2], words: verb.words, offset };
    out.extend_from_slice(bytes_of(&head));
    let at = verb.at as usize;
    out.extend_from_slice(cast_slice(&data[at..at + verb.request_words()]));
}

/// The verbs of a request, as encoded in its frame.
#[derive(Clone, Debug)]
pub struct FrameVerbs<'f> {
    left: u16,
    rest: &'f [u8],
    /// The number of verbs of each kind.
    counts: [u16; VerbKind::COUNT],
    reach: u64,
}

impl<'f> FrameVerbs<'f> {
    /// Returns the verbs of a payload; `None` if it is not exactly `verbs` complete ones, or their
    /// reply exceeds `reply_bytes_max` bytes.
    pub fn new(payload: &'f [u8], verbs: u16, reply_bytes_max: u32) -> Option<Self> {
        if usize::from(verbs) > VERBS_MAX {
            return None;
        }
        let mut checked = Self::unchecked(verbs, payload);
        let mut reply_left = reply_bytes_max as usize / 8;
        while checked.left > 0 {
            let (verb, _) = checked.take_verb()?;
            reply_left = reply_left.checked_sub(verb.reply_words())?;
            checked.counts[verb.kind as usize] += 1;
            let offset = verb.addr.offset();
            let end = if offset.is_multiple_of(8) { offset + u64::from(verb.words) * 8 } else { u64::MAX };
            checked.reach = checked.reach.max(end);
        }
        checked.rest.is_empty().then_some(Self { left: verbs, rest: payload, ..checked })
    }

    fn unchecked(left: u16, rest: &'f [u8]) -> Self {
        Self { left, rest, counts: [0; VerbKind::COUNT], reach: 0 }
    }

    /// Returns the number of verbs of each kind, in the order of [`VerbKind`].
    #[inline]
    pub fn counts(&self) -> [u16; VerbKind::COUNT] {
        self.counts
    }

    /// Returns the end of the memory that the verbs access, in bytes; `u64::MAX` if an offset is
    /// not a multiple of 8.
    #[inline]
    pub(crate) fn reach(&self) -> u64 {
        self.reach
    }

    /// Returns the next verb, on memory node 0, and its words; `None` if there is no complete one.
    #[inline]
    fn take_verb(&mut self) -> Option<(Verb, &'f [u8])> {
        let (head, tail) = self.rest.split_first_chunk::<HEADER_BYTES>()?;
        let head: VerbHead = bytemuck::pod_read_unaligned(head);
        let kind = match head.kind {
            kind if kind == VerbKind::Read as u8 => VerbKind::Read,
            kind if kind == VerbKind::Write as u8 => VerbKind::Write,
            kind if kind == VerbKind::Cas as u8 => VerbKind::Cas,
            kind if kind == VerbKind::Faa as u8 => VerbKind::Faa,
            _ => return None,
        };
        let is_atomic = matches!(kind, VerbKind::Cas | VerbKind::Faa);
        let is_long_atomic = is_atomic && head.words != 1;
        if head.offset >= crate::OFFSET_LIMIT || is_long_atomic {
            return None;
        }
        let (addr, is_volatile) = (GlobalAddr::new(0, head.offset), head.flags & VOLATILE != 0);
        let verb = Verb { kind, addr, at: 0, words: head.words, is_fenced: false, is_volatile };
        let (carried, rest) = tail.split_at_checked(verb.request_words() * 8)?;
        (self.left, self.rest) = (self.left.checked_sub(1)?, rest);
        Some((verb, carried))
    }
}

impl<'f> Iterator for FrameVerbs<'f> {
    type Item = (Verb, &'f [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 { None } else { self.take_verb() }
    }
}

/// Returns the first verb of the request at the beginning of these bytes, on memory node 0, if
/// there is one. The rest of the request is not checked: it may be malformed.
#[inline]
pub fn first_verb(request: &[u8]) -> Option<Verb> {
    let head: RequestHead = super::head(request)?;
    let before = match RequestKind::from_code(head.kind)? {
        RequestKind::Batch => HEADER_BYTES,
        RequestKind::Framed => HEADER_BYTES + size_of::<FramedHead>(),
        _ => return None,
    };
    FrameVerbs::unchecked(head.verbs, request.get(before..)?).next().map(|(verb, _)| verb)
}

/// Copies a reply's words into the buffers of the verbs of `node` among `verbs`. Returns whether
/// the number of words is right.
pub(crate) fn take_answers(batch: &mut Batch, node: u8, verbs: Range<usize>, payload: &[u8]) -> bool {
    let (all, data) = batch.parts_mut();
    let mut rest = payload;
    for verb in all[verbs].iter().filter(|verb| verb.addr.node() == node) {
        let at = verb.at as usize;
        let wanted: &mut [u8] = cast_slice_mut(&mut data[at..at + verb.reply_words()]);
        let Some((words, tail)) = rest.split_at_checked(wanted.len()) else { return false };
        wanted.copy_from_slice(words);
        rest = tail;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FRAME_BYTES_MAX;

    fn frame(batch: &mut Batch) -> Vec<u8> {
        let mut out = Vec::new();
        let (verbs, data) = batch.parts_mut();
        for verb in verbs {
            put_verb(&mut out, verb, data);
        }
        out
    }

    fn some_batch() -> Batch {
        let mut batch = Batch::new();
        batch.write(GlobalAddr::new(0, 64), &[1, 2, 3]);
        batch.volatile().cas(GlobalAddr::new(0, 128), 7, 8);
        batch.read(GlobalAddr::new(0, 256), 5);
        batch.faa(GlobalAddr::new(0, 512), 9);
        batch
    }

    #[test]
    fn verbs_survive_the_wire() {
        let mut sent = some_batch();
        let bytes = frame(&mut sent);
        let (verbs, data) = sent.parts_mut();
        let got: Vec<_> = FrameVerbs::new(&bytes, 4, 64).unwrap().collect();
        assert_eq!(got.len(), 4);
        for (sent, (got, carried)) in verbs.iter().zip(got) {
            assert_eq!((sent.kind, sent.addr, sent.words), (got.kind, got.addr, got.words));
            assert_eq!(sent.is_volatile, got.is_volatile);
            let at = sent.at as usize;
            assert_eq!(carried, cast_slice::<u64, u8>(&data[at..at + sent.request_words()]));
        }
    }

    #[test]
    fn the_summary_of_a_frame_covers_all_its_verbs() {
        let bytes = frame(&mut some_batch());
        let verbs = FrameVerbs::new(&bytes, 4, 64).unwrap();
        assert_eq!((verbs.counts(), verbs.reach()), ([1; 4], 520));
        let mut batch = some_batch();
        batch.read(GlobalAddr::new(0, 4), 1);
        assert_eq!(FrameVerbs::new(&frame(&mut batch), 5, 64).unwrap().reach(), u64::MAX, "misaligned");
        assert_eq!(FrameVerbs::new(&[], 0, 0).unwrap().reach(), 0);
    }

    #[test]
    fn the_first_verb_of_a_request_is_found() {
        let (verbs, kinds) = (frame(&mut some_batch()), [RequestKind::Batch, RequestKind::Framed]);
        for (kind, between) in kinds.into_iter().zip([0, size_of::<FramedHead>()]) {
            let bytes = (between + verbs.len()) as u32;
            let head = RequestHead { kind: kind as u8, reserved: 0, verbs: 4, bytes, id: 1 };
            let request = [bytes_of(&head), &vec![0; between], &verbs].concat();
            let first = first_verb(&request).unwrap();
            assert_eq!((first.kind, first.addr.offset(), first.words), (VerbKind::Write, 64, 3));
            let least = HEADER_BYTES + between + HEADER_BYTES + 24;
            assert!((0..least).all(|keep| first_verb(&request[..keep]).is_none()));
        }
        let head = RequestHead { kind: RequestKind::Call as u8, reserved: 0, verbs: 1, bytes: 0, id: 1 };
        assert!(first_verb(&[bytes_of(&head), &verbs].concat()).is_none());
    }

    #[test]
    fn every_cut_and_every_flip_is_refused_or_bounded() {
        let bytes = frame(&mut some_batch());
        for keep in 0..bytes.len() {
            assert!(FrameVerbs::new(&bytes[..keep], 4, 1 << 20).is_none(), "{keep}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(FrameVerbs::new(&longer, 4, 1 << 20).is_none());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Some(verbs) = FrameVerbs::new(&flipped, 4, 1 << 20) {
                // Even a changed payload requests no more than was allowed.
                assert!(verbs.map(|(verb, _)| verb.reply_words()).sum::<usize>() * 8 <= 1 << 20);
            }
        }
        assert!(FrameVerbs::new(&bytes, 4, 32).is_none(), "more requested than allowed");
    }

    #[test]
    fn frame_has_at_most_the_maximum_of_verbs() {
        for (verbs, is_taken) in [(VERBS_MAX, true), (VERBS_MAX + 1, false)] {
            let mut batch = Batch::new();
            for _ in 0..verbs {
                batch.faa(GlobalAddr::new(0, 64), 1);
            }
            let bytes = frame(&mut batch);
            assert_eq!(FrameVerbs::new(&bytes, verbs as u16, FRAME_BYTES_MAX).is_some(), is_taken);
        }
    }

    #[test]
    fn answers_fit_or_are_refused() {
        let mut batch = some_batch();
        let answers: Vec<u64> = (100..107).collect();
        let bytes: &[u8] = cast_slice(&answers);
        assert!(take_answers(&mut batch, 0, 0..4, bytes));
        let (verbs, data) = batch.parts_mut();
        assert_eq!(data[verbs[1].at as usize], 100, "the CAS's");
        assert_eq!(data[verbs[2].at as usize..][..5], [101, 102, 103, 104, 105]);
        assert_eq!(data[verbs[3].at as usize], 106, "the FAA's");
        for wrong in [&bytes[..bytes.len() - 1], &[bytes, &[0]].concat(), &[]] {
            assert!(!take_answers(&mut batch, 0, 0..4, wrong));
        }
        assert!(take_answers(&mut batch, 1, 0..4, &[]), "none of another node's");
    }
}
