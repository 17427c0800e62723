//! The work of a thread of scripts, and its messages to the client's task.

use super::{Control, Slot, Stop, Words};
use std::sync::{Arc, mpsc};
use tokio::sync::mpsc::UnboundedSender;

/// The work of a thread.
pub(crate) enum Task {
    /// Compiles a script.
    Compile(Arc<Vec<u8>>),
    /// Runs the code of a library, which registers functions.
    Load(Arc<Vec<u8>>),
    /// Runs a script or a function.
    Call(Arc<Invocation>),
}

/// The end of a thread's work.
pub(crate) enum Outcome {
    /// A reply in the client's protocol.
    Replied(Vec<u8>),
    /// The text of an error that begins with its code.
    Failed(String),
    /// The registered functions.
    Loaded(Vec<Loaded>),
    /// The script was stopped.
    Stopped(Stop),
}

/// A function that a library has registered.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) flags: Vec<String>,
}

/// The connection of a thread to the client's task.
pub(super) struct Link {
    pub(super) control: Arc<Control>,
    pub(super) asks: UnboundedSender<Ask>,
    pub(super) answers: mpsc::Receiver<Vec<u8>>,
    /// Most bytes of Lua's memory, and of the reply of a command.
    pub(super) memory_max: usize,
    /// Most bytes of the script's reply.
    pub(super) reply_bytes_max: usize,
}

/// A call of a script or a function.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// The digest of the script, or the name of the function.
    pub(crate) name: String,
    /// The code of the script, or of the function's library.
    pub(crate) code: Arc<Vec<u8>>,
    pub(crate) is_function: bool,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The client uses RESP3.
    pub(crate) is_resp3: bool,
    /// Commands that write are refused.
    pub(crate) is_read_only: bool,
}

/// What a command of a script is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It is executed.
    Run,
    /// It is executed, unless it writes.
    Read,
    /// The reply is whether the client's user may run it.
    Permission,
}

/// A message of a script's thread to the client's task.
pub(super) enum Ask {
    /// To execute a command, with a reply in RESP3 or RESP2.
    Command(Words, bool),
    /// Whether the client's user may run a command.
    Permission(Words),
    /// To continue: the work has ended, and the thread is free.
    Ended(Outcome, Slot),
}
