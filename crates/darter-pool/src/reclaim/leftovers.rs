//! Work that operations leave until their verbs have completed.
//!
//! A cancelled operation may leave verbs in flight. Work that must not happen before they have
//! landed, such as announcing that its locks are free, is put here. The client's next operation or
//! upkeep does it, whichever first finds that no verb is in flight.

use std::sync::Mutex;

use crate::sync::lock;

/// A piece of work that is done once.
pub(super) type Task = Box<dyn FnOnce() + Send>;

/// The work that one client's operations have left.
#[derive(Default)]
pub struct Leftovers {
    /// Work of the present operation.
    present: Mutex<Vec<Task>>,
    /// Work of operations before the present one.
    former: Mutex<Vec<Task>>,
}

impl std::fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leftovers")
            .field("present", &lock(&self.present).len())
            .field("former", &lock(&self.former).len())
            .finish()
    }
}

impl Leftovers {
    /// Adds work to do once the verbs of the present operation have completed.
    pub fn push(&self, task: impl FnOnce() + Send + 'static) {
        lock(&self.present).push(Box::new(task));
    }

    /// Notes that the present operation is over and another begins.
    pub(super) fn next_operation(&self) {
        lock(&self.former).append(&mut lock(&self.present));
    }

    /// Does all work that was left. Call it when none of the operations' verbs is in flight.
    pub(super) fn settle(&self) {
        self.next_operation();
        self.take_former().into_iter().for_each(|task| task());
    }

    /// Takes the work that operations before the present one left.
    pub(super) fn take_former(&self) -> Vec<Task> {
        std::mem::take(&mut *lock(&self.former))
    }

    /// Puts back the work that [`Leftovers::take_former`] returned.
    pub(super) fn put_back(&self, work: &mut Vec<Task>) {
        lock(&self.former).append(work);
    }
}
