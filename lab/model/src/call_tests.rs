//! Guarantees of a model for calls: their cost, their limit, and that procedures really run.

use super::tests::{at, model};
use super::*;
use darter_fabric::{CallFault, Endpoint, Fabric, FabricError, Procedures, block_on};
use std::cell::Cell;
use std::pin::pin;
use std::task::Poll;

/// Adds the first word of the request to a word by READ and WRITE; replies with the number of words
/// that the second names.
const ADD: u64 = 1;
/// Waits for ever.
const WAIT: u64 = 2;

fn served(model: &Model) -> Model {
    let procedures = Procedures::new()
        .with(ADD, model, |mut endpoint, words| async move {
            let mut batch = endpoint.batch();
            let id = batch.read(at(0, 8), 1);
            let sum = endpoint.submit(batch).await?.words(id)[0] + words[0];
            let mut batch = endpoint.batch();
            batch.write(at(0, 8), &[sum]);
            endpoint.submit(batch).await?;
            Ok(vec![sum; words[1] as usize])
        })
        .with(WAIT, model, |_, _| std::future::pending());
    model.with_procedures(0, procedures).unwrap()
}

/// Returns the word, outside of time.
fn word(model: &Model) -> u64 {
    let mut endpoint = model.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let id = batch.read(at(0, 8), 1);
    block_on(endpoint.submit(batch)).unwrap().words(id)[0]
}

#[test]
fn a_lone_call_takes_what_the_formula_says() {
    // Post, verb, sending NIC, request in, serving NIC, core, sending NIC, reply in, poll.
    let price = |request: u64, answer: u64| {
        80 + 30 + 20 + 1000 + (40 + request) + 25 + 700 + 20 + 1000 + (40 + answer) + 100
    };
    for (words, fetch) in [(1, 0), (8, 0), (9, 300)] {
        let model = served(&model("mn-cores=1,call-ns=700"));
        let took = Cell::new(0);
        let mut cluster = Cluster::new(&model);
        cluster.spawn(0, async {
            let mut endpoint = model.endpoint().unwrap();
            let begin = model.now_ns();
            assert_eq!(endpoint.call(0, ADD, vec![5, words]).await.unwrap(), vec![5; words as usize]);
            took.set(model.now_ns() - begin);
        });
        cluster.run().unwrap();
        drop(cluster);
        assert_eq!(took.get(), price(16, words * 8) + fetch, "a reply of {words} words");
        assert_eq!(word(&model), 5);
    }
}

#[test]
fn calls_reach_what_the_cores_can_do() {
    for (cores, rate) in [(24, 24e6), (6, 6e6)] {
        let spec: ModelSpec = format!("preset=dart,mn=1,mn-cores={cores},jitter-ns=0").parse().unwrap();
        let model = served(&Model::new(&spec).unwrap());
        let rounds = 200;
        let (report, clients) = Cluster::drive(&model, |seat| {
            let fabric = model.compute_node(seat.compute_node);
            async move {
                let mut endpoint = fabric.endpoint().unwrap();
                for _ in 0..rounds {
                    endpoint.call(0, ADD, vec![1, 1]).await.unwrap();
                }
            }
        })
        .unwrap();
        let calls = rounds * clients.len() as u64;
        let reached = report.per_s(calls);
        assert!((rate * 0.95..=rate).contains(&reached), "{reached} on {cores} cores");
        let bottleneck = report.bottleneck().unwrap();
        assert_eq!((bottleneck.machine.as_str(), bottleneck.resource), ("mn0", Resource::Cores));
        // Each took effect at one instant, so none is lost.
        assert_eq!(word(&model), calls);
    }
}

#[test]
fn a_call_that_comes_to_nothing_says_so_in_time_and_outside() {
    let model = served(&model("mn=2"));
    let fault = |outcome: Result<Vec<u64>, FabricError>| match outcome {
        Err(FabricError::Call(error)) => error.fault,
        other => panic!("{other:?}"),
    };
    let all = async || {
        let mut endpoint = model.endpoint().unwrap();
        assert_eq!(fault(endpoint.call(0, 9, vec![]).await), CallFault::Unknown);
        assert_eq!(fault(endpoint.call(1, ADD, vec![]).await), CallFault::NoServer);
        assert!(matches!(fault(endpoint.call(0, WAIT, vec![]).await), CallFault::Failed(_)));
        let max = darter_fabric::CALL_WORDS_MAX;
        let too_large = CallFault::RequestTooLarge { words: max + 1, max };
        assert_eq!(fault(endpoint.call(0, ADD, vec![0; max + 1]).await), too_large);
        assert!(matches!(endpoint.call(2, ADD, vec![]).await, Err(FabricError::OutOfBounds(_))));
    };
    block_on(all());
    let mut cluster = Cluster::new(&model);
    cluster.spawn(0, all());
    cluster.run().unwrap();
}

#[test]
fn a_dropped_call_runs_all_the_same() {
    let model = served(&model(""));
    let orphans = Cell::new(0);
    let mut cluster = Cluster::new(&model);
    cluster.spawn(0, async {
        let mut endpoint = model.endpoint().unwrap();
        {
            let mut call = pin!(endpoint.call(0, ADD, vec![7, 1]));
            std::future::poll_fn(|context| {
                assert!(call.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        orphans.set(endpoint.in_flight());
        endpoint.pause().await;
        assert_eq!(endpoint.in_flight(), 0);
        // Its slot now belongs to another call.
        assert_eq!(endpoint.call(0, ADD, vec![1, 1]).await.unwrap(), [8]);
    });
    cluster.run().unwrap();
    drop(cluster);
    assert_eq!((orphans.get(), word(&model)), (1, 8));
}
