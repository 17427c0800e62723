//! The directory of the pool's gateways: a record for each, under its id, with its address and how
//! often the gateway has renewed it.

use super::{Family, Keyspace, place, session};
use crate::fault::Fault;
use darter::ScanRange;
use std::ops::Bound;

/// Most gateways of a pool that are read.
const GATEWAYS_MAX: usize = 1024;
/// Most bytes of an address: a host name and a port.
const ADDRESS_BYTES_MAX: usize = 300;

/// A gateway's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayRecord {
    /// How often it was renewed.
    pub(crate) renewals: u64,
    /// Where other gateways reach it, as `HOST:PORT`.
    pub(crate) address: String,
}

impl GatewayRecord {
    fn to_bytes(&self) -> Vec<u8> {
        [&self.renewals.to_le_bytes(), self.address.as_bytes()].concat()
    }

    fn parse(record: &[u8]) -> Option<Self> {
        let (renewals, address) = record.split_first_chunk()?;
        let address =
            std::str::from_utf8(address).ok().filter(|address| address.len() <= ADDRESS_BYTES_MAX)?;
        Some(Self { renewals: u64::from_le_bytes(*renewals), address: address.to_owned() })
    }
}

impl Keyspace {
    /// Stores a gateway's record.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn announce_gateway(
        &mut self,
        id: [u8; 8],
        record: &GatewayRecord,
    ) -> Result<(), Fault> {
        place(&mut self.key, Family::Gateway, &id);
        session(&mut self.session, &self.store)?.put(&self.key, record.to_bytes()).await?;
        Ok(())
    }

    /// Removes a gateway's record; with `expected`, only if it is still that one.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn remove_gateway(
        &mut self,
        id: [u8; 8],
        expected: Option<&GatewayRecord>,
    ) -> Result<(), Fault> {
        place(&mut self.key, Family::Gateway, &id);
        let expected = expected.map(GatewayRecord::to_bytes);
        let is_meant = |record: &[u8]| expected.as_ref().is_none_or(|expected| record == expected);
        session(&mut self.session, &self.store)?.remove_if(&self.key, is_meant).await?;
        Ok(())
    }

    /// Returns whether a gateway has a record.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn has_gateway(&mut self, id: [u8; 8]) -> Result<bool, Fault> {
        self.outside(async |keys| {
            place(&mut keys.key, Family::Gateway, &id);
            Ok(session(&mut keys.session, &keys.store)?.get_with(&keys.key, |_| ()).await?.is_some())
        })
        .await
    }

    /// Returns the records of the pool's gateways, by id. Records of other versions are left out.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn gateways(&mut self) -> Result<Vec<([u8; 8], GatewayRecord)>, Fault> {
        let from = Bound::Included(vec![Family::Gateway as u8]);
        let to = Bound::Excluded(vec![Family::Gateway as u8 + 1]);
        let range = ScanRange { from, to, reverse: false };
        let mut found = Vec::new();
        let read =
            session(&mut self.session, &self.store)?.scan_with(&range, GATEWAYS_MAX, |place, record| {
                let id = place[1..].try_into().ok();
                found.extend(id.zip(GatewayRecord::parse(record)));
            });
        read.await?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::engine::{Engine, KeySpace};
    use darter::{Store, block_on};

    #[test]
    fn records_are_found_until_they_are_removed() {
        let store = Store::open("mem:16M").unwrap();
        let mut keys = Keyspace::new(store.clone(), std::sync::Arc::default());
        let record = |renewals| GatewayRecord { renewals, address: "127.0.0.1:6379".to_owned() };
        let foreign = store.session_in(KeySpace::Gateway).unwrap();
        foreign.put("gshort", b"").unwrap();
        foreign.put("g87654321", b"1234567").unwrap();
        block_on(async {
            for id in [*b"00000001", *b"00000002"] {
                keys.announce_gateway(id, &record(1)).await.unwrap();
            }
            keys.announce_gateway(*b"00000001", &record(2)).await.unwrap();
            let found = keys.gateways().await.unwrap();
            assert_eq!(found, [(*b"00000001", record(2)), (*b"00000002", record(1))]);
            // It was renewed in between.
            keys.remove_gateway(*b"00000001", Some(&record(1))).await.unwrap();
            assert!(keys.has_gateway(*b"00000001").await.unwrap());
            assert_eq!(keys.gateways().await.unwrap().len(), 2);
            keys.remove_gateway(*b"00000001", Some(&record(2))).await.unwrap();
            keys.remove_gateway(*b"00000002", None).await.unwrap();
            assert_eq!(keys.gateways().await.unwrap(), []);
            assert!(!keys.has_gateway(*b"00000002").await.unwrap());
        });
    }
}
