//! Options to open a store.

use crate::arguments::{array, bytes, text};
use crate::status::Failure;
use darter::{Store, StoreOptions, TcpOptions};
use std::ffi::{c_char, c_void};
use std::time::Duration;

/// Creates the pool if it does not exist, also on memory nodes. Without this flag a pool is created
/// if its name is `mem:`, or has `?size=` and the file is absent or empty.
pub const DARTER_CREATE: u32 = 1;
/// Fails if the pool does not exist.
pub const DARTER_EXISTING: u32 = 2;
/// Creates the pool, and fails if it exists already.
pub const DARTER_CREATE_NEW: u32 = 4;
/// Opens a snapshot of a pool file that no process has open, without writing to it.
pub const DARTER_READ_ONLY: u32 = 8;
/// Fails unless all acknowledged writes survive a power failure.
pub const DARTER_DURABLE: u32 = 16;
/// Accepts a copy of a pool file that was open when it was copied.
pub const DARTER_ACCEPT_COPY: u32 = 32;
/// Keeps the store out of its pool after the pool has ended this process's membership.
pub const DARTER_NO_REJOIN: u32 = 64;

const ALL_FLAGS: u32 = 127;

/// Options of `darter_open`. Set all bytes to 0 and `size` to `sizeof(darter_options)`; a field
/// that is 0 or NULL has its default.
#[repr(C)]
pub struct darter_options {
    /// `sizeof(darter_options)`.
    pub size: usize,
    /// DARTER_CREATE and others, combined by `|`.
    pub flags: u32,
    /// Milliseconds of silence after which other processes check whether this process is dead.
    /// Default: 5000.
    pub lease_ms: u32,
    /// Bytes of this process's memory that the index may use as its cache. Default: 1 MiB.
    pub cache_bytes: u64,
    /// Bytes of a new pool's blocks, a power of two from 256 KiB to 64 MiB; a value must fit in a
    /// block. Default: a 64th of the smallest memory node, from 2 to 16 MiB.
    pub block_bytes: u64,
    /// The only index to accept, and that of a new pool: "quiver" or "dart".
    pub index: *const c_char,
    /// The token for memory nodes, `token_length` bytes.
    pub token: *const c_void,
    /// Number of bytes of the token.
    pub token_length: usize,
    /// File of the certificates that sign those of memory nodes; switches TLS on.
    pub tls_ca: *const c_char,
    /// File of the certificate that this process presents to memory nodes; needs `tls_key`.
    pub tls_certificate: *const c_char,
    /// File of the private key of `tls_certificate`.
    pub tls_key: *const c_char,
}

/// Returns the options of a store; the defaults for NULL.
///
/// # Safety
/// `options` is NULL, or valid for as many bytes as its field `size` says, and so are its pointers.
pub(crate) unsafe fn read(options: *const darter_options) -> Result<StoreOptions, Failure> {
    // SAFETY: as promised to this function; `size` is the first field of every version.
    let Some(size) = (unsafe { options.cast::<usize>().as_ref() }) else { return Ok(Store::options()) };
    if *size != size_of::<darter_options>() {
        return Err(Failure::argument(format!(
            "options.size is {size}, not {}; set it to sizeof(darter_options), and compile with the header of this library",
            size_of::<darter_options>()
        )));
    }
    // SAFETY: the caller's options have the size that this version expects.
    let [options] = (unsafe { array("options", options, 1)? }) else { unreachable!("one element") };
    let has = |flag: u32| options.flags & flag != 0;
    if options.flags & !ALL_FLAGS != 0 {
        return Err(Failure::argument(format!("options.flags has unknown bits: {:#x}", options.flags)));
    }
    if (options.flags & (DARTER_CREATE | DARTER_EXISTING | DARTER_CREATE_NEW)).count_ones() > 1 {
        return Err(Failure::argument(
            "options.flags: only one of DARTER_CREATE, DARTER_EXISTING and DARTER_CREATE_NEW can be set",
        ));
    }
    let mut store = Store::options()
        .create_new(has(DARTER_CREATE_NEW))
        .read_only(has(DARTER_READ_ONLY))
        .durable(has(DARTER_DURABLE))
        .accept_copy(has(DARTER_ACCEPT_COPY))
        .rejoin(!has(DARTER_NO_REJOIN));
    if has(DARTER_CREATE) || has(DARTER_EXISTING) {
        store = store.create(has(DARTER_CREATE));
    }
    if options.lease_ms != 0 {
        store = store.lease(Duration::from_millis(options.lease_ms.into()));
    }
    if options.cache_bytes != 0 {
        store = store.cache_bytes(options.cache_bytes);
    }
    if options.block_bytes != 0 {
        store = store.block_bytes(options.block_bytes);
    }
    // SAFETY: the caller promises strings.
    if let Some(index) = unsafe { text("options.index", options.index)? } {
        store =
            store.index(index.parse().map_err(|error| Failure::argument(format!("options.index: {error}")))?);
    }
    // SAFETY: as promised to this function.
    Ok(store.tcp(unsafe { connection(options)? }))
}

/// Returns the options of connections to memory nodes.
///
/// # Safety
/// The pointers of `options` are NULL or valid.
unsafe fn connection(options: &darter_options) -> Result<TcpOptions, Failure> {
    // SAFETY: as promised to this function.
    let token = unsafe { bytes("options.token", options.token, options.token_length)? }.into();
    // SAFETY: as promised to this function.
    let files = unsafe {
        [
            text("options.tls_ca", options.tls_ca)?,
            text("options.tls_certificate", options.tls_certificate)?,
            text("options.tls_key", options.tls_key)?,
        ]
    };
    let mut tcp = TcpOptions { token, ..TcpOptions::default() };
    let identity = match files {
        [None, None, None] => return Ok(tcp),
        [Some(_), None, None] => None,
        [Some(_), Some(certificate), Some(key)] => Some((certificate, key)),
        _ => {
            return Err(Failure::argument(
                "options: tls_certificate and tls_key need each other and tls_ca; set all three or tls_ca alone",
            ));
        }
    };
    set_tls(&mut tcp, files[0].unwrap_or_default(), identity)?;
    Ok(tcp)
}

#[cfg(feature = "tls")]
fn set_tls(tcp: &mut TcpOptions, ca: &str, identity: Option<(&str, &str)>) -> Result<(), Failure> {
    let identity = identity.map(|(certificate, key)| darter::IdentityFiles {
        certificate: certificate.as_ref(),
        key: key.as_ref(),
    });
    let tls = darter::ClientTls::from_files(ca.as_ref(), identity);
    tcp.tls = Some(tls.map_err(|error| Failure::argument(error.to_string()))?);
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn set_tls(_: &mut TcpOptions, _: &str, _: Option<(&str, &str)>) -> Result<(), Failure> {
    Err(Failure::argument(
        "options.tls_ca: this library was built without TLS; build it with the feature `tls`",
    ))
}
