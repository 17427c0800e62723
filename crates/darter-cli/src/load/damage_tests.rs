//! Exports that were cut or changed: `import` detects each, and stores no pair that was cut.

use super::loader::HowArgs;
use super::redis::RedisArgs;
use super::{ImportArgs, Record, Records, Source, input};
use crate::envelope::{ExportFormat, ExportWriter, Extent};
use crate::failure::Failure;
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs;
use std::io::{Cursor, Write};
use std::path::PathBuf;

/// Keys and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn pairs() -> Pairs {
    let pair = |key: &str, value: &str| (key.into(), value.into());
    vec![pair("#a", "1\n2"), pair("b", "a value with blanks"), pair("c", ""), pair("\u{fc}", "\"{\\")]
}

/// Returns exports of the pairs, with file names that match their compression.
fn exports(pairs: &Pairs, extent: Extent) -> Vec<(&'static str, Vec<u8>)> {
    let gzip = |text: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let text = |format| {
        let mut file = Vec::new();
        let mut export = ExportWriter::new(&mut file, format, extent).unwrap();
        for (key, value) in pairs {
            export.pair(key, value).unwrap();
        }
        export.finish().unwrap();
        file
    };
    let (tsv, jsonl) = (text(ExportFormat::Tsv), text(ExportFormat::Jsonl));
    vec![
        ("a.tsv.gz", gzip(&tsv)),
        ("a.jsonl.gz", gzip(&jsonl)),
        ("a.tsv.zst", compress_to_vec(&tsv[..], CompressionLevel::Fastest)),
        ("a.jsonl.zst", compress_to_vec(&jsonl[..], CompressionLevel::Fastest)),
        ("a.tsv", tsv),
        ("a.jsonl", jsonl),
    ]
}

fn import(file: PathBuf, all: bool) -> ImportArgs {
    let redis = RedisArgs::default();
    ImportArgs { file, all, redis, how: HowArgs { strict: true, from_line: 1, batch: 4096 } }
}

/// Reads pairs until the end, a bad line or a failure. Returns whether it was the end.
fn drain(records: Result<Box<dyn Records>, Failure>) -> (Pairs, bool) {
    let mut found = Vec::new();
    let Ok(mut records) = records else { return (found, false) };
    loop {
        match records.next() {
            Ok(Some(Record::Pair(pair))) => found.push((pair.key, pair.value)),
            Ok(None) => return (found, true),
            Ok(Some(Record::Bad(..))) | Err(_) => return (found, false),
        }
    }
}

/// Returns the pairs of a source.
fn records_of(source: Source) -> Box<dyn Records> {
    match source {
        Source::Pairs((records, _)) => records,
        Source::Rdb(..) | Source::Server(_) => panic!("keys of Redis"),
    }
}

/// Reads a file with these bytes, as `import FILE` does.
fn from_file(directory: &tempfile::TempDir, name: &str, bytes: &[u8]) -> (Pairs, bool) {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    drain(import(path, false).open().map(records_of))
}

/// Reads these bytes once, as `import -` does.
fn from_pipe(bytes: &[u8]) -> (Pairs, bool) {
    let import = import("-".into(), false);
    let input = input::decompressed(Cursor::new(bytes.to_vec()), &import.file);
    drain(input.and_then(|input| import.records(input)))
}

#[test]
fn every_cut_of_every_format_is_noticed() {
    let (directory, pairs) = (tempfile::tempdir().unwrap(), pairs());
    for (name, whole) in exports(&pairs, Extent::Keys) {
        assert_eq!(from_file(&directory, name, &whole), (pairs.clone(), true), "{name}");
        assert_eq!(from_pipe(&whole), (pairs.clone(), true), "{name}");
        for end in 0..whole.len() {
            let refused = from_file(&directory, name, &whole[..end]);
            assert_eq!(refused, (Vec::new(), false), "{name}, {end} of {} bytes", whole.len());
            let (stored, is_whole) = from_pipe(&whole[..end]);
            assert!(!is_whole, "{name}, {end} of {} bytes", whole.len());
            assert!(pairs.starts_with(&stored), "{name}, {end} of {} bytes", whole.len());
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed_or_changes_no_pair() {
    let (directory, pairs) = (tempfile::tempdir().unwrap(), pairs());
    for (name, whole) in exports(&pairs, Extent::Keys) {
        let is_compressed = !name.ends_with("tsv") && !name.ends_with("jsonl");
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Some bits in the headers of gzip and zstd have no effect on the contents.
            let (stored, is_whole) = from_file(&directory, name, &flipped);
            let expected = if is_whole && is_compressed { &pairs[..] } else { &[] };
            assert_eq!((&stored[..], is_whole && !is_compressed), (expected, false), "{name}, bit {bit}");
            let (stored, is_whole) = from_pipe(&flipped);
            assert!(!is_whole || is_compressed && stored == pairs, "{name}, bit {bit}: {stored:?}");
        }
    }
}

#[test]
fn an_export_of_all_is_imported_as_one_and_no_other_is() {
    let (directory, pairs) = (tempfile::tempdir().unwrap(), pairs());
    for (extent, is_all) in [(Extent::Keys, false), (Extent::Places, true)] {
        for (name, whole) in exports(&pairs, extent) {
            let path = directory.path().join(name);
            fs::write(&path, &whole).unwrap();
            for all in [false, true] {
                let opened = import(path.clone(), all).open();
                if all == is_all {
                    let records = opened.map(records_of);
                    assert_eq!(drain(records), (pairs.clone(), true), "{name}");
                } else {
                    let Err(Failure::Usage(why)) = opened else { panic!("{name}: imported") };
                    assert!(why.contains("`--all`") && why.contains(name), "{why}");
                }
            }
        }
    }
    // An `export --all`, one byte different from an export of keys.
    let (name, whole) = &exports(&pairs, Extent::Places)[4];
    let changed = String::from_utf8(whole.clone()).unwrap().replacen(" all", "", 1);
    assert_eq!(from_file(&directory, name, changed.as_bytes()), (Vec::new(), false));
}
