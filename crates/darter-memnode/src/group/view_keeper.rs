//! The thread that asks the store of views, which may take its time to answer.

use super::options::Views;
use crate::bell::Bell;
use crate::error::{MemNodeError, system};
use darter_group::{StoreReply, StoreRequest};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// What the store has said, or why it has not.
pub(super) type Answer = Result<Option<StoreReply>, String>;

/// The serving thread's end.
#[derive(Debug)]
pub(super) struct ViewKeeper {
    requests: Sender<StoreRequest>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl ViewKeeper {
    /// Starts the thread. It ends when this is dropped and the store has answered.
    pub(super) fn start(views: Views, bell: Arc<Bell>) -> Result<Self, MemNodeError> {
        let (requests, received) = mpsc::channel();
        let answers = Arc::<Mutex<Vec<Answer>>>::default();
        let theirs = Arc::clone(&answers);
        let keeps = move || keep(&received, &views, &theirs, &bell);
        let spawned = std::thread::Builder::new().name("darter-views".to_owned()).spawn(keeps);
        spawned.map_err(system("start the thread that asks the store of views"))?;
        Ok(Self { requests, answers })
    }

    /// Has the store asked. The answer comes when it comes.
    pub(super) fn ask(&self, request: StoreRequest) {
        // The thread is there as long as this is.
        let _ = self.requests.send(request);
    }

    /// Returns the answers that have come.
    pub(super) fn answers(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn keep(received: &Receiver<StoreRequest>, views: &Views, answers: &Mutex<Vec<Answer>>, bell: &Bell) {
    while let Ok(request) = received.recv() {
        // A replica asks again while it has no answer: what piled up meanwhile is asked once.
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
