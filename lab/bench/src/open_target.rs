//! Opens the target of `darter-lab bench`: darter's store, or any other index in a pool of the kind
//! that a URL names.

use crate::args::LabBenchArgs;
use crate::compare::{Adjusts, Demand, Variant, Visitor, begin, serve};
use crate::index_target::{IndexSession, IndexTarget, from_index, from_pool};
use darter::engine::{Pool, StoreFabric};
use darter::report::PoolUsage;
use darter::{IndexKind, PoolUrl, Scheme, block_on};
use darter_bench::bench_target::{BenchTarget, TargetWork};
use darter_bench::datasets::KeySource;
use darter_bench::report::Sizes;
use darter_bench::store_target::SECRET;
use darter_bench::target::Target;
use darter_bench::{BenchError, Benchmark, IndexTraits, Plan, RunArgs, with_store};
use darter_fabric::Fabric;
use darter_fabric::{Counting, Local, Provider, Tcp};
use darter_index::CheckReport;
use darter_pool::PoolOptions;

impl Benchmark for LabBenchArgs {
    fn args(&self) -> &RunArgs {
        &self.run
    }

    fn index(&self) -> IndexTraits {
        let Variant { name, room, keeps, has_server, .. } = *self.index.0;
        IndexTraits { name, room, keeps, has_server }
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
        let variant = self.index.0;
        // An index of the library's store runs as in a program.
        if let Ok(kind) = variant.name.parse::<IndexKind>() {
            return with_store(kind, plan, create, work);
        }
        let demand = Demand {
            cache_bytes: plan.args.cache.0,
            fixed_key: plan.dataset.has_integer_keys().then_some(8),
            value_bytes: plan.args.value_size,
        };
        variant.visit(Opening { plan, create, demand, work })
    }
}

/// Opens an index whose type the variant decides.
struct Opening<'a, W> {
    plan: &'a Plan<'a>,
    create: bool,
    demand: Demand,
    work: W,
}

impl<W: TargetWork> Visitor for Opening<'_, W> {
    type Output = Result<W::Output, BenchError>;

    fn visit<I: Adjusts>(self, variant: &'static Variant, options: fn(Demand) -> I::Options) -> Self::Output {
        let pool = open_pool::<I>(&self.plan.pool, self.plan, self.create)?;
        let target = IndexTarget::<I, _>::open(variant.name, pool, options(self.demand))?;
        let mut client = target.pool.client().map_err(from_pool)?;
        block_on(begin(variant, &target.index, &mut client))?;
        drop(client);
        self.work.on(&Adjusting { target, adjusts: variant.adjusts })
    }
}

/// Opens the pool that a URL names, or creates it, with the secret that makes counts repeatable.
/// The index's server, if it has one, is installed next to a pool of this process.
fn open_pool<I: Adjusts>(
    url: &PoolUrl,
    plan: &Plan<'_>,
    create: bool,
) -> Result<Pool<StoreFabric>, BenchError> {
    let failed = |error| BenchError::from(darter::Error::from(error));
    let (bytes, nodes) = (url.node_bytes(), url.nodes());
    let (fabric, is_new) = match url.scheme() {
        Scheme::Memory => (Provider::Local(Local::memory(bytes.unwrap_or(0), nodes).map_err(failed)?), true),
        Scheme::File(path) => {
            let is_new = std::fs::metadata(path).map_or(true, |found| found.is_file() && found.len() == 0);
            let local = match bytes {
                _ if !is_new && url.is_flushed() => Local::file_open_flushed(path),
                _ if !is_new => Local::file_open(path),
                Some(bytes) => Local::file_create_with(path, bytes, nodes, &url.file_options()),
                None => {
                    return Err(darter::Error::Missing { pool: url.to_string(), path: path.clone() }.into());
                }
            };
            (Provider::Local(local.map_err(failed)?), is_new)
        }
        Scheme::Tcp(addresses) | Scheme::Rdma { addresses, .. } => {
            let tcp = plan.setting.tcp.clone().for_pool(url);
            (Provider::Tcp(Tcp::connect(addresses, tcp).map_err(failed)?), create)
        }
        _ => return Err(darter::Error::NotBuiltIn { pool: url.to_string(), feature: "tcp" }.into()),
    };
    let fabric = Counting::new(serve::<I>(fabric)?);
    let opened = if is_new {
        let options = PoolOptions { secret: Some(SECRET), ..PoolOptions::default() };
        block_on(Pool::create(fabric, &options))
    } else {
        block_on(Pool::open(fabric))
    };
    opened.map_err(|source| darter::Error::Open { pool: url.to_string(), source }.into())
}

/// An index other than the store's, with its abilities.
struct Adjusting<I, F: Fabric> {
    target: IndexTarget<I, F>,
    adjusts: bool,
}

impl<I: Adjusts> Target for Adjusting<I, StoreFabric> {
    type Session<'a> = IndexSession<I, StoreFabric>;

    fn name(&self) -> &'static str {
        self.target.name()
    }

    fn session(&self) -> Result<Self::Session<'_>, BenchError> {
        self.target.session()
    }
}

impl<I: Adjusts> BenchTarget for Adjusting<I, StoreFabric> {
    fn notes(&self) -> Vec<String> {
        self.target.pool.fabric().notes()
    }

    fn usage(&self) -> Result<PoolUsage, BenchError> {
        let mut client = self.target.pool.client().map_err(from_pool)?;
        block_on(self.target.pool.usage(&mut client)).map_err(from_pool)
    }

    fn sizes(&self) -> Result<Sizes, BenchError> {
        self.target.sizes()
    }

    fn prefix_list(&self) -> Option<Vec<u8>> {
        None
    }

    fn adjust(&self) -> Result<bool, BenchError> {
        if !self.adjusts {
            return Ok(false);
        }
        let mut client = self.target.pool.client().map_err(from_pool)?;
        block_on(self.target.index.adjust_now(&mut client))
    }

    fn check(&self) -> Result<(Vec<String>, u64), BenchError> {
        let pool = &self.target.pool;
        let mut client = pool.client().map_err(from_pool)?;
        block_on(async {
            // Deletions wait for their graces, and scrubbing can wait for those of others.
            for _ in 0..SETTLING_ROUNDS {
                pool.settle(&mut client).await.map_err(from_pool)?;
                self.target.index.maintain(&mut client).await.map_err(from_index)?;
            }
            let CheckReport { mut violations, reachable, .. } =
                self.target.index.check(&mut client).await.map_err(from_index)?;
            let audit = pool.audit(&mut client, &reachable).await.map_err(from_pool)?;
            violations.extend(audit.violations);
            Ok((violations, audit.leaked_bytes))
        })
    }

    async fn delete(&self, session: &mut Self::Session<'_>, key: &[u8]) -> Result<bool, BenchError> {
        session.delete(key).await
    }
}

/// Rounds of upkeep after which no unlinked object still waits: two graces, with scrubbing between
/// them.
const SETTLING_ROUNDS: usize = 3;
