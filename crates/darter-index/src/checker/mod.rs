//! Hooks for the checker, which indexes call: [`note`] counts rare situations that an exploration
//! must meet, and [`Holes`] bring errors back that it must find.
//!
//! Without the feature `checker` both compile to nothing, so a release of the library has neither.

mod holes;
mod situations;

pub use holes::{Hole, Holes};
pub use situations::{Situation, note};
#[cfg(feature = "checker")]
pub use situations::{take_situations, take_trail, trail_len, without_situations};
