//! No module of any crate of this workspace depends on a module that depends on it, except a module
//! and those below it.

pub(crate) mod graph;
pub(crate) mod paths;
pub(crate) mod source;

use graph::{Knot, knots};
use source::{Sources, read_sources, roots};
use std::fmt::Write;
use std::fs;
use std::path::Path;

#[test]
fn no_crate_has_module_cycles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = String::new();
    let mut read = 0;
    let folders = ["crates", "lab"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    for entry in folders.into_iter().flatten() {
        let directory = entry.unwrap().path();
        let sources = read_sources(&directory);
        for root in roots(&sources) {
            read += 1;
            for knot in knots(&sources, &root) {
                writeln!(found, "{}: {knot}", directory.join(&root).display()).unwrap();
            }
        }
    }
    assert!(read >= 14, "only {read} crates were read");
    assert!(found.is_empty(), "modules that depend on each other:\n{found}");
}

/// Returns the knots of a crate with these files below `src`.
fn knots_of(files: &[(&str, &str)]) -> Vec<Knot> {
    let sources: Sources =
        files.iter().map(|(path, text)| (Path::new("src").join(path), (*text).to_owned())).collect();
    knots(&sources, Path::new("src/lib.rs"))
}

#[track_caller]
fn assert_one(files: &[(&str, &str)], modules: &[&str]) -> Knot {
    let mut found = knots_of(files);
    assert_eq!(found.len(), 1, "{found:?}");
    let knot = found.remove(0);
    assert_eq!(knot.modules, modules, "{knot}");
    knot
}

#[track_caller]
fn assert_none(files: &[(&str, &str)]) {
    let found = knots_of(files);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_cycle_is_found_with_the_lines_that_make_it() {
    let knot = assert_one(
        &[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;\npub struct A(B);"),
            ("b.rs", "pub struct B;\nfn f() -> crate::c::C { todo!() }"),
            ("c/mod.rs", "pub struct C;\nfn f() { super::a::A::new(); }"),
            ("d.rs", "use crate::a::A;"),
        ],
        &["a", "b", "c"],
    );
    let steps: Vec<_> = knot.cycle.iter().map(|step| (&*step.from, &*step.to, step.reference.0)).collect();
    assert_eq!(steps, [("a", "b", 1), ("b", "c", 2), ("c", "a", 2)]);
    assert!(knot.to_string().contains("c -> a  at src/c/mod.rs:2: fn f() { super::a::A::new(); }"), "{knot}");
}

#[test]
fn the_shortest_of_several_cycles_is_shown() {
    let knot = assert_one(
        &[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub struct A; use crate::b::B;"),
            ("b.rs", "pub struct B; use crate::c::C;"),
            ("c.rs", "pub struct C; use crate::{a::A, b::B};"),
        ],
        &["a", "b", "c"],
    );
    assert_eq!(knot.cycle.len(), 2, "{knot}");
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
fn a_cycle_behind_a_re_export_is_found() {
    // `door` re-exports what `door::inner` defines, under another name.
    let files = [
        ("lib.rs", "mod door; mod a;"),
        ("a.rs", "use crate::door::Thing; pub struct A;"),
        ("door/mod.rs", "mod inner; pub use inner::Hidden as Thing;"),
        ("door/inner.rs", "pub struct Hidden; use crate::a::A;"),
    ];
    assert_one(&files, &["a", "door::inner"]);
    // A module, a glob and a private import on the way.
    assert_one(
        &[
            ("lib.rs", "mod door; mod a;"),
            ("a.rs", "use crate::door; fn f() { door::Hidden::new() } pub struct A;"),
            ("door/mod.rs", "mod inner; pub use inner::*;"),
            ("door/inner.rs", "pub struct Hidden; mod deep; use crate::a::A;"),
            ("door/inner/deep.rs", "use super::A;"),
        ],
        &["a", "door::inner"],
    );
}

#[test]
fn a_face_does_not_depend_on_what_passes_through_it() {
    // Both take from the face what the other does not define.
    assert_none(&[
        ("lib.rs", "mod face;"),
        ("face/mod.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
        ("face/a.rs", "pub struct A;"),
        ("face/b.rs", "use super::A; pub struct B;"),
    ]);
    assert_one(
        &[
            ("lib.rs", "mod face;"),
            ("face/mod.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("face/a.rs", "use super::B; pub struct A;"),
            ("face/b.rs", "use super::A; pub struct B;"),
        ],
        &["face::a", "face::b"],
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
    for text in uses {
        let b =
            "use crate::a::A; macro_rules! tell { () => {} } #[macro_export] macro_rules! shout { () => {} }";
        let knot = assert_one(
            &[("lib.rs", "mod a; mod b;"), ("a.rs", &format!("pub struct A;\n{text}")), ("b.rs", b)],
            &["a", "b"],
        );
        assert_eq!(knot.cycle[0].reference.0, 2, "{knot}");
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
