//! SMART under the tests that every index must pass: without locks, with all of its techniques, and
//! with locks but without the others.

use crate::common::{Tested, index_tests};
use darter_baselines::{Smart, SmartOptions};
use darter_fabric::{Fabric, OpKind, block_on};
use darter_index::{Condition, IndexError, OrderedIndex, PutOutcome, ScanRange};

struct LockFree;

impl Tested for LockFree {
    type Index<F: Fabric> = Smart<F>;

    const CASES: u32 = 8;

    fn options<F: Fabric>() -> SmartOptions {
        SmartOptions::lock_free()
    }
}

struct InPlace;

impl Tested for InPlace {
    type Index<F: Fabric> = Smart<F>;

    const CASES: u32 = 8;
}

struct Bare;

impl Tested for Bare {
    type Index<F: Fabric> = Smart<F>;

    const CASES: u32 = 8;

    fn options<F: Fabric>() -> SmartOptions {
        SmartOptions {
            cache_bytes: 0,
            rear_lock: false,
            read_delegation: false,
            write_combining: false,
            reverse_check: false,
            ..SmartOptions::default()
        }
    }
}

mod lock_free {
    use super::*;
    index_tests!(LockFree);
}

mod in_place {
    use super::*;
    index_tests!(InPlace);
}

mod bare {
    use super::*;
    index_tests!(Bare);
}

/// A client died while writing a leaf in place: reads of its key fail until the key is put again or
/// deleted, and no client waits for the lock. Other keys are not affected.
#[test]
fn a_value_lost_in_write_is_said_to_be() {
    let mut bench = crate::common::Bench::<InPlace>::new(1);
    let put = |bench: &mut crate::common::Bench<InPlace>, key: &[u8], condition: Condition<'_>| {
        block_on(bench.index.put(&mut bench.client, key, b"a value!", condition))
    };
    assert_eq!(put(&mut bench, b"some key", Condition::Always).unwrap(), PutOutcome::Inserted);
    let report = bench.check();
    let (leaf, _) = report.reachable.iter().find(|(_, bytes)| *bytes == 48).unwrap();
    // Names without a holder: one that a long dead client leaves in a lock; and 0, as damage leaves
    // it.
    for (lock, is_deleted) in [(u64::MAX, false), (0, false), (u64::MAX, true)] {
        let pool = bench.pool.clone();
        let mut client = pool.client().unwrap();
        block_on(async {
            let mut client = client.pin(OpKind::Maintain).await.unwrap();
            let mut batch = client.batch();
            batch.write(leaf.plus(24), &[0x7475_6f20_6c61_6820, lock]);
            let done = client.submit(batch).await.unwrap();
            client.recycle(done);
        });
        let lost = |error: IndexError| assert!(matches!(error, IndexError::LostInWrite { .. }), "{error}");
        lost(block_on(bench.index.get(&mut bench.client, b"some key")).unwrap_err());
        lost(block_on(bench.index.get(&mut bench.client, b"some key")).unwrap_err());
        lost(block_on(bench.index.scan(&mut bench.client, &ScanRange::all(), 10)).unwrap_err());
        lost(block_on(bench.index.multi_get(&mut bench.client, &[b"x", b"some key"])).unwrap_err());
        lost(put(&mut bench, b"some key", Condition::Equals(b"a value!")).unwrap_err());
        assert_eq!(put(&mut bench, b"some key", Condition::Absent).unwrap(), PutOutcome::Refused);
        assert_eq!(bench.get(b"another"), None);
        if is_deleted {
            assert!(bench.delete(b"some key"));
            assert_eq!(bench.get(b"some key"), None);
        } else {
            assert_eq!(put(&mut bench, b"some key", Condition::Present).unwrap(), PutOutcome::Replaced);
            assert_eq!(bench.get(b"some key"), Some(b"a value!".to_vec()));
        }
    }
    bench.assert_sound(0);
}
