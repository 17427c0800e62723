//! Shows the progress of work on standard error if that is a terminal, and says whether to go on: a
//! user can end a benchmark at the next chunk of operations.

use crate::BenchError;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Redraws per second; few, because the bar shares the cores with the measured threads.
const REDRAWS_PER_SECOND: u8 = 5;

/// A progress bar, and the flag that ends the work.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Returns a bar for `length` operations.
    pub fn new(title: &str, length: u64, stop: &Arc<AtomicBool>) -> Self {
        // Hidden automatically if standard error is not a terminal.
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

    /// Returns a bar for another part of the same work.
    #[must_use]
    pub fn of_part(&self, title: &str, length: u64) -> Self {
        Self::new(title, length, &self.stop)
    }

    /// Returns whether the work should end.
    #[inline]
    pub fn should_end(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Checks that the work should go on.
    ///
    /// # Errors
    /// Fails with [`BenchError::Interrupted`] if it should end.
    pub fn go_on(&self) -> Result<(), BenchError> {
        if self.should_end() { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

impl Deref for Progress {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}
