//! The library `struct` of scripts: packs and unpacks binary data, as in Redis.

use super::library::{Answer, Library, Trouble, bad_argument, integer, number, string};
use mlua::{Lua, Value};

/// Most bytes of an integer.
const INTEGER_BYTES_MAX: usize = 32;
/// The alignment of `!` without a number.
const ALIGNMENT: usize = 8;

/// Adds the library's functions.
pub(super) fn add(library: &Library<'_>) -> mlua::Result<()> {
    library.add("pack", pack)?;
    library.add("unpack", unpack)?;
    library.add("size", size)
}

/// A position in a format.
struct Format<'f> {
    rest: &'f [u8],
    function: &'static str,
    is_big_endian: bool,
    alignment: usize,
}

/// An item of a format: the option, its bytes, and the bytes of padding before it.
struct Item {
    option: u8,
    bytes: usize,
    padding: usize,
}

impl<'f> Format<'f> {
    fn new(format: &'f [u8], function: &'static str) -> Self {
        let rest = format.split(|&byte| byte == 0).next().unwrap_or_default();
        Self { rest, function, is_big_endian: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// Parses a number, if there is one.
    fn number(&mut self, default: usize) -> Result<usize, Trouble> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (text, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if text.is_empty() {
            return Ok(default);
        }
        let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
        let parsed = parsed.and_then(|number| usize::try_from(number).ok());
        parsed.ok_or_else(|| "integral size overflow".into())
    }

    /// Returns the next item at a position of the data.
    fn next(&mut self, position: usize) -> Result<Option<Item>, Trouble> {
        let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let bytes = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let bytes = self.number(4)?;
                if bytes > INTEGER_BYTES_MAX {
                    return Err(
                        format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}").into()
                    );
                }
                bytes
            }
            _ => 0,
        };
        let padding = if bytes == 0 || option == b'c' {
            0
        } else {
            let alignment = bytes.min(self.alignment);
            alignment.wrapping_sub(position & (alignment - 1)) & (alignment - 1)
        };
        Ok(Some(Item { option, bytes, padding }))
    }

    /// Handles an option that is not an item.
    fn control(&mut self, option: u8) -> Result<(), Trouble> {
        match option {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.number(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    return Err(format!("alignment {alignment} is not a power of 2").into());
                }
                self.alignment = alignment;
            }
            _ => {
                let why = format!("invalid format option '{}'", char::from(option));
                return Err(bad_argument(0, self.function, &why));
            }
        }
        Ok(())
    }

    /// Puts bytes that begin with the lowest into the order of the format, or back.
    fn ordered<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if self.is_big_endian {
            bytes.reverse();
        }
        bytes
    }
}

fn pack(lua: &Lua, args: &[Value]) -> Answer {
    let text = string(lua, args, 0, "pack")?;
    let text = text.as_bytes();
    let (mut format, mut packed, mut at) = (Format::new(&text, "pack"), Vec::new(), 0);
    // A missing argument counts as nil.
    let args = &[args, &[Value::Nil]].concat()[..];
    let mut next = || {
        at += 1;
        at
    };
    while let Some(Item { option, bytes, padding }) = format.next(packed.len())? {
        packed.resize(packed.len() + padding, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = number(args, next(), "pack")?;
                let value = if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
                let mut item: Vec<u8> = value.to_le_bytes().into_iter().chain([0; 24]).take(bytes).collect();
                if format.is_big_endian {
                    item.reverse();
                }
                packed.extend(item);
            }
            b'x' => packed.push(0),
            b'f' => {
                let number = number(args, next(), "pack")? as f32;
                packed.extend(format.ordered(number.to_le_bytes()));
            }
            b'd' => packed.extend(format.ordered(number(args, next(), "pack")?.to_le_bytes())),
            b'c' | b's' => {
                let at = next();
                let value = string(lua, args, at, "pack")?;
                let value = value.as_bytes();
                let bytes = if bytes == 0 { value.len() } else { bytes };
                let kept = value.get(..bytes);
                packed.extend(kept.ok_or_else(|| bad_argument(at + 1, "pack", "string too short"))?);
                if option == b's' {
                    packed.push(0);
                }
            }
            _ => format.control(option)?,
        }
    }
    Ok(vec![Value::String(lua.create_string(packed)?)])
}

/// Returns the number that bytes in the format's order are.
fn number_of(format: &Format<'_>, bytes: &[u8], is_signed: bool) -> f64 {
    let low_first: Vec<u8> =
        if format.is_big_endian { bytes.iter().rev().copied().collect() } else { bytes.to_vec() };
    let mut words = [0_u8; 8];
    for (to, from) in words.iter_mut().zip(&low_first) {
        *to = *from;
    }
    let value = u64::from_le_bytes(words);
    if !is_signed {
        return value as f64;
    }
    let unused = 64 - 8 * bytes.len().clamp(1, 8);
    (value.cast_signed() << unused >> unused) as f64
}

fn unpack(lua: &Lua, args: &[Value]) -> Answer {
    let (text, data) = (string(lua, args, 0, "unpack")?, string(lua, args, 1, "unpack")?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let offset = integer(args, 2, "unpack", Some(1))?;
    let too_short = || bad_argument(1, "unpack", "data string too short");
    if offset < 1 {
        return Err(bad_argument(2, "unpack", "offset must be 1 or greater"));
    }
    let mut at = usize::try_from(offset - 1).unwrap_or(usize::MAX);
    let (mut format, mut values) = (Format::new(&text, "unpack"), Vec::new());
    while let Some(Item { option, mut bytes, padding }) = format.next(at)? {
        at = at.saturating_add(padding);
        let mut item = at.checked_add(bytes).and_then(|end| data.get(at..end)).ok_or_else(too_short)?;
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                values.push(Value::Number(number_of(&format, item, option.is_ascii_lowercase())));
            }
            b'x' => {}
            b'f' => {
                let number = f32::from_le_bytes(format.ordered(item.try_into().unwrap_or_default()));
                values.push(Value::Number(number.into()));
            }
            b'd' => {
                let number = f64::from_le_bytes(format.ordered(item.try_into().unwrap_or_default()));
                values.push(Value::Number(number));
            }
            b'c' => {
                if bytes == 0 {
                    let size = values.pop().as_ref().and_then(super::library::as_number);
                    let size = size.ok_or("format 'c0' needs a previous size")?;
                    bytes = size as usize;
                    item = at.checked_add(bytes).and_then(|end| data.get(at..end)).ok_or_else(too_short)?;
                }
                values.push(Value::String(lua.create_string(item)?));
            }
            b's' => {
                let end = data[at..].iter().position(|&byte| byte == 0);
                let end = end.ok_or("unfinished string in data")?;
                values.push(Value::String(lua.create_string(&data[at..at + end])?));
                bytes = end + 1;
            }
            _ => format.control(option)?,
        }
        at += bytes;
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values)
}

fn size(lua: &Lua, args: &[Value]) -> Answer {
    let text = string(lua, args, 0, "size")?;
    let text = text.as_bytes();
    let (mut format, mut at) = (Format::new(&text, "size"), 0_usize);
    while let Some(Item { option, bytes, padding }) = format.next(at)? {
        if option == b's' || option == b'c' && bytes == 0 {
            let option = if option == b's' { "s" } else { "c0" };
            return Err(bad_argument(0, "size", &format!("option '{option}' has no fixed size")));
        }
        if !option.is_ascii_alphanumeric() {
            format.control(option)?;
        }
        at += padding + bytes;
    }
    Ok(vec![Value::Number(at as f64)])
}
