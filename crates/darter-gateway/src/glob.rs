//! Glob patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^…]`, `\`.
//!
//! When the pattern after a `*` fails to match, that `*` takes one byte more and the `*` before it
//! is forgotten. So nothing recurses, and a match costs at most the product of both lengths.

/// Returns whether a text matches a pattern.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut at, mut behind) = (0, 0);
    // Where to resume with one byte more for the last `*`.
    let mut retry = None;
    while behind < text.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, behind));
                continue;
            }
            Some(_) => one(&pattern[at..], text[behind]),
            None => None,
        };
        match (step, retry) {
            (Some(taken), _) => {
                at += taken;
                behind += 1;
            }
            (None, Some((star, from))) => {
                (at, behind) = (star, from + 1);
                retry = Some((star, from + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Matches a byte against the first element of a pattern. Returns the length of that element if it
/// matches.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', ..] => class(pattern, byte),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Matches a byte against a class in brackets; an unterminated class ends with the pattern.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_inverse = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(is_inverse);
    let mut is_in = false;
    loop {
        match &pattern[at..] {
            [] => break,
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= *literal == byte;
                at += 1;
            }
        }
    }
    (is_in != is_inverse).then_some(at)
}

/// Returns the prefix that all matching texts have in common.
pub(super) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..end.unwrap_or(pattern.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_redis_says() {
        let yes: [(&str, &str); 14] = [
            ("*", "a"),
            ("h?llo", "hello"),
            ("h*llo", "hllo"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("\\*", "*"),
            ("a**", "a"),
            ("[a", "a"),
            ("[^", "x"),
            ("*a*b*", "xxaxxbxx"),
            ("[\\]]", "]"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("", "a"),
            ("a*b", "ac"),
            ("[]", "]"),
            ("*", ""),
            ("a", "ab"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn stars_do_not_multiply() {
        let pattern = [&b"a*"[..]; 50].concat();
        let text = [&[b'a'; 5000][..], b"b"].concat();
        assert!(!matches(&[&pattern[..], b"c"].concat(), &text));
        assert!(matches(&[&pattern[..], b"b"].concat(), &text));
    }

    #[test]
    fn the_literal_prefix_ends_at_what_is_special() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"a\\b"), b"a");
        assert_eq!(literal_prefix(b"plain"), b"plain");
    }
}
