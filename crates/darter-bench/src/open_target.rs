//! Opens the target of `darter bench`: darter's store over one of its indexes, as a program would
//! use it.

use crate::BenchError;
use crate::args::{BenchArgs, RunArgs};
use crate::bench_target::TargetWork;
use crate::datasets::KeySource;
use crate::plan::{Benchmark, IndexTraits, Plan};
use crate::store_target::StoreTarget;
use darter::IndexKind;

/// Returns the traits of one of the store's indexes.
pub const fn traits_of(kind: IndexKind) -> IndexTraits {
    // Quiver's pages are larger than DART's leaves.
    let room = if matches!(kind, IndexKind::Dart) { 256 } else { 1024 };
    IndexTraits { name: kind.name(), room, keeps: true, has_server: false }
}

/// Opens the plan's pool with darter's store and does the work on it.
///
/// # Errors
/// Fails if the pool cannot be opened, or the work fails.
pub fn with_store<W: TargetWork>(
    kind: IndexKind,
    plan: &Plan<'_>,
    create: bool,
    work: W,
) -> Result<W::Output, BenchError> {
    work.on(&StoreTarget::open(kind, &plan.pool, plan.args, &plan.setting.tcp, create)?)
}

impl Benchmark for BenchArgs {
    fn args(&self) -> &RunArgs {
        &self.run
    }

    fn index(&self) -> IndexTraits {
        traits_of(self.index)
    }

    fn keys(&self) -> &dyn KeySource {
        &self.dataset
    }

    fn with_target<W: TargetWork>(
        &self,
        plan: &Plan<'_>,
        create: bool,
        work: W,
    ) -> Result<W::Output, BenchError> {
        with_store(self.index, plan, create, work)
    }
}
