//! The gateway as its clients see it: compared with a redis-server, with Redis's own clients, and
//! with hostile ones.
//!
//! Tests that need redis-server, redis-cli or redis-py are skipped if these are not installed
//! (`scripts/test-tools` installs them), unless `DARTER_TEST_ALL` is set.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code)] // a test may panic, and may not use all helpers

mod access;
mod aggregates;
mod at_one_moment;
#[path = "../../../darter-memnode/tests/support/authority.rs"]
mod authority;
mod bitmaps;
mod blocking;
mod browser;
mod client_family;
mod clients;
mod corpus;
mod databases;
mod descriptions;
mod differential;
mod door;
mod dump;
mod dump_streams;
mod field_expiry;
mod function_dumps;
mod geo;
mod hostile;
mod limits;
mod lists;
mod lists_together;
mod notifications;
mod overlapping;
mod page;
mod peers;
mod pubsub;
mod rotation;
mod runs;
mod scripting;
mod scripts_alike;
mod sentences;
mod server_parts;
mod set_operations;
mod sets;
mod sets_together;
mod several_keys;
mod small_commands;
mod small_keys;
mod stream_groups;
mod streams;
mod streams_together;
mod tls;
mod together;
mod tracking;
mod tracking_together;
mod transactions;
mod watching;

/// `DARTER_KEEP_DOCS=1` writes the page.
#[test]
fn the_page_of_commands_is_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    let page = darter_gateway::commands_page();
    if std::env::var_os("DARTER_KEEP_DOCS").is_some() {
        std::fs::write(path, page).unwrap();
    } else {
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == page, "docs/commands.md differs from the table; see its second paragraph");
    }
}
