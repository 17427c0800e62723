//! Tables of a comparison: one a workload, counts first.

use super::axis::{Axis, distinct};
use super::measurement::Measurement;
use crate::report::{bytes_text, markdown_table};

/// A table, for a terminal or a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) headers: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Sheet {
    /// One without rows.
    pub(crate) fn new(title: &str, headers: &[&str]) -> Self {
        let headers = headers.iter().map(|&header| header.to_owned()).collect();
        Self { title: title.to_owned(), headers, rows: Vec::new() }
    }

    /// One more row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(str::to_owned).into());
    }

    /// As text that reads well on a terminal and renders in Markdown.
    pub(crate) fn text(&self) -> String {
        let headers: Vec<&str> = self.headers.iter().map(String::as_str).collect();
        let mut table = markdown_table(&headers);
        for row in &self.rows {
            table.add_row(row.clone());
        }
        format!("{}\n\n{table}", self.title)
    }
}

/// What is said of times that are a model's.
pub(crate) fn remark_of(modelled: bool) -> &'static str {
    if modelled { ", modelled" } else { "" }
}

/// A table for each workload. Conditions that are the same everywhere have no column.
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
            rows: own.iter().map(|one| row(&axes, one)).collect(),
        }
    };
    workloads.into_iter().map(sheet).collect()
}

fn headers(axes: &[Axis], measurements: &[&Measurement]) -> Vec<String> {
    let mut headers = vec!["index".to_owned()];
    headers.extend(axes.iter().map(|axis| axis.title().to_owned()));
    headers.extend(["round trips", "verbs", "B read", "B written", "retries", "kop/s"].map(str::to_owned));
    let baselines = distinct(measurements.iter().map(|one| one.figures.relative_to.as_str()));
    headers.push(match baselines[..] {
        [only] => format!("× {only}"),
        _ => "×".to_owned(),
    });
    headers.extend(["p50 µs", "p99 µs", "index", "keys, values", "cache used"].map(str::to_owned));
    if measurements.iter().any(|one| one.figures.modelled) {
        headers.push("busiest".to_owned());
    }
    headers
}

fn row(axes: &[Axis], one: &Measurement) -> Vec<String> {
    let figures = &one.figures;
    let mut row = vec![one.configuration.index.clone()];
    row.extend(axes.iter().map(|axis| axis.place(&one.configuration)));
    row.extend([
        format!("{:.2}", figures.round_trips_per_op),
        format!("{:.2}", figures.verbs_per_op),
        format!("{:.0}", figures.read_bytes_per_op),
        format!("{:.0}", figures.write_bytes_per_op),
        format!("{:.4}", figures.retries_per_op),
        format!("{:.1}", figures.ops_per_s / 1000.0),
        format!("{:.2}", figures.ratio),
        format!("{:.2}", figures.p50_us),
        format!("{:.2}", figures.p99_us),
        bytes_text(figures.index_bytes),
        bytes_text(figures.kv_bytes),
        bytes_text(figures.cache_used_bytes),
    ]);
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
        assert!(text.contains("× dart") && text.contains("0.50") && text.contains("10M"), "{text}");
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
