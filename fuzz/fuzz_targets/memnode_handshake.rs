//! Bytes of a stranger, from the first of the handshake on.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| darter_fuzz::send(false, bytes));
