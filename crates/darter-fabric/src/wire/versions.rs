//! The versions of the wire format that a program speaks, and the one that two programs agree on.
//!
//! A client's hello has the newest version that it speaks. A node that speaks this version goes on
//! in it. Another node refuses, names its own newest version, and closes the connection: the client
//! connects again in that version if it speaks it. So two programs agree on the newest version that
//! both of them speak, and a node of a version that this program does not know costs nothing but an
//! error that names both.

/// The versions of the wire format that a program speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

/// How a client goes on after a node has named a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// In the version of its hello.
    Agreed,
    /// By another hello, in this version.
    Again(u32),
    /// Not at all: the node speaks only newer versions.
    IsNewer,
    /// Not at all: the node speaks only older versions.
    IsOlder,
}

impl Versions {
    /// Those of this program. A change of the format keeps the version that the release before speaks.
    pub const SPOKEN: Self = Self { oldest: 6, newest: super::VERSION };

    /// Returns whether a version is one of these.
    pub fn include(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Returns how a client of these versions goes on that sent a hello of version `asked` to a node
    /// that named version `named`.
    pub(crate) fn answer(self, asked: u32, named: u32) -> Answer {
        if named == asked {
            Answer::Agreed
        } else if named > asked {
            // It names the newest that it speaks: if it spoke this one, it would have agreed.
            Answer::IsNewer
        } else if self.include(named) {
            Answer::Again(named)
        } else {
            Answer::IsOlder
        }
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest {
            write!(out, "version {newest}")
        } else {
            write!(out, "versions {oldest} to {newest}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of ranges agrees on the newest version that both have, in at most two hellos, or
    /// the client learns which side is older.
    #[test]
    fn two_programs_agree_on_the_newest_version_of_both() {
        let ranges = || (1..6).flat_map(|oldest| (oldest..6).map(move |newest| Versions { oldest, newest }));
        for client in ranges() {
            for node in ranges() {
                let named = |asked| if node.include(asked) { asked } else { node.newest };
                let first = client.answer(client.newest, named(client.newest));
                let expected = client.newest.min(node.newest);
                let both = client.include(expected) && node.include(expected);
                match first {
                    Answer::Agreed => assert_eq!((client.newest, both), (expected, true)),
                    Answer::Again(version) => {
                        assert_eq!((version, both), (expected, true));
                        assert_eq!(client.answer(version, named(version)), Answer::Agreed);
                    }
                    Answer::IsNewer => assert!(node.oldest > client.newest, "{client}, {node}"),
                    Answer::IsOlder => assert!(node.newest < client.oldest, "{client}, {node}"),
                }
            }
        }
    }
}
