//! The indexes that a stress can be of, behind one type: workers, repairs and judgement are written
//! once, over stores of it.

use darter::Store;
use darter_baselines::{Art, ArtOptions, Chime, ChimeOptions, Sherman, ShermanOptions, Smart, SmartOptions};
use darter_fabric::Fabric;
use darter_index::{
    Dart, DartOptions, Holes, OrderedIndex, Quiver, QuiverOptions, Result, delegate_to_variants,
};
use darter_pool::Client;
use std::str::FromStr;

/// A store over an index under stress.
pub type SubjectStore<F = darter::DefaultFabric> = Store<F, Subject<F>>;

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

/// How a process opens the index.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubjectOptions {
    /// Which it is.
    pub kind: SubjectKind,
    /// Errors brought back into DART: a test of the test.
    pub holes: Holes,
}

/// The index under stress.
#[derive(Clone)]
pub enum Subject<F: Fabric> {
    /// DART.
    Dart(Dart<F>),
    /// Quiver.
    Quiver(Quiver<F>),
    /// ART with locks.
    Art(Art<F>),
    /// SMART.
    Smart(Smart<F>),
    /// Sherman.
    Sherman(Sherman<F>),
    /// CHIME.
    Chime(Chime<F>),
}

impl SubjectOptions {
    fn dart(self) -> DartOptions {
        DartOptions { holes: self.holes, ..DartOptions::default() }
    }
}

impl<F: Fabric> OrderedIndex<F> for Subject<F> {
    const NAME: &'static str = "any";

    type Options = SubjectOptions;

    async fn open(client: &mut Client<F>, options: SubjectOptions) -> Result<Self> {
        Ok(match options.kind {
            SubjectKind::Dart => Self::Dart(Dart::open(client, options.dart()).await?),
            SubjectKind::Quiver => Self::Quiver(Quiver::open(client, QuiverOptions::default()).await?),
            SubjectKind::Art => Self::Art(Art::open(client, ArtOptions::default()).await?),
            SubjectKind::Smart => Self::Smart(Smart::open(client, SmartOptions::lock_free()).await?),
            SubjectKind::Sherman => Self::Sherman(Sherman::open(client, ShermanOptions::default()).await?),
            SubjectKind::Chime => Self::Chime(Chime::open(client, ChimeOptions::default()).await?),
        })
    }

    async fn create(client: &mut Client<F>, options: SubjectOptions) -> Result<Self> {
        Ok(match options.kind {
            SubjectKind::Dart => Self::Dart(Dart::create(client, options.dart()).await?),
            SubjectKind::Quiver => Self::Quiver(Quiver::create(client, QuiverOptions::default()).await?),
            SubjectKind::Art => Self::Art(Art::create(client, ArtOptions::default()).await?),
            SubjectKind::Smart => Self::Smart(Smart::create(client, SmartOptions::lock_free()).await?),
            SubjectKind::Sherman => Self::Sherman(Sherman::create(client, ShermanOptions::default()).await?),
            SubjectKind::Chime => Self::Chime(Chime::create(client, ChimeOptions::default()).await?),
        })
    }

    delegate_to_variants!(F: (Dart, Quiver, Art, Smart, Sherman, Chime));
}
