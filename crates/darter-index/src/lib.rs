//! How a key is found: ordered indexes over a pool, all behind one trait.
//!
//! The index code is generic over [`darter_fabric::Fabric`] and asks nowhere which provider it runs on. [`Dart`] is the main
//! index; [`OrderedIndex`] is the contract, so that other systems can stand beside it.

mod art;
mod compute_node;
mod dart;
mod error;
mod hocl;
mod ordered;
mod radix;
mod remote_lock;
mod sherman;
mod situations;
mod smart;
mod sweep;

#[doc(hidden)]
pub use art::art_situations;
pub use art::{Art, ArtOptions};
pub use dart::{AdjustReport, Census, Dart, DartOptions, SearchSamples, TreeView};
#[doc(hidden)]
pub use dart::{Hole, Holes, dart_situations};
pub use error::IndexError;
pub use hocl::{HoclOptions, Unlock};
pub use ordered::{
    CheckReport, Condition, Decision, EstStats, IndexStats, KEY_BYTES_MAX, KeyValue, NodeTypeStats,
    OrderedIndex, PutOutcome, ScanRange,
};
#[doc(hidden)]
pub use sherman::sherman_situations;
pub use sherman::{Records, Sherman, ShermanOptions};
#[doc(hidden)]
pub use situations::{Situation, note, take_situations, take_trail, trail_len, without_situations};
#[doc(hidden)]
pub use smart::SmartHoles;
pub use smart::{Smart, SmartOptions};
pub use sweep::Swept;
