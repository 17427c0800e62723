//! Large keys, for tests: keys whose elements are in a generation, however few they are.

use super::aggregate::Aggregate;
use super::{Change, Head, Keyspace, Kind};
use crate::fault::Fault;

impl Keyspace {
    /// Returns the elements of a key. A key that is absent gets a head that names a generation.
    pub(crate) async fn open(&mut self, key: &[u8], kind: Kind) -> Result<Aggregate, Fault> {
        if let Some(found) = self.find(key, kind).await? {
            return Ok(found);
        }
        let generation = darter_fabric::random_word().to_le_bytes();
        let begin = |_: Option<Head<'_>>, record: &mut Vec<u8>| {
            Head::begin(record, kind, None);
            record.extend_from_slice(&generation);
            Ok(Change::Put(()))
        };
        self.change(key, begin).await?;
        Ok(Aggregate::new(kind, key, generation))
    }

    /// Sets a field of a large hash. Returns whether it is new.
    pub(crate) async fn set_field(
        &mut self,
        hash: &Aggregate,
        name: &[u8],
        value: &[u8],
    ) -> Result<bool, Fault> {
        let set = |_: Option<&[u8]>, new: &mut Vec<u8>| {
            new.extend_from_slice(value);
            Ok(true)
        };
        Ok(self.change_field(hash, name, set).await? == Some(true))
    }
}
