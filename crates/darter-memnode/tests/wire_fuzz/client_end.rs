//! The fuzzed client: its node sends arbitrary bytes, and then correct ones again.

use super::corpus;
use super::corpus::{Conversation, Frame};
use super::mutate::{mutate, segments};
use super::reading::{self, Answer};
use crate::support::LONG;
use darter_fabric::tcp::TcpEndpoint;
use darter_fabric::wire::proof::{Nonce, Proof, Side, Transcript};
use darter_fabric::wire::{
    self, Challenge, HEADER_BYTES, Hello, Refusal, ReplyHead, RequestHead, RequestKind,
};
use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, OFFSET_LIMIT, Tcp, TcpOptions, block_on};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long a client waits if nothing arrives.
const PATIENCE: Duration = Duration::from_millis(300);
/// A refusal's text together with the text around it.
const ERROR_BYTES_MAX: usize = 2 * wire::TEXT_BYTES_MAX + 512;
/// The requests that a client makes, see [`ask`]; the corpus has replies to them.
pub const REQUESTS: usize = 4;

/// The messages that the fake node sends on the next connections.
#[derive(Default)]
struct Script {
    /// For each connection, one frame for each frame received. `None`, and the end of the list,
    /// stand for a correct node's messages.
    says: Vec<Option<Vec<Frame>>>,
    token: Vec<u8>,
    dice: u64,
    /// The behaviour when a script has ended and another request arrives.
    at_end: AtEnd,
    /// Payloads of the correct replies.
    good: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AtEnd {
    #[default]
    Behaves,
    HangsUp,
    IsSilent,
}

/// A fake node.
pub struct Imposter {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl Imposter {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Mutex<Script>> = Arc::default();
        let theirs = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let script = Arc::clone(&theirs);
                std::thread::spawn(move || {
                    // The client may end at any time.
                    let _ = converse(&mut stream.unwrap(), &script);
                });
            }
        });
        Self { address, script }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    fn connect(&self, token: &[u8], patience: Duration) -> Result<Tcp, FabricError> {
        let options = TcpOptions { token: token.into(), patience, ..TcpOptions::default() };
        Tcp::connect(&[self.address.to_string()], options)
    }

    /// Runs one mutated conversation, and checks the client's results.
    pub fn case(&self, dice: &mut Pcg64Mcg, corpus: &[Conversation], is_long: bool) {
        let mut frames = corpus.choose(dice).unwrap().frames(0);
        let other = corpus.choose(dice).unwrap().frames(0);
        let greeting = if dice.random_ratio(1, 4) { 0 } else { frames.len().min(2) };
        let mut behind = frames.split_off(greeting);
        mutate(dice, &mut behind, &other);
        frames.append(&mut behind);
        let token: &[u8] = if dice.random_ratio(1, 3) { b"open sesame" } else { b"" };
        let at_end = match dice.random_range(0..100) {
            0 if is_long => AtEnd::IsSilent,
            0..60 => AtEnd::HangsUp,
            _ => AtEnd::Behaves,
        };
        // The first connection is only mutated sometimes: the size of memory that it announces is
        // final, and persisting, which uses the size, may take a node minutes.
        let is_late = at_end == AtEnd::IsSilent || !dice.random_ratio(1, 4);
        let says = if is_late { vec![None, Some(frames)] } else { vec![Some(frames)] };
        self.set(says, token, dice.random::<u64>(), at_end);
        let way = if dice.random_ratio(1, 3) { Way::Reactor } else { Way::Loop };
        let patience = if at_end == AtEnd::IsSilent { PATIENCE } else { LONG };
        let met = self.meet(token, way, patience);
        self.set(Vec::new(), token, dice.random::<u64>(), AtEnd::Behaves);
        let ends = |outcome: &String| outcome == "Fenced" || outcome == "Forgotten";
        let is_shut_out = met.as_ref().is_some_and(|(_, outcomes)| outcomes.iter().any(ends));
        if let Some((fabric, _)) = met
            && !is_shut_out
            && is_late
        {
            assert_works_again(&fabric, way);
        }
        assert_works_again(&self.connect(token, LONG).unwrap(), way);
        crate::run::assert_modest();
    }

    fn set(&self, says: Vec<Option<Vec<Frame>>>, token: &[u8], dice: u64, at_end: AtEnd) {
        let token = token.to_vec();
        *self.script() = Script { says, token, dice, at_end, good: Vec::new() };
    }

    /// Connects and makes all requests. Returns the fabric, and the result of each request.
    fn meet(&self, token: &[u8], way: Way, patience: Duration) -> Option<(Tcp, Vec<String>)> {
        let fabric = self.connect(token, patience).map_err(|error| told(&error)).ok()?;
        assert!(fabric.node_bytes(0) <= OFFSET_LIMIT, "{} bytes of region", fabric.node_bytes(0));
        let mut endpoint = fabric.endpoint().unwrap();
        let mut outcomes = Vec::new();
        for request in 0..REQUESTS {
            outcomes.push(match ask(&mut endpoint, request, way) {
                Ok(brought) => {
                    let is_said = self.script().good.contains(&brought);
                    assert!(is_said, "{brought:?} has no valid reply");
                    "Ok".to_owned()
                }
                Err(error) => told(&error),
            });
        }
        outcomes.extend(fabric.persist().err().map(|error| told(&error)));
        Some((fabric, outcomes))
    }
}

/// The executor of the futures: the thread's own loop, or another executor together with the
/// fabric's thread.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Loop,
    Reactor,
}

impl Way {
    fn wait<T>(self, future: impl Future<Output = T>) -> T {
        match self {
            Self::Loop => block_on(future),
            Self::Reactor => tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future),
        }
    }
}

/// Makes one of the requests. Returns the words that it read: 3, 1, 4, or the words of the reply to
/// a call.
fn ask(endpoint: &mut TcpEndpoint, request: usize, way: Way) -> Result<Vec<u8>, FabricError> {
    let at = |offset| GlobalAddr::new(0, offset);
    let mut batch = endpoint.batch();
    let mut words = Vec::new();
    match request {
        0 => {
            batch.write(at(64), &[1, 2, 3]);
            let (added, read) = (batch.faa(at(128), 1), batch.read(at(192), 2));
            let done = way.wait(endpoint.submit(batch))?;
            words.push(done.fetched(added));
            words.extend(done.words(read));
        }
        1 => {
            let swapped = batch.cas(at(8), 0, 1);
            words.push(way.wait(endpoint.submit(batch))?.found(swapped));
        }
        2 => {
            let read = batch.read(at(0), 4);
            words.extend(way.wait(endpoint.submit(batch))?.words(read));
        }
        _ => words = way.wait(endpoint.call(0, 6, vec![1, 2]))?,
    }
    Ok(bytemuck::cast_slice(&words).to_vec())
}

/// Verifies that the client works with a correct node again: leftovers of a connection may cost the
/// first requests, but no others.
fn assert_works_again(fabric: &Tcp, way: Way) {
    let mut endpoint = fabric.endpoint().unwrap();
    let mut failures = Vec::new();
    while let Err(error) = ask(&mut endpoint, 0, way) {
        failures.push(told(&error));
        assert!(failures.len() < 4, "does not work again: {failures:?}");
    }
    let persisted: Vec<_> = (0..3).map(|_| fabric.persist()).collect();
    assert!(persisted.iter().any(Result::is_ok), "{persisted:?}");
}

/// Returns the name of an error that callers can receive.
fn told(error: &FabricError) -> String {
    let text = error.to_string();
    assert!(text.len() <= ERROR_BYTES_MAX, "{} bytes of error: {}", text.len(), &text[..80]);
    let name = format!("{error:?}");
    name.split(|end: char| !end.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Serves one connection of a fake node.
fn converse(stream: &mut TcpStream, script: &Mutex<Script>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (frames, token, seed, at_end) = {
        let mut script = script.lock().unwrap();
        let frames = if script.says.is_empty() { None } else { script.says.remove(0) };
        (frames, script.token.clone(), script.dice, script.at_end)
    };
    let at_end = if frames.is_some() { at_end } else { AtEnd::Behaves };
    let (mut frames, mut dice) = (frames.unwrap_or_default().into_iter(), Pcg64Mcg::seed_from_u64(seed));
    let (mut hello, mut said, mut requests) = (None, Vec::new(), 0);
    loop {
        let mut heard = Vec::new();
        // An incomplete reply continues before another request is read.
        let is_asked = whole_answers(&said) >= requests;
        if is_asked {
            heard = hear(stream, requests)?;
            requests += 1;
        }
        let hello: Hello = *hello.get_or_insert_with(|| wire::head(&heard).unwrap());
        let nonce = wire::head(&said).map_or(Nonce::default(), |challenge: Challenge| challenge.nonce);
        let transcript = Transcript { client: hello.nonce, node: nonce, session: hello.session };
        let proof = transcript.prove(&token, Side::Node);
        let bytes = match (frames.next(), at_end) {
            (Some(frame), _) => frame.with(&proof),
            (None, AtEnd::Behaves) if is_asked => well_behaved(requests - 1, &heard, &proof, &mut dice),
            (None, AtEnd::Behaves | AtEnd::HangsUp) => return Ok(()),
            // Until the client ends the connection.
            (None, AtEnd::IsSilent) => return stream.read_to_end(&mut heard).map(drop),
        };
        said.extend_from_slice(&bytes);
        script.lock().unwrap().good.extend(proper_replies(&said));
        for segment in segments(&mut dice, &[bytes]) {
            stream.write_all(&segment)?;
        }
    }
}

/// Returns the next message of a client that has sent this number of bytes before.
fn hear(stream: &mut TcpStream, before: usize) -> std::io::Result<Vec<u8>> {
    let head = [size_of::<Hello>(), size_of::<Proof>(), HEADER_BYTES][before.min(2)];
    let mut heard = vec![0; head];
    stream.read_exact(&mut heard)?;
    if before >= 2 {
        let head: RequestHead = wire::head(&heard).unwrap();
        heard.resize(HEADER_BYTES + head.bytes as usize, 0);
        stream.read_exact(&mut heard[HEADER_BYTES..])?;
    }
    Ok(heard)
}

fn answers(said: &[u8]) -> impl Iterator<Item = Answer> {
    let (mut rest, mut count) = (said, 0);
    std::iter::from_fn(move || {
        let (answer, bytes) = reading::answer(rest, count)?;
        (rest, count) = (&rest[bytes..], count + 1);
        Some(answer)
    })
}

fn whole_answers(said: &[u8]) -> usize {
    answers(said).count()
}

/// Returns the payloads of the replies that a client may accept: those before the first invalid
/// reply.
fn proper_replies(said: &[u8]) -> Vec<Vec<u8>> {
    let mut proper = Vec::new();
    for (at, answer) in answers(said).enumerate() {
        match answer {
            Answer::Challenge(challenge) if challenge == Challenge::new(Refusal::None, challenge.nonce) => {}
            Answer::Welcome(welcome) if welcome.refusal == 0 => {}
            Answer::Reply(head, payload) if head.id == at as u64 - 1 => {
                match Refusal::from_code(head.refusal) {
                    Some(Refusal::None) => proper.push(payload),
                    Some(_) => {}
                    None => break,
                }
            }
            _ => break,
        }
    }
    proper
}

/// Returns a correct node's reply to the bytes received, after this number of bytes of replies.
fn well_behaved(before: usize, heard: &[u8], proof: &Proof, dice: &mut Pcg64Mcg) -> Vec<u8> {
    let frame = |line: &str| Conversation::of(line).frames(0).remove(0);
    match before {
        0 => return frame("challenge").bytes,
        1 => return frame("welcome").with(proof),
        _ => {}
    }
    let head: RequestHead = wire::head(heard).unwrap();
    let verbs = reading::verbs(&heard[HEADER_BYTES..], head.verbs, usize::MAX).unwrap_or_default();
    let words = if head.kind == RequestKind::Call as u8 {
        dice.random_range(0..9)
    } else {
        verbs.iter().filter(|verb| verb.kind != reading::WRITE).map(|verb| verb.length).sum()
    };
    let payload: Vec<u64> = (0..words).map(|_| dice.random::<u64>()).collect();
    let (refusal, bytes) = (Refusal::None as u8, payload.len() as u32 * 8);
    let reply = ReplyHead { refusal, reserved: 0, verbs: head.verbs, bytes, id: head.id };
    [wire::as_bytes(&reply), bytemuck::cast_slice(&payload)].concat()
}

/// Returns the results of the client's requests if a node sends this on the connection for them.
pub fn outcome(conversation: &Conversation) -> String {
    let imposter = Imposter::start();
    imposter.set(vec![None, Some(conversation.frames(0))], b"open sesame", 0, AtEnd::Behaves);
    let (_, outcomes) = imposter.meet(b"open sesame", Way::Loop, LONG).unwrap();
    outcomes.join(" ")
}

/// Returns the client's errors if a node falls silent after this number of bytes of a correct
/// conversation.
pub fn outcome_of_silence(conversation: &Conversation, bytes: usize, way: Way) -> Vec<String> {
    let imposter = Imposter::start();
    let mut left = bytes;
    let mut frames = conversation.frames(0);
    frames.retain_mut(|frame| {
        frame.bytes.truncate(left);
        left -= frame.bytes.len();
        !frame.bytes.is_empty()
    });
    imposter.set(vec![None, Some(frames)], b"", 0, AtEnd::IsSilent);
    let (fabric, outcomes) = imposter.meet(b"", way, PATIENCE).unwrap();
    assert_works_again(&fabric, way);
    outcomes
}

/// Returns the corpus of messages to clients.
pub fn corpus() -> Vec<Conversation> {
    corpus::read("to-client")
}
