//! Calls that no real client makes: truncated, changed or random words, invalid blobs, unknown
//! procedures. Each ends in an error or a reply, and the index is unchanged or as the call implies.

use super::super::wire::{self, Text};
use super::*;
use darter_fabric::{CALL_WORDS_MAX, CallFault, FabricError, GlobalAddr};

const PROCEDURES: [u64; 8] = [
    wire::GET,
    wire::PUT,
    wire::DELETE,
    wire::SCAN,
    wire::MAINTAIN,
    wire::PUBLISH,
    wire::PING,
    wire::OF_RANGE,
];

fn call(world: &mut World, procedure: u64, words: Vec<u64>) -> Result<Vec<u64>, CallFault> {
    match block_on(world.client.call(0, procedure, words)) {
        Ok(answer) => Ok(answer),
        Err(FabricError::Call(error)) => Err(error.fault),
        Err(other) => panic!("{other}"),
    }
}

/// Asserts that the index has the model's content.
fn assert_holds(world: &mut World, model: &Model, what: &str) {
    let found = block_on(world.index.scan(&mut world.client, &ScanRange::all(), usize::MAX)).unwrap();
    assert!(found.into_iter().eq(model.clone()), "{what}");
    let report = block_on(world.index.check(&mut world.client)).unwrap();
    assert_eq!(report.violations, Vec::<String>::new(), "{what}");
}

/// Returns a valid request of a procedure that changes nothing.
fn request(procedure: u64) -> Vec<u64> {
    let mut words = match procedure {
        wire::GET => vec![2, 0],
        // Insert if absent: the key is there.
        wire::PUT => vec![1, 0],
        // Delete if equal to a value that it does not have.
        wire::DELETE => vec![3],
        wire::SCAN => vec![1 | 2 << 2, 5],
        _ => Vec::new(),
    };
    let (key, other) = (16_u64.to_be_bytes(), 40_u64.to_be_bytes());
    let texts: &[&[u8]] = match procedure {
        wire::GET | wire::SCAN => &[&key, &other],
        wire::PUT => &[&key, b"value", b""],
        wire::DELETE => &[&key, b"no such value"],
        _ => &[],
    };
    for text in texts {
        wire::write(&mut words, Some(Text::Plain(text)));
    }
    words
}

#[test]
fn cut_and_unknown_calls_are_refused() {
    for options in [INLINE, FAT] {
        let (mut world, model) = loaded(options, 20);
        for procedure in PROCEDURES {
            let whole = request(procedure);
            if procedure != wire::PUBLISH && procedure != wire::OF_RANGE {
                assert!(call(&mut world, procedure, whole.clone()).is_ok(), "{procedure:#x}");
            }
            for cut in 0..whole.len() {
                let CallFault::Failed(error) =
                    call(&mut world, procedure, whole[..cut].to_vec()).unwrap_err()
                else {
                    panic!("{procedure:#x} cut to {cut} words")
                };
                assert!(error.message.contains("use the same release"), "{error}");
            }
            let max = CALL_WORDS_MAX;
            let fault = call(&mut world, procedure, vec![0; max + 1]).unwrap_err();
            assert_eq!(fault, CallFault::RequestTooLarge { words: max + 1, max });
        }
        for number in [0, 1, wire::GET - 1, wire::OF_RANGE + 1, u64::MAX] {
            assert_eq!(call(&mut world, number, vec![1, 2, 3]).unwrap_err(), CallFault::Unknown);
        }
        assert_holds(&mut world, &model, "after rejected calls");
    }
}

/// Strings supposedly in blobs at any address and of any size.
#[test]
fn blobs_that_are_none_are_refused() {
    for options in [INLINE, FAT] {
        let (mut world, model) = loaded(options, 20);
        let first = {
            let at = world.index.shared.descriptor.first();
            block_on(world.client.read_words::<1>(at)).unwrap()[0] as u32
        };
        let leaf = world.index.shared.descriptor.leaf(first);
        let mut dice = Pcg64Mcg::seed_from_u64(5);
        for turn in 0..600 {
            let addr = match turn % 4 {
                0 => GlobalAddr::NULL,
                1 => leaf,
                2 => GlobalAddr::new(0, dice.random_range(0..8 << 17) * 8),
                _ => GlobalAddr::from_bits(dice.random()),
            };
            let (procedure, mut words) = match turn % 3 {
                0 => (wire::GET, vec![1, 0]),
                1 => (wire::PUT, vec![0, 0]),
                _ => (wire::DELETE, vec![0]),
            };
            words.extend([1 << 63 | dice.random_range(0..128), addr.bits()]);
            for _ in 0..2 {
                wire::write(&mut words, Some(Text::Plain(b"")));
            }
            match call(&mut world, procedure, words) {
                // The error names the damaged or unreachable object.
                Ok(answer) => assert!(wire::outcome(&answer).is_err(), "{procedure:#x} {addr} {answer:?}"),
                Err(CallFault::Failed(error)) => assert!(!error.message.is_empty()),
                Err(other) => panic!("{other}"),
            }
        }
        assert_holds(&mut world, &model, "after invalid blobs");
    }
}

/// Random words: no call panics, and the index stays valid.
#[test]
fn calls_of_any_words_leave_an_index() {
    for options in [INLINE, FAT] {
        let (mut world, _) = loaded(options, 40);
        let mut dice = Pcg64Mcg::seed_from_u64(11);
        for turn in 0..4000 {
            let procedure = PROCEDURES[dice.random_range(0..PROCEDURES.len())];
            let mut words = request(procedure);
            words.resize(words.len() + dice.random_range(0..3), 7);
            for _ in 0..=dice.random_range(0..3) {
                if !words.is_empty() {
                    let at = dice.random_range(0..words.len());
                    words[at] = match dice.random_range(0..5) {
                        0 => u64::MAX,
                        1 => dice.random_range(0..40),
                        2 => 1 << 63 | dice.random_range(0..200),
                        3 => words[at] ^ 1 << dice.random_range(0..63),
                        _ => dice.random(),
                    };
                }
            }
            let _ = call(&mut world, procedure, words);
            if turn % 200 == 0 {
                let found = block_on(world.index.scan(&mut world.client, &ScanRange::all(), usize::MAX));
                let found: Model = found.unwrap().into_iter().collect();
                assert_holds(&mut world, &found, "after calls of random words");
            }
        }
    }
}

/// A range that does not exist, at an invalid address or that of a descriptor without a range; and
/// an invalid table.
#[test]
fn calls_of_no_range_are_refused() {
    for options in [INLINE, FAT] {
        let (mut world, model) = loaded(XStoreOptions { nodes: 0, ..options }, 20);
        let index = world.index.shared.descriptor.addr;
        let mut dice = Pcg64Mcg::seed_from_u64(5);
        for turn in 0..300_u64 {
            let addr = match turn % 3 {
                0 => index.plus(8 * (1 + dice.random_range(0..8))),
                1 => GlobalAddr::new(0, dice.random_range(0..8 << 17) * 8),
                _ => GlobalAddr::from_bits(dice.random()),
            };
            let words = [vec![addr.bits(), wire::GET], request(wire::GET)].concat();
            if addr != index && !addr.is_null() {
                let answer = call(&mut world, wire::OF_RANGE, words).unwrap();
                assert!(matches!(wire::outcome(&answer), Err(IndexError::Moved { .. })), "{addr}");
            }
            let answer = call(&mut world, wire::PUBLISH, vec![0, addr.bits()]);
            assert!(answer.is_err() || wire::outcome(&answer.unwrap()).is_err(), "{addr}");
        }
        // Called by its address, the index's own range is the server's range.
        let words = [vec![index.bits(), wire::GET], request(wire::GET)].concat();
        let answer = call(&mut world, wire::OF_RANGE, words).unwrap();
        assert!(wire::outcome(&answer).is_ok(), "{answer:?}");
        assert_holds(&mut world, &model, "after calls without a range");
    }
}

/// A value longer than the leaf's records, and a key of the wrong length.
#[test]
fn a_value_that_has_no_room_is_refused() {
    let (mut world, model) = loaded(INLINE, 20);
    for (key, value) in [(&[0; 8][..], &[7; 17][..]), (&[0; 8], &[7; 300]), (&[0; 7], b"value"), (&[], b"")] {
        let mut words = vec![0, 0];
        for text in [key, value, b""] {
            wire::write(&mut words, Some(Text::Plain(text)));
        }
        let CallFault::Failed(error) = call(&mut world, wire::PUT, words).unwrap_err() else { panic!() };
        assert!(error.message.contains("bytes"), "{error}");
        assert_holds(&mut world, &model, "after a pair that does not fit");
    }
}
