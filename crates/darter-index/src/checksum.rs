//! CRC32C (Castagnoli) of words, computed with the processor's instruction if it has one.
//!
//! The checksum is that of the words' bytes in little-endian order, as other programs compute it.
//! It is implemented here, not taken from a library, so that programs that only use `mem:` and
//! `file:` pools compile few crates.

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The remainders of all byte values, for processors without the instruction.
const REMAINDERS: [u32; 256] = {
    let mut remainders = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = remainder >> 1 ^ if remainder & 1 == 0 { 0 } else { POLYNOMIAL };
            bit += 1;
        }
        remainders[byte] = remainder;
        byte += 1;
    }
    remainders
};

/// Returns the checksum of words.
#[inline]
pub(crate) fn crc32c(words: &[u64]) -> u32 {
    append(0, words)
}

/// Returns the checksum of bytes whose number is a multiple of 8. Further bytes at the end are ignored.
pub fn crc32c_of_bytes(bytes: &[u8]) -> u32 {
    let (words, _) = bytes.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut some = [0; 64];
    let mut sum = 0;
    let mut words = words.peekable();
    while words.peek().is_some() {
        let mut count = 0;
        for (place, word) in some.iter_mut().zip(words.by_ref()) {
            *place = word;
            count += 1;
        }
        sum = append(sum, &some[..count]);
    }
    sum
}

/// Extends a checksum of some words by the words that follow them, and returns the new checksum.
#[inline]
pub(crate) fn append(checksum: u32, words: &[u64]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction, as was just detected.
        return unsafe { by_instruction(checksum, words) };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the processor has the instruction, as was just detected.
        return unsafe { by_instruction(checksum, words) };
    }
    by_table(checksum, words)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(checksum: u32, words: &[u64]) -> u32 {
    let sum =
        words.iter().fold(u64::from(!checksum), |sum, &word| std::arch::x86_64::_mm_crc32_u64(sum, word));
    !(sum as u32)
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "crc")]
fn by_instruction(checksum: u32, words: &[u64]) -> u32 {
    !words.iter().fold(!checksum, |sum, &word| std::arch::aarch64::__crc32cd(sum, word))
}

fn by_table(checksum: u32, words: &[u64]) -> u32 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    !bytes.fold(!checksum, |sum, byte| sum >> 8 ^ REMAINDERS[usize::from(sum as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_crate_crc32c() {
        // RFC 3720, B.4: 32 bytes of zeros, of ones, and ascending.
        for (words, expected) in [
            ([0; 4], 0x8a91_36aa),
            ([u64::MAX; 4], 0x62a8_ab43),
            ([0, 1, 2, 3].map(|n: u64| 0x0706_0504_0302_0100 + n * 0x0808_0808_0808_0808), 0x46dd_794e),
        ] {
            assert_eq!(crc32c(&words), expected);
        }
        let words: Vec<u64> = (0..100_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        for end in 0..words.len() {
            let (before, after) = words[..end].split_at(end / 3);
            let expected = crc32c::crc32c(bytemuck::cast_slice(&words[..end]));
            assert_eq!(append(crc32c(before), after), expected);
            assert_eq!(by_table(by_table(0, before), after), expected);
        }
    }
}
