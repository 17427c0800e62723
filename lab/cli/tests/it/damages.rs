//! `darter-lab damages`: every kind of pool, damaged and read.

use crate::common::{darter, said};

/// Returns the numbers of rounds that were right, named the damage, and were wrong, in the lines of
/// a table that begin with a word.
fn counts(table: &str, begins: &str) -> [u64; 3] {
    let mut sums = [0; 3];
    for line in table.lines().filter(|line| line.starts_with(begins)) {
        let numbers: Vec<u64> =
            line.split_whitespace().rev().take(3).map(|word| word.parse().unwrap()).collect();
        (0..3).for_each(|at| sums[at] += numbers[2 - at]);
    }
    sums
}

#[test]
fn damages_of_files_and_logs_are_counted_and_none_gives_a_wrong_answer() {
    for (kind, begins) in [("file", "pool file,"), ("node", "log,")] {
        let table = said(&darter(&["damages", "--rounds", "27", "--only", kind]));
        let [right, named, wrong] = counts(&table, begins);
        assert_eq!(right + named + wrong, 27, "{table}");
        assert!(right > 0 && named > 0 && wrong == 0, "{table}");
        assert!(table.ends_with("27 damages, 0 wrong\n"), "{table}");
    }
}
