//! The C interface of [`darter`]: functions over its blocking calls. `darter.h` is made from these
//! sources; its beginning (`cbindgen.toml`) has the rules that all functions share.
//!
//! Every function runs in [`status::call`], which turns errors into codes and catches panics. All
//! pointers of callers are read and written by `arguments.rs`.

// Types and constants have their names in C.
#![allow(non_camel_case_types)]
// The contract of each pointer is in the comments of `darter.h`, in C's terms.
#![allow(clippy::missing_safety_doc, clippy::doc_markdown)]

// Public for the compiler, which sees no Rust code that uses them. Their order is that of the functions in the header.
pub mod arguments;
pub mod options;
pub mod status;

pub mod store;

pub mod many;
pub mod range;
pub mod transaction;

pub mod backup;
pub mod check;

use std::ffi::c_char;

/// Returns the version of the library, for example "0.1.0". The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn darter_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
