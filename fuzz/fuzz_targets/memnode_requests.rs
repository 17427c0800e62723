//! Bytes of a client whose handshake was accepted: frames of requests.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| darter_fuzz::send(true, bytes));
