//! `include/darter.h` is the one that cbindgen makes from the sources.

#![allow(clippy::unwrap_used)] // a test may panic

use std::path::Path;

#[test]
fn header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let (made, path) = (String::from_utf8(made).unwrap(), root.join("include/darter.h"));
    if std::env::var_os("DARTER_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "include/darter.h is out of date: run `DARTER_BLESS=1 cargo test -p darter-c`");
}
