//! The corpus: conversations as text, one frame per line, and the frames that they denote.
//!
//! ```text
//! hello [version=N]                  what a client sends
//! proof [wrong]
//! batch [kind=N] [verbs=N] [bytes=N] wrong values in its head, about the verbs below
//! read OFFSET WORDS
//! write OFFSET WORD...
//! fill OFFSET WORDS WORD             a WRITE of one word repeated
//! cas OFFSET EXPECTED DESIRED
//! faa OFFSET ADDEND
//! claim N, release N, fence N|own [lapsed], persist, pair
//! call PROCEDURE WORD...
//!
//! challenge [REFUSAL]                what a node sends
//! welcome [REFUSAL] [TEXT]
//! reply ID WORD...
//! refuse ID REFUSAL [TEXT]
//!
//! raw HEX                            bytes, unchanged
//! => OUTCOME...                      the expected outcome; `#` begins a comment
//! ```
//!
//! The version of the protocol and the proofs are inserted when a conversation runs, so a new
//! version does not change the corpus, except `raw` lines. `DARTER_FUZZ_KEEP=1` writes the actual
//! outcomes to the files.

use super::reading;
use bytemuck::Zeroable;
use darter_fabric::wire::proof::Proof;
use darter_fabric::wire::{
    self, Challenge, Control, FRAME_BYTES_MAX, HEADER_BYTES, Hello, Opening, Pairing, Refusal, ReplyHead,
    RequestHead, RequestKind, Welcome,
};
use std::path::PathBuf;

/// Number of bytes of the region that conversations refer to.
pub const REGION_BYTES: u64 = 256 << 10;
/// Boot id of the fake node's memory.
pub const BOOT_ID: u64 = 7;

/// Bytes that one side sends without waiting for the other's reply.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    pub bytes: Vec<u8>,
    /// The offset at which the side's proof is inserted, by exclusive or, so that a mutated proof
    /// stays mutated.
    pub proof_at: Option<usize>,
}

impl Frame {
    pub fn new(parts: &[&[u8]]) -> Self {
        Self { bytes: parts.concat(), proof_at: None }
    }

    /// Returns the bytes with a proof inserted.
    pub fn with(&self, proof: &Proof) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if let Some(room) = self.proof_at.and_then(|at| bytes.get_mut(at..)) {
            room.iter_mut().zip(proof).for_each(|(byte, more)| *byte ^= more);
        }
        bytes
    }
}

/// A file of the corpus.
#[derive(Debug)]
pub struct Conversation {
    pub path: PathBuf,
    text: String,
}

/// Returns all conversations in a directory of the corpus, by name.
pub fn read(towards: &str) -> Vec<Conversation> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(towards);
    let mut paths: Vec<PathBuf> = dir.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "{}", dir.display());
    let read = |path: PathBuf| Conversation { text: std::fs::read_to_string(&path).unwrap(), path };
    paths.into_iter().map(read).collect()
}

impl Conversation {
    /// Returns a conversation that is not in a file.
    pub fn of(text: &str) -> Self {
        Self { path: PathBuf::new(), text: text.to_owned() }
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        let lines = self.text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        lines.filter(|line| !line.is_empty())
    }

    /// Returns the expected outcome.
    pub fn outcome(&self) -> &str {
        self.lines().find_map(|line| line.strip_prefix("=>")).unwrap_or_default().trim()
    }

    /// Writes another outcome to the file.
    pub fn keep(&self, outcome: &str) {
        let kept = self.text.lines().filter(|line| !line.starts_with("=>"));
        let lines: Vec<&str> = kept.collect();
        std::fs::write(&self.path, format!("{}\n=> {outcome}\n", lines.join("\n"))).unwrap();
    }

    /// Returns the frames, as a session sends or receives them.
    pub fn frames(&self, session: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut id = 0;
        let mut batch: Option<(RequestHead, Vec<u8>, [bool; 2])> = None;
        for line in self.lines().filter(|line| !line.starts_with("=>")).chain(["end"]) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Some((head, payload, is_said)) = &mut batch {
                if let Some(verb) = verb(&words) {
                    payload.extend(verb);
                    head.verbs += u16::from(!is_said[0]);
                    continue;
                }
                if !is_said[1] {
                    head.bytes = payload.len() as u32;
                }
                frames.push(Frame::new(&[wire::as_bytes(head), payload]));
                batch = None;
            }
            let request =
                matches!(words[0], "batch" | "claim" | "release" | "fence" | "persist" | "pair" | "call");
            id += u64::from(request);
            if words[0] == "batch" {
                let said = |name: &str| words.iter().find_map(|word| Some(number(word.strip_prefix(name)?)));
                let (kind, verbs, bytes) = (said("kind="), said("verbs="), said("bytes="));
                let head = RequestHead {
                    kind: kind.unwrap_or(RequestKind::Batch as u64) as u8,
                    reserved: 0,
                    verbs: verbs.unwrap_or(0) as u16,
                    bytes: bytes.unwrap_or(0) as u32,
                    id,
                };
                batch = Some((head, Vec::new(), [verbs.is_some(), bytes.is_some()]));
            } else if words[0] != "end" {
                frames.push(frame(line, &words, session, id));
            }
        }
        frames
    }
}

fn number(text: &str) -> u64 {
    let hex = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    hex.unwrap_or_else(|| text.parse()).unwrap_or_else(|_| panic!("{text} is not a number"))
}

/// Returns the refusal with a name.
fn refusal(name: &str) -> Refusal {
    let all = (0..=u8::MAX).map_while(Refusal::from_code);
    all.into_iter().find(|refusal| format!("{refusal:?}") == name).unwrap_or_else(|| panic!("{name}"))
}

fn verb(words: &[&str]) -> Option<Vec<u8>> {
    let numbers = || words[1..].iter().map(|word| number(word));
    let at = |place: usize| number(words[place]);
    let (kind, length, carried): (u8, u64, Vec<u64>) = match words[0] {
        "read" => (reading::READ, at(2), Vec::new()),
        "write" => (reading::WRITE, words.len() as u64 - 2, numbers().skip(1).collect()),
        "fill" => (reading::WRITE, at(2), vec![at(3); at(2) as usize]),
        "cas" => (reading::CAS, 1, vec![at(2), at(3)]),
        "faa" => (reading::FAA, 1, vec![at(2)]),
        _ => return None,
    };
    let mut verb = vec![kind, 0, 0, 0];
    verb.extend((length as u32).to_le_bytes());
    verb.extend(at(1).to_le_bytes());
    verb.extend(carried.iter().flat_map(|word| word.to_le_bytes()));
    assert!(verb.len() >= HEADER_BYTES);
    Some(verb)
}

fn frame(line: &str, words: &[&str], session: u64, id: u64) -> Frame {
    let control = |kind: RequestKind, number: u64, flag: bool| {
        let about = Control { number, flag: flag.into() };
        let bytes = size_of::<Control>() as u32;
        let head = RequestHead { kind: kind as u8, reserved: 0, verbs: 0, bytes, id };
        Frame::new(&[wire::as_bytes(&head), wire::as_bytes(&about)])
    };
    let text = |from: usize| words.get(from..).unwrap_or_default().join(" ");
    let reply = |refusal: Refusal, payload: &[u8]| {
        let bytes = payload.len() as u32;
        let head = ReplyHead { refusal: refusal as u8, reserved: 0, verbs: 0, bytes, id: number(words[1]) };
        Frame::new(&[wire::as_bytes(&head), payload])
    };
    match words[0] {
        "hello" => {
            let mut hello = Hello::new(session, [3; 32]);
            if let Some(version) = words.get(1).and_then(|word| word.strip_prefix("version=")) {
                hello.opening = Opening { version: number(version) as u32, ..hello.opening };
            }
            Frame::new(&[wire::as_bytes(&hello)])
        }
        "proof" => {
            let mut proof = Proof::default();
            proof[31] = u8::from(words.get(1) == Some(&"wrong"));
            Frame { bytes: proof.to_vec(), proof_at: Some(0) }
        }
        "claim" => control(RequestKind::Claim, number(words[1]), false),
        "release" => control(RequestKind::Release, number(words[1]), false),
        "persist" => control(RequestKind::Persist, 0, false),
        "pair" => {
            let bytes = size_of::<Pairing>() as u32;
            let head = RequestHead { kind: RequestKind::Pair as u8, reserved: 0, verbs: 0, bytes, id };
            Frame::new(&[wire::as_bytes(&head), wire::as_bytes(&Pairing::default())])
        }
        "call" => {
            let payload: Vec<u64> = words[1..].iter().map(|word| number(word)).collect();
            let bytes = payload.len() as u32 * 8;
            let head = RequestHead { kind: RequestKind::Call as u8, reserved: 0, verbs: 0, bytes, id };
            Frame::new(&[wire::as_bytes(&head), bytemuck::cast_slice(&payload)])
        }
        "fence" => {
            let whom = if words[1] == "own" { session } else { number(words[1]) };
            control(RequestKind::Fence, whom, words.get(2) == Some(&"lapsed"))
        }
        "challenge" => {
            let refusal = words.get(1).map_or(Refusal::None, |name| refusal(name));
            Frame::new(&[wire::as_bytes(&Challenge::new(refusal, [4; 32]))])
        }
        "welcome" => {
            let refusal = words.get(1).map_or(Refusal::None, |name| refusal(name));
            let text = text(2);
            let welcome = Welcome {
                refusal: refusal as u32,
                text_bytes: text.len() as u32,
                region_bytes: REGION_BYTES,
                boot_id: BOOT_ID,
                frame_bytes: FRAME_BYTES_MAX,
                ..Welcome::zeroed()
            };
            let proof_at = Some(size_of::<Welcome>() - size_of::<Proof>());
            Frame { proof_at, ..Frame::new(&[wire::as_bytes(&welcome), text.as_bytes()]) }
        }
        "reply" => {
            let words: Vec<u64> = words[2..].iter().map(|word| number(word)).collect();
            reply(Refusal::None, bytemuck::cast_slice(&words))
        }
        "refuse" => reply(refusal(words[2]), text(3).as_bytes()),
        "raw" => {
            let digits: Vec<u8> = line[3..].bytes().filter(u8::is_ascii_hexdigit).collect();
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            Frame { bytes: digits.chunks(2).map(byte).collect(), proof_at: None }
        }
        other => panic!("{other}: unknown line"),
    }
}
