//! A figure of WORT's paper with the trees in a server: SETs, then GETs, through a gateway over
//! each tree, as Memcached runs them there (section 5.4).
//!
//! The lines that a request touches are counted, on one connection. The time from sending a request
//! to receiving its reply is measured, on the loopback device; the time that slower memory adds is
//! modelled from the lines.

use super::claim::{Claim, chart, sheet};
use super::figure::Scale;
use super::line_cache::LineCache;
use super::line_study::{DESIGNS, Latencies, LineCounts, cache_lines, validate};
use super::quantity::Span;
use super::reproduction::{Reproducible, Reproduction, Synopsis};
use crate::Setting;
use crate::compare::{Results, Sheet, hash, rows};
use darter::engine::{self, AnyIndex, Engine, StoreFabric};
use darter::{PoolUrl, Store};
use darter_baselines::{Design, Wort, WortOptions};
use darter_bench::BenchError;
use darter_bench::permutation::derive_seed;
use darter_bench::progress::Progress;
use darter_fabric::counted;
use darter_gateway::{Gateway, GatewayOptions, Stop};
use serde::Serialize;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// The name and version of the settings that the hash is of.
const FORM: &str = "darter-paper-gateway/1";

/// Bytes of a pool for each record, and besides.
const RECORD_ROOM: u64 = 1024;
const POOL_ROOM: u64 = 128 << 20;

/// Clients that send SETs, and GETs, at once (section 5.4).
const SETTERS: u64 = 4;
const GETTERS: u64 = 50;

/// The latencies of the paper's figure: DRAM, and persistent memory that is slower to read and
/// write.
const LATENCIES: [Latencies; 2] = [Latencies { read: 100, write: 100 }, Latencies { read: 300, write: 300 }];

/// Computes our number.
pub(super) type Ours = fn(&Rows) -> Option<Span>;

/// A figure whose trees are accessed through gateways.
pub(super) struct GatewayFigure {
    /// The name on the command line.
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) title: &'static str,
    /// How this run differs from the paper's, in addition to the scale.
    pub(super) differs: &'static str,
    /// The numbers that the text gives.
    pub(super) claims: &'static [Claim<Ours>],
}

/// One command on one tree, in the order of the CSV's columns. Counts are averages over requests.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    program: &'static str,
    pub(super) command: &'static str,
    pub(super) index: &'static str,
    records: u64,
    requests: u64,
    seed: u64,
    connections: u64,
    lines_read: f64,
    /// Lines read or written that were not in the modelled cache.
    lines_missed: f64,
    lines_flushed: f64,
    fences: f64,
    /// Measured: from a client and back to it, with all connections active.
    request_us: f64,
    /// Modelled: the tree's part of it at 100 ns per line, and at 300.
    tree_us: f64,
    slow_tree_us: f64,
}

impl Row {
    /// Returns how much longer a request takes when the memory is slower.
    pub(super) fn slowdown(&self) -> f64 {
        1.0 + (self.slow_tree_us - self.tree_us) / self.request_us
    }
}

/// All rows of a figure.
pub(super) struct Rows(Vec<Row>);

impl Rows {
    /// Returns those of a command.
    pub(super) fn of(&self, command: &str) -> impl Iterator<Item = &Row> + Clone {
        self.0.iter().filter(move |row| row.command == command)
    }
}

impl Reproducible for GatewayFigure {
    fn synopsis(&self, _scale: &Scale) -> Synopsis {
        Synopsis {
            name: self.name,
            title: self.title,
            clock: "a real one for requests, modelled for memory; counts of lines are exact",
            indexes: DESIGNS.map(|(name, _)| name).to_vec(),
            numbers: self.claims.len(),
        }
    }

    fn validate(&self, scale: &Scale) -> Result<(), BenchError> {
        validate(scale)
    }

    fn reproduce(&self, scale: &Scale, setting: &Setting) -> Result<Reproduction, BenchError> {
        let progress = Progress::hidden(&setting.stop);
        let mut all = Vec::new();
        for (index, design) in DESIGNS {
            all.extend(measure(index, design, scale, &progress)?);
        }
        let rows = Rows(all);
        let settings = format!(
            "{FORM} {} {} records={} ops={} seed={}",
            env!("CARGO_PKG_VERSION"),
            self.name,
            scale.records,
            scale.ops,
            scale.seed
        );
        let stated = self.rows(&rows);
        let results = Results {
            sheets: vec![sheet(&stated, true), sheet_of_requests(&rows)],
            csv: self::rows(rows.0.iter())?,
            charts: chart(self.name, &stated, 1).into_iter().collect(),
            asked: hash(&settings),
        };
        let what = format!(
            "{} of keys drawn evenly from as many, by {SETTERS} connections, then {} by {GETTERS}, where the paper has 128 \
             million of each; differs: {}.",
            counted(scale.records, "SET"),
            counted(scale.ops, "GET"),
            self.differs
        );
        let model = "Requests are measured here, on the loopback device, with clients, gateway and tree on the same \
                     processors. Lines are counted by one connection on a tree of its own; what they take at each \
                     latency is modelled, with a cache as in wort-table1."
            .to_owned();
        Ok(Reproduction { modelled: true, what: vec![what, model], results })
    }

    #[cfg(test)]
    fn words(&self) -> super::reproduction::Words {
        super::reproduction::Words { differs: self.differs, rows: self.rows(&Rows(Vec::new())) }
    }
}

impl GatewayFigure {
    /// Returns the paper's numbers and ours.
    fn rows(&self, rows: &Rows) -> Vec<super::claim::Row> {
        self.claims.iter().map(|claim| claim.row(|ours| ours(rows))).collect()
    }
}

/// The table: counts first.
fn sheet_of_requests(rows: &Rows) -> Sheet {
    let mut sheet = Sheet::new(
        "Requests; the tree's part is modelled, at 100 and at 300 ns a line",
        &[
            "command",
            "index",
            "lines read",
            "missed",
            "flushed",
            "fences",
            "µs a request, measured",
            "tree, µs",
            "slow tree, µs",
            "slower by",
        ],
    );
    for row in &rows.0 {
        let counts = [row.lines_read, row.lines_missed, row.lines_flushed, row.fences];
        let times = [row.request_us, row.tree_us, row.slow_tree_us];
        let mut cells = vec![row.command.to_owned(), row.index.to_owned()];
        cells.extend(counts.map(|count| format!("{count:.2}")));
        cells.extend(times.map(|us| format!("{us:.1}")));
        cells.push(format!("{:.1}%", (row.slowdown() - 1.0) * 100.0));
        sheet.rows.push(cells);
    }
    sheet
}

/// A gateway over a separate tree.
struct Served {
    index: Wort<StoreFabric>,
    address: SocketAddr,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Result<(), darter_gateway::GatewayError>>>,
}

impl Served {
    fn start(design: Design, records: u64) -> Result<Self, BenchError> {
        let bytes = (records * RECORD_ROOM + POOL_ROOM).next_multiple_of(1 << 20);
        let url: PoolUrl = format!("mem:{bytes}")
            .parse()
            .map_err(|error| BenchError::Usage(format!("a pool of {bytes} bytes: {error}")))?;
        let store = Store::options().sweep(false);
        let store = engine::open_with::<Wort<StoreFabric>>(&store, &url, WortOptions::of(design))?;
        let index = store.index();
        let AnyIndex::Other(index) = &*index else { unreachable!("it was erased") };
        let index = index.downcast_ref::<Wort<_>>().unwrap_or_else(|| unreachable!("it is the tree")).clone();
        let options = GatewayOptions { expires: false, ..GatewayOptions::default() };
        let gateway =
            Gateway::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), store, options).map_err(failed)?;
        let (address, stop) = (gateway.address().map_err(failed)?, Arc::new(Stop::default()));
        let theirs = Arc::clone(&stop);
        let thread = Some(std::thread::spawn(move || gateway.serve(&theirs)));
        Ok(Self { index, address, stop, thread })
    }

    fn client(&self) -> Result<Client, BenchError> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(Client { replies: BufReader::new(stream), line: String::new() })
    }

    /// Ends the gateway. Returns its error if it has failed.
    fn end(mut self) -> Result<(), BenchError> {
        self.stop.ask();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(served)) => served.map_err(failed),
            _ => Err(BenchError::Process("the gateway's thread has panicked".to_owned())),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // The caller that drops it here reports another error.
            let _ = thread.join();
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` needs it
fn failed(error: darter_gateway::GatewayError) -> BenchError {
    BenchError::Process(error.to_string())
}

/// A client that sends one request at a time.
struct Client {
    replies: BufReader<TcpStream>,
    line: String,
}

impl Client {
    /// Sends a command. Returns the reply, including its bulk string.
    fn ask(&mut self, words: &[&str]) -> Result<&str, BenchError> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            write!(request, "${}\r\n{word}\r\n", word.len())?;
        }
        self.replies.get_mut().write_all(&request)?;
        self.line.clear();
        self.replies.read_line(&mut self.line)?;
        if self.line.starts_with('$') && self.line != "$-1\r\n" {
            self.line.clear();
            self.replies.read_line(&mut self.line)?;
        }
        Ok(self.line.trim_end())
    }
}

/// The requests of one run: the keys, and which of them were set.
#[derive(Clone, Copy)]
struct Requests {
    records: u64,
    gets: u64,
    seed: u64,
}

impl Requests {
    /// Returns the key of the n-th SET.
    fn set(self, nth: u64) -> u64 {
        derive_seed(self.seed ^ 0x0053_4554, nth) % self.records
    }

    /// Returns the key of the n-th GET.
    fn get(self, nth: u64) -> u64 {
        derive_seed(self.seed ^ 0x0047_4554, nth) % self.records
    }

    /// Returns the keys that are present after all SETs.
    fn there(self) -> HashSet<u64> {
        (0..self.records).map(|nth| self.set(nth)).collect()
    }

    fn send_set(self, client: &mut Client, nth: u64) -> Result<(), BenchError> {
        let number = self.set(nth);
        let reply = client.ask(&["SET", &key(number), &value(number)])?;
        if reply == "+OK" { Ok(()) } else { Err(wrong(format!("SET: {reply:?}"))) }
    }

    fn send_get(self, client: &mut Client, nth: u64, there: &HashSet<u64>) -> Result<(), BenchError> {
        let number = self.get(nth);
        let wanted = if there.contains(&number) { value(number) } else { "$-1".to_owned() };
        let reply = client.ask(&["GET", &key(number)])?;
        if reply == wanted { Ok(()) } else { Err(wrong(format!("GET of key {number}: {reply:?}"))) }
    }
}

fn key(number: u64) -> String {
    format!("key:{number:012}")
}

fn value(number: u64) -> String {
    format!("{number:032x}")
}

fn wrong(what: String) -> BenchError {
    BenchError::WrongAnswer { index: "the gateway", what }
}

/// Counts lines and measures requests of one tree.
fn measure(
    index: &'static str,
    design: Design,
    scale: &Scale,
    progress: &Progress,
) -> Result<[Row; 2], BenchError> {
    let requests = Requests { records: scale.records, gets: scale.ops, seed: scale.seed };
    let there = requests.there();
    let lines = count(design, requests, &there, progress)?;
    let served = Served::start(design, requests.records)?;
    let set_us =
        timed(&served, SETTERS, requests.records, progress, |client, nth| requests.send_set(client, nth))?;
    let get_us = timed(&served, GETTERS, requests.gets, progress, |client, nth| {
        requests.send_get(client, nth, &there)
    })?;
    served.end()?;
    let row = |command, counts: LineCounts, connections, request_us| {
        let [tree_us, slow_tree_us] = LATENCIES.map(|latencies| counts.ns(latencies) / 1e3);
        Row {
            program: env!("CARGO_PKG_VERSION"),
            command,
            index,
            records: requests.records,
            requests: counts.ops,
            seed: requests.seed,
            connections,
            lines_read: counts.each(counts.read),
            lines_missed: counts.each(counts.read_missed + counts.write_missed),
            lines_flushed: counts.each(counts.flushed),
            fences: counts.each(counts.fences),
            request_us,
            tree_us,
            slow_tree_us,
        }
    };
    Ok([row("SET", lines.0, SETTERS, set_us), row("GET", lines.1, GETTERS, get_us)])
}

/// Counts the lines of all SETs and GETs, which one connection sends.
fn count(
    design: Design,
    requests: Requests,
    there: &HashSet<u64>,
    progress: &Progress,
) -> Result<(LineCounts, LineCounts), BenchError> {
    let served = Served::start(design, requests.records)?;
    let (mut client, mut cache) = (served.client()?, LineCache::new(cache_lines(requests.records)));
    let (mut sets, mut gets, mut seen) = (LineCounts::default(), LineCounts::default(), HashSet::new());
    let fences = served.index.persistence().fences;
    served.index.record_touches(true);
    for nth in 0..requests.records {
        progress.go_on()?;
        requests.send_set(&mut client, nth)?;
        sets.add(&served.index.take_touches(), &mut cache, &mut seen);
    }
    sets.fences = served.index.persistence().fences - fences;
    for nth in 0..requests.gets {
        progress.go_on()?;
        requests.send_get(&mut client, nth, there)?;
        gets.add(&served.index.take_touches(), &mut cache, &mut seen);
    }
    drop(client);
    served.end()?;
    Ok((sets, gets))
}

/// Sends requests by several connections at once. Returns the microseconds of one, on average.
fn timed(
    served: &Served,
    connections: u64,
    requests: u64,
    progress: &Progress,
    send: impl Fn(&mut Client, u64) -> Result<(), BenchError> + Sync,
) -> Result<f64, BenchError> {
    let clients = (0..connections).map(|_| served.client()).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let send = &send;
        let threads: Vec<_> = (0..connections)
            .zip(clients)
            .map(|(first, mut client)| {
                scope.spawn(move || {
                    (first..requests).step_by(connections as usize).try_for_each(|nth| {
                        progress.go_on()?;
                        send(&mut client, nth)
                    })
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(BenchError::Process("a client has panicked".to_owned())))
        })
    })?;
    Ok(began.elapsed().as_secs_f64() * 1e6 * connections as f64 / requests.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_flush_what_they_change() {
        let scale = Scale { records: 400, ops: 300, rounds: 1, seed: 5 };
        let stop = Arc::default();
        for (index, design) in DESIGNS {
            let [set, get] = measure(index, design, &scale, &Progress::hidden(&stop)).unwrap();
            assert_eq!((set.requests, get.requests), (400, 300));
            // At least a leaf, and the word that leads to it.
            assert!(set.lines_flushed >= 2.0 && (set.fences - 2.0).abs() < 1e-9, "{set:?}");
            assert_eq!((get.lines_flushed, get.fences), (0.0, 0.0), "{get:?}");
            assert!(get.lines_read > 3.0 && get.request_us > 0.0, "{get:?}");
            assert!(get.slowdown() >= 1.0 && get.slow_tree_us > get.tree_us, "{get:?}");
        }
    }

    #[test]
    fn an_unexpected_gateway_reply_is_an_error() {
        let served = Served::start(Design::Wort, 10).unwrap();
        let requests = Requests { records: 10, gets: 10, seed: 5 };
        let error = requests.send_get(&mut served.client().unwrap(), 0, &(0..10).collect()).unwrap_err();
        assert!(error.to_string().contains("$-1"), "{error}");
    }
}
