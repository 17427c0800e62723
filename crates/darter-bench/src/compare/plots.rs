//! Which plots a comparison draws: bars for each workload; lines over every condition that differs,
//! round trips and bytes above all, since with room for its inner nodes a B+tree needs one round
//! trip and a single cache size hides that; and latency over throughput.

use super::axis::{Axis, distinct};
use super::chart::{Chart, Shape};
use super::measurement::{Figures, Measurement};
use super::tables::remark_of;

/// Something measured, with its name in titles and files.
struct Quantity {
    title: &'static str,
    name: &'static str,
    /// Times are a model's where it says so; counts never are.
    is_time: bool,
    of: fn(&Figures) -> f64,
}

/// What is drawn, counts first.
const QUANTITIES: [Quantity; 4] = [
    Quantity {
        title: "round trips",
        name: "round-trips",
        is_time: false,
        of: |figures| figures.round_trips_per_op,
    },
    Quantity {
        title: "bytes read",
        name: "bytes-read",
        is_time: false,
        of: |figures| figures.read_bytes_per_op,
    },
    Quantity {
        title: "thousand a second",
        name: "throughput",
        is_time: true,
        of: |figures| figures.ops_per_s / 1000.0,
    },
    Quantity { title: "p99, µs", name: "p99", is_time: true, of: |figures| figures.p99_us },
];

/// All plots of some measurements.
pub(crate) fn plots(measurements: &[Measurement]) -> Vec<Chart> {
    let varying = Axis::varying(measurements);
    let mut charts = Vec::new();
    // Bars are of the first place on every axis.
    let first: Vec<&Measurement> = measurements
        .iter()
        .filter(|one| {
            let stands =
                |axis: &Axis| axis.places(measurements).first() == Some(&axis.place(&one.configuration));
            varying.iter().all(stands)
        })
        .collect();
    charts.extend(QUANTITIES.iter().map(|quantity| bars(quantity, &first, &varying)));
    let workloads = distinct(measurements.iter().map(|one| one.configuration.workload.as_str()));
    for workload in workloads {
        let own: Vec<&Measurement> =
            measurements.iter().filter(|one| one.configuration.workload == workload).collect();
        for axis in &varying {
            charts.extend(QUANTITIES.iter().map(|quantity| lines(quantity, &own, *axis, &varying, workload)));
        }
        charts.push(latency_over_throughput(&own, workload));
    }
    charts
}

fn is_modelled(measurements: &[&Measurement]) -> bool {
    measurements.iter().any(|one| one.figures.modelled)
}

fn indexes<'a>(measurements: &[&'a Measurement]) -> Vec<&'a str> {
    distinct(measurements.iter().map(|one| one.configuration.index.as_str()))
}

/// A group of bars for each workload.
fn bars(quantity: &Quantity, measurements: &[&Measurement], varying: &[Axis]) -> Chart {
    let steps = distinct(measurements.iter().map(|one| one.configuration.workload.as_str()));
    let series = indexes(measurements).into_iter().map(|index| {
        let own = measurements.iter().filter(|one| one.configuration.index == index);
        let at = |one: &&Measurement| steps.iter().position(|step| *step == one.configuration.workload);
        let points = own.filter_map(|one| Some((at(one)? as f64, (quantity.of)(&one.figures))));
        (index.to_owned(), points.collect())
    });
    let conditions: Vec<String> = measurements.first().map_or_else(Vec::new, |one| {
        varying.iter().map(|axis| format!("{} {}", axis.title(), axis.place(&one.configuration))).collect()
    });
    let conditions =
        if conditions.is_empty() { String::new() } else { format!(" ({})", conditions.join(", ")) };
    Chart {
        name: format!("workloads-{}", quantity.name),
        title: format!(
            "{} by workload{conditions}{}",
            quantity.title,
            remark_of(quantity.is_time && is_modelled(measurements))
        ),
        x: "workload".to_owned(),
        y: quantity.title.to_owned(),
        shape: Shape::Bars,
        series: series.collect(),
        steps: steps.iter().map(|step| step.to_uppercase()).collect(),
    }
}

/// A line for each index over one axis, at the first place of all others.
fn lines(
    quantity: &Quantity,
    measurements: &[&Measurement],
    axis: Axis,
    varying: &[Axis],
    workload: &str,
) -> Chart {
    let others: Vec<Axis> = varying.iter().copied().filter(|other| *other != axis).collect();
    let chosen: Vec<&Measurement> = measurements
        .iter()
        .copied()
        .filter(|one| {
            others.iter().all(|other| {
                let places = other.places(measurements.iter().copied());
                places.first() == Some(&other.place(&one.configuration))
            })
        })
        .collect();
    let steps = axis.places(chosen.iter().copied());
    let series = indexes(&chosen).into_iter().map(|index| {
        let own = chosen.iter().filter(|one| one.configuration.index == index);
        let at = |one: &&Measurement| steps.iter().position(|step| *step == axis.place(&one.configuration));
        let points = own.filter_map(|one| Some((at(one)? as f64, (quantity.of)(&one.figures))));
        (index.to_owned(), points.collect())
    });
    Chart {
        name: format!("{workload}-{}-{}", axis.name(), quantity.name),
        title: format!(
            "{}: {} by {}{}",
            workload.to_uppercase(),
            quantity.title,
            axis.title(),
            remark_of(quantity.is_time && is_modelled(measurements))
        ),
        x: axis.title().to_owned(),
        y: quantity.title.to_owned(),
        shape: Shape::Steps,
        series: series.collect(),
        steps,
    }
}

/// A point for each measurement; those of an index are joined in the order in which they were made.
fn latency_over_throughput(measurements: &[&Measurement], workload: &str) -> Chart {
    let series = indexes(measurements).into_iter().map(|index| {
        let own = measurements.iter().filter(|one| one.configuration.index == index);
        (index.to_owned(), own.map(|one| (one.figures.ops_per_s / 1000.0, one.figures.p99_us)).collect())
    });
    Chart {
        name: format!("{workload}-latency-throughput"),
        title: format!(
            "{}: p99 over throughput{}",
            workload.to_uppercase(),
            remark_of(is_modelled(measurements))
        ),
        x: "thousand a second".to_owned(),
        y: "p99, µs".to_owned(),
        shape: Shape::Points,
        steps: Vec::new(),
        series: series.collect(),
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
        assert!(sweep.series.iter().all(|(_, points)| points.len() == 2), "{sweep:?}");
        assert_eq!(sweep.series[0].0, "other");
    }
}
