//! Which requests of a pipeline may run at the same time: those whose keys the table of commands
//! shows, unless both use a key and one of them changes it. All other requests run alone.

use super::call::{Caching, Client, Replies};
use super::request::Arguments;
use super::table::Command;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Most requests of a client that run at the same time.
pub(super) const OVERLAPPING_MAX: usize = 64;
/// Most requests of a client that change keys at the same time. Changes of the same page of the index
/// make each other start over.
const CHANGES_MAX: usize = 16;
/// Most keys of a request that overlaps others.
const KEYS_MAX: usize = 16;

/// The hash function for keys. Requests whose keys have equal hashes wait for each other.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A set of requests, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests(u64);

impl Requests {
    /// Returns the set of all requests before one.
    pub(super) fn before(number: usize) -> Self {
        Self(if number < OVERLAPPING_MAX { (1 << number) - 1 } else { u64::MAX })
    }

    /// Adds a request.
    pub(super) fn add(&mut self, number: usize) {
        self.0 |= 1 << number;
    }

    /// Removes a request. Returns whether it was in the set.
    pub(super) fn remove(&mut self, number: usize) -> bool {
        let before = self.0;
        self.0 &= !Self::before(number + 1).0 | Self::before(number).0;
        self.0 != before
    }

    /// Returns the number of requests before the first request outside the set.
    pub(super) fn leading(self) -> usize {
        self.0.trailing_ones() as usize
    }

    /// Returns the number after the last request.
    pub(super) fn end(self) -> usize {
        OVERLAPPING_MAX - self.0.leading_zeros() as usize
    }

    /// Returns the requests that are not in another set, in their order.
    fn without(self, other: Self) -> impl Iterator<Item = usize> {
        let mut left = self.0 & !other.0;
        std::iter::from_fn(move || {
            let first = (left != 0).then_some(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(first)
        })
    }

    /// Returns whether a request is in the set.
    fn has(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }

    /// Returns the requests that are also in another set.
    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The use of a key by a request.
#[derive(Debug)]
struct KeyUse {
    key: u64,
    request: usize,
    changes: bool,
}

/// Consecutive requests that may overlap, and the earlier ones that each must wait for.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    uses: Vec<KeyUse>,
    waits_for: Vec<Requests>,
    changes: Requests,
}

impl Conflicts {
    /// Collects requests from the beginning up to the first request that must run alone. Returns the
    /// number of requests collected.
    pub(super) fn collect<'a>(
        &mut self,
        requests: impl Iterator<Item = Arguments<'a>>,
        client: &Client,
    ) -> usize {
        self.uses.clear();
        self.waits_for.clear();
        self.changes = Requests::default();
        for args in requests.take(OVERLAPPING_MAX) {
            let Some(command) = overlapping(&args, client) else { break };
            self.add(command, &args);
        }
        self.waits_for.len()
    }

    fn add(&mut self, command: &Command, args: &Arguments<'_>) {
        let (request, changes) = (self.waits_for.len(), command.is("write"));
        let mut waits_for = Requests::default();
        for at in command.keys_at(args.len()) {
            let key = HASHES.hash_one(args.get(at));
            let same = self.uses.iter().filter(|other| other.key == key && other.request != request);
            for other in same.filter(|other| changes || other.changes) {
                waits_for.add(other.request);
            }
            self.uses.push(KeyUse { key, request, changes });
        }
        self.waits_for.push(waits_for);
        if changes {
            self.changes.add(request);
        }
    }

    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.waits_for.len()
    }

    /// Returns the first request before `end` that can start now.
    pub(super) fn next(&self, end: usize, started: Requests, ended: Requests) -> Option<usize> {
        let is_changing = self.changes.and(started).without(ended).count() >= CHANGES_MAX;
        let may_start = |request: usize| {
            self.waits_for[request].without(ended).next().is_none()
                && !(is_changing && self.changes.has(request))
        };
        Requests::before(end).without(started).find(|&request| may_start(request))
    }
}

/// Returns whether the requests of a client are executed at once, and all replies are sent.
pub(super) fn are_executed_at_once(client: &Client) -> bool {
    client.is_trusted
        && client.queue.is_none()
        && !client.is_listening()
        && client.caching == Caching::Usual
        && client.replies == Replies::Sent
}

/// Returns the command of a request that may overlap others: it is executed at once, and all that
/// it reads and changes belongs to the keys that the table shows.
fn overlapping(args: &Arguments<'_>, client: &Client) -> Option<&'static Command> {
    if args.is_empty() || !are_executed_at_once(client) {
        return None;
    }
    let command = Command::named(args.get(0)).filter(|command| command.takes(args.len()))?;
    let is_of_keys = (command.is("write") || command.is("readonly"))
        && !command.is("movablekeys")
        && !command.is("blocking");
    (is_of_keys && (1..=KEYS_MAX).contains(&command.keys_at(args.len()).len())).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Clients;
    use crate::queue::{Mode, Queue};
    use crate::request::{Parser, Step};

    fn client() -> Client {
        let address = "127.0.0.1:1".parse().unwrap();
        Client::new(Clients::default().admit(address, address, 0, false), true)
    }

    /// Returns how many of the lines are collected, and the requests that each waits for.
    fn collected(lines: &[&str], client: &Client) -> Vec<Vec<usize>> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let parsers: Vec<Parser> = lines
            .iter()
            .map(|line| {
                let mut parser = Parser::default();
                assert!(matches!(parser.advance(line.as_bytes(), true), Ok(Step::Request(_))));
                parser
            })
            .collect();
        let args = parsers.iter().zip(&lines).map(|(parser, line)| parser.arguments(line.as_bytes()));
        let mut conflicts = Conflicts::default();
        let count = conflicts.collect(args, client);
        assert_eq!(count, conflicts.len());
        (0..count)
            .map(|request| conflicts.waits_for[request].without(Requests::default()).collect())
            .collect()
    }

    #[test]
    fn requests_wait_for_changes_of_their_keys_and_changes_for_reads() {
        let lines = ["get a", "get a", "set a 1", "get b", "mset b 1 c 2", "get a", "hget c f", "rename a c"];
        let waits: [&[usize]; 8] = [&[], &[], &[0, 1], &[], &[3], &[2], &[4], &[0, 1, 2, 4, 5, 6]];
        assert_eq!(collected(&lines, &client()), waits);
        // A command that names a key twice does not wait for itself.
        assert_eq!(collected(&["del a a", "exists a"], &client()), [vec![], vec![0]]);
    }

    #[test]
    fn requests_whose_keys_are_not_known_run_alone() {
        let mut client = client();
        for line in [
            "multi",
            "exec",
            "watch a",
            "unwatch",
            "discard",
            "select 0",
            "auth x",
            "hello 3",
            "client id",
            "quit",
            "reset",
            "flushall",
            "flushdb",
            "eval x 1 a",
            "fcall f 1 a",
            "lmpop 1 a left",
            "blpop a 0",
            "blmove a b left left 0",
            "bzpopmin a 0",
            "function list",
            "script flush",
            "scan 0",
            "keys *",
            "dbsize",
            "randomkey",
            "range - +",
            "rangecount - +",
            "info",
            "config get x",
            "object encoding a",
            "georadius a 0 0 1 m store b",
            "georadius a 0 0 1 m",
            "memory usage a",
            "publish a x",
            "spublish a x",
            "subscribe a",
            "zunionstore a 1 b",
            "zinter 1 a",
            "sintercard 1 a",
            "zmpop 1 a min",
            "sort a",
            "xread streams a 0",
            "xreadgroup group g c streams a >",
            "xgroup destroy a g",
            "nosuch a",
            "get",
            "get a b",
            "",
        ] {
            assert_eq!(collected(&["get a", line, "get b"], &client), [vec![0_usize; 0]], "{line}");
        }
        let many = (0..=KEYS_MAX).fold("del".to_owned(), |line, key| format!("{line} {key}"));
        assert!(collected(&[&many], &client).is_empty());
        client.queue = Some(Box::new(Queue::new(Mode::Queuing)));
        assert!(collected(&["get a"], &client).is_empty());
        client.queue = None;
        client.is_trusted = false;
        assert!(collected(&["get a"], &client).is_empty());
    }

    #[test]
    fn sets_of_requests_have_64_numbers() {
        let mut set = Requests::default();
        for number in 0..OVERLAPPING_MAX {
            assert_eq!((set.leading(), set.end()), (number, number));
            set.add(number);
            assert_eq!(Requests::before(number + 1), set);
        }
        assert!(!set.remove(OVERLAPPING_MAX) && set.remove(5) && !set.remove(5));
        assert!(Requests::before(OVERLAPPING_MAX).without(set).eq([5]));
    }
}
