//! Tables of a comparison: one per workload, counts first.

use super::axis::{Axis, distinct};
use super::measurement::Measurement;
use darter_bench::report::{bytes_text, markdown_table};

/// A table, for a terminal or a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) headers: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Sheet {
    /// A table without rows.
    pub(crate) fn new(title: &str, headers: &[&str]) -> Self {
        let headers = headers.iter().map(|&header| header.to_owned()).collect();
        Self { title: title.to_owned(), headers, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(str::to_owned).into());
    }

    /// Returns it as text that is readable on a terminal and renders in Markdown.
    pub(crate) fn text(&self) -> String {
        let headers: Vec<&str> = self.headers.iter().map(String::as_str).collect();
        let mut table = markdown_table(&headers);
        for row in &self.rows {
            table.add_row(row.clone());
        }
        format!("{}\n\n{table}", self.title)
    }
}

/// The remark on modelled times.
pub(crate) fn remark_of(modelled: bool) -> &'static str {
    if modelled { ", modelled" } else { "" }
}

/// Returns a table for each workload. Conditions that do not vary have no column.
pub(crate) fn by_workload(measurements: &[Measurement]) -> Vec<Sheet> {
    let axes = Axis::varying(measurements);
    let workloads = distinct(measurements.iter().map(|one| &one.configuration.workload));
    let sheet = |workload: &String| {
        let own: Vec<&Measurement> =
            measurements.iter().filter(|one| one.configuration.workload == *workload).collect();
        Sheet {
            title: format!(
                "{}{}",
                workload.to_uppercase(),
                remark_of(own.iter().any(|one| one.figures.modelled))
            ),
            headers: headers(&axes, &own),
            rows: own.iter().map(|one| row(&axes, one, have_times(&own))).collect(),
        }
    };
    workloads.into_iter().map(sheet).collect()
}

fn headers(axes: &[Axis], measurements: &[&Measurement]) -> Vec<String> {
    let mut headers = vec!["index".to_owned()];
    headers.extend(axes.iter().map(|axis| axis.title().to_owned()));
    headers.extend(["round trips", "verbs", "B read", "B written", "retries"].map(str::to_owned));
    if have_times(measurements) {
        let baselines = distinct(measurements.iter().map(|one| one.figures.relative_to.as_str()));
        let ratio = match baselines[..] {
            [only] => format!("× {only}"),
            _ => "×".to_owned(),
        };
        headers.extend(["kop/s".to_owned(), ratio, "p50 µs".to_owned(), "p99 µs".to_owned()]);
    }
    headers.extend(["index", "keys, values", "cache used"].map(str::to_owned));
    if measurements.iter().any(|one| one.figures.modelled) {
        headers.push("busiest".to_owned());
    }
    headers
}

/// Returns the cache in use, marked if it exceeds the budget: DART keeps its skip table's directory,
/// XStore its models, whatever the budget is.
fn cache_used(one: &Measurement) -> String {
    let used = one.figures.cache_used_bytes;
    let mark = if used > one.configuration.cache_bytes { " (over budget)" } else { "" };
    format!("{}{mark}", bytes_text(used))
}

/// Returns whether any has times; then all rows have cells for them.
fn have_times(measurements: &[&Measurement]) -> bool {
    measurements.iter().any(|one| one.figures.has_times())
}

fn row(axes: &[Axis], one: &Measurement, with_times: bool) -> Vec<String> {
    let figures = &one.figures;
    let mut row = vec![one.configuration.index.clone()];
    row.extend(axes.iter().map(|axis| axis.place(&one.configuration)));
    row.extend([
        format!("{:.2}", figures.round_trips_per_op),
        format!("{:.2}", figures.verbs_per_op),
        format!("{:.0}", figures.read_bytes_per_op),
        format!("{:.0}", figures.write_bytes_per_op),
        format!("{:.4}", figures.retries_per_op),
    ]);
    if with_times {
        row.extend([
            format!("{:.1}", figures.ops_per_s / 1000.0),
            format!("{:.2}", figures.ratio),
            format!("{:.2}", figures.p50_us),
            format!("{:.2}", figures.p99_us),
        ]);
    }
    row.extend([bytes_text(figures.index_bytes), bytes_text(figures.kv_bytes), cache_used(one)]);
    if figures.modelled {
        row.push(figures.bottleneck.clone());
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::measurement::tests::measurements;

    #[test]
    fn each_workload_has_a_table_and_only_what_differs_a_column() {
        let sheets = by_workload(&measurements());
        assert_eq!(sheets.iter().map(|sheet| &*sheet.title).collect::<Vec<_>>(), ["A", "C"]);
        for sheet in &sheets {
            assert!(
                sheet.headers.contains(&"cache".to_owned()) && !sheet.headers.contains(&"Zipf".to_owned())
            );
            assert_eq!(sheet.rows.len(), 4);
            assert!(sheet.rows.iter().all(|row| row.len() == sheet.headers.len()));
            // Counts come before times.
            let at = |name: &str| sheet.headers.iter().position(|header| header == name).unwrap();
            assert!(at("round trips") < at("kop/s") && at("retries") < at("kop/s"));
        }
        let text = sheets[0].text();
        assert!(text.contains("× other") && text.contains("2.00") && text.contains("10M"), "{text}");
    }

    #[test]
    fn a_cache_beyond_its_budget_is_marked() {
        let mut measurements = measurements();
        for one in &mut measurements {
            let over = u64::from(one.configuration.index == "dart");
            one.figures.cache_used_bytes = one.configuration.cache_bytes + over;
        }
        for (sheet, row) in by_workload(&measurements).iter().flat_map(|s| s.rows.iter().map(move |r| (s, r)))
        {
            let at = sheet.headers.iter().position(|header| header == "cache used").unwrap();
            assert_eq!(row[at].contains("over budget"), row[0] == "dart", "{row:?}");
        }
    }

    #[test]
    fn counts_without_times_have_no_columns_of_times() {
        let mut measurements = measurements();
        for one in &mut measurements {
            one.figures.remove_times();
        }
        for sheet in by_workload(&measurements) {
            let text = sheet.text();
            assert!(text.contains("round trips") && text.contains("cache used"), "{text}");
            for title in ["kop/s", "×", "p50", "p99", "NaN"] {
                assert!(!text.contains(title), "{title} is in {text}");
            }
            assert!(sheet.rows.iter().all(|row| row.len() == sheet.headers.len()));
        }
    }

    #[test]
    fn a_modelled_time_says_so() {
        let mut measurements = measurements();
        for one in &mut measurements {
            one.figures.modelled = true;
        }
        assert!(by_workload(&measurements).iter().all(|sheet| sheet.title.contains("modelled")));
    }
}
