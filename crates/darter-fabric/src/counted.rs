//! Numbers with nouns for messages: `1 memory node`, `2 memory nodes`.

/// Returns a number with the noun that it counts, which is given in the singular.
///
/// ```
/// assert_eq!(darter_fabric::counted(1, "memory node"), "1 memory node");
/// assert_eq!(darter_fabric::counted(2, "entry"), "2 entries");
/// ```
#[must_use]
pub fn counted(number: u64, singular: &str) -> String {
    format!("{number} {}", inflected(number, singular))
}

/// Returns a noun, given in the singular, in the form for a number.
///
/// ```
/// assert_eq!(darter_fabric::inflected(0, "process"), "processes");
/// ```
#[must_use]
pub fn inflected(number: u64, singular: &str) -> String {
    let (stem, ending) = match singular.as_bytes() {
        _ if number == 1 => (singular, ""),
        [.., before, b'y'] if !b"aeiou".contains(before) => (&singular[..singular.len() - 1], "ies"),
        [.., b's' | b'x'] | [.., b'c' | b's', b'h'] => (singular, "es"),
        _ => (singular, "s"),
    };
    format!("{stem}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_follow_their_number() {
        for (singular, plural) in [
            ("memory node", "memory nodes"),
            ("history", "histories"),
            ("key", "keys"),
            ("batch", "batches"),
            ("process", "processes"),
            ("", "s"),
        ] {
            assert_eq!(
                (counted(1, singular), counted(2, singular)),
                (format!("1 {singular}"), format!("2 {plural}"))
            );
        }
    }
}
