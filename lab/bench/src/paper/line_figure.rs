//! A figure of WORT's paper: the measured operations, the latencies of memory, and the presentation
//! of the results.

use super::claim::{self, Claim};
use super::figure::Scale;
use super::line_study::{DESIGNS, HIT_NS, Keys, Latencies, Operation, REST_NS, Studied, study, validate};
use super::quantity::{Span, Stated};
use super::reproduction::{Reproducible, Reproduction, Synopsis};
use crate::Setting;
use crate::compare::{Chart, Mark, Results, Scale as Axis, Series, Shape, Sheet, Unit, hash, rows};
use darter_bench::BenchError;
use darter_bench::progress::Progress;
use darter_fabric::counted;
use serde::Serialize;

/// The name and version of the settings that the hash is of.
const FORM: &str = "darter-paper-lines/1";

/// Computes our number.
pub(super) type Ours = fn(&Rows) -> Option<Span>;

/// A quantity that plots show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineQuantity {
    Read,
    Missed,
    Flushed,
    Depth,
    Ns,
}

impl LineQuantity {
    const ALL: [Self; 5] = [Self::Read, Self::Missed, Self::Flushed, Self::Depth, Self::Ns];

    /// Returns the name in file names, and the one in titles.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Read => ("lines-read", "lines read"),
            Self::Missed => ("lines-missed", "lines missed, modelled"),
            Self::Flushed => ("lines-flushed", "lines flushed"),
            Self::Depth => ("depth", "nodes above a leaf"),
            Self::Ns => ("ns", "ns, modelled"),
        }
    }

    fn of(self, row: &Row) -> f64 {
        match self {
            Self::Read => row.lines_read,
            Self::Missed => row.lines_missed,
            Self::Flushed => row.lines_flushed,
            Self::Depth => row.depth,
            Self::Ns => row.ns,
        }
    }
}

/// A point of a plot that the paper's text or a table states, at the figure's first latencies.
pub(super) struct LinePoint {
    /// The section or table that states it.
    pub(super) section: &'static str,
    /// The statement in our words, with the number as the paper prints it.
    pub(super) statement: &'static str,
    pub(super) value: f64,
    pub(super) quantity: LineQuantity,
    pub(super) operation: &'static str,
    pub(super) index: &'static str,
    pub(super) keys: &'static str,
}

impl LinePoint {
    fn row(&self, rows: &Rows) -> claim::Row {
        let mut own = rows.of(self.operation, self.index).filter(|row| row.keys == self.keys);
        let ours = own.next().map(|row| Span::one(self.quantity.of(row)));
        let stated = Stated::About(self.value);
        claim::Row { statement: self.statement, section: self.section, stated, ours }
    }

    fn mark(&self) -> Mark {
        Mark {
            series: self.index.to_owned(),
            x: Keys::ALL.iter().position(|keys| keys.name() == self.keys).map(|at| at as f64),
            y: self.value,
            source: format!("section {}", self.section),
        }
    }
}

/// A figure or table that can be reproduced here.
pub(super) struct LineFigure {
    /// The name on the command line.
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) title: &'static str,
    /// How this run differs from the paper's, in addition to the scale.
    pub(super) differs: &'static str,
    /// What is measured.
    pub(super) operations: &'static [Operation],
    /// The latencies, those of the paper's own memory first.
    pub(super) latencies: &'static [Latencies],
    /// The points of its plots that the text or a table states.
    pub(super) points: &'static [LinePoint],
    /// The other numbers that the text gives.
    pub(super) claims: &'static [Claim<Ours>],
}

/// One operation of one tree at one pair of latencies, in the order of the CSV's columns. Counts
/// are averages over operations.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    program: &'static str,
    pub(super) operation: String,
    pub(super) index: &'static str,
    pub(super) keys: &'static str,
    records: u64,
    ops: u64,
    seed: u64,
    pub(super) read_ns: u32,
    pub(super) write_ns: u32,
    pub(super) depth: f64,
    pub(super) lines_read: f64,
    /// Lines read or written that were not in the modelled cache.
    pub(super) lines_missed: f64,
    pub(super) lines_flushed: f64,
    pub(super) fences: f64,
    /// Modelled.
    pub(super) ns: f64,
    /// Modelled time in nanoseconds, without a cache.
    pub(super) ns_uncached: f64,
}

/// All rows of a figure.
pub(super) struct Rows(Vec<Row>);

impl Row {
    fn of(one: &Studied, latencies: Latencies, scale: &Scale) -> Self {
        let counts = one.counts;
        Self {
            program: env!("CARGO_PKG_VERSION"),
            operation: one.operation.name(),
            index: one.index,
            keys: one.keys.name(),
            records: one.records,
            ops: counts.ops,
            seed: scale.seed,
            read_ns: latencies.read,
            write_ns: latencies.write,
            depth: one.depth,
            lines_read: counts.each(counts.read),
            lines_missed: counts.each(counts.read_missed + counts.write_missed),
            lines_flushed: counts.each(counts.flushed),
            fences: counts.each(counts.fences),
            ns: counts.ns(latencies),
            ns_uncached: counts.ns_uncached(latencies),
        }
    }

    fn latencies(&self) -> (u32, u32) {
        (self.read_ns, self.write_ns)
    }
}

impl Rows {
    /// Returns the rows of an operation and an index.
    pub(super) fn of(&self, operation: &str, index: &str) -> impl Iterator<Item = &Row> + Clone {
        self.0.iter().filter(move |row| row.operation == operation && row.index == index)
    }

    /// Returns the rows of all indexes and keys, at these latencies.
    pub(super) fn at(
        &self,
        operation: &str,
        read_ns: u32,
        write_ns: u32,
    ) -> impl Iterator<Item = &Row> + Clone {
        self.0.iter().filter(move |row| row.operation == operation && row.latencies() == (read_ns, write_ns))
    }
}

impl Reproducible for LineFigure {
    fn synopsis(&self, _scale: &Scale) -> Synopsis {
        Synopsis {
            name: self.name,
            title: self.title,
            clock: "modelled; counts of lines are exact",
            indexes: DESIGNS.map(|(name, _)| name).to_vec(),
            numbers: self.points.len() + self.claims.len(),
        }
    }

    fn validate(&self, scale: &Scale) -> Result<(), BenchError> {
        validate(scale)
    }

    fn reproduce(&self, scale: &Scale, setting: &Setting) -> Result<Reproduction, BenchError> {
        let studied = study(self.operations, scale, &Progress::hidden(&setting.stop))?;
        let at = |one: &Studied| {
            let row = |&latencies: &Latencies| Row::of(one, latencies, scale);
            self.latencies.iter().map(row).collect::<Vec<_>>()
        };
        let rows = Rows(studied.iter().flat_map(at).collect());
        let stated = self.stated(&rows);
        let mut sheets = vec![claim::sheet(&stated, true)];
        sheets.extend(self.operations.iter().map(|operation| self.sheet(&operation.name(), &rows)));
        let results = Results {
            sheets,
            csv: self::rows(rows.0.iter())?,
            charts: self.charts(&rows, &stated, scale),
            asked: hash(&self.settings(scale)),
        };
        let what = format!(
            "{} with keys and values of 8 bytes, inserted in random order, and {}, where the paper has 128 million of \
             each; differs: {}.",
            counted(scale.records, "record"),
            counted(scale.ops, "search"),
            self.differs
        );
        Ok(Reproduction { modelled: true, what: vec![what, model()], results })
    }

    #[cfg(test)]
    fn words(&self) -> super::reproduction::Words {
        super::reproduction::Words { differs: self.differs, rows: self.stated(&Rows(Vec::new())) }
    }
}

/// Describes how times are modelled.
fn model() -> String {
    format!(
        "Lines of 64 bytes are counted, times are modelled. An operation takes the write latency for each line that it \
         flushes; for each line that it reads, the read latency if the cache does not have it, else {HIT_NS} ns; and \
         {REST_NS} ns for the rest. The cache has 15 MB for 128 million records, as the paper's machine, and as much less \
         for fewer; the least recently used line makes room, and CLFLUSH takes its line out. `uncached` is the same \
         without a cache. Left out are what a processor overlaps, prefetches and translates, sets and other levels of \
         caches, bandwidth, and the lock."
    )
}

impl LineFigure {
    /// Returns the paper's numbers and ours: the points, then the claims.
    fn stated(&self, rows: &Rows) -> Vec<claim::Row> {
        let points = self.points.iter().map(|point| point.row(rows));
        points.chain(self.claims.iter().map(|claim| claim.row(|ours| ours(rows)))).collect()
    }

    /// Returns the settings that determine the results.
    fn settings(&self, scale: &Scale) -> String {
        let operations: Vec<String> = self.operations.iter().map(|operation| operation.name()).collect();
        let latencies: Vec<String> =
            self.latencies.iter().map(|each| format!("{}/{}", each.read, each.write)).collect();
        format!(
            "{FORM} {} {} records={} ops={} seed={} operations={} latencies={}",
            env!("CARGO_PKG_VERSION"),
            self.name,
            scale.records,
            scale.ops,
            scale.seed,
            operations.join(","),
            latencies.join(",")
        )
    }

    /// An operation's table: counts first, then a column of times for each pair of latencies.
    fn sheet(&self, operation: &str, rows: &Rows) -> Sheet {
        let mut headers = ["keys", "index", "depth", "lines read", "missed", "flushed", "fences"]
            .map(str::to_owned)
            .to_vec();
        let pair = |each: &Latencies| format!("{}/{}", each.read, each.write);
        headers.extend(self.latencies.iter().map(|each| format!("ns at {}", pair(each))));
        headers.extend(self.latencies.first().map(|each| format!("uncached at {}", pair(each))));
        headers
            .extend(self.latencies.iter().skip(1).last().map(|each| format!("uncached at {}", pair(each))));
        let mut table = Vec::new();
        for keys in Keys::ALL.map(Keys::name) {
            for (index, _) in DESIGNS {
                let own: Vec<&Row> = rows.of(operation, index).filter(|row| row.keys == keys).collect();
                let (Some(first), Some(last)) = (own.first(), own.last()) else { continue };
                let mut cells = vec![keys.to_owned(), index.to_owned()];
                let counts =
                    [first.depth, first.lines_read, first.lines_missed, first.lines_flushed, first.fences];
                cells.extend(counts.map(|count| format!("{count:.2}")));
                cells.extend(own.iter().map(|row| format!("{:.0}", row.ns)));
                cells.push(format!("{:.0}", first.ns_uncached));
                cells.extend((own.len() > 1).then(|| format!("{:.0}", last.ns_uncached)));
                table.push(cells);
            }
        }
        Sheet {
            title: format!("{operation}, modelled; ns at the latency of a read/of a write"),
            headers,
            rows: table,
        }
    }

    fn charts(&self, rows: &Rows, stated: &[claim::Row], scale: &Scale) -> Vec<Chart> {
        let conditions = format!(
            "{} · seed {} · darter {}",
            counted(scale.records, "record"),
            scale.seed,
            env!("CARGO_PKG_VERSION")
        );
        let conditions = conditions.replace(' ', "\u{a0}").replace("\u{a0}·\u{a0}", " · ");
        let mut charts = Vec::new();
        for operation in self.operations.iter().map(|operation| operation.name()) {
            charts.extend(LineQuantity::ALL.map(|of| self.by_keys(rows, &operation, of, &conditions)));
            for keys in Keys::ALL.map(Keys::name).into_iter().filter(|_| self.latencies.len() > 1) {
                charts.push(self.by_latencies(rows, &operation, keys, &conditions));
            }
        }
        charts.extend(claim::chart(self.name, stated, self.points.len() + 1));
        charts
    }

    /// Bars for each distribution of keys, at the first latencies.
    fn by_keys(&self, rows: &Rows, operation: &str, quantity: LineQuantity, conditions: &str) -> Chart {
        let (name, title) = quantity.names();
        let first = self.latencies[0];
        let points = |index: &'static str| {
            let own = rows.at(operation, first.read, first.write).filter(|row| row.index == index);
            own.enumerate().map(|(at, row)| (at as f64, quantity.of(row))).collect()
        };
        let is_here = |point: &&LinePoint| point.operation == operation && point.quantity == quantity;
        Chart {
            name: format!("{}-{name}", operation.replace(' ', "-")),
            title: format!("{} · {operation}: {title}", self.name),
            conditions: conditions.to_owned(),
            x: axis("keys"),
            y: axis(title),
            shape: Shape::Bars,
            steps: Keys::ALL.map(|keys| keys.name().to_owned()).to_vec(),
            series: series(points),
            marks: self.points.iter().filter(is_here).map(LinePoint::mark).collect(),
        }
    }

    /// A line over the latencies.
    fn by_latencies(&self, rows: &Rows, operation: &str, keys: &str, conditions: &str) -> Chart {
        let points = |index: &'static str| {
            let own = rows.of(operation, index).filter(|row| row.keys == keys);
            own.enumerate().map(|(at, row)| (at as f64, row.ns)).collect()
        };
        let pair = |each: &Latencies| format!("{}/{}", each.read, each.write);
        Chart {
            name: format!("{}-{keys}-latencies", operation.replace(' ', "-")),
            title: format!("{} · {operation}, {keys}: ns, modelled", self.name),
            conditions: conditions.to_owned(),
            x: axis("ns of a read/of a write"),
            y: axis("ns, modelled"),
            shape: Shape::Steps,
            steps: self.latencies.iter().map(pair).collect(),
            series: series(points),
            marks: Vec::new(),
        }
    }
}

fn axis(title: &str) -> Axis {
    Axis { title: title.to_owned(), unit: Unit::Each }
}

/// A series for each tree.
fn series(points: impl Fn(&'static str) -> Vec<(f64, f64)>) -> Vec<Series> {
    DESIGNS.map(|(index, _)| Series { name: index.to_owned(), points: points(index), absent: None }).to_vec()
}
