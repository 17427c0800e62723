//! Lists that are written whole, for `RESTORE` and `SORT` with `STORE`. The chunks of a large one are
//! in a generation that no head names before all of them are written (`drafts.rs`).

use super::Elements;
use super::editing::OpenList;
use super::packed;
use crate::fault::Fault;
use crate::keyspace::aggregate::Aggregate;
use crate::keyspace::drafts::{Copied, place_of_announcement};
use crate::keyspace::{Head, Keyspace, Kind, check_key, session};

/// Returns whether a list with these elements is one record.
pub(crate) fn is_one_record(elements: &Elements<'_>) -> bool {
    packed::all_fit(elements.iter().copied())
}

impl Keyspace {
    /// Makes a list of some elements the value of a key, if the key may be replaced: `may_replace`
    /// gets its head, or `None` if it is absent. Returns whether it did.
    ///
    /// # Errors
    /// The store's errors. Nothing has changed then.
    pub(crate) async fn set_list(
        &mut self,
        key: &[u8],
        elements: Elements<'_>,
        expiry: Option<u64>,
        may_replace: impl FnMut(Option<&Head<'_>>) -> bool + Send,
    ) -> Result<bool, Fault> {
        check_key(key)?;
        let list = Aggregate::new(Kind::List, key, darter_fabric::random_word().to_le_bytes());
        let mut copied = Copied { record: Vec::new(), aggregate: None };
        if !is_one_record(&elements) {
            let announced = session(&mut self.session, &self.store)?;
            announced.store(&place_of_announcement(&list), Some(&self.now.to_le_bytes())).await?;
            copied.aggregate = Some(list.clone());
        }
        match self.form_of(list, elements).await {
            Ok(form) => OpenList::new(key, expiry, form).write_head(&mut copied.record),
            Err(fault) => {
                self.discard(&copied).await?;
                return Err(fault);
            }
        }
        self.install(key, &copied, may_replace).await
    }
}
