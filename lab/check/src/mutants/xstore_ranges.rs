//! Errors planted in how XStore's ranges give keys to other nodes.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "XStore",
        "xstore-range-before-its-leaves",
        "A table leads to a range whose leaves are not written yet.",
        FoundBy::Tests("--package darter-baselines --lib giving_leaves_survives_its_server"),
    ),
    Mutant::new(
        "XStore",
        "xstore-given-leaves-stay-at-rest",
        "A leaf that was given away is at rest still: readers prove by it what its keys were.",
        FoundBy::Tests("--package darter-baselines --lib readers_race_leaves_that_are_given"),
    ),
    Mutant::new(
        "XStore",
        "xstore-server-of-moved-keys",
        "A server goes on to answer for keys that it has given away.",
        FoundBy::Tests("--package darter-baselines --lib keys_go_to_another_node"),
    ),
    Mutant::new(
        "XStore",
        "xstore-half-done-gift-forgotten",
        "A server that begins leaves the last leaf of its range leading to what the one before has given away.",
        FoundBy::Tests("--package darter-baselines --lib giving_leaves_survives_its_server"),
    ),
    Mutant::new(
        "XStore",
        "xstore-gift-keeps-the-generation",
        "Leaves that were given away are freed in the generation whose tables lead to them.",
        FoundBy::Tests("--package darter-baselines --lib readers_race_leaves_that_are_given"),
    ),
    Mutant::new(
        "XStore",
        "xstore-table-read-once",
        "A client reads the table of ranges once, and goes on to call the server that had a key then.",
        FoundBy::Tests("--package darter-baselines --lib keys_go_to_another_node"),
    ),
    Mutant::new(
        "XStore",
        "xstore-scan-below-all-keys-moves",
        "A server says of a scan in reverse from below all keys that they are another server's.",
        FoundBy::Tests("--package darter-baselines --lib a_scan_below_all_keys_is_the_first_ranges"),
    ),
    Mutant::new(
        "XStore",
        "xstore-scan-begins-again-when-keys-move",
        "A scan that was told in the middle of a range that keys have moved begins that range again.",
        FoundBy::Tests("--package darter-baselines --lib a_scan_goes_on_behind_what_was_given"),
    ),
    Mutant::new(
        "XStore",
        "xstore-gives-again-one-epoch-late",
        "A full range waits for one epoch more than garbage makes pass, and gives nothing away a second time.",
        FoundBy::Tests("--package darter-baselines --test xstore a_node_that_fills_gives_its_keys_away"),
    ),
    Mutant::new(
        "XStore",
        "xstore-overtaken-load-says-moved",
        "A bulk load that another one has overtaken says that keys have moved, as if it had been in their way.",
        FoundBy::Tests("--package darter-baselines --test xstore a_load_that_another_overtakes_finds_keys"),
    ),
    Mutant::new(
        "XStore",
        "xstore-stays-shut-out-without-a-range",
        "A server that owns no range, and was shut out, keeps the membership that it no longer has.",
        FoundBy::Tests("--package darter-baselines --lib a_server_without_a_range_comes_back"),
    ),
    Mutant::new(
        "XStore",
        "xstore-table-freed-at-once",
        "A table of ranges is freed as soon as another has taken its place: the word may be what a late CAS expects.",
        FoundBy::Tests("--package darter-baselines --lib a_table_that_was_read_does_not_come_back"),
    ),
    Mutant::new(
        "XStore",
        "xstore-table-known-by-its-address",
        "A client takes a table of ranges for the one that it has read if it lies where that one lay.",
        FoundBy::Tests("--package darter-baselines --lib a_table_where_an_older_one_lay_is_another"),
    ),
];
