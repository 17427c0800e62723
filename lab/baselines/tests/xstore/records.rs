//! Values in leaves, which the general tests cannot cover because their keys have any length; and
//! the view of the server's own process.

use crate::common::{Bench, Model, Tested};
use darter_baselines::{XStore, XStoreOptions, XStoreService};
use darter_fabric::decorate::{FailPoint, Failing};
use darter_fabric::{CallFault, Fabric, FabricError, Local, block_on};
use darter_index::{Condition, IndexError, OrderedIndex, ScanRange};
use darter_pool::{Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Values of up to 24 bytes.
struct Inline;

impl Tested for Inline {
    type Index<F: Fabric> = XStore<F>;

    fn options<F: Fabric>() -> XStoreOptions {
        XStoreOptions { value_words: 3, ..XStoreOptions::default() }
    }
}

fn random_value(dice: &mut Pcg64Mcg) -> Vec<u8> {
    let length = dice.random_range(0..25_usize);
    (0..length).map(|_| dice.random::<u8>()).collect()
}

#[test]
fn leaves_with_values_behave_like_a_map() {
    let mut bench = Bench::<Inline>::new(2);
    let (mut model, mut dice) = (Model::new(), Pcg64Mcg::seed_from_u64(7));
    for turn in 0..20_000 {
        let key = (dice.random_range(0..1500_u64) << 40).to_be_bytes().to_vec();
        match dice.random_range(0..8) {
            0..5 => {
                let value = random_value(&mut dice);
                block_on(bench.index.put(&mut bench.client, &key, &value, Condition::Always)).unwrap();
                model.insert(key, value);
            }
            5 | 6 => assert_eq!(bench.delete(&key), model.remove(&key).is_some()),
            _ => assert_eq!(bench.get(&key), model.get(&key).cloned()),
        }
        if turn % 4000 == 0 {
            bench.assert_holds(&model);
        }
    }
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
    for key in model.keys() {
        assert!(bench.delete(key));
    }
    bench.assert_sound(0);
    let pairs: Vec<_> = (0..5000_u64).map(|n| (n.to_be_bytes().to_vec(), n.to_le_bytes().to_vec())).collect();
    let model: Model = pairs.iter().cloned().collect();
    block_on(bench.index.bulk_load(&mut bench.client, pairs.clone().into_iter())).unwrap();
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
    let error = block_on(bench.index.bulk_load(&mut bench.client, pairs.into_iter())).unwrap_err();
    assert!(matches!(error, IndexError::NotEmpty), "{error}");
    let mut bench = bench.reopened();
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
}

#[test]
fn other_lengths_are_refused() {
    let mut bench = Bench::<Inline>::new(1);
    let (index, client) = (bench.index.clone(), &mut bench.client);
    let error = block_on(index.put(client, &[1; 7], &[1; 8], Condition::Always)).unwrap_err();
    assert!(matches!(error, IndexError::WrongLength { what: "key", bytes: 7, expected: 8 }), "{error}");
    let error = block_on(index.put(client, &[1; 8], &[1; 25], Condition::Always)).unwrap_err();
    assert!(matches!(error, IndexError::ValueTooLong { bytes: 25, max: 24 }), "{error}");
    assert!(block_on(index.get(client, b"")).is_err());
}

/// A server's pool handle, whose records can be compared with the reachable objects.
#[test]
fn a_server_leaks_nothing() {
    for value_words in [0, 3] {
        let memory = Local::memory(64 << 20, 2).unwrap();
        let own = block_on(Pool::create(memory.clone(), &PoolOptions::default())).unwrap();
        let options = XStoreOptions { value_words, ..XStoreOptions::default() };
        let mut own_client = own.client().unwrap();
        block_on(XStore::create(&mut own_client, options)).unwrap();
        let service = XStoreService::of(&own);
        block_on(service.start()).unwrap();
        let served = memory.with_procedures(0, service.procedures()).unwrap();
        let pool = block_on(Pool::open(served)).unwrap();
        let mut client = pool.client().unwrap();
        block_on(async {
            let index = XStore::open(&mut client, options).await.unwrap();
            let mut dice = Pcg64Mcg::seed_from_u64(3);
            for _ in 0..3000 {
                let key = dice.random_range(0..500_u64).to_be_bytes();
                if dice.random_range(0..3) == 0 {
                    index.delete(&mut client, &key).await.unwrap();
                } else {
                    index.put(&mut client, &key, &random_value(&mut dice), Condition::Always).await.unwrap();
                }
            }
            for _ in 0..32 {
                pool.maintain(&mut client).await.unwrap();
                index.maintain(&mut client).await.unwrap();
            }
            let report = index.check(&mut client).await.unwrap();
            assert_eq!(report.violations, Vec::<String>::new());
            let audit = own.audit(&mut own_client, &report.reachable).await.unwrap();
            assert_eq!(audit.violations, Vec::<String>::new());
            assert_eq!(audit.own_leaked_bytes, 0, "{value_words} words");
        });
    }
}

/// Replies to the server's own verbs are lost, one at a time, while it inserts, splits and deletes:
/// verbs that took effect nevertheless are known afterwards.
#[test]
fn a_server_goes_on_when_its_own_replies_are_lost() {
    for value_words in [0, 3] {
        let memory = Local::memory(64 << 20, 1).unwrap();
        let failing = Failing::new(memory.clone());
        let plan = failing.plan().clone();
        let own = block_on(Pool::create(failing, &PoolOptions::default())).unwrap();
        let options = XStoreOptions { value_words, ..XStoreOptions::default() };
        block_on(XStore::create(&mut own.client().unwrap(), options)).unwrap();
        let service = XStoreService::of(&own);
        block_on(service.start()).unwrap();
        let pool = block_on(Pool::open(memory.with_procedures(0, service.procedures()).unwrap())).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(XStore::open(&mut client, options)).unwrap();
        let (mut model, mut failures) = (Model::new(), 0);
        for number in 0..120_u64 {
            let key = (number * 37 % 101 * 5).to_be_bytes();
            for at in 0.. {
                plan.fail_once(FailPoint::Reply(at));
                let outcome = block_on(async {
                    if number % 5 == 4 {
                        index.delete(&mut client, &key).await.map(drop)
                    } else {
                        index.put(&mut client, &key, &number.to_be_bytes(), Condition::Always).await.map(drop)
                    }
                });
                let failed = plan.has_failed();
                plan.heal();
                failures += u32::from(outcome.is_err());
                if !failed {
                    outcome.unwrap();
                    break;
                }
            }
            if number % 5 == 4 {
                model.remove(&key[..]);
            } else {
                model.insert(key.to_vec(), number.to_be_bytes().to_vec());
            }
            let all = block_on(index.scan(&mut client, &ScanRange::all(), usize::MAX)).unwrap();
            assert!(all.into_iter().eq(model.clone()), "after {number} operations");
        }
        assert!(failures > 200, "only {failures} failures");
        let report = block_on(index.check(&mut client)).unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
    }
}

/// Long keys and values, expected values, and many keys at a time, in requests that have to stay
/// short.
#[test]
fn long_strings_pass_by_blobs() {
    struct Any;
    impl Tested for Any {
        type Index<F: Fabric> = XStore<F>;
    }
    let mut bench = Bench::<Any>::new(2);
    let (index, client) = (bench.index.clone(), &mut bench.client);
    let mut model = Model::new();
    for number in 0..6_u8 {
        model.insert(vec![number; 60_000], vec![number + 1; 1 << 20]);
    }
    block_on(async {
        for (key, value) in &model {
            index.put(client, key, value, Condition::Absent).await.unwrap();
        }
        let keys: Vec<&[u8]> = model.keys().map(|key| &key[..]).collect();
        let values = index.multi_get(client, &keys).await.unwrap();
        assert!(values.iter().map(Option::as_ref).eq(model.values().map(Some)));
        let (key, value) = model.first_key_value().unwrap();
        let other = vec![9; 1 << 20];
        assert!(!index.delete_when(client, key, Condition::Equals(&other)).await.unwrap());
        assert!(index.delete_when(client, key, Condition::Equals(value)).await.unwrap());
        let many: Vec<Vec<u8>> = (0..256_u16).map(|n| [&n.to_be_bytes()[..], &[7; 500]].concat()).collect();
        let many: Vec<&[u8]> = many.iter().map(|key| &key[..]).collect();
        assert!(index.multi_get(client, &many).await.unwrap().iter().all(Option::is_none));
        assert_eq!(index.scan(client, &ScanRange::all(), 3).await.unwrap().len(), 3);
    });
    model.pop_first();
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
}

/// Without a server an operation returns an error.
#[test]
fn without_a_server_calls_fail() {
    let memory = Local::memory(8 << 20, 1).unwrap();
    let options = PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() };
    let pool = block_on(Pool::create(memory, &options)).unwrap();
    let mut client = pool.client().unwrap();
    let index = block_on(XStore::create(&mut client, XStoreOptions::default())).unwrap();
    match block_on(index.get(&mut client, b"key")).unwrap_err() {
        IndexError::Fabric(FabricError::Call(error)) => assert_eq!(error.fault, CallFault::NoServer),
        error => panic!("{error}"),
    }
}
