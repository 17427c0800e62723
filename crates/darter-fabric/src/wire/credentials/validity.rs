//! When certificates begin and cease to be valid.
//!
//! rustls verifies the validity of certificates but does not return it, so this reads the field of
//! DER (RFC 5280, section 4.1) itself. A certificate that it does not understand has no known end;
//! that affects only what is shown to the operator.

use super::watched::Expiry;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The tags of DER that occur before and in a certificate's validity.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Returns the validity of a chain of certificates: it ends with the first of them.
pub(in crate::wire) fn earliest_end<'c>(
    path: &Path,
    certificates: impl Iterator<Item = &'c [u8]>,
) -> Option<Expiry> {
    expiry(path, certificates.filter_map(validity).min_by_key(|(_, until)| *until))
}

/// Returns the validity of a list of CAs: it ends with the last of them, since an expired CA of an
/// overlapping list does no harm.
pub(in crate::wire) fn latest_end<'c>(
    path: &Path,
    certificates: impl Iterator<Item = &'c [u8]>,
) -> Option<Expiry> {
    expiry(path, certificates.filter_map(validity).max_by_key(|(_, until)| *until))
}

fn expiry(path: &Path, found: Option<(SystemTime, SystemTime)>) -> Option<Expiry> {
    let (from, until) = found?;
    Some(Expiry { path: path.to_owned(), from, until })
}

/// Returns when a certificate begins and ceases to be valid.
fn validity(certificate: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    // The serial number, the algorithm and the issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        fields = expect(fields, tag)?.1;
    }
    let (times, _) = expect(fields, SEQUENCE)?;
    let (from, times) = time(times)?;
    Some((from, time(times)?.0))
}

/// Returns the content of the element at the beginning, if it has this tag, and the bytes after it.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let count = usize::from(first & 0x7f);
        let digits = rest.get(..count).filter(|_| (1..=4).contains(&count))?;
        length = digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit));
        rest = &rest[count..];
    }
    (found == tag && rest.len() >= length).then(|| rest.split_at(length))
}

/// Returns the time at the beginning, and the bytes after it.
fn time(bytes: &[u8]) -> Option<(SystemTime, &[u8])> {
    let (tag, short) = (*bytes.first()?, *bytes.first()? == UTC_TIME);
    if !short && tag != GENERALIZED_TIME {
        return None;
    }
    let (text, rest) = expect(bytes, tag)?;
    let digits = text.strip_suffix(b"Z")?;
    let year_digits = if short { 2 } else { 4 };
    if digits.len() != year_digits + 10 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |at: usize, count: usize| {
        digits[at..at + count].iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let mut year = number(0, year_digits);
    if short {
        year += if year < 50 { 2000 } else { 1900 };
    }
    let [month, day, hour, minute, second] = std::array::from_fn(|at| number(year_digits + 2 * at, 2));
    let seconds = days(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second;
    let after = |seconds: i64| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.max(0) as u64));
    Some((after(seconds)?, rest))
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        // `date -d DATE +%s`, divided by 86,400.
        for (date, count) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 12, 31), 20_818),
            ((2100, 3, 1), 47_541),
            ((3000, 12, 31), 376_564),
        ] {
            assert_eq!(days(date.0, date.1, date.2), Some(count), "{date:?}");
        }
        assert_eq!(days(2026, 13, 1), None);
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_end() {
        for bytes in
            [&b""[..], b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x02\x30\x00", &[0x30; 64]]
        {
            assert_eq!(validity(bytes), None);
        }
        let (utc, _) = time(b"\x17\x0d260102030405Z").unwrap();
        let (general, rest) = time(b"\x18\x0f20260102030405Zrest").unwrap();
        let seconds = utc.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!((seconds, utc, rest), (1_767_323_045, general, &b"rest"[..]));
        assert_eq!(time(b"\x17\x0d26010203040xZ"), None);
    }
}
