//! Keyspace notifications: which events of keys are published, as `CONFIG SET
//! notify-keyspace-events` selects them, and the events of commands.

use super::fault::Fault;
use super::named_keys;
use super::request::Arguments;
use super::table::{Command, CommandId};
use std::sync::atomic::{AtomicU32, Ordering};

/// The letters of all classes of events and forms of channels, in the order in which Redis returns
/// them. A letter's position is its bit.
const LETTERS: &[u8] = b"g$lshzxetdnKEm";
/// The number of letters that `A` stands for, at the beginning of [`LETTERS`].
const ALL: usize = 10;

/// An event of a key: the letter of its class, and its name.
pub(super) type Event = (u8, &'static str);

/// The events that are published.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// A bit for each selected letter.
    selected: AtomicU32,
}

impl Notifications {
    /// Returns whether any event is published.
    #[inline]
    pub(super) fn are_on(&self) -> bool {
        self.selected.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a letter is selected.
    pub(super) fn has(&self, letter: u8) -> bool {
        let bit = LETTERS.iter().position(|&other| other == letter);
        bit.is_some_and(|bit| self.selected.load(Ordering::Relaxed) >> bit & 1 == 1)
    }

    /// Selects events by their letters.
    ///
    /// # Errors
    /// Fails if a letter has no meaning.
    pub(super) fn select(&self, letters: &[u8]) -> Result<(), Fault> {
        let mut selected = 0;
        for letter in letters {
            selected |= match LETTERS.iter().position(|other| other == letter) {
                Some(bit) => 1 << bit,
                None if *letter == b'A' => (1 << ALL) - 1,
                None => {
                    return Err(Fault::said(
                        "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event \
                         class character. Use 'Ag$lshzxeKEtmdn'.",
                    ));
                }
            };
        }
        self.selected.store(selected, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the letters of the selected events.
    pub(super) fn letters(&self) -> String {
        let selected = self.selected.load(Ordering::Relaxed);
        let has_all = selected.trailing_ones() as usize >= ALL;
        let letters = LETTERS.iter().enumerate().skip(if has_all { ALL } else { 0 });
        let letters = letters.filter(|(bit, _)| selected >> bit & 1 == 1).map(|(_, &letter)| letter as char);
        has_all.then_some('A').into_iter().chain(letters).collect()
    }
}

/// Returns the class of the events of a command.
fn class_of(command: &Command) -> u8 {
    match command.group {
        "hash" => b'h',
        "list" => b'l',
        "set" => b's',
        "sorted-set" | "geo" => b'z',
        "stream" => b't',
        "string" | "bitmap" | "hyperloglog" => b'$',
        _ => b'g',
    }
}

/// Returns whether an option is among the arguments of a command from a position on.
fn has_option(args: &Arguments<'_>, from: usize, options: &[&str]) -> bool {
    args.from(from).any(|word| options.iter().any(|option| word.eq_ignore_ascii_case(option.as_bytes())))
}

/// Returns whether a command such as `LMPOP` takes the last elements, or those with the highest scores.
fn is_of_right(args: &Arguments<'_>, command: &Command) -> bool {
    let end = named_keys::sources(command.id, args, 0).end;
    args.from(end)
        .next()
        .is_some_and(|word| [&b"right"[..], b"max"].iter().any(|end| word.eq_ignore_ascii_case(end)))
}

/// Returns the events of a key that a command has changed, and that exists after it or not.
pub(super) fn events_of(command: &Command, args: &Arguments<'_>, key: &[u8], exists: bool) -> Vec<Event> {
    const TIMES: [&str; 4] = ["ex", "px", "exat", "pxat"];
    let (class, is_first) = (class_of(command), args.from(1).next() == Some(key));
    let event = match command.name {
        // They report what they have done.
        "xack" | "xautoclaim" | "xclaim" | "xgroup" | "xreadgroup" => return Vec::new(),
        "rename" | "renamenx" => return vec![(b'g', if is_first { "rename_from" } else { "rename_to" })],
        "copy" => (b'g', "copy_to"),
        "move" => return vec![(b'g', "move_from")],
        "set" if has_option(args, 3, &TIMES) => return vec![(b'$', "set"), (b'g', "expire")],
        "setex" | "psetex" => return vec![(b'$', "set"), (b'g', "expire")],
        "set" | "setnx" | "getset" | "mset" | "msetnx" | "bitop" => (b'$', "set"),
        "incr" | "decr" | "decrby" => (b'$', "incrby"),
        "getex" => (b'g', if has_option(args, 2, &["persist"]) { "persist" } else { "expire" }),
        "expire" | "pexpire" | "expireat" | "pexpireat" => (b'g', "expire"),
        "bitfield" => (b'$', "setbit"),
        "pfmerge" => (b'$', "pfadd"),
        "hsetex" if has_option(args, 2, &TIMES) => return vec![(b'h', "hset"), (b'h', "hexpire")],
        "hmset" | "hsetnx" | "hsetex" => (b'h', "hset"),
        "hgetdel" => (b'h', "hdel"),
        "hgetex" if has_option(args, 2, &["persist"]) => (b'h', "hpersist"),
        "hgetex" | "hpexpire" | "hexpireat" | "hpexpireat" => (b'h', "hexpire"),
        "zincrby" => (b'z', "zincr"),
        "zadd" if has_option(args, 2, &["incr"]) => (b'z', "zincr"),
        "geoadd" => (b'z', "zadd"),
        "sort" => (b'l', "sortstore"),
        "smove" => (b's', if is_first { "srem" } else { "sadd" }),
        "lpushx" => (b'l', "lpush"),
        "rpushx" => (b'l', "rpush"),
        "rpoplpush" | "brpoplpush" if is_first && args.get(2) == key => {
            return vec![(b'l', "lpush"), (b'l', "rpop")];
        }
        "rpoplpush" | "brpoplpush" => (b'l', if is_first { "rpop" } else { "lpush" }),
        "lmove" | "blmove" => {
            let is_left = |at| args.get(at).eq_ignore_ascii_case(b"left");
            let push = (b'l', if is_left(4) { "lpush" } else { "rpush" });
            let pop = (b'l', if is_left(3) { "lpop" } else { "rpop" });
            if is_first && args.get(2) == key {
                return vec![push, pop];
            }
            if is_first { pop } else { push }
        }
        "blpop" => (b'l', "lpop"),
        "brpop" => (b'l', "rpop"),
        "lmpop" | "blmpop" => (b'l', if is_of_right(args, command) { "rpop" } else { "lpop" }),
        "zmpop" | "bzmpop" => (b'z', if is_of_right(args, command) { "zpopmax" } else { "zpopmin" }),
        "bzpopmin" => (b'z', "zpopmin"),
        "bzpopmax" => (b'z', "zpopmax"),
        "georadius" | "georadiusbymember" => (b'z', "georadiusstore"),
        name => (class, name),
    };
    if exists {
        return vec![event];
    }
    // The removal of the last element is a separate event; a stored result without elements, and
    // a key that is removed as a whole, have no other.
    let has_elements = matches!(event.0, b'h' | b'l' | b's' | b'z') && !event.1.ends_with("store");
    let removed = (b'g', "del");
    if has_elements { vec![event, removed] } else { vec![removed] }
}

/// Returns whether the changes of a command cause no events.
pub(super) fn is_silent(command: &Command) -> bool {
    matches!(command.id, CommandId::Flushall | CommandId::Flushdb) || !command.is("write")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_returned_as_redis_returns_them() {
        let notifications = Notifications::default();
        for (letters, expected) in [
            ("gKE", "gKE"),
            ("$lshzxeKE", "$lshzxeKE"),
            ("KA", "AK"),
            ("EA", "AE"),
            ("", ""),
            ("mnAKEg", "AnKEm"),
        ] {
            notifications.select(letters.as_bytes()).unwrap();
            assert_eq!(notifications.letters(), expected);
            assert_eq!(notifications.are_on(), !letters.is_empty());
        }
        assert!(notifications.select(b"Kq").is_err());
        assert!(notifications.has(b'K') && notifications.has(b'x') && !notifications.has(b'q'));
    }
}
