//! Keys that cannot be read, or are gone, as text.

use crate::failure::complain;
use crate::notation::Notation;
use darter::engine::KeySpace;
use darter::salvage::Gap;
use darter_fabric::counted;

/// Gaps in the order in which they were found. Adjacent ranges without any readable key are one.
#[derive(Default)]
pub(crate) struct Gaps(Vec<Gap>);

impl Gaps {
    pub(crate) fn add(&mut self, gap: Gap) {
        match self.0.last_mut() {
            Some(last) if (last.keys, gap.keys) == (None, None) && last.until.as_ref() == Some(&gap.from) => {
                last.until = gap.until;
            }
            _ => self.0.push(gap),
        }
    }

    /// Reports the gaps on stderr, and how many there are.
    pub(crate) fn complain(&self, notation: Notation) {
        let (mut keys, mut ranges) = (0, 0);
        for gap in &self.0 {
            complain(format_args!("skipped: {}", described(gap, notation)));
            match gap.keys {
                Some(missing) => keys += missing,
                None => ranges += 1,
            }
        }
        if !self.0.is_empty() {
            complain(format_args!(
                "skipped {} and {} whose keys cannot be read, because memory nodes cannot be reached",
                counted(keys, "key"),
                counted(ranges, "range")
            ));
        }
    }
}

/// Describes a gap: a key, or the range of the keys.
pub(crate) fn described(gap: &Gap, notation: Notation) -> String {
    if let Some(key) = gap.key() {
        return format!("key {}", notation.write(key));
    }
    let of = |keys: u64| if keys == 1 { "a key".to_owned() } else { counted(keys, "key") };
    let keys = gap.keys.map_or_else(|| "all keys".to_owned(), of);
    let from = notation.write(&gap.from);
    match &gap.until {
        Some(until) if gap.from.is_empty() => format!("{keys} before {}", notation.write(until)),
        Some(until) => format!("{keys} from {from}, before {}", notation.write(until)),
        None if gap.from.is_empty() => keys,
        None => format!("{keys} from {from}"),
    }
}

/// Describes a gap of the whole index. Keys of programs are written as programs name them, records of
/// gateways with `gateway:`.
pub(crate) fn described_in_whole(gap: &Gap, notation: Notation) -> String {
    let space = KeySpace::of_place(&gap.from);
    let key = |place: &Vec<u8>| space.key(place).to_vec();
    let until = gap.until.as_ref().filter(|until| KeySpace::of_place(until) == space).map(key);
    let gap_of_space = Gap { from: key(&gap.from), until, keys: gap.keys };
    match space {
        KeySpace::Gateway => format!("gateway: {}", described(&gap_of_space, notation)),
        _ if KeySpace::of_place(gap.until.as_deref().unwrap_or(&[0xff])) == space => {
            described(&gap_of_space, notation)
        }
        _ => format!("{}, and keys of gateways", described(&gap_of_space, notation)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from: &[u8], until: Option<&[u8]>, keys: Option<u64>) -> Gap {
        Gap { from: from.to_vec(), until: until.map(<[u8]>::to_vec), keys }
    }

    #[test]
    fn gaps_are_described_by_their_keys() {
        for (gap, text) in [
            (gap(b"pear", Some(b"pear\0"), Some(1)), "key pear"),
            (gap(b"pear", Some(b"plum"), Some(1)), "a key from pear, before plum"),
            (gap(b"pear", Some(b"plum"), Some(3)), "3 keys from pear, before plum"),
            (gap(b"pear", Some(b"plum"), None), "all keys from pear, before plum"),
            (gap(b"", Some(b"plum"), None), "all keys before plum"),
            (gap(b"pear", None, None), "all keys from pear"),
            (gap(b"", None, None), "all keys"),
        ] {
            assert_eq!(described(&gap, Notation::Escaped), text);
        }
        for (gap, text) in [
            (gap(b"\xffkpear", Some(b"\xffkpear\0"), Some(1)), "gateway: key kpear"),
            (gap(b"\xfe\xff", Some(b"\xfe\xff\0"), Some(1)), "key \\xff"),
            (gap(b"pear", Some(b"plum"), None), "all keys from pear, before plum"),
            (gap(b"pear", None, None), "all keys from pear, and keys of gateways"),
            (gap(b"pear", Some(b"\xffk"), None), "all keys from pear, and keys of gateways"),
        ] {
            assert_eq!(described_in_whole(&gap, Notation::Escaped), text);
        }
    }

    #[test]
    fn adjacent_ranges_are_one() {
        let mut gaps = Gaps::default();
        gaps.add(gap(b"a", Some(b"b"), None));
        gaps.add(gap(b"b", Some(b"c"), None));
        gaps.add(gap(b"c", Some(b"d"), Some(2)));
        gaps.add(gap(b"d", None, None));
        let expected = [gap(b"a", Some(b"c"), None), gap(b"c", Some(b"d"), Some(2)), gap(b"d", None, None)];
        assert_eq!(gaps.0, expected);
    }
}
