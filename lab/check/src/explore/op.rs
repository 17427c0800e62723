//! The operations of a plan's clients, each a letter and perhaps the number of a key.

use super::roles::Roles;
use std::fmt;
use std::str::FromStr;

/// One operation of a client. Keys are numbers of the scenario's hot keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Search.
    Get(u8),
    /// Upsert.
    Put(u8),
    /// Insert if absent.
    Insert(u8),
    /// Update if present.
    Update(u8),
    /// Replace if the value is the scenario's initial one.
    Replace(u8),
    /// Delete.
    Delete(u8),
    /// Delete if the value is the scenario's initial one, if the index supports it.
    DeleteIf(u8),
    /// A transaction, tried again after a conflict.
    Transact(Roles),
    /// Search of all hot keys at once.
    MultiGet,
    /// Scan of everything hot, ascending or (`true`) descending.
    Scan(bool),
    /// The same in windows of a few keys, each starting after the last key of the one before.
    Windows(bool),
    /// Bulk load of all hot keys; or (`true`) with one key out of order, which must fail.
    Load(bool),
    /// A round of the pool's upkeep and of the index's.
    Maintain,
    /// The same a few times, while the process requests room from the others.
    Room,
    /// A sweep of the remains of dead processes.
    Sweep,
    /// A snapshot, from which everything hot is read in windows.
    Snapshot,
    /// A drain of the last memory node, or a part of it.
    Drain,
    /// A move of about half of everything to the last memory node, as in a rebalance.
    Level,
    /// A separate process joins the pool, puts a key and leaves.
    Visit(u8),
    /// An operation specific to the index that changes no result: in DART, an adjustment of the
    /// prefix list, if one is due.
    Adjust,
    /// The same, whether it is due or not: in DART, a change of the prefix list.
    Restructure,
    /// Nothing, until no other client can move.
    Rest,
}

impl Op {
    /// Returns its key, or the last of them, if it has any.
    pub(super) fn key(self) -> Option<u8> {
        match self {
            Self::Transact(roles) => Some(roles.last_key()),
            _ => self.letter().1,
        }
    }

    /// Whether its round trips are bounded even if other clients have stopped, if the index
    /// promises that.
    pub(super) fn is_bounded(self) -> bool {
        !matches!(
            self,
            Self::Load(_)
                | Self::Visit(_)
                | Self::Maintain
                | Self::Room
                | Self::Sweep
                | Self::Snapshot
                | Self::Drain
                | Self::Level
                | Self::Adjust
                | Self::Restructure
                | Self::Rest
        )
    }

    /// Whether it waits until all live members have moved on.
    pub(super) fn waits_for_members(self) -> bool {
        matches!(self, Self::Sweep | Self::Snapshot | Self::Drain)
    }

    /// Returns the direction of a scan, `true` if it is descending; `None` for any other operation.
    pub(super) fn scans(self) -> Option<bool> {
        match self {
            Self::Scan(reverse) | Self::Windows(reverse) => Some(reverse),
            _ => None,
        }
    }

    fn letter(self) -> (char, Option<u8>) {
        match self {
            Self::Get(key) => ('g', Some(key)),
            Self::Put(key) => ('p', Some(key)),
            Self::Insert(key) => ('i', Some(key)),
            Self::Update(key) => ('u', Some(key)),
            Self::Replace(key) => ('r', Some(key)),
            Self::Delete(key) => ('d', Some(key)),
            Self::DeleteIf(key) => ('e', Some(key)),
            Self::Visit(key) => ('j', Some(key)),
            Self::Transact(_) => ('t', None),
            Self::MultiGet => ('m', None),
            Self::Scan(false) => ('s', None),
            Self::Scan(true) => ('z', None),
            Self::Windows(false) => ('w', None),
            Self::Windows(true) => ('y', None),
            Self::Load(false) => ('B', None),
            Self::Load(true) => ('U', None),
            Self::Maintain => ('M', None),
            Self::Room => ('R', None),
            Self::Sweep => ('W', None),
            Self::Snapshot => ('S', None),
            Self::Drain => ('D', None),
            Self::Level => ('E', None),
            Self::Adjust => ('A', None),
            Self::Restructure => ('L', None),
            Self::Rest => ('H', None),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Transact(roles) = self {
            return write!(f, "t{roles}");
        }
        match self.letter() {
            (letter, Some(key)) => write!(f, "{letter}{key}"),
            (letter, None) => write!(f, "{letter}"),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is not an operation; the operations are g0 p0 i0 u0 r0 d0 e0 j0 tpg m s z w y B U M R W S D E A L H"
            )
        };
        let mut letters = text.chars();
        let letter = letters.next().ok_or_else(bad)?;
        let rest = letters.as_str();
        if rest.is_empty() {
            return match letter {
                'm' => Ok(Self::MultiGet),
                's' => Ok(Self::Scan(false)),
                'z' => Ok(Self::Scan(true)),
                'w' => Ok(Self::Windows(false)),
                'y' => Ok(Self::Windows(true)),
                'B' => Ok(Self::Load(false)),
                'U' => Ok(Self::Load(true)),
                'M' => Ok(Self::Maintain),
                'R' => Ok(Self::Room),
                'W' => Ok(Self::Sweep),
                'S' => Ok(Self::Snapshot),
                'D' => Ok(Self::Drain),
                'E' => Ok(Self::Level),
                'A' => Ok(Self::Adjust),
                'L' => Ok(Self::Restructure),
                'H' => Ok(Self::Rest),
                _ => Err(bad()),
            };
        }
        if letter == 't' {
            return rest.parse().map(Self::Transact).map_err(|()| bad());
        }
        let key = rest.parse::<u8>().map_err(|_| bad())?;
        match letter {
            'g' => Ok(Self::Get(key)),
            'p' => Ok(Self::Put(key)),
            'i' => Ok(Self::Insert(key)),
            'u' => Ok(Self::Update(key)),
            'r' => Ok(Self::Replace(key)),
            'd' => Ok(Self::Delete(key)),
            'e' => Ok(Self::DeleteIf(key)),
            'j' => Ok(Self::Visit(key)),
            _ => Err(bad()),
        }
    }
}
