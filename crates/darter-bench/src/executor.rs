//! Runs single operations of a workload on a session and checks their results.
//!
//! Futures are pinned where they are created, including those on the way to the store: awaiting one
//! moves it, and that cost would be counted as the index's.

use crate::BenchError;
use crate::target::TargetSession;
use crate::ycsb::{Action, Op, Workload};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::hint::black_box;
use std::pin::pin;

/// Values to write: random bytes, of which the first eight are a counter.
#[derive(Debug)]
pub struct Values {
    bytes: Vec<u8>,
    next: u64,
}

impl Values {
    /// Returns values of `value_bytes` bytes each, drawn from `seed`.
    pub fn new(value_bytes: usize, seed: u64) -> Self {
        let mut bytes = vec![0; value_bytes];
        Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
        Self { bytes, next: 0 }
    }

    /// Returns the next value.
    #[inline]
    #[allow(clippy::should_implement_trait)] // the returned value is borrowed
    pub fn next(&mut self) -> &[u8] {
        self.next += 1;
        let counted = self.bytes.len().min(8);
        self.bytes[..counted].copy_from_slice(&self.next.to_le_bytes()[..counted]);
        &self.bytes
    }
}

/// Why an operation failed.
pub enum Failure {
    /// The target failed.
    Error(BenchError),
    /// The target returned a wrong result.
    Wrong(&'static str),
}

impl Failure {
    /// Returns the failure as an error of the benchmark.
    pub fn of(self, index: &'static str, workload: Workload) -> BenchError {
        match self {
            Self::Error(error) => error,
            Self::Wrong(what) => {
                BenchError::WrongAnswer { index, what: format!("{what}, in workload {workload}") }
            }
        }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        Self::Error(error)
    }
}

/// Runs single operations.
pub struct Executor {
    values: Values,
    read: Vec<u8>,
    value_bytes: usize,
    /// Reads, updates and scans that did not find their key.
    pub not_found: u64,
}

impl Executor {
    /// Returns an executor that writes values of `value_bytes` bytes, drawn from `seed`.
    pub fn new(value_bytes: usize, seed: u64) -> Self {
        Self { values: Values::new(value_bytes, seed), read: Vec::new(), value_bytes, not_found: 0 }
    }

    /// Runs `op` and checks its result.
    ///
    /// # Errors
    /// Fails if the session fails or returns a wrong result.
    #[inline]
    pub async fn execute(
        &mut self,
        session: &mut impl TargetSession,
        key: &[u8],
        op: Op,
    ) -> Result<(), Failure> {
        match op.action {
            Action::Read => pin!(self.read(session, key)).await,
            Action::Update => pin!(self.update(session, key)).await,
            Action::ReadModifyWrite => {
                pin!(self.read(session, key)).await?;
                pin!(self.update(session, key)).await
            }
            Action::Insert => {
                if pin!(session.insert(key, self.values.next())).await? {
                    Ok(())
                } else {
                    Err(Failure::Wrong("a fresh key was refused as present"))
                }
            }
            Action::Scan => {
                let found = pin!(session.scan(key, op.limit as usize, &mut self.read)).await?;
                self.not_found += u64::from(found == 0);
                if self.read.len() == found * self.value_bytes {
                    black_box(&self.read);
                    Ok(())
                } else {
                    Err(Failure::Wrong("a scan returned values of another length"))
                }
            }
        }
    }

    #[inline]
    async fn read(&mut self, session: &mut impl TargetSession, key: &[u8]) -> Result<(), Failure> {
        if !pin!(session.read(key, &mut self.read)).await? {
            self.not_found += 1;
        } else if self.read.len() != self.value_bytes {
            return Err(Failure::Wrong("a read returned a value of another length"));
        }
        black_box(&self.read);
        Ok(())
    }

    #[inline]
    async fn update(&mut self, session: &mut impl TargetSession, key: &[u8]) -> Result<(), Failure> {
        self.not_found += u64::from(!pin!(session.update(key, self.values.next())).await?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_up_and_have_their_length() {
        for bytes in [0, 3, 8, 64] {
            let mut values = Values::new(bytes, 1);
            let first = values.next().to_vec();
            assert_eq!(first.len(), bytes);
            assert_eq!(first == values.next(), bytes == 0);
        }
    }
}
