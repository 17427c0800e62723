//! No module of any crate of this workspace depends on a module that depends on it, except a module
//! and those below it.
//!
//! The tokens of each module are read: every `a::b` in `use` declarations, types, expressions,
//! patterns, attributes and macros is followed, through re-exports and globs, to the module that
//! defines the item. In `use`, the name of a module alone does not count; the items that are
//! reached through it do. Method calls do not name a path and are not seen. Unit tests are left
//! out.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

/// Source files by their path from the crate's directory.
type Sources = BTreeMap<PathBuf, String>;

/// A path as its names, such as `["crate", "pool", "Pool"]`.
type Names = Vec<String>;

/// Index of a module; that of the crate's root is 0.
type ModuleId = usize;

/// A file or an inline module.
#[derive(Default)]
struct Module {
    /// The path from the crate root; empty for the root.
    names: Names,
    parent: ModuleId,
    file: PathBuf,
    /// The folder of its children's files.
    folder: PathBuf,
    /// The items declared here.
    declared: BTreeMap<String, Targets>,
    /// The names that `use` creates; globs are named `*`.
    imports: BTreeMap<String, Vec<Names>>,
    /// The paths that it names, their lines, and whether a path that leads to a module counts.
    mentions: Vec<(Names, usize, bool)>,
}

/// The modules below one crate root (`lib.rs`, `main.rs` or a file of `bin/`).
struct Tree<'a> {
    sources: &'a Sources,
    modules: Vec<Module>,
}

/// Adds the words of `stream`, with their lines: brackets are words, and so is `::`. In attributes
/// strings are read too, as in `#[serde(with = "module::name")]`.
fn flatten(stream: TokenStream, in_attribute: bool, words: &mut Vec<(String, usize)>) {
    for token in stream {
        let (text, line) = (token.to_string(), token.span().start().line);
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    _ => ("{", "}"),
                };
                let in_attribute = in_attribute || words.last().is_some_and(|(word, _)| word == "#");
                words.push((open.to_owned(), line));
                flatten(group.stream(), in_attribute, words);
                words.push((close.to_owned(), group.span_close().start().line));
            }
            TokenTree::Literal(_) if in_attribute && text.contains("::") => {
                let names = text.trim_matches('"').split("::");
                words.extend(names.flat_map(|name| [(name.to_owned(), line), ("::".to_owned(), line)]));
            }
            _ => match words.last_mut() {
                Some((last, _)) if last == ":" && text == ":" => last.push(':'),
                _ => words.push((text, line)),
            },
        }
    }
}

fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_alphanumeric() || c == '_') && !word.starts_with(|c: char| c.is_numeric())
}

/// Returns where the bracket that opens at `at` is closed; `at` itself if none opens there.
fn closing(words: &[&str], at: usize) -> usize {
    let mut depth = 0;
    let mut is_closed = |word: &&str| {
        depth += i32::from(matches!(*word, "(" | "{" | "[")) - i32::from(matches!(*word, ")" | "}" | "]"));
        depth == 0
    };
    at + words[at..].iter().position(&mut is_closed).expect("brackets are balanced")
}

/// Returns the end of the item, statement, field or variant at `at`.
fn end_of_item(words: &[&str], mut at: usize) -> usize {
    while let ["#", ..] | ["pub", "(", ..] = words[at..] {
        at = closing(words, at + 1) + 1;
    }
    let head = words[at..].split(|word| matches!(*word, "{" | "(" | ";" | ",")).next().unwrap();
    let has = |names: &[&str]| head.iter().any(|word| names.contains(word));
    let ends_late = has(&["let", "static", "use"]) || has(&["const", "type"]) && !has(&["fn"]);
    let is_item = has(&["impl", "mod"]) || has(&DEFINING);
    while at < words.len() && !matches!(words[at], ")" | "}" | "]") {
        let (word, end) = (words[at], closing(words, at) + 1);
        if word == ";" || word == "," && !is_item && !ends_late || word == "{" && !ends_late {
            return end;
        }
        at = end;
    }
    at
}

/// Keywords before the name that an item defines.
const DEFINING: [&str; 9] = ["const", "enum", "extern", "fn", "static", "struct", "trait", "type", "union"];

/// Returns whether an attribute restricts an item to unit tests.
fn is_test(attribute: &[&str]) -> bool {
    matches!(attribute, ["test"] | ["cfg", "(", "test", ")"] | ["cfg", "(", "all", "(", "test", ..])
}

impl<'a> Tree<'a> {
    /// Reads the modules below the crate root `root`.
    fn read(sources: &'a Sources, root: &Path) -> Self {
        let mut tree = Self { sources, modules: Vec::new() };
        let folder = root.parent().unwrap().to_owned();
        tree.read_file(Module { file: root.to_owned(), folder, ..Module::default() });
        tree
    }

    fn read_file(&mut self, module: Module) {
        let file = &module.file;
        let text = self.sources.get(file).unwrap_or_else(|| panic!("{}: no such source", file.display()));
        let stream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut words = Vec::new();
        flatten(stream, false, &mut words);
        let (words, lines): (Vec<&str>, Vec<usize>) =
            words.iter().map(|(word, line)| (&**word, *line)).unzip();
        self.modules.push(module);
        self.scan(self.modules.len() - 1, &words, &lines);
    }

    /// Reads the words of a module.
    fn scan(&mut self, id: ModuleId, words: &[&str], lines: &[usize]) {
        let mut at = 0;
        while at < words.len() {
            match &words[at..] {
                ["#", "[", attribute @ ..] => {
                    let end = closing(words, at + 1) + 1;
                    at = match attribute {
                        _ if is_test(&words[at + 2..end - 1]) => end_of_item(words, end),
                        ["doc", ..] => end,
                        _ => at + 2,
                    };
                }
                ["mod", name, ";", ..] => {
                    let child = self.child(id, name);
                    let file = child.folder.with_extension("rs");
                    let is_comparable = self.sources.contains_key(&file);
                    let file = if is_comparable { file } else { child.folder.join("mod.rs") };
                    self.read_file(Module { file, ..child });
                    at += 3;
                }
                ["mod", name, "{", ..] => {
                    let (child, end) = (self.child(id, name), closing(words, at + 2));
                    self.modules.push(child);
                    self.scan(self.modules.len() - 1, &words[at + 3..end], &lines[at + 3..end]);
                    at = end + 1;
                }
                ["use", next, rest @ ..] if *next != "<" && *next != "::" => {
                    let end = at + 2 + rest.iter().position(|word| *word == ";").unwrap();
                    self.add_use(id, &words[at + 1..end], &lines[at + 1..end], &[]);
                    at = end;
                }
                ["macro_rules", "!", name, ..] => {
                    // Macros are also found by textual order, so the root has all of them.
                    self.declare(0, &format!("{name}!"), (id, true));
                    self.declare(id, &format!("{name}!"), (id, true));
                    at += 3;
                }
                [keyword, name, ..]
                    if DEFINING.contains(keyword)
                        && !DEFINING.contains(name)
                        && is_name(name)
                        && !matches!(words[..at], [.., "'"]) =>
                {
                    self.declare(id, name, (id, true));
                    at += 2;
                }
                _ => at += self.add_path(id, words, at, lines[at]),
            }
        }
    }

    /// Makes the module `name` that is declared in `parent`, in the same file.
    fn child(&mut self, parent: ModuleId, name: &str) -> Module {
        self.declare(parent, name, (self.modules.len(), false));
        let above = &self.modules[parent];
        let names = [&above.names[..], &[name.to_owned()]].concat();
        Module {
            names,
            parent,
            file: above.file.clone(),
            folder: above.folder.join(name),
            ..Module::default()
        }
    }

    fn declare(&mut self, id: ModuleId, name: &str, target: (ModuleId, bool)) {
        self.modules[id].declared.entry(name.to_owned()).or_default().insert(target);
    }

    /// Adds the path that may begin at `at`. Returns the number of words to skip.
    fn add_path(&mut self, id: ModuleId, words: &[&str], at: usize, line: usize) -> usize {
        let is_field = matches!(words[..at], [.., "."]) && !matches!(words[..at], [.., ".", "."]);
        if is_field || !is_name(words[at]) || matches!(words[..at], [.., "'" | "::"]) {
            return 1;
        }
        let mut names = vec![words[at].to_owned()];
        while let ["::", name, ..] = words[at + 2 * names.len() - 1..]
            && is_name(name)
        {
            names.push(name.to_owned());
        }
        let length = 2 * names.len() - 1;
        if let ["!", "(" | "{" | "[", ..] = words[at + length..] {
            names[length / 2].push('!');
        }
        self.modules[id].mentions.push((names, line, length > 1));
        length
    }

    /// Adds the paths of a `use` declaration, each of which begins with `above`.
    fn add_use(&mut self, id: ModuleId, words: &[&str], lines: &[usize], above: &[String]) {
        let mut at = 0;
        while at < words.len() {
            let (mut path, mut name, line) = (above.to_vec(), None, lines[at]);
            while at < words.len() && words[at] != "," {
                match words[at] {
                    "{" => {
                        let end = closing(words, at);
                        self.add_use(id, &words[at + 1..end], &lines[at + 1..end], &path);
                        (at, name) = (end, None);
                    }
                    "as" => {
                        name = Some(words[at + 1].to_owned());
                        at += 1;
                    }
                    "*" => name = Some("*".to_owned()),
                    "self" if !path.is_empty() => name = path.last().cloned(),
                    "::" => {}
                    word => {
                        path.push(word.to_owned());
                        name = Some(word.to_owned());
                    }
                }
                at += 1;
            }
            at += 1;
            if let Some(name) = name {
                self.modules[id].mentions.push((path.clone(), line, name == "*"));
                self.modules[id].imports.entry(name).or_default().push(path);
            }
        }
    }

    /// Returns the modules that `names` lead to from the module `from`, and for each whether they
    /// lead to an item in it; none if they are outside this crate, unless it `must_be`.
    fn resolve(&self, from: ModuleId, names: &[String], must_be: bool, pending: &mut Pending) -> Targets {
        let Some((first, rest)) = names.split_first() else { return Targets::from([(from, false)]) };
        match first.as_str() {
            "crate" => return self.resolve(0, rest, true, pending),
            "self" => return self.resolve(from, rest, true, pending),
            "super" => return self.resolve(self.modules[from].parent, rest, true, pending),
            _ => {}
        }
        let mut found = self.lookup(from, first, pending);
        if found.is_empty() && must_be {
            // A macro defines it.
            found.insert((from, true));
        }
        // A module hides an item of the same name.
        let has_module = !rest.is_empty() && found.iter().any(|&(_, is_item)| !is_item);
        let follow = |(module, is_item)| match is_item {
            true if has_module => Targets::new(),
            true => Targets::from([(module, true)]),
            false => self.resolve(module, rest, true, pending),
        };
        found.into_iter().flat_map(follow).collect()
    }

    /// Returns the targets of `name` in `module`.
    fn lookup(&self, module: ModuleId, name: &str, pending: &mut Pending) -> Targets {
        if !pending.insert((module, name.to_owned())) {
            return Targets::new();
        }
        let content = &self.modules[module];
        let mut found = content.declared.get(name).cloned().unwrap_or_default();
        for path in content.imports.get(name).into_iter().flatten() {
            let targets = self.resolve(module, path, false, pending);
            // It is imported from another crate: its users here depend on this module.
            found.extend(if targets.is_empty() { Targets::from([(module, true)]) } else { targets });
        }
        for path in content.imports.get("*").filter(|_| found.is_empty()).into_iter().flatten() {
            for (other, _) in self.resolve(module, path, false, pending) {
                found.extend(self.lookup(other, name, pending));
            }
        }
        if found.is_empty() && module != 0 && name.ends_with('!') {
            found = self.lookup(0, name, pending);
        }
        pending.remove(&(module, name.to_owned()));
        found
    }

    /// Returns all references between two modules of which neither is below the other.
    fn references(&self) -> References {
        let mut found = References::new();
        for (from, module) in self.modules.iter().enumerate() {
            for (names, line, modules_count) in &module.mentions {
                for (to, is_item) in self.resolve(from, names, false, &mut Pending::new()) {
                    let (one, other) = (&module.names, &self.modules[to].names);
                    let is_apart = !one.starts_with(other) && !other.starts_with(one);
                    if is_apart && (*modules_count || is_item) {
                        found.entry(from).or_default().entry(to).or_insert(*line);
                    }
                }
            }
        }
        found
    }
}

/// Modules that a path leads to, and whether to an item in it, its own or another crate's.
type Targets = BTreeSet<(ModuleId, bool)>;

/// The names that are being looked up, so that cyclic imports end.
type Pending = BTreeSet<(ModuleId, String)>;

/// For each module the modules that it refers to, and the line of the first reference.
type References = BTreeMap<ModuleId, BTreeMap<ModuleId, usize>>;

/// Returns the shortest path from `start` back to it, including both.
fn way_around(references: &References, start: ModuleId) -> Option<Vec<ModuleId>> {
    let mut seen = BTreeSet::new();
    let mut pending = VecDeque::from([vec![start]]);
    while let Some(way) = pending.pop_front() {
        for &to in references.get(&way[way.len() - 1])?.keys() {
            let longer = [&way[..], &[to]].concat();
            if to == start {
                return Some(longer);
            }
            if seen.insert(to) && references.contains_key(&to) {
                pending.push_back(longer);
            }
        }
    }
    None
}

/// Returns the lines that form one of the shortest cycles among the modules below a crate's root.
fn shortest_cycle(sources: &Sources, root: &Path) -> Option<Vec<String>> {
    let tree = Tree::read(sources, root);
    let references = tree.references();
    let ways = references.keys().filter_map(|&start| way_around(&references, start));
    let step = |pair: &[ModuleId]| {
        let (file, line) = (&tree.modules[pair[0]].file, references[&pair[0]][&pair[1]]);
        format!("{}:{line}: {}", file.display(), sources[file].lines().nth(line - 1).unwrap().trim())
    };
    ways.min_by_key(Vec::len).map(|way| way.windows(2).map(step).collect())
}

#[test]
fn no_crate_has_module_cycles() {
    let mut paths = Vec::new();
    for folder in ["../../crates", "../../lab"] {
        crate::unsafe_code::sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut paths);
    }
    let sources: Sources =
        paths.iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect();
    let is_root = |path: &&PathBuf| {
        ["src/lib.rs", "src/main.rs"].iter().any(|root| path.ends_with(root))
            || path.parent().unwrap().ends_with("src/bin")
    };
    let roots: Vec<_> = paths.iter().filter(is_root).collect();
    assert!(roots.len() >= 14, "only {} crates were read", roots.len());
    let cycles: Vec<_> = roots.iter().filter_map(|root| shortest_cycle(&sources, root)).collect();
    assert!(cycles.is_empty(), "modules that depend on each other: {cycles:#?}");
}

/// Asserts which lines form the shortest cycle of a crate with these files below `src`.
#[track_caller]
fn assert_cycle(files: &[(&str, &str)], lines: &[&str]) {
    let sources: Sources =
        files.iter().map(|(path, text)| (Path::new("src").join(path), (*text).to_owned())).collect();
    assert_eq!(shortest_cycle(&sources, Path::new("src/lib.rs")).unwrap_or_default(), lines);
}

#[track_caller]
fn assert_none(files: &[(&str, &str)]) {
    assert_cycle(files, &[]);
}

#[test]
fn a_cycle_is_found_with_the_lines_that_make_it() {
    assert_cycle(
        &[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;\npub struct A(B);"),
            ("b.rs", "pub struct B;\nfn f() -> crate::c::C { todo!() }"),
            ("c/mod.rs", "pub struct C;\nfn f() { super::a::A::new(); }"),
            ("d.rs", "use crate::a::A;"),
        ],
        &[
            "src/a.rs:1: use crate::b::B;",
            "src/b.rs:2: fn f() -> crate::c::C { todo!() }",
            "src/c/mod.rs:2: fn f() { super::a::A::new(); }",
        ],
    );
}

#[test]
fn the_shortest_of_several_cycles_is_shown() {
    assert_cycle(
        &[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub struct A; use crate::b::B;"),
            ("b.rs", "pub struct B; use crate::c::C;"),
            ("c.rs", "pub struct C; use crate::{a::A, b::B};"),
        ],
        &["src/b.rs:1: pub struct B; use crate::c::C;", "src/c.rs:1: pub struct C; use crate::{a::A, b::B};"],
    );
}

#[test]
fn a_module_and_those_below_it_may_know_each_other() {
    assert_none(&[
        ("lib.rs", "mod a; pub struct Root; use a::A;"),
        ("a/mod.rs", "mod b; pub struct A(b::c::C); use crate::Root;"),
        ("a/b.rs", "pub mod c { use super::super::A; pub struct C; use crate::Root; }"),
    ]);
}

#[test]
fn cycle_through_a_re_export_is_found() {
    let inner = "pub struct Hidden; mod deep; use crate::a::A;";
    for (door, a) in [
        // `door` re-exports what `door::inner` defines, under another name.
        ("mod inner; pub use inner::Hidden as Thing;", "use crate::door::Thing; pub struct A;"),
        // A module, a glob and a private import on the way.
        ("mod inner; pub use inner::*;", "use crate::door; fn f() { door::Hidden::new() } pub struct A;"),
    ] {
        assert_cycle(
            &[
                ("lib.rs", "mod door; mod a;"),
                ("a.rs", a),
                ("door/mod.rs", door),
                ("door/inner.rs", inner),
                ("door/inner/deep.rs", "use super::A;"),
            ],
            &[&format!("src/door/inner.rs:1: {inner}"), &format!("src/a.rs:1: {a}")],
        );
    }
}

#[test]
fn a_face_does_not_depend_on_what_passes_through_it() {
    // Both take from the face items that the other does not define.
    let face = [("lib.rs", "mod face;"), ("face/mod.rs", "mod a; mod b; pub use a::A; pub use b::B;")];
    let b = ("face/b.rs", "use super::A; pub struct B;");
    assert_none(&[face[0], face[1], b, ("face/a.rs", "pub struct A;")]);
    assert_cycle(
        &[face[0], face[1], b, ("face/a.rs", "use super::B; pub struct A;")],
        &["src/face/a.rs:1: use super::B; pub struct A;", "src/face/b.rs:1: use super::A; pub struct B;"],
    );
}

#[test]
fn paths_in_types_macros_attributes_and_patterns_count() {
    let uses = [
        "fn f(x: Vec<crate::b::B>) {}",
        "fn f() { println!(\"{}\", [crate::b::NUMBER]); }",
        "use crate::b; fn f() { assert!(b::check()); }",
        "#[serde(with = \"crate::b\")] struct S;",
        "#[arg(value_parser = crate::b::parse)] struct S;",
        "fn f() { let crate::b::B { .. } = g(); }",
        "impl<T: crate::b::Trait> S<T> {}",
        "fn f() { use crate::b::*; }",
        "fn f() { tell!(); }",
        "fn f() { crate::shout!(); }",
    ];
    let b = "use crate::a::A; macro_rules! tell { () => {} } #[macro_export] macro_rules! shout { () => {} }";
    for text in uses {
        assert_cycle(
            &[("lib.rs", "mod a; mod b;"), ("a.rs", &format!("pub struct A;\n{text}")), ("b.rs", b)],
            &[&format!("src/a.rs:2: {text}"), &format!("src/b.rs:1: {b}")],
        );
    }
}

#[test]
fn unit_tests_docs_and_visibilities_do_not_count() {
    assert_none(&[
        ("lib.rs", "mod a; mod b { pub struct B; use crate::a::A; }"),
        (
            "a.rs",
            "/// See [`crate::b::B`].\npub struct A;\n#[cfg(test)] use crate::b::B;\n\
             #[cfg(test)] mod tests { use crate::b::B; }\n#[cfg(all(test, unix))] fn f() -> crate::b::B {}\n\
             impl A { #[cfg(test)] fn f() -> crate::b::B {} }",
        ),
    ]);
}
