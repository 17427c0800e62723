//! The indexes that DART is compared with: [`Art`], [`Smart`], [`Sherman`], [`Chime`], [`Dex`],
//! [`XStore`] and [`Wort`], each as described in its paper, and the locks that they need.
//!
//! Each implements [`darter_index::OrderedIndex`], so one benchmark and one checker run them all.
//! ART and SMART use the same radix engine as DART ([`darter_index::radix`]). Unlike DART, these
//! indexes may block: a lock is remote memory that names its holder, and is taken over when the
//! holder can no longer write.

mod art;
mod chime;
mod compute_node;
mod dex;
mod hocl;
mod lock_token;
mod operation;
mod remote_lock;
mod sherman;
mod smart;
mod sync;
mod wort;
mod xstore;

#[doc(hidden)]
#[cfg(feature = "checker")]
pub use art::art_situations;
pub use art::{Art, ArtOptions};
#[doc(hidden)]
#[cfg(feature = "checker")]
pub use chime::chime_situations;
pub use chime::{Chime, ChimeOptions};
pub use dex::{Dex, DexOptions, DexService, DexValues, Offload};
pub use hocl::{HoclOptions, Unlock};
#[doc(hidden)]
#[cfg(feature = "checker")]
pub use sherman::sherman_situations;
pub use sherman::{Records, Sherman, ShermanOptions};
pub use smart::{Smart, SmartOptions};
#[doc(hidden)]
#[cfg(feature = "checker")]
pub use wort::wort_situations;
pub use wort::{Design, Line, Persistence, Touch, Wort, WortOptions};
pub use xstore::{XStore, XStoreOptions, XStoreService};
