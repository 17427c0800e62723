//! How far a piece of work is, shown on the standard error where that is a terminal, and whether it
//! is to go on: whoever runs a benchmark can end it at the next chunk of operations.

use crate::BenchError;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Redraws a second: few, since the measured threads share the cores with the bar.
const REDRAWS_PER_SECOND: u8 = 5;

/// A bar of a piece of work, and the flag that ends it.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Returns a bar of `length` operations.
    pub fn new(title: &str, length: u64, stop: &Arc<AtomicBool>) -> Self {
        // Hidden by itself when the standard error is no terminal.
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(Some(length), target).with_message(title.to_owned());
        let bar = match ProgressStyle::with_template(
            "{msg:>10} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
        ) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Self { bar, stop: Arc::clone(stop) }
    }

    /// Returns a bar that is never shown.
    pub fn hidden(stop: &Arc<AtomicBool>) -> Self {
        Self { bar: ProgressBar::hidden(), stop: Arc::clone(stop) }
    }

    /// Returns a bar of another piece of the same work.
    #[must_use]
    pub fn of_part(&self, title: &str, length: u64) -> Self {
        Self::new(title, length, &self.stop)
    }

    /// Returns whether the work is to end.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Fails if the work is to end.
    ///
    /// # Errors
    /// Fails with [`BenchError::Interrupted`].
    pub fn go_on(&self) -> Result<(), BenchError> {
        if self.is_over() { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

impl Deref for Progress {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}
