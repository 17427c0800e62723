//! The change of a key, decided by a closure that receives its value.

use darter_index::Decision;

/// The change of a key, returned by the closure given to [`crate::Store::update`].
///
/// ```
/// # use darter::Change;
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// // Counts down; at zero the key is removed.
/// let count_down = |left: Option<&[u8]>| match left {
///     None => Change::Keep,
///     Some([1]) => Change::Remove,
///     Some(left) => Change::Put(vec![left[0] - 1]),
/// };
/// store.put("tries", [2])?;
/// assert!(store.update("tries", count_down)? && store.update("tries", count_down)?);
/// assert!(!store.update("tries", count_down)?, "absent, and stays so");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<V = Vec<u8>> {
    /// The key is not changed.
    Keep,
    /// The key gets this value.
    Put(V),
    /// The key is removed; an absent key stays absent.
    Remove,
}

impl<V> Change<V> {
    /// Returns the same change with a value of another form.
    #[cfg(feature = "tables")]
    pub(crate) fn try_map<W, E>(self, form: impl FnOnce(V) -> Result<W, E>) -> Result<Change<W>, E> {
        Ok(match self {
            Self::Keep => Change::Keep,
            Self::Put(value) => Change::Put(form(value)?),
            Self::Remove => Change::Remove,
        })
    }
}

impl Change {
    /// Moves the new value into the index's buffer. Returns the index's decision, and whether it
    /// changes a key with the value `old`.
    pub(crate) fn split(self, old: Option<&[u8]>, new: &mut Vec<u8>) -> (Decision, bool) {
        match self {
            Self::Keep => (Decision::Keep, false),
            Self::Put(value) => {
                *new = value;
                (Decision::Put, true)
            }
            Self::Remove => (Decision::Remove, old.is_some()),
        }
    }
}
