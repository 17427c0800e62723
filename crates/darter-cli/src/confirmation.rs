//! Confirmation of commands that destroy data.

use crate::failure::Failure;
use std::io::{BufRead, IsTerminal, Write};

/// Asks for confirmation on a terminal, of an action given by a verb and its object.
///
/// # Errors
/// Fails if stdin or stderr is not a terminal.
pub(crate) fn is_confirmed(verb: &str, object: &str) -> Result<bool, Failure> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(Failure::usage(format_args!(
            "this would {verb} {object}; add --yes to {verb} without confirmation"
        )));
    }
    let mut answer = String::new();
    write!(stderr, "{verb} {object}? [y/N] ").and_then(|()| stderr.flush()).map_err(Failure::failed)?;
    stdin.lock().read_line(&mut answer).map_err(Failure::failed)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
