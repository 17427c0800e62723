//! The indexes that a stress can be of. Workers, repairs and judgement use any of them by a [`Store`].

use darter::{DefaultFabric, Error, IndexKind, Store, StoreOptions};
use darter_baselines::{Art, ArtOptions, Chime, ChimeOptions, Sherman, ShermanOptions, Smart, SmartOptions};
use darter_fabric::{Fabric, PoolUrl};
use std::str::FromStr;

/// Which index a stress is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectKind {
    /// DART.
    Dart,
    /// Quiver.
    #[default]
    Quiver,
    /// ART with locks.
    Art,
    /// SMART with leaves out of place: one in place is lost with whoever dies while writing it.
    Smart,
    /// Sherman, with pairs of any length.
    Sherman,
    /// CHIME, with pairs of any length.
    Chime,
}

impl SubjectKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Dart, Self::Quiver, Self::Art, Self::Smart, Self::Sherman, Self::Chime];

    /// The name in commands.
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
            format!("'{name}' is no index that can be under stress; those are {names}")
        })
    }
}

impl SubjectKind {
    /// Opens a pool over the index.
    ///
    /// # Errors
    /// As [`StoreOptions::open_url`].
    pub(super) fn open(self, options: &StoreOptions, url: &PoolUrl) -> Result<Store, Error> {
        match self {
            Self::Dart => options.clone().index(IndexKind::Dart).open_url(url),
            Self::Quiver => options.clone().index(IndexKind::Quiver).open_url(url),
            Self::Art => options.open_url_over::<Art<_>>(url, ArtOptions::default()),
            Self::Smart => options.open_url_over::<Smart<_>>(url, SmartOptions::lock_free()),
            Self::Sherman => options.open_url_over::<Sherman<_>>(url, ShermanOptions::default()),
            Self::Chime => options.open_url_over::<Chime<_>>(url, ChimeOptions::default()),
        }
    }

    /// Opens a pool that is there over the index, with its fabric wrapped by `decorate`.
    ///
    /// # Errors
    /// As [`StoreOptions::open_decorated`].
    pub(super) fn open_decorated<F: Fabric>(
        self,
        options: &StoreOptions,
        url: &PoolUrl,
        decorate: impl FnOnce(DefaultFabric) -> F,
    ) -> Result<Store<F>, Error> {
        match self {
            Self::Dart => options.clone().index(IndexKind::Dart).open_decorated(url, decorate),
            Self::Quiver => options.clone().index(IndexKind::Quiver).open_decorated(url, decorate),
            Self::Art => options.open_decorated_over::<F, Art<F>>(url, decorate, ArtOptions::default()),
            Self::Smart => {
                options.open_decorated_over::<F, Smart<F>>(url, decorate, SmartOptions::lock_free())
            }
            Self::Sherman => {
                options.open_decorated_over::<F, Sherman<F>>(url, decorate, ShermanOptions::default())
            }
            Self::Chime => options.open_decorated_over::<F, Chime<F>>(url, decorate, ChimeOptions::default()),
        }
    }
}
