//! The arguments of commands for `COMMAND DOCS`, as Redis 7.0 describes them.
//!
//! `arguments.txt` has a line for each command and subcommand:
//!
//! ```text
//! line      name { " " argument }
//! argument  ["?"] ( word "!" [word] | [word "="] word kind ) { "*" | "+" | "@" version | "~" version }
//! kind      ":" letter [digits] | "(" arguments ")" | "<" arguments ">"
//! ```
//!
//! `?` means that the argument is optional. A word before `=` or behind `!` is the word of the
//! request, and the other is the argument's name. The letters are types; the number of a key
//! specification may follow. Of the arguments in `(` and `)` one is given, those in
//! `<` and `>` together. `*` means several, `+` that each has the word, `@` since when it exists,
//! and `~` since when it is out of date. Words with other characters are in back quotes.

use crate::reply::Reply;

static LINES: &str = include_str!("arguments.txt");

/// An argument.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Argument {
    name: &'static str,
    kind: &'static str,
    key_spec: Option<i64>,
    token: Option<&'static str>,
    since: Option<&'static str>,
    deprecated_since: Option<&'static str>,
    flags: Vec<&'static str>,
    /// The parts of an argument that has some.
    parts: Option<Vec<Argument>>,
}

/// The rest of a line. What cannot be parsed ends it, which a test would notice.
struct Parser(&'static str);

impl Parser {
    /// Takes a character, if it is the next one.
    fn eat(&mut self, character: char) -> bool {
        let rest = self.0.strip_prefix(character);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes the characters up to the first that is not accepted.
    fn take_while(&mut self, accepts: fn(char) -> bool) -> &'static str {
        let end = self.0.find(|character| !accepts(character)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn word(&mut self) -> &'static str {
        if self.eat('`') {
            let word = self.take_while(|character| character != '`');
            self.eat('`');
            return word;
        }
        self.take_while(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '-'))
    }

    fn version(&mut self) -> &'static str {
        self.take_while(|character| character.is_ascii_digit() || character == '.')
    }

    /// Parses the kind of an argument.
    fn kind(&mut self, argument: &mut Argument) {
        if self.eat('(') {
            (argument.kind, argument.parts) = ("oneof", Some(self.arguments()));
            self.eat(')');
        } else if self.eat('<') {
            (argument.kind, argument.parts) = ("block", Some(self.arguments()));
            self.eat('>');
        } else if self.eat(':') {
            argument.kind = match self.take_while(|character| character.is_ascii_lowercase()) {
                "d" => "double",
                "i" => "integer",
                "k" => "key",
                "p" => "pattern",
                "t" => "unix-time",
                _ => "string",
            };
            argument.key_spec = self.take_while(|character| character.is_ascii_digit()).parse().ok();
        }
    }

    fn argument(&mut self) -> Argument {
        let is_optional = self.eat('?');
        let first = self.word();
        let mut argument = Argument { name: first, ..Argument::default() };
        if self.eat('!') {
            argument.kind = "pure-token";
            argument.token = Some(self.word()).filter(|token| !token.is_empty());
        } else {
            if self.eat('=') {
                (argument.token, argument.name) = (Some(first), self.word());
            }
            self.kind(&mut argument);
        }
        let flags =
            [(is_optional, "optional"), (self.eat('*'), "multiple"), (self.eat('+'), "multiple_token")];
        argument.flags = flags.into_iter().filter(|(is, _)| *is).map(|(_, flag)| flag).collect();
        if self.eat('@') {
            argument.since = Some(self.version());
        }
        if self.eat('~') {
            argument.deprecated_since = Some(self.version());
        }
        argument
    }

    fn arguments(&mut self) -> Vec<Argument> {
        let mut arguments = vec![self.argument()];
        while self.eat(' ') {
            arguments.push(self.argument());
        }
        arguments
    }
}

/// Returns the arguments of a command, or of a subcommand with a name such as `client|list`, if it
/// has any.
pub(super) fn arguments_of(name: &str) -> Option<Vec<Argument>> {
    let rest = |line: &'static str| line.strip_prefix(name)?.strip_prefix(' ');
    LINES.lines().find_map(rest).map(|line| Parser(line).arguments())
}

/// Writes arguments.
pub(super) fn write_arguments(reply: &mut Reply<'_>, arguments: &[Argument]) {
    reply.array(arguments.len());
    for argument in arguments {
        let Argument { name, kind, key_spec, token, since, deprecated_since, flags, parts } = argument;
        let texts = [("token", token), ("since", since), ("deprecated_since", deprecated_since)];
        let texts = texts.into_iter().filter_map(|(what, text)| Some((what, (*text)?)));
        let others = [key_spec.is_some(), !flags.is_empty(), parts.is_some()].map(usize::from);
        reply.map(2 + texts.clone().count() + others.iter().sum::<usize>());
        reply.bulk(b"name");
        reply.bulk(name.as_bytes());
        reply.bulk(b"type");
        reply.bulk(kind.as_bytes());
        if let Some(number) = key_spec {
            reply.bulk(b"key_spec_index");
            reply.integer(*number);
        }
        for (what, text) in texts {
            reply.bulk(what.as_bytes());
            reply.bulk(text.as_bytes());
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            reply.set(flags.len());
            for flag in flags {
                reply.simple(flag);
            }
        }
        if let Some(parts) = parts {
            reply.bulk(b"arguments");
            write_arguments(reply, parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subcommands::Subcommand;
    use crate::table::TABLE;

    #[test]
    fn every_line_is_parsed_to_its_end() {
        for line in LINES.lines() {
            let (name, rest) = line.split_once(' ').unwrap();
            let mut parser = Parser(rest);
            let arguments = parser.arguments();
            assert_eq!(parser.0, "", "{name}");
            assert!(arguments.iter().all(|argument| !argument.name.is_empty() && !argument.kind.is_empty()));
            assert_eq!(arguments_of(name), Some(arguments), "{name}");
        }
    }

    #[test]
    fn commands_with_arguments_have_lines() {
        for command in TABLE.iter().filter(|command| command.arity.abs() > 1 && !Subcommand::has(command)) {
            assert!(arguments_of(command.name).is_some(), "{}", command.name);
        }
        assert_eq!(arguments_of("quit"), None);
    }
}
