//! A selector: the commands, keys and channels that one of a user's sets of rules allows.

use super::categories::{Unit, categories_of, category_named, name_of, subunits, unit_named, units};
use crate::glob::Glob;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 4096;

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is not a rule.
    Syntax,
    /// It names an unknown command or category.
    Unknown,
    /// It adds keys to all keys.
    AllKeys,
    /// It adds channels to all channels.
    AllChannels,
    /// It removes a password that the user does not have.
    NoPassword,
    /// Its digest of a password is not valid.
    Digest,
    /// It names an argument of a subcommand.
    ArgumentOfSubcommand,
}

impl Refused {
    /// Returns Redis's text.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::Unknown => "Unknown command or category name in ACL",
            Self::AllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::AllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoPassword => "The password you are trying to remove from the user does not exist",
            Self::Digest => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Self::ArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// What a request may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denied {
    /// Run the command.
    Command,
    /// Use a key.
    Key,
    /// Use a channel.
    Channel,
}

/// The use of a key by a request, whose position is that of the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyUse {
    pub(crate) at: usize,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// What a request needs.
#[derive(Debug)]
pub(crate) struct Needs<'a> {
    /// The command or subcommand, unless everyone may run it.
    pub(crate) unit: Option<Unit>,
    /// The arguments, including the name.
    pub(crate) words: Vec<&'a [u8]>,
    pub(crate) keys: Vec<KeyUse>,
    /// The positions of the channels.
    pub(crate) channels: Vec<usize>,
    /// Whether the channels are patterns.
    pub(crate) are_patterns: bool,
}

#[derive(Clone, Debug)]
struct Pattern {
    text: Vec<u8>,
    glob: Arc<Glob>,
    reads: bool,
    writes: bool,
}

impl Pattern {
    fn new(text: &[u8], reads: bool, writes: bool) -> Result<Self, Refused> {
        let is_valid = text.len() <= PATTERN_BYTES_MAX && !super::has_spaces(text);
        let glob = Glob::parse(text).ok().filter(|_| is_valid).ok_or(Refused::Syntax)?;
        Ok(Self { text: text.to_vec(), glob: Arc::new(glob), reads, writes })
    }

    /// Appends the rule that adds the pattern.
    fn describe(&self, sign: &[u8], text: &mut Vec<u8>) {
        text.extend_from_slice(match (self.reads, self.writes) {
            (true, true) => sign,
            (true, false) => b"%R~",
            (false, _) => b"%W~",
        });
        text.extend_from_slice(&self.text);
    }
}

/// Appends patterns, separated by spaces.
fn describe_all(patterns: &[Pattern], sign: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for pattern in patterns {
        if !text.is_empty() {
            text.push(b' ');
        }
        pattern.describe(sign, &mut text);
    }
    text
}

/// Returns whether a name is that of a command or of a part of it.
fn is_of(name: &str, command: &str) -> bool {
    name.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
}

/// A selector.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    /// Whether each command and subcommand is allowed.
    allowed: Vec<bool>,
    /// The first arguments with which commands are allowed that are not allowed otherwise.
    first_arguments: BTreeMap<Unit, Vec<Vec<u8>>>,
    /// The rules that made `allowed`.
    rules: Vec<String>,
    /// `None` if all are allowed.
    keys: Option<Vec<Pattern>>,
    channels: Option<Vec<Pattern>>,
}

impl Default for Selector {
    fn default() -> Self {
        Self {
            allowed: vec![false; units()],
            first_arguments: BTreeMap::new(),
            rules: vec!["-@all".to_owned()],
            keys: Some(Vec::new()),
            channels: Some(Vec::new()),
        }
    }
}

impl Selector {
    /// Applies a rule.
    ///
    /// # Errors
    /// Fails if it is not a rule about commands, keys or channels.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), Refused> {
        match &rule.to_ascii_lowercase()[..] {
            b"allkeys" | b"~*" => self.keys = None,
            b"resetkeys" => self.keys = Some(Vec::new()),
            b"allchannels" | b"&*" => self.channels = None,
            b"resetchannels" => self.channels = Some(Vec::new()),
            b"allcommands" | b"+@all" => self.set_all(true),
            b"nocommands" | b"-@all" => self.set_all(false),
            _ => return self.apply_one(rule),
        }
        Ok(())
    }

    fn apply_one(&mut self, rule: &[u8]) -> Result<(), Refused> {
        match rule {
            [b'~', text @ ..] => self.add_keys(text, true, true),
            [b'%', rest @ ..] => {
                let at = rest.iter().position(|&byte| byte == b'~').ok_or(Refused::Syntax)?;
                let (reads, writes) = match &rest[..at].to_ascii_uppercase()[..] {
                    b"R" => (true, false),
                    b"W" => (false, true),
                    b"RW" | b"WR" => (true, true),
                    _ => return Err(Refused::Syntax),
                };
                self.add_keys(&rest[at + 1..], reads, writes)
            }
            [b'&', text @ ..] => {
                let pattern = Pattern::new(text, true, true)?;
                let channels = self.channels.as_mut().ok_or(Refused::AllChannels)?;
                if !channels.iter().any(|other| other.text == text) {
                    channels.push(pattern);
                }
                Ok(())
            }
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = category_named(name).ok_or(Refused::Unknown)?;
                let units = (0..units()).filter(|unit| categories_of(*unit).contains(&category));
                units.for_each(|unit| self.set(unit, *sign == b'+'));
                self.note(&format!("{}@{category}", char::from(*sign)));
                Ok(())
            }
            [sign @ (b'+' | b'-'), name @ ..] => self.set_command(*sign == b'+', name),
            _ => Err(Refused::Syntax),
        }
    }

    fn add_keys(&mut self, text: &[u8], reads: bool, writes: bool) -> Result<(), Refused> {
        let pattern = Pattern::new(text, reads, writes)?;
        let keys = self.keys.as_mut().ok_or(Refused::AllKeys)?;
        match keys.iter_mut().find(|other| other.text == text) {
            Some(other) => (other.reads, other.writes) = (other.reads | reads, other.writes | writes),
            None => keys.push(pattern),
        }
        Ok(())
    }

    fn set_all(&mut self, is_allowed: bool) {
        self.allowed.fill(is_allowed);
        self.first_arguments.clear();
        self.rules = vec![if is_allowed { "+@all" } else { "-@all" }.to_owned()];
    }

    /// Allows or forbids a command with its subcommands, or a subcommand.
    fn set(&mut self, unit: Unit, is_allowed: bool) {
        for unit in std::iter::once(unit).chain(subunits(unit)) {
            self.allowed[unit] = is_allowed;
            self.first_arguments.remove(&unit);
        }
    }

    fn set_command(&mut self, is_allowed: bool, name: &[u8]) -> Result<(), Refused> {
        if let Some(unit) = unit_named(name) {
            self.set(unit, is_allowed);
            let rule = format!("{}{}", if is_allowed { '+' } else { '-' }, name_of(unit));
            self.forget(&rule);
            if !self.is_implied(unit, is_allowed) {
                self.rules.push(rule);
            }
            return Ok(());
        }
        let at = name.iter().rposition(|&byte| byte == b'|').filter(|_| is_allowed);
        let (command, argument) = at.map(|at| (&name[..at], &name[at + 1..])).ok_or(Refused::Unknown)?;
        let unit = unit_named(command).ok_or(Refused::Unknown)?;
        if name_of(unit).contains('|') {
            return Err(Refused::ArgumentOfSubcommand);
        }
        if argument.is_empty() || super::has_spaces(argument) {
            return Err(Refused::Syntax);
        }
        if subunits(unit).next().is_some() {
            return Err(Refused::Unknown);
        }
        let argument = String::from_utf8_lossy(argument).to_ascii_lowercase();
        let arguments = self.first_arguments.entry(unit).or_default();
        if !arguments.iter().any(|other| other == argument.as_bytes()) {
            arguments.push(argument.clone().into_bytes());
            self.note(&format!("+{}|{argument}", name_of(unit)));
        }
        Ok(())
    }

    /// Adds a rule to the description, in place of those that it makes ineffective.
    fn note(&mut self, rule: &str) {
        self.forget(rule);
        self.rules.push(rule.to_owned());
    }

    /// Removes the rules from the description that a rule makes ineffective.
    fn forget(&mut self, rule: &str) {
        let target = &rule[1..];
        let ends = |other: &String| is_of(&other[1..], target);
        self.rules.retain(|other| !ends(other));
    }

    /// Returns whether the rules of the description allow or forbid a command as a whole.
    fn is_implied(&self, unit: Unit, is_allowed: bool) -> bool {
        let decides = |unit: Unit, rule: &String| match rule[1..].strip_prefix('@') {
            Some(category) => category == "all" || categories_of(unit).contains(&category),
            None => is_of(name_of(unit), &rule[1..]),
        };
        let is_so = |unit: Unit| {
            let last = self.rules.iter().rev().find(|rule| decides(unit, rule));
            last.is_some_and(|rule| rule.starts_with('+') == is_allowed)
        };
        std::iter::once(unit).chain(subunits(unit)).all(is_so)
    }

    /// Returns the rules about commands.
    pub(crate) fn commands(&self) -> String {
        self.rules.join(" ")
    }

    /// Returns the rules about keys.
    pub(crate) fn keys(&self) -> Vec<u8> {
        self.keys.as_ref().map_or_else(|| b"~*".to_vec(), |keys| describe_all(keys, b"~"))
    }

    /// Returns the rules that add channels.
    pub(crate) fn channels(&self) -> Vec<u8> {
        self.channels.as_ref().map_or_else(|| b"&*".to_vec(), |channels| describe_all(channels, b"&"))
    }

    /// Returns all rules.
    pub(super) fn describe(&self) -> Vec<u8> {
        let mut text = self.keys();
        if !text.is_empty() {
            text.push(b' ');
        }
        if self.channels.is_some() {
            text.extend_from_slice(b"resetchannels ");
        }
        let channels = self.channels();
        text.extend_from_slice(&channels);
        if !channels.is_empty() {
            text.push(b' ');
        }
        text.extend_from_slice(self.commands().as_bytes());
        text
    }

    /// Returns whether everything is allowed, also commands of later versions.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.rules == ["+@all"] && self.keys.is_none() && self.channels.is_none()
    }

    /// Returns whether all keys may be read.
    pub(super) fn reads_all_keys(&self) -> bool {
        let reads_all = |keys: &Vec<Pattern>| keys.iter().any(|key| key.reads && key.text == b"*");
        self.keys.as_ref().is_none_or(reads_all)
    }

    /// Returns whether a client may be subscribed to a channel or a pattern.
    pub(super) fn hears(&self, channel: &[u8], is_pattern: bool) -> bool {
        let is_allowed = |pattern: &Pattern| {
            if is_pattern { pattern.text == channel } else { pattern.glob.matches(channel) }
        };
        self.channels.as_ref().is_none_or(|channels| channels.iter().any(is_allowed))
    }

    fn runs(&self, needs: &Needs<'_>) -> bool {
        let Some(unit) = needs.unit else { return true };
        self.allowed[unit]
            || self.first_arguments.get(&unit).is_some_and(|arguments| {
                let first = needs.words.get(1).map(|word| word.to_ascii_lowercase());
                first.is_some_and(|first| arguments.contains(&first))
            })
    }

    /// Fails if a request is not allowed, with the position of the argument that is not.
    pub(super) fn check(&self, needs: &Needs<'_>) -> Result<(), (Denied, usize)> {
        if !self.runs(needs) {
            return Err((Denied::Command, 0));
        }
        if let Some(patterns) = &self.keys {
            for key in &needs.keys {
                let is_allowed = |pattern: &Pattern| {
                    (pattern.reads || !key.reads)
                        && (pattern.writes || !key.writes)
                        && pattern.glob.matches(needs.words[key.at])
                };
                if !patterns.iter().any(is_allowed) {
                    return Err((Denied::Key, key.at));
                }
            }
        }
        match needs.channels.iter().find(|&&at| !self.hears(needs.words[at], needs.are_patterns)) {
            Some(&at) => Err((Denied::Channel, at)),
            None => Ok(()),
        }
    }
}
