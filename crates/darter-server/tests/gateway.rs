//! The gateway as its clients see it: beside a redis-server, with Redis's own clients, and with whoever means it ill.
//!
//! What wants redis-server, redis-cli or redis-py is skipped where they are not installed (`scripts/test-tools` does), unless
//! `DARTER_TEST_ALL` is set.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code)] // a test may panic, and need less than its helpers offer

#[path = "gateway/aggregates.rs"]
mod aggregates;
#[path = "node/authority.rs"]
mod authority;
#[path = "gateway/clients.rs"]
mod clients;
#[path = "gateway/corpus.rs"]
mod corpus;
mod dice;
#[path = "gateway/differential.rs"]
mod differential;
#[path = "gateway/door.rs"]
mod door;
#[path = "gateway/hostile.rs"]
mod hostile;
#[path = "gateway/sentences.rs"]
mod sentences;
#[path = "gateway/tls.rs"]
mod tls;
#[path = "gateway/together.rs"]
mod together;
#[path = "gateway/watching.rs"]
mod watching;

/// `DARTER_KEEP_DOCS=1` writes the page anew.
#[test]
fn the_page_of_commands_is_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    let page = darter_server::gateway::commands_page();
    if std::env::var_os("DARTER_KEEP_DOCS").is_some() {
        std::fs::write(path, page).unwrap();
    } else {
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == page, "docs/commands.md is not what the table says; see its second paragraph");
    }
}
