//! The bound of a command that begins again because other clients came between.
//!
//! Each lost race means that another client has got through, so most commands need few attempts. But
//! nothing promises that one gets through at all: after [`PATIENCE`] it fails, and says so.

use crate::fault::Fault;
use std::time::{Duration, Instant};

/// How long a command begins again, counted from the first time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The attempts of a command.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    first: Option<Instant>,
}

impl Retries {
    /// Lets other clients have their turn before the next attempt.
    ///
    /// # Errors
    /// If the command has begun again for too long.
    #[cold]
    pub(crate) async fn again(&mut self) -> Result<(), Fault> {
        self.again_at(Instant::now())?;
        tokio::task::yield_now().await;
        Ok(())
    }

    fn again_at(&mut self, now: Instant) -> Result<(), Fault> {
        let first = *self.first.get_or_insert(now);
        if now.saturating_duration_since(first) > PATIENCE {
            return Err(Fault::said(
                "ERR other clients change the key all the time: gave up after 5 s, try again; of a command on several elements, a part may be done",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_begins_again_for_five_seconds_at_most() {
        let (mut retries, late) = (Retries::default(), Instant::now() + Duration::from_secs(1000));
        for at in 0..=5 {
            assert!(retries.again_at(late + Duration::from_secs(at)).is_ok());
        }
        assert!(
            matches!(retries.again_at(late + Duration::from_secs(6)), Err(Fault::Said(text)) if text.starts_with("ERR"))
        );
    }
}
