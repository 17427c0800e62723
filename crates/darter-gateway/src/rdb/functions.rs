//! The payload of `FUNCTION DUMP`, which is that part of an RDB file: for each library a mark and its
//! code, then the version and the checksum as after a value.

use super::{Reader, Text, VALUE_BYTES_MAX, push_string, seal, verified};

/// The mark before a library.
const LIBRARY: u8 = 245;

/// Returns the payload of libraries.
pub(crate) fn dumped_libraries(codes: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for code in codes {
        payload.push(LIBRARY);
        push_string(&mut payload, code);
    }
    seal(payload)
}

/// Why a payload has no libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLibraries {
    /// Its version is not known, or its checksum is wrong.
    Unverified,
    /// Something else than a library is in it.
    OtherType,
    /// A library is damaged.
    Damaged,
}

/// Returns the code of the libraries in a payload.
pub(crate) fn libraries_of(payload: &[u8]) -> Result<Vec<Text<'_>>, NoLibraries> {
    let mut reader = Reader::new(verified(payload).ok_or(NoLibraries::Unverified)?, VALUE_BYTES_MAX);
    let mut codes = Vec::new();
    while !reader.is_at_end() {
        if reader.chunk() != Some([LIBRARY]) {
            return Err(NoLibraries::OtherType);
        }
        codes.push(reader.string().ok_or(NoLibraries::Damaged)?);
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_as_they_were_written() {
        let codes = [b"#!lua name=a\n".to_vec(), vec![b'x'; 70_000]];
        let payload = dumped_libraries(&codes);
        assert_eq!(libraries_of(&payload).unwrap(), codes);
        assert!(libraries_of(&dumped_libraries(&[])).unwrap().is_empty());
        for at in [0, 5, payload.len() - 1] {
            let mut damaged = payload.clone();
            damaged[at] ^= 1;
            assert_eq!(libraries_of(&damaged), Err(NoLibraries::Unverified));
        }
        assert_eq!(libraries_of(&payload[..9]), Err(NoLibraries::Unverified));
        assert_eq!(libraries_of(&super::super::dumped_string(b"x")), Err(NoLibraries::OtherType));
        assert_eq!(libraries_of(&seal(vec![LIBRARY, 9, b'x'])), Err(NoLibraries::Damaged));
    }
}
