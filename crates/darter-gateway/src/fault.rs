//! Why a command was not done, as its client is told.

use std::borrow::Cow;

/// A reply that is an error.
#[derive(Debug)]
pub(super) enum Fault {
    /// The client's doing, in Redis's words, the code first.
    Said(Cow<'static, str>),
    /// The store's.
    Store(darter::Error),
}

/// The key holds another type than the command is for.
pub(super) const WRONG_TYPE: Fault =
    Fault::Said(Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));
/// The arguments make no sense together.
pub(super) const SYNTAX: Fault = Fault::Said(Cow::Borrowed("ERR syntax error"));
/// A number was wanted.
pub(super) const NO_INTEGER: Fault =
    Fault::Said(Cow::Borrowed("ERR value is not an integer or out of range"));
/// What lies under the key was not written by a gateway, or is damaged.
pub(super) const FOREIGN: Fault =
    Fault::Said(Cow::Borrowed("ERR the pool holds under this key what no gateway of this version wrote"));

impl Fault {
    /// A fault in words made for the case.
    pub(super) fn said(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Said(text.into())
    }

    /// What the client is told.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Said(text) => Cow::Borrowed(text),
            Self::Store(error) if error.is_out_of_space() => format!("OOM {error}").into(),
            Self::Store(error) => format!("ERR {error}").into(),
        }
    }
}

impl From<darter::Error> for Fault {
    #[cold]
    fn from(error: darter::Error) -> Self {
        Self::Store(error)
    }
}
