//! Histories in the format of Jepsen, for Elle and other checkers of list-append histories. These
//! know no puts: the versions of a list after each put are exported as a list themselves.

use super::versions::{Part, Versions};
use super::{End, Step, Transaction};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Returns a history as EDN, an operation a line, for `elle-cli --model list-append`. A transaction
/// without an outcome is of type `:info`.
pub fn to_edn(history: &[Transaction]) -> String {
    let parts = Versions::of(history).parts();
    let mut lines: Vec<(u64, bool, String)> = Vec::new();
    for transaction in history {
        let (end, kind) = match transaction.end {
            End::Committed(at) => (at, ":ok"),
            End::Aborted(at) => (at, ":fail"),
            End::Unknown => (u64::MAX, ":info"),
        };
        let is_read = kind == ":ok";
        lines.push((
            transaction.invoked,
            false,
            line(&parts, transaction, ":invoke", transaction.invoked, false),
        ));
        lines.push((end, true, line(&parts, transaction, kind, end.min(i64::MAX as u64), is_read)));
    }
    // At equal times a beginning comes first: the two overlap.
    lines.sort();
    lines.iter().enumerate().fold(String::new(), |mut text, (index, (.., line))| {
        let _ = writeln!(text, "{{:index {index}, {line}}}");
        text
    })
}

/// The part of its list that an element is in.
type Parts = HashMap<(u32, u64), Part>;

fn line(parts: &Parts, transaction: &Transaction, kind: &str, time: u64, with_reads: bool) -> String {
    let steps: Vec<String> = transaction.steps.iter().map(|step| text(parts, step, with_reads)).collect();
    format!(
        ":type {kind}, :process {}, :f :txn, :time {time}, :value [{}]",
        transaction.client,
        steps.join(" ")
    )
}

fn text(parts: &Parts, step: &Step, with_reads: bool) -> String {
    let name = |list: u32, element: Option<&u64>| {
        let part = element.and_then(|&element| parts.get(&(list, element)));
        match part {
            Some((_, Some(put))) => format!("\"{list} after {put}\""),
            _ => list.to_string(),
        }
    };
    match step {
        Step::Append { list, element } | Step::Put { list, element } => {
            format!("[:append {} {element}]", name(*list, Some(element)))
        }
        Step::Read { list, elements } => {
            let texts: Vec<String> = elements.iter().map(u64::to_string).collect();
            let found = if with_reads { format!("[{}]", texts.join(" ")) } else { "nil".to_owned() };
            format!("[:r {} {found}]", name(*list, elements.first()))
        }
    }
}
