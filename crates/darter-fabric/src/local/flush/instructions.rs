//! The processor's instructions that write a cache line back: CLWB, which leaves it in the cache;
//! CLFLUSHOPT and CLFLUSH, which take it out.
//!
//! The first two have no stable intrinsics, nor names of features that can be asked for; so they are
//! assembled by hand, and CPUID says which there are.

use super::Persistence;
use crate::FabricError;
use std::sync::atomic::AtomicU64;

/// An instruction that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local) enum Instruction {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clwb,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clflushopt,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clflush,
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::{AtomicU64, FabricError, Instruction, Persistence};
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush};

    /// The leaf of CPUID, and its bits in EBX, that tell of the instructions.
    const LEAF: u32 = 7;
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;

    impl Instruction {
        /// Returns the best one that this processor has.
        ///
        /// # Errors
        /// Fails on processors whose instructions are not known here.
        #[allow(clippy::unnecessary_wraps)] // elsewhere it fails
        pub(in crate::local) fn detect() -> Result<Self, FabricError> {
            let features = if __cpuid(0).eax >= LEAF { __cpuid_count(LEAF, 0).ebx } else { 0 };
            Ok(Self::of(features))
        }

        /// Returns the best one by what leaf 7 of CPUID has in EBX.
        pub(super) fn of(features: u32) -> Self {
            match features {
                _ if features & CLWB != 0 => Self::Clwb,
                _ if features & CLFLUSHOPT != 0 => Self::Clflushopt,
                _ => Self::Clflush,
            }
        }
    }

    impl Persistence for Instruction {
        #[inline]
        fn flush(&self, line: &[AtomicU64]) {
            let at = line.as_ptr();
            match self {
                // SAFETY: CPUID has the instruction, `at` is mapped, and no byte changes. The block
                // may read memory as far as the compiler knows, so no store moves behind it.
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
            // access of memory across it.
            unsafe { asm!("sfence", options(nostack, preserves_flags)) };
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
impl Instruction {
    /// Returns the best one that this processor has.
    ///
    /// # Errors
    /// Fails: no instruction of this processor is known here.
    pub(in crate::local) fn detect() -> Result<Self, FabricError> {
        Err(FabricError::geometry(
            "`durability=flush` knows how to flush the caches of x86-64 processors only: serve the memory by `darter \
             memnode --durability log --log DIR`, and name the pool `tcp://HOST:PORT?durability=log`",
        ))
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

    #[test]
    fn the_best_instruction_is_taken() {
        assert_eq!(Instruction::of(0), Instruction::Clflush);
        assert_eq!(Instruction::of(1 << 23), Instruction::Clflushopt);
        assert_eq!(Instruction::of(1 << 24), Instruction::Clwb);
        assert_eq!(Instruction::of(u32::MAX), Instruction::Clwb);
    }

    #[test]
    fn what_was_stored_is_there_after_a_flush() {
        let words: Vec<AtomicU64> = (0..4 * LINE_WORDS as u64).map(AtomicU64::new).collect();
        let detected = Instruction::detect().unwrap();
        // A processor that has one has those before it.
        let all = [Instruction::Clflush, Instruction::Clflushopt, Instruction::Clwb];
        let known = all.iter().position(|&one| one == detected).unwrap();
        for instruction in &all[..=known] {
            for line in words.chunks(LINE_WORDS) {
                line[3].fetch_add(1, Ordering::Relaxed);
                instruction.flush(line);
            }
            instruction.fence();
        }
        let times = known as u64 + 1;
        for (at, word) in words.iter().enumerate() {
            let added = if at % LINE_WORDS == 3 { times } else { 0 };
            assert_eq!(word.load(Ordering::Relaxed), at as u64 + added);
        }
    }
}
