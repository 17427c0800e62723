//! The wire format between a client and a memory node: little-endian words, one frame per batch.
//!
//! ```text
//! hello      magic | version, nonce bytes 32 | session | channel, attempt | nonce 32
//! challenge  magic | version, refusal | nonce 32
//! proof      proof 32
//! welcome    refusal, text bytes | region bytes | boot id | frame bytes at most, flags
//!            | view | replica | patience in ms, 0 | proof 32     then the text
//!
//! request    kind 1, 0, verbs 2, payload bytes 4 | id 8          then the payload: verbs, number 8 | flag 8, a pairing, a call, or parts of a message
//!   framed   view 8 | answered 8                                 in front of the verbs for a memory group
//!   verb     kind 1, flags 1, 0, 0, words 4 | offset 8                 then the words of a WRITE, CAS or FAA
//!   call     procedure 8                                         then the request's words
//! reply      refusal 1, 0, verbs done 2, payload bytes 4 | id 8  then the verbs' results, a text, a pairing, or a result's words
//! ```
//!
//! Client and node alternate: hello, challenge, proof, welcome, then requests and replies. The
//! proofs ([`super::proof`]) show that each side knows the token, which is never sent; a side
//! without a token uses an empty one. A node without a token accepts any proof, a client without
//! one accepts any node. The first 16 bytes of hello and challenge are the same in every version: a
//! node that does not speak the hello's version replies [`Refusal::Version`] with the newest that it
//! speaks and a nonce of zeros, and closes the connection ([`super::Versions`]). All of it may use
//! TLS ([`super::ClientTls`]), which does not change the format.
//!
//! Within a version, a node announces what it can do by the welcome's flags, and a client by those of
//! its hello. Both ends ignore flags that they do not know, and words that are zero here.
//!
//! A connection is a reliable ordered channel, so requests execute, and their replies come, in the
//! order they were sent; the id detects a peer that lost synchronization. Only the reply to a call
//! comes when its procedure has ended, possibly after replies to later requests; its id identifies
//! the call. A memory group (crate `darter-group`) also sends each reply as soon as it may.
//!
//! A client of a group sends in its hello the number of the connection's channel and the count of
//! that channel's connections. Its frames contain the number of its view, and are sent again with
//! the same ids if a connection is lost. Replicas are clients of each other: their messages are
//! sent in frames of at most [`RELAY_BYTES_MAX`], which have no reply.
//!
//! Every length is checked before anything is stored or executed: a frame that is malformed, too
//! long or out of bounds gets a refusal and accesses no memory.

use super::proof::{Nonce, Proof};
use crate::FabricError;
use bytemuck::{Pod, Zeroable, bytes_of};

/// "DARTERTC", the first word that each side sends.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DARTERTC");
/// The newest version of this protocol.
pub const VERSION: u32 = 6;
/// Maximum bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Maximum bytes of a refusal's text.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Number of member slots that can be claimed: more than any pool has.
pub const SLOTS_MAX: u64 = 4096;
/// Maximum verbs in a frame.
pub const VERBS_MAX: usize = 4096;
/// Maximum payload bytes of a frame, in either direction, unless a node has a lower limit.
pub const FRAME_BYTES_MAX: u32 = 4 << 20;
/// Maximum payload bytes of a frame with a part of a replica's message.
pub const RELAY_BYTES_MAX: usize = 1 << 20;
/// The channel of a connection from another replica of the group.
pub const RELAY_CHANNEL: u32 = u32::MAX;
/// Maximum bytes of a replica's message.
pub const MESSAGE_BYTES_MAX: usize = 512 << 20;
/// Size of request and reply headers, and of a verb's header, in bytes.
pub const HEADER_BYTES: usize = 16;

/// The reason why a memory node refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The request was carried out.
    None = 0,
    /// A version of the protocol that the node does not speak.
    Version = 1,
    /// No token, or a wrong one.
    Credentials = 2,
    /// Another client has fenced this session.
    Fenced = 3,
    /// The node has its maximum number of connections.
    Busy = 4,
    /// A frame that is malformed or too long.
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
    /// A call with too many words; the payload is their number and the maximum.
    RequestTooLarge = 14,
    /// A procedure returned too many words; the payload is their number and the maximum.
    AnswerTooLarge = 15,
    /// A procedure ended with an error; the payload is its code, then its message.
    Procedure = 16,
    /// The node can no longer write its log; the text states why. The request may have taken
    /// effect, and may be lost when the node is restarted.
    NotDurable = 17,
    /// Not executed, or the outcome is unknown: this replica does not serve in that view. The
    /// client gets the current view when it connects again.
    View = 18,
    /// Not executed: the group is handing over. Try again.
    Later = 19,
    /// The session is from before a crash of the node, which ended it: words that it has read may
    /// be lost.
    Forgotten = 20,
    /// A request that would change more than the session's own member line, and the session's token
    /// is a read-only one ([`crate::member_lines`]). Nothing was changed.
    ReadOnly = 21,
}

impl Refusal {
    const ALL: [Self; 22] = [
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
        Self::View,
        Self::Later,
        Self::Forgotten,
        Self::ReadOnly,
    ];

    /// Returns the refusal with this code.
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
    /// Claims the member slot [`Control::number`], below [`SLOTS_MAX`], for this session.
    Claim = 2,
    /// Releases that member slot.
    Release = 3,
    /// Fences the session [`Control::number`]; unless [`Control::flag`] is set, only if it is known
    /// to be gone.
    Fence = 4,
    /// Makes everything written so far durable.
    Persist = 5,
    /// Connects a queue pair of the client's RDMA device, described by its [`Pairing`], to one of
    /// the node's; the reply's payload is the node's pairing.
    Pair = 6,
    /// Runs a procedure.
    Call = 7,
    /// Verbs for a memory group, after a [`FramedHead`].
    Framed = 8,
    /// A part of a message from another replica of the group; [`RequestHead::verbs`] is 1 if more
    /// parts follow. It has no reply.
    Relay = 9,
    /// Queries the status of a replica's group; the reply's payload is its [`GroupStatus`].
    Status = 10,
    /// Makes the primary hand over to the replica [`Control::number`].
    HandOver = 11,
    /// Queries a member of a group for the digest of [`DIGEST_BYTES`] of its region, or fewer at
    /// its end, starting at the offset [`Control::number`]; the reply's payload is a [`Digest`].
    Digest = 12,
}

impl RequestKind {
    /// Returns the kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        let verbs = [Self::Batch, Self::Framed, Self::Call];
        let sessions = [Self::Claim, Self::Release, Self::Fence, Self::Persist, Self::Pair];
        let replicas = [Self::Relay, Self::Status, Self::HandOver, Self::Digest];
        verbs.into_iter().chain(sessions).chain(replicas).find(|kind| *kind as u8 == code)
    }
}

/// The beginning of hello and challenge in every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Opening {
    /// [`MAGIC`].
    pub magic: u64,
    /// The version of what follows; in a refusal, the newest that the node speaks.
    pub version: u32,
    /// From a client, the number of bytes after the first 32, and above 16 bits its flags
    /// ([`KNOWS_READ_ONLY`]); from a node, a [`Refusal`]'s code.
    pub code: u32,
}

/// A client's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Hello {
    /// Its code is the size of the nonce and [`KNOWS_READ_ONLY`].
    pub opening: Opening,
    /// The process's random number: all its connections send it, and a fence names it.
    pub session: u64,
    /// The number of the session's channel to a memory group; 0 for a connection without frames.
    pub channel: u32,
    /// Counts the channel's connections.
    pub attempt: u32,
    /// The client's nonce.
    pub nonce: Nonce,
}

impl Hello {
    /// Returns the hello of a session, on a connection without frames for a group.
    pub fn new(session: u64, nonce: Nonce) -> Self {
        let code = size_of::<Nonce>() as u32 | KNOWS_READ_ONLY;
        let opening = Opening { magic: MAGIC, version: VERSION, code };
        Self { opening, session, channel: 0, attempt: 0, nonce }
    }
}

/// The flag of a [`Hello`] from a client that knows what it may do with a read-only token. Others are
/// refused with such a token: they would take its refusals for faults.
pub const KNOWS_READ_ONLY: u32 = 1 << 16;

/// A memory node's reply to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Challenge {
    /// Its code is a refusal's; 0 if a proof is expected.
    pub opening: Opening,
    /// The node's nonce; zero in a refusal.
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
    /// A [`Refusal`]'s code; 0 if the client is accepted.
    pub refusal: u32,
    /// Number of bytes of the text that follows.
    pub text_bytes: u32,
    /// Bytes of the node's region.
    pub region_bytes: u64,
    /// A random number from the creation of the region: another number means another memory. For a
    /// replica it is the group's; 0 before the group's first view.
    pub boot_id: u64,
    /// Maximum payload bytes of a frame.
    pub frame_bytes: u32,
    /// The flags [`SERVES_RDMA`], [`IS_DURABLE`], [`IS_REPLICA`], [`SERVES_GROUP`] and [`READS_ONLY`]
    /// that apply.
    pub flags: u32,
    /// The number of a replica's current view; 0 for none.
    pub view: u64,
    /// The replica's name.
    pub replica: u64,
    /// How long the replicas of its group wait for each other, in milliseconds.
    pub patience_ms: u32,
    /// Zero.
    pub reserved: u32,
    /// The node's proof. Zeros, like the region's fields, for a client without a valid proof.
    pub proof: Proof,
}

/// The flag of a [`Welcome`] from a node whose verbs use an RDMA device: it refuses batches.
pub const SERVES_RDMA: u32 = 1;

/// The flag of a [`Welcome`] from a node whose replies contain only data on stable storage.
pub const IS_DURABLE: u32 = 2;

/// The flag of a [`Welcome`] from a replica of a memory group: it accepts [`RequestKind::Framed`]
/// and refuses [`RequestKind::Batch`].
pub const IS_REPLICA: u32 = 4;

/// The flag of a [`Welcome`] from the primary of its group.
pub const SERVES_GROUP: u32 = 8;

/// The flag of a [`Welcome`] to a client whose token is a read-only one: the node refuses its requests
/// that would change more than its own member line ([`crate::member_lines`]).
pub const READS_ONLY: u32 = 16;

/// The head before the verbs for a memory group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct FramedHead {
    /// The number of the client's view.
    pub view: u64,
    /// The client has the replies to all of the channel's frames up to this one.
    pub answered: u64,
}

/// Bytes of a region that one digest covers.
pub const DIGEST_BYTES: u64 = 4 << 20;

/// State of a part of a replica's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Digest {
    /// The replica's last record.
    pub lsn: u64,
    /// A checksum of the part.
    pub digest: u64,
}

/// Status of a replica and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct GroupStatus {
    /// The replica.
    pub replica: u64,
    /// The number of its current view; 0 for none.
    pub view: u64,
    /// The primary of that view.
    pub primary: u64,
    /// 0 primary, 1 backup, 2 learner.
    pub role: u64,
    /// Its last record.
    pub lsn: u64,
    /// The last record that all members are known to have.
    pub everywhere: u64,
    /// Number of replies that wait.
    pub held: u64,
    /// Bytes of records that are kept for other replicas.
    pub log_bytes: u64,
}

/// One end of a pair of queues, as its owner describes it to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Pairing {
    /// The address of the device's port, in network byte order.
    pub gid: [u8; 16],
    /// The number of the queue pair, 24 bits.
    pub queue: u32,
    /// The number of the first packet that it sends, 24 bits.
    pub psn: u32,
    /// The port's local id; 0 on Ethernet.
    pub lid: u16,
    /// The port's MTU: 128 bytes times two to the power of this, 1 to 5.
    pub mtu: u8,
    /// READs and atomics that its device can have outstanding.
    pub reads_made: u8,
    /// READs and atomics of the other end that its device can serve concurrently.
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

/// The payload of every request about a slot, a session or a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Control {
    /// The slot, session or replica.
    pub number: u64,
    /// 0 or 1; its meaning depends on the request.
    pub flag: u64,
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ReplyHead {
    /// A [`Refusal`]'s code; 0 if everything was done.
    pub refusal: u8,
    /// Zero.
    pub reserved: u8,
    /// Verbs that were executed.
    pub verbs: u16,
    /// Bytes of the payload.
    pub bytes: u32,
    /// The request's id.
    pub id: u64,
}

const _: () = assert!(size_of::<RequestHead>() == HEADER_BYTES && size_of::<ReplyHead>() == HEADER_BYTES);

/// Returns a header at the beginning of some bytes, if it is complete.
pub fn head<T: Pod>(bytes: &[u8]) -> Option<T> {
    bytes.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

/// Returns the client's error for a refusal.
pub fn error_of(refusal: Refusal, node: u8, text: &str) -> FabricError {
    match refusal {
        Refusal::Fenced => FabricError::Fenced,
        Refusal::Forgotten => FabricError::Forgotten { node },
        Refusal::ReadOnly => FabricError::ReadOnly { node },
        Refusal::OutOfBounds | Refusal::Misaligned | Refusal::Malformed => FabricError::geometry(format!(
            "memory node {node} refused a batch: {text}; run `darter check` on the pool"
        )),
        Refusal::Credentials => {
            FabricError::geometry(format!("memory node {node} does not accept the credentials: {text}"))
        }
        Refusal::NotDurable => FabricError::not_durable(node, text),
        Refusal::View | Refusal::Later => FabricError::Disconnected { node },
        _ => FabricError::geometry(format!("memory node {node} refused: {text}")),
    }
}

/// Returns a header as bytes.
pub fn as_bytes<T: Pod>(head: &T) -> &[u8] {
    bytes_of(head)
}
