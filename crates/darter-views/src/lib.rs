#![doc = include_str!("../README.md")]
//!
//! # Contents
//!
//! | file | what it holds |
//! |---|---|
//! | `engine` | what every engine can do: a read, and a compare-and-set |
//! | `etcd`, `consul`, `kubernetes`, `file` | the engines |
//! | `http` | requests with deadlines to several addresses |
//! | `text` | a view as text |
//! | `url` | which engine a URL names |

mod consul;
mod engine;
mod etcd;
mod file;
mod http;
mod kubernetes;
mod text;
mod url;

use darter_group::{StoreReply, StoreRequest, View};
use engine::{Engine, Revision, Stored};
use std::sync::Arc;

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL names no store.
    #[error("store of views {url}: {why}")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No address answered in time. Whether a change took effect is not known.
    #[error("store of views: no answer: {0}")]
    Unreachable(String),
    /// The store refused: a wrong password, no right to write, a namespace that does not exist.
    #[error("store of views at {address}: {why}")]
    Refused {
        /// Who refused.
        address: String,
        /// What it said.
        why: String,
    },
    /// What the store holds under the group's name is no view.
    #[error(
        "store of views: what it holds at {name} is no view: {why}; another program may have written there"
    )]
    Damaged {
        /// The key, object or file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The store holds no view of the group, which is not a new one.
    #[error(
        "store of views: it holds nothing at {name}, where view {wanted} was to follow another; was it emptied?"
    )]
    Lost {
        /// The key, object or file.
        name: String,
        /// The number of the view that was to be set.
        wanted: u64,
    },
    /// The file could not be read or written, or holds no token where one is needed.
    #[error("store of views {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: std::io::Error,
    },
}

/// Where a group's views are kept. Calls block, for at most the tries that the number of addresses
/// gives: a thread of its own suits them.
pub struct ViewStore {
    engine: Box<dyn Engine>,
}

impl ViewStore {
    /// Returns the store of a group's views that a URL names. Does not connect.
    ///
    /// # Errors
    /// [`StoreError::Url`], also for files that the URL names and that cannot be read.
    pub fn open(url: &str, group: u32) -> Result<Self, StoreError> {
        Ok(Self { engine: url::engine(url, group)? })
    }

    /// Returns the current view; `None` before the group's first.
    ///
    /// # Errors
    /// All but [`StoreError::Url`] and [`StoreError::Lost`].
    pub fn view(&mut self) -> Result<Option<View>, StoreError> {
        Ok(self.read()?.0)
    }

    /// Carries out what a replica asks for; `None` when a read finds that there is no view yet. A
    /// view whose number does not follow the current one's changes nothing. The reply names the
    /// view that the store holds afterwards.
    ///
    /// After [`StoreError::Unreachable`] the view may be there, or come to be there later.
    ///
    /// # Errors
    /// All but [`StoreError::Url`].
    pub fn carry_out(&mut self, request: &StoreRequest) -> Result<Option<StoreReply>, StoreError> {
        let StoreRequest::Set(wanted) = request else {
            return Ok(self.view()?.map(reply));
        };
        let (current, revision) = self.read()?;
        let follows = match &current {
            Some(current) => current.number.checked_add(1) == Some(wanted.number),
            None if wanted.number == 1 => true,
            None => return Err(StoreError::Lost { name: self.engine.name(), wanted: wanted.number }),
        };
        if !follows {
            return Ok(current.map(reply));
        }
        if self.engine.compare_and_set(revision, &text::of(wanted))? {
            return Ok(Some(StoreReply { view: Arc::clone(wanted) }));
        }
        // Another replica was faster, or the first of two tries was not lost after all.
        Ok(self.view()?.map(reply))
    }

    /// Returns the current view, and what a compare-and-set must still find.
    fn read(&mut self) -> Result<(Option<View>, Revision), StoreError> {
        let Stored { text, revision } = self.engine.read()?;
        let view = text.map(|text| text::parse(&text).map_err(|why| self.engine.damaged(&why)));
        Ok((view.transpose()?, revision))
    }
}

fn reply(view: View) -> StoreReply {
    StoreReply { view: Arc::new(view) }
}
