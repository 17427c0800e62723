//! Counts the lines of a program, and the names of a store and of other crates that it uses.

use std::collections::BTreeSet;

/// The words of the language and of the standard library that the programs use. `new` is one of
/// them, also if a store defines it.
const STANDARD: &str = "Box Debug Error MAX Ok PartialEq Path Result Some String Vec \
    as_bytes as_deref as_ref collect concat derive display expect from_be_bytes from_utf8 into is_some_and \
    join len map map_or new ok_or pub push rev scope spawn take to_be_bytes to_owned try_into unwrap_or";

fn code_lines(source: &str) -> impl Iterator<Item = &str> {
    source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"))
}

/// Returns the number of lines that are neither blank nor comments.
pub(crate) fn lines(source: &str) -> usize {
    code_lines(source).count()
}

/// Returns the words outside of strings that begin with a capital letter, or that `(` or `::<`
/// follows, except for those that the program defines and those of Rust.
pub(crate) fn names(source: &str) -> BTreeSet<String> {
    let code = code_lines(source).collect::<Vec<_>>().join("\n");
    let code = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let (mut used, mut defined, mut before, mut rest) = (BTreeSet::new(), BTreeSet::new(), "", &code[..]);
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(start) = rest.find(of_word) {
        let from = &rest[start..];
        let (word, after) = from.split_at(from.find(|c| !of_word(c)).unwrap_or(from.len()));
        if ["const", "fn", "struct"].contains(&before) {
            defined.insert(word);
        } else if word.starts_with(char::is_uppercase) || after.starts_with('(') || after.starts_with("::<") {
            used.insert(word);
        }
        (before, rest) = (word, after);
    }
    let standard = STANDARD.split_whitespace().collect();
    used.difference(&(&defined | &standard)).map(ToString::to_string).collect()
}
