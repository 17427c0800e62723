//! What the explorer keeps of a subject, made of its type.

use super::fixture::Fixture;
use super::plan::Explored;
use super::run::run;
use super::subject::Subject;
use std::sync::LazyLock;

impl Explored {
    /// Of a subject.
    pub const fn of<S: Subject>() -> Self {
        assert!(S::HOLES.len() <= 32, "more holes than can be told apart");
        Self {
            name: S::NAME,
            promises: S::PROMISES,
            holes: S::HOLES,
            has_server: S::HAS_SERVER,
            situations: S::situations,
            scenarios: LazyLock::new(S::scenarios),
            build: Fixture::build::<S>,
            run: run::<S>,
        }
    }
}
