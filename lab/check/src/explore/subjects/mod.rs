//! The indexes that can be explored: one line and one file each.

mod art;
mod chime;
mod dart;
mod dex;
mod quiver;
mod sherman;
mod smart;
mod wort;
mod xstore;

use super::plan::{Explored, Plan, no_plan};
use std::str::FromStr;
use std::sync::LazyLock;

static ALL: LazyLock<Vec<Explored>> = LazyLock::new(|| {
    vec![
        Explored::of::<quiver::OfQuiver<true, true>>(),
        Explored::of::<quiver::OfQuiver<false, true>>(),
        Explored::of::<quiver::OfQuiver<false, false>>(),
        Explored::of::<dart::OfDart>(),
        Explored::of::<art::OfArt<false>>(),
        Explored::of::<art::OfArt<true>>(),
        Explored::of::<smart::OfSmart<false>>(),
        Explored::of::<smart::OfSmart<true>>(),
        Explored::of::<sherman::OfSherman<sherman::All>>(),
        Explored::of::<sherman::OfSherman<sherman::Plain>>(),
        Explored::of::<sherman::OfSherman<sherman::Inline>>(),
        Explored::of::<chime::OfChime<chime::Pointers>>(),
        Explored::of::<chime::OfChime<chime::Values>>(),
        Explored::of::<dex::OfDex<false>>(),
        Explored::of::<dex::OfDex<true>>(),
        Explored::of::<xstore::OfXStore<xstore::Pointers>>(),
        Explored::of::<xstore::OfXStore<xstore::Values>>(),
        Explored::of::<xstore::OfXStore<xstore::Tree>>(),
        Explored::of::<wort::OfWort<0>>(),
        Explored::of::<wort::OfWort<1>>(),
        Explored::of::<wort::OfWort<2>>(),
    ]
});

/// Returns every index that can be explored, the main one first.
pub fn subjects() -> &'static [Explored] {
    &ALL
}

/// Returns the index of this name.
///
/// # Errors
/// Fails if there is none; the error lists the names.
pub fn subject(name: &str) -> Result<&'static Explored, String> {
    ALL.iter().find(|subject| subject.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|subject| subject.name).collect();
        format!("no index to explore is named '{name}'; the indexes are {}", names.join(", "))
    })
}

impl FromStr for Plan {
    type Err = String;

    /// Parses a plan of an index of the registry.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, _) = text.split_once('/').ok_or_else(|| no_plan(text))?;
        Self::parse_for(subject(name)?, text)
    }
}
