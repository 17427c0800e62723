//! The measurement of one index in one workload under one set of conditions.

use super::configuration::Configuration;
use crate::outcome::Outcome;
use crate::report::{KindReport, LatencyUs, Sizes};
use crate::rounds::median;
use darter::{Counters, OpKind};
use serde::Serialize;

/// The index that others are measured against, where it takes part.
const BASELINE: &str = "dart";

/// A configuration and its results.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// What was measured.
    pub configuration: Configuration,
    /// The results.
    pub figures: Figures,
}

/// The results of a measurement. Counts are of all rounds together, upkeep left out, so that on one
/// thread they repeat exactly; times are of the round with the median throughput. Times of a model
/// are the model's.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The configuration's hash.
    pub hash: String,
    /// Whether times are of a model's clock.
    pub modelled: bool,
    /// The busiest resource, where a model reports it.
    pub bottleneck: String,
    /// Records when the workload began; for `load`, when it ended.
    pub records_then: u64,
    /// Round trips per operation.
    pub round_trips_per_op: f64,
    /// Verbs per operation.
    pub verbs_per_op: f64,
    /// Payload bytes read per operation.
    pub read_bytes_per_op: f64,
    /// Payload bytes written per operation.
    pub write_bytes_per_op: f64,
    /// Lost races per operation.
    pub retries_per_op: f64,
    /// Busy time of the busiest thread.
    pub seconds: f64,
    /// Operations a second, all threads together.
    pub ops_per_s: f64,
    /// Throughput of the slowest round.
    pub ops_per_s_least: f64,
    /// Throughput of the fastest round.
    pub ops_per_s_most: f64,
    /// Throughput in relation to the index named next, in the same run and workload.
    pub ratio: f64,
    /// The index that `ratio` is in relation to.
    pub relative_to: String,
    /// Half of the operations took at most this long, in microseconds.
    pub p50_us: f64,
    /// 99% did.
    pub p99_us: f64,
    /// 99.9% did.
    pub p999_us: f64,
    /// Bytes of everything in the pool but leaves, at the last walk of the index.
    pub index_bytes: u64,
    /// Bytes of leaves.
    pub kv_bytes: u64,
    /// Bytes of the pool in use.
    pub pool_used_bytes: u64,
    /// Bytes that a compute node caches.
    pub cache_used_bytes: u64,
}

impl Measurement {
    /// Returns the measurement of these rounds; `None` without any.
    pub(crate) fn of(
        configuration: Configuration,
        modelled: bool,
        records_then: u64,
        rounds: &[Outcome],
        sizes: Sizes,
    ) -> Option<Self> {
        let outcome = median(rounds)?;
        let counters: Counters = rounds.iter().filter_map(|round| round.counters).sum();
        let ops = rounds.iter().map(|round| round.ops).sum();
        let cost = KindReport::new(counters.total() - counters[OpKind::Maintain], ops);
        let latency = LatencyUs::of(&outcome.latency);
        let speeds = || rounds.iter().map(Outcome::ops_per_s);
        let figures = Figures {
            hash: configuration.hash(),
            modelled,
            bottleneck: outcome.bottleneck.clone().unwrap_or_default(),
            records_then,
            round_trips_per_op: cost.round_trips_per_op,
            verbs_per_op: cost.verbs_per_op,
            read_bytes_per_op: cost.read_bytes_per_op,
            write_bytes_per_op: cost.write_bytes_per_op,
            retries_per_op: cost.retries_per_op,
            seconds: outcome.seconds,
            ops_per_s: outcome.ops_per_s(),
            ops_per_s_least: speeds().fold(f64::INFINITY, f64::min),
            ops_per_s_most: speeds().fold(0.0, f64::max),
            ratio: 1.0,
            relative_to: configuration.index.clone(),
            p50_us: latency.p50,
            p99_us: latency.p99,
            p999_us: latency.p999,
            index_bytes: sizes.index,
            kv_bytes: sizes.kv,
            pool_used_bytes: sizes.pool_used,
            cache_used_bytes: sizes.cache_used,
        };
        Some(Self { configuration, figures })
    }

    /// Returns whether `other` differs in nothing but the index.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let index = other.configuration.index.clone();
        Configuration { index, ..self.configuration.clone() } == other.configuration
    }
}

/// Relates throughputs to the baseline's, or the first index's, in the same workload under the same
/// conditions.
pub(crate) fn relate(measurements: &mut [Measurement]) {
    let related: Vec<(f64, String)> = measurements
        .iter()
        .map(|one| {
            let mut beside = measurements.iter().filter(|other| one.is_beside(other));
            let first = beside.clone().next();
            let baseline = beside.find(|other| other.configuration.index == BASELINE).or(first);
            let baseline = baseline.unwrap_or(one);
            let ratio = one.figures.ops_per_s / baseline.figures.ops_per_s.max(f64::MIN_POSITIVE);
            (ratio, baseline.configuration.index.clone())
        })
        .collect();
    for (one, (ratio, relative_to)) in measurements.iter_mut().zip(related) {
        one.figures.ratio = ratio;
        one.figures.relative_to = relative_to;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::compare::configuration::tests::configuration;
    use crate::rounds::tests::outcome;

    /// Two indexes, two workloads, two cache sizes; the second index is half as fast.
    pub(crate) fn measurements() -> Vec<Measurement> {
        let mut all = Vec::new();
        for cache_bytes in [1 << 20, 10 << 20] {
            for workload in ["a", "c"] {
                for (index, seconds) in [("other", 2.0), ("dart", 1.0)] {
                    let (index, workload) = (index.to_owned(), workload.to_owned());
                    let configuration = Configuration { index, workload, cache_bytes, ..configuration() };
                    let rounds = [outcome(seconds), outcome(seconds * 2.0), outcome(seconds / 2.0)];
                    all.extend(Measurement::of(configuration, false, 7, &rounds, Sizes::default()));
                }
            }
        }
        relate(&mut all);
        all
    }

    #[test]
    fn ratios_are_to_dart_under_the_same_conditions() {
        let all = measurements();
        assert_eq!(all.len(), 8);
        for one in &all {
            let expected = if one.configuration.index == "dart" { 1.0 } else { 0.5 };
            assert!((one.figures.ratio - expected).abs() < 1e-9, "{one:?}");
            assert_eq!(one.figures.relative_to, "dart");
            assert!(one.figures.ops_per_s_least < one.figures.ops_per_s);
            assert!(one.figures.ops_per_s_most > one.figures.ops_per_s);
        }
        let mut others: Vec<_> = all.into_iter().filter(|one| one.configuration.index == "other").collect();
        relate(&mut others);
        assert!(others.iter().all(|one| one.figures.relative_to == "other"));
    }
}
