//! The fuzzed memory node, with a second client that behaves correctly.

use super::corpus;
use super::corpus::{Conversation, Frame, REGION_BYTES};
use super::mutate::{mutate, segments};
use super::reading::{self, Answer, Due, Reading};
use crate::support::{LONG, Node, connect, get, hear, until, value};
use darter_fabric::wire::proof::{Nonce, Proof, Side, Transcript};
use darter_fabric::wire::{self, Challenge, Hello, Opening};
use darter_fabric::{Endpoint, Fabric, GlobalAddr, Local, block_on};
use darter_memnode::HttpPort;
use darter_memnode::{MemNodeOptions, Region, serve_metrics};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The node's own limit, below the protocol's.
const FRAME_BYTES: u32 = 64 << 10;
/// Number of words at the region's end that belong to the correct client.
const GOOD_WORDS: usize = 8;
/// Maximum number of connections left incomplete at a time.
const LEFT_MAX: usize = 4;

/// A node, a model of its memory, and a correct client that uses it all the time.
pub struct NodeUnderTest {
    token: &'static [u8],
    node: Node,
    port: HttpPort,
    memory: Local,
    model: Vec<u64>,
    good: Option<Good>,
    /// Connections left incomplete.
    left: Vec<TcpStream>,
}

struct Good {
    rounds: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Good {
    fn start(node: &Node, token: &[u8]) -> Self {
        let (rounds, ends): (Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
        let fabric = connect(&[node], token).unwrap();
        let (ours, end) = (Arc::clone(&rounds), Arc::clone(&ends));
        let at = |word: u64| GlobalAddr::new(0, REGION_BYTES - GOOD_WORDS as u64 * 8 + word * 8);
        let work = move || {
            let mut endpoint = fabric.endpoint().unwrap();
            for round in 1.. {
                let mut batch = endpoint.batch();
                batch.write(at(0), &[round, !round]);
                let swapped = batch.cas(at(2), round - 1, round);
                let added = batch.faa(at(3), 3);
                let read = batch.read(at(0), 4);
                let done = block_on(endpoint.submit(batch)).unwrap();
                assert_eq!((done.swapped(swapped), done.fetched(added)), (true, 3 * (round - 1)));
                assert_eq!(done.words(read), [round, !round, round, 3 * round]);
                endpoint.recycle(done);
                ours.store(round, Ordering::Release);
                if end.load(Ordering::Acquire) {
                    return;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        let thread = std::thread::spawn(work);
        let good = Self { rounds, ends, thread };
        good.goes_on();
        good
    }

    /// Waits until a round that began after this call is complete.
    fn goes_on(&self) {
        let before = self.rounds.load(Ordering::Acquire);
        soon("the correct client is served", || {
            assert!(!self.thread.is_finished(), "the correct client has failed");
            self.rounds.load(Ordering::Acquire) >= before + 2
        });
    }
}

/// The same as [`until`], for conditions that mostly hold within a millisecond.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let looks = (0..100).any(|_| {
        std::thread::sleep(Duration::from_micros(100));
        holds()
    });
    if !looks {
        until(what, holds);
    }
}

/// One connection, and the bytes transferred over it.
struct Talk {
    stream: TcpStream,
    said: Vec<u8>,
    heard: Vec<u8>,
    nonce: Nonce,
    /// Whether nothing more can be sent or received.
    has_ended: bool,
    was_reset: bool,
}

impl Talk {
    fn begin(node: &Node) -> Self {
        let stream = TcpStream::connect(node.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        let (said, heard, nonce) = Default::default();
        Self { stream, said, heard, nonce, has_ended: false, was_reset: false }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
        if let Err(error) = self.stream.write_all(bytes) {
            assert!(error.kind() != ErrorKind::WouldBlock, "the node does not read from the socket");
            // The error is returned here, and not again to a reader.
            self.was_reset = true;
        }
    }

    /// Sends the handshake up to the proof. Returns the remaining frames, with the proof in them.
    fn greet(&mut self, dice: &mut Pcg64Mcg, token: &[u8], frames: &[Frame]) -> Vec<Vec<u8>> {
        let before = frames.iter().position(|frame| frame.proof_at.is_some()).unwrap_or(0);
        let (first, behind) = frames.split_at(before);
        let first: Vec<Vec<u8>> = first.iter().map(|frame| frame.bytes.clone()).collect();
        for segment in segments(dice, &first) {
            self.say(&segment);
        }
        let mut proof = Proof::default();
        let is_known = wire::head(&self.said)
            .is_some_and(|opening: Opening| (opening.magic, opening.version) == (wire::MAGIC, wire::VERSION));
        if let Some(hello) = wire::head::<Hello>(&self.said).filter(|_| is_known) {
            let challenge: Challenge = hear(&mut self.stream);
            self.heard.extend_from_slice(wire::as_bytes(&challenge));
            self.nonce = challenge.nonce;
            let transcript = Transcript { client: hello.nonce, node: self.nonce, session: hello.session };
            proof = transcript.prove(token, Side::Client);
        }
        behind.iter().map(|frame| frame.with(&proof)).collect()
    }

    /// Reads until this number of replies has arrived, or until there are no more. Returns them,
    /// and whether more bytes follow.
    fn answers(&mut self, enough: usize) -> (Vec<Answer>, bool) {
        loop {
            let (mut answers, mut rest) = (Vec::new(), &self.heard[..]);
            while let Some((answer, bytes)) = reading::answer(rest, answers.len()) {
                answers.push(answer);
                rest = &rest[bytes..];
            }
            if answers.len() >= enough || self.has_ended {
                return (answers, !rest.is_empty());
            }
            self.hear();
        }
    }

    fn hear(&mut self) {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.has_ended = true,
            Ok(count) => self.heard.extend_from_slice(&bytes[..count]),
            Err(error) => {
                assert!(error.kind() != ErrorKind::WouldBlock, "the node must reply or end the connection");
                (self.has_ended, self.was_reset) = (true, true);
            }
        }
    }

    fn hear_out(&mut self) {
        while !self.has_ended {
            self.hear();
        }
    }
}

/// How a case's connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TalkEnd {
    /// After everything expected has arrived.
    Answered,
    /// The sending half, as soon as everything is sent; the rest after the node has detected it.
    Shut,
    /// At once, perhaps in the middle of a frame.
    Torn,
    /// Later, with other cases in between.
    Left,
}

impl NodeUnderTest {
    pub fn new(token: &'static [u8], patience: Duration) -> Self {
        let memory = Local::memory(REGION_BYTES, 1).unwrap();
        let options = MemNodeOptions {
            token: token.to_vec().into(),
            frame_bytes_max: FRAME_BYTES,
            waiting_bytes_max: 1 << 20,
            buffer_bytes_max: 64 << 20,
            patience,
            ..MemNodeOptions::default()
        };
        let node = Node::start(Region::of(memory.clone()).unwrap(), "127.0.0.1:0", options);
        let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
        let good = Some(Good::start(&node, token));
        let model = vec![0; REGION_BYTES as usize / 8];
        Self { token, node, port, memory, model, good, left: Vec::new() }
    }

    fn metric(&self, name: &str) -> u64 {
        value(&get(self.port.address(), "/metrics"), &format!("darter_memnode_{name}"))
    }

    /// Returns the region without the words of the correct client.
    fn region(&self) -> Vec<u64> {
        let mut endpoint = self.memory.endpoint().unwrap();
        let mut batch = endpoint.batch();
        let all = batch.read(GlobalAddr::new(0, 0), self.model.len() - GOOD_WORDS);
        block_on(endpoint.submit(batch)).unwrap().words(all).to_vec()
    }

    /// Returns whether the region is equal to the model.
    fn is_as_modelled(&self) -> bool {
        self.region() == self.model[..self.model.len() - GOOD_WORDS]
    }

    fn read(&self, talk: &Talk) -> Reading {
        reading::read(&talk.said, self.token, talk.nonce, FRAME_BYTES)
    }

    /// Waits until the node has detected the end of all ended connections, and asserts that it
    /// holds no resources for them.
    pub fn settle(&self) {
        let others = if self.good.is_some() { 2 } else { 0 };
        soon("ended connections are dropped", || {
            self.metric("connections") <= (others + self.left.len()) as u64
        });
        let most = (others + self.left.len()) << 20;
        soon("buffers shrink again", || self.metric("buffers_bytes") <= most as u64);
        if self.left.is_empty() {
            soon("replies are sent", || self.metric("waiting_bytes") == 0);
        }
        if let Some(good) = &self.good {
            good.goes_on();
        }
    }

    /// Runs one mutated conversation, or two at once.
    pub fn case(&mut self, dice: &mut Pcg64Mcg, corpus: &[Conversation]) {
        let (mut talks, mut sessions) = (Vec::new(), Vec::new());
        for _ in 0..if dice.random_ratio(1, 8) { 2 } else { 1 } {
            let (conversation, session) = (corpus.choose(dice).unwrap(), dice.random::<u64>());
            let mut frames = conversation.frames(session);
            let other = corpus.choose(dice).unwrap().frames(session);
            // The frames after a handshake are reached only if the handshake is often intact.
            let greeting = if dice.random_ratio(1, 4) { 0 } else { frames.len().min(2) };
            let mut behind = frames.split_off(greeting);
            mutate(dice, &mut behind, &other);
            frames.append(&mut behind);
            let mut talk = Talk::begin(&self.node);
            let said = talk.greet(dice, self.token, &frames);
            talks.push((talk, segments(dice, &said)));
            sessions.push(session);
        }
        self.hold(dice, talks, &sessions);
        self.settle();
        crate::run::assert_modest();
    }

    /// Runs conversations after their handshakes, alternating.
    fn hold(&mut self, dice: &mut Pcg64Mcg, talks: Vec<(Talk, Vec<Vec<u8>>)>, sessions: &[u64]) {
        let whole = |(talk, said): &(Talk, Vec<Vec<u8>>)| {
            let all = [&talk.said[..], &said.concat()].concat();
            reading::read(&all, self.token, talk.nonce, FRAME_BYTES)
        };
        let readings: Vec<Reading> = talks.iter().map(whole).collect();
        let changes = |reading: &Reading| -> Vec<usize> {
            reading.dues.iter().flat_map(Due::changes).flat_map(reading::Verb::range).collect()
        };
        let mut changed: Vec<usize> = readings.iter().flat_map(changes).collect();
        changed.sort_unstable();
        let mine = self.model.len() - GOOD_WORDS;
        let are_apart = talks.len() == 1 || changed.windows(2).all(|pair| pair[0] != pair[1]);
        // A session with another number may have been fenced by an earlier case.
        let are_fresh = talks.iter().zip(sessions).all(|((talk, _), session)| {
            wire::head(&talk.said).is_none_or(|hello: Hello| hello.session == *session)
        });
        if !are_apart || !are_fresh || changed.last().is_some_and(|&last| last >= mine) {
            // The order of the two is unknown, so the model is set to the current region.
            drop(talks);
            self.settle();
            let now = self.region();
            self.model[..mine].copy_from_slice(&now);
            return;
        }
        let end = match dice.random_range(0..8) {
            0..5 => TalkEnd::Answered,
            _ if talks.len() > 1 => TalkEnd::Answered,
            5 => TalkEnd::Shut,
            6 => TalkEnd::Torn,
            _ => TalkEnd::Left,
        };
        let is_alone = talks.len() == 1;
        let (mut talks, mut said): (Vec<Talk>, Vec<_>) =
            talks.into_iter().map(|(talk, said)| (talk, said.into_iter())).unzip();
        let mut is_saying = true;
        while is_saying {
            is_saying = false;
            for (talk, said) in talks.iter_mut().zip(&mut said) {
                let Some(mut segment) = said.next() else { continue };
                if matches!(end, TalkEnd::Torn | TalkEnd::Left) && dice.random_ratio(1, 6) {
                    segment.truncate(dice.random_range(0..segment.len() + 1));
                    said.by_ref().for_each(drop);
                }
                talk.say(&segment);
                is_saying = true;
            }
        }
        for (mut talk, reading) in talks.into_iter().zip(readings) {
            match end {
                TalkEnd::Answered => self.take_answers(&mut talk, &reading, is_alone),
                TalkEnd::Shut => {
                    let _ = talk.stream.shutdown(Shutdown::Write);
                    talk.hear_out();
                    self.match_some(talk);
                }
                TalkEnd::Torn => self.match_some(talk),
                TalkEnd::Left => self.leave(talk),
            }
        }
        soon("the region is as modelled", || self.is_as_modelled());
    }

    /// Returns whether the model predicts the result of a verb, which it does not for the words of
    /// the correct client.
    fn is_known(&self, due: &Due) -> bool {
        due.verbs().iter().all(|verb| verb.range().end <= self.model.len() - GOOD_WORDS)
    }

    /// Asserts that everything expected arrives, and nothing else.
    fn take_answers(&mut self, talk: &mut Talk, reading: &Reading, is_alone: bool) {
        let due = reading.dues.len();
        talk.answers(due);
        if !reading.ends {
            let _ = talk.stream.shutdown(Shutdown::Write);
        }
        talk.hear_out();
        let (answers, has_more) = talk.answers(due + 1);
        // A node that ends a connection while its peer is still sending resets it, and loses bytes
        // in flight.
        let is_cut = reading.ends && talk.was_reset;
        assert!(is_cut || (answers.len(), has_more) == (due, false), "{answers:?} to {reading:?}");
        assert!(answers.len() <= due, "{answers:?} to {reading:?}");
        for (at, due) in reading.dues.iter().enumerate() {
            let words = due.act(&mut self.model);
            if let Some(answer) = answers.get(at) {
                due.assert_is(answer, (is_alone && self.is_known(due)).then_some(&words));
            }
        }
    }

    /// Handles a connection that ends early: the node has executed the frames up to some point.
    fn match_some(&mut self, talk: Talk) {
        let reading = self.read(&talk);
        drop(talk);
        let gone = 2 + self.left.len() as u64;
        soon("the connection is dropped", || self.metric("connections") <= gone);
        let mut dues = reading.dues.iter();
        while !self.is_as_modelled() {
            dues.next().expect("the region is the result of some of the frames").act(&mut self.model);
        }
    }

    /// Handles a connection that stays open for a while, incomplete.
    fn leave(&mut self, mut talk: Talk) {
        let reading = self.read(&talk);
        let (answers, _) = talk.answers(reading.dues.len());
        for (due, answer) in reading.dues.iter().zip(&answers) {
            let words = due.act(&mut self.model);
            due.assert_is(answer, self.is_known(due).then_some(&words));
        }
        for due in &reading.dues[answers.len()..] {
            due.act(&mut self.model);
        }
        if !reading.ends {
            // Otherwise the node ends it, and it would be unknown whose end is counted.
            self.left.push(talk.stream);
        }
        if self.left.len() > LEFT_MAX {
            self.left.clear();
        }
    }

    /// Leaves every conversation incomplete, each at another point, without closing any.
    pub fn leave_all_unfinished(&mut self, dice: &mut Pcg64Mcg, corpus: &[Conversation]) -> Vec<TcpStream> {
        let mut unfinished = Vec::new();
        for conversation in corpus {
            for _ in 0..4 {
                let mut talk = Talk::begin(&self.node);
                let frames = conversation.frames(dice.random::<u64>());
                let said = talk.greet(dice, self.token, &frames).concat();
                // In the middle of the proof, or of the first request's head, since a connection
                // with nothing in progress may stay.
                let keep = dice.random_range(0..said.len().min(size_of::<Proof>() + wire::HEADER_BYTES));
                talk.say(&said[..if keep == size_of::<Proof>() { 1 } else { keep }]);
                unfinished.push(talk.stream);
            }
        }
        unfinished
    }

    /// Returns the number of connections that the node dropped itself.
    pub fn dropped(&self) -> u64 {
        self.node.metrics.counts().dropped
    }

    /// Returns the node's replies to a conversation, and asserts that they are as expected.
    pub fn outcome(&mut self, conversation: &Conversation, session: u64) -> String {
        let mut talk = Talk::begin(&self.node);
        for segment in talk.greet(&mut Pcg64Mcg::seed_from_u64(0), self.token, &conversation.frames(session))
        {
            talk.say(&segment);
        }
        let reading = self.read(&talk);
        self.take_answers(&mut talk, &reading, true);
        assert!(self.is_as_modelled(), "{}", conversation.path.display());
        let (answers, _) = talk.answers(0);
        let names: Vec<String> = answers.iter().map(Answer::name).collect();
        let hangs_up = if reading.ends { "end" } else { "" };
        [&names.join(" "), hangs_up].join(" ").trim().to_owned()
    }

    /// Ends the correct client, and with it the last resources that the node holds.
    pub fn end(mut self) {
        self.left.clear();
        self.settle();
        assert!(self.is_as_modelled());
        let good = self.good.take().unwrap();
        good.ends.store(true, Ordering::Release);
        good.thread.join().unwrap();
        self.settle();
        assert_eq!(self.metric("connections"), 0);
        assert_eq!(self.metric("buffers_bytes"), 0);
        assert_eq!(self.metric("waiting_bytes"), 0);
        assert_eq!(self.metric("sessions"), 0);
        self.node.end();
    }
}

/// Returns the corpus of messages to nodes.
pub fn corpus() -> Vec<Conversation> {
    corpus::read("to-node")
}
