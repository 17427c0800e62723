//! The name of a key among those of all databases.

/// A key with the number of its database.
pub(crate) type Scoped = (u8, Vec<u8>);
