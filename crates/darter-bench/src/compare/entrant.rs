//! An index that takes part in a comparison, whatever its type: with a pool of its own, driven by threads of this process.

use super::arena::Arena;
use super::variants::{Adjusts, Variant, Visitor};
use crate::BenchError;
use crate::companion::Companion;
use crate::contest::Contender;
use crate::datasets::Dataset;
use crate::driver::{Outcome, Phase, bulk_load, run_phase};
use crate::index_target::{IndexTarget, from_pool};
use crate::report::Sizes;
use darter::{DefaultFabric, Fabric, block_on};
use indicatif::ProgressBar;

/// An index that takes part.
pub(crate) trait Entrant: Contender {
    /// Begins anew with an empty cache of so many bytes; what is stored stays.
    fn reopen(&mut self, cache_bytes: u64) -> Result<(), BenchError>;

    /// Fills the empty index with the dataset's first `records` records.
    fn bulk_load(
        &self,
        dataset: &dyn Dataset,
        records: u64,
        value_bytes: usize,
        progress: &ProgressBar,
    ) -> Result<(), BenchError>;

    /// Has the index adjust itself to what was searched, where it can; answers whether there was something to do.
    fn adjust(&self) -> Result<bool, BenchError>;

    /// Bytes in use, by a walk of the index.
    fn sizes(&self) -> Result<Sizes, BenchError>;

    /// Bytes that a compute node caches now.
    fn cache_used_bytes(&self) -> u64;

    /// Ends the memory nodes that were started for it.
    fn leave(self: Box<Self>) -> Result<(), BenchError>;
}

/// An index of type `I` in a pool of its own.
struct Entered<I: Adjusts<F>, F: Fabric> {
    target: IndexTarget<I, F>,
    variant: &'static Variant,
    options: fn(u64) -> I::Options,
    nodes: Vec<Companion>,
}

/// Enters a variant with an empty pool.
pub(crate) fn enter(
    variant: &'static Variant,
    arena: Arena,
    cache_bytes: u64,
) -> Result<Box<dyn Entrant>, BenchError> {
    /// Gives the entrant its type.
    struct Enter {
        arena: Arena,
        cache_bytes: u64,
    }

    impl Visitor<DefaultFabric> for Enter {
        type Output = Result<Box<dyn Entrant>, BenchError>;

        fn visit<I: Adjusts<DefaultFabric>>(
            self,
            variant: &'static Variant,
            options: fn(u64) -> I::Options,
        ) -> Self::Output {
            let Arena { pool, nodes } = self.arena;
            let target = IndexTarget::<I, _>::open(variant.name, pool, options(self.cache_bytes))?;
            Ok(Box::new(Entered { target, variant, options, nodes }))
        }
    }

    variant.visit(Enter { arena, cache_bytes })
}

impl<I: Adjusts<F>, F: Fabric> Contender for Entered<I, F> {
    fn name(&self) -> &'static str {
        self.variant.name
    }

    fn run(&self, phase: &Phase<'_>) -> Result<Outcome, BenchError> {
        run_phase(&self.target, phase)
    }
}

impl<I: Adjusts<F>, F: Fabric> Entrant for Entered<I, F> {
    fn reopen(&mut self, cache_bytes: u64) -> Result<(), BenchError> {
        let pool = self.target.pool.clone();
        self.target = IndexTarget::open(self.variant.name, pool, (self.options)(cache_bytes))?;
        Ok(())
    }

    fn bulk_load(
        &self,
        dataset: &dyn Dataset,
        records: u64,
        value_bytes: usize,
        progress: &ProgressBar,
    ) -> Result<(), BenchError> {
        bulk_load(&self.target, dataset, records, value_bytes, progress)
    }

    fn adjust(&self) -> Result<bool, BenchError> {
        if !self.variant.adjusts {
            return Ok(false);
        }
        let mut client = self.target.pool.client().map_err(from_pool)?;
        block_on(self.target.index.adjust_now(&mut client))
    }

    fn sizes(&self) -> Result<Sizes, BenchError> {
        self.target.sizes()
    }

    fn cache_used_bytes(&self) -> u64 {
        self.target.index.cache_used_bytes()
    }

    fn leave(self: Box<Self>) -> Result<(), BenchError> {
        let Self { target, nodes, .. } = *self;
        // The pool is closed before its nodes go.
        drop(target);
        nodes.into_iter().try_for_each(Companion::end)
    }
}
