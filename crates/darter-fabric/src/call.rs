//! Procedures that run at a memory node, and the outcomes of their calls.
//!
//! A call serves operations that one-sided verbs cannot do. One round trip sends words to a
//! *procedure*, code that runs at the memory node, and returns its result. [`Procedures`] lists the
//! procedures of one node by number; the provider decides how they run
//! ([`Endpoint::call`](crate::Endpoint::call)). Requests and results have a maximum size, and a
//! call that fails returns the reason ([`CallFault`]).
//!
//! A procedure accesses its memory through an endpoint like any client, word by word: it is atomic
//! with respect to other clients only through CAS and FAA.
//!
//! ```
//! use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, Local, Procedures, block_on};
//!
//! const ADD: u64 = 1;
//!
//! # fn main() -> Result<(), FabricError> {
//! let node = Local::memory(64 << 10, 1)?;
//! let procedures = Procedures::new().with(ADD, &node, |mut endpoint, words| async move {
//!     let mut batch = endpoint.batch();
//!     let sum = batch.faa(GlobalAddr::new(0, 4096), words.iter().sum());
//!     let done = endpoint.submit(batch).await?;
//!     Ok(vec![done.fetched(sum)])
//! });
//! let pool = node.with_procedures(0, procedures)?;
//! let mut endpoint = pool.endpoint()?;
//! assert_eq!(block_on(endpoint.call(0, ADD, vec![1, 2, 3]))?, [0]);
//! assert_eq!(block_on(endpoint.call(0, ADD, vec![]))?, [6]);
//! # Ok(())
//! # }
//! ```

use crate::{CallFault, Fabric, FabricError, ProcedureError};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Maximum words of a call's request.
pub const CALL_WORDS_MAX: usize = 8 << 10;
/// Maximum words of a procedure's result.
pub const ANSWER_WORDS_MAX: usize = 8 << 10;

/// Result of a procedure.
pub type Answer = Result<Vec<u64>, ProcedureError>;

/// A running procedure.
type Running = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Starts a procedure on a request's words.
type Start = Arc<dyn Fn(Vec<u64>) -> Running + Send + Sync>;

/// The procedures of one memory node, by number. Clones are the same list.
#[derive(Clone, Default)]
pub struct Procedures {
    by_number: Arc<BTreeMap<u64, Start>>,
}

impl fmt::Debug for Procedures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_number.keys()).finish()
    }
}

impl Procedures {
    /// Returns an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a procedure, or replaces the one with this number. Each call runs `procedure` on an
    /// endpoint of `fabric`, which is the node as its own process sees it, and on the request's
    /// words.
    ///
    /// The list keeps `fabric` alive. So if a fabric holds a list itself, as
    /// [`Local`](crate::Local) does, the list must use a handle without it.
    #[must_use]
    pub fn with<F, R>(
        mut self,
        number: u64,
        fabric: &F,
        procedure: impl Fn(F::Endpoint, Vec<u64>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        F: Fabric,
        R: Future<Output = Answer> + Send + 'static,
    {
        let fabric = fabric.clone();
        let start = move |words| -> Running {
            match fabric.endpoint() {
                Ok(endpoint) => Box::pin(procedure(endpoint, words)),
                Err(error) => Box::pin(std::future::ready(Err(error.into()))),
            }
        };
        Arc::make_mut(&mut self.by_number).insert(number, Arc::new(start));
        self
    }

    /// Adds a procedure that accesses the memory without an endpoint, or replaces the one with this
    /// number.
    #[must_use]
    pub fn with_plain<R>(
        mut self,
        number: u64,
        procedure: impl Fn(Vec<u64>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        R: Future<Output = Answer> + Send + 'static,
    {
        let start = move |words| -> Running { Box::pin(procedure(words)) };
        Arc::make_mut(&mut self.by_number).insert(number, Arc::new(start));
        self
    }

    /// For providers: runs a procedure. Nothing happens before the future is polled.
    ///
    /// # Errors
    /// [`CallFault::RequestTooLarge`], [`CallFault::Unknown`], [`CallFault::AnswerTooLarge`] and
    /// [`CallFault::Failed`].
    pub async fn run(self, number: u64, words: Vec<u64>) -> Result<Vec<u64>, CallFault> {
        verify_request(words.len(), CALL_WORDS_MAX)?;
        let running = self.by_number.get(&number).ok_or(CallFault::Unknown)?(words);
        let answer = running.await.map_err(CallFault::Failed)?;
        if answer.len() > ANSWER_WORDS_MAX {
            return Err(CallFault::AnswerTooLarge { words: answer.len(), max: ANSWER_WORDS_MAX });
        }
        Ok(answer)
    }
}

/// Checks that a request of `words` words may be sent to a node that accepts `max`.
///
/// # Errors
/// Fails with [`CallFault::RequestTooLarge`] if not.
pub fn verify_request(words: usize, max: usize) -> Result<(), CallFault> {
    if words > max { Err(CallFault::RequestTooLarge { words, max }) } else { Ok(()) }
}

/// The procedures of several memory nodes, for fabrics whose nodes are in this process. Clones
/// share them.
#[derive(Clone, Debug, Default)]
pub struct NodeProcedures(Arc<BTreeMap<u8, Procedures>>);

impl NodeProcedures {
    /// Sets a node's procedures, replacing any earlier ones.
    pub fn set(&mut self, node: u8, procedures: Procedures) {
        Arc::make_mut(&mut self.0).insert(node, procedures);
    }

    /// Returns the procedures of a node.
    ///
    /// # Errors
    /// Fails with [`CallFault::NoServer`] if it has none.
    pub fn of(&self, node: u8) -> Result<Procedures, CallFault> {
        self.0.get(&node).cloned().ok_or(CallFault::NoServer)
    }
}

impl From<FabricError> for ProcedureError {
    fn from(error: FabricError) -> Self {
        Self::new(Self::FABRIC, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Local, MESSAGE_BYTES_MAX, block_on};

    const ECHO: u64 = 7;

    fn echo() -> Local {
        let node = Local::memory(64 << 10, 2).unwrap();
        let procedures = Procedures::new()
            .with(ECHO, &node, |_, words| async { Ok(words) })
            .with(8, &node, |_, words| async move { Ok(vec![1; words[0] as usize]) })
            .with(9, &node, |_, _| async { Err(ProcedureError::new(3, "é".repeat(1000))) });
        node.with_procedures(1, procedures).unwrap()
    }

    fn fault(node: u8, procedure: u64, words: Vec<u64>) -> CallFault {
        match block_on(echo().endpoint().unwrap().call(node, procedure, words)) {
            Err(FabricError::Call(error)) => {
                assert_eq!((error.node, error.procedure), (node, procedure));
                error.fault
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_largest_request_passes_and_a_larger_one_does_not() {
        let words: Vec<u64> = (0..CALL_WORDS_MAX as u64).collect();
        let mut endpoint = echo().endpoint().unwrap();
        assert_eq!(block_on(endpoint.call(1, ECHO, words.clone())).unwrap(), words);
        let max = CALL_WORDS_MAX;
        assert_eq!(fault(1, ECHO, vec![0; max + 1]), CallFault::RequestTooLarge { words: max + 1, max });
        let max = ANSWER_WORDS_MAX;
        assert_eq!(block_on(endpoint.call(1, 8, vec![max as u64])).unwrap().len(), max);
        assert_eq!(fault(1, 8, vec![max as u64 + 1]), CallFault::AnswerTooLarge { words: max + 1, max });
    }

    #[test]
    fn call_of_an_unknown_procedure_is_refused() {
        assert_eq!(fault(1, 1, vec![]), CallFault::Unknown);
        assert_eq!(fault(0, ECHO, vec![]), CallFault::NoServer);
        let mut endpoint = echo().endpoint().unwrap();
        let error = block_on(endpoint.call(2, ECHO, vec![])).unwrap_err();
        assert!(matches!(error, FabricError::OutOfBounds(_)), "{error}");
    }

    #[test]
    fn an_error_of_a_procedure_keeps_its_code_and_the_head_of_its_message() {
        let CallFault::Failed(ProcedureError { code, message }) = fault(1, 9, vec![]) else { panic!() };
        assert_eq!((code, message.len()), (3, MESSAGE_BYTES_MAX));
        let text = CallFault::Busy.of(3, 4).to_string();
        assert_eq!(
            text,
            "procedure 4 of memory node 3: too many calls wait there; nothing was done; try again later"
        );
    }
}
