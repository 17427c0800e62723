//! The cache lines that WORT, WOART and ART+CoW touch, compared line by line with a model of tries
//! without a pool: nodes have their children in the order of their slots, and lines follow from the
//! byte offsets in `lab/docs/wort.md`.

use crate::wort::{Keys, keys};
use darter_baselines::{Design, Line, Touch, Wort, WortOptions};
use darter_fabric::{Local, block_on};
use darter_index::{Condition, OrderedIndex, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use std::collections::HashSet;

const LINE_BYTES: usize = 64;

/// A tree of one design.
struct Model {
    design: Design,
    root: Option<Child>,
}

enum Child {
    Leaf(u64),
    Inner(Box<Inner>),
}

struct Inner {
    /// The place of the digit that it branches on.
    branch: usize,
    /// Number of children for which there is room.
    room: usize,
    /// In the order of their slots.
    children: Vec<(usize, Child)>,
}

impl Child {
    /// Returns any key below.
    fn sample(&self) -> u64 {
        match self {
            Self::Leaf(key) => *key,
            Self::Inner(inner) => inner.children[0].1.sample(),
        }
    }
}

fn digit(design: Design, key: u64, at: usize) -> usize {
    match design {
        Design::Wort => (key >> (60 - 4 * at) & 15) as usize,
        _ => (key >> (56 - 8 * at) & 255) as usize,
    }
}

fn parting(design: Design, a: u64, b: u64) -> usize {
    (0..16).find(|&at| digit(design, a, at) != digit(design, b, at)).unwrap()
}

fn room(design: Design, children: usize) -> usize {
    match design {
        Design::Wort => 16,
        _ => [4, 16, 48, 256].into_iter().find(|&room| room >= children).unwrap(),
    }
}

impl Model {
    fn insert(&mut self, key: u64) {
        match &mut self.root {
            Some(root) => insert(self.design, root, key),
            empty => *empty = Some(Child::Leaf(key)),
        }
    }

    /// Returns the lines that a search for a present key touches.
    fn search_lines(&self, key: u64) -> usize {
        let (mut child, mut lines) = (self.root.as_ref().unwrap(), 1);
        while let Child::Inner(inner) = child {
            let digit = digit(self.design, key, inner.branch);
            let slot = inner.children.iter().position(|(own, _)| *own == digit).unwrap();
            let touched = match (self.design, inner.room) {
                (Design::Wort, _) | (_, 256) => [0, 0, 16 + 8 * digit],
                (_, 4) => [0, 16, 24 + 8 * slot],
                (_, 16) => [0, 16, 40 + 8 * slot],
                _ => [0, 16 + digit, 272 + 8 * slot],
            };
            lines += touched.map(|byte| byte / LINE_BYTES).into_iter().collect::<HashSet<_>>().len();
            child = &inner.children[slot].1;
        }
        lines + 1
    }

    /// Returns the lines that a scan of everything touches.
    fn scan_lines(&self) -> usize {
        1 + self.root.as_ref().map_or(0, |root| self.lines_below(root))
    }

    fn lines_below(&self, child: &Child) -> usize {
        let Child::Inner(inner) = child else { return 1 };
        let bytes: usize = match (self.design, inner.room) {
            (Design::Wort, _) => 144,
            (_, 4) => 56,
            (_, 16) => 40 + 8 * inner.children.len(),
            (_, 48) => 272 + 8 * inner.children.len(),
            _ => 2064,
        };
        bytes.div_ceil(LINE_BYTES)
            + inner.children.iter().map(|(_, child)| self.lines_below(child)).sum::<usize>()
    }
}

fn insert(design: Design, child: &mut Child, key: u64) {
    let sample = child.sample();
    let at = parting(design, key, sample);
    let is_cow = design == Design::ArtCow;
    match child {
        Child::Inner(inner) if inner.branch <= at => {
            let own = digit(design, key, inner.branch);
            if let Some((_, below)) = inner.children.iter_mut().find(|(digit, _)| *digit == own) {
                return insert(design, below, key);
            }
            // A copy has its slots in the order of the digits, and the new one after them.
            let is_copied = inner.children.len() == inner.room || (is_cow && inner.room <= 16);
            if is_copied {
                inner.children.sort_by_key(|(digit, _)| *digit);
            }
            inner.children.push((own, Child::Leaf(key)));
            inner.room = room(design, inner.children.len()).max(inner.room);
        }
        _ => {
            if let (Child::Inner(inner), true) = (&mut *child, is_cow) {
                inner.children.sort_by_key(|(digit, _)| *digit);
            }
            let below = std::mem::replace(child, Child::Leaf(key));
            let children =
                vec![(digit(design, sample, at), below), (digit(design, key, at), Child::Leaf(key))];
            *child = Child::Inner(Box::new(Inner { branch: at, room: room(design, 2), children }));
        }
    }
}

/// Returns the distinct lines read, and how many were written and flushed.
fn tallied(touches: &[Touch]) -> (HashSet<Line>, usize, usize) {
    let read = touches.iter().filter_map(|touch| match touch {
        Touch::Read(line) => Some(*line),
        _ => None,
    });
    let count = |is: fn(&Touch) -> bool| touches.iter().filter(|touch| is(touch)).count();
    let written = count(|touch| matches!(touch, Touch::Written(_)));
    (read.collect(), written, count(|touch| matches!(touch, Touch::Flushed(_))))
}

/// Keys are inserted one after another, then searched for, then scanned.
fn assert_lines(design: Design, of: Keys, count: u64) {
    let keys = keys(of, count);
    let fabric = Local::memory(64 << 20, 1).unwrap();
    let pool = block_on(Pool::create(fabric, &PoolOptions::default())).unwrap();
    let mut client: Client<Local> = pool.client().unwrap();
    let mut model = Model { design, root: None };
    block_on(async {
        let index = Wort::open_or_create(&mut client, WortOptions::of(design)).await.unwrap();
        index.record_touches(true);
        for &key in &keys {
            let before = index.persistence();
            index.put(&mut client, &key.to_be_bytes(), &[7; 8], Condition::Absent).await.unwrap();
            model.insert(key);
            let (read, written, flushed) = tallied(&index.take_touches());
            assert!(!read.is_empty());
            assert_eq!((written, flushed), (flushed, (index.persistence().lines - before.lines) as usize));
        }
        for &key in &keys {
            assert_eq!(index.get(&mut client, &key.to_be_bytes()).await.unwrap(), Some(vec![7; 8]));
            let (read, written, flushed) = tallied(&index.take_touches());
            assert_eq!(
                (read.len(), written, flushed),
                (model.search_lines(key), 0, 0),
                "{design:?} {of:?} {key:#x}"
            );
        }
        let found = index.scan(&mut client, &ScanRange::all(), keys.len()).await.unwrap();
        assert_eq!(found.len(), keys.len());
        let (read, ..) = tallied(&index.take_touches());
        assert_eq!(read.len(), model.scan_lines(), "{design:?} {of:?}");
        index.record_touches(false);
        index.get(&mut client, &keys[0].to_be_bytes()).await.unwrap();
        assert!(index.take_touches().is_empty());
    });
}

#[test]
fn searches_and_scans_touch_the_lines_of_the_model() {
    for design in [Design::Wort, Design::Woart, Design::ArtCow] {
        for of in [Keys::Dense, Keys::Sparse, Keys::Clustered] {
            assert_lines(design, of, 5000);
        }
    }
}
