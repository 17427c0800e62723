//! The choice of fuzzing cases, and their supervision: the current case, whether it hangs, and its
//! memory use.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time after which a case counts as hanging.
const HANG: Duration = Duration::from_secs(60);

/// The cases to run: a number of them, those of a time span, or a given one.
pub struct Run {
    end: &'static str,
    seeds: Pcg64Mcg,
    left: u64,
    until: Option<Instant>,
    named: Option<u64>,
    watch: Watch,
}

impl Run {
    /// Runs `cases` cases of one end from a fixed seed, unless `DARTER_FUZZ_CASE=END:SEED` selects
    /// one.
    pub fn short(end: &'static str, cases: u64) -> Self {
        let named = std::env::var("DARTER_FUZZ_CASE").ok();
        let named = named.and_then(|line| {
            let (its_end, seed) = line.split_once(':').expect("DARTER_FUZZ_CASE is END:SEED");
            let seed = u64::from_str_radix(seed.trim_start_matches("0x"), 16);
            (its_end == end).then(|| seed.expect("a seed is hexadecimal"))
        });
        Self {
            end,
            seeds: Pcg64Mcg::seed_from_u64(7),
            left: cases,
            until: None,
            named,
            watch: Watch::begin(),
        }
    }

    /// Runs cases of one end from a fresh seed for as long as `time`.
    pub fn long(end: &'static str, time: Duration) -> Self {
        let until = Some(Instant::now() + time);
        let seeds = Pcg64Mcg::seed_from_u64(darter_fabric::random_word());
        Self { seeds, left: u64::MAX, until, named: None, ..Self::short(end, 0) }
    }

    /// Returns whether there is time for slow cases.
    pub fn is_long(&self) -> bool {
        self.until.is_some() || self.named.is_some()
    }
}

impl Iterator for Run {
    type Item = (u64, Pcg64Mcg);

    fn next(&mut self) -> Option<(u64, Pcg64Mcg)> {
        if self.left == 0 || self.until.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        self.left -= 1;
        let seed = self.named.unwrap_or_else(|| self.seeds.random::<u64>());
        if self.named.is_some() {
            self.left = 0;
        }
        self.watch.goes_on(&format!("DARTER_FUZZ_CASE={}:{seed:#x}", self.end));
        Some((seed, Pcg64Mcg::seed_from_u64(seed)))
    }
}

/// Reports which case fails, and ends the process if one hangs.
struct Watch {
    case: Arc<Mutex<Option<(String, Instant)>>>,
}

impl Watch {
    fn begin() -> Self {
        let case: Arc<Mutex<Option<(String, Instant)>>> = Arc::default();
        let watched = Arc::downgrade(&case);
        std::thread::spawn(move || {
            while let Some(case) = watched.upgrade() {
                if let Some((line, since)) = &*case.lock().unwrap_or_else(PoisonError::into_inner)
                    && since.elapsed() > HANG
                {
                    eprintln!("hangs: {line}");
                    std::process::exit(101);
                }
                drop(case);
                std::thread::sleep(HANG / 100);
            }
        });
        Self { case }
    }

    fn goes_on(&self, line: &str) {
        let now = Some((line.to_owned(), Instant::now()));
        *self.case.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some((line, _)) = &*self.case.lock().unwrap_or_else(PoisonError::into_inner)
        {
            eprintln!("repeat it with: {line} cargo test -p darter-memnode --test wire_fuzz");
        }
    }
}

/// Panics if this process uses, or has ever used, much more memory than a case may take.
pub fn assert_modest() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    assert!(kib("VmHWM:") < 512 << 10, "{} KiB of memory were in use", kib("VmHWM:"));
    assert!(kib("VmPeak:") < 4 << 20, "{} KiB of addresses were in use", kib("VmPeak:"));
}
