//! The time limit of a command that starts over because other clients have changed its keys.
//!
//! Each lost race means that another client has succeeded, so most commands need few attempts. But
//! nothing guarantees that a given command succeeds: after [`PATIENCE`] it fails with an error.

use crate::fault::Fault;
use std::time::{Duration, Instant};

/// How long a command may start over, counted from the first time.
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
    /// Fails if the command has started over for too long.
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
                "ERR other clients keep changing the key: gave up after 5 s, try again; a command on several elements may have changed some of them",
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
