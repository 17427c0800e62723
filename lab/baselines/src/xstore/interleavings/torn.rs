//! Readers of a record whose update is half done.

use super::super::client::look::{Look, look};
use super::models::BY_MODELS;
use super::{INLINE, World, loaded};
use darter_fabric::{OpKind, block_on};
use darter_index::{Condition, OrderedIndex};
use darter_sim::{EventKind, Executor, WordOrder};
use std::cell::Cell;

/// An update comes apart under a reader's eyes: it sees neither value, or one of them.
#[test]
fn a_torn_record_is_no_value() {
    for written in 0..8 {
        let (world, _) = loaded(INLINE, 5);
        let World { sim, pool, index, process, .. } = &world;
        let (mut reading, mut writing) = (pool.client().unwrap(), pool.client().unwrap());
        let descriptor = index.shared.descriptor;
        let words = block_on(reading.read_words::<1>(descriptor.first())).unwrap();
        let outcome = Cell::new(None);
        let mut executor = Executor::new(sim);
        let key = 32_u64.to_be_bytes();
        executor.spawn(0, async {
            let value = [9; 16];
            index.put(&mut writing, &key, &value, Condition::Always).await.unwrap();
        });
        let (mut events, mut left) = (Vec::new(), written);
        loop {
            executor.events(&mut events);
            let Some(&event) = events.first() else { break };
            if let EventKind::Execute { access, .. } = event.kind
                && access.writes
                && executor.process_of(event.task) == *process
            {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            executor.perform(event, 1, WordOrder::Ascending);
        }
        let reader = executor.spawn(0, async {
            let mut pinned = reading.pin(OpKind::Get).await.unwrap();
            let seen = look(&mut pinned, &descriptor, words[0] as u32, &key, None).await.unwrap();
            outcome.set(Some(seen));
        });
        while !executor.has_ended(reader) {
            executor.events(&mut events);
            let event = *events.iter().find(|event| event.task == reader).unwrap();
            executor.perform(event, u32::MAX, WordOrder::Ascending);
        }
        drop(executor);
        match outcome.into_inner().unwrap() {
            Look::Again => assert!(written > 4, "the spare is nobody's"),
            Look::Present { value, .. } => {
                let number = 1_u64;
                assert!(value == number.to_le_bytes() || value == [9; 16], "{value:?} after {written} words");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// An update stays half done. Its reader leaves the key to a call, which awaits the update, and does
/// not look again for ever.
#[test]
fn a_record_that_stays_torn_is_left_to_a_call() {
    let (mut world, _) = loaded(BY_MODELS, 5);
    world.train();
    let World { sim, pool, index, process, .. } = &world;
    let (mut reading, mut writing) = (pool.client().unwrap(), pool.client().unwrap());
    let key = 32_u64.to_be_bytes();
    // The models lead to the leaf.
    assert!(block_on(index.get(&mut reading, &key)).unwrap().is_some());
    let found = Cell::new(None);
    let mut executor = Executor::new(sim);
    let writer = executor.spawn(0, async {
        index.put(&mut writing, &key, &[9; 16], Condition::Always).await.unwrap();
    });
    let (mut events, mut left) = (Vec::new(), 6);
    loop {
        executor.events(&mut events);
        let Some(&event) = events.first() else { panic!("the update has ended") };
        if let EventKind::Execute { access, .. } = event.kind
            && access.writes
            && executor.process_of(event.task) == *process
        {
            if left == 0 {
                break;
            }
            left -= 1;
        }
        executor.perform(event, 1, WordOrder::Ascending);
    }
    let reader = executor.spawn(0, async {
        found.set(Some(index.get(&mut reading, &key).await.unwrap()));
    });
    let is_writers: Vec<_> = events.iter().map(|event| event.task).collect();
    let waits = (0..2_000).any(|_| {
        executor.events(&mut events);
        let next = events.iter().find(|event| !is_writers.contains(&event.task)).copied();
        if let Some(event) = next {
            executor.perform(event, u32::MAX, WordOrder::Ascending);
        }
        next.is_none()
    });
    assert!(waits && !executor.has_ended(reader), "it awaits the update");
    while !executor.has_ended(reader) || !executor.has_ended(writer) {
        executor.events(&mut events);
        executor.perform(events[0], u32::MAX, WordOrder::Ascending);
    }
    drop(executor);
    assert_eq!(found.into_inner().unwrap().as_deref(), Some(&[9; 16][..]));
}
