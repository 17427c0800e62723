//! The thread that makes requests to the store of views, which can take long.

use super::options::Views;
use crate::bell::Bell;
use crate::error::{MemNodeError, system};
use darter_group::{StoreReply, StoreRequest};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// The reply of the store, or the reason of the failure.
pub(super) type Answer = Result<Option<StoreReply>, String>;

/// The serving thread's handle of the thread.
#[derive(Debug)]
pub(super) struct ViewKeeper {
    requests: Sender<StoreRequest>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl ViewKeeper {
    /// Starts the thread. It ends after this is dropped and the store has replied.
    pub(super) fn start(views: Views, bell: Arc<Bell>) -> Result<Self, MemNodeError> {
        let (requests, received) = mpsc::channel();
        let answers = Arc::<Mutex<Vec<Answer>>>::default();
        let theirs = Arc::clone(&answers);
        let keeps = move || keep(&received, &views, &theirs, &bell);
        let spawned = std::thread::Builder::new().name("darter-views".to_owned()).spawn(keeps);
        spawned.map_err(system("start the thread for the store of views"))?;
        Ok(Self { requests, answers })
    }

    /// Sends a request to the store. The reply is returned by a later call of [`Self::answers`].
    pub(super) fn ask(&self, request: StoreRequest) {
        // The thread runs as long as `self` exists.
        let _ = self.requests.send(request);
    }

    /// Returns the replies received since the last call.
    pub(super) fn answers(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn keep(received: &Receiver<StoreRequest>, views: &Views, answers: &Mutex<Vec<Answer>>, bell: &Bell) {
    while let Ok(request) = received.recv() {
        // A replica repeats a request until it gets a reply, so equal requests that have queued are
        // made once.
        let mut requests = vec![request];
        for more in received.try_iter() {
            if !requests.contains(&more) {
                requests.push(more);
            }
        }
        for request in requests {
            let answer = views.carry_out(&request);
            answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
            bell.ring();
        }
    }
}
