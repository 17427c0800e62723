//! The plots of a comparison: bars for each workload; lines over every condition that varies, above
//! all round trips and bytes, since a B+tree whose inner nodes are cached needs one round trip,
//! which a single cache size would hide; and latency over throughput.
//!
//! Every plot names all indexes. If an index has no point in it, the legend says under which
//! conditions it was measured.

use super::axis::{Axis, distinct};
use super::chart::{Chart, Scale, Series, Shape, Unit};
use super::measurement::{Figures, Measurement};
use super::tables::remark_of;
use darter_fabric::counted;

/// A measured quantity, with its name in titles and files.
struct Quantity {
    title: &'static str,
    /// The title of its axis.
    axis: &'static str,
    unit: Unit,
    name: &'static str,
    /// Whether it is a time; times can be modelled, counts are always exact.
    is_time: bool,
    of: fn(&Figures) -> f64,
}

impl Quantity {
    fn scale(&self) -> Scale {
        Scale { title: self.axis.to_owned(), unit: self.unit }
    }
}

/// The quantities to draw, counts first.
const QUANTITIES: [Quantity; 4] = [
    Quantity {
        title: "round trips",
        axis: "round trips of an operation",
        unit: Unit::Each,
        name: "round-trips",
        is_time: false,
        of: |figures| figures.round_trips_per_op,
    },
    Quantity {
        title: "bytes read",
        axis: "bytes that an operation reads",
        unit: Unit::Bytes,
        name: "bytes-read",
        is_time: false,
        of: |figures| figures.read_bytes_per_op,
    },
    THROUGHPUT,
    P99,
];

const THROUGHPUT: Quantity = Quantity {
    title: "throughput",
    axis: "operations a second",
    unit: Unit::PerSecond,
    name: "throughput",
    is_time: true,
    of: |figures| figures.ops_per_s,
};

const P99: Quantity = Quantity {
    title: "p99",
    axis: "99th percentile of latency, µs",
    unit: Unit::Microseconds,
    name: "p99",
    is_time: true,
    of: |figures| figures.p99_us,
};

/// All plots of some measurements.
pub(crate) fn plots(measurements: &[Measurement]) -> Vec<Chart> {
    let varying = Axis::varying(measurements);
    let all: Vec<&Measurement> = measurements.iter().collect();
    let have_times = measurements.iter().any(|one| one.figures.has_times());
    let quantities = || QUANTITIES.iter().filter(|quantity| have_times || !quantity.is_time);
    let mut charts = Vec::new();
    // Bars are of the first place on every axis.
    let first = at_first_places(&all, &varying);
    charts.extend(quantities().map(|quantity| bars(quantity, &first, &all)));
    let workloads = distinct(measurements.iter().map(|one| one.configuration.workload.as_str()));
    for workload in workloads {
        let own: Vec<&Measurement> =
            all.iter().copied().filter(|one| one.configuration.workload == workload).collect();
        for axis in &varying {
            charts.extend(quantities().map(|quantity| over(quantity, &own, *axis, &varying, &all)));
        }
        if have_times {
            charts.push(latency_over_throughput(&own, &all));
        }
    }
    charts
}

/// Returns the measurements that are at the first place of every axis.
fn at_first_places<'a>(measurements: &[&'a Measurement], axes: &[Axis]) -> Vec<&'a Measurement> {
    let first = |axis: &Axis| axis.places(measurements.iter().copied()).into_iter().next();
    let places: Vec<_> = axes.iter().map(|axis| (axis, first(axis))).collect();
    let stands = |one: &&&Measurement| {
        places.iter().all(|(axis, place)| Some(axis.place(&one.configuration)) == *place)
    };
    measurements.iter().filter(stands).copied().collect()
}

/// Returns a series for each index of all measurements; `points` are its points among `chosen`.
fn series<'a>(
    chosen: &[&'a Measurement],
    all: &[&'a Measurement],
    point: impl Fn(&Measurement) -> Option<(f64, f64)>,
) -> Vec<Series> {
    let one = |index: &str| {
        let own = chosen.iter().filter(|one| one.configuration.index == index);
        let points: Vec<(f64, f64)> = own.filter_map(|one| point(one)).collect();
        let absent = points.is_empty().then(|| why_absent(index, chosen, all));
        Series { name: index.to_owned(), points, absent }
    };
    indexes(all).into_iter().map(one).collect()
}

/// Returns where an index without a point in this plot was measured.
fn why_absent(index: &str, chosen: &[&Measurement], all: &[&Measurement]) -> String {
    let own: Vec<&Measurement> = all.iter().copied().filter(|one| one.configuration.index == index).collect();
    let mut only = Vec::new();
    let workload = |one: &Measurement| one.configuration.workload.to_uppercase();
    let here = distinct(chosen.iter().map(|one| workload(one)));
    let there = distinct(own.iter().map(|one| workload(one)));
    if !there.iter().any(|workload| here.contains(workload)) {
        only.push(format!("workload {}", there.join(", ")));
    }
    for axis in Axis::ALL {
        let (here, there) = (axis.places(chosen.iter().copied()), axis.places(own.iter().copied()));
        if !there.iter().any(|place| here.contains(place)) {
            only.push(format!("{} {}", axis.title(), there.join(", ")));
        }
    }
    if only.is_empty() {
        "not measured here".to_owned()
    } else {
        format!("measured at {} only", only.join("; "))
    }
}

/// Returns the conditions that all of some measurements share, except the workload.
fn conditions(measurements: &[&Measurement]) -> String {
    let Some(first) = measurements.first() else { return String::new() };
    let configuration = &first.configuration;
    let shared = |axis: Axis| axis.places(measurements.iter().copied()).len() == 1;
    let mut parts: Vec<String> = Vec::new();
    for axis in Axis::ALL.into_iter().filter(|axis| shared(*axis)) {
        let place = axis.place(configuration);
        parts.push(match axis {
            Axis::Dataset => place,
            Axis::Records if place == "1" => "1 record".to_owned(),
            Axis::Records => format!("{place} records"),
            Axis::ValueBytes => format!("values of {place} B"),
            Axis::Cache | Axis::Theta => format!("{} {place}", axis.title()),
            Axis::ComputeNodes if place == "1" => "1 compute node".to_owned(),
            Axis::Threads if place == "1" => "1 thread".to_owned(),
            Axis::ComputeNodes | Axis::Threads => format!("{place} {}", axis.title()),
            Axis::InFlight => format!("{place} in flight"),
        });
    }
    let nodes = distinct(measurements.iter().map(|one| one.configuration.memnodes));
    if let [nodes] = nodes[..] {
        parts.push(counted(nodes as u64, "memory node"));
    }
    let pools = distinct(measurements.iter().map(|one| pool_in_short(&one.configuration.pool)));
    parts.push(format!("pool {}", pools.join(", ")));
    parts.push(format!("{}, seed {}", counted(configuration.ops, "operation"), configuration.seed));
    parts.push(format!("darter {}", configuration.program));
    // Lines break between two conditions, not within one.
    parts.iter().map(|part| part.replace(' ', "\u{a0}")).collect::<Vec<_>>().join(" · ")
}

/// Returns the kind of a pool; the full description of a model would fill a page.
fn pool_in_short(pool: &str) -> String {
    let parts: Vec<&str> = pool.split(',').take(3).collect();
    if pool.matches(',').count() > 2 { format!("{}…", parts.join(",")) } else { pool.to_owned() }
}

fn is_modelled(measurements: &[&Measurement]) -> bool {
    measurements.iter().any(|one| one.figures.modelled)
}

fn indexes<'a>(measurements: &[&'a Measurement]) -> Vec<&'a str> {
    distinct(measurements.iter().map(|one| one.configuration.index.as_str()))
}

/// A group of bars for each workload.
fn bars(quantity: &Quantity, chosen: &[&Measurement], all: &[&Measurement]) -> Chart {
    let steps = distinct(chosen.iter().map(|one| one.configuration.workload.as_str()));
    let at = |one: &Measurement| steps.iter().position(|step| *step == one.configuration.workload);
    Chart {
        name: format!("workloads-{}", quantity.name),
        title: format!(
            "{} by workload{}",
            quantity.title,
            remark_of(quantity.is_time && is_modelled(chosen))
        ),
        conditions: conditions(chosen),
        x: Scale { title: "workload".to_owned(), unit: Unit::Each },
        y: quantity.scale(),
        shape: Shape::Bars,
        series: series(chosen, all, |one| Some((at(one)? as f64, (quantity.of)(&one.figures)))),
        steps: steps.iter().map(|step| step.to_uppercase()).collect(),
    }
}

/// A line for each index over one axis, at the first place of all others; bars if the axis has no
/// order.
fn over(
    quantity: &Quantity,
    own: &[&Measurement],
    axis: Axis,
    varying: &[Axis],
    all: &[&Measurement],
) -> Chart {
    let others: Vec<Axis> = varying.iter().copied().filter(|other| *other != axis).collect();
    let chosen = at_first_places(own, &others);
    let steps = axis.places(chosen.iter().copied());
    let at = |one: &Measurement| steps.iter().position(|step| *step == axis.place(&one.configuration));
    let workload = own.first().map_or("", |one| &*one.configuration.workload);
    Chart {
        name: format!("{workload}-{}-{}", axis.name(), quantity.name),
        title: format!(
            "{}: {} by {}{}",
            workload.to_uppercase(),
            quantity.title,
            axis.title(),
            remark_of(quantity.is_time && is_modelled(&chosen))
        ),
        conditions: conditions(&chosen),
        x: Scale { title: axis.title().to_owned(), unit: Unit::Each },
        y: quantity.scale(),
        shape: if axis.is_ordered() { Shape::Steps } else { Shape::Bars },
        series: series(&chosen, all, |one| Some((at(one)? as f64, (quantity.of)(&one.figures)))),
        steps,
    }
}

/// A point for each measurement. Those of an index are connected, in the order in which they were
/// made, if they differ only in the load.
fn latency_over_throughput(own: &[&Measurement], all: &[&Measurement]) -> Chart {
    let workload = own.first().map_or("", |one| &*one.configuration.workload);
    let differing = Axis::ALL.into_iter().filter(|axis| axis.places(own.iter().copied()).len() > 1);
    let joined = matches!(differing.collect::<Vec<_>>()[..], [axis] if axis.is_load());
    Chart {
        name: format!("{workload}-latency-throughput"),
        title: format!("{}: p99 over throughput{}", workload.to_uppercase(), remark_of(is_modelled(own))),
        conditions: conditions(own),
        x: THROUGHPUT.scale(),
        y: P99.scale(),
        shape: Shape::Points { joined },
        steps: Vec::new(),
        series: series(own, all, |one| Some(((THROUGHPUT.of)(&one.figures), (P99.of)(&one.figures)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::measurement::tests::measurements;
    use std::collections::HashSet;

    #[test]
    fn a_sweep_draws_counts_over_cache_sizes() {
        let charts = plots(&measurements());
        let names: HashSet<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names.len(), charts.len(), "two plots of one name");
        for name in
            ["workloads-throughput", "c-cache-round-trips", "a-cache-bytes-read", "c-latency-throughput"]
        {
            assert!(names.contains(name), "{name} is not in {names:?}");
        }
        let sweep = charts.iter().find(|chart| chart.name == "c-cache-throughput").unwrap();
        assert_eq!(sweep.steps, ["1M", "10M"]);
        assert!(sweep.series.iter().all(|series| series.points.len() == 2), "{sweep:?}");
        assert_eq!((&*sweep.series[0].name, sweep.shape), ("other", Shape::Steps));
        for part in ["randint", "1000 records", "1 memory node", "seed 42", "pool local"] {
            let part = part.replace(' ', "\u{a0}");
            assert!(sweep.conditions.contains(&part), "{part} is not in: {}", sweep.conditions);
        }
        assert!(!sweep.conditions.contains("cache"), "it is the axis: {}", sweep.conditions);
    }

    #[test]
    fn counts_without_times_have_no_plots_of_times() {
        let mut measurements = measurements();
        for one in &mut measurements {
            one.figures.remove_times();
        }
        let names: Vec<String> = plots(&measurements).into_iter().map(|chart| chart.name).collect();
        assert!(names.iter().any(|name| name == "c-cache-round-trips"), "{names:?}");
        for time in ["throughput", "latency", "p99"] {
            assert!(!names.iter().any(|name| name.contains(time)), "{time}: {names:?}");
        }
    }

    #[test]
    fn lines_join_numbers_and_never_categories() {
        let mut by_dataset = measurements();
        for one in &mut by_dataset {
            let is_small = one.configuration.cache_bytes == 1 << 20;
            one.configuration.dataset = if is_small { "email" } else { "dense" }.to_owned();
            one.configuration.cache_bytes = 1 << 20;
        }
        let mut by_threads = measurements();
        for one in &mut by_threads {
            one.configuration.threads = (one.configuration.cache_bytes >> 20) as usize;
            one.configuration.cache_bytes = 1 << 20;
        }
        let shape = |measurements: &[Measurement], name: &str| {
            plots(measurements).into_iter().find(|chart| chart.name == name).unwrap().shape
        };
        assert_eq!(shape(&by_dataset, "c-dataset-round-trips"), Shape::Bars);
        assert_eq!(shape(&by_dataset, "c-latency-throughput"), Shape::Points { joined: false });
        assert_eq!(shape(&measurements(), "c-latency-throughput"), Shape::Points { joined: false });
        assert_eq!(shape(&by_threads, "c-latency-throughput"), Shape::Points { joined: true });
        assert_eq!(shape(&by_threads, "c-threads-throughput"), Shape::Steps);
    }

    #[test]
    fn an_index_that_is_missing_says_why() {
        let mut some = measurements();
        some.retain(|one| one.configuration.index == "dart" || one.configuration.cache_bytes == 10 << 20);
        some.retain(|one| one.configuration.index == "dart" || one.configuration.workload == "a");
        let charts = plots(&some);
        let absent = |name: &str| {
            let chart = charts.iter().find(|chart| chart.name == name).unwrap();
            chart.series.iter().find(|series| series.name == "other").unwrap().absent.clone()
        };
        assert_eq!(absent("workloads-p99").as_deref(), Some("measured at cache 10M only"));
        assert_eq!(absent("c-cache-p99").as_deref(), Some("measured at workload A only"));
        assert_eq!(absent("a-cache-p99"), None);
    }
}
