//! The wire format between a client and a memory node: little-endian words, one frame a batch.
//!
//! ```text
//! hello      magic | version, nonce bytes 32 | session | 0 | nonce 32
//! challenge  magic | version, refusal | nonce 32
//! proof      proof 32
//! welcome    refusal, text bytes | region bytes | boot id | frame bytes at most, flags | proof 32   then the text
//!
//! request    kind 1, 0, verbs 2, payload bytes 4 | id 8          then the payload: verbs, number 8 | flag 8, a pairing, or a call
//!   verb     kind 1, 0, 0, 0, words 4 | offset 8                 then what a WRITE, CAS or FAA carries
//!   call     procedure 8                                         then the request's words
//! reply      refusal 1, 0, verbs done 2, payload bytes 4 | id 8  then the verbs' results, a text, a pairing, or an answer's words
//! ```
//!
//! Client and node speak in turns: hello, challenge, proof, welcome, then requests and replies. The
//! proofs ([`super::proof`]) show that each side knows the token, which never travels itself; a
//! side without a token proves with an empty one. A node without a token accepts any proof, a
//! client without one accepts any node. The first 16 bytes of hello and challenge are the same in
//! every version: a node that receives another version replies [`Refusal::Version`] with a nonce of
//! zeros, and hangs up. All of it may go through TLS ([`super::ClientTls`]), which changes nothing
//! here.
//!
//! A connection is a reliable ordered channel, so requests execute, and their replies come, in the
//! order they were sent; the id detects a peer that lost its place. Only the reply to a call comes
//! when its procedure has ended, behind replies to later requests: the id says which call it is
//! of. Every length is checked before anything is kept or done: a frame that is malformed, too long
//! or out of bounds gets a refusal and touches no memory.

use super::proof::{Nonce, Proof};
use crate::{Batch, FabricError, GlobalAddr, Verb, VerbKind, mutant};
use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};
use std::ops::Range;

/// "DARTERTC", the first word each side sends.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DARTERTC");
/// The version spoken here.
pub const VERSION: u32 = 5;
/// Most bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Most bytes of a refusal's text.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Member slots that can be claimed: more than any pool has.
pub const SLOTS_MAX: u64 = 4096;
/// Most verbs in a frame.
pub const VERBS_MAX: usize = 4096;
/// Most payload bytes of a frame, either way, unless a node has a lower limit.
pub const FRAME_BYTES_MAX: u32 = 4 << 20;
/// Bytes of request and reply headers, and of a verb's.
pub const HEADER_BYTES: usize = 16;

/// Why a memory node refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The request was carried out.
    None = 0,
    /// Another protocol, or another version of it.
    Version = 1,
    /// No token, or a wrong one.
    Credentials = 2,
    /// Another client has fenced this session.
    Fenced = 3,
    /// The node has as many connections as it takes.
    Busy = 4,
    /// A frame that makes no sense, or is too long.
    Malformed = 5,
    /// A verb outside the region.
    OutOfBounds = 6,
    /// A verb at an address that is not a multiple of 8.
    Misaligned = 7,
    /// The node is shutting down.
    Closing = 8,
    /// A member slot that another live session holds; a session that is connected.
    Taken = 9,
    /// A request that the node could not carry out; the text states why.
    Failed = 10,
    /// A session that the node has not seen since it was started.
    Stranger = 11,
    /// A call, and the node runs no procedures.
    NoServer = 12,
    /// A call of a procedure that the node does not have.
    Unknown = 13,
    /// A call with too many words; the payload is their number and the largest.
    RequestTooLarge = 14,
    /// A procedure answered with too many words; the payload is their number and the largest.
    AnswerTooLarge = 15,
    /// A procedure ended with an error; the payload is its code, then its message.
    Procedure = 16,
    /// The node cannot write its log any more; the text states why. What was requested may have
    /// taken effect, and may be lost when the node is started again.
    NotDurable = 17,
}

impl Refusal {
    const ALL: [Self; 18] = [
        Self::None,
        Self::Version,
        Self::Credentials,
        Self::Fenced,
        Self::Busy,
        Self::Malformed,
        Self::OutOfBounds,
        Self::Misaligned,
        Self::Closing,
        Self::Taken,
        Self::Failed,
        Self::Stranger,
        Self::NoServer,
        Self::Unknown,
        Self::RequestTooLarge,
        Self::AnswerTooLarge,
        Self::Procedure,
        Self::NotDurable,
    ];

    /// Returns the refusal of this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| *refusal as u8 == code)
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    /// Verbs, to be executed in order.
    Batch = 1,
    /// The member slot [`Control::number`], below [`SLOTS_MAX`], for this session.
    Claim = 2,
    /// Gives that member slot back.
    Release = 3,
    /// Shuts out the session [`Control::number`]; unless [`Control::flag`] is set, only if it is
    /// known to be gone.
    Fence = 4,
    /// Makes everything written so far durable.
    Persist = 5,
    /// Connects a queue pair of the client's RDMA device, which its [`Pairing`] describes, to one of
    /// the node's; the reply's payload is the node's pairing.
    Pair = 6,
    /// Runs a procedure.
    Call = 7,
}

impl RequestKind {
    /// Returns the kind of this code.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Batch, Self::Claim, Self::Release, Self::Fence, Self::Persist, Self::Pair, Self::Call]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// How hello and challenge begin in every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Opening {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// From a client, bytes of what follows the first 32; from a node, a [`Refusal`]'s code.
    pub code: u32,
}

/// A client's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Hello {
    /// With the nonce's bytes for a code.
    pub opening: Opening,
    /// The process's random number: all its connections carry it, and a fence names it.
    pub session: u64,
    /// Zero.
    pub reserved: u64,
    /// The client's.
    pub nonce: Nonce,
}

impl Hello {
    /// Returns the hello of a session.
    pub fn new(session: u64, nonce: Nonce) -> Self {
        let opening = Opening { magic: MAGIC, version: VERSION, code: size_of::<Nonce>() as u32 };
        Self { opening, session, reserved: 0, nonce }
    }
}

/// A memory node's reply to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Challenge {
    /// With a refusal's code; 0 when a proof is awaited.
    pub opening: Opening,
    /// The node's; zero in a refusal.
    pub nonce: Nonce,
}

impl Challenge {
    /// Returns a challenge, or a refusal at this early point.
    pub fn new(refusal: Refusal, nonce: Nonce) -> Self {
        Self { opening: Opening { magic: MAGIC, version: VERSION, code: refusal as u32 }, nonce }
    }
}

/// A memory node's reply to a client's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Welcome {
    /// A [`Refusal`]'s code; 0 when the client is welcome.
    pub refusal: u32,
    /// Bytes of the text that follows.
    pub text_bytes: u32,
    /// Bytes of the node's region.
    pub region_bytes: u64,
    /// Drawn when the region was made: another number means another memory.
    pub boot_id: u64,
    /// Most payload bytes of a frame.
    pub frame_bytes: u32,
    /// [`SERVES_RDMA`] and [`IS_DURABLE`], each if it holds.
    pub flags: u32,
    /// The node's proof. Zeros, like the region's fields, for a client that proved nothing.
    pub proof: Proof,
}

/// The flag of a [`Welcome`] from a node whose verbs go through an RDMA device: it refuses batches.
pub const SERVES_RDMA: u32 = 1;

/// The flag of a [`Welcome`] from a node whose replies say nothing that is not on stable storage.
pub const IS_DURABLE: u32 = 2;

/// One end of a pair of queues, as its owner tells the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Pairing {
    /// The address of the device's port, in the order of the network.
    pub gid: [u8; 16],
    /// The number of the queue pair, 24 bits.
    pub queue: u32,
    /// The number of the first packet that it sends, 24 bits.
    pub psn: u32,
    /// The port's local id; 0 on Ethernet.
    pub lid: u16,
    /// The port's MTU: 128 bytes times 2 to this, 1 to 5.
    pub mtu: u8,
    /// READs and atomics that its device can have outstanding.
    pub reads_made: u8,
    /// READs and atomics of the other end that its device can serve at a time.
    pub reads_served: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// From a node: its address of the region's first byte.
    pub base: u64,
    /// From a node: the key of the region.
    pub key: u32,
    /// Zero.
    pub reserved_too: u32,
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RequestHead {
    /// A [`RequestKind`]'s code.
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
    /// Verbs in the payload.
    pub verbs: u16,
    /// Bytes of the payload.
    pub bytes: u32,
    /// Counts a connection's requests.
    pub id: u64,
}

/// The payload of every request but a batch, a pairing and a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Control {
    /// What the request is about.
    pub number: u64,
    /// 0 or 1; its meaning depends on the request.
    pub flag: u64,
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ReplyHead {
    /// A [`Refusal`]'s code; 0 when everything was done.
    pub refusal: u8,
    /// Zero.
    pub reserved: u8,
    /// Verbs that were executed.
    pub verbs: u16,
    /// Bytes of the payload.
    pub bytes: u32,
    /// The request's.
    pub id: u64,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct VerbHead {
    kind: u8,
    reserved: [u8; 3],
    words: u32,
    offset: u64,
}

const _: () = assert!(
    size_of::<RequestHead>() == HEADER_BYTES
        && size_of::<ReplyHead>() == HEADER_BYTES
        && size_of::<VerbHead>() == HEADER_BYTES
);

/// Words that a verb carries to the node.
pub fn request_words(verb: &Verb) -> usize {
    match verb.kind {
        VerbKind::Read => 0,
        VerbKind::Write => verb.words as usize,
        VerbKind::Cas => 2,
        VerbKind::Faa => 1,
    }
}

/// Words that a verb brings back.
pub fn reply_words(verb: &Verb) -> usize {
    match verb.kind {
        VerbKind::Read => verb.words as usize,
        VerbKind::Write => 0,
        VerbKind::Cas | VerbKind::Faa => 1,
    }
}

/// Appends a verb with the words it carries, which begin at `verb.at` of the batch's buffer.
pub fn put_verb(out: &mut Vec<u8>, verb: &Verb, data: &[u64]) {
    let head =
        VerbHead { kind: verb.kind as u8, reserved: [0; 3], words: verb.words, offset: verb.addr.offset() };
    out.extend_from_slice(bytes_of(&head));
    let at = verb.at as usize;
    out.extend_from_slice(cast_slice(&data[at..at + request_words(verb)]));
}

/// The verbs of a request, as they lie in its frame.
#[derive(Clone, Debug)]
pub struct FrameVerbs<'f> {
    left: u16,
    rest: &'f [u8],
}

impl<'f> FrameVerbs<'f> {
    /// Returns the verbs of a payload; `None` if it is not exactly `verbs` whole ones, or their
    /// reply exceeds `reply_bytes_max` bytes.
    pub fn new(payload: &'f [u8], verbs: u16, reply_bytes_max: u32) -> Option<Self> {
        if usize::from(verbs) > VERBS_MAX && !mutant!("tcp-frame-of-any-number-of-verbs") {
            return None;
        }
        let all = Self { left: verbs, rest: payload };
        let mut checked = all.clone();
        let mut reply_left = reply_bytes_max as usize / 8;
        while checked.left > 0 {
            let (verb, _) = checked.take_verb()?;
            reply_left = reply_left.checked_sub(reply_words(&verb))?;
        }
        checked.rest.is_empty().then_some(all)
    }

    /// Returns the next verb, on memory node 0, and the words it carries; `None` when there is no
    /// whole one.
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
        let is_long_atomic = is_atomic && head.words != 1 && !mutant!("tcp-atomic-of-many-words");
        if head.offset >= crate::OFFSET_LIMIT || is_long_atomic {
            return None;
        }
        let verb =
            Verb { kind, addr: GlobalAddr::new(0, head.offset), at: 0, words: head.words, is_fenced: false };
        let (carried, rest) = tail.split_at_checked(request_words(&verb) * 8)?;
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

/// Puts a reply's words into the buffers of the verbs of `node` among `verbs`; returns whether the
/// number of words is right.
pub(crate) fn take_answers(batch: &mut Batch, node: u8, verbs: Range<usize>, payload: &[u8]) -> bool {
    let (all, data) = batch.parts_mut();
    let mut rest = payload;
    for verb in all[verbs].iter().filter(|verb| verb.addr.node() == node) {
        let at = verb.at as usize;
        let wanted: &mut [u8] = cast_slice_mut(&mut data[at..at + reply_words(verb)]);
        let Some((words, tail)) = rest.split_at_checked(wanted.len()) else { return false };
        wanted.copy_from_slice(words);
        rest = tail;
    }
    rest.is_empty() || mutant!("tcp-surplus-answer-taken")
}

/// Returns a header at the front of some bytes, when all of it is there.
pub fn head<T: Pod>(bytes: &[u8]) -> Option<T> {
    bytes.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

/// Returns the error that a client makes of a refusal.
pub fn error_of(refusal: Refusal, node: u8, text: &str) -> FabricError {
    match refusal {
        Refusal::Fenced => FabricError::Fenced,
        Refusal::OutOfBounds | Refusal::Misaligned | Refusal::Malformed => FabricError::geometry(format!(
            "memory node {node} refused a batch: {text}; run `darter check` on the pool"
        )),
        Refusal::Credentials => {
            FabricError::geometry(format!("memory node {node} does not accept the credentials: {text}"))
        }
        Refusal::NotDurable => FabricError::not_durable(node, text),
        _ => FabricError::geometry(format!("memory node {node} refused: {text}")),
    }
}

/// Returns a header as bytes.
pub fn as_bytes<T: Pod>(head: &T) -> &[u8] {
    bytes_of(head)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        batch.cas(GlobalAddr::new(0, 128), 7, 8);
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
            let at = sent.at as usize;
            assert_eq!(carried, cast_slice::<u64, u8>(&data[at..at + request_words(sent)]));
        }
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
                // Whatever it now says, it asks for no more than was allowed.
                assert!(verbs.map(|(verb, _)| reply_words(&verb)).sum::<usize>() * 8 <= 1 << 20);
            }
        }
        assert!(FrameVerbs::new(&bytes, 4, 32).is_none(), "more asked for than allowed");
    }

    #[test]
    fn a_frame_has_so_many_verbs_and_no_more() {
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
