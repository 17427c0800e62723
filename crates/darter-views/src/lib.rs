#![doc = include_str!("../README.md")]
//!
//! # Contents
//!
//! | file | what it holds |
//! |---|---|
//! | `engine` | the interface of all engines: a read, and a compare-and-set |
//! | `etcd`, `consul`, `kubernetes`, `file` | the engines |
//! | `http` | requests with deadlines to several addresses |
//! | `text` | a view as text |
//! | `url` | the engines' URLs |

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

/// Errors of a store.
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
    /// No address replied in time. It is not known whether a change took effect.
    #[error("store of views: no server replied: {0}")]
    Unreachable(String),
    /// The store refused the request: a wrong password, no permission to write, a namespace that
    /// does not exist.
    #[error("store of views at {address}: {why}")]
    Refused {
        /// The server that refused.
        address: String,
        /// Its message.
        why: String,
    },
    /// The value stored under the group's name is not a view.
    #[error(
        "store of views: the value at {name} is not a view: {why}; another program may have written it, or its disk is damaged: restore it"
    )]
    Damaged {
        /// The key, object or file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The store holds no view of the group, although the group is not new.
    #[error(
        "store of views: no view at {name}, although view {wanted} is not the first; was the store emptied?"
    )]
    Lost {
        /// The key, object or file.
        name: String,
        /// The number of the view to be set.
        wanted: u64,
    },
    /// The file could not be read or written, or does not hold a required token.
    #[error("store of views {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: std::io::Error,
    },
}

/// The store of a group's views. Calls block, at most for one attempt per address times the
/// attempts of a call, so they should run in a separate thread.
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

    /// Carries out a replica's request. Returns `None` if a read finds that there is no view yet. A
    /// view whose number does not follow the current one's changes nothing. The reply has the view
    /// that the store holds afterwards.
    ///
    /// After [`StoreError::Unreachable`] the view may have been stored, or may be stored later.
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
        // Another replica was faster, or the first of two attempts took effect after all.
        Ok(self.view()?.map(reply))
    }

    /// Returns the current view, and the revision that a compare-and-set expects.
    fn read(&mut self) -> Result<(Option<View>, Revision), StoreError> {
        let Stored { text, revision } = self.engine.read()?;
        let view = text.map(|text| text::parse(&text).map_err(|why| self.engine.damaged(&why)));
        Ok((view.transpose()?, revision))
    }
}

fn reply(view: View) -> StoreReply {
    StoreReply { view: Arc::new(view) }
}
