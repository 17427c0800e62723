//! `BITFIELD` and `BITFIELD_RO`: integers of 1 to 64 bits at any position of a string, with the
//! highest bit first.

use super::bits::position;
use super::strings::lengthened;
use crate::call::{Call, cut};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{Change, Head};
use crate::number;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::turns;

/// The bits of a number in which all fields are computed.
const WIDTH: u32 = u128::BITS;

/// The place and the type of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    position: usize,
    bits: u32,
    is_signed: bool,
}

/// The treatment of results that a field cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// The high bits are dropped.
    Wrap,
    /// The result becomes the largest or smallest integer of the field.
    Saturate,
    /// The field is left unchanged, and the reply is null.
    Fail,
}

/// What is done with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

impl Field {
    /// Parses a type such as `i16` or `u8`, and a position: in bits, or after `#` in fields.
    fn parse(kind: &[u8], place: &[u8]) -> Result<Self, Fault> {
        let no_type = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
        let (is_signed, bits) = match cut(kind, kind.len()) {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return Err(Fault::said(no_type)),
        };
        let most = if is_signed { 64 } else { 63 };
        let bits = number::integer(bits).filter(|bits| (1..=most).contains(bits));
        let bits = bits.ok_or_else(|| Fault::said(no_type))?;
        let position = position(match place {
            [b'#', place @ ..] => number::integer(place).and_then(|place| place.checked_mul(bits)),
            place => number::integer(place),
        })?;
        Ok(Self { position, bits: bits as u32, is_signed })
    }

    /// Returns the 16 bytes from the field's first byte on, as far as a value has them.
    fn window(self, value: &[u8]) -> u128 {
        let mut window = [0; 16];
        let bytes = value.get(self.position / 8..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(window.len())];
        window[..bytes.len()].copy_from_slice(bytes);
        u128::from_be_bytes(window)
    }

    /// Reduces a number to the bits of the field.
    fn wrap(self, number: i128) -> i128 {
        let highest = number << (WIDTH - self.bits);
        if self.is_signed {
            highest >> (WIDTH - self.bits)
        } else {
            (highest.cast_unsigned() >> (WIDTH - self.bits)).cast_signed()
        }
    }

    fn read(self, value: &[u8]) -> i128 {
        let shift = WIDTH - self.bits - (self.position % 8) as u32;
        self.wrap((self.window(value) >> shift).cast_signed())
    }

    /// Writes a number that fits into the field of a value that is long enough.
    fn write(self, value: &mut [u8], number: i128) {
        let shift = WIDTH - self.bits - (self.position % 8) as u32;
        let mask = (u128::MAX >> (WIDTH - self.bits)) << shift;
        let window = self.window(value) & !mask | number.cast_unsigned() << shift & mask;
        for (byte, new) in value[self.position / 8..].iter_mut().zip(window.to_be_bytes()) {
            *byte = new;
        }
    }

    /// Returns the largest number that the field can hold.
    fn largest(self) -> i128 {
        (1 << (self.bits - u32::from(self.is_signed))) - 1
    }

    /// Returns what the field holds when a number is stored in it; `None` if the number does not fit
    /// and must fit.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        let wrapped = self.wrap(number);
        if wrapped == number {
            return Some(number);
        }
        let largest = self.largest();
        let smallest = if self.is_signed { -largest - 1 } else { 0 };
        match overflow {
            Overflow::Wrap => Some(wrapped),
            Overflow::Saturate => Some(number.clamp(smallest, largest)),
            Overflow::Fail => None,
        }
    }

    /// Returns the bytes of a value up to the end of the field.
    fn end(self) -> usize {
        (self.position + self.bits as usize).div_ceil(8)
    }

    /// Returns what the field holds after an action, and the number of the reply. `None` if the
    /// action fails.
    fn act(self, old: i128, action: Action) -> Option<(i128, i128)> {
        match action {
            Action::Get => Some((old, old)),
            Action::Set(number, overflow) => {
                let wide = if self.is_signed { number.into() } else { number.cast_unsigned().into() };
                let fitting = self.fit(wide, overflow)?;
                // In Redis's comparison the difference overflows if the number is very small. It then
                // counts as too large.
                let is_large = self.is_signed && (self.largest() as i64).wrapping_sub(number) < 0;
                let saturates = overflow == Overflow::Saturate && fitting != wide && is_large;
                Some((if saturates { self.largest() } else { fitting }, old))
            }
            Action::Add(number, overflow) => {
                let new = self.fit(old + i128::from(number), overflow)?;
                Some((new, new))
            }
        }
    }
}

/// Parses the actions of a request.
async fn parse(args: &Arguments<'_>) -> Result<Vec<(Field, Action)>, Fault> {
    let (mut actions, mut overflow) = (Vec::new(), Overflow::Wrap);
    let mut at = 2;
    while at < args.len() {
        turns::worked().await;
        let (left, word) = (args.len() - at - 1, args.get(at).to_ascii_lowercase());
        if word == b"overflow" && left > 0 {
            overflow = match &args.get(at + 1).to_ascii_lowercase()[..] {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err(Fault::said("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let words = match &word[..] {
            b"get" => 3,
            b"set" | b"incrby" => 4,
            _ => return Err(SYNTAX),
        };
        if left + 1 < words {
            return Err(SYNTAX);
        }
        let field = Field::parse(args.get(at + 1), args.get(at + 2))?;
        let number = || number::integer(args.get(at + 3)).ok_or(NO_INTEGER);
        let action = match &word[..] {
            b"get" => Action::Get,
            b"set" => Action::Set(number()?, overflow),
            _ => Action::Add(number()?, overflow),
        };
        actions.push((field, action));
        at += words;
    }
    Ok(actions)
}

/// Executes actions on a value, and replies. Returns whether it has changed the value.
fn execute(actions: &[(Field, Action)], value: &mut [u8], reply: &mut Reply<'_>) -> bool {
    reply.array(actions.len());
    let mut is_changed = false;
    for &(field, action) in actions {
        let old = field.read(value);
        let Some((new, told)) = field.act(old, action) else {
            reply.null();
            continue;
        };
        if new != old {
            field.write(value, new);
            is_changed = true;
        }
        reply.integer(told as i64);
    }
    is_changed
}

/// Replies with the fields of a value.
async fn read(call: &mut Call<'_>, actions: &[(Field, Action)]) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let look = keys.look(args.get(1), |head| {
        let value = head.map_or(Ok(&b""[..]), |head| head.string())?;
        reply.array(actions.len());
        for (field, _) in actions {
            reply.integer(field.read(value) as i64);
        }
        Ok::<_, Fault>(())
    });
    look.await??;
    call.limit()
}

/// `BITFIELD key [GET type offset|[OVERFLOW WRAP|SAT|FAIL] SET type offset value|INCRBY type offset
/// number]…`, and `BITFIELD_RO`, which only has `GET`.
pub(super) async fn bitfield(call: &mut Call<'_>, is_read_only: bool) -> Result<(), Fault> {
    let actions = parse(&call.args).await?;
    let changing = actions.iter().filter(|(_, action)| *action != Action::Get);
    let Some(end) = changing.map(|(field, _)| field.end()).max() else { return read(call, &actions).await };
    if is_read_only {
        return Err(Fault::said("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let most = call.shared.argument_bytes_max;
    let Call { args, keys, reply, .. } = call;
    let start = reply.position();
    let change = keys.change(args.get(1), |head: Option<Head<'_>>, record| {
        reply.take_back(start);
        let value = lengthened(head, record, end, most)?;
        let is_longer = head.is_none_or(|head| head.body.len() < value.len());
        let is_changed = execute(&actions, value, reply);
        Ok(if is_longer || is_changed { Change::Put(()) } else { Change::Keep(()) })
    });
    change.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(position: usize, bits: u32, is_signed: bool) -> Field {
        Field { position, bits, is_signed }
    }

    proptest! {
        #[test]
        fn fields_are_written_and_read_bit_by_bit(
            mut value in proptest::collection::vec(any::<u8>(), 20..30),
            position in 0_usize..90,
            bits in 1_u32..=64,
            is_signed: bool,
            number: i64,
        ) {
            prop_assume!(is_signed || bits < 64);
            let field = field(position, bits, is_signed);
            let bit = |value: &[u8], at: usize| value[at / 8] >> (7 - at % 8) & 1;
            let read = (0..bits as usize).fold(0_u64, |read, at| read << 1 | u64::from(bit(&value, position + at)));
            prop_assert_eq!(field.read(&value) as u64 & u64::MAX >> (64 - bits), read);
            let (before, number) = (value.clone(), field.wrap(number.into()));
            field.write(&mut value, number);
            prop_assert_eq!(field.read(&value), number);
            for at in (0..value.len() * 8).filter(|at| !(position..position + bits as usize).contains(at)) {
                prop_assert_eq!(bit(&before, at), bit(&value, at));
            }
        }

        #[test]
        fn results_out_of_range_are_wrapped_cut_off_or_refused(
            bits in 1_u32..=64,
            is_signed: bool,
            old: i64,
            added: i64,
        ) {
            prop_assume!(is_signed || bits < 64);
            let field = field(3, bits, is_signed);
            let old = field.wrap(old.into());
            let sum = old + i128::from(added);
            let largest = if is_signed { (1_i128 << (bits - 1)) - 1 } else { (1_i128 << bits) - 1 };
            let smallest = if is_signed { -largest - 1 } else { 0 };
            let fits = (smallest..=largest).contains(&sum);
            let results = [Overflow::Wrap, Overflow::Saturate, Overflow::Fail]
                .map(|overflow| field.act(old, Action::Add(added, overflow)).map(|(new, _)| new));
            prop_assert_eq!((results[0].unwrap() - sum) % (1 << bits), 0);
            prop_assert!((smallest..=largest).contains(&results[0].unwrap()));
            prop_assert_eq!(results[1], Some(sum.clamp(smallest, largest)));
            prop_assert_eq!(results[2], fits.then_some(sum));
        }
    }

    #[test]
    fn a_very_small_number_saturates_as_in_redis() {
        let set =
            |bits, number| field(0, bits, true).act(0, Action::Set(number, Overflow::Saturate)).unwrap().0;
        assert_eq!((set(5, -1000), set(5, i64::MIN + 15), set(5, i64::MIN + 16)), (-16, 15, -16));
        assert_eq!(set(64, i64::MIN), i128::from(i64::MIN));
    }

    #[test]
    fn a_field_behind_the_value_is_zero() {
        assert_eq!(field(4, 8, false).read(b"\xff"), 0xf0);
        assert_eq!(field(80, 64, true).read(b"\xff"), 0);
        assert_eq!(field(usize::MAX / 2, 64, true).read(b""), 0);
    }

    #[test]
    fn types_and_positions_are_limited() {
        for (kind, place) in [
            ("u64", "0"),
            ("i65", "0"),
            ("u0", "0"),
            ("8", "0"),
            ("", "0"),
            ("u8", "-1"),
            ("u8", "#9223372036854775807"),
        ] {
            assert!(Field::parse(kind.as_bytes(), place.as_bytes()).is_err(), "{kind} {place}");
        }
        assert_eq!(Field::parse(b"i64", b"#3").unwrap(), field(192, 64, true));
        assert_eq!(Field::parse(b"u63", b"3").unwrap(), field(3, 63, false));
    }
}
