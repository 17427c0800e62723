//! What is damaged: pool files, the log of a memory node, and the logs of a memory group.

use super::contents::{BLOCK_BYTES, CLIENT_COMMAND};
use super::harm::{self, Sound, Way};
use super::process::{self, Ended, Node};
use rand::{Rng, RngExt};
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a memory node's region.
const NODE_BYTES: &str = "8M";
/// Bytes of a pool file.
const FILE_BYTES: u64 = 8 << 20;
/// Bytes of a region before its blocks.
const TABLES_BYTES: u64 = 64 << 10;
/// Bytes at the beginning of a block that hold its page words and freed words.
const BLOCK_HEAD_BYTES: u64 = 1024;
/// Number of replicas of a group.
const REPLICAS: usize = 3;
/// Longer than checkpoints take, even on a busy machine.
const CHECKPOINTS_AFTER: Duration = Duration::from_secs(120);
/// Longer than a group takes to serve after its start, even on a busy machine.
const SERVES_AFTER: Duration = Duration::from_secs(120);
/// Ports that the system does not give to clients by itself.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A kind of pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Kind {
    /// Pool files
    File,
    /// The log of a memory node
    Node,
    /// The logs of a memory group of three replicas, and its views
    Group,
}

/// The result of one damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// All answers were right.
    Right,
    /// There were errors, which name the damage, and no wrong answer.
    Named,
    /// A wrong answer, an error that names nothing, a panic or a hang.
    Wrong,
}

/// One damage and its result.
#[derive(Debug)]
pub(super) struct Round {
    /// The kind of file.
    pub(super) file: String,
    pub(super) way: Way,
    pub(super) outcome: Outcome,
    /// The damage, and the errors.
    pub(super) text: String,
}

/// A pool that is damaged again and again.
pub(super) enum Subject {
    File { sound: Sound, url: String, nodes: u64 },
    Node { directory: PathBuf, sound: Vec<Sound> },
    Group { directory: PathBuf, logs: Vec<Vec<Sound>>, views: Sound, addresses: Vec<String>, members: usize },
}

fn client(task: &str, url: &str) -> io::Result<Ended> {
    process::run(&[CLIENT_COMMAND, "--task", task, "--pool", url].map(OsString::from))
}

fn fill(url: &str, dies: bool) -> io::Result<()> {
    let Ended { code, out, err } = client(if dies { "fill-and-die" } else { "fill" }, url)?;
    if code == Some(0) {
        Ok(())
    } else {
        Err(io::Error::other(format!("cannot fill {url}: {code:?}: {out}{err}")))
    }
}

fn node_words(listen: &str, log: &Path) -> Vec<OsString> {
    let words = ["--listen", listen, "--size", NODE_BYTES, "--durability", "log", "--segment-bytes", "256K"];
    let more = ["--checkpoint-bytes", "1M", "--log"];
    words.into_iter().chain(more).map(OsString::from).chain([log.into()]).collect()
}

/// Waits until a log has both images.
fn await_images(log: &Path) -> io::Result<()> {
    let end = Instant::now() + CHECKPOINTS_AFTER;
    while !["image-1", "image-2", "checkpoint"].iter().all(|name| log.join(name).exists()) {
        if Instant::now() > end {
            return Err(io::Error::other(format!("{}: no two checkpoints", log.display())));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Subject {
    /// Makes a pool of a kind in a directory. `variant` chooses how its last process ended.
    pub(super) fn make(
        kind: Kind,
        variant: usize,
        directory: &Path,
        dice: &mut impl Rng,
    ) -> io::Result<Self> {
        let has_died = !variant.is_multiple_of(2);
        match kind {
            Kind::File => {
                let (path, nodes) = (directory.join("pool"), 1 + variant as u64 / 2 % 2);
                let url = format!("file:{}", path.display());
                fill(&format!("{url}?size={FILE_BYTES}&nodes={nodes}"), has_died)?;
                Ok(Self::File { sound: Sound::read(path)?, url, nodes })
            }
            Kind::Node => {
                let log = directory.join("log");
                let mut node = Node::start(&node_words("127.0.0.1:0", &log), &directory.join("messages"))?;
                let url = node.url().map_err(io::Error::other)?;
                fill(&format!("{url}?durability=log"), has_died)?;
                await_images(&log)?;
                if has_died {
                    drop(node);
                } else {
                    node.stop()?;
                }
                Ok(Self::Node { sound: harm::files(&log)?, directory: directory.to_owned() })
            }
            Kind::Group => {
                let addresses = free_addresses(dice)?;
                let mut nodes = start_group(directory, &addresses)?;
                for node in &mut nodes {
                    node.url().map_err(io::Error::other)?;
                }
                fill(&group_url(&addresses), has_died)?;
                let log = |at| directory.join(format!("log-{at}"));
                for at in 0..REPLICAS {
                    await_images(&log(at))?;
                }
                if has_died {
                    drop(nodes);
                } else {
                    nodes.into_iter().try_for_each(Node::stop)?;
                }
                let logs = (0..REPLICAS).map(|at| harm::files(&log(at))).collect::<io::Result<_>>()?;
                let views = views_path(directory)?;
                let view = std::fs::read_to_string(&views)?;
                let view: serde_json::Value = serde_json::from_str(&view).map_err(io::Error::other)?;
                let members = 1 + view["backups"].as_array().map_or(0, Vec::len);
                let views = Sound::read(views)?;
                Ok(Self::Group { directory: directory.to_owned(), logs, views, addresses, members })
            }
        }
    }

    /// Restores the pool, damages it, and reads it.
    pub(super) fn round(&self, way: Way, dice: &mut impl Rng) -> io::Result<Round> {
        match self {
            Self::File { sound, url, nodes } => {
                sound.restore()?;
                // Many damages are in the tables of the first region, a small part.
                let only_before = dice.random_bool(0.4).then_some(TABLES_BYTES);
                let harm = sound.damage(way, only_before, dice)?;
                let file = format!("pool file, {}", part_of(harm.at, *nodes));
                let ended = client("read", url)?;
                let (outcome, why) = judge(&ended, &[]);
                Ok(Round { file, way, outcome, text: format!("{}: {why}", harm.text) })
            }
            Self::Node { directory, sound } => {
                let log = directory.join("log");
                harm::restore_directory(&log, sound)?;
                let (file, text) = damage_one(sound, way, dice)?;
                let mut node = Node::start(&node_words("127.0.0.1:0", &log), &directory.join("messages"))?;
                let (outcome, why) = judge_node(&mut node, sound)?;
                Ok(Round { file: format!("log, {file}"), way, outcome, text: format!("{text}: {why}") })
            }
            Self::Group { directory, logs, views, addresses, members } => {
                for (at, files) in logs.iter().enumerate() {
                    harm::restore_directory(&directory.join(format!("log-{at}")), files)?;
                }
                views.restore()?;
                let (file, text) = if dice.random_range(0..8) == 0 {
                    let harm = views.damage(way, None, dice)?;
                    ("views".to_owned(), format!("views, {}", harm.text))
                } else {
                    let replica = dice.random_range(0..REPLICAS);
                    let (file, text) = damage_one(&logs[replica], way, dice)?;
                    (file, format!("replica {replica}, {text}"))
                };
                let nodes = start_group(directory, addresses)?;
                let (outcome, why) = judge_group(&nodes, addresses, &file, *members)?;
                Ok(Round {
                    file: format!("group's log, {file}"),
                    way,
                    outcome,
                    text: format!("{text}: {why}"),
                })
            }
        }
    }
}

/// Damages a file of a log. Returns the kind of file, and the damage.
fn damage_one(sound: &[Sound], way: Way, dice: &mut impl Rng) -> io::Result<(String, String)> {
    let used: Vec<&Sound> = sound.iter().filter(|sound| sound.is_used()).collect();
    let sound = used[dice.random_range(0..used.len())];
    let name = sound.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let kind = name.split('-').next().unwrap_or_default().to_owned();
    let harm = sound.damage(way, None, dice)?;
    Ok((kind, format!("{name}, {}", harm.text)))
}

/// Names the part of a pool file with a position.
fn part_of(at: u64, nodes: u64) -> &'static str {
    let within = at % (FILE_BYTES / nodes);
    match within.checked_sub(TABLES_BYTES) {
        None => "tables",
        Some(in_blocks) if in_blocks % BLOCK_BYTES < BLOCK_HEAD_BYTES => "head of a block",
        Some(_) => "objects",
    }
}

/// Judges a memory node with a damaged log: it serves everything, or names a file of its log. A node
/// that serves has promised that nothing is missing, so that an error of a reader counts as wrong.
fn judge_node(node: &mut Node, sound: &[Sound]) -> io::Result<(Outcome, String)> {
    let url = match node.url() {
        Ok(url) => url,
        Err(why) => return Ok((Outcome::Wrong, why)),
    };
    if !url.is_empty() {
        let ended = client("read", &format!("{url}?durability=log"))?;
        return Ok(match judge(&ended, &[node.said()]) {
            (Outcome::Named, why) => (Outcome::Wrong, format!("the node serves, but {why}")),
            judged => judged,
        });
    }
    let (code, said) = (node.code()?, node.said());
    let names = sound.iter().filter_map(|sound| sound.path.file_name()?.to_str().map(str::to_owned));
    let is_named =
        code == Some(1) && !said.contains("panicked") && names.into_iter().any(|name| said.contains(&name));
    let outcome = if is_named { Outcome::Named } else { Outcome::Wrong };
    Ok((outcome, format!("exit {code:?}: {}", said.trim())))
}

/// Judges a group of which one file is damaged. With all replicas in its last view it must serve,
/// since two of them have everything. With two, the group may wait for the replica whose log is
/// damaged, and must say so, and what to do.
fn judge_group(
    nodes: &[Node],
    addresses: &[String],
    file: &str,
    members: usize,
) -> io::Result<(Outcome, String)> {
    let end = Instant::now() + SERVES_AFTER;
    let said = || nodes.iter().map(Node::said).collect::<Vec<_>>();
    let any = |texts: &[&str]| said().iter().any(|said| texts.iter().any(|text| said.contains(text)));
    let waits = ["--members-min", "store of views"];
    while !any(&["serves the group"]) && !any(&waits) && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    let warnings = || {
        let said = said().join("\n");
        let lines = said.lines().filter(|line| !line.contains(" INFO "));
        lines.collect::<Vec<_>>().join("\n")
    };
    if any(&["serves the group"]) {
        let (outcome, why) = judge(&client("read", &group_url(addresses))?, &said());
        return Ok(match outcome {
            Outcome::Right => (outcome, why),
            _ => (Outcome::Wrong, format!("{why}\n{}", warnings())),
        });
    }
    let is_named = if file == "views" {
        any(&["store of views"])
    } else {
        members < REPLICAS && any(&["--members-min"]) && any(&["the log is damaged"])
    };
    Ok((if is_named { Outcome::Named } else { Outcome::Wrong }, format!("does not serve:\n{}", warnings())))
}

/// Judges a reader, and the messages of its memory nodes.
fn judge(ended: &Ended, said: &[String]) -> (Outcome, String) {
    let Ended { code, out, err } = ended;
    let has_panicked = said.iter().chain([err, out]).any(|text| text.contains("panicked"));
    if *code != Some(0) || has_panicked || !out.ends_with("end\n") {
        return (Outcome::Wrong, format!("exit {code:?}: {out} {err} {}", said.join(" ")));
    }
    let of = |kind: &str| {
        let lines = out.lines().filter_map(|line| line.strip_prefix(kind));
        lines.map(str::trim).collect::<Vec<_>>()
    };
    match (of("wrong"), of("named")) {
        (wrong, _) if !wrong.is_empty() => (Outcome::Wrong, wrong.join("; ")),
        (_, named) if !named.is_empty() => (Outcome::Named, named[..named.len().min(3)].join("; ")),
        _ => (Outcome::Right, "all answers are right".to_owned()),
    }
}

fn free_addresses(dice: &mut impl Rng) -> io::Result<Vec<String>> {
    let mut listeners = Vec::new();
    for _ in 0..1000 {
        if listeners.len() == REPLICAS {
            break;
        }
        listeners.extend(TcpListener::bind(("127.0.0.1", dice.random_range(PORTS))));
    }
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}

fn group_url(addresses: &[String]) -> String {
    format!("tcp://{}?durability=log", addresses.join("+"))
}

fn start_group(directory: &Path, addresses: &[String]) -> io::Result<Vec<Node>> {
    let all = addresses.join("+");
    let views = format!("file:{}", directory.join("views").display());
    let start = |(at, address): (usize, &String)| {
        let mut words = node_words(address, &directory.join(format!("log-{at}")));
        words.extend(["--replicas", &all, "--views", &views].map(OsString::from));
        Node::start(&words, &directory.join(format!("messages-{at}")))
    };
    addresses.iter().enumerate().map(start).collect()
}

/// The file with the views of the group in a directory.
fn views_path(directory: &Path) -> io::Result<PathBuf> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("views") && !name.ends_with(".lock") {
            return Ok(path);
        }
    }
    Err(io::Error::other("the group has no file of views"))
}
