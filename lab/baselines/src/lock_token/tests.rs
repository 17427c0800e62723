//! Lock tokens are over once their holder can no longer write, and not earlier.

use super::*;
use darter_fabric::{Local, OpKind, block_on};
use darter_pool::PoolOptions;
use darter_sim::Sim;
use darter_sim::{EventKind, Executor, WordOrder};
use std::cell::RefCell;
use std::rc::Rc;

fn options() -> PoolOptions {
    PoolOptions { block_bytes: Some(256 << 10), lease_ms: 100, ..PoolOptions::default() }
}

#[test]
fn released_and_abandoned_tokens_are_over_and_present_ones_are_not() {
    let pool = block_on(Pool::create(Local::memory(8 << 20, 1).unwrap(), &options())).unwrap();
    let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
    let tokens = LockTokens::of(&pool);
    block_on(async {
        let mut pinned = one.pin(OpKind::Insert).await.unwrap();
        let (kept, released, abandoned) = (
            tokens.issue(&mut pinned).unwrap(),
            tokens.issue(&mut pinned).unwrap(),
            tokens.issue(&mut pinned).unwrap(),
        );
        let words = [kept.word(), released.word(), abandoned.word()];
        assert!(words[0] != words[1] && words[1] != words[2] && words.iter().all(|&word| word != 0));
        for word in words {
            assert!(!tokens.holder_has_ended(&mut two, word).await.unwrap());
        }
        released.release();
        drop(abandoned);
        assert!(!tokens.holder_has_ended(&mut two, words[0]).await.unwrap());
        assert!(tokens.holder_has_ended(&mut two, words[1]).await.unwrap());
        assert!(
            !tokens.holder_has_ended(&mut two, words[2]).await.unwrap(),
            "its operation may still have verbs in flight"
        );
        drop(pinned);
        assert!(tokens.holder_has_ended(&mut two, words[2]).await.unwrap());
        assert!(
            !tokens.holder_has_ended(&mut two, words[0]).await.unwrap(),
            "a token outlives the operation that passes it on"
        );
        let mut pinned = two.pin(OpKind::Insert).await.unwrap();
        let mut kept = kept;
        kept.pass_to(&mut pinned);
        drop(kept);
        assert!(!tokens.holder_has_ended(&mut one, words[0]).await.unwrap());
        drop(pinned);
        assert!(tokens.holder_has_ended(&mut one, words[0]).await.unwrap());
        assert!(tokens.holder_has_ended(&mut one, 0xdead_beef).await.unwrap(), "a word that names no holder");
    });
}

/// A client's operation that encounters a token abandoned by its previous operation does not wait
/// for its own end.
#[test]
fn an_operation_does_not_wait_for_its_own_client() {
    let pool = block_on(Pool::create(Local::memory(8 << 20, 1).unwrap(), &options())).unwrap();
    let (mut client, tokens) = (pool.client().unwrap(), LockTokens::of(&pool));
    block_on(async {
        let mut pinned = client.pin(OpKind::Insert).await.unwrap();
        let abandoned = tokens.issue(&mut pinned).unwrap();
        let word = abandoned.word();
        drop(abandoned);
        assert!(tokens.holder_has_ended(&mut pinned, word).await.unwrap());
        let present = tokens.issue(&mut pinned).unwrap();
        assert!(!tokens.holder_has_ended(&mut pinned, present.word()).await.unwrap());
    });
}

#[test]
fn a_dead_members_token_is_over_once_it_is_ended() {
    let fabric = Local::memory(8 << 20, 1).unwrap();
    let dead = block_on(Pool::create(fabric.clone(), &options())).unwrap();
    let mut client = dead.client().unwrap();
    let word = block_on(async {
        let mut pinned = client.pin(OpKind::Insert).await.unwrap();
        let token = LockTokens::of(&dead).issue(&mut pinned).unwrap();
        let word = token.word();
        std::mem::forget(token);
        word
    });
    let living = block_on(Pool::open(fabric)).unwrap();
    let (mut other, tokens) = (living.client().unwrap(), LockTokens::of(&living));
    assert!(!block_on(tokens.holder_has_ended(&mut other, word)).unwrap());
    dead.abandon();
    let mut asked = 0;
    while !block_on(tokens.holder_has_ended(&mut other, word)).unwrap() {
        asked += 1;
        assert!(asked < 60_000, "never over");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::mem::forget(client);
}

/// A cancelled operation's token is not over while a verb that it posted can still take effect.
#[test]
fn a_cancelled_operation_is_over_when_its_verbs_have_landed() {
    let sim = Sim::new(1, 8 << 20);
    let pool = block_on(Pool::create(sim.clone(), &options())).unwrap();
    let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
    let tokens = LockTokens::of(&pool);
    let word = Rc::new(RefCell::new(0));
    let mut executor = Executor::new(&sim);
    {
        let (word, tokens) = (Rc::clone(&word), Arc::clone(&tokens));
        let target = pool.root_word(60);
        executor.spawn(0, async move {
            {
                let mut pinned = one.pin(OpKind::Insert).await.unwrap();
                let token = tokens.issue(&mut pinned).unwrap();
                *word.borrow_mut() = token.word();
                let mut batch = pinned.batch();
                batch.write(target, &[7]);
                let mut posted = Box::pin(pinned.submit(batch));
                let first = std::future::poll_fn(|context| {
                    let polled = posted.as_mut().poll(context);
                    std::task::Poll::Ready(polled.is_ready())
                });
                assert!(!first.await);
                drop(posted);
                drop(token);
            }
            // Keeps the client from being reaped.
            std::future::pending::<()>().await;
            drop(one);
        });
    }
    let mut events = Vec::new();
    executor.events(&mut events);
    executor.perform(events[0], 0, WordOrder::Ascending);
    sim.schedule(false);
    assert!(!block_on(tokens.holder_has_ended(&mut two, *word.borrow())).unwrap());
    sim.schedule(true);
    executor.events(&mut events);
    let landing =
        events.iter().find(|event| matches!(event.kind, EventKind::Execute { .. })).copied().unwrap();
    executor.perform(landing, 1, WordOrder::Ascending);
    sim.schedule(false);
    assert!(
        !block_on(tokens.holder_has_ended(&mut two, *word.borrow())).unwrap(),
        "upkeep runs after the check"
    );
    assert!(
        block_on(tokens.holder_has_ended(&mut two, *word.borrow())).unwrap(),
        "even if its client stays idle"
    );
    executor.kill(0);
    drop(executor);
}

#[test]
fn a_word_comes_back_only_after_a_million_tokens() {
    let tokens = LockTokens::default();
    let present = [tokens.take(), tokens.take()].map(Option::unwrap);
    let first = tokens.take().unwrap();
    tokens.give_back(first.0);
    let others = (1..1 << 24).find(|_| {
        let (number, generation) = tokens.take().unwrap();
        assert!(!present.iter().any(|&(held, _)| held == number));
        tokens.give_back(number);
        (number, generation) == first
    });
    assert_eq!(others, Some(256 * FREE_MIN));
}

#[test]
fn every_number_can_be_held_at_a_time() {
    let tokens = LockTokens::default();
    let numbers: Vec<_> = (0..TOKENS_MAX).map(|_| tokens.take().unwrap().0).collect();
    assert_eq!(tokens.take(), None);
    tokens.give_back(numbers[7]);
    assert_eq!(tokens.take(), Some((7, 2)));
    assert_eq!(tokens.take(), None);
}

/// A lock's holder is dropped without unlocking, and its process lives on.
#[test]
fn others_learn_that_a_hold_was_abandoned_while_its_process_lives() {
    let sim = Sim::new(1, 4 << 20);
    let one = block_on(Pool::create(sim.clone(), &options())).unwrap();
    let two = block_on(Pool::open(sim.process(1))).unwrap();
    let (mut holder, mut waiting) = (one.client().unwrap(), two.client().unwrap());
    let (holders, waiters) = (LockTokens::of(&one), LockTokens::of(&two));
    let lock = one.root_word(60);
    let held = {
        let mut pinned = block_on(holder.pin(OpKind::Insert)).unwrap();
        let token = holders.issue(&mut pinned).unwrap().at(lock);
        assert!(block_on(pinned.cas(lock, 0, token.word())).unwrap().swapped);
        token.word()
    };
    assert_eq!(block_on(waiting.read_words(lock)).unwrap(), [held]);
    assert!(!block_on(waiters.holder_has_ended(&mut waiting, held)).unwrap(), "its process lives");
    block_on(async {
        for _ in 0..2 {
            holder.maintain().await.unwrap();
        }
    });
    let [found] = block_on(waiting.read_words(lock)).unwrap();
    assert!(found != held && block_on(waiters.holder_has_ended(&mut waiting, found)).unwrap());
}
