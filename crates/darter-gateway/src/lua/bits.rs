//! The library `bit` of scripts: operations on 32 bits, as in `LuaBitOp` 1.0.2.

use super::library::{Answer, Library, Trouble, number};
use mlua::{Lua, Value};

/// A name, and an operation on two values.
type Operation = (&'static str, fn(u32, u32) -> u32);

/// Adds the library's functions.
pub(super) fn add(library: &Library<'_>) -> mlua::Result<()> {
    library.add("tobit", |_, args| Ok(vec![result(bits(args, 0, "tobit")?)]))?;
    library.add("bnot", |_, args| Ok(vec![result(!bits(args, 0, "bnot")?)]))?;
    library.add("bswap", |_, args| Ok(vec![result(bits(args, 0, "bswap")?.swap_bytes())]))?;
    library.add("tohex", tohex)?;
    let folds: [Operation; 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, fold) in folds {
        library.add(name, move |_, args| {
            let mut all = bits(args, 0, name)?;
            for at in 1..args.len() {
                all = fold(all, bits(args, at, name)?);
            }
            Ok(vec![result(all)])
        })?;
    }
    let shifts: [Operation; 5] = [
        ("lshift", |bits, by| bits << by),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| (bits.cast_signed() >> by).cast_unsigned()),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, shift) in shifts {
        library.add(name, move |_, args| {
            Ok(vec![result(shift(bits(args, 0, name)?, bits(args, 1, name)? & 31))])
        })?;
    }
    Ok(())
}

/// Returns an argument as 32 bits: rounded, modulo 2^32.
fn bits(args: &[Value], at: usize, function: &str) -> Result<u32, Trouble> {
    // Adding 2^52 + 2^51 moves the integral part to the lowest bits.
    let shifted = number(args, at, function)? + 6_755_399_441_055_744.0;
    Ok(shifted.to_bits() as u32)
}

fn result(bits: u32) -> Value {
    Value::Number(f64::from(bits.cast_signed()))
}

fn tohex(lua: &Lua, args: &[Value]) -> Answer {
    let value = bits(args, 0, "tohex")?;
    let digits = if args.len() < 2 { 8 } else { bits(args, 1, "tohex")?.cast_signed() };
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    let count = digits.unsigned_abs().min(8) as usize;
    Ok(vec![Value::String(lua.create_string(&text[8 - count..])?)])
}
