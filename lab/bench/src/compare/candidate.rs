//! An index that a comparison measures, whatever its type: it has a separate pool and is driven by
//! threads of this process or by those of a modelled cluster.

use super::environment::{self, Environment, MemoryNode, OwnMemory};
use super::server::{begin, serve, serve_model};
use super::variants::{Adjusts, Demand, Variant, Visitor};
use crate::datasets::Dataset;
use crate::index_target::{IndexTarget, from_pool};
use crate::modelled;
use crate::rounds::Candidate;
use darter::block_on;
use darter::engine::{Pool, StoreFabric};
use darter_bench::BenchError;
use darter_bench::driver::{bulk_load, run_phase};
use darter_bench::outcome::Outcome;
use darter_bench::phase::Phase;
use darter_bench::progress::Progress;
use darter_bench::report::Sizes;
use darter_fabric::{Counting, Provider};
use darter_model::Model;

/// An index under comparison.
pub(crate) trait IndexCandidate: Candidate {
    /// Opens the index again with an empty cache. The stored records stay.
    fn reopen(&mut self, demand: Demand) -> Result<(), BenchError>;

    /// Fills the empty index with the dataset's first `records` records.
    fn bulk_load(
        &self,
        dataset: &dyn Dataset,
        records: u64,
        value_bytes: usize,
        progress: &Progress,
    ) -> Result<(), BenchError>;

    /// Runs searches on every compute node to fill caches, without measuring them.
    fn search(&self, phase: &Phase<'_>) -> Result<(), BenchError>;

    /// Adjusts the index to the searches it has seen, if it can. Returns whether it did.
    fn adjust(&self) -> Result<bool, BenchError>;

    /// Returns the bytes in use, found by walking the index.
    fn sizes(&self) -> Result<Sizes, BenchError>;

    /// Returns the bytes that a compute node caches now.
    fn cache_used_bytes(&self) -> u64;

    /// Returns whether the index keeps everything stored in it (a variant without locks may lose
    /// writes).
    fn keeps(&self) -> bool;

    /// Closes the pool and ends the memory nodes that were started for it.
    fn close(self: Box<Self>) -> Result<(), BenchError>;
}

/// An index of type `I` in a separate pool.
struct RealCandidate<I: Adjusts> {
    target: IndexTarget<I, StoreFabric>,
    variant: &'static Variant,
    options: fn(Demand) -> I::Options,
    nodes: Vec<MemoryNode>,
}

/// An index of type `I` on a separate modelled cluster, with a handle at each compute node.
struct ModelledCandidate<I: Adjusts> {
    model: Model,
    /// By compute node.
    targets: Vec<IndexTarget<I, StoreFabric>>,
    variant: &'static Variant,
    options: fn(Demand) -> I::Options,
}

/// Opens an index whose type the variant decides.
struct Opening<E> {
    environment: E,
    demand: Demand,
}

/// Opens a variant on an empty pool.
///
/// # Errors
/// Fails if the pool cannot be created or the index cannot be opened in it.
pub(crate) fn open(
    variant: &'static Variant,
    environment: Environment,
    demand: Demand,
) -> Result<Box<dyn IndexCandidate>, BenchError> {
    match environment {
        Environment::Real(environment) => variant.visit(Opening { environment, demand }),
        Environment::Modelled(environment) => variant.visit(Opening { environment, demand }),
    }
}

type Opened = Result<Box<dyn IndexCandidate>, BenchError>;

impl Visitor for Opening<OwnMemory> {
    type Output = Opened;

    fn visit<I: Adjusts>(self, variant: &'static Variant, options: fn(Demand) -> I::Options) -> Opened {
        let OwnMemory { provider, nodes } = self.environment;
        let pool = environment::create(serve::<I>(provider)?)?;
        let target = open_index::<I>(variant, pool, options(self.demand))?;
        Ok(Box::new(RealCandidate { target, variant, options, nodes }))
    }
}

impl Visitor for Opening<Model> {
    type Output = Opened;

    fn visit<I: Adjusts>(self, variant: &'static Variant, options: fn(Demand) -> I::Options) -> Opened {
        let model = self.environment;
        let served = serve_model::<I>(&model)?;
        let mut targets = Vec::new();
        for node in 0..model.spec().compute_nodes as usize {
            let provider = Provider::foreign(served.compute_node(node));
            let pool = if node == 0 {
                environment::create(provider)?
            } else {
                block_on(Pool::open(Counting::new(provider))).map_err(from_pool)?
            };
            targets.push(open_index::<I>(variant, pool, options(self.demand))?);
        }
        Ok(Box::new(ModelledCandidate { model, targets, variant, options }))
    }
}

/// Opens or creates a pool's index, with its server, if it has one, running.
fn open_index<I: Adjusts>(
    variant: &'static Variant,
    pool: Pool<StoreFabric>,
    options: I::Options,
) -> Result<IndexTarget<I, StoreFabric>, BenchError> {
    let target = IndexTarget::<I, _>::open(variant.name, pool, options)?;
    let mut client = target.pool.client().map_err(from_pool)?;
    block_on(begin(variant, &target.index, &mut client))?;
    drop(client);
    Ok(target)
}

fn adjust<I: Adjusts>(variant: &Variant, target: &IndexTarget<I, StoreFabric>) -> Result<bool, BenchError> {
    if !variant.adjusts {
        return Ok(false);
    }
    let mut client = target.pool.client().map_err(from_pool)?;
    block_on(target.index.adjust_now(&mut client))
}

impl<I: Adjusts> Candidate for RealCandidate<I> {
    fn name(&self) -> &'static str {
        self.variant.name
    }

    fn run(&self, phase: &Phase<'_>) -> Result<Outcome, BenchError> {
        run_phase(&self.target, phase)
    }
}

impl<I: Adjusts> IndexCandidate for RealCandidate<I> {
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
        progress: &Progress,
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

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        let Self { target, nodes, .. } = *self;
        // Close the pool before its nodes end.
        drop(target);
        nodes.into_iter().try_for_each(MemoryNode::end)
    }
}

impl<I: Adjusts> Candidate for ModelledCandidate<I> {
    fn name(&self) -> &'static str {
        self.variant.name
    }

    fn run(&self, phase: &Phase<'_>) -> Result<Outcome, BenchError> {
        modelled::run_phase(&self.model, &self.targets, phase)
    }
}

impl<I: Adjusts> IndexCandidate for ModelledCandidate<I> {
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
        progress: &Progress,
    ) -> Result<(), BenchError> {
        bulk_load(&self.targets[0], dataset, records, value_bytes, progress)
    }

    /// Runs outside of the model's time: its clock covers measured operations only.
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

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}
