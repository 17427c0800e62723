//! A user: its passwords, and what its selectors allow.

use super::selector::{Denied, Needs, Refused, Selector};
use darter_fabric::wire::SecretList;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use subtle::ConstantTimeEq;

/// A user.
#[derive(Clone, Debug, Default)]
pub(crate) struct User {
    is_on: bool,
    needs_no_password: bool,
    /// Whether the bytes that it restores are checked, if that was said. They always are.
    sanitizes: Option<bool>,
    /// Digests of the passwords, as hexadecimal digits.
    passwords: Vec<String>,
    /// What is allowed by rules outside of parentheses.
    root: Selector,
    /// The other selectors.
    others: Vec<Selector>,
}

/// Returns the digest of a password.
fn digest(password: &[u8]) -> String {
    Sha256::digest(password).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn checked_digest(text: &[u8]) -> Result<String, Refused> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 64 || !text.iter().all(is_digit) {
        return Err(Refused::Digest);
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Joins the rules of selectors, which begin with `(` and end with `)`.
///
/// # Errors
/// Returns the rule that begins a selector without an end.
pub(crate) fn joined<'r>(rules: impl Iterator<Item = &'r [u8]>) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut joined = Vec::new();
    // The first rule of a selector, and all of it so far.
    let mut open: Option<[Vec<u8>; 2]> = None;
    for rule in rules {
        let ends = rule.ends_with(b")");
        match open.take() {
            None if rule.starts_with(b"(") && !ends => open = Some([rule.to_vec(), rule.to_vec()]),
            None => joined.push(rule.to_vec()),
            Some([first, mut text]) => {
                text.push(b' ');
                text.extend_from_slice(rule);
                if ends {
                    joined.push(text);
                } else {
                    open = Some([first, text]);
                }
            }
        }
    }
    open.map_or(Ok(joined), |[first, _]| Err(first))
}

impl User {
    /// Returns the user that may do everything, with one of some passwords or without one.
    pub(super) fn unrestricted(passwords: &SecretList) -> Self {
        let mut user = Self { is_on: true, needs_no_password: passwords.is_empty(), ..Self::default() };
        user.passwords = passwords.iter().map(digest).collect();
        // These rules exist.
        let _ = ["~*", "&*", "+@all"].map(|rule| user.root.apply(rule.as_bytes()));
        user
    }

    /// Parses a description.
    ///
    /// # Errors
    /// Fails if a rule is not known.
    pub(crate) fn parse(description: &[u8]) -> Result<Self, Refused> {
        let words = description.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let mut user = Self::default();
        for rule in joined(words).map_err(|_| Refused::Syntax)? {
            user.apply(&rule)?;
        }
        Ok(user)
    }

    /// Applies a rule.
    ///
    /// # Errors
    /// Fails if it is not a rule.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), Refused> {
        match &rule.to_ascii_lowercase()[..] {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"skip-sanitize-payload" => self.sanitizes = Some(false),
            b"sanitize-payload" => self.sanitizes = Some(true),
            b"nopass" => (self.needs_no_password, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.needs_no_password, self.passwords) = (false, Vec::new()),
            b"clearselectors" => self.others.clear(),
            b"reset" => *self = Self { sanitizes: Some(true), ..Self::default() },
            _ => return self.apply_one(rule),
        }
        Ok(())
    }

    fn apply_one(&mut self, rule: &[u8]) -> Result<(), Refused> {
        match rule {
            [sign @ (b'>' | b'#'), text @ ..] => {
                let password = if *sign == b'>' { digest(text) } else { checked_digest(text)? };
                if !self.passwords.contains(&password) {
                    self.passwords.push(password);
                }
                self.needs_no_password = false;
                Ok(())
            }
            [sign @ (b'<' | b'!'), text @ ..] => {
                let password = if *sign == b'<' { digest(text) } else { checked_digest(text)? };
                let at = self.passwords.iter().position(|other| *other == password);
                self.passwords.remove(at.ok_or(Refused::NoPassword)?);
                Ok(())
            }
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::default();
                for rule in rules.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
                    selector.apply(rule)?;
                }
                self.others.push(selector);
                Ok(())
            }
            rule => self.root.apply(rule),
        }
    }

    /// Returns the words for the user's state.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        flags
            .extend(self.sanitizes.map(|yes| if yes { "sanitize-payload" } else { "skip-sanitize-payload" }));
        flags
    }

    /// Returns the digests of the passwords.
    pub(crate) fn passwords(&self) -> &[String] {
        &self.passwords
    }

    /// Returns the selector with the rules outside of parentheses.
    pub(crate) fn root(&self) -> &Selector {
        &self.root
    }

    /// Returns the other selectors.
    pub(crate) fn others(&self) -> &[Selector] {
        &self.others
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.others)
    }

    /// Returns the rules that make such a user from a new one.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut text = self.flags().join(" ").into_bytes();
        for password in &self.passwords {
            text.extend_from_slice(b" #");
            text.extend_from_slice(password.as_bytes());
        }
        text.push(b' ');
        text.extend_from_slice(&self.root.describe());
        for selector in &self.others {
            text.extend_from_slice(b" (");
            text.extend_from_slice(&selector.describe());
            text.push(b')');
        }
        text
    }

    /// Returns whether a client with this password may become the user.
    pub(super) fn accepts(&self, password: &[u8]) -> bool {
        let given = digest(password);
        let is_known = self
            .passwords
            .iter()
            .fold(0, |known, other| known | other.as_bytes().ct_eq(given.as_bytes()).unwrap_u8());
        self.is_on && (self.needs_no_password || is_known == 1)
    }

    /// Returns whether every client is the user without a password.
    pub(super) fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Returns whether the user needs no password.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Returns whether everything is allowed, also commands of later versions.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.selectors().any(Selector::is_unrestricted)
    }

    /// Returns whether all keys may be read.
    pub(crate) fn reads_all_keys(&self) -> bool {
        self.selectors().any(Selector::reads_all_keys)
    }

    /// Returns whether a client may be subscribed to a channel or a pattern.
    pub(crate) fn hears(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors().any(|selector| selector.hears(channel, is_pattern))
    }

    /// Fails if no selector allows a request, with the position of an argument that is not allowed.
    pub(crate) fn check(&self, needs: &Needs<'_>) -> Result<(), (Denied, usize)> {
        let mut worst = (Denied::Command, 0);
        for selector in self.selectors() {
            match selector.check(needs) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }
}

#[cfg(test)]
mod tests {
    use super::super::categories::unit_named;
    use super::super::selector::KeyUse;
    use super::*;

    fn user(rules: &str) -> User {
        User::parse(rules.as_bytes()).unwrap()
    }

    #[test]
    fn a_description_makes_the_same_user() {
        for (rules, expected) in [
            ("", "off resetchannels -@all"),
            ("on nopass ~* &* +@all", "on nopass ~* &* +@all"),
            ("allkeys allchannels allcommands", "off ~* &* +@all"),
            (
                "~a %R~b %W~c %rw~d &x &y +get +@hash -hget",
                "off ~a %R~b %W~c ~d resetchannels &x &y -@all +get +@hash -hget",
            ),
            ("%R~a %W~a ~a", "off ~a resetchannels -@all"),
            ("+@all -get +get -config +config|get", "off resetchannels +@all -config +config|get"),
            ("+memory|usage +memory", "off resetchannels -@all +memory"),
            ("+memory +memory|usage", "off resetchannels -@all +memory"),
            ("+select|0 +select|1", "off resetchannels -@all +select|0 +select|1"),
            (
                "on >a (~k +get) ( +set ~l )",
                "on #ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb resetchannels -@all (~k resetchannels -@all +get) (~l resetchannels -@all +set)",
            ),
            ("on >a <a nopass resetpass (+get) clearselectors", "on resetchannels -@all"),
            ("on ~* reset", "off sanitize-payload resetchannels -@all"),
            ("on ~* reset skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
        ] {
            let described = String::from_utf8(user(rules).describe()).unwrap();
            assert_eq!(described, expected, "{rules}");
            assert_eq!(user(&described).describe(), described.as_bytes());
        }
    }

    #[test]
    fn what_is_not_a_rule_is_refused() {
        for (rules, expected) in [
            ("nonsense", Refused::Syntax),
            ("%~a", Refused::Syntax),
            ("%RR~a", Refused::Syntax),
            ("%R", Refused::Syntax),
            ("(+get", Refused::Syntax),
            ("(nonsense)", Refused::Syntax),
            ("(on)", Refused::Syntax),
            ("+nosuch", Refused::Unknown),
            ("+debug|", Refused::Syntax),
            ("-nosuch", Refused::Unknown),
            ("-select|0", Refused::Unknown),
            ("+@nosuch", Refused::Unknown),
            ("+config|nosuch", Refused::Unknown),
            ("+config|get|x", Refused::ArgumentOfSubcommand),
            ("+select|", Refused::Syntax),
            ("~* ~a", Refused::AllKeys),
            ("&* &a", Refused::AllChannels),
            ("<a", Refused::NoPassword),
            ("#abc", Refused::Digest),
            ("!CA978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", Refused::Digest),
        ] {
            assert_eq!(User::parse(rules.as_bytes()).err(), Some(expected), "{rules}");
        }
        assert_eq!(joined([&b"a"[..], b"(b", b"c)"].into_iter()).unwrap(), [&b"a"[..], b"(b c)"]);
        assert_eq!(joined([&b"(a"[..], b"b"].into_iter()), Err(b"(a".to_vec()));
    }

    #[test]
    fn a_request_needs_one_selector_that_allows_all_of_it() {
        let needs = |line: &'static str, keys: &[(usize, bool, bool)]| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let keys = keys.iter().map(|&(at, reads, writes)| KeyUse { at, reads, writes }).collect();
            let unit = unit_named(words[0]);
            Needs { unit, words, keys, channels: Vec::new(), are_patterns: false }
        };
        let (get, set) = (needs("get key", &[(1, true, false)]), needs("set key v", &[(1, false, true)]));
        let both = user("%R~k* +@all (%W~key +set)");
        assert_eq!((both.check(&get), both.check(&set)), (Ok(()), Ok(())));
        let split = user("~k* +get (~other +set)");
        assert_eq!(split.check(&get), Ok(()));
        assert_eq!(split.check(&set), Err((Denied::Key, 1)));
        let none = user("~k* +set|x");
        assert_eq!(none.check(&get), Err((Denied::Command, 0)));
        assert_eq!(none.check(&needs("set X v", &[])), Ok(()));
        let channels = |at: &'static str, are_patterns| Needs {
            unit: unit_named(b"publish"),
            words: vec![b"publish", at.as_bytes()],
            keys: Vec::new(),
            channels: vec![1],
            are_patterns,
        };
        let hears = user("+@all &a*");
        assert_eq!(hears.check(&channels("abc", false)), Ok(()));
        assert_eq!(hears.check(&channels("abc", true)), Err((Denied::Channel, 1)));
        assert_eq!(hears.check(&channels("a*", true)), Ok(()));
        assert!(!hears.is_unrestricted() && user("~* &* +@all").is_unrestricted());
        assert!(user("+get (%R~* +get)").reads_all_keys() && !both.reads_all_keys());
    }

    #[test]
    fn a_password_is_compared_by_its_digest() {
        let known = user("on >one >two");
        assert!(known.accepts(b"one") && known.accepts(b"two") && !known.accepts(b"three"));
        assert!(!user("off >one").accepts(b"one") && user("on nopass").accepts(b"any"));
        assert!(user("on nopass").is_open() && !user("nopass").is_open());
    }
}
