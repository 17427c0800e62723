//! Errors planted in the TCP fabric: hub, handshake, fencing.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "tcp",
        "tcp-lost-does-not-outweigh-unsent",
        "A batch that one node has lost and another was never sent is told as not sent.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-waker-not-replaced",
        "A future that is polled by another task still wakes the first.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-orphan-not-counted",
        "A batch given up counts as ended while its verbs are on their way.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-reply-of-any-request",
        "A reply is taken for the oldest request's, whatever id it bears.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-node-admitted-twice",
        "A node that is one of the pool's already is admitted under another number.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-control-takes-any-memory",
        "A node that came back with another memory is still asked for claims and fences.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-late-answer-taken-for-the-next",
        "A control connection whose answer did not come in time is used again, and that answer taken for the next.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-forgotten-node-keeps-its-link",
        "A node that was forgotten keeps its connection, which the next of its number inherits.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-fence-leaves-others-to-judge",
        "Once the arbiter has shut a session out, the other nodes are asked whether they think it gone.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-fence-told-to-the-arbiter-only",
        "A fence is told to the arbiter and to no other node.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-fence-passes-over-the-absent",
        "A fence counts as done though a node could not be told.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-client-nonce-of-the-session",
        "A client's nonce is the same on all its connections.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-refusal-of-anybody-believed",
        "A refusal is believed of a node that has not proven to know the token.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-hub-takes-any-memory",
        "A hub connects again to a node of the same size, whatever memory it has.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-silence-never-forgiven",
        "A node's patience runs from its first silence on, though it has answered since.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-fenced-reply-forgotten",
        "A reply that tells of a fence shuts the session out of that batch alone.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-lost-told-as-unsent",
        "A batch whose connection was lost is told as not sent.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-fenced-greeting-forgotten",
        "A greeting that tells of a fence shuts the session out of that node alone.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-answers-beyond-a-frame",
        "A frame is filled as long as its requests fit, whatever its answers take.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-one-verb-too-many",
        "A frame takes one verb more than a node does.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-later-frame-answers-from-the-first",
        "The answers of a batch's second frame are put where the first frame's verbs want theirs.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-batch-ends-with-its-first-frame",
        "A batch of several frames has ended when its first frame was answered.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-proof-of-no-session",
        "A proof is made over the nonces alone, for whatever session.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-frame-of-any-number-of-verbs",
        "A frame may have more verbs than the limit says.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-atomic-of-many-words",
        "An atomic verb may say that it has more words than one.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "tcp",
        "tcp-surplus-answer-taken",
        "A reply with more words than its verbs wanted is taken.",
        FoundBy::Nobody,
    ),
];
