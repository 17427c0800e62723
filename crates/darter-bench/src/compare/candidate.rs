//! An index that takes part in a comparison, whatever its type: with a pool of its own, driven by threads of this process or by
//! those of a modelled cluster.

use super::arena::{self, Arena};
use super::variants::{Adjusts, Demand, Variant, Visitor};
use crate::BenchError;
use crate::companion::Companion;
use crate::contest::Contender;
use crate::datasets::Dataset;
use crate::driver::{Outcome, Phase, bulk_load, run_phase};
use crate::index_target::{IndexTarget, from_pool};
use crate::modelled;
use crate::report::Sizes;
use darter::{DefaultFabric, Pool, block_on};
use darter_fabric::{Counting, Model, Provider};
use indicatif::ProgressBar;

/// An index that takes part.
pub(crate) trait Entrant: Contender {
    /// Begins anew with an empty cache; what is stored stays.
    fn reopen(&mut self, demand: Demand) -> Result<(), BenchError>;

    /// Fills the empty index with the dataset's first `records` records.
    fn bulk_load(
        &self,
        dataset: &dyn Dataset,
        records: u64,
        value_bytes: usize,
        progress: &ProgressBar,
    ) -> Result<(), BenchError>;

    /// Searches unmeasured, on every compute node, to fill caches.
    fn search(&self, phase: &Phase<'_>) -> Result<(), BenchError>;

    /// Has the index adjust itself to what was searched, where it can; answers whether there was something to do.
    fn adjust(&self) -> Result<bool, BenchError>;

    /// Bytes in use, by a walk of the index.
    fn sizes(&self) -> Result<Sizes, BenchError>;

    /// Bytes that a compute node caches now.
    fn cache_used_bytes(&self) -> u64;

    /// Whether it keeps what it was given, as an index does.
    fn keeps(&self) -> bool;

    /// Ends the memory nodes that were started for it.
    fn leave(self: Box<Self>) -> Result<(), BenchError>;
}

/// An index of type `I` in a pool of its own.
struct Entered<I: Adjusts> {
    target: IndexTarget<I, DefaultFabric>,
    variant: &'static Variant,
    options: fn(Demand) -> I::Options,
    nodes: Vec<Companion>,
}

/// An index of type `I` on a modelled cluster of its own, with a handle at each compute node.
struct Modelled<I: Adjusts> {
    model: Model,
    /// By compute node.
    targets: Vec<IndexTarget<I, DefaultFabric>>,
    variant: &'static Variant,
    options: fn(Demand) -> I::Options,
}

/// Where an index is entered.
pub(crate) enum Ground {
    /// By this machine's clock.
    Real(Arena),
    /// By a model's.
    Modelled(Model),
}

/// Gives an entrant its type.
struct Enter<G> {
    ground: G,
    demand: Demand,
}

/// Enters a variant with an empty pool.
pub(crate) fn enter(
    variant: &'static Variant,
    ground: Ground,
    demand: Demand,
) -> Result<Box<dyn Entrant>, BenchError> {
    match ground {
        Ground::Real(ground) => variant.visit(Enter { ground, demand }),
        Ground::Modelled(ground) => variant.visit(Enter { ground, demand }),
    }
}

type Entering = Result<Box<dyn Entrant>, BenchError>;

impl Visitor for Enter<Arena> {
    type Output = Entering;

    fn visit<I: Adjusts>(self, variant: &'static Variant, options: fn(Demand) -> I::Options) -> Entering {
        let Arena { pool, nodes } = self.ground;
        let target = IndexTarget::<I, _>::open(variant.name, pool, options(self.demand))?;
        Ok(Box::new(Entered { target, variant, options, nodes }))
    }
}

impl Visitor for Enter<Model> {
    type Output = Entering;

    fn visit<I: Adjusts>(self, variant: &'static Variant, options: fn(Demand) -> I::Options) -> Entering {
        let model = self.ground;
        let mut targets = Vec::new();
        for node in 0..model.spec().compute_nodes as usize {
            let fabric = Counting::new(Provider::Model(model.compute_node(node)));
            let pool = if node == 0 {
                arena::create(fabric)?
            } else {
                block_on(Pool::open(fabric)).map_err(from_pool)?
            };
            targets.push(IndexTarget::<I, _>::open(variant.name, pool, options(self.demand))?);
        }
        Ok(Box::new(Modelled { model, targets, variant, options }))
    }
}

fn adjust<I: Adjusts>(variant: &Variant, target: &IndexTarget<I, DefaultFabric>) -> Result<bool, BenchError> {
    if !variant.adjusts {
        return Ok(false);
    }
    let mut client = target.pool.client().map_err(from_pool)?;
    block_on(target.index.adjust_now(&mut client))
}

impl<I: Adjusts> Contender for Entered<I> {
    fn name(&self) -> &'static str {
        self.variant.name
    }

    fn run(&self, phase: &Phase<'_>) -> Result<Outcome, BenchError> {
        run_phase(&self.target, phase)
    }
}

impl<I: Adjusts> Entrant for Entered<I> {
    fn reopen(&mut self, demand: Demand) -> Result<(), BenchError> {
        let pool = self.target.pool.clone();
        self.target = IndexTarget::open(self.variant.name, pool, (self.options)(demand))?;
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

    fn search(&self, phase: &Phase<'_>) -> Result<(), BenchError> {
        run_phase(&self.target, phase).map(drop)
    }

    fn adjust(&self) -> Result<bool, BenchError> {
        adjust(self.variant, &self.target)
    }

    fn sizes(&self) -> Result<Sizes, BenchError> {
        self.target.sizes()
    }

    fn cache_used_bytes(&self) -> u64 {
        self.target.index.cache_used_bytes()
    }

    fn keeps(&self) -> bool {
        self.variant.keeps
    }

    fn leave(self: Box<Self>) -> Result<(), BenchError> {
        let Self { target, nodes, .. } = *self;
        // The pool is closed before its nodes go.
        drop(target);
        nodes.into_iter().try_for_each(Companion::end)
    }
}

impl<I: Adjusts> Contender for Modelled<I> {
    fn name(&self) -> &'static str {
        self.variant.name
    }

    fn run(&self, phase: &Phase<'_>) -> Result<Outcome, BenchError> {
        modelled::run_phase(&self.model, &self.targets, phase)
    }
}

impl<I: Adjusts> Entrant for Modelled<I> {
    fn reopen(&mut self, demand: Demand) -> Result<(), BenchError> {
        for target in &mut self.targets {
            *target = IndexTarget::open(self.variant.name, target.pool.clone(), (self.options)(demand))?;
        }
        Ok(())
    }

    fn bulk_load(
        &self,
        dataset: &dyn Dataset,
        records: u64,
        value_bytes: usize,
        progress: &ProgressBar,
    ) -> Result<(), BenchError> {
        bulk_load(&self.targets[0], dataset, records, value_bytes, progress)
    }

    /// Outside of the model's time, in which only what is measured happens.
    fn search(&self, phase: &Phase<'_>) -> Result<(), BenchError> {
        self.targets.iter().try_for_each(|target| run_phase(target, phase).map(drop))
    }

    fn adjust(&self) -> Result<bool, BenchError> {
        adjust(self.variant, &self.targets[0])
    }

    fn sizes(&self) -> Result<Sizes, BenchError> {
        self.targets[0].sizes()
    }

    fn cache_used_bytes(&self) -> u64 {
        self.targets[0].index.cache_used_bytes()
    }

    fn keeps(&self) -> bool {
        self.variant.keeps
    }

    fn leave(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}
