//! Mutations of conversations: small ones that leave most of a frame intact, and larger ones
//! between frames.

use super::corpus::Frame;
use darter_fabric::wire::FRAME_BYTES_MAX;
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg64Mcg;

/// Numbers at the limits of fields and of the protocol.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    17,
    255,
    256,
    1024,
    1025,
    4095,
    4096,
    4097,
    u16::MAX as u64,
    FRAME_BYTES_MAX as u64 - 1,
    FRAME_BYTES_MAX as u64,
    FRAME_BYTES_MAX as u64 + 1,
    u32::MAX as u64 / 8,
    u32::MAX as u64,
    (1 << 40) - 8,
    1 << 40,
    u64::MAX,
];

/// Applies one to four mutations to a conversation, with parts of another one at hand.
pub fn mutate(dice: &mut Pcg64Mcg, frames: &mut Vec<Frame>, other: &[Frame]) {
    for _ in 0..=dice.random_range(0..4) {
        if frames.is_empty() {
            return;
        }
        let at = dice.random_range(0..frames.len());
        match dice.random_range(0..9) {
            0 => drop(frames.remove(at)),
            1 => frames.insert(dice.random_range(0..frames.len() + 1), frames[at].clone()),
            2 => {
                let there = dice.random_range(0..frames.len());
                frames.swap(at, there);
            }
            3 if !other.is_empty() => frames.insert(at, other.choose(dice).unwrap().clone()),
            4 if !other.is_empty() => {
                let Frame { bytes, .. } = other.choose(dice).unwrap();
                let from = dice.random_range(0..bytes.len() + 1);
                frames[at].bytes.extend_from_slice(&bytes[from..]);
            }
            _ => damage(dice, &mut frames[at]),
        }
    }
}

/// Mutates a frame.
fn damage(dice: &mut Pcg64Mcg, frame: &mut Frame) {
    let bytes = &mut frame.bytes;
    if bytes.is_empty() {
        return bytes.push(dice.random::<u8>());
    }
    let at = dice.random_range(0..bytes.len());
    match dice.random_range(0..8) {
        0 => bytes[at] ^= 1 << dice.random_range(0..8),
        1 => bytes[at] = dice.random::<u8>(),
        2 => bytes.truncate(at),
        3 => bytes.extend((0..=dice.random_range(0..40)).map(|_| dice.random::<u8>())),
        4 => drop(bytes.drain(at..(at + 1 + dice.random_range(0..24)).min(bytes.len()))),
        // A length or a count in the frame's head, changed slightly.
        5 if bytes.len() >= 8 => {
            let (from, to) = [(0, 1), (2, 4), (4, 8)].choose(dice).copied().unwrap();
            let off = [1_u64, 8, 16, 24].choose(dice).copied().unwrap();
            let off = if dice.random_ratio(1, 2) { off } else { off.wrapping_neg() };
            let old = bytes[from..to].iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
            bytes[from..to].copy_from_slice(&old.wrapping_add(off).to_le_bytes()[..to - from]);
        }
        // A field of any head.
        _ => {
            let width = [2, 4, 8].choose(dice).copied().unwrap();
            let from = at / width * width;
            if let Some(field) = bytes.get_mut(from..from + width) {
                field.copy_from_slice(&EDGES.choose(dice).unwrap().to_le_bytes()[..width]);
            }
        }
    }
}

/// Splits messages into segments: all at once, frame by frame, a few bytes at a time, byte by byte.
pub fn segments(dice: &mut Pcg64Mcg, said: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let all = || said.concat();
    match dice.random_range(0..8) {
        0..3 => vec![all()],
        3..5 => said.to_vec(),
        5 => all()
            .chunks(1)
            .take(400)
            .map(<[u8]>::to_vec)
            .chain([all().split_off(all().len().min(400))])
            .collect(),
        _ => {
            let (mut rest, mut cut) = (&all()[..], Vec::new());
            while !rest.is_empty() {
                let most = if cut.len() < 200 { 1 + dice.random_range(0..90) } else { rest.len() };
                let (now, later) = rest.split_at(most.min(rest.len()));
                cut.push(now.to_vec());
                rest = later;
            }
            cut
        }
    }
}
