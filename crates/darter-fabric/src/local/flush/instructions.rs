//! The processor's instructions that write a cache line back: CLWB, which may leave the line in the
//! cache; CLFLUSHOPT and CLFLUSH, which evict it. If the power supply protects the caches, none is
//! needed.
//!
//! The first two have neither stable intrinsics nor feature names for detection; so they are
//! assembled by hand, and CPUID reports which are available. Which of them is fastest depends on
//! the processor: on some CLWB evicts the line, on some CLFLUSHOPT waits for others. So their speed
//! is measured on the pool's own medium, in unused lines.

use super::Persistence;
use crate::FabricError;
use std::fs::File;
use std::sync::atomic::AtomicU64;

/// A way to write a cache line to the medium on this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local) enum Instruction {
    /// None: the caches are protected, and a store is on the medium as soon as it is visible.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    FenceAlone,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clwb,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clflushopt,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clflush,
}

/// Fails on processors whose instructions are unknown.
///
/// # Errors
/// [`FabricError::Geometry`], which names the alternatives.
pub(in crate::local) fn require() -> Result<(), FabricError> {
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        return Ok(());
    }
    Err(FabricError::geometry(
        "`durability=flush` knows how to flush the caches of x86-64 processors only: serve the memory by `darter memnode \
         --durability log --log DIR`, and name the pool `tcp://HOST:PORT?durability=log`",
    ))
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::super::LINE_WORDS;
    use super::super::domain::has_caches;
    use super::{AtomicU64, File, Instruction, Persistence};
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush};
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    /// The leaf of CPUID and its bits in EBX for the instructions.
    const LEAF: u32 = 7;
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;
    /// Number of measurements of each instruction.
    const ROUNDS: usize = 15;

    impl Instruction {
        /// Returns the processor's fastest one for a file, by storing to `lines` of it, which must
        /// be unused.
        pub(in crate::local) fn choose(file: &File, lines: &[AtomicU64]) -> Self {
            if has_caches(file) {
                return Self::FenceAlone;
            }
            let mut rounds = Self::known().iter().map(|&one| (one, Vec::new())).collect::<Vec<_>>();
            for _ in 0..ROUNDS {
                for (instruction, times) in &mut rounds {
                    times.push(instruction.time(lines));
                }
            }
            Self::fastest(&mut rounds)
        }

        /// Returns the instructions that this processor has, the presumably fastest first.
        pub(super) fn known() -> &'static [Self] {
            let features = if __cpuid(0).eax >= LEAF { __cpuid_count(LEAF, 0).ebx } else { 0 };
            Self::of(features)
        }

        /// Returns the same for a value of EBX from leaf 7 of CPUID.
        pub(super) fn of(features: u32) -> &'static [Self] {
            match (features & CLWB != 0, features & CLFLUSHOPT != 0) {
                (true, true) => &[Self::Clwb, Self::Clflushopt, Self::Clflush],
                (true, false) => &[Self::Clwb, Self::Clflush],
                (false, true) => &[Self::Clflushopt, Self::Clflush],
                (false, false) => &[Self::Clflush],
            }
        }

        /// Returns the time to change lines and write them to the medium, twice: the second round
        /// includes the cost of lines that have left the cache.
        fn time(self, lines: &[AtomicU64]) -> Duration {
            let began = Instant::now();
            for _ in 0..2 {
                for line in lines.chunks(LINE_WORDS) {
                    // A store makes a line dirty, even if it does not change it.
                    line[0].store(line[0].load(Ordering::Relaxed), Ordering::Relaxed);
                    self.flush(line);
                }
                self.fence();
            }
            began.elapsed()
        }

        /// Returns the one with the lowest median; the first of equal ones.
        pub(super) fn fastest(rounds: &mut [(Self, Vec<Duration>)]) -> Self {
            let median = |times: &mut Vec<Duration>| {
                times.sort_unstable();
                times[times.len() / 2]
            };
            let all = rounds.iter_mut().map(|(instruction, times)| (median(times), *instruction));
            all.min_by_key(|&(time, _)| time).map_or(Self::Clflush, |(_, instruction)| instruction)
        }
    }

    impl Persistence for Instruction {
        #[inline]
        fn flush(&self, line: &[AtomicU64]) {
            let at = line.as_ptr();
            match self {
                Self::FenceAlone => {}
                // SAFETY: CPUID has the instruction, `at` is mapped, and no byte changes. As far as
                // the compiler knows the block may read memory, so it moves no store to after it.
                Self::Clwb => unsafe { asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)) },
                // SAFETY: as above.
                Self::Clflushopt => unsafe {
                    asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
                },
                // SAFETY: every x86-64 processor has it, `at` is mapped, and no byte changes.
                Self::Clflush => unsafe { _mm_clflush(at.cast()) },
            }
        }

        #[inline]
        fn fence(&self) {
            // SAFETY: every x86-64 processor has it; it changes nothing, and the compiler moves no
            // memory access across it.
            unsafe { asm!("sfence", options(nostack, preserves_flags)) };
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
impl Instruction {
    /// Never called: [`require`] has failed.
    pub(in crate::local) fn choose(_file: &File, _lines: &[AtomicU64]) -> Self {
        unreachable!("no instruction of this processor is known")
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
impl Persistence for Instruction {
    fn flush(&self, _line: &[AtomicU64]) {
        match *self {}
    }

    fn fence(&self) {
        match *self {}
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::super::LINE_WORDS;
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    #[test]
    fn instructions_are_those_that_the_processor_has() {
        assert_eq!(Instruction::of(0), [Instruction::Clflush]);
        assert_eq!(Instruction::of(1 << 23), [Instruction::Clflushopt, Instruction::Clflush]);
        assert_eq!(Instruction::of(1 << 24), [Instruction::Clwb, Instruction::Clflush]);
        assert_eq!(Instruction::of(u32::MAX)[0], Instruction::Clwb);
    }

    #[test]
    fn the_one_with_the_least_median_is_the_fastest() {
        let times = |all: [u64; 3]| all.map(Duration::from_nanos).to_vec();
        let mut rounds =
            [(Instruction::Clwb, times([900, 5, 10])), (Instruction::Clflushopt, times([9, 2, 900]))];
        assert_eq!(Instruction::fastest(&mut rounds), Instruction::Clflushopt);
        let mut equal = [(Instruction::Clwb, times([7, 7, 7])), (Instruction::Clflush, times([7, 7, 7]))];
        assert_eq!(Instruction::fastest(&mut equal), Instruction::Clwb);
    }

    #[test]
    fn choosing_changes_no_word() {
        let words: Vec<AtomicU64> = (0..4 * LINE_WORDS as u64).map(AtomicU64::new).collect();
        let chosen = Instruction::choose(&tempfile::tempfile().unwrap(), &words);
        assert!(Instruction::known().contains(&chosen), "{chosen:?}");
        assert!(words.iter().zip(0..).all(|(word, wanted)| word.load(Ordering::Relaxed) == wanted));
    }

    #[test]
    fn what_was_stored_is_there_after_a_flush() {
        let words: Vec<AtomicU64> = (0..4 * LINE_WORDS as u64).map(AtomicU64::new).collect();
        let all = [&[Instruction::FenceAlone], Instruction::known()].concat();
        for instruction in &all {
            for line in words.chunks(LINE_WORDS) {
                line[3].fetch_add(1, Ordering::Relaxed);
                instruction.flush(line);
            }
            instruction.fence();
        }
        let times = all.len() as u64;
        for (at, word) in words.iter().enumerate() {
            let added = if at % LINE_WORDS == 3 { times } else { 0 };
            assert_eq!(word.load(Ordering::Relaxed), at as u64 + added);
        }
    }
}
