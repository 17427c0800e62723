//! The cost of a verb compared with plain loads: READs of 64 and 128 bytes against word-wise copies
//! of the same size.
//!
//! Both copy aligned words of random lines by atomic loads, from a region that fits the cache and
//! from a larger one; as in a search, the content of a line determines the next one. The verb takes
//! the full path: a batch from the endpoint, bounds and alignment checked, posted, awaited, given
//! back.

use comfy_table::Table;
use darter::{FabricError, GlobalAddr, block_on};
use darter_bench::BenchError;
use darter_bench::permutation::mix64;
use darter_bench::report::markdown_table;
use darter_fabric::Fabric;
use darter_fabric::{Counting, Endpoint, Local};
use serde::Serialize;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of a region that fits the cache, and of a larger one.
const REGION_BYTES: [u64; 2] = [256 << 10, 512 << 20];
/// Words of one READ.
const READ_WORDS: [usize; 2] = [8, 16];
/// Reads in one measurement; few in a debug build, whose times mean nothing.
const READS: u64 = if cfg!(debug_assertions) { 10_000 } else { 1_000_000 };
/// Measurements, of which the fastest counts: the others were disturbed.
const REPEATS: usize = 3;

/// Nanoseconds of one read.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct VerbCost {
    /// Bytes read from.
    region_bytes: u64,
    /// Bytes of one read.
    read_bytes: u64,
    /// Plain loads.
    plain_ns: f64,
    /// A READ of the local provider.
    verb_ns: f64,
    /// A READ of the local provider, counted.
    counted_verb_ns: f64,
}

/// Measures every size.
pub(super) fn measure() -> Result<Vec<VerbCost>, BenchError> {
    let mut costs = Vec::new();
    for region_bytes in REGION_BYTES {
        let words = plain_region(region_bytes);
        let local = Local::memory(region_bytes, 1).map_err(darter::Error::from)?;
        let mut plain_endpoint = local.endpoint().map_err(darter::Error::from)?;
        let mut counted_endpoint = Counting::new(local.clone()).endpoint().map_err(darter::Error::from)?;
        fill(&mut plain_endpoint, region_bytes).map_err(darter::Error::from)?;
        for read_words in READ_WORDS {
            let read_bytes = read_words as u64 * 8;
            let lines = region_bytes / read_bytes;
            let mut cost = VerbCost {
                region_bytes,
                read_bytes,
                plain_ns: f64::MAX,
                verb_ns: f64::MAX,
                counted_verb_ns: f64::MAX,
            };
            for _ in 0..REPEATS {
                cost.plain_ns = cost.plain_ns.min(plain(&words, lines, read_words));
                cost.verb_ns = cost.verb_ns.min(verbs(&mut plain_endpoint, lines, read_words)?);
                cost.counted_verb_ns =
                    cost.counted_verb_ns.min(verbs(&mut counted_endpoint, lines, read_words)?);
            }
            costs.push(cost);
        }
    }
    Ok(costs)
}

/// Returns the table for readers.
pub(super) fn table(costs: &[VerbCost]) -> Table {
    let mut table =
        markdown_table(&["verbs", "plain loads, ns", "READ, ns", "counted READ, ns", "READ above plain, ns"]);
    for cost in costs {
        let region = darter_bench::report::bytes_text(cost.region_bytes);
        table.add_row(vec![
            format!("{} B of {region}", cost.read_bytes),
            format!("{:.1}", cost.plain_ns),
            format!("{:.1}", cost.verb_ns),
            format!("{:.1}", cost.counted_verb_ns),
            format!("{:.1}", cost.counted_verb_ns - cost.plain_ns),
        ]);
    }
    table
}

/// Memory of the same size and kind of page as the provider's.
fn plain_region(bytes: u64) -> Vec<AtomicU64> {
    let mut words: Vec<AtomicU64> = Vec::with_capacity(bytes as usize / 8);
    advise_huge_pages(&mut words);
    words.extend((0..bytes / 8).map(AtomicU64::new));
    words
}

/// Asks for huge pages under a vector's spare capacity, as the provider does for its regions.
fn advise_huge_pages(words: &mut Vec<AtomicU64>) {
    const PAGE: usize = 4096;
    let spare = words.spare_capacity_mut().as_mut_ptr_range();
    let begin = (spare.start as usize).next_multiple_of(PAGE);
    let end = spare.end as usize / PAGE * PAGE;
    if begin < end {
        // SAFETY: the whole pages from `begin` to `end` lie within one live allocation, and this
        // advice changes how they are backed, never what they hold. A refusal is harmless.
        unsafe { libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_HUGEPAGE) };
    }
}

/// Touches every page, so that none is the shared zero page.
fn fill<E: Endpoint>(endpoint: &mut E, bytes: u64) -> Result<(), FabricError> {
    const STEP: u64 = 4096;
    let payload = [u64::MAX; STEP as usize / 8];
    for offset in (0..bytes).step_by(STEP as usize) {
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(0, offset), &payload);
        let batch = block_on(endpoint.submit(batch))?;
        endpoint.recycle(batch);
    }
    Ok(())
}

/// The `n`-th line to read, after one that held `last`.
#[inline]
fn line(n: u64, last: u64, lines: u64) -> u64 {
    // The high half of the product spreads evenly over the lines, without a division.
    ((u128::from(mix64(n ^ last)) * u128::from(lines)) >> 64) as u64
}

fn plain(words: &[AtomicU64], lines: u64, read_words: usize) -> f64 {
    let mut copy = [0; 16];
    let begin = Instant::now();
    for n in 0..READS {
        let from = &words[line(n, copy[0], lines) as usize * read_words..][..read_words];
        for (to, from) in copy.iter_mut().zip(from) {
            *to = from.load(Ordering::Acquire);
        }
        black_box(&copy);
    }
    nanoseconds(begin)
}

fn verbs<E: Endpoint>(endpoint: &mut E, lines: u64, read_words: usize) -> Result<f64, BenchError> {
    let mut last = 0;
    let begin = Instant::now();
    for n in 0..READS {
        let mut batch = endpoint.batch();
        let offset = line(n, last, lines) * read_words as u64 * 8;
        let read = batch.read(GlobalAddr::new(0, offset), read_words);
        let batch = block_on(endpoint.submit(batch)).map_err(darter::Error::from)?;
        last = black_box(batch.words(read))[0];
        endpoint.recycle(batch);
    }
    Ok(nanoseconds(begin))
}

fn nanoseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e9 / READS as f64
}
