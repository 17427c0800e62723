//! Looks at pointers that a writer changes between two of their words.

use super::super::leaf::KEYS_AT;
use super::*;

/// Behind the header of a look the last pointer goes, and an insert writes another one there, which
/// has not counted yet, and never does if the server dies.
#[test]
fn a_pointer_that_does_not_count_yet_is_not_there() {
    let again = async |index: &XStore<Sim>, client: &mut Client<Sim>| {
        let [last, new] = [48_u64, 8].map(u64::to_be_bytes);
        assert!(index.delete(client, &last).await.unwrap());
        index.put(client, &new, b"not yet", Condition::Always).await.unwrap();
    };
    for words in 1..=KEYS_AT as u32 + 4 {
        for writes in [1, 2, u32::MAX] {
            let seen = look_around((FAT, 5), (8, Some(words)), again, writes);
            assert_eq!(seen, Look::Again, "after {words} words and {writes} writes");
        }
    }
}
