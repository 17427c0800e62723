//! Snapshots: all pairs as of one moment, while other clients go on changing them.

use crate::key_space::KeySpace;
use crate::membership::Membership;
use crate::open_store::OpenStore;
use crate::parts::StoreClient;
use crate::{Error, KeyRange, Store};
use darter_fabric::block_on;
use darter_index::snapshot::{SnapshotPart, get_at, remove_old_values, scan_at};
use darter_index::{KeyValue, ScanRange};
use darter_pool::{PoolError, SnapshotId};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest number of pairs that are read at a time.
const PAIRS_MAX: usize = 512;
/// Bytes of pairs that are read at a time, about.
const BYTES: usize = 1 << 20;

/// All pairs of a store as of one moment. Other processes and threads go on changing the store; the
/// snapshot shows every change that had ended when it began, and none that began later. All keys of a
/// transaction are shown from before it or from after it.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
/// let mut snapshot = store.snapshot()?;
/// store.put("pear", "brown")?;
/// store.remove("plum")?;
/// assert_eq!(snapshot.get("pear")?.as_deref(), Some(&b"green"[..]));
/// assert_eq!(snapshot.range(..).count(), 2);
/// snapshot.end()?;
/// # Ok(())
/// # }
/// ```
///
/// A pool has one snapshot at a time. To begin one, every process that has the pool open must answer,
/// which takes some milliseconds; changes wait until then. While the snapshot is open, the first change
/// of each key also stores the key's old value in the pool, until the snapshot ends; so changes cost
/// more, and need room. If the pool has no room left for old values, the snapshot is given up, and
/// its calls fail with [`PoolError::SnapshotOver`]; the changes go on.
///
/// The snapshot ends when it is dropped, or when its process dies.
pub struct Snapshot {
    store: Arc<OpenStore>,
    client: StoreClient,
    id: SnapshotId,
    space: KeySpace,
    taken_at: SystemTime,
    has_ended: bool,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("taken_at", &self.taken_at).finish_non_exhaustive()
    }
}

impl Store {
    /// Begins a snapshot of the store's pairs.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let mut snapshot = store.snapshot()?;
    /// store.remove("pear")?;
    /// assert_eq!(snapshot.range(..).count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`PoolError::SnapshotTaken`] while another snapshot of the pool is open, in any
    /// process; with [`PoolError::SnapshotHeldBack`] if a process that has the pool open is stopped in
    /// the middle of an operation, and with [`PoolError::SnapshotUnknown`] if one is of a version without
    /// snapshots; with [`Error::ReadOnly`] in a store that was opened read-only, and with
    /// [`PoolError::ReadOnly`] if the token is a read-only one, since a snapshot needs room in the
    /// pool; or if the pool fails.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        Snapshot::begin(self.membership(), KeySpace::Program)
    }
}

impl Snapshot {
    pub(crate) fn begin(membership: &Membership, space: KeySpace) -> Result<Self, Error> {
        if membership.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let store = membership.current();
        let mut client = store.open.pool.client()?;
        let id = block_on(store.open.pool.begin_snapshot(&mut client))?;
        #[allow(clippy::disallowed_methods, reason = "the time is for people")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // As exact as a backup has it.
        let taken_at = UNIX_EPOCH + Duration::from_millis(now.as_millis() as u64);
        Ok(Self { store, client, id, space, taken_at, has_ended: false })
    }

    /// Returns the time of the snapshot by this process's clock.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let snapshot = store.snapshot()?;
    /// println!("as of {:?}", snapshot.taken_at());
    /// # Ok(())
    /// # }
    /// ```
    pub fn taken_at(&self) -> SystemTime {
        self.taken_at
    }

    /// Returns the value that a key had; `None` if it was absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut snapshot = store.snapshot()?;
    /// store.put("pear", "green")?;
    /// assert_eq!(snapshot.get("pear")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`PoolError::SnapshotOver`] if the snapshot was given up, or as [`Store::get`] does.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let mut buffer = Vec::new();
        let place = self.space.place(key.as_ref(), &mut buffer)?;
        let found = block_on(get_at(&self.store.open.index, &mut self.client, self.id, place))?;
        self.verify()?;
        Ok(found)
    }

    /// Returns the pairs of a range, in ascending order.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
    /// let mut snapshot = store.snapshot()?;
    /// assert_eq!(snapshot.range("pl"..).count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&mut self, range: impl KeyRange) -> SnapshotRange<'_> {
        let range = ScanRange { reverse: false, ..range.into_scan_range() };
        let rest = Some(self.space.range(&range));
        SnapshotRange { snapshot: self, rest, pairs: Vec::new().into_iter(), limit: PAIRS_MAX / 4 }
    }

    /// Ends the snapshot, and removes the old values that were stored for it. Dropping it does the
    /// same, but ignores errors.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let snapshot = store.snapshot()?;
    /// assert!(store.snapshot().is_err(), "one at a time");
    /// snapshot.end()?;
    /// store.snapshot()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the pool fails. Another process then removes the old values.
    pub fn end(mut self) -> Result<(), Error> {
        block_on(self.close())
    }

    async fn close(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        let (open, client) = (&self.store.open, &mut self.client);
        open.pool.end_snapshot(client, self.id).await?;
        // Otherwise a process that is stopped may store another one, which the next snapshot removes.
        open.pool.outlive_snapshot(client).await?;
        while remove_old_values(&open.index, client).await? {}
        Ok(())
    }

    /// Fails if the snapshot was given up. All reads before this call are then void.
    fn verify(&mut self) -> Result<(), Error> {
        let open = block_on(self.store.open.pool.read_open_snapshot(&mut self.client))?;
        if open == Some(self.id) { Ok(()) } else { Err(PoolError::SnapshotOver.into()) }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // Other processes end it if this one cannot.
        let _ = block_on(self.close());
    }
}

/// The pairs of a range of a [`Snapshot`]. After an error it ends.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// store.put("pear", "green")?;
/// let mut snapshot = store.snapshot()?;
/// for pair in snapshot.range("p".."q") {
///     let (key, value) = pair?;
///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SnapshotRange<'s> {
    snapshot: &'s mut Snapshot,
    /// The range that is not read yet.
    rest: Option<ScanRange>,
    pairs: std::vec::IntoIter<KeyValue>,
    /// Number of pairs to read next.
    limit: usize,
}

impl SnapshotRange<'_> {
    /// Reads the next pairs, of which there may be none.
    fn read(&mut self, range: ScanRange) -> Result<(), Error> {
        let Snapshot { store, client, id, space, .. } = &mut *self.snapshot;
        let part = scan_at(&store.open.index, client, *id, &range, self.limit);
        let SnapshotPart { pairs, rest } = block_on(part)?;
        let pairs = space.keys(pairs);
        self.snapshot.verify()?;
        let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
        let fitting = pairs.len().max(1) * BYTES / bytes.max(1);
        self.limit = fitting.clamp(1, PAIRS_MAX.min(self.limit * 2));
        self.rest = rest.map(|from| ScanRange { from, ..range });
        self.pairs = pairs.into_iter();
        Ok(())
    }
}

impl Iterator for SnapshotRange<'_> {
    type Item = Result<KeyValue, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(pair) = self.pairs.next() {
                return Some(Ok(pair));
            }
            let range = self.rest.take()?;
            if let Err(error) = self.read(range) {
                return Some(Err(error));
            }
        }
    }
}
