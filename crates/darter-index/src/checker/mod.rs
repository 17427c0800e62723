//! A hook for the checker: indexes call [`note`], which counts rare situations that an exploration
//! must meet. Without the feature `checker` it compiles to nothing.

mod situations;
pub use situations::{Situation, note};
#[cfg(feature = "checker")]
pub use situations::{take_situations, take_trail, trail_len, without_situations};
