//! Procedures of a memory node: replies in any order, next to verbs, and the errors of callers if
//! there is none.

use crate::support::gate::gated;
use crate::support::{LONG, Node, connect, connect_as, greeted, hear, until};
use darter_fabric::tcp::{TcpEndpoint, TcpOptions};
use darter_fabric::wire::{self, Refusal, ReplyHead, RequestHead, RequestKind};
use darter_fabric::{
    ANSWER_WORDS_MAX, CALL_WORDS_MAX, CallFault, Endpoint, Fabric, FabricError, GlobalAddr, Local,
    Membership, ProcedureError, Procedures, Suspect, Tcp, block_on, run_all,
};
use darter_memnode::{Health, MemNodeOptions, Region};
use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Replies with its request.
const ECHO: u64 = 1;
/// Adds its request to the second word, and replies with the word's former value.
const ADD: u64 = 2;
/// Sets the first word to 1 and waits until it is 2. It gives up long after the expected time.
const WAIT: u64 = 3;
/// Panics.
const PANIC: u64 = 4;
/// Replies with the number of words in its request.
const FILL: u64 = 5;

const WORD: u64 = 64;

fn at(word: u64) -> GlobalAddr {
    GlobalAddr::new(0, WORD + word * 8)
}

async fn read<E: Endpoint>(endpoint: &mut E) -> Result<u64, FabricError> {
    let mut batch = endpoint.batch();
    let id = batch.read(at(0), 1);
    Ok(endpoint.submit(batch).await?.words(id)[0])
}

async fn write<E: Endpoint>(endpoint: &mut E, word: u64) -> Result<(), FabricError> {
    let mut batch = endpoint.batch();
    batch.write(at(0), &[word]);
    endpoint.submit(batch).await.map(drop)
}

async fn wait<E: Endpoint>(mut endpoint: E) -> Result<Vec<u64>, ProcedureError> {
    write(&mut endpoint, 1).await?;
    for _ in 0..20_000 {
        if read(&mut endpoint).await? == 2 {
            return Ok(vec![2]);
        }
        endpoint.pause().await;
    }
    Err(ProcedureError::new(1, "nobody came"))
}

fn procedures(node: &Local) -> Procedures {
    Procedures::new()
        .with(ECHO, node, |_, words| async { Ok(words) })
        .with(WAIT, node, |endpoint, _| wait(endpoint))
        .with(PANIC, node, |_, words| async move { Ok(vec![words[usize::MAX]]) })
        .with(FILL, node, |_, words| async move { Ok(vec![0; words[0] as usize]) })
        .with(ADD, node, |mut endpoint, words| async move {
            let mut batch = endpoint.batch();
            let sum = batch.faa(at(1), words.iter().sum());
            Ok(vec![endpoint.submit(batch).await?.fetched(sum)])
        })
}

fn node(options: MemNodeOptions) -> Node {
    let region = Region::memory(1 << 20).unwrap();
    let procedures = procedures(region.fabric());
    Node::start(region, "127.0.0.1:0", MemNodeOptions { procedures, ..options })
}

fn working(workers: usize) -> Node {
    node(MemNodeOptions { workers, ..MemNodeOptions::default() })
}

fn fault(outcome: Result<Vec<u64>, FabricError>) -> CallFault {
    match outcome {
        Err(FabricError::Call(error)) => error.fault,
        other => panic!("{other:?}"),
    }
}

/// Waits until [`WAIT`] has begun.
async fn begun(endpoint: &mut TcpEndpoint) {
    while read(endpoint).await.unwrap() != 1 {
        endpoint.pause().await;
    }
}

#[test]
fn a_call_gets_a_reply_or_the_reason_of_its_failure() {
    let node = working(2);
    let fabric = connect(&[&node], b"").unwrap();
    assert!(fabric.capabilities().calls);
    let mut endpoint = fabric.endpoint().unwrap();
    let mut call = |procedure, words: Vec<u64>| block_on(endpoint.call(0, procedure, words));
    let most: Vec<u64> = (0..CALL_WORDS_MAX as u64).collect();
    assert_eq!(call(ECHO, most.clone()).unwrap(), most);
    assert_eq!(call(ECHO, vec![]).unwrap(), []);
    assert_eq!((call(ADD, vec![5]).unwrap(), call(ADD, vec![1, 1]).unwrap()), (vec![0], vec![5]));
    assert_eq!(fault(call(99, vec![])), CallFault::Unknown);
    let max = CALL_WORDS_MAX;
    assert_eq!(fault(call(ECHO, vec![0; max + 1])), CallFault::RequestTooLarge { words: max + 1, max });
    let max = ANSWER_WORDS_MAX;
    assert_eq!(call(FILL, vec![max as u64]).unwrap().len(), max);
    assert_eq!(fault(call(FILL, vec![max as u64 + 1])), CallFault::AnswerTooLarge { words: max + 1, max });
    until("all are counted", || node.metrics.counts().calls == 7);
}

#[test]
fn a_node_without_workers_runs_no_procedures() {
    let node = working(0);
    let fabric = connect(&[&node], b"").unwrap();
    let error = block_on(fabric.endpoint().unwrap().call(0, ECHO, vec![])).unwrap_err();
    assert!(error.to_string().contains("runs no procedures; start its server"), "{error}");
    assert_eq!(fault(Err(error)), CallFault::NoServer);
}

#[test]
fn a_frame_limit_of_the_node_is_one_of_calls() {
    let node = node(MemNodeOptions { workers: 1, frame_bytes_max: 4096, ..MemNodeOptions::default() });
    let mut endpoint = connect(&[&node], b"").unwrap().endpoint().unwrap();
    assert_eq!(block_on(endpoint.call(0, ECHO, vec![7; 511])).unwrap(), [7; 511]);
    let refused = fault(block_on(endpoint.call(0, ECHO, vec![7; 512])));
    assert_eq!(refused, CallFault::RequestTooLarge { words: 512, max: 511 });
}

#[test]
fn a_panic_is_reported_and_the_worker_goes_on() {
    let node = working(1);
    let fabric = connect(&[&node], b"").unwrap();
    let (told, outcomes) = channel();
    std::thread::spawn(move || {
        let mut endpoint = fabric.endpoint().unwrap();
        for (procedure, words) in [(PANIC, vec![]), (PANIC, vec![]), (ECHO, vec![1])] {
            told.send(block_on(endpoint.call(0, procedure, words))).unwrap();
        }
    });
    let next = || outcomes.recv_timeout(LONG).expect("the call gets a reply");
    for _ in 0..2 {
        let CallFault::Failed(error) = fault(next()) else { panic!() };
        assert_eq!(error.code, ProcedureError::PANIC);
    }
    assert_eq!(next().unwrap(), [1]);
}

/// On one connection, the procedure ends because of a WRITE that is sent after its call, and a
/// second call gets its reply before the first.
#[test]
fn a_procedure_that_waits_holds_up_neither_verbs_nor_other_calls() {
    let node = working(2);
    let fabric = connect(&[&node], b"").unwrap();
    let waits = async {
        let mut endpoint = fabric.endpoint().unwrap();
        endpoint.call(0, WAIT, vec![]).await.unwrap()
    };
    let goes_on = async {
        let mut endpoint = fabric.endpoint().unwrap();
        begun(&mut endpoint).await;
        let answer = endpoint.call(0, ECHO, vec![7, 7]).await.unwrap();
        write(&mut endpoint, 2).await.unwrap();
        answer
    };
    let futures: [std::pin::Pin<Box<dyn Future<Output = Vec<u64>>>>; 2] =
        [Box::pin(waits), Box::pin(goes_on)];
    assert_eq!(run_all(futures), [vec![2], vec![7, 7]]);
}

#[test]
fn more_calls_than_may_wait_are_refused() {
    let node = node(MemNodeOptions { workers: 1, calls_waiting_max: 1, ..MemNodeOptions::default() });
    let fabric = connect(&[&node], b"").unwrap();
    let call = |procedure: u64| {
        let mut endpoint = fabric.endpoint().unwrap();
        Box::pin(async move { endpoint.call(0, procedure, vec![1]).await })
    };
    let mut outcomes = std::thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(call(WAIT)));
        let mut endpoint = fabric.endpoint().unwrap();
        block_on(begun(&mut endpoint));
        let (queued, busy) = (call(ADD), call(ADD));
        let release = Box::pin(async {
            // In order on this thread's connection: both calls have arrived.
            write(&mut endpoint, 2).await.map(|()| vec![])
        });
        let futures: Vec<std::pin::Pin<Box<dyn Future<Output = _>>>> = vec![queued, busy, release];
        let outcomes = run_all(futures);
        assert_eq!(waits.join().unwrap().unwrap(), [2]);
        outcomes.into_iter()
    });
    assert_eq!(outcomes.next().unwrap().unwrap(), [0]);
    assert_eq!(fault(outcomes.next().unwrap()), CallFault::Busy);
}

#[test]
fn a_call_that_waits_ends_with_its_session() {
    let node = working(1);
    let (first, second) = (connect(&[&node], b"").unwrap(), connect(&[&node], b"").unwrap());
    let held = second.claim(3).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(first.endpoint().unwrap().call(0, WAIT, vec![])));
        let mut endpoint = first.endpoint().unwrap();
        block_on(begun(&mut endpoint));
        let before = node.metrics.counts().frames;
        let shut_out = scope.spawn(|| block_on(second.endpoint().unwrap().call(0, ADD, vec![5])));
        until("its call has arrived", || node.metrics.counts().frames > before);
        first.fence(Suspect { slot: 3, holder: held.holder(), lapsed: true }).unwrap();
        block_on(write(&mut endpoint, 2)).unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), [2]);
        // The worker is free, and no call waits.
        assert_eq!(block_on(endpoint.call(0, ADD, vec![1])).unwrap(), [0]);
        shut_out.join().unwrap().unwrap_err();
    });
}

fn through(address: std::net::SocketAddr, patience: Duration) -> Tcp {
    let options = TcpOptions { patience, ..TcpOptions::default() };
    Tcp::connect(&[address.to_string()], options).unwrap()
}

/// A call in progress when `breaks` happens to the connection ends in the error, and READs go on.
fn lost(patience: Duration, breaks: impl FnOnce(&crate::support::gate::Gate)) {
    let node = working(1);
    let (address, gate) = gated(node.address);
    let fabric = through(address, patience);
    let mut other = connect(&[&node], b"").unwrap().endpoint().unwrap();
    let (told, outcome) = channel();
    let caller = fabric.clone();
    std::thread::spawn(move || {
        let outcome = block_on(caller.endpoint().unwrap().call(0, WAIT, vec![]));
        told.send(outcome)
    });
    block_on(begun(&mut other));
    breaks(&gate);
    let outcome = outcome.recv_timeout(LONG).expect("the call ends");
    assert_eq!(fault(outcome), CallFault::ServerGone);
    gate.shut(false);
    let mut endpoint = fabric.endpoint().unwrap();
    until("READs go on", || block_on(read(&mut endpoint)).is_ok());
    block_on(write(&mut other, 2)).unwrap();
    // The procedure has ended nevertheless, and the worker is free.
    assert_eq!(block_on(endpoint.call(0, ECHO, vec![8])).unwrap(), [8]);
}

#[test]
fn a_call_ends_with_its_connection() {
    lost(TcpOptions::default().patience, crate::support::gate::Gate::hang_up);
}

#[test]
fn a_call_to_a_node_that_falls_silent_ends() {
    lost(Duration::from_secs(2), |gate| gate.shut(true));
}

#[test]
fn a_long_call_outlasts_the_patience_with_a_node_that_is_there() {
    let node = working(1);
    let fabric =
        connect_as(&[&node], TcpOptions { patience: Duration::from_secs(6), ..TcpOptions::default() });
    let fabric = fabric.unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(fabric.endpoint().unwrap().call(0, WAIT, vec![])));
        let mut other = connect(&[&node], b"").unwrap().endpoint().unwrap();
        block_on(begun(&mut other));
        let before = node.metrics.counts().frames;
        until("the caller requests a sign of life", || node.metrics.counts().frames > before);
        block_on(write(&mut other, 2)).unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), [2]);
    });
}

#[test]
fn a_node_that_stops_answers_its_calls_first() {
    let mut node = node(MemNodeOptions { workers: 1, drain: LONG, ..MemNodeOptions::default() });
    let fabric = connect(&[&node], b"").unwrap();
    let waits = async {
        let mut endpoint = fabric.endpoint().unwrap();
        endpoint.call(0, WAIT, vec![]).await.unwrap()
    };
    let stops = async {
        let mut endpoint = fabric.endpoint().unwrap();
        begun(&mut endpoint).await;
        node.stop.ask();
        until("it drains", || node.metrics.health() == Health::Draining);
        // On the connection for the reply, which has not ended.
        write(&mut endpoint, 2).await.unwrap();
        vec![]
    };
    let futures: [std::pin::Pin<Box<dyn Future<Output = Vec<u64>>>>; 2] = [Box::pin(waits), Box::pin(stops)];
    assert_eq!(run_all(futures)[0], [2]);
    drop(fabric);
    assert_eq!(node.end().calls, 1);
}

/// Sends the payload of a call over a bare connection; returns the reply, and whether the node then
/// ends the connection.
fn demand(node: &Node, payload: &[u8]) -> (Refusal, Vec<u8>, bool) {
    let mut stream = greeted(node, 9);
    let head = RequestHead {
        kind: RequestKind::Call as u8,
        reserved: 0,
        verbs: 0,
        bytes: payload.len() as u32,
        id: 4,
    };
    stream.write_all(&[wire::as_bytes(&head), payload].concat()).unwrap();
    let reply: ReplyHead = hear(&mut stream);
    assert_eq!((reply.id, reply.verbs), (4, 0));
    let mut said = vec![0; reply.bytes as usize];
    stream.read_exact(&mut said).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    (Refusal::from_code(reply.refusal).unwrap(), said, matches!(stream.read(&mut [0]), Ok(0)))
}

#[test]
fn a_malformed_call_is_refused() {
    let node = working(1);
    for payload in [&[][..], &[0; 7], &[0; 9]] {
        let (refusal, text, has_ended) = demand(&node, payload);
        assert_eq!((refusal, has_ended), (Refusal::Malformed, true));
        assert_eq!(text, b"a call whose length is not a multiple of a word");
    }
    assert_eq!(demand(&node, &99_u64.to_le_bytes()).0, Refusal::Unknown);
    let long = [&ECHO.to_le_bytes()[..], &vec![0; (CALL_WORDS_MAX + 1) * 8]].concat();
    let (refusal, said, _) = demand(&node, &long);
    assert_eq!((refusal, said.len()), (Refusal::RequestTooLarge, 16));
    let (refusal, said, _) = demand(&node, &[&ECHO.to_le_bytes()[..], &[7; 16]].concat());
    assert_eq!((refusal, said), (Refusal::None, vec![7; 16]));
}
