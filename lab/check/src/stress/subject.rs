//! The indexes that can be stressed. Workers, repairs and checks access each through a [`Store`].

use darter::engine;
use darter::{Error, IndexKind, Store, StoreOptions};
use darter_baselines::{Art, ArtOptions, Chime, ChimeOptions, Sherman, ShermanOptions, Smart, SmartOptions};
use darter_fabric::{PoolUrl, Provider};
use std::str::FromStr;

/// The index of a stress run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectKind {
    /// DART.
    Dart,
    /// Quiver.
    #[default]
    Quiver,
    /// ART with locks.
    Art,
    /// SMART with leaves out of place: a leaf in place is lost if a client dies while writing it.
    Smart,
    /// Sherman, with pairs of any length.
    Sherman,
    /// CHIME, with pairs of any length.
    Chime,
}

impl SubjectKind {
    /// All indexes.
    pub const ALL: [Self; 6] = [Self::Dart, Self::Quiver, Self::Art, Self::Smart, Self::Sherman, Self::Chime];

    /// Returns the name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dart => "dart",
            Self::Quiver => "quiver",
            Self::Art => "art",
            Self::Smart => "smart",
            Self::Sherman => "sherman",
            Self::Chime => "chime",
        }
    }
}

impl FromStr for SubjectKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no index to stress is named '{name}'; the indexes are {names}")
        })
    }
}

impl SubjectKind {
    /// Opens a pool with this index.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub(super) fn open(self, options: &StoreOptions, url: &PoolUrl) -> Result<Store, Error> {
        match self {
            Self::Dart => options.clone().index(IndexKind::Dart).open(url),
            Self::Quiver => options.clone().index(IndexKind::Quiver).open(url),
            Self::Art => engine::open_with::<Art<_>>(options, url, ArtOptions::default()),
            Self::Smart => engine::open_with::<Smart<_>>(options, url, SmartOptions::lock_free()),
            Self::Sherman => engine::open_with::<Sherman<_>>(options, url, ShermanOptions::default()),
            Self::Chime => engine::open_with::<Chime<_>>(options, url, ChimeOptions::default()),
        }
    }

    /// Opens an existing pool with this index, with its provider wrapped by `decorate`.
    ///
    /// # Errors
    /// Fails as [`engine::open_decorated`] does.
    pub(super) fn open_decorated(
        self,
        options: &StoreOptions,
        url: &PoolUrl,
        decorate: impl FnOnce(Provider) -> Provider,
    ) -> Result<Store, Error> {
        match self {
            Self::Dart => engine::open_decorated(&options.clone().index(IndexKind::Dart), url, decorate),
            Self::Quiver => engine::open_decorated(&options.clone().index(IndexKind::Quiver), url, decorate),
            Self::Art => engine::open_decorated_with::<Art<_>>(options, url, decorate, ArtOptions::default()),
            Self::Smart => {
                engine::open_decorated_with::<Smart<_>>(options, url, decorate, SmartOptions::lock_free())
            }
            Self::Sherman => {
                engine::open_decorated_with::<Sherman<_>>(options, url, decorate, ShermanOptions::default())
            }
            Self::Chime => {
                engine::open_decorated_with::<Chime<_>>(options, url, decorate, ChimeOptions::default())
            }
        }
    }
}
