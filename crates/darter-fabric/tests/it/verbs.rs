//! Verbs on local memory: their effects, refusals before any access to a word, and concurrency.
//! Small enough for Miri, which runs them on the heap.

use darter_fabric::{
    Batch, Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Local, Membership, OFFSET_LIMIT, Suspect,
    block_on,
};

const NODE_BYTES: u64 = 64 << 10;

/// Submits one batch that `build` fills, and returns it completed.
fn post<E: Endpoint, R>(
    endpoint: &mut E,
    build: impl FnOnce(&mut Batch) -> R,
) -> Result<(Batch, R), FabricError> {
    let mut batch = endpoint.batch();
    let ids = build(&mut batch);
    Ok((block_on(endpoint.submit(batch))?, ids))
}

#[test]
fn each_verb_does_what_it_says() {
    let pool = Local::memory(NODE_BYTES, 2).unwrap();
    let mut endpoint = pool.endpoint().unwrap();
    let at = GlobalAddr::new(1, NODE_BYTES - 32);
    let (batch, (cas, lost, faa, read)) = post(&mut endpoint, |batch| {
        batch.write(at, &[1, 2, 3, 4]);
        let cas = batch.cas(at, 1, 10);
        let lost = batch.cas(at.plus(8), 1, 10);
        let faa = batch.faa(at.plus(16), u64::MAX);
        (cas, lost, faa, batch.read(at, 4))
    })
    .unwrap();
    assert!(batch.swapped(cas) && !batch.swapped(lost));
    assert_eq!((batch.found(cas), batch.found(lost), batch.fetched(faa)), (1, 2, 3));
    assert_eq!(batch.words(read), [10, 2, 2, 4]);
    endpoint.recycle(batch);
    // The other node is another region.
    let (batch, read) =
        post(&mut endpoint, |batch| batch.read(GlobalAddr::new(0, NODE_BYTES - 32), 4)).unwrap();
    assert_eq!(batch.words(read), [0; 4]);
}

#[test]
fn a_batch_executes_in_posting_order() {
    let pool = Local::memory(NODE_BYTES, 1).unwrap();
    let mut endpoint = pool.endpoint().unwrap();
    let at = GlobalAddr::new(0, 128);
    let (batch, (before, after)) = post(&mut endpoint, |batch| {
        let before = batch.read(at, 1);
        batch.write(at, &[1]);
        batch.write(at, &[2]);
        (before, batch.read(at, 1))
    })
    .unwrap();
    assert_eq!((batch.words(before), batch.words(after)), (&[0][..], &[2][..]));
}

#[test]
fn refused_verbs_touch_nothing() {
    let pool = Local::memory(NODE_BYTES, 2).unwrap();
    let mut endpoint = pool.endpoint().unwrap();
    let end = GlobalAddr::new(0, NODE_BYTES);
    // Each would reach into node 1 or beyond it.
    let mut refused = |name: &str, build: &dyn Fn(&mut Batch)| {
        let mut batch = endpoint.batch();
        build(&mut batch);
        let error = block_on(endpoint.submit(batch)).err();
        assert!(matches!(error, Some(FabricError::OutOfBounds(_))), "{name}: {error:?}");
    };
    refused("write over the end", &|batch| batch.write(GlobalAddr::new(0, NODE_BYTES - 8), &[1, 2]));
    refused("write at the end", &|batch| batch.write(end, &[1]));
    refused("cas", &|batch| {
        batch.cas(end, 0, 1);
    });
    refused("faa", &|batch| {
        batch.faa(end, 1);
    });
    refused("read", &|batch| {
        batch.read(end, 1);
    });
    refused("two reads, prefetched", &|batch| {
        batch.read(GlobalAddr::new(255, OFFSET_LIMIT - 8), 8);
        batch.read(GlobalAddr::new(255, OFFSET_LIMIT - 8), 8);
    });
    refused("no such node", &|batch| {
        batch.read(GlobalAddr::new(2, 0), 1);
    });
    refused("largest offset", &|batch| {
        batch.read(GlobalAddr::new(1, OFFSET_LIMIT - 8), 1);
    });

    for offset in 1..8 {
        let result = post(&mut endpoint, |batch| batch.faa(GlobalAddr::new(0, offset), 1));
        assert!(matches!(result, Err(FabricError::Misaligned { .. })), "{offset}");
    }
    let error = post(&mut endpoint, |batch| batch.cas(GlobalAddr::new(9, 8), 0, 1)).unwrap_err();
    assert!(error.to_string().contains("darter check"), "{error}");

    let (batch, ids) = post(&mut endpoint, |batch| {
        [0, 1].map(|node| batch.read(GlobalAddr::new(node, 0), NODE_BYTES as usize / 8))
    })
    .unwrap();
    assert!(ids.iter().all(|id| batch.words(*id).iter().all(|word| *word == 0)));
}

#[test]
fn verbs_of_no_words_are_harmless() {
    let pool = Local::memory(NODE_BYTES, 1).unwrap();
    let mut endpoint = pool.endpoint().unwrap();
    let (batch, read) = post(&mut endpoint, |batch| {
        batch.write(GlobalAddr::new(0, NODE_BYTES), &[]);
        batch.read(GlobalAddr::new(0, NODE_BYTES), 0)
    })
    .unwrap();
    assert!(batch.words(read).is_empty());
    assert!(post(&mut endpoint, |_| ()).unwrap().0.is_empty());
}

#[test]
fn a_recycled_batch_begins_empty() {
    let pool = Local::memory(NODE_BYTES, 1).unwrap();
    let mut endpoint = pool.endpoint().unwrap();
    for _ in 0..20 {
        let (batch, read) = post(&mut endpoint, |batch| batch.read(GlobalAddr::NULL, 2)).unwrap();
        assert_eq!((batch.len(), batch.words(read)), (1, &[0, 0][..]));
        endpoint.recycle(batch);
    }
    assert!(endpoint.batch().is_empty());
}

#[test]
fn counts_of_many_threads_add_up() {
    let (threads, rounds) = if cfg!(miri) { (2, 20) } else { (4, 20_000) };
    let pool = Local::memory(NODE_BYTES, 1).unwrap();
    let (sum, cell) = (GlobalAddr::new(0, 64), GlobalAddr::new(0, 128));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut endpoint = pool.endpoint().unwrap();
                for _ in 0..rounds {
                    let (mut batch, _) = post(&mut endpoint, |batch| batch.faa(sum, 1)).unwrap();
                    let mut expected = 0;
                    loop {
                        endpoint.recycle(batch);
                        let (done, cas) =
                            post(&mut endpoint, |batch| batch.cas(cell, expected, expected + 1)).unwrap();
                        expected = done.found(cas);
                        batch = done;
                        if batch.swapped(cas) {
                            break;
                        }
                    }
                    endpoint.recycle(batch);
                }
            });
        }
    });
    let mut endpoint = pool.endpoint().unwrap();
    let (batch, ids) = post(&mut endpoint, |batch| [sum, cell].map(|at| batch.read(at, 1))).unwrap();
    assert_eq!(ids.map(|id| batch.words(id)[0]), [threads * rounds; 2]);
}

/// A reader of a word that was published by CAS sees everything written before it, in the same
/// batch or in an earlier one.
#[test]
fn what_was_written_before_a_published_word_is_seen() {
    let rounds = if cfg!(miri) { 8 } else { 20_000 };
    let pool = Local::memory(NODE_BYTES, 1).unwrap();
    let (slot, leaves) = (GlobalAddr::new(0, 64), GlobalAddr::new(0, 4096));
    let leaf = |version: u64| leaves.plus(version % 64 * 64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut endpoint = pool.endpoint().unwrap();
            for version in 1..=rounds {
                let (batch, cas) = post(&mut endpoint, |batch| {
                    batch.write(leaf(version), &[version; 8]);
                    batch.cas(slot, version - 1, version)
                })
                .unwrap();
                assert!(batch.swapped(cas));
                endpoint.recycle(batch);
            }
        });
        let mut endpoint = pool.endpoint().unwrap();
        let mut seen = 0;
        while seen < rounds {
            let (batch, read) = post(&mut endpoint, |batch| batch.read(slot, 1)).unwrap();
            seen = batch.words(read)[0];
            endpoint.recycle(batch);
            let (batch, read) = post(&mut endpoint, |batch| batch.read(leaf(seen), 8)).unwrap();
            // Newer versions may have reused the leaf since, but not older ones.
            assert!(batch.words(read).iter().all(|word| *word >= seen));
            endpoint.recycle(batch);
            std::thread::yield_now();
        }
    });
}

/// Two threads write their own word and then read the other's, in one batch or in two: at least one
/// must see the other's write. A store left in the store buffer would break this.
#[test]
fn a_completed_write_is_visible_before_a_later_read() {
    let rounds: u64 = if cfg!(miri) { 5 } else { 20_000 };
    let pool = Local::memory(NODE_BYTES, 1).unwrap();
    let barrier = std::sync::Barrier::new(2);
    for split in [false, true] {
        let run = |me: u64| {
            let mut endpoint = pool.endpoint().unwrap();
            let mut seen = Vec::with_capacity(rounds as usize);
            for round in 0..rounds {
                let at = |who: u64| GlobalAddr::new(0, (round % 32) * 256 + who * 128);
                let stamp = round + 1 + u64::from(split) * rounds;
                barrier.wait();
                let mut batch = endpoint.batch();
                batch.write(at(me), &[stamp]);
                if split {
                    let done = block_on(endpoint.submit(batch)).unwrap();
                    endpoint.recycle(done);
                    batch = endpoint.batch();
                }
                let other = batch.read(at(1 - me), 1);
                let done = block_on(endpoint.submit(batch)).unwrap();
                seen.push(done.words(other)[0] == stamp);
                endpoint.recycle(done);
            }
            seen
        };
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(1));
            (run(0), other.join().unwrap())
        });
        assert!(first.iter().zip(&second).all(|(a, b)| *a || *b));
    }
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    for (bytes, nodes) in
        [(0, 1), (4095, 1), (4096, 0), (4096, 257), (4096 + 8, 1), (OFFSET_LIMIT + 4096, 1), (u64::MAX, 256)]
    {
        let result = Local::memory(bytes, nodes);
        assert!(matches!(result, Err(FabricError::Geometry(_))), "{bytes} {nodes}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps much")]
fn more_than_the_machine_can_address_is_an_error() {
    let error = Local::memory(OFFSET_LIMIT, 256).unwrap_err();
    assert!(error.to_string().contains("smaller pool"), "{error}");
}

#[test]
fn a_slot_has_one_holder() {
    let pool = Local::memory(NODE_BYTES, 1).unwrap();
    assert_eq!(pool.fence(suspect(3)).unwrap(), FenceOutcome::Fenced);
    let held = pool.claim(3).unwrap();
    assert!(matches!(pool.clone().claim(3), Err(FabricError::IdentityTaken { slot: 3 })));
    assert_eq!(pool.fence(suspect(3)).unwrap(), FenceOutcome::Alive);
    assert_eq!(pool.fence(suspect(4)).unwrap(), FenceOutcome::Fenced);
    drop(held);
    assert_eq!(pool.fence(suspect(3)).unwrap(), FenceOutcome::Fenced);
    pool.claim(3).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "reads /sys")]
fn memory_says_what_it_is() {
    let pool = Local::memory(4 << 20, 2).unwrap();
    assert_eq!((pool.nodes(), pool.node_bytes(1), pool.node_bytes(2)), (2, 4 << 20, 0));
    assert!(!pool.capabilities().persistent && pool.capabilities().ordered_batches);
    let notes = pool.notes();
    assert!(notes.iter().any(|note| note.starts_with("huge pages are ")), "{notes:?}");
    pool.persist().unwrap();
}

/// Any holder of the slot: the lock is sufficient to decide.
fn suspect(slot: u32) -> Suspect {
    Suspect { slot, holder: 0, lapsed: true }
}

#[test]
#[cfg_attr(miri, ignore)]
fn reserved_huge_pages_are_had_or_missed_at_once() {
    let odd = Local::memory_reserved(4096, 1).unwrap_err().to_string();
    assert!(odd.contains("multiple of 2M"), "{odd}");
    // More than any machine has reserved.
    let many = Local::memory_reserved(1 << 40, 1).unwrap_err().to_string();
    assert!(many.contains("vm.nr_hugepages"), "{many}");
    match Local::memory_reserved(2 << 20, 1) {
        Ok(local) => assert!(local.notes().iter().any(|note| note.contains("reserved ones"))),
        Err(error) => assert!(error.to_string().contains("vm.nr_hugepages"), "{error}"),
    }
}
