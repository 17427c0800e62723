//! What a transaction of a plan does with each of its keys.

use crate::dice::Dice;
use std::fmt;
use std::str::FromStr;

/// Maximum number of keys of a transaction.
pub(super) const KEYS_MAX: usize = 3;

/// What a transaction does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads it.
    Get,
    /// Reads and puts it.
    Put,
    /// Reads and removes it.
    Delete,
    /// Puts it without reading it.
    Blind,
}

/// What a transaction does with each of a scenario's first hot keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles(pub [Option<Role>; KEYS_MAX]);

impl Roles {
    /// Returns the keys that the transaction accesses.
    pub(super) fn keys(self) -> impl Iterator<Item = (usize, Role)> {
        self.0.into_iter().enumerate().filter_map(|(key, role)| Some((key, role?)))
    }

    /// Returns the last of its keys.
    pub(super) fn last_key(self) -> u8 {
        self.keys().last().map_or(0, |(key, _)| key as u8)
    }

    /// Draws a transaction of two keys, or of three; `hot` is the number of keys. Some only read.
    pub(super) fn draw(hot: usize, dice: &mut Dice) -> Self {
        let hot = hot.min(KEYS_MAX);
        let left_out = if hot < KEYS_MAX || dice.one_in(3) { hot } else { dice.below(hot as u64) as usize };
        let mut roles = Self([None; KEYS_MAX]);
        for (_, role) in roles.0[..hot].iter_mut().enumerate().filter(|(key, _)| *key != left_out) {
            *role = Some(match dice.below(8) {
                0..4 => Role::Put,
                4..6 => Role::Get,
                6 => Role::Delete,
                _ => Role::Blind,
            });
        }
        roles
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for role in &self.0[..=usize::from(self.last_key())] {
            f.write_str(match role {
                Some(Role::Get) => "g",
                Some(Role::Put) => "p",
                Some(Role::Delete) => "d",
                Some(Role::Blind) => "b",
                None => "-",
            })?;
        }
        Ok(())
    }
}

impl FromStr for Roles {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut roles = Self([None; KEYS_MAX]);
        for (key, letter) in text.chars().enumerate() {
            *roles.0.get_mut(key).ok_or(())? = match letter {
                'g' => Some(Role::Get),
                'p' => Some(Role::Put),
                'd' => Some(Role::Delete),
                'b' => Some(Role::Blind),
                '-' => None,
                _ => return Err(()),
            };
        }
        if roles.keys().next().is_some() { Ok(roles) } else { Err(()) }
    }
}
