//! Results on one self-contained page: tables and plots, the command that made them, the machine,
//! the hash of all settings, and the date.

use super::chart::Chart;
use super::tables::Sheet;
use maud::{DOCTYPE, PreEscaped, html};
use std::fs;
use time::OffsetDateTime;

const STYLE: &str = "\
body { font: 15px/1.45 system-ui, sans-serif; color: #1d2433; max-width: 1240px; margin: 2em auto; padding: 0 1em }
h1, h2 { font-weight: 600 } code { font-family: ui-monospace, monospace; font-size: 13px; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: 1em 0 } th, td { padding: 2px 9px; text-align: right; white-space: nowrap }
th { border-bottom: 1px solid #9aa3b5; font-weight: 600 } tr:nth-child(even) td { background: #f3f5fa }
th:first-child, td:first-child { text-align: left } .scroll { overflow-x: auto }
dl { display: grid; grid-template-columns: max-content auto; gap: 2px 1em } dt { color: #5a6478 } dd { margin: 0 }
.modelled { background: #fff1d6; padding: 0.5em 1em } figure { display: inline-block; margin: 0 1em 1em 0 }";

/// The content of a page in addition to tables and plots.
pub(crate) struct About<'a> {
    pub(crate) title: String,
    /// The settings in words.
    pub(crate) what: Vec<String>,
    /// The command that made the page.
    pub(crate) command: &'a str,
    /// Whether times are of a model's clock.
    pub(crate) modelled: bool,
}

/// Returns the page; `asked` is the hash of all settings.
pub(crate) fn page(about: &About<'_>, asked: &str, sheets: &[Sheet], charts: &[Chart]) -> String {
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (about.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (about.title) }
                @if about.modelled {
                    p.modelled { "Throughputs and latencies are modelled: they are of a model's clock, not of a network's." }
                }
                @for line in &about.what { p { (line) } }
                dl {
                    dt { "command" } dd { code { (about.command) } }
                    dt { "machine" } dd { (machine()) }
                    dt { "date" } dd { (today()) }
                    dt { "configuration" } dd { "SHA-256 " code { (asked) } }
                }
                @for sheet in sheets {
                    h2 { (sheet.title) }
                    div.scroll {
                        table {
                            thead { tr { @for header in &sheet.headers { th { (header) } } } }
                            tbody { @for row in &sheet.rows { tr { @for cell in row { td { (cell) } } } } }
                        }
                    }
                }
                @if !charts.is_empty() { h2 { "Plots" } }
                @for chart in charts { figure { (PreEscaped(inline(&chart.svg()))) } }
            }
        }
    };
    body.into_string()
}

/// Returns a picture as part of a page, where its name space is implied.
fn inline(svg: &str) -> String {
    svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}

/// Returns a description of this machine.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |line: &str| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned());
    let cpu = cpuinfo.lines().find_map(named).unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total =
        |line: &str| line.strip_prefix("MemTotal:")?.trim().trim_end_matches("kB").trim().parse().ok();
    let memory: u64 = meminfo.lines().find_map(total).unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpu}, {cores} cores, {:.1} GiB, Linux {}", memory as f64 / f64::from(1 << 20), kernel.trim())
}

/// Returns today's date in UTC.
#[expect(clippy::disallowed_methods, reason = "the date on a page")]
pub(crate) fn today() -> String {
    let now = OffsetDateTime::now_utc();
    format!("{:04}-{:02}-{:02}", now.year(), u8::from(now.month()), now.day())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::measurement::tests::measurements;
    use crate::compare::{plots, tables};
    use html5ever::tendril::TendrilSink;
    use markup5ever_rcdom::{Handle, NodeData, RcDom};

    /// All elements and attributes of a tree.
    fn walk(node: &Handle, elements: &mut Vec<String>, attributes: &mut Vec<(String, String)>) {
        if let NodeData::Element { name, attrs, .. } = &node.data {
            elements.push(name.local.to_string());
            for attribute in attrs.borrow().iter() {
                attributes.push((attribute.name.local.to_string(), attribute.value.to_string()));
            }
        }
        for child in node.children.borrow().iter() {
            walk(child, elements, attributes);
        }
    }

    #[test]
    fn a_page_parses_and_needs_nothing_else() {
        let measurements = measurements();
        let about = About {
            title: "dart & others".into(),
            what: vec!["<b>".into()],
            command: "darter-lab compare --csv \"a b\" </html>",
            modelled: true,
        };
        let charts = plots::plots(&measurements);
        let page = page(&about, "abc", &tables::by_workload(&measurements), &charts);
        let document =
            html5ever::parse_document(RcDom::default(), html5ever::ParseOpts::default()).one(&*page);
        assert!(document.errors.borrow().is_empty(), "{:?}", document.errors);
        let (mut elements, mut attributes) = (Vec::new(), Vec::new());
        walk(&document.document, &mut elements, &mut attributes);
        assert_eq!(elements.iter().filter(|name| *name == "svg").count(), charts.len());
        assert_eq!(elements.iter().filter(|name| *name == "table").count(), 2);
        assert!(
            !elements
                .iter()
                .any(|name| ["script", "link", "iframe", "img", "object", "b"].contains(&&**name))
        );
        assert!(!attributes.iter().any(|(name, _)| ["href", "src", "srcset", "data"].contains(&&**name)));
        assert!(
            !page.contains("http:")
                && !page.contains("https:")
                && !page.contains("url(")
                && !page.contains("@import")
        );
        assert!(page.contains("modelled") && page.contains("SHA-256") && page.contains(&today()));
    }

    #[test]
    fn the_machine_has_a_name() {
        assert!(machine().contains("cores"), "{}", machine());
        assert!(today().starts_with("20") && today().len() == 10);
    }
}
