//! The measurement of one index in one workload under one set of conditions.

use super::configuration::Configuration;
use crate::rounds::median;
use darter::{Counters, OpKind};
use darter_bench::outcome::Outcome;
use darter_bench::report::{KindReport, LatencyUs, Sizes};
use serde::{Serialize, Serializer};

/// A configuration and its results.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The settings.
    pub configuration: Configuration,
    /// The results.
    pub figures: Figures,
}

/// The results of a measurement. Counts are of all rounds together, upkeep left out, so that on one
/// thread they repeat exactly; times are of the round with the median throughput. Times of a model
/// are the model's. Figures of counts alone have no times: these are NaN, and blank in CSV.
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
    #[serde(serialize_with = "blank_if_nan")]
    pub seconds: f64,
    /// Operations a second, all threads together.
    #[serde(serialize_with = "blank_if_nan")]
    pub ops_per_s: f64,
    /// Throughput of the slowest round.
    #[serde(serialize_with = "blank_if_nan")]
    pub ops_per_s_least: f64,
    /// Throughput of the fastest round.
    #[serde(serialize_with = "blank_if_nan")]
    pub ops_per_s_most: f64,
    /// Throughput relative to that of the index named next, in the same run and workload.
    #[serde(serialize_with = "blank_if_nan")]
    pub ratio: f64,
    /// The index that `ratio` is relative to.
    pub relative_to: String,
    /// Half of the operations took at most this long, in microseconds.
    #[serde(serialize_with = "blank_if_nan")]
    pub p50_us: f64,
    /// 99% of the operations took at most this long.
    #[serde(serialize_with = "blank_if_nan")]
    pub p99_us: f64,
    /// 99.9% of the operations took at most this long.
    #[serde(serialize_with = "blank_if_nan")]
    pub p999_us: f64,
    /// Bytes of everything in the pool except leaves, at the last walk of the index.
    pub index_bytes: u64,
    /// Bytes of leaves.
    pub kv_bytes: u64,
    /// Bytes of the pool in use.
    pub pool_used_bytes: u64,
    /// Bytes that a compute node caches.
    pub cache_used_bytes: u64,
}

/// Writes nothing for a number that was not measured.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes fields by reference
fn blank_if_nan<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    (!number.is_nan()).then_some(*number).serialize(serializer)
}

impl Figures {
    /// Returns whether there are times.
    pub(crate) fn has_times(&self) -> bool {
        !self.ops_per_s.is_nan()
    }

    /// Removes the times, so that a run that measures counts shows none.
    pub(crate) fn remove_times(&mut self) {
        let Self {
            seconds, ops_per_s, ops_per_s_least, ops_per_s_most, ratio, p50_us, p99_us, p999_us, ..
        } = self;
        for time in [seconds, ops_per_s, ops_per_s_least, ops_per_s_most, ratio, p50_us, p99_us, p999_us] {
            *time = f64::NAN;
        }
    }
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
    pub(crate) fn is_comparable(&self, other: &Self) -> bool {
        let index = other.configuration.index.clone();
        Configuration { index, ..self.configuration.clone() } == other.configuration
    }
}

/// Relates throughputs to those of the first index, in the same workload under the same conditions.
pub(crate) fn relate(measurements: &mut [Measurement]) {
    let related: Vec<(f64, String)> = measurements
        .iter()
        .map(|one| {
            let baseline = measurements.iter().find(|other| one.is_comparable(other)).unwrap_or(one);
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

    /// Two indexes, two workloads, two cache sizes; the first index is half as fast.
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
    fn ratios_are_to_the_first_index_under_the_same_conditions() {
        let all = measurements();
        assert_eq!(all.len(), 8);
        for one in &all {
            let expected = if one.configuration.index == "dart" { 2.0 } else { 1.0 };
            assert!((one.figures.ratio - expected).abs() < 1e-9, "{one:?}");
            assert_eq!(one.figures.relative_to, "other");
            assert!(one.figures.ops_per_s_least < one.figures.ops_per_s);
            assert!(one.figures.ops_per_s_most > one.figures.ops_per_s);
        }
        let mut rest: Vec<_> = all.into_iter().filter(|one| one.configuration.index == "dart").collect();
        relate(&mut rest);
        assert!(
            rest.iter()
                .all(|one| one.figures.relative_to == "dart" && (one.figures.ratio - 1.0).abs() < 1e-9)
        );
    }
}
