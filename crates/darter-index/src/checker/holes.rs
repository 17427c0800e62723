//! Switches that bring an error back on purpose, so that the checker can be checked.
//!
//! An index lists its own ([`Hole`]). The checker must find a violation with any of them open, and
//! none with all closed.

use std::marker::PhantomData;

/// The errors of one index that can be brought back.
pub trait Hole: Copy {
    /// Its number, from 0 to 31.
    fn number(self) -> u32;
}

/// The holes of an index that are open: none, unless the checker opened some. Without the feature
/// `checker` none can be, and the question costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holes<H> {
    #[cfg(feature = "checker")]
    open: u32,
    of: PhantomData<H>,
}

impl<H> Default for Holes<H> {
    fn default() -> Self {
        Self {
            #[cfg(feature = "checker")]
            open: 0,
            of: PhantomData,
        }
    }
}

#[cfg(feature = "checker")]
impl<H: Hole> Holes<H> {
    /// With one more open.
    #[must_use]
    pub fn with(self, hole: H) -> Self {
        Self { open: self.open | 1 << hole.number(), of: PhantomData }
    }

    /// Whether one is open.
    #[inline]
    pub fn has(self, hole: H) -> bool {
        self.open & 1 << hole.number() != 0
    }
}

#[cfg(not(feature = "checker"))]
impl<H: Hole> Holes<H> {
    /// Whether one is open: no.
    #[inline]
    pub const fn has(self, _: H) -> bool {
        false
    }
}
