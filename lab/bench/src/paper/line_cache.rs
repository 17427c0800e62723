//! A model of a processor's last-level cache: fully associative, with a fixed number of lines; the
//! least recently used line is evicted.

use darter_baselines::Line;
use std::collections::{HashMap, VecDeque};

/// A cache of lines.
#[derive(Debug)]
pub(super) struct LineCache {
    capacity: usize,
    /// The number of each line's last use.
    used: HashMap<Line, u64>,
    /// Uses in order; a use counts if it is its line's last.
    uses: VecDeque<(Line, u64)>,
    now: u64,
}

impl LineCache {
    /// Returns an empty cache of `capacity` lines.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, used: HashMap::new(), uses: VecDeque::new(), now: 0 }
    }

    /// Uses a line. Returns whether it was in the cache before.
    pub(super) fn touch(&mut self, line: Line) -> bool {
        if self.capacity == 0 {
            return false;
        }
        self.now += 1;
        let was_in = self.used.insert(line, self.now).is_some();
        self.uses.push_back((line, self.now));
        while self.used.len() > self.capacity {
            let Some((oldest, at)) = self.uses.pop_front() else { break };
            if self.used.get(&oldest) == Some(&at) {
                self.used.remove(&oldest);
            }
        }
        // This bounds the memory of uses that no longer count.
        if self.uses.len() > 4 * self.capacity {
            let used = &self.used;
            self.uses.retain(|(line, at)| used.get(line) == Some(at));
        }
        was_in
    }

    /// Evicts a line, as CLFLUSH does.
    pub(super) fn flush(&mut self, line: Line) {
        self.used.remove(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::block_on;
    use darter_baselines::{Touch, Wort, WortOptions};
    use darter_fabric::Local;
    use darter_index::{Condition, OrderedIndex};
    use darter_pool::{Pool, PoolOptions};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// Five lines of a small tree.
    fn lines() -> [Line; 5] {
        let pool =
            block_on(Pool::create(Local::memory(64 << 20, 1).unwrap(), &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        let touches = block_on(async {
            let index = Wort::open_or_create(&mut client, WortOptions::default()).await.unwrap();
            index.record_touches(true);
            for key in 0..8_u64 {
                index.put(&mut client, &key.to_be_bytes(), b"", Condition::Absent).await.unwrap();
            }
            index.take_touches()
        });
        let mut lines: Vec<Line> = touches
            .into_iter()
            .map(|touch| match touch {
                Touch::Read(line) | Touch::Written(line) | Touch::Flushed(line) => line,
            })
            .collect();
        lines.sort_unstable();
        lines.dedup();
        lines[..5].try_into().unwrap()
    }

    #[test]
    fn the_line_used_least_recently_makes_room() {
        let [a, b, c, d, _] = lines();
        let mut cache = LineCache::new(3);
        assert_eq!([a, b, c, a].map(|line| cache.touch(line)), [false, false, false, true]);
        // Evicts `b`.
        assert_eq!([d, a, c, b].map(|line| cache.touch(line)), [false, true, true, false]);
        // Evicts `d`. A flushed line leaves room.
        cache.flush(a);
        assert_eq!([d, c, b, d, a].map(|line| cache.touch(line)), [false, true, true, true, false]);
        assert!(!LineCache::new(0).touch(a));
    }

    /// Compares with a list in the order of use.
    #[test]
    fn a_long_run_of_uses_is_that_of_a_list() {
        let (lines, mut cache, mut list) = (lines(), LineCache::new(3), Vec::new());
        let mut dice = Pcg64Mcg::seed_from_u64(7);
        for _ in 0..10_000 {
            let line = lines[dice.random_range(0..5)];
            let at = list.iter().position(|&other| other == line);
            if let Some(at) = at {
                list.remove(at);
            }
            if dice.random_ratio(1, 16) {
                cache.flush(line);
                continue;
            }
            assert_eq!(cache.touch(line), at.is_some());
            list.push(line);
            if list.len() > 3 {
                list.remove(0);
            }
            assert!(cache.uses.len() <= 12 && cache.used.len() == list.len());
        }
    }
}
