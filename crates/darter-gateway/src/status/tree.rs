//! A node of the tree with its children, for the tree view, and the record of a key.

use crate::keyspace::{Head, is_place_of_head};
use darter::engine::{Engine, KeySpace};
use darter::report::{TreeEdge, TreeView};
use darter::{Error, IndexKind, Store};
use serde_json::{Value, json};
use std::fmt::Write;

/// Most bytes of a requested prefix: its digits fill half of a request's head.
const PREFIX_BYTES_MAX: usize = darter_telemetry::http::HEAD_BYTES_MAX / 4;
/// Most bytes of a value that are returned.
const VALUE_BYTES_MAX: usize = 256;
/// Most children of a node that are returned: one for each byte, and the key that ends there.
const WIDTH: usize = 257;

/// Parses the prefix in a query, `prefix=` and hexadecimal digits. Prefixes are of places in the
/// index.
///
/// # Errors
/// A description of the error.
pub(super) fn prefix_of(query: &str) -> Result<Vec<u8>, String> {
    let Some(digits) = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")) else {
        return Ok(Vec::new());
    };
    if digits.len() > 2 * PREFIX_BYTES_MAX {
        return Err(format!("a prefix can have at most {PREFIX_BYTES_MAX} bytes; shorten it"));
    }
    let no_bytes = || "a prefix is an even number of hexadecimal digits".to_owned();
    let digits = digits.as_bytes();
    if digits.len() % 2 == 1 {
        return Err(no_bytes());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    digits.chunks_exact(2).map(byte).collect::<Option<_>>().ok_or_else(no_bytes)
}

/// Returns up to `most` bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8], most: usize) -> String {
    bytes.iter().take(most).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Describes a node without its children. A long prefix is represented by its beginning and its
/// length.
fn one(view: &TreeView) -> Value {
    json!({
        "label": view.label,
        "prefix": hex(&view.prefix, PREFIX_BYTES_MAX),
        "prefix_bytes": view.prefix.len(),
        "addr": view.addr.to_string(),
        "value_bytes": view.value_bytes,
    })
}

/// Returns the children of a node, and the number of further ones. Pages, and nodes half a byte
/// below it, are replaced by their own children.
fn children_of(view: &TreeView) -> (Vec<(TreeEdge, &TreeView)>, u64) {
    let (mut children, mut more) = (Vec::new(), view.more);
    for (edge, child) in &view.children {
        let is_page = child.children.iter().any(|(edge, _)| *edge == TreeEdge::Pair);
        let is_half = child.value_bytes.is_none() && child.prefix.len() == view.prefix.len();
        if (is_page || is_half) && !child.children.is_empty() {
            children.extend(child.children.iter().map(|(edge, child)| (*edge, child)));
            more += child.more;
        } else {
            children.push((*edge, child));
        }
    }
    (children, more)
}

/// Returns the node on the path of a prefix with its children, and the record whose key is that
/// prefix.
///
/// # Errors
/// Fails if the pool is damaged or fails.
pub(super) fn below(store: &Store, prefix: &[u8]) -> Result<Value, Error> {
    // A node of Quiver has pages, or nodes half a byte below it, between itself and the nodes
    // shown.
    let levels = if store.index().kind() == Some(IndexKind::Quiver) { 2 } else { 1 };
    let view = store.tree(prefix, levels, WIDTH)?;
    let (mut children, mut more) = children_of(&view);
    // The bytes that path compression skips are only known from the children, and some may differ
    // from the prefix. A page may hold keys with the prefix regardless of its least key.
    let agrees = |child: &TreeView| child.prefix.iter().zip(prefix).all(|(a, b)| a == b);
    children.retain(|(edge, child)| agrees(child) || matches!(edge, TreeEdge::Nibbles { .. }));
    more += children.len().saturating_sub(WIDTH) as u64;
    children.truncate(WIDTH);
    let children: Vec<Value> = children
        .into_iter()
        .map(|(_, child)| {
            let edge = child.prefix.get(view.prefix.len());
            let mut child = one(child);
            child["edge"] = json!(edge);
            child
        })
        .collect();
    let session = store.session_in(KeySpace::Whole)?;
    let is_head = is_place_of_head(prefix);
    let record = session.get_with(prefix, |value| {
        let head = if is_head { Head::parse(value).ok() } else { None };
        json!({
            "value": hex(value, VALUE_BYTES_MAX),
            "value_bytes": value.len(),
            "type": head.map(|head| head.kind.name()),
            "expires_ms": head.and_then(|head| head.expiry),
        })
    })?;
    let mut node = one(&view);
    node["children"] = json!(children);
    node["more"] = json!(more);
    Ok(json!({ "asked": hex(prefix, PREFIX_BYTES_MAX), "node": node, "record": record }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::IndexKind;

    #[test]
    fn prefixes_are_read() {
        assert_eq!(prefix_of(""), Ok(Vec::new()));
        assert_eq!(prefix_of("prefix="), Ok(Vec::new()));
        assert_eq!(prefix_of("a=b&prefix=6b00fF"), Ok(vec![0x6b, 0, 0xff]));
        let long = |bytes| format!("prefix={}", "61".repeat(bytes));
        assert_eq!(prefix_of(&long(PREFIX_BYTES_MAX)).unwrap().len(), PREFIX_BYTES_MAX);
        for query in ["prefix=6", "prefix=6g", "prefix=%36b", "prefix=+1", &long(PREFIX_BYTES_MAX + 1)] {
            assert!(prefix_of(query).is_err(), "{query}");
        }
    }

    #[test]
    fn a_node_is_returned_with_its_children_down_to_a_pair() {
        told_down_to(IndexKind::Dart, "leaf");
        told_down_to(IndexKind::Quiver, "record");
    }

    fn told_down_to(kind: IndexKind, label: &str) {
        let store = Store::options().index(kind).open("mem:16M").unwrap();
        let session = store.session_in(KeySpace::Whole).unwrap();
        for key in [&b"\xffkapple"[..], b"\xffkapricot", b"\xffkbanana", b"x", b"kapple"] {
            session.put(key, [&[0_u8][..], key].concat()).unwrap();
        }
        session.put([&b"\xff"[..], &vec![b'k'; 59_999]].concat(), vec![7; 100_000]).unwrap();
        let root = below(&store, b"").unwrap();
        assert_eq!(root["node"]["prefix_bytes"], 0);
        assert!(root["record"].is_null());
        assert!(root["node"]["children"].as_array().unwrap().len() >= 2, "{root}");
        let leaf = below(&store, b"\xffkapple").unwrap();
        assert_eq!(leaf["record"]["value"], "00ff6b6170706c65");
        assert_eq!(leaf["record"]["type"], "string");
        let children = leaf["node"]["children"].as_array().unwrap();
        assert_eq!((children.len(), &children[0]["label"]), (1, &json!(label)), "{leaf}");
        let own = below(&store, b"kapple").unwrap();
        assert_eq!(own["record"]["value"], "006b6170706c65");
        assert!(own["record"]["type"].is_null(), "a program's key is not a key of Redis: {own}");
        assert!(below(&store, b"\xffkaxx").unwrap()["record"].is_null());
        // The response is short, regardless of the record.
        let long = below(&store, b"\xffkk").unwrap().to_string();
        assert!(long.contains("\"prefix_bytes\":60000") && long.len() < 10_000, "{} bytes", long.len());
        let long = below(&store, &[&b"\xff"[..], &[b'k'; PREFIX_BYTES_MAX - 1]].concat()).unwrap();
        assert!(long["record"].is_null());
    }
}
