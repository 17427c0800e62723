//! Magazines: a client's stock of free objects of one node, kind and class, so that most
//! allocations touch no shared state.
//!
//! Only the owning client changes a magazine, and only during an operation; an audit may read it
//! from another thread, and upkeep may empty it between two operations (`hand_over`). The words are
//! atomics for that reason alone: relaxed loads and stores cost the same as plain ones, and no
//! operation needs a read-modify-write. An audit that races with the owner may see an object twice
//! or not at all, which its documentation says.

use darter_fabric::GlobalAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::size_class::class_bytes;
use crate::sync::lock;

/// The most objects that a magazine holds.
pub(crate) const MAGAZINE_OBJECTS_MAX: usize = 64;
/// The most bytes of objects that a magazine holds, so that idle clients hold little memory.
const MAGAZINE_BYTES_MAX: u64 = 64 << 10;

/// Free objects of one size.
#[derive(Debug)]
pub(crate) struct Magazine {
    len: AtomicU32,
    objects: Box<[AtomicU64]>,
    pub class: u8,
}

impl Magazine {
    /// An empty magazine for objects of `class`, at most `objects_max` of them.
    pub(crate) fn new(class: u8, objects_max: usize) -> Self {
        let capacity = (MAGAZINE_BYTES_MAX / class_bytes(class)).clamp(1, objects_max as u64);
        Self { len: AtomicU32::new(0), objects: (0..capacity).map(|_| AtomicU64::new(0)).collect(), class }
    }

    /// The number of objects it can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.objects.len()
    }

    /// The number of objects it holds.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire) as usize
    }

    /// Takes an object. For the owner only.
    #[inline]
    pub(crate) fn pop(&self) -> Option<GlobalAddr> {
        let object = self.peek()?;
        self.len.store(self.len.load(Ordering::Relaxed) - 1, Ordering::Release);
        Some(object)
    }

    /// The object that [`Magazine::pop`] would take.
    #[inline]
    pub(crate) fn peek(&self) -> Option<GlobalAddr> {
        let last = self.len.load(Ordering::Relaxed).checked_sub(1)?;
        Some(GlobalAddr::from_bits(self.objects.get(last as usize)?.load(Ordering::Relaxed)))
    }

    /// Adds an object; returns `false` if the magazine is full. For the owner only.
    #[inline]
    pub(crate) fn push(&self, addr: GlobalAddr) -> bool {
        let len = self.len.load(Ordering::Relaxed);
        let Some(place) = self.objects.get(len as usize) else { return false };
        place.store(addr.bits(), Ordering::Relaxed);
        self.len.store(len + 1, Ordering::Release);
        true
    }

    /// The objects in it, for audits.
    pub(crate) fn contents(&self) -> Vec<GlobalAddr> {
        let held = self.objects.iter().take(self.len());
        held.map(|object| GlobalAddr::from_bits(object.load(Ordering::Relaxed))).collect()
    }
}

/// All magazines of one client.
#[derive(Debug, Default)]
pub(crate) struct MagazineList(Mutex<Vec<Arc<Magazine>>>);

impl MagazineList {
    /// Adds a magazine.
    pub(super) fn push(&self, magazine: Arc<Magazine>) {
        lock(&self.0).push(magazine);
    }

    /// Empties the magazines, for their owner, or for another thread while the owner is in no
    /// operation. Calls `free` with each object and its class.
    pub(super) fn drain(&self, mut free: impl FnMut(GlobalAddr, u8)) {
        // Held to the end, so that an owner that begins an operation waits here.
        let magazines = lock(&self.0);
        for magazine in &*magazines {
            while let Some(addr) = magazine.pop() {
                free(addr, magazine.class);
            }
        }
    }

    /// The objects in the magazines.
    pub(super) fn contents(&self) -> Vec<GlobalAddr> {
        lock(&self.0).iter().flat_map(|magazine| magazine.contents()).collect()
    }

    /// Bytes of the objects in the magazines.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |magazine: &Magazine| magazine.len() as u64 * class_bytes(magazine.class);
        lock(&self.0).iter().map(|magazine| bytes(magazine)).sum()
    }
}
