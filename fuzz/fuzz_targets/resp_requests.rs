//! Bytes of a Redis client: the parser finds the same requests however the bytes arrive, and keeps little.

#![no_main]

use darter_gateway::{Malformed, Parser, Step};
use libfuzzer_sys::fuzz_target;

type Request = Vec<Vec<u8>>;

/// Returns the requests in bytes that arrive in pieces, and the error that ends them.
fn requests<'p>(
    pieces: impl Iterator<Item = &'p [u8]>,
    is_trusted: bool,
) -> (Vec<Request>, Option<Malformed>) {
    let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Vec::new());
    let mut arrived = 0;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        arrived += piece.len();
        loop {
            match parser.advance(&buffer, is_trusted) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Request(bytes)) => {
                    assert!(bytes > 0 && bytes <= buffer.len());
                    found.push(parser.arguments(&buffer).from(0).map(<[u8]>::to_vec).collect());
                    buffer.drain(..bytes);
                }
                // The parser has no limit below the protocol's here.
                Ok(Step::Dropped { .. }) => unreachable!("an argument is longer than the protocol allows"),
                Err(error) => return (found, Some(error)),
            }
        }
        assert!(parser.buffer_bytes() <= 16 * arrived + 1024);
    }
    (found, None)
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_trusted, piece_bytes, bytes) = input;
    let whole = requests(std::iter::once(bytes), is_trusted);
    let pieces = requests(bytes.chunks(usize::from(piece_bytes).max(1)), is_trusted);
    assert_eq!(whole, pieces);
});
