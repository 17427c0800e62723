//! Requests in pieces of any size, Redis's error messages, and the bounds on memory.

use super::*;
use proptest::prelude::*;

/// Parses bytes that arrive in pieces. Returns all requests, and the error at their end.
fn requests(pieces: &[&[u8]], is_trusted: bool) -> (Vec<Vec<Vec<u8>>>, Option<Malformed>) {
    let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.advance(&buffer, is_trusted) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Request(bytes)) => {
                    let arguments = parser.arguments(&buffer);
                    found.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                    buffer.drain(..bytes);
                }
                Ok(Step::Dropped { .. }) => unreachable!("nothing is longer than the protocol allows"),
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

/// Parses bytes that arrive in pieces, with arguments of up to 4 bytes. Returns the first word
/// of each request, the announced length of each rejected one, and the most bytes that waited.
fn limited_requests(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Vec<usize>, usize) {
    let (mut parser, mut buffer) = (Parser::with_argument_bytes_max(4), Vec::new());
    let (mut found, mut refused, mut waiting) = (Vec::new(), Vec::new(), 0);
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match parser.advance(&buffer, true).unwrap() {
                Step::Incomplete => break,
                Step::Request(bytes) => {
                    found.push(parser.arguments(&buffer).get(0).to_vec());
                    buffer.drain(..bytes);
                }
                Step::Dropped { bytes, too_long } => {
                    assert!(bytes > 0);
                    refused.extend(too_long);
                    buffer.drain(..bytes);
                }
            }
        }
        waiting = waiting.max(buffer.len());
    }
    assert!(buffer.is_empty() && !parser.is_within());
    (found, refused, waiting)
}

#[test]
fn what_is_too_long_is_dropped_as_it_arrives_and_the_next_request_is_found() {
    let long = "x".repeat(10_000);
    let bytes = format!(
        "*1\r\n$1\r\na\r\n*3\r\n$1\r\nb\r\n$10000\r\n{long}\r\n$2\r\nbb\r\n*2\r\n$5\r\n*1\r\n$\r\n$4\r\nabcd\r\n*1\r\n$4\r\nping\r\n"
    );
    for piece in [1, 2, 3, 7, 100, 4096, bytes.len()] {
        let (found, refused, waiting) = limited_requests(bytes.as_bytes(), piece);
        assert_eq!((found, refused), (vec![b"a".to_vec(), b"ping".to_vec()], vec![10_000, 5]), "{piece}");
        assert!(waiting <= 32, "{waiting} bytes waited, in pieces of {piece}");
    }
}

fn error_of(bytes: &[u8], is_trusted: bool) -> String {
    requests(&[bytes], is_trusted).1.unwrap_or_default().into_owned()
}

fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut found, error) = requests(&[line.as_bytes(), b"\r\n"], true);
    assert_eq!((found.len(), error), (1, None), "{line}");
    found.remove(0)
}

#[test]
fn lines_are_split_as_redis_splits_them() {
    assert_eq!(words("  SET\tkey  value "), [&b"SET"[..], b"key", b"value"]);
    assert_eq!(words(r#"a "b c" 'd e'"#), [&b"a"[..], b"b c", b"d e"]);
    assert_eq!(words(r#""\x41\n\r\t\b\a\\\"\q" '\'' '\n'"#), [&b"A\n\r\t\x08\x07\\\"q"[..], b"'", b"\\n"]);
    assert_eq!(words(r#"a"b" """#), [&b"ab"[..], b""]);
    assert_eq!(words("a\0b c"), [b"a"]);
    assert!(words("").is_empty());
    for unbalanced in ["\"a", "'a", "\"a\"b", "'a'b", "\"\\"] {
        let line = format!("{unbalanced}\n");
        assert_eq!(error_of(line.as_bytes(), true), "Protocol error: unbalanced quotes in request", "{line}");
    }
}

#[test]
fn bytes_that_are_not_a_request_get_redis_errors() {
    for (bytes, error) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
    ] {
        assert_eq!(error_of(bytes, true), format!("Protocol error: {error}"), "{}", bytes.escape_ascii());
    }
    let long = vec![b'1'; LINE_BYTES_MAX + 1];
    assert_eq!(error_of(&long, true), "Protocol error: too big inline request");
    assert_eq!(error_of(&[b"*", &long[..]].concat(), true), "Protocol error: too big mbulk count string");
    assert_eq!(
        error_of(&[b"*1\r\n$", &long[..]].concat(), true),
        "Protocol error: too big bulk count string"
    );
}

#[test]
fn strangers_may_say_little() {
    assert_eq!(error_of(b"*11\r\n", false), "Protocol error: unauthenticated multibulk length");
    assert_eq!(error_of(b"*1\r\n$16385\r\n", false), "Protocol error: unauthenticated bulk length");
    assert_eq!(error_of(b"*10\r\n$16384\r\n", false), "");
    assert_eq!(error_of(b"*1048576\r\n$536870912\r\n", true), "");
}

#[test]
fn empty_requests_are_no_requests() {
    let (found, error) = requests(&[b"*0\r\n*-1\r\n\r\n\n*1\r\n$0\r\n\r\n"], true);
    assert_eq!(error, None);
    assert_eq!(found, [vec![], vec![], vec![], vec![], vec![Vec::<u8>::new()]]);
}

#[test]
fn a_bulk_that_is_announced_costs_nothing() {
    let mut parser = Parser::default();
    assert_eq!(parser.advance(b"*1048576\r\n$536870912\r\nabc", true), Ok(Step::Incomplete));
    assert!(parser.is_within() && parser.buffer_bytes() < 1024, "{}", parser.buffer_bytes());
}

/// Generates requests, and bytes that are nearly requests.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let bulk = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| {
            [format!("${}\r\n", bytes.len()).into_bytes(), bytes, b"\r\n".to_vec()].concat()
        }),
        1 => prop::sample::select(vec!["$-1\r\n", ":1\r\n", "$5\r\nab", "*1\r\n"]).prop_map(|text| text.as_bytes().to_vec()),
    ];
    let request = prop_oneof![
        4 => prop::collection::vec(bulk, 0..6).prop_map(|bulks| {
            [format!("*{}\r\n", bulks.len()).into_bytes(), bulks.concat()].concat()
        }),
        2 => "[a-c\"'\\\\ x0-9]{0,20}\r?\n".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(request, 0..8).prop_map(|requests| requests.concat())
}

proptest! {
    #[test]
    fn pieces_of_any_size_are_the_same_requests(
        bytes in conversation(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10), trusted: bool,
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut from = 0;
        let pieces: Vec<&[u8]> = cuts.iter().map(|&to| &bytes[std::mem::replace(&mut from, to)..to]).collect();
        let whole = requests(&[&bytes], trusted);
        prop_assert_eq!(&requests(&pieces, trusted), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(requests(&single, trusted), whole);
    }

    #[test]
    fn requests_come_out_as_they_went_in(sent in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..6), 0..6)) {
        let mut bytes = Vec::new();
        for request in &sent {
            bytes.extend(format!("*{}\r\n", request.len()).into_bytes());
            for argument in request {
                bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
                bytes.extend_from_slice(argument);
                bytes.extend(b"\r\n");
            }
        }
        prop_assert_eq!(requests(&[&bytes], true), (sent, None));
    }

    #[test]
    fn whatever_comes_costs_no_more_than_it_is_long(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut parser = Parser::default();
        let mut rest = &bytes[..];
        while let Ok(Step::Request(taken)) = parser.advance(rest, true) {
            prop_assert!(taken > 0);
            rest = &rest[taken..];
        }
        prop_assert!(parser.buffer_bytes() <= 16 * bytes.len() + 1024);
    }
}
