//! Size classes: 128 sizes, 7 bits, so that a slot holds both a class and the address (DART,
//! section 3.3).
//!
//! ```text
//! class    0 ..  63   16, 32, … 1024 bytes                  one step of 16
//! class   64 ..  79   1152, 1280, … 2048, 2304, … 4096      eight steps a doubling
//! class   80 .. 127   5120, 6144, … 16 MiB                  four steps a doubling
//! ```
//!
//! An object occupies its class's bytes; a READ of that many bytes fetches the whole object.

/// Number of size classes.
pub const CLASSES: usize = 128;
/// The largest class, in bytes.
pub const CLASS_BYTES_MAX: u64 = 16 << 20;

const FINE_MAX: u64 = 1024;
const MIDDLE_MAX: u64 = 4096;

const BYTES: [u64; CLASSES] = {
    let mut bytes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        bytes[class] = if class < 64 {
            16 * (class as u64 + 1)
        } else if class < 80 {
            let (doubling, step) = ((class as u64 - 64) / 8, (class as u64 - 64) % 8);
            (FINE_MAX << doubling) + (FINE_MAX << doubling) / 8 * (step + 1)
        } else {
            let (doubling, step) = ((class as u64 - 80) / 4, (class as u64 - 80) % 4);
            (MIDDLE_MAX << doubling) + (MIDDLE_MAX << doubling) / 4 * (step + 1)
        };
        class += 1;
    }
    bytes
};

const _: () = assert!(BYTES[63] == 1024 && BYTES[64] == 1152 && BYTES[79] == 4096 && BYTES[80] == 5120);
const _: () = assert!(BYTES[127] == CLASS_BYTES_MAX);

/// The smallest class that holds `bytes`, or `None` above [`CLASS_BYTES_MAX`]. Zero bytes belong to
/// class 0.
#[inline]
pub const fn class_of(bytes: u64) -> Option<u8> {
    if bytes <= FINE_MAX {
        return Some((bytes.saturating_sub(1) / 16) as u8);
    }
    if bytes > CLASS_BYTES_MAX {
        return None;
    }
    let last = bytes - 1;
    let log = last.ilog2() as u64;
    let above = last - (1 << log);
    Some(if bytes <= MIDDLE_MAX {
        64 + (log - 10) * 8 + (above >> (log - 3))
    } else {
        80 + (log - 12) * 4 + (above >> (log - 2))
    } as u8)
}

/// The bytes of a class. Only the low seven bits of `class` count.
#[inline]
pub const fn class_bytes(class: u8) -> u64 {
    BYTES[(class & 127) as usize]
}

/// The alignment of a class's objects: the largest power of two that divides its size, at most 64
/// bytes.
#[inline]
pub const fn class_align(class: u8) -> u64 {
    let align = 1 << class_bytes(class).trailing_zeros();
    if align > 64 { 64 } else { align }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        let step = if cfg!(miri) { 997 } else { 1 };
        for bytes in (1..=70_000u64).step_by(step).chain([1 << 20, (1 << 20) + 1, CLASS_BYTES_MAX]) {
            let class = class_of(bytes).unwrap();
            assert!(class_bytes(class) >= bytes, "{bytes}");
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes}");
        }
        assert_eq!(class_of(0), Some(0));
        assert_eq!(class_of(CLASS_BYTES_MAX + 1), None);
        assert_eq!(class_of(u64::MAX), None);
    }

    #[test]
    fn classes_name_themselves() {
        for class in 0..128 {
            assert_eq!(class_of(class_bytes(class)), Some(class));
            assert!(class_align(class) >= 16 && class_align(class) <= 64);
            assert_eq!(class_bytes(class) % class_align(class), 0);
        }
    }
}
