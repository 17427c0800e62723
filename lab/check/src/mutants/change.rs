//! How a planted error changes a source file: lines that are removed, and lines that are added.

use serde::Deserialize;
use std::fmt;
use std::ops::Range;

/// How one file changes for one error, or for several in the same lines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The file, from the root of the sources.
    pub file: String,
    /// Its lines: ` ` before those of the file, `-` before removed ones, `+` before added ones.
    pub lines: String,
}

/// Reasons for which a change does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A line does not begin with ` `, `-` or `+`.
    Form(String),
    /// The change adds and removes no lines.
    Nothing,
    /// The lines are in the file this many times, not once.
    Found(usize),
    /// Another change contains one of the lines too.
    Overlap,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(line) => write!(f, "begin the line with ' ', '-' or '+': {line}"),
            Self::Nothing => f.write_str("no line is removed or added"),
            Self::Found(0) => f.write_str("its lines are not in the file; update them"),
            Self::Found(times) => {
                write!(f, "its lines are in the file {times} times; add lines before or after them")
            }
            Self::Overlap => f.write_str("another change contains one of its lines too; merge the two"),
        }
    }
}

/// Lines of a file, by their numbers from 0, and their replacement.
pub(super) struct Edit {
    lines: Range<usize>,
    new: Vec<String>,
}

impl Change {
    /// Returns the edits of a file with these lines.
    pub(super) fn edits(&self, file: &[&str]) -> Result<Vec<Edit>, Fault> {
        let lines: Vec<(char, &str)> = self.lines.lines().map(part).collect::<Result<_, _>>()?;
        let before: Vec<&str> =
            lines.iter().filter(|(sign, _)| *sign != '+').map(|(_, text)| *text).collect();
        if before.len() == lines.len() && lines.iter().all(|(sign, _)| *sign == ' ') || before.is_empty() {
            return Err(Fault::Nothing);
        }
        let places: Vec<usize> = file
            .windows(before.len())
            .enumerate()
            .filter(|(_, window)| *window == before)
            .map(|(at, _)| at)
            .collect();
        let &[place] = &places[..] else { return Err(Fault::Found(places.len())) };
        let (mut at, mut edits) = (place, Vec::<Edit>::new());
        let mut is_open = false;
        for (sign, text) in lines {
            if sign == ' ' {
                (at, is_open) = (at + 1, false);
                continue;
            }
            if !is_open {
                edits.push(Edit { lines: at..at, new: Vec::new() });
                is_open = true;
            }
            let Some(edit) = edits.last_mut() else { continue };
            if sign == '-' {
                at += 1;
                edit.lines.end = at;
            } else {
                edit.new.push(text.replace("mutant!(", "darter_mutant::mutant!("));
            }
        }
        Ok(edits)
    }

    /// Returns the names of the errors in its lines.
    pub fn guarded(&self) -> impl Iterator<Item = &str> {
        let names = self.lines.split("mutant!(\"").skip(1);
        names.filter_map(|rest| rest.split('"').next())
    }
}

/// Splits a line of a change into its sign and its text. An empty line is one of the file.
fn part(line: &str) -> Result<(char, &str), Fault> {
    match line.chars().next() {
        None => Ok((' ', "")),
        Some(sign @ (' ' | '-' | '+')) => Ok((sign, &line[1..])),
        Some(_) => Err(Fault::Form(line.to_owned())),
    }
}

/// Returns a file's text with edits applied. Fails if edits overlap, with their index in the list.
pub(super) fn edited(text: &str, edits: &[Edit]) -> Result<String, usize> {
    let mut order: Vec<usize> = (0..edits.len()).collect();
    order.sort_by_key(|&at| (edits[at].lines.start, edits[at].lines.end));
    let file: Vec<&str> = text.lines().collect();
    let (mut all, mut at) = (Vec::with_capacity(file.len()), 0);
    let mut last: Option<&Edit> = None;
    for number in order {
        let edit = &edits[number];
        let is_twice = last.is_some_and(|last| last.lines.is_empty() && last.lines == edit.lines);
        if edit.lines.start < at || is_twice {
            return Err(number);
        }
        all.extend(file[at..edit.lines.start].iter().map(ToString::to_string));
        all.extend(edit.new.iter().cloned());
        at = edit.lines.end;
        last = Some(edit);
    }
    all.extend(file[at..].iter().map(ToString::to_string));
    Ok(all.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "one\n\ntwo\nthree\ntwo\nfour\n";

    fn changed(all: &[&str]) -> Result<String, String> {
        let file: Vec<&str> = FILE.lines().collect();
        let changes = all.iter().map(|lines| Change { file: String::new(), lines: (*lines).to_owned() });
        let edits: Result<Vec<Vec<Edit>>, Fault> = changes.map(|change| change.edits(&file)).collect();
        let edits: Vec<Edit> = edits.map_err(|fault| fault.to_string())?.into_iter().flatten().collect();
        edited(FILE, &edits).map_err(|_| Fault::Overlap.to_string())
    }

    #[test]
    fn lines_go_and_come_where_the_change_says() {
        let one = "-one\n+if mutant!(\"n\") {\n+one\n \n";
        assert_eq!(
            changed(&[one, " three\n-two\n+2\n four\n"]).unwrap(),
            "if darter_mutant::mutant!(\"n\") {\none\n\ntwo\nthree\n2\nfour\n"
        );
        assert_eq!(changed(&[" three\n+3\n"]).unwrap(), "one\n\ntwo\nthree\n3\ntwo\nfour\n");
    }

    #[test]
    fn lines_that_are_not_there_once_are_refused() {
        assert!(changed(&["-two\n"]).unwrap_err().contains("2 times"));
        assert!(changed(&["-five\n+5\n"]).unwrap_err().contains("not in the file"));
        assert!(changed(&["-five\n", "one\n"]).is_err());
        assert!(changed(&["one\n"]).unwrap_err().contains("one"));
        assert!(changed(&[" one\n"]).unwrap_err().contains("no line is removed"));
        assert!(changed(&["-one\n+1\n", "-one\n+2\n"]).unwrap_err().contains("another change"));
        assert!(changed(&[" one\n+1\n", " one\n+2\n"]).unwrap_err().contains("another change"));
    }

    #[test]
    fn names_are_read_from_the_lines() {
        let lines = "+if mutant!(\"a-b\") || mutant!(\"c\") {\n".to_owned();
        let change = Change { file: String::new(), lines };
        assert_eq!(change.guarded().collect::<Vec<_>>(), ["a-b", "c"]);
    }
}
