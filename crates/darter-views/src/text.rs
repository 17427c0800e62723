//! A view as text: JSON, with the names of replicas in hexadecimal digits, since not every JSON
//! implementation has 64-bit numbers.

use darter_group::{ReplicaId, View};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum number of backups in a view. More than any real group has; it bounds the input.
const BACKUPS_MAX: usize = 64;

/// Returns a view's text.
pub(crate) fn of(view: &View) -> String {
    let backups: Vec<_> = view.backups.iter().map(|&replica| name(replica)).collect();
    json!({ "group": name(view.group), "view": view.number, "primary": name(view.primary), "backups": backups }).to_string()
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
    Ok(View { group, number, primary, backups })
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
