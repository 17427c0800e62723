//! Readers that call the server for everything, scans among it, against calls that write.

use super::*;

#[test]
fn readers_by_call_race_writers() {
    for (options, seeds) in [(INLINE, 120), (FAT, 60)] {
        for seed in 0..seeds {
            let race = race_with([0, 0], options, seed, (199, u64::MAX));
            assert_eq!(race.routed.get(), 0, "something was read by models");
        }
    }
}
