//! The effects of commands on keys, for keyspace notifications.

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyEvent {
    /// A record of the key has changed.
    Touched(Vec<u8>),
    /// A command has done this with the key, besides other changes.
    Did(Vec<u8>, &'static str),
    /// The key was removed because its time was over.
    Expired(Vec<u8>),
}
