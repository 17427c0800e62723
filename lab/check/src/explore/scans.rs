//! Scans of all hot keys by a plan's clients, and the checks of their results.

use super::recorder::Identity;
use super::subject::Subject;
use darter_index::{IndexError, KeyValue, OrderedIndex, ScanRange};
use darter_pool::Client;
use darter_sim::Sim;
use std::ops::Bound;

/// Fewest keys in a window of a scan, and most windows over the keys of a scenario.
pub(super) const WINDOW_MIN: usize = 2;
const WINDOWS_MAX: usize = 4;

/// All hot keys, and the keys between them.
pub(super) fn range(identity: &Identity<'_>, reverse: bool) -> ScanRange {
    let (low, high) = (identity.scenario.hot.iter().min(), identity.scenario.hot.iter().max());
    let bound = |key: Option<&Vec<u8>>| key.map_or(Bound::Unbounded, |key| Bound::Included(key.clone()));
    ScanRange { from: bound(low), to: bound(high), reverse }
}

/// Scans a range in windows.
pub(super) async fn scan_in_windows<S: Subject>(
    identity: &Identity<'_>,
    index: &S::Index,
    own: &mut Client<Sim>,
    range: &ScanRange,
) -> Result<Vec<KeyValue>, IndexError> {
    let limit = (identity.scenario.filler.len() / WINDOWS_MAX).max(WINDOW_MIN);
    let mut rest = range.clone();
    let mut all = Vec::new();
    loop {
        let pairs = index.scan(own, &rest, limit).await?;
        let is_last = pairs.len() < limit;
        if pairs.len() > limit {
            return Err(lie("a scan that returned more keys than its limit"));
        }
        if let Some((last, _)) = pairs.last() {
            let behind = if range.reverse { &mut rest.to } else { &mut rest.from };
            *behind = Bound::Excluded(last.clone());
        }
        all.extend(pairs);
        if is_last {
            return Ok(all);
        }
    }
}

pub(super) fn lie(what: &'static str) -> IndexError {
    IndexError::Corrupt { addr: darter_fabric::GlobalAddr::NULL, what }
}

/// Checks that a scan returned its keys in order and each once, all of the filler, and no key that
/// was never put. Returns its result for the hot keys.
pub(super) fn verify_scan(
    identity: &Identity<'_>,
    range: &ScanRange,
    mut pairs: Vec<KeyValue>,
) -> Result<Vec<Option<u64>>, IndexError> {
    if range.reverse {
        pairs.reverse();
    }
    if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(lie("a scan that is out of order or returned a key twice"));
    }
    let (low, high) = (identity.scenario.hot.iter().min(), identity.scenario.hot.iter().max());
    let within = |key: &&Vec<u8>| low.is_none_or(|low| *key >= low) && high.is_none_or(|high| *key <= high);
    let filler = identity.scenario.filler.iter().filter(within).count();
    let (mut hot, mut met) = (vec![None; identity.scenario.hot.len()], 0);
    for (key, value) in pairs {
        if let Some(at) = identity.scenario.hot.iter().position(|hot| *hot == key) {
            hot[at] = Some(identity.scenario.number(&value));
        } else if identity.scenario.filler.binary_search(&key).is_ok()
            && identity.scenario.number(&value) == 0
        {
            met += 1;
        } else {
            return Err(lie("a scan that returned a key that no client put"));
        }
    }
    if met != filler {
        return Err(lie("a scan that missed a key that was present throughout"));
    }
    Ok(hot)
}
