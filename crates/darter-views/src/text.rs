//! A view as text: JSON, with the names of replicas in hexadecimal digits, since not every JSON
//! implementation has 64-bit numbers. A checksum of the other members shows damage to a medium: a
//! changed digit would be another replica's name, or another view. Earlier versions neither write
//! the checksum nor read it.

use darter_group::{ReplicaId, View};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum number of backups in a view. More than any real group has; it bounds the input.
const BACKUPS_MAX: usize = 64;

/// Returns a view's text.
pub(crate) fn of(view: &View) -> String {
    let backups: Vec<_> = view.backups.iter().map(|&replica| name(replica)).collect();
    let (group, primary, check) = (name(view.group), name(view.primary), checksum(view));
    json!({ "group": group, "view": view.number, "primary": primary, "backups": backups, "check": check })
        .to_string()
}

/// Returns the CRC32 of a view, as text: of its group, number, primary and backups, 8 bytes each.
fn checksum(view: &View) -> String {
    let mut hasher = crc32fast::Hasher::new();
    for word in [view.group, view.number].into_iter().chain(view.members()) {
        hasher.update(&word.to_le_bytes());
    }
    format!("{:08x}", hasher.finalize())
}

fn name(replica: ReplicaId) -> String {
    format!("{replica:016x}")
}

/// Parses a view.
///
/// # Errors
/// Fails with a description of the first error.
pub(crate) fn parse(text: &str) -> Result<View, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let number =
        value["view"].as_u64().filter(|&number| number > 0).ok_or("`view` is not a positive number")?;
    let group = replica(&value["group"]).ok_or("`group` is not a replica's name")?;
    let primary = replica(&value["primary"]).ok_or("`primary` is not a replica's name")?;
    let backups = value["backups"].as_array().ok_or("`backups` is not a list")?;
    if backups.len() > BACKUPS_MAX {
        return Err(format!("{} backups: at most {BACKUPS_MAX} are possible", backups.len()));
    }
    let backups: Option<BTreeSet<_>> = backups.iter().map(replica).collect();
    let backups = backups.ok_or("an entry of `backups` is not a replica's name")?;
    if backups.contains(&primary) {
        return Err("the primary is among the backups".to_owned());
    }
    let view = View { group, number, primary, backups };
    match &value["check"] {
        Value::Null => Ok(view),
        check if *check == checksum(&view) => Ok(view),
        _ => Err("its checksum is not that of its members".to_owned()),
    }
}

fn replica(value: &Value) -> Option<ReplicaId> {
    let digits = value.as_str().filter(|text| text.len() == 16)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_survive_as_text() {
        for (primary, backups) in [(1, vec![]), (u64::MAX, vec![1 << 53 | 1, 2])] {
            let mut view = View::bootstrap(primary, backups);
            view.number = u64::MAX;
            assert_eq!(parse(&of(&view)), Ok(view));
        }
    }

    /// Whatever bit a medium changes, the text is the same view or none.
    #[test]
    fn a_flipped_bit_makes_no_other_view() {
        let mut view = View::bootstrap(0x9f36_fa4a_7f38_87e7, [0x9c0f_dc2a_40a4_98d1, 7]);
        view.number = 3;
        let text = of(&view);
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(damaged) = String::from_utf8(bytes) else { continue };
            assert!(parse(&damaged).is_err() || parse(&damaged) == Ok(view.clone()), "{damaged}");
        }
    }

    #[test]
    fn a_view_of_an_earlier_version_has_no_checksum() {
        let view = View::bootstrap(1, [2]);
        let text = of(&view);
        let (before, _) = text.split_once("\"check\"").unwrap();
        let (_, after) = text.split_once(&format!("\"check\":\"{}\"", checksum(&view))).unwrap();
        let earlier = format!("{before}{}", after.trim_start_matches(','));
        assert!(!earlier.contains("check"));
        assert_eq!(parse(&earlier), Ok(view));
    }

    #[test]
    fn text_without_a_view_is_refused() {
        let view = of(&View::bootstrap(1, [2]));
        assert!(parse(&view).is_ok());
        for text in [
            "",
            "7",
            "[]",
            &view.replace("\"view\":1", "\"view\":0"),
            &view.replace("\"view\":1", "\"view\":-1"),
            &view.replace("\"0000000000000001\"", "1"),
            &view.replace("0000000000000001", "+000000000000001"),
            &view.replace("0000000000000002", "0000000000000001"),
            &view.replace("[\"0000000000000002\"]", "7"),
            &view[..view.len() - 1],
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let many: Vec<_> = (2..100).collect();
        assert!(parse(&of(&View::bootstrap(1, many))).is_err());
    }
}
