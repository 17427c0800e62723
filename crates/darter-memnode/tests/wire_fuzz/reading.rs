//! A second implementation of the wire format, written only from its description: how a node must
//! process the bytes that it receives, and a client the replies.

use super::corpus::REGION_BYTES;
use darter_fabric::wire::proof::{Nonce, Proof, Side, Transcript};
use darter_fabric::wire::{
    self, Challenge, Control, HEADER_BYTES, Hello, Opening, Pairing, Refusal, ReplyHead, RequestHead,
    RequestKind, Welcome,
};

pub const READ: u8 = 0;
pub const WRITE: u8 = 1;
pub const CAS: u8 = 2;
pub const FAA: u8 = 3;

/// A reply that a node must send, in order.
#[derive(Debug)]
pub enum Due {
    Challenge(Refusal),
    Welcome(Refusal),
    /// The reply to a batch, which is refused or executed.
    Batch {
        head: RequestHead,
        refusal: Refusal,
        verbs: Vec<Verb>,
    },
    /// The reply to another request: any of these.
    Control {
        head: RequestHead,
        refusals: &'static [Refusal],
    },
}

/// A verb of a frame.
#[derive(Debug)]
pub struct Verb {
    pub kind: u8,
    pub offset: u64,
    pub length: usize,
    pub carried: Vec<u64>,
}

impl Verb {
    /// The first word of the region that it accesses.
    pub fn range(&self) -> std::ops::Range<usize> {
        let from = (self.offset / 8) as usize;
        from..from + self.length
    }

    /// Executes the verb on a copy of the region. Returns the words that it reads.
    fn act(&self, region: &mut [u64]) -> Vec<u64> {
        let found = region[self.range()].to_vec();
        let room = &mut region[self.range()];
        match self.kind {
            READ => return found,
            WRITE => {
                room.copy_from_slice(&self.carried);
                return Vec::new();
            }
            CAS if found[0] == self.carried[0] => room[0] = self.carried[1],
            CAS => {}
            _ => room[0] = found[0].wrapping_add(self.carried[0]),
        }
        found
    }
}

/// The required reaction of a node to all bytes received on one connection.
#[derive(Debug)]
pub struct Reading {
    pub dues: Vec<Due>,
    /// Whether it ends the connection after the last reply.
    pub ends: bool,
}

/// Interprets the bytes sent to a node with `token` that challenged with `nonce` and accepts frames
/// of this number of bytes.
pub fn read(said: &[u8], token: &[u8], nonce: Nonce, frame_bytes_max: u32) -> Reading {
    let mut dues = Vec::new();
    let ends = follow(said, token, nonce, frame_bytes_max, &mut dues).is_some();
    Reading { dues, ends }
}

/// Returns `None` if the node waits for more.
fn follow(said: &[u8], token: &[u8], nonce: Nonce, most: u32, dues: &mut Vec<Due>) -> Option<()> {
    let opening: Opening = wire::head(said)?;
    if opening.magic != wire::MAGIC {
        return Some(());
    }
    if opening.version != wire::VERSION {
        dues.push(Due::Challenge(Refusal::Version));
        return Some(());
    }
    let hello: Hello = wire::head(said)?;
    dues.push(Due::Challenge(Refusal::None));
    let proof: Proof = wire::head(&said[size_of::<Hello>()..])?;
    let transcript = Transcript { client: hello.nonce, node: nonce, session: hello.session };
    if !token.is_empty() && transcript.prove(token, Side::Client) != proof {
        dues.push(Due::Welcome(Refusal::Credentials));
        return Some(());
    }
    dues.push(Due::Welcome(Refusal::None));
    let mut rest = &said[size_of::<Hello>() + size_of::<Proof>()..];
    let mut is_fenced = false;
    loop {
        let head: RequestHead = wire::head(rest)?;
        if is_fenced {
            dues.push(Due::Control { head, refusals: &[Refusal::Fenced] });
            return Some(());
        }
        let kind = RequestKind::from_code(head.kind).filter(|_| head.bytes <= most);
        let Some(kind) = kind else {
            dues.push(Due::Control { head, refusals: &[Refusal::Malformed] });
            return Some(());
        };
        let payload = rest.get(HEADER_BYTES..HEADER_BYTES + head.bytes as usize)?;
        rest = &rest[HEADER_BYTES + payload.len()..];
        if kind == RequestKind::Batch {
            let Some(verbs) = verbs(payload, head.verbs, most as usize / 8) else {
                dues.push(Due::Batch { head, refusal: Refusal::Malformed, verbs: Vec::new() });
                return Some(());
            };
            let refusal = verbs.iter().find_map(refused).unwrap_or(Refusal::None);
            dues.push(Due::Batch { head, refusal, verbs });
            continue;
        }
        if kind == RequestKind::Call {
            // These nodes run no procedures.
            let is_whole = payload.len() >= 8 && payload.len() % 8 == 0;
            let refusal = if is_whole { &[Refusal::NoServer] } else { &[Refusal::Malformed] };
            dues.push(Due::Control { head, refusals: refusal });
            if is_whole {
                continue;
            }
            return Some(());
        }
        if kind == RequestKind::Pair {
            // These nodes have no device.
            let is_pairing = payload.len() == size_of::<Pairing>();
            let refusal = if is_pairing { &[Refusal::Failed] } else { &[Refusal::Malformed] };
            dues.push(Due::Control { head, refusals: refusal });
            if is_pairing {
                continue;
            }
            return Some(());
        }
        let of_groups = [
            RequestKind::Framed,
            RequestKind::Relay,
            RequestKind::Status,
            RequestKind::HandOver,
            RequestKind::Digest,
        ];
        if of_groups.contains(&kind) {
            // These nodes are not replicas.
            dues.push(Due::Control { head, refusals: &[Refusal::Failed] });
            continue;
        }
        let about = wire::head::<Control>(payload).filter(|_| payload.len() == size_of::<Control>());
        let about = about.filter(|about| about.flag <= 1);
        let about = about.filter(|about| kind != RequestKind::Claim || about.number < wire::SLOTS_MAX);
        let Some(about) = about else {
            dues.push(Due::Control { head, refusals: &[Refusal::Malformed] });
            return Some(());
        };
        is_fenced = kind == RequestKind::Fence && about.number == hello.session && about.flag == 1;
        let refusals: &[Refusal] = match kind {
            RequestKind::Claim => &[Refusal::None, Refusal::Taken],
            RequestKind::Fence if about.flag == 1 => &[Refusal::None],
            RequestKind::Fence => &[Refusal::Stranger, Refusal::Taken, Refusal::None],
            _ => &[Refusal::None],
        };
        dues.push(Due::Control { head, refusals });
    }
}

fn refused(verb: &Verb) -> Option<Refusal> {
    if !verb.offset.is_multiple_of(8) {
        Some(Refusal::Misaligned)
    } else if verb.offset + verb.length as u64 * 8 > REGION_BYTES {
        Some(Refusal::OutOfBounds)
    } else {
        None
    }
}

/// Returns the verbs of a frame if they are well-formed, of the announced number, and do not read
/// more words than allowed.
pub fn verbs(mut payload: &[u8], count: u16, mut words_left: usize) -> Option<Vec<Verb>> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    if usize::from(count) > wire::VERBS_MAX {
        return None;
    }
    let mut verbs = Vec::new();
    for _ in 0..count {
        let head = payload.get(..HEADER_BYTES)?;
        let (kind, length, offset) = (head[0], word(&head[4..8]) as usize, word(&head[8..16]));
        let (carried, brought) = match (kind, length) {
            (READ, _) => (0, length),
            (WRITE, _) => (length, 0),
            (CAS, 1) => (2, 1),
            (FAA, 1) => (1, 1),
            _ => return None,
        };
        words_left = words_left.checked_sub(brought)?;
        let end = HEADER_BYTES + carried * 8;
        let carried = payload.get(HEADER_BYTES..end)?.chunks(8).map(word).collect();
        payload = &payload[end..];
        if offset >= 1 << 40 {
            return None;
        }
        verbs.push(Verb { kind, offset, length, carried });
    }
    payload.is_empty().then_some(verbs)
}

/// A node's reply.
#[derive(Debug)]
pub enum Answer {
    Challenge(Challenge),
    Welcome(Welcome),
    Reply(ReplyHead, Vec<u8>),
}

/// Returns the next complete reply after `at` others, and its bytes; `None` if it is incomplete.
pub fn answer(heard: &[u8], at: usize) -> Option<(Answer, usize)> {
    let with_text = |head: usize, bytes: u32| {
        // A reply that is longer than allowed never completes.
        let heard = heard.get(..heard.len().min(head + wire::FRAME_BYTES_MAX as usize))?;
        heard.get(head..head + bytes as usize).map(|text| (text.to_vec(), head + bytes as usize))
    };
    match at {
        0 => Some((Answer::Challenge(wire::head(heard)?), size_of::<Challenge>())),
        1 => {
            let welcome: Welcome = wire::head(heard)?;
            let (_, end) = with_text(size_of::<Welcome>(), welcome.text_bytes)?;
            Some((Answer::Welcome(welcome), end))
        }
        _ => {
            let head: ReplyHead = wire::head(heard)?;
            let (payload, end) = with_text(HEADER_BYTES, head.bytes)?;
            Some((Answer::Reply(head, payload), end))
        }
    }
}

impl Due {
    /// Executes the frame on a copy of the region. Returns the words that it reads.
    pub fn act(&self, region: &mut [u64]) -> Vec<u64> {
        match self {
            Self::Batch { refusal: Refusal::None, verbs, .. } => {
                verbs.iter().flat_map(|verb| verb.act(region)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the verbs that must be executed.
    pub fn verbs(&self) -> &[Verb] {
        match self {
            Self::Batch { refusal: Refusal::None, verbs, .. } => verbs,
            _ => &[],
        }
    }

    /// Returns the verbs that change memory.
    pub fn changes(&self) -> impl Iterator<Item = &Verb> {
        self.verbs().iter().filter(|verb| verb.kind != READ)
    }

    /// Asserts that a reply is the expected one, with these words if they are known.
    pub fn assert_is(&self, answer: &Answer, words: Option<&[u64]>) {
        let code = |code: u32| Refusal::from_code(u8::try_from(code).unwrap()).unwrap();
        match (self, answer) {
            (Self::Challenge(refusal), Answer::Challenge(challenge)) => {
                assert_eq!(
                    (challenge.opening.magic, challenge.opening.version),
                    (wire::MAGIC, wire::VERSION)
                );
                assert_eq!(code(challenge.opening.code), *refusal);
            }
            (Self::Welcome(refusal), Answer::Welcome(welcome)) => {
                assert_eq!(code(welcome.refusal), *refusal);
                let known = if *refusal == Refusal::None { REGION_BYTES } else { 0 };
                assert_eq!(welcome.region_bytes, known);
            }
            (Self::Control { head, refusals }, Answer::Reply(reply, _)) => {
                assert!(refusals.contains(&code(reply.refusal.into())), "{reply:?} to {head:?}");
                assert_eq!((reply.id, reply.verbs), (head.id, 0));
            }
            (Self::Batch { head, refusal, .. }, Answer::Reply(reply, payload)) => {
                assert_eq!((code(reply.refusal.into()), reply.id), (*refusal, head.id), "to {self:?}");
                if *refusal != Refusal::None {
                    assert!(payload.len() <= wire::TEXT_BYTES_MAX && reply.verbs == 0);
                    return assert!(std::str::from_utf8(payload).is_ok_and(|text| !text.is_empty()));
                }
                assert_eq!(reply.verbs, head.verbs);
                if let Some(words) = words {
                    assert!(payload == bytemuck::cast_slice::<u64, u8>(words), "to {self:?}");
                }
            }
            _ => panic!("{answer:?} to {self:?}"),
        }
    }
}

impl Answer {
    /// Returns the name that the corpus uses.
    pub fn name(&self) -> String {
        let (what, code) = match self {
            Self::Challenge(challenge) => ("challenge", challenge.opening.code),
            Self::Welcome(welcome) => ("welcome", welcome.refusal),
            Self::Reply(reply, _) => ("reply", reply.refusal.into()),
        };
        format!("{what}:{:?}", Refusal::from_code(code as u8).unwrap())
    }
}
