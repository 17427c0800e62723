//! Guarantees of a model, each on the smallest case and exactly: its time is virtual.

use super::*;
use darter_fabric::{
    Batch, Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Membership, OpKind, Suspect, block_on,
};
use std::cell::{Cell, RefCell};
use std::task::{Poll, Waker};

/// A spec in which every cost is a whole number of nanoseconds.
const ROUND: &str = "cn=1,mn=1,threads=1,memory-bytes=1M,rtt-ns=2000,jitter-ns=0,cn-verbs-per-s=50M,mn-verbs-per-s=40M,\
                     nic-bits-per-s=8G,header-bytes=40,mtu-bytes=4K,inline-bytes=64,fetch-ns=300,atomics-per-s=20M,\
                     address-atomics-per-s=2500K,onchip-verbs-per-s=100M,onchip-address-atomics-per-s=50M,post-ns=80,\
                     verb-ns=30,poll-ns=100,wake-ns=100,op-ns=300";

/// Returns the round cluster with some parameters changed.
pub(super) fn model(changes: &str) -> Model {
    let changed: Vec<&str> =
        changes.split(',').filter_map(|pair| pair.split_once('=')).map(|pair| pair.0).collect();
    let kept =
        ROUND.split(',').filter(|pair| !changed.iter().any(|name| pair.starts_with(&format!("{name}="))));
    let text = kept.chain(changes.split(',')).collect::<Vec<_>>().join(",");
    Model::new(&text.parse().unwrap()).unwrap()
}

pub(super) fn at(node: u8, word: u64) -> GlobalAddr {
    GlobalAddr::new(node, word * 8)
}

/// Returns how long a batch of a lone client takes.
fn alone(model: &Model, fill: impl Fn(&mut Batch)) -> u64 {
    let took = Cell::new(0);
    let mut cluster = Cluster::new(model);
    cluster.spawn(0, async {
        let mut endpoint = model.endpoint().unwrap();
        let begin = model.now_ns();
        let mut batch = endpoint.batch();
        fill(&mut batch);
        endpoint.submit(batch).await.unwrap();
        took.set(model.now_ns() - begin);
    });
    cluster.run().unwrap();
    drop(cluster);
    took.get()
}

/// Every client posts the same batch repeatedly; returns the batches per second.
fn saturated(model: &Model, rounds: u64, fill: impl Fn(&mut Batch, Seat)) -> f64 {
    let fill = &fill;
    let client = |seat: Seat| {
        let fabric = model.compute_node(seat.compute_node);
        async move {
            let mut endpoint = fabric.endpoint().unwrap();
            for _ in 0..rounds {
                let mut batch = endpoint.batch();
                fill(&mut batch, seat);
                let done = endpoint.submit(batch).await.unwrap();
                endpoint.recycle(done);
            }
        }
    };
    let (report, clients) = Cluster::drive(model, client).unwrap();
    report.per_s(rounds * clients.len() as u64)
}

fn assert_near(rate: f64, limit: f64) {
    assert!((limit * 0.97..=limit).contains(&rate), "{rate} is not the limit {limit}");
}

#[test]
fn a_lone_clients_verbs_take_what_the_formula_says() {
    // At 8 Gbit/s a byte takes a nanosecond. Post, verb, sending NIC, request in, serving NIC,
    // reply in, poll.
    let read = |bytes: u64| 80 + 30 + 20 + 1000 + 40 + 25 + 1000 + (40 + bytes) + 100;
    assert_eq!(
        alone(&model(""), |batch| {
            batch.read(at(0, 8), 1);
        }),
        read(8)
    );
    assert_eq!(
        alone(&model(""), |batch| {
            batch.read(at(0, 8), 128);
        }),
        read(1024)
    );
    // Two packets have two headers.
    assert_eq!(
        alone(&model(""), |batch| {
            batch.read(at(0, 8), 1024);
        }),
        read(8192 + 40)
    );
    // The written words travel with the request; above the inline limit the NIC fetches them first.
    let write = |bytes: u64| 80 + 30 + 20 + 1000 + (40 + bytes) + 25 + 1000 + 40 + 100;
    assert_eq!(alone(&model(""), |batch| batch.write(at(0, 8), &[1; 8])), write(64));
    assert_eq!(alone(&model(""), |batch| batch.write(at(0, 8), &[1; 9])), write(72) + 300);
    // An atomic passes two more servers; on the chip, one instead of the engine and one more.
    let cas = 80 + 30 + 20 + 1000 + (40 + 16) + 25 + 50 + 400 + 1000 + (40 + 8) + 100;
    assert_eq!(
        alone(&model(""), |batch| {
            batch.cas(at(0, 8), 0, 1);
        }),
        cas
    );
    let chip = model("");
    assert!(chip.on_chip_memory().place(at(0, 8), 8));
    assert_eq!(
        alone(&chip, |batch| {
            batch.cas(at(0, 8), 0, 1);
        }),
        cas - 25 - 50 - 400 + 10 + 20
    );
    // Two nodes at once only add posting the second verb, and its turn at the sending NIC and in
    // receiving.
    let both = |batch: &mut Batch| {
        batch.read(at(0, 8), 1);
        batch.read(at(1, 8), 1);
    };
    assert_eq!(alone(&model("mn=2"), both), read(8) + 30 + 28 + 20);
}

#[test]
fn the_presets_have_the_round_trip_that_their_papers_tell() {
    for preset in Preset::ALL {
        let spec = ModelSpec { jitter_ns: 0, ..ModelSpec::preset(preset) };
        let took = alone(&Model::new(&spec).unwrap(), |batch| {
            batch.read(at(0, 8), 1);
        });
        assert!((1950..=2050).contains(&took), "{}: {took} ns", preset.name());
    }
}

#[test]
fn many_clients_reach_each_limit_and_none_passes_it() {
    let (many, rounds) = ("cn=4,threads=512,nic-bits-per-s=100G,memory-bytes=8M", 200);
    let own = |seat: Seat| at(0, 512 + 200 * seat.task as u64);
    let small = model(many);
    assert_near(
        saturated(&small, rounds, |batch, seat| {
            batch.read(own(seat), 1);
        }),
        40e6,
    );
    let bottleneck = small.report().bottleneck().unwrap();
    assert_eq!((bottleneck.machine.as_str(), bottleneck.resource), ("mn0", Resource::Serves));
    assert!(bottleneck.busy > 0.97 && bottleneck.to_string().starts_with("verbs served of mn0 "));

    let large = model(many);
    let wire = 100e9 / 8.0 / (1024.0 + 40.0);
    assert_near(
        saturated(&large, rounds, |batch, seat| {
            batch.read(own(seat), 128);
        }),
        wire,
    );
    assert_eq!(large.report().bottleneck().unwrap().resource, Resource::Sending);
    let written = model(many);
    assert_near(saturated(&written, rounds, |batch, seat| batch.write(own(seat), &[7; 128])), wire);
    assert_eq!(written.report().bottleneck().unwrap().resource, Resource::Receiving);

    let apart = model(many);
    assert_near(
        saturated(&apart, rounds, |batch, seat| {
            batch.faa(at(0, 512 + seat.task as u64), 1);
        }),
        20e6,
    );
    assert_eq!(apart.report().bottleneck().unwrap().resource, Resource::Atomics);
    let hot = model(many);
    assert_near(
        saturated(&hot, rounds, |batch, _| {
            batch.faa(at(0, 64), 1);
        }),
        2.5e6,
    );
    assert_eq!(hot.report().bottleneck().unwrap().resource, Resource::Address);
    assert_eq!(word(&hot, at(0, 64)), 512 * rounds);

    let chip = |addr: fn(Seat) -> GlobalAddr| {
        let model = model(many);
        assert!(model.on_chip_memory().place(at(0, 512), 4096));
        let rate = saturated(&model, rounds, |batch, seat| {
            batch.faa(addr(seat), 1);
        });
        (rate, model.report().bottleneck().unwrap().resource)
    };
    let (rate, resource) = chip(|_| at(0, 512));
    assert_near(rate, 50e6);
    assert_eq!(resource, Resource::Address);
    let (rate, resource) = chip(|seat| at(0, 512 + seat.task as u64));
    assert_near(rate, 100e6);
    assert_eq!(resource, Resource::OnChip);
}

#[test]
fn a_machine_that_is_both_has_one_nic() {
    let rate = |shared: u64| {
        let model = model(&format!("cn=2,mn=2,shared={shared},threads=400"));
        let rate = saturated(&model, 100, |batch, seat| {
            batch.read(at(seat.compute_node as u8, 8 + seat.task as u64), 32);
        });
        (rate, model.report())
    };
    // If the roles are on separate machines, a link carries the replies of one memory node;
    // together, also the requests of one compute node.
    let (apart, report) = rate(0);
    assert_near(apart, 2e9 / 296.0);
    assert_eq!(report.machines.len(), 4);
    let (together, report) = rate(2);
    assert_near(together, 2e9 / 336.0);
    let names: Vec<&str> = report.machines.iter().map(|machine| machine.name.as_str()).collect();
    assert_eq!(names, ["cn0+mn0", "cn1+mn1"]);
    assert_eq!(report.machines.iter().map(|machine| machine.verbs_served).sum::<u64>(), 40_000);
}

fn word(model: &Model, addr: GlobalAddr) -> u64 {
    let mut endpoint = model.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let id = batch.read(addr, 1);
    let begin = model.now_ns();
    let done = block_on(endpoint.submit(batch)).unwrap();
    assert_eq!(model.now_ns(), begin, "outside of tasks no time passes");
    done.words(id)[0]
}

#[test]
fn verbs_of_one_batch_to_one_node_keep_their_order() {
    // The CAS waits for its address after others'; the WRITE after it waits as well.
    let model = model("cn=1,threads=40");
    let lock = at(0, 64);
    let winners = Cell::new(0);
    let mut cluster = Cluster::new(&model);
    for thread in 0..40 {
        let (model, winners) = (&model, &winners);
        cluster.spawn(thread, async move {
            let mut endpoint = model.endpoint().unwrap();
            let mut batch = endpoint.batch();
            let cas = batch.cas(lock, 0, 1);
            let between = batch.read(lock, 1);
            batch.write(lock, &[0]);
            let done = endpoint.submit(batch).await.unwrap();
            if done.swapped(cas) {
                assert_eq!(done.words(between), [1]);
                winners.set(winners.get() + 1);
            }
        });
    }
    cluster.run().unwrap();
    drop(cluster);
    // Every CAS takes 400 ns and the WRITEs after them far less, so each finds the word free again.
    assert_eq!((winners.get(), word(&model, lock)), (40, 0));
}

#[test]
fn races_are_real() {
    let model = model("cn=2,threads=2,jitter-ns=70");
    let (counter, lost) = (at(0, 64), Cell::new(0));
    let mut cluster = Cluster::new(&model);
    for thread in 0..2 {
        let (fabric, lost) = (model.compute_node(thread), &lost);
        cluster.spawn(thread, async move {
            let mut endpoint = fabric.endpoint().unwrap();
            let mut seen = 0;
            for _ in 0..100 {
                loop {
                    let mut batch = endpoint.batch();
                    let cas = batch.cas(counter, seen, seen + 1);
                    let done = endpoint.submit(batch).await.unwrap();
                    seen = done.found(cas) + u64::from(done.swapped(cas));
                    if done.swapped(cas) {
                        break;
                    }
                    lost.set(lost.get() + 1);
                }
            }
        });
    }
    cluster.run().unwrap();
    drop(cluster);
    assert_eq!(word(&model, counter), 200);
    assert!(lost.get() > 50, "{}", lost.get());
}

#[test]
fn a_threads_coroutines_share_its_processor() {
    // Two verbs at a time hide the round trip, until only the processor's 510 ns per operation
    // remain.
    let rate = |coroutines: u64| {
        let model = model(&format!("coroutines={coroutines}"));
        let mut cluster = Cluster::new(&model);
        for seat in model.spec().seats() {
            let model = &model;
            cluster.spawn(seat.thread, async move {
                let mut endpoint = model.endpoint().unwrap();
                for _ in 0..1000 {
                    endpoint.begin(OpKind::Get);
                    let mut batch = endpoint.batch();
                    batch.read(at(0, 8), 1);
                    endpoint.submit(batch).await.unwrap();
                }
            });
        }
        cluster.run().unwrap();
        drop(cluster);
        let report = model.report();
        (report.per_s(1000 * coroutines), report)
    };
    let (one, _) = rate(1);
    assert!((one - 1e9 / (2343.0 + 300.0)).abs() < 200.0, "{one}");
    let (two, _) = rate(2);
    assert!((two / one - 2.0).abs() < 0.01, "{two}");
    let (many, report) = rate(16);
    assert_near(many, 1e9 / 510.0);
    assert_eq!(report.bottleneck().unwrap().resource, Resource::Processors);
}

/// A door that opens once.
#[derive(Default)]
struct Door {
    is_open: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Door {
    fn open(&self) {
        self.is_open.set(true);
        self.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    async fn pass(&self) {
        std::future::poll_fn(|context| {
            if self.is_open.get() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[test]
fn wakers_bring_tasks_back_at_the_time_of_waking() {
    let model = model("threads=3");
    let (door, passed) = (Door::default(), RefCell::new(Vec::new()));
    let mut cluster = Cluster::new(&model);
    for thread in 0..2 {
        let (door, passed, model) = (&door, &passed, &model);
        cluster.spawn(thread, async move {
            door.pass().await;
            passed.borrow_mut().push(model.now_ns());
        });
    }
    let (door, fabric) = (&door, &model);
    cluster.spawn(2, async move {
        let mut endpoint = fabric.endpoint().unwrap();
        endpoint.pause().await;
        fabric.work_ns(500);
        door.open();
    });
    cluster.run().unwrap();
    drop(cluster);
    // The pause, switching to the task after it, its work; then each woken task makes its thread
    // switch to it.
    assert_eq!(*passed.borrow(), [1_000_000 + 100 + 500 + 100; 2]);
}

#[test]
fn a_spin_moves_the_clock() {
    let model = model("");
    let mut cluster = Cluster::new(&model);
    let fabric = &model;
    cluster.spawn(0, async move {
        let mut spins = 0;
        std::future::poll_fn(|context| {
            spins += 1;
            context.waker().wake_by_ref();
            if fabric.now_ns() < 100_000 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        assert_eq!(spins, 1001);
    });
    cluster.run().unwrap();
}

#[test]
fn waiting_that_no_task_ends_is_an_error() {
    let model = model("threads=2");
    let door = Door::default();
    let mut cluster = Cluster::new(&model);
    let fabric = &model;
    cluster.spawn(0, async {
        let mut endpoint = fabric.endpoint().unwrap();
        endpoint.pause().await;
    });
    cluster.spawn(1, door.pass());
    let stuck = cluster.run().unwrap_err();
    assert_eq!(stuck, Stuck { waiting: 1, tasks: 2, first: 1, at_ns: 1_000_000 });
    assert!(stuck.to_string().contains("1 of 2 tasks"));
    // Another task can still wake it.
    door.open();
    cluster.run().unwrap();
}

#[test]
fn a_run_can_end_at_a_moment_and_go_on() {
    let model = model("");
    let rounds = Cell::new(0);
    let mut cluster = Cluster::new(&model);
    let (fabric, counted) = (&model, &rounds);
    cluster.spawn(0, async move {
        let mut endpoint = fabric.endpoint().unwrap();
        for _ in 0..10 {
            endpoint.pause().await;
            counted.set(counted.get() + 1);
        }
    });
    assert!(!cluster.run_until(3_500_000).unwrap());
    assert_eq!(rounds.get(), 3);
    assert!(cluster.run_until(u64::MAX).unwrap());
    assert_eq!(rounds.get(), 10);
    assert!(!block_on(async { model.endpoint().unwrap().now_ms() == 0 }));
}

#[test]
fn a_dropped_future_leaves_its_verbs_under_way() {
    let model = model("");
    let mut endpoint = model.endpoint().unwrap();
    let mut cluster = Cluster::new(&model);
    let posted = &mut endpoint;
    cluster.spawn(0, async move {
        let mut batch = posted.batch();
        batch.write(at(0, 8), &[6]);
        let mut first = Some(Box::pin(posted.submit(batch)));
        std::future::poll_fn(|context| {
            assert!(first.as_mut().unwrap().as_mut().poll(context).is_pending());
            first = None;
            Poll::Ready(())
        })
        .await;
        drop(first);
        assert_eq!(posted.in_flight(), 1);
    });
    cluster.run().unwrap();
    drop(cluster);
    assert_eq!((endpoint.in_flight(), word(&model, at(0, 8))), (0, 6));
}

#[test]
fn equal_descriptions_have_equal_times() {
    let run = |seed: u64| {
        let model = model(&format!("cn=3,mn=2,threads=24,jitter-ns=300,seed={seed}"));
        let latencies = RefCell::new(Vec::new());
        let mut cluster = Cluster::new(&model);
        for seat in model.spec().seats() {
            let (model, latencies) = (&model, &latencies);
            cluster.spawn(seat.thread, async move {
                let mut endpoint = model.compute_node(seat.compute_node).endpoint().unwrap();
                for round in 0..50 {
                    let begin = model.now_ns();
                    let mut batch = endpoint.batch();
                    batch.faa(at((round % 2) as u8, 16 + round % 7), 1);
                    batch.read(at(0, 64), 40);
                    endpoint.submit(batch).await.unwrap();
                    latencies.borrow_mut().push(model.now_ns() - begin);
                }
            });
        }
        cluster.run().unwrap();
        drop(cluster);
        (latencies.into_inner(), model.report())
    };
    let (first, again, other) = (run(1), run(1), run(2));
    assert!(first == again && first.0 != other.0);
}

#[test]
fn the_chip_takes_what_fits() {
    let model = model("onchip-bytes=64");
    assert_eq!(model.capabilities().on_chip_bytes, 64);
    assert!(model.on_chip_memory().place(at(0, 8), 48));
    assert!(model.compute_node(0).on_chip_memory().place(at(0, 9), 8), "it is already on the chip");
    assert!(!model.on_chip_memory().place(at(0, 4), 48), "it would overlap");
    assert!(!model.on_chip_memory().place(at(0, 100), 24), "the memory is full");
    assert!(model.on_chip_memory().place(at(0, 100), 16));
    for (addr, bytes) in [(at(0, 0), 0), (at(0, 50), 12), (at(1, 8), 8), (at(0, (1 << 17) - 1), 16)] {
        assert!(!model.on_chip_memory().place(addr, bytes), "{addr} {bytes}");
    }
}

#[test]
fn identities_prove_life() {
    let model = model("cn=2");
    let held = model.compute_node(1).claim(4).unwrap();
    assert_eq!(held.holder(), 2);
    assert!(matches!(model.claim(4), Err(FabricError::IdentityTaken { slot: 4 })));
    let suspect = Suspect { slot: 4, holder: 2, lapsed: true };
    assert_eq!(model.fence(suspect).unwrap(), FenceOutcome::Alive);
    drop(held);
    assert_eq!(model.fence(suspect).unwrap(), FenceOutcome::Fenced);
    model.claim(4).unwrap();
}

#[test]
fn bad_addresses_are_refused_inside_and_outside_of_time() {
    let model = model("");
    let bad = [
        (at(1, 0), "no memory node"),
        (at(0, (1 << 17) - 1), "outside"),
        (GlobalAddr::new(0, 12), "aligned"),
    ];
    let check = async {
        let mut endpoint = model.endpoint().unwrap();
        for (addr, what) in bad {
            let mut batch = endpoint.batch();
            batch.write(at(0, 8), &[9]);
            batch.write(addr, &[1, 1]);
            let error = endpoint.submit(batch).await.unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    };
    let mut cluster = Cluster::new(&model);
    cluster.spawn(0, check);
    cluster.run().unwrap();
    drop(cluster);
    assert_eq!(word(&model, at(0, 8)), 0, "no verb of a refused batch executes");
}
