//! A progress bar on the standard error, shown only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws a second: few, since the measured threads share the cores with the bar.
const REDRAWS_PER_SECOND: u8 = 5;

/// A bar of `length` operations.
pub(crate) fn bar(title: &str, length: u64) -> ProgressBar {
    // Hidden by itself when the standard error is no terminal.
    let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
    let bar = ProgressBar::with_draw_target(Some(length), target).with_message(title.to_owned());
    match ProgressStyle::with_template("{msg:>10} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
