//! Errors planted in memory nodes: turns, sessions, ledger.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "memory node",
        "node-ledger-goes-on-in-a-cut-line",
        "The ledger's next line is written behind one that a crash cut short.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-ledger-ends-at-an-odd-line",
        "The ledger is read up to the first line that says nothing.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-silent-fenced-peer-kept",
        "A fenced peer that says nothing keeps its connection.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-counts-the-memory-of-the-gone",
        "The memory of a connection that has ended is still counted.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-greeting-in-drops-renews-patience",
        "Each byte of a greeting renews the patience with it.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-drain-ends-amid-a-request",
        "A node that drains hangs up on who has sent half a request.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-hears-who-does-not-read",
        "A peer that leaves its answers unread is heard all the same.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-frames-left-for-want-of-room-forgotten",
        "Frames that were left for want of room for their answers wait for more to arrive.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-nonce-of-the-session",
        "A node's nonce is the same for all connections of a session.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-lets-in-while-it-drains",
        "A node that drains lets in who was on the way.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-one-too-many",
        "A node lets in one connection more than it takes.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-proves-itself-to-strangers",
        "A client that proved nothing is told what the node's region is, with a proof.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-fenced-asked-only-at-the-door",
        "A session is asked for a fence when it connects, not at each request.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-one-slot-too-many",
        "The slot behind the last can be claimed.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-refusal-behind-half-an-answer",
        "A refused batch leaves the begin of its answer before the refusal.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-session-gone-with-one-connection",
        "A session counts as gone when one of its connections has ended.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-fence-not-in-the-ledger",
        "A fence is answered and not written to the ledger.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-fenced-session-keeps-its-slot",
        "A session that is shut out keeps the slots that it holds.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-slot-taken-over-without-fence",
        "A slot is taken over from a session that is gone without shutting it out.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-slot-released-by-anybody",
        "Whoever asks gives a slot back, though another session holds it.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-stranger-taken-for-gone",
        "A session that the node has never seen counts as gone.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-greeted-peer-makes-room",
        "The oldest connection makes room for the next, though it has greeted.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "memory node",
        "node-drops-who-holds-least",
        "For want of memory the connection that holds least is dropped.",
        FoundBy::Nobody,
    ),
];
