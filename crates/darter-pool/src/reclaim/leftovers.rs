//! Work that operations leave to be done when their verbs have completed.
//!
//! A cancelled operation may leave verbs on their way. What must not happen before they have
//! landed, such as telling others that its locks are free, is put here and done by the client's
//! next operation or by upkeep, whichever first finds that nothing is on its way.

use std::sync::Mutex;

use crate::sync::lock;

/// Something to be done once.
pub(super) type Task = Box<dyn FnOnce() + Send>;

/// The work that one client's operations have left.
#[derive(Default)]
pub struct Leftovers {
    /// By the present operation.
    present: Mutex<Vec<Task>>,
    /// By operations before the present one.
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
    /// Adds a task, to be done when the verbs of the present operation have completed.
    pub fn push(&self, task: impl FnOnce() + Send + 'static) {
        lock(&self.present).push(Box::new(task));
    }

    /// Notes that the present operation is over and another begins.
    pub(super) fn next_operation(&self) {
        lock(&self.former).append(&mut lock(&self.present));
    }

    /// Does everything that was left. Call it when none of the operations' verbs is on its way.
    pub(super) fn settle(&self) {
        self.next_operation();
        self.take_former().into_iter().for_each(|task| task());
    }

    /// Takes what was left by operations before the present one.
    pub(super) fn take_former(&self) -> Vec<Task> {
        std::mem::take(&mut *lock(&self.former))
    }

    /// Puts back what [`Leftovers::take_former`] returned.
    pub(super) fn put_back(&self, work: &mut Vec<Task>) {
        lock(&self.former).append(work);
    }
}
