//! WORT (FAST 2017): figures, and the numbers that the text gives. There: 128 M keys of 8 bytes, in
//! three distributions, on one thread of a machine with 15 MB of last-level cache, whose DRAM is
//! slowed down to the latencies of persistent memory (section 4). `FPTree`, `NVTree`, `wB+Tree` and
//! the B+ tree are not here, and neither are numbers that are in relation to them.

use super::claim::Claim;
use super::gateway_figure::{self, GatewayFigure};
use super::line_figure::{LineFigure, LinePoint, LineQuantity, Row, Rows};
use super::line_study::{Latencies, Operation};
use super::quantity::{Span, Stated};

const fn ns(read: u32, write: u32) -> Latencies {
    Latencies { read, write }
}

/// As the paper's DRAM.
const DRAM: &[Latencies] = &[ns(100, 100)];
/// Either latency raised, the other that of DRAM.
const RAISED: &[Latencies] = &[
    ns(100, 100),
    ns(100, 300),
    ns(100, 500),
    ns(100, 700),
    ns(100, 900),
    ns(300, 100),
    ns(500, 100),
    ns(700, 100),
    ns(900, 100),
];
const SEARCHES: &[Latencies] = &[ns(100, 100), ns(300, 100)];
/// As many keys as 0.001% and 0.01% of the paper's 128 M.
const RANGES: &[Operation] = &[Operation::Range(1280), Operation::Range(12_800)];

/// Table 1's rows of three numbers, one for each distribution.
macro_rules! table {
    ($($operation:literal $quantity:ident $what:literal {
        $($name:literal $index:literal: $dense:literal $sparse:literal $clustered:literal;)*
    })*) => {
        &[$($(
            table!(@ $operation, $quantity, $what, $name, $index, "dense", $dense),
            table!(@ $operation, $quantity, $what, $name, $index, "sparse", $sparse),
            table!(@ $operation, $quantity, $what, $name, $index, "clustered", $clustered),
        )*)*]
    };
    (@ $operation:literal, $quantity:ident, $what:literal, $name:literal, $index:literal, $keys:literal, $said:literal) => {
        LinePoint {
            section: "5.1, Table 1",
            statement: concat!($name, ", ", $keys, ": ", $said, " ", $what),
            value: $said,
            quantity: LineQuantity::$quantity,
            operation: $operation,
            index: $index,
            keys: $keys,
        }
    };
}

const TABLE: &[LinePoint] = table! {
    "insert" Missed "LLC misses an insertion" {
        "WORT" "wort": 6.3 7.2 17.0;
        "WOART" "wort+woart": 5.7 7.9 11.2;
        "ART+CoW" "wort+artcow": 5.0 12.7 12.9;
    }
    "insert" Flushed "lines flushed an insertion" {
        "WORT" "wort": 2.2 2.4 2.3;
        "WOART" "wort+woart": 2.4 3.5 3.7;
        "ART+CoW" "wort+artcow": 2.4 3.8 3.9;
    }
    "search" Missed "LLC misses a search" {
        "WORT" "wort": 6.5 7.6 11.5;
        "WOART" "wort+woart": 4.8 7.9 8.9;
        "ART+CoW" "wort+artcow": 3.8 6.2 8.8;
    }
    "insert" Depth "nodes above a leaf" {
        "WORT" "wort": 7.0 7.0 8.2;
        "WOART" "wort+woart": 4.0 4.0 4.2;
        "ART+CoW" "wort+artcow": 4.0 4.0 4.2;
    }
};

/// The ratios of numbers of some rows to those of the others with the same index or keys.
fn ratios<'r>(
    own: impl Iterator<Item = &'r Row>,
    others: &(impl Iterator<Item = &'r Row> + Clone),
    is_comparable: fn(&Row, &Row) -> bool,
    of: impl Fn(&Row) -> f64,
) -> Option<Span> {
    let of = &of;
    Span::of(own.flat_map(|one| {
        let beside = others.clone().filter(|other| is_comparable(one, other));
        beside.map(move |other| of(one) / of(other))
    }))
}

/// What inserts of clustered keys take in relation to those of others into the same tree.
fn clustered_to_others(rows: &Rows) -> Option<Span> {
    let inserts = rows.at("insert", 100, 100);
    let (clustered, others) = (inserts.clone(), inserts.filter(|row| row.keys != "clustered"));
    let clustered = clustered.filter(|row| row.keys == "clustered");
    ratios(clustered, &others, |one, other| one.index == other.index, |row| row.ns)
}

/// What a search in ART+CoW takes in relation to one in the others with the same keys.
fn artcow_to_others(rows: &Rows) -> Option<Span> {
    let searches = rows.at("search", 100, 100);
    let (own, others) = (searches.clone(), searches.filter(|row| row.index != "wort+artcow"));
    let own = own.filter(|row| row.index == "wort+artcow");
    ratios(own, &others, |one, other| one.keys == other.keys, |row| row.ns)
}

/// What slower reads add to the others' searches in relation to WORT's, with dense and with
/// clustered keys.
fn slowed_to_worts(rows: &Rows) -> Option<Span> {
    let added = |slow: &Row| {
        let fast = rows.at("search", 100, 100).find(|row| (row.index, row.keys) == (slow.index, slow.keys));
        fast.map_or(f64::NAN, |fast| slow.ns - fast.ns)
    };
    let slow = rows.at("search", 300, 100).filter(|row| row.keys != "sparse");
    let (worts, others) = (slow.clone(), slow.filter(|row| row.index != "wort"));
    let worts = worts.filter(|row| row.index == "wort");
    ratios(others, &worts, |one, other| one.keys == other.keys, added)
}

pub(super) const FIGURES: &[LineFigure] = &[
    LineFigure {
        name: "wort-table1",
        title: "Lines missed, lines flushed, and depth",
        differs: "FPTree, NVTree and wB+Tree are not here; with fewer records trees are less deep, by a byte or two half \
                  bytes at 500 thousand; misses are those of a modelled cache",
        operations: &[Operation::Insert, Operation::Search],
        latencies: DRAM,
        points: TABLE,
        claims: &[],
    },
    LineFigure {
        name: "wort-fig7",
        title: "Insertion at the latency of DRAM",
        differs: "FPTree, NVTree and wB+Tree are not here",
        operations: &[Operation::Insert],
        latencies: DRAM,
        points: &[],
        claims: &[Claim {
            section: "5.1",
            statement: "clustered keys take roughly 1.5 times as long as the other two",
            stated: Stated::About(1.5),
            ours: clustered_to_others,
        }],
    },
    LineFigure {
        name: "wort-fig8",
        title: "Insertion with slower reads and with slower writes",
        differs: "the text gives no numbers for it, and not the latencies either; FPTree, NVTree and wB+Tree are not here",
        operations: &[Operation::Insert],
        latencies: RAISED,
        points: &[],
        claims: &[],
    },
    LineFigure {
        name: "wort-fig9",
        title: "Search with slower reads",
        differs: "FPTree, NVTree and wB+Tree are not here",
        operations: &[Operation::Search],
        latencies: SEARCHES,
        points: &[],
        claims: &[
            Claim {
                section: "5.2",
                statement: "ART+CoW is the fastest with all keys: below 1 times the others' time",
                stated: Stated::Below(1.0),
                ours: artcow_to_others,
            },
            Claim {
                section: "5.2",
                statement: "slower reads cost WORT most with dense and clustered keys: the others below 1 times what it loses",
                stated: Stated::Below(1.0),
                ours: slowed_to_worts,
            },
        ],
    },
    LineFigure {
        name: "wort-fig10",
        title: "Range queries",
        differs: "as many keys as 0.001% and 0.01% of the paper's; all numbers of the text are in relation to B+ trees, FPTree, \
                  NVTree and wB+Tree, which are not here",
        operations: RANGES,
        latencies: DRAM,
        points: &[],
        claims: &[],
    },
];

/// What slower memory makes of a GET.
fn slowdown_of_gets(rows: &gateway_figure::Rows) -> Option<Span> {
    Span::of(rows.of("GET").map(gateway_figure::Row::slowdown))
}

pub(super) const OVER_GATEWAYS: &[GatewayFigure] = &[GatewayFigure {
    name: "wort-fig11",
    title: "SET and GET of a server over each tree",
    differs: "a gateway instead of Memcached, whose records have heads and whose SETs read before they write; clients on \
              the same machine; FPTree and wB+Tree are not here, and neither are numbers that are in relation to them",
    claims: &[Claim {
        section: "5.4",
        statement: "GETs take the same at reads of 100 and of 300 ns: 1 times",
        stated: Stated::About(1.0),
        ours: slowdown_of_gets,
    }],
}];
