//! The errors of commands, as reported to clients.

use std::borrow::Cow;

/// An error reply.
#[derive(Debug)]
pub(super) enum Fault {
    /// The client's fault: an error text in Redis's words that begins with its code.
    Said(Cow<'static, str>),
    /// The same, but a transaction in which it occurs must not be committed.
    Ended(Cow<'static, str>),
    /// An error of the store.
    Store(darter::Error),
}

/// The key holds a value of another type.
pub(super) const WRONG_TYPE: Fault =
    Fault::Said(Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));
/// The arguments are inconsistent.
pub(super) const SYNTAX: Fault = Fault::Said(Cow::Borrowed("ERR syntax error"));
/// An argument is not an integer.
pub(super) const NO_INTEGER: Fault =
    Fault::Said(Cow::Borrowed("ERR value is not an integer or out of range"));
/// The record of the key was not written by a gateway, or is damaged.
pub(super) const FOREIGN: Fault =
    Fault::Said(Cow::Borrowed("ERR the record of this key was not written by a gateway of this version"));

impl Fault {
    /// Returns an error with the given text.
    pub(super) fn said(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Said(text.into())
    }

    /// Returns an error that ends the transaction in which it occurs.
    pub(super) fn ended(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Ended(text.into())
    }

    /// Returns whether it is [`WRONG_TYPE`].
    pub(super) fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Said(text) if text.starts_with("WRONGTYPE "))
    }

    /// Returns the text of the error reply.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Said(text) | Self::Ended(text) => Cow::Borrowed(text),
            Self::Store(error) if error.is_out_of_space() => format!("OOM {error}").into(),
            Self::Store(error) if error.is_shut_out() => format!("TRYAGAIN {error}").into(),
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
