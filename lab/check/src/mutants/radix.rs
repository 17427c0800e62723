//! Errors planted in what radix trees share: leaves, prefix hashes, slots, bulk loads.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "radix",
        "unsorted-load-loses-its-last-leaf",
        "A bulk load that meets a key out of order does not give back the leaf before it.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "bulk-load-skips-one-byte-too-many",
        "A bulk load leaves out the chain node where an edge skips one byte more than a slot can say.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "failed-load-keeps-its-nodes",
        "A bulk load that failed gives its leaves back and not its nodes.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "drafts-given-back-twice",
        "What was given back stays on the list of drafts and is given back again.",
        FoundBy::Explorer("dart", 30_000),
    ),
    Mutant::new(
        "radix",
        "leaf-placed-anew-with-every-try",
        "A put places another leaf with every try, and only the last is accounted for.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "scan-leaves-out-what-parts-from-its-bound",
        "A scan leaves out a subtree that parts from its lower bound inside a compressed path.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "identity-without-its-multiplication",
        "The prefix hash is cut to its upper bits without the multiplication that spreads it over them.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "lost-seal-taken-for-done",
        "A seal whose CAS was lost counts as set over what was read before.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "lost-seal-not-tried-again",
        "A slot that changed before it was sealed is copied as it is, and stays unsealed.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "scan-goes-on-after-the-next-prefix",
        "A scan that goes on behind a subtree leaves out the key that is equal to the next prefix.",
        FoundBy::Explorer("dart", 10_000),
    ),
    Mutant::new(
        "radix",
        "slot-of-a-removed-end-is-of-byte-0",
        "The tombstone of a key's end is taken for one of the edge of byte 0.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "radix",
        "index-mark-not-compared",
        "Root words of zeros are taken for those of a pool without an index.",
        FoundBy::Tests("-p darter-index --lib root_words_that_are_gone_are_damage"),
    ),
    Mutant::new(
        "radix",
        "leaf-checksum-not-compared",
        "What a leaf says is believed whatever its checksum.",
        FoundBy::Tests("-p darter-index --lib every_flipped_bit_of_a_leaf_is_noticed"),
    ),
    Mutant::new(
        "radix",
        "leaf-marked-under-its-old-checksum",
        "A leaf that is marked as a replacement has the checksum of one that is not.",
        FoundBy::Tests("-p darter-index --lib leaves_round_trip"),
    ),
];
