//! The response to a scrape: `OpenMetrics`, or Prometheus's text format 0.0.4 for a client whose
//! `Accept` prefers it.
//!
//! Both formats have the same samples. They differ in the metadata: the text format uses a
//! counter's full name (`x_total`), and has no units and no end mark.

use crate::http::{HttpResponse, StatusCode, response, text};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the response to a scrape of a registry, in the format that the header `Accept` prefers;
/// `OpenMetrics` if it prefers neither.
pub fn scrape(registry: &Registry, accept: Option<&str>) -> HttpResponse {
    let mut page = String::new();
    match encode(&mut page, registry) {
        Ok(()) if accept.is_some_and(prefers_text) => response(StatusCode::OK, TEXT, text_format(&page)),
        Ok(()) => response(StatusCode::OK, OPENMETRICS, page),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be encoded\n"),
    }
}

/// Returns whether an `Accept` header gives plain text a higher quality than `OpenMetrics`. That
/// includes browsers, which display plain text and save anything else as a file.
fn prefers_text(accept: &str) -> bool {
    let plain = quality(accept, "text", "plain").max(quality(accept, "text", "html"));
    plain > quality(accept, "application", "openmetrics-text")
}

/// Returns the quality that an `Accept` header gives a media type, in thousandths: the quality of
/// the most specific range that covers it, and the highest if there are several.
fn quality(accept: &str, kind: &str, subtype: &str) -> u32 {
    let ranges = accept.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let (range_kind, range_subtype) = parts.next()?.split_once('/')?;
        let specificity = match (range_kind, range_subtype) {
            ("*", "*") => 0,
            (of, "*") if of.eq_ignore_ascii_case(kind) => 1,
            (of, name) if of.eq_ignore_ascii_case(kind) && name.eq_ignore_ascii_case(subtype) => 2,
            _ => return None,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let quality = quality.map_or(1.0, |q| q.trim().parse::<f64>().unwrap_or(0.0));
        Some((specificity, (quality.clamp(0.0, 1.0) * 1000.0) as u32))
    });
    ranges.max().map_or(0, |(_, quality)| quality)
}

/// Rewrites an exposition in `OpenMetrics` to the text format 0.0.4.
fn text_format(openmetrics: &str) -> String {
    let mut page = String::with_capacity(openmetrics.len());
    // The help text of a metric whose type is not known yet.
    let mut help = None;
    let mut line_of = |parts: &[&str]| {
        page.extend(parts.iter().copied());
        page.push('\n');
    };
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                line_of(&["# HELP ", name, suffix, " ", help]);
            }
            line_of(&["# TYPE ", name, suffix, " ", kind]);
        } else if !line.starts_with('#') {
            line_of(&[line]);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Histogram, NANOS_BOUNDS};
    use crate::openmetrics::{MetricsWriter, NANOS_PER_SECOND};
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::registry::Unit;

    #[test]
    fn format_is_the_accepted_one() {
        for accept in [
            "text/plain",
            "text/plain;version=0.0.4;q=0.5",
            "Text/Plain; version=0.0.4, */*;q=0.1",
            "application/openmetrics-text;q=0.4,text/plain;q=0.5",
            "text/html,application/xhtml+xml,*/*;q=0.8",
        ] {
            assert!(prefers_text(accept), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "image/png",
            "application/openmetrics-text",
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "text/plain;q=0",
            "text/plain;q=x",
            "text/plain;q=NaN",
        ] {
            assert!(!prefers_text(accept), "{accept}");
        }
    }

    #[derive(Debug)]
    struct Numbers;

    impl Collector for Numbers {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            let mut page = MetricsWriter::new(encoder);
            page.counter("sent", "Bytes sent", Some(&Unit::Bytes), 7)?;
            page.gauges("open", "Open # of \"x\"", None, [([("name", "a\n\"b\"\\ # EOF")], 3)].into_iter())?;
            let histogram = Histogram::new(&NANOS_BOUNDS);
            histogram.record(900_000);
            let (unit, values) = (Some(&Unit::Seconds), histogram.snapshot());
            page.histogram("turn", "Time taken", unit, NANOS_PER_SECOND, &values)
        }
    }

    fn both() -> (String, String) {
        let mut registry = Registry::with_prefix("darter");
        registry.register_collector(Box::new(Numbers));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        let text = text_format(&page);
        (page, text)
    }

    #[test]
    fn the_text_format_names_counters_in_full() {
        let (openmetrics, text) = both();
        assert!(openmetrics.contains("# TYPE darter_sent_bytes counter\n"), "{openmetrics}");
        assert!(openmetrics.ends_with("# EOF\n"), "{openmetrics}");
        let (head, buckets) = text.split_once("darter_turn_seconds_sum").unwrap();
        assert_eq!(
            head,
            "# HELP darter_sent_bytes_total Bytes sent\n# TYPE darter_sent_bytes_total counter\n\
             darter_sent_bytes_total 7\n# HELP darter_open Open # of \"x\"\n# TYPE darter_open gauge\n\
             darter_open{name=\"a\\n\\\"b\\\"\\\\ # EOF\"} 3\n# HELP darter_turn_seconds Time taken\n\
             # TYPE darter_turn_seconds histogram\n"
        );
        assert!(!buckets.contains('#') && buckets.ends_with("\"+Inf\"} 1\n"), "{buckets}");
    }

    #[test]
    fn bounds_are_written_as_people_write_them() {
        let (page, _) = both();
        let bounds: Vec<_> = page.lines().filter_map(|line| line.split("le=\"").nth(1)).collect();
        let bounds: Vec<_> = bounds.iter().filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(bounds.len(), NANOS_BOUNDS.len() + 1, "{page}");
        assert_eq!(bounds[..3], ["0.000001", "0.000002", "0.000005"]);
        assert_eq!(bounds[9..12], ["0.001", "0.002", "0.005"]);
        assert_eq!(bounds[18..], ["1.0", "2.0", "5.0", "+Inf"]);
    }
}
