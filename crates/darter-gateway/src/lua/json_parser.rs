//! The parser of JSON for `cjson.decode`.

use super::library::{NULL, Trouble};
use mlua::{Lua, Value};

/// A position in a text.
pub(super) struct Parser<'t> {
    lua: &'t Lua,
    text: &'t [u8],
    at: usize,
    depth: usize,
    depth_max: usize,
    /// Whether infinity, NaN and hexadecimal numbers are accepted.
    accepts_invalid: bool,
}

/// A part of the text.
enum Token {
    /// One of `{}[]:,`.
    Mark(u8),
    /// A string, a number, true, false or null.
    Value(Value),
    End,
    Wrong(&'static str),
}

impl<'t> Parser<'t> {
    pub(super) fn new(lua: &'t Lua, text: &'t [u8], depth_max: usize, accepts_invalid: bool) -> Self {
        Self { lua, text, at: 0, depth: 0, depth_max, accepts_invalid }
    }

    /// Parses the whole text.
    pub(super) fn document(&mut self) -> Result<Value, Trouble> {
        if self.text.len() >= 2 && self.text[..2].contains(&0) {
            return Err("JSON parser does not support UTF-16 or UTF-32".into());
        }
        let (start, token) = self.token()?;
        let value = self.value(start, token)?;
        match self.token()? {
            (_, Token::End) => Ok(value),
            (start, token) => Err(unexpected("the end", start, &token)),
        }
    }

    /// Returns the byte at a distance; 0 at the end.
    fn byte(&self, distance: usize) -> u8 {
        self.text.get(self.at + distance).copied().unwrap_or(0)
    }

    /// Returns the next token, and where it or its error is.
    fn token(&mut self) -> Result<(usize, Token), Trouble> {
        while matches!(self.byte(0), b' ' | b'\t' | b'\n' | b'\r') && self.at < self.text.len() {
            self.at += 1;
        }
        let start = self.at;
        let token = match self.byte(0) {
            0 => Token::End,
            mark @ (b'{' | b'}' | b'[' | b']' | b':' | b',') => {
                self.at += 1;
                Token::Mark(mark)
            }
            b'"' => match self.string() {
                Ok(text) => Token::Value(Value::String(self.lua.create_string(text)?)),
                Err(why) => return Ok((self.at, Token::Wrong(why))),
            },
            b'-' | b'0'..=b'9' if self.accepts_invalid || !self.is_invalid_number() => self.number(),
            b'-' | b'0'..=b'9' => Token::Wrong("invalid number"),
            _ => self.word(),
        };
        Ok((start, token))
    }

    fn word(&mut self) -> Token {
        for (word, value) in
            [("true", Value::Boolean(true)), ("false", Value::Boolean(false)), ("null", NULL)]
        {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Token::Value(value);
            }
        }
        let begins_number = matches!(self.byte(0), b'i' | b'I' | b'n' | b'N' | b'+');
        if begins_number && self.accepts_invalid && self.is_invalid_number() {
            return self.number();
        }
        Token::Wrong("invalid token")
    }

    /// Returns whether a number follows that JSON does not allow.
    fn is_invalid_number(&self) -> bool {
        let rest = &self.text[self.at..];
        let rest = match rest {
            [b'+', ..] => return true,
            [b'-', rest @ ..] | rest => rest,
        };
        let begins = |word: &[u8]| rest.get(..3).is_some_and(|three| three.eq_ignore_ascii_case(word));
        matches!(rest, [b'0', b'x' | b'X' | b'0'..=b'9', ..]) || begins(b"inf") || begins(b"nan")
    }

    /// Parses a number as `strtod` does.
    fn number(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
        let after = |at: usize, wanted: fn(&u8) -> bool| {
            at + rest[at.min(rest.len())..].iter().take_while(|byte| wanted(byte)).count()
        };
        let word = rest.get(sign..).unwrap_or_default().to_ascii_lowercase();
        let (end, number) = if word.starts_with(b"inf") || word.starts_with(b"nan") {
            let bytes = if word.starts_with(b"infinity") { 8 } else { 3 };
            let number = if word.starts_with(b"inf") { f64::INFINITY } else { f64::NAN };
            (sign + bytes, Some(if rest[0] == b'-' { -number } else { number }))
        } else if word.starts_with(b"0x") {
            let end = after(sign + 2, |byte| byte.is_ascii_hexdigit() || *byte == b'.');
            (end, crate::score::parse(&rest[..end]))
        } else {
            let mut end = after(sign, u8::is_ascii_digit);
            if rest.get(end) == Some(&b'.') {
                end = after(end + 1, u8::is_ascii_digit);
            }
            if matches!(rest.get(end), Some(b'e' | b'E')) {
                let digits = end + 1 + usize::from(matches!(rest.get(end + 1), Some(b'-' | b'+')));
                let last = after(digits, u8::is_ascii_digit);
                end = if last > digits { last } else { end };
            }
            let text = std::str::from_utf8(&rest[..end]).unwrap_or_default();
            (end, text.trim_start_matches('+').parse().ok())
        };
        let Some(number) = number else { return Token::Wrong("invalid number") };
        self.at += end;
        Token::Value(Value::Number(number))
    }

    /// Parses a string, at its first quote. After an error, the position is at its cause.
    fn string(&mut self) -> Result<Vec<u8>, &'static str> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.byte(0) {
                b'"' => {
                    self.at += 1;
                    return Ok(text);
                }
                0 => return Err("unexpected end of string"),
                b'\\' => self.escape(&mut text)?,
                byte => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        text.push(match self.byte(1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 0x0c,
            b'r' => b'\r',
            b'u' => {
                let (point, bytes) = self.code_point().ok_or("invalid unicode escape code")?;
                text.extend_from_slice(point.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += bytes;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        });
        self.at += 2;
        Ok(())
    }

    /// Returns the character of an escape `\uXXXX`, or of two that are surrogates, and its length.
    fn code_point(&self) -> Option<(char, usize)> {
        let unit = |distance: usize| {
            let digits = self.text.get(self.at + distance + 2..self.at + distance + 6)?;
            let is_escape = self.byte(distance) == b'\\' && self.byte(distance + 1) == b'u';
            let digits = std::str::from_utf8(digits).ok().filter(|_| is_escape)?;
            digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
            u16::from_str_radix(digits, 16).ok()
        };
        let first = unit(0)?;
        if first & 0xf800 != 0xd800 {
            return Some((char::from_u32(first.into())?, 6));
        }
        let pair = [first, unit(6)?];
        let point = char::decode_utf16(pair).next()?.ok()?;
        Some((point, 12))
    }

    fn value(&mut self, start: usize, token: Token) -> Result<Value, Trouble> {
        match token {
            Token::Value(value) => Ok(value),
            Token::Mark(b'{') => self.nested(Self::object),
            Token::Mark(b'[') => self.nested(Self::array),
            other => Err(unexpected("value", start, &other)),
        }
    }

    fn nested(&mut self, parse: fn(&mut Self) -> Result<Value, Trouble>) -> Result<Value, Trouble> {
        self.depth += 1;
        if self.depth > self.depth_max {
            let (depth, at) = (self.depth, self.at);
            return Err(format!("Found too many nested data structures ({depth}) at character {at}").into());
        }
        let value = parse(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, Trouble> {
        let table = self.lua.create_table()?;
        let (mut start, mut token) = self.token()?;
        if matches!(token, Token::Mark(b'}')) {
            return Ok(Value::Table(table));
        }
        loop {
            let Token::Value(Value::String(key)) = token else {
                return Err(unexpected("object key string", start, &token));
            };
            match self.token()? {
                (_, Token::Mark(b':')) => {}
                (start, token) => return Err(unexpected("colon", start, &token)),
            }
            (start, token) = self.token()?;
            table.raw_set(key, self.value(start, token)?)?;
            match self.token()? {
                (_, Token::Mark(b'}')) => return Ok(Value::Table(table)),
                (_, Token::Mark(b',')) => {}
                (start, token) => return Err(unexpected("comma or object end", start, &token)),
            }
            (start, token) = self.token()?;
        }
    }

    fn array(&mut self) -> Result<Value, Trouble> {
        let table = self.lua.create_table()?;
        let (mut start, mut token) = self.token()?;
        if matches!(token, Token::Mark(b']')) {
            return Ok(Value::Table(table));
        }
        for at in 1_i64.. {
            table.raw_set(at, self.value(start, token)?)?;
            match self.token()? {
                (_, Token::Mark(b']')) => break,
                (_, Token::Mark(b',')) => {}
                (start, token) => return Err(unexpected("comma or array end", start, &token)),
            }
            (start, token) = self.token()?;
        }
        Ok(Value::Table(table))
    }
}

fn unexpected(expected: &str, at: usize, found: &Token) -> Trouble {
    let found = match found {
        Token::Mark(b'{') => "T_OBJ_BEGIN",
        Token::Mark(b'}') => "T_OBJ_END",
        Token::Mark(b'[') => "T_ARR_BEGIN",
        Token::Mark(b']') => "T_ARR_END",
        Token::Mark(b':') => "T_COLON",
        Token::Mark(_) => "T_COMMA",
        Token::Value(Value::String(_)) => "T_STRING",
        Token::Value(Value::Boolean(_)) => "T_BOOLEAN",
        Token::Value(Value::Number(_)) => "T_NUMBER",
        Token::Value(_) => "T_NULL",
        Token::End => "T_END",
        Token::Wrong(why) => why,
    };
    format!("Expected {expected} but found {found} at character {}", at + 1).into()
}
