//! The plots of a comparison: bars for each workload; lines over every condition that varies, above
//! all round trips and bytes, since a B+tree whose inner nodes are cached needs one round trip,
//! which a single cache size would hide; and latency over throughput.
//!
//! Every plot names all indexes. If an index has no point in it, the legend says under which
//! conditions it was measured.
//!
//! A comparison draws the first place on each axis that a plot does not show. The figures of a paper
//! have a panel for each place, and the values that the paper states next to the measured ones.

use super::axis::{Axis, distinct};
use super::chart::{Chart, Mark, Scale, Series, Shape, Unit};
use super::measurement::Measurement;
use super::quantity::Quantity;
use super::tables::remark_of;
use darter_fabric::counted;

/// A value that a paper states, and the measurements that it is compared with.
pub(crate) struct Reference<'a> {
    pub(crate) quantity: Quantity,
    /// In the unit of the quantity's axis.
    pub(crate) value: f64,
    /// The place that states it.
    pub(crate) source: String,
    /// Several if the value is the peak of a curve.
    pub(crate) measurements: Vec<&'a Measurement>,
}

/// Returns the plots of some measurements.
pub(crate) fn plots(measurements: &[Measurement]) -> Vec<Chart> {
    Plots::of(measurements, None, &[]).charts()
}

/// Returns the plots of a paper's figure.
pub(crate) fn plots_of_figure(
    name: &str,
    measurements: &[Measurement],
    references: &[Reference<'_>],
) -> Vec<Chart> {
    Plots::of(measurements, Some(name), references).charts()
}

/// The measurements to draw.
struct Plots<'a> {
    all: Vec<&'a Measurement>,
    /// The axes on which they differ.
    varying: Vec<Axis>,
    /// The name of a paper's figure.
    figure: Option<&'a str>,
    references: &'a [Reference<'a>],
}

/// Measurements that are drawn in one chart.
struct Panel<'a> {
    /// The places of the axes that the chart does not show, if there are several.
    places: Vec<(Axis, String)>,
    chosen: Vec<&'a Measurement>,
}

impl Panel<'_> {
    /// Returns its places for a title.
    fn title(&self) -> String {
        let parts = self.places.iter().map(|(axis, place)| format!(", {} {place}", axis.title()));
        parts.collect::<Vec<_>>().concat()
    }

    /// Returns its places for a file name.
    fn name(&self) -> String {
        let safe = |place: &str| place.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        let parts = self.places.iter().map(|(axis, place)| format!("-{}-{}", axis.name(), safe(place)));
        parts.collect::<Vec<_>>().concat()
    }
}

impl<'a> Plots<'a> {
    fn of(measurements: &'a [Measurement], figure: Option<&'a str>, references: &'a [Reference<'a>]) -> Self {
        let (all, varying) = (measurements.iter().collect(), Axis::varying(measurements));
        Self { all, varying, figure, references }
    }

    fn charts(&self) -> Vec<Chart> {
        let have_times = self.all.iter().any(|one| one.figures.has_times());
        let mut quantities = Quantity::USUAL.to_vec();
        quantities.extend(self.references.iter().map(|reference| reference.quantity));
        let quantities = distinct(quantities);
        let quantities = || quantities.iter().copied().filter(|quantity| have_times || !quantity.is_time());
        let workloads = distinct(self.all.iter().map(|one| one.configuration.workload.as_str()));
        let mut charts = Vec::new();
        // With one workload, the plots over an axis show all panels.
        if self.figure.is_none() || workloads.len() > 1 || self.varying.is_empty() {
            for panel in self.panels(&self.all, &self.varying) {
                charts.extend(quantities().map(|quantity| self.bars(quantity, &panel)));
            }
        }
        for workload in workloads {
            let own: Vec<&Measurement> =
                self.all.iter().copied().filter(|one| one.configuration.workload == workload).collect();
            for axis in self.varying.iter().copied().filter(|axis| self.shows(*axis, &own)) {
                let others: Vec<Axis> = self.varying.iter().copied().filter(|other| *other != axis).collect();
                for panel in self.panels(&own, &others) {
                    charts.extend(quantities().map(|quantity| self.over(quantity, axis, &panel)));
                }
            }
            if have_times {
                charts.push(self.latency_over_throughput(&own));
            }
        }
        charts
    }

    /// Returns whether there is a plot of these measurements over an axis.
    fn shows(&self, axis: Axis, own: &[&Measurement]) -> bool {
        self.figure.is_none() || axis.places(own.iter().copied()).len() > 1
    }

    /// Returns the panels that show all other axes: one for each combination of places, or for a
    /// comparison the one at the first place of every axis.
    fn panels(&self, own: &[&'a Measurement], axes: &[Axis]) -> Vec<Panel<'a>> {
        if self.figure.is_none() {
            return vec![Panel { places: Vec::new(), chosen: at_first_places(own, axes) }];
        }
        let axes: Vec<Axis> = axes.iter().copied().filter(|axis| self.shows(*axis, own)).collect();
        let places = |one: &Measurement| {
            axes.iter().map(|axis| (*axis, axis.place(&one.configuration))).collect::<Vec<_>>()
        };
        let panel = |at: Vec<(Axis, String)>| {
            let chosen = own.iter().copied().filter(|one| places(one) == at).collect();
            Panel { places: at, chosen }
        };
        distinct(own.iter().map(|one| places(one))).into_iter().map(panel).collect()
    }

    /// Returns a chart's title, with the name of the figure.
    fn title(&self, title: &str) -> String {
        self.figure.map_or_else(|| title.to_owned(), |name| format!("{name} · {title}"))
    }

    /// Returns the stated values of a quantity in a chart of the chosen measurements.
    fn marks(
        &self,
        quantity: Quantity,
        chosen: &[&Measurement],
        x: impl Fn(&Measurement) -> Option<f64>,
    ) -> Vec<Mark> {
        let of_quantity = self.references.iter().filter(|reference| reference.quantity == quantity);
        let mark = |reference: &Reference<'_>| {
            let own = &reference.measurements;
            let is_here = |one: &&Measurement| chosen.iter().any(|other| std::ptr::eq(*other, *one));
            let first = own.first().filter(|_| own.iter().all(is_here))?;
            Some(Mark {
                series: first.configuration.index.clone(),
                x: if own.len() == 1 { x(first) } else { None },
                y: reference.value,
                source: reference.source.clone(),
            })
        };
        of_quantity.filter_map(mark).collect()
    }

    /// A group of bars for each workload.
    fn bars(&self, quantity: Quantity, panel: &Panel<'_>) -> Chart {
        let chosen = &panel.chosen;
        let steps = distinct(chosen.iter().map(|one| one.configuration.workload.as_str()));
        let at = |one: &Measurement| {
            Some(steps.iter().position(|step| *step == one.configuration.workload)? as f64)
        };
        Chart {
            name: format!("workloads-{}{}", quantity.name(), panel.name()),
            title: self.title(&format!(
                "{} by workload{}{}",
                quantity.title(),
                panel.title(),
                remark_of(quantity.is_time() && is_modelled(chosen))
            )),
            conditions: conditions(chosen),
            x: Scale { title: "workload".to_owned(), unit: Unit::Each },
            y: quantity.scale(),
            shape: Shape::Bars,
            series: series(chosen, &self.all, |one| Some((at(one)?, quantity.of(&one.figures)))),
            marks: self.marks(quantity, chosen, at),
            steps: steps.iter().map(|step| step.to_uppercase()).collect(),
        }
    }

    /// A line for each index over one axis; bars if the axis has no order.
    fn over(&self, quantity: Quantity, axis: Axis, panel: &Panel<'_>) -> Chart {
        let chosen = &panel.chosen;
        let steps = axis.places(chosen.iter().copied());
        let at = |one: &Measurement| {
            Some(steps.iter().position(|step| *step == axis.place(&one.configuration))? as f64)
        };
        let workload = chosen.first().map_or("", |one| &*one.configuration.workload);
        Chart {
            name: format!("{workload}-{}-{}{}", axis.name(), quantity.name(), panel.name()),
            title: self.title(&format!(
                "{}: {} by {}{}{}",
                workload.to_uppercase(),
                quantity.title(),
                axis.title(),
                panel.title(),
                remark_of(quantity.is_time() && is_modelled(chosen))
            )),
            conditions: conditions(chosen),
            x: Scale { title: axis.title().to_owned(), unit: Unit::Each },
            y: quantity.scale(),
            shape: if axis.is_ordered() { Shape::Steps } else { Shape::Bars },
            series: series(chosen, &self.all, |one| Some((at(one)?, quantity.of(&one.figures)))),
            marks: self.marks(quantity, chosen, at),
            steps,
        }
    }

    /// A point for each measurement. Those of an index are connected, in the order in which they
    /// were made, if they differ only in the load.
    fn latency_over_throughput(&self, own: &[&Measurement]) -> Chart {
        let (throughput, p99) = (Quantity::Throughput, Quantity::P99);
        let workload = own.first().map_or("", |one| &*one.configuration.workload);
        let differing = Axis::ALL.into_iter().filter(|axis| axis.places(own.iter().copied()).len() > 1);
        let joined = matches!(differing.collect::<Vec<_>>()[..], [axis] if axis.is_load());
        let title =
            format!("{}: p99 over throughput{}", workload.to_uppercase(), remark_of(is_modelled(own)));
        Chart {
            name: format!("{workload}-latency-throughput"),
            title: self.title(&title),
            conditions: conditions(own),
            x: throughput.scale(),
            y: p99.scale(),
            shape: Shape::Points { joined },
            steps: Vec::new(),
            series: series(own, &self.all, |one| Some((throughput.of(&one.figures), p99.of(&one.figures)))),
            marks: Vec::new(),
        }
    }
}

/// Returns the measurements that are at the first place of every axis.
fn at_first_places<'a>(measurements: &[&'a Measurement], axes: &[Axis]) -> Vec<&'a Measurement> {
    let first = |axis: &Axis| axis.places(measurements.iter().copied()).into_iter().next();
    let places: Vec<_> = axes.iter().map(|axis| (axis, first(axis))).collect();
    let is_first = |one: &&&Measurement| {
        places.iter().all(|(axis, place)| Some(axis.place(&one.configuration)) == *place)
    };
    measurements.iter().filter(is_first).copied().collect()
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
            Axis::Cache | Axis::Theta | Axis::Pool => format!("{} {place}", axis.title()),
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
    parts.push(format!("{}, seed {}", counted(configuration.ops, "operation"), configuration.seed));
    parts.push(format!("darter {}", configuration.program));
    // Lines break between two conditions, not within one.
    parts.iter().map(|part| part.replace(' ', "\u{a0}")).collect::<Vec<_>>().join(" · ")
}

fn is_modelled(measurements: &[&Measurement]) -> bool {
    measurements.iter().any(|one| one.figures.modelled)
}

fn indexes<'a>(measurements: &[&'a Measurement]) -> Vec<&'a str> {
    distinct(measurements.iter().map(|one| one.configuration.index.as_str()))
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

    #[test]
    fn figure_has_a_named_panel_for_each_place_and_shows_stated_values() {
        let all = measurements();
        let of = |index: &'static str| all.iter().filter(move |one| one.configuration.index == index);
        let small: Vec<&Measurement> = of("dart")
            .filter(|one| one.configuration.workload == "c" && one.configuration.cache_bytes == 1 << 20)
            .collect();
        let curve: Vec<&Measurement> = of("other").filter(|one| one.configuration.workload == "c").collect();
        let reference = |measurements| Reference {
            quantity: Quantity::P50,
            value: 16.0,
            source: "section 7.2".to_owned(),
            measurements,
        };
        let charts = plots_of_figure("some-fig1", &all, &[reference(small), reference(curve)]);
        let names: HashSet<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names.len(), charts.len(), "two plots of one name");
        let titles: HashSet<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles.len(), charts.len(), "two plots of one title");
        assert!(titles.contains("some-fig1 · throughput by workload, cache 10M"), "{titles:?}");
        let marks = |name: &str| {
            let chart = charts.iter().find(|chart| chart.name == name).unwrap();
            chart.marks.iter().map(|mark| (&*mark.series, mark.x)).collect::<Vec<_>>()
        };
        assert_eq!(marks("c-cache-p50"), [("dart", Some(0.0)), ("other", None)]);
        assert_eq!(marks("workloads-p50-cache-1M"), [("dart", Some(1.0))]);
        assert_eq!(marks("workloads-p50-cache-10M"), []);
        assert_eq!(marks("c-cache-p99"), [], "it is of another quantity");
    }
}
