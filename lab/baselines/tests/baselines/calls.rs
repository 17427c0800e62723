//! One-sided operations only: none of these indexes calls a procedure of a memory node in any
//! operation.

use darter_baselines::{Art, ArtOptions, Chime, ChimeOptions, Sherman, ShermanOptions, Smart, SmartOptions};
use darter_fabric::{Counting, Endpoint, Fabric, Local, OpKind, block_on};
use darter_index::{Condition, Dart, DartOptions, OrderedIndex, Quiver, QuiverOptions, ScanRange};
use darter_pool::{Pool, PoolOptions};

type Locals = Counting<Local>;

/// Runs every kind of operation on an index of two clients; returns the round trips and the calls
/// of both.
fn mixed<I: OrderedIndex<Locals>>(options: I::Options) -> (u64, u64) {
    let fabric = Counting::new(Local::memory(64 << 20, 2).unwrap());
    assert!(fabric.capabilities().calls);
    let pool = block_on(Pool::create(fabric, &PoolOptions::default())).unwrap();
    let mut clients = [pool.client().unwrap(), pool.client().unwrap()];
    let index = block_on(I::open_or_create(&mut clients[0], options)).unwrap();
    let loaded = (0..500_u64).map(|key| ((key * 2).to_be_bytes().to_vec(), vec![7; 8]));
    block_on(index.bulk_load(&mut clients[0], loaded)).unwrap();
    for round in 0..2000_u64 {
        let client = &mut clients[round as usize % 2];
        let key = (round * 37 % 1000).to_be_bytes();
        block_on(async {
            match round % 5 {
                0 => drop(index.put(client, &key, &[8; 8], Condition::Absent).await.unwrap()),
                1 => drop(index.put(client, &key, &[9; 8], Condition::Present).await.unwrap()),
                2 => drop(index.delete(client, &key).await.unwrap()),
                3 => drop(index.scan(client, &ScanRange::all(), 20).await.unwrap()),
                _ => drop(index.get(client, &key).await.unwrap()),
            }
            if round % 100 == 0 {
                index.maintain(client).await.unwrap();
                index.adapt(client).await.unwrap();
            }
        });
    }
    block_on(index.check(&mut clients[0])).unwrap();
    let mut total = clients.map(|client| *client.endpoint().counters().unwrap());
    total[0] += total[1];
    for kind in [OpKind::Get, OpKind::Insert, OpKind::Update, OpKind::Delete, OpKind::Scan] {
        assert!(total[0][kind].round_trips > 0, "{} of {}", kind.name(), std::any::type_name::<I>());
    }
    (total[0].total().round_trips, total[0].total().calls)
}

#[test]
fn no_index_makes_a_call() {
    let costs = [
        mixed::<Dart<Locals>>(DartOptions::default()),
        mixed::<Quiver<Locals>>(QuiverOptions::default()),
        mixed::<Art<Locals>>(ArtOptions::default()),
        mixed::<Smart<Locals>>(SmartOptions::default()),
        mixed::<Sherman<Locals>>(ShermanOptions::default()),
        mixed::<Chime<Locals>>(ChimeOptions::default()),
    ];
    for (round_trips, calls) in costs {
        assert!(round_trips > 2000);
        assert_eq!(calls, 0);
    }
}
