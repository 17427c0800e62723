//! SIGBUS: the kernel's signal for a page of a mapped file that is not available, because the file
//! was truncated, its disk is full or broken, or the memory itself is damaged.
//!
//! No load or store can report that, so a program can choose to end with a message
//! ([`exit_on_bus_error`]). Every mapping of a file is on a list that the signal's handler reads:
//! the list only grows, and a record on it is freed only if no handler runs. The handler takes no
//! lock and does not allocate.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};

/// The list of slots.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Number of handlers that have begun. A handler that has found a record never returns.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);
/// Set when a handler writes the message and ends the process; other handlers wait for that.
static ENDS: AtomicBool = AtomicBool::new(false);
/// The previous action on SIGBUS; null until [`exit_on_bus_error`].
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
/// A file system with fewer free bytes counts as full, if it cannot report where a file has holes.
const FULL_BYTES: u64 = 1 << 20;

/// A slot of the list.
#[derive(Debug)]
struct Slot {
    /// Null if it is free.
    record: AtomicPtr<Record>,
    next: *const Slot,
}

// SAFETY: `next` leads to another slot; slots are never freed.
unsafe impl Sync for Slot {}

/// A mapping of a file's first bytes.
struct Record {
    start: usize,
    bytes: usize,
    descriptor: RawFd,
    /// For a terminal: without control characters.
    name: String,
}

/// A file that is on the list until this is dropped, which must happen before it is unmapped.
#[derive(Debug)]
pub(super) struct Listed(&'static Slot);

/// Adds a mapping to the list. The file must stay open while the mapping is used.
pub(super) fn list(start: usize, bytes: usize, file: &File, path: &Path) -> Listed {
    static FREE: Mutex<()> = Mutex::new(());
    let name = path.display().to_string().replace(char::is_control, "?");
    let record = Box::into_raw(Box::new(Record { start, bytes, descriptor: file.as_raw_fd(), name }));
    // One thread at a time takes slots; handlers and `drop` do not need the lock.
    let _turn = FREE.lock();
    let mut at = SLOTS.load(SeqCst).cast_const();
    // SAFETY: slots are never freed.
    while let Some(slot) = unsafe { at.as_ref() } {
        if slot.record.compare_exchange(ptr::null_mut(), record, SeqCst, SeqCst).is_ok() {
            return Listed(slot);
        }
        at = slot.next;
    }
    let next = SLOTS.load(SeqCst).cast_const();
    let slot: &Slot = Box::leak(Box::new(Slot { record: AtomicPtr::new(record), next }));
    SLOTS.store(ptr::from_ref(slot).cast_mut(), SeqCst);
    Listed(slot)
}

impl Drop for Listed {
    fn drop(&mut self) {
        let record = self.0.record.swap(ptr::null_mut(), SeqCst);
        // A handler that begins later does not find it. A running one may, and ends the process.
        if HANDLERS.load(SeqCst) == 0 {
            // SAFETY: it came from a `Box` in `list`, and `swap` has given it to this call only.
            drop(unsafe { Box::from_raw(record) });
        }
    }
}

/// Makes this process end with exit code 1 and one line on stderr if a page of a mapped pool file,
/// or of the file or device of a memory node's region, is not available. The line names the file
/// and the cause, such as a truncation or a full file system. Without this call such an access ends
/// the process by SIGBUS, without a message.
///
/// For programs, in `main`: it installs a handler of SIGBUS for the whole process. A SIGBUS for
/// another cause has the same effect as before. Further calls do nothing.
///
/// # Errors
/// Fails if the system refuses to install the handler.
pub fn exit_on_bus_error() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut is_installed = INSTALLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *is_installed {
        return Ok(());
    }
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    // SAFETY: a plain struct of numbers, for which zero is valid.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both structs outlive the calls.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    BEFORE.store(Box::into_raw(Box::new(before)), SeqCst);
    // SAFETY: the handler calls only functions that a signal handler may call.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *is_installed = true;
    Ok(())
}

/// The handler. It ends the process, or passes the signal on.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    HANDLERS.fetch_add(1, SeqCst);
    // SAFETY: the kernel passes a valid pointer, whose address is set for the codes of faults.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Codes of signals that a process has sent are not positive.
    let is_fault = code > 0;
    match find(address) {
        Some(record) if is_fault => {
            if !ENDS.swap(true, SeqCst) {
                let cause = record.cause(code, address - record.start);
                say([b"darter: ", record.name.as_bytes(), b": ", cause.as_bytes(), b"\n"]);
                // SAFETY: ends the process without running any of its code.
                unsafe { libc::_exit(1) }
            }
            loop {
                // SAFETY: the call touches no memory.
                unsafe { libc::pause() };
            }
        }
        _ => {
            HANDLERS.fetch_sub(1, SeqCst);
            hand_on(signal, is_fault);
        }
    }
}

/// Restores the effect that the signal had before [`exit_on_bus_error`]. A fault occurs again,
/// since the access is repeated; a signal that was sent is sent once more.
fn hand_on(signal: libc::c_int, is_fault: bool) {
    let before = if is_fault { BEFORE.load(SeqCst).cast_const() } else { ptr::null() };
    // SAFETY: a plain struct of numbers, for which zero is valid: the default action.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let action = if before.is_null() { &raw const default } else { before };
    // SAFETY: `action` is `default`, or a struct that is never freed.
    unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
    if !is_fault {
        // SAFETY: the call touches no memory. The signal is delivered when the handler returns.
        unsafe { libc::raise(signal) };
    }
}

/// Returns the mapping that contains an address.
fn find(address: usize) -> Option<&'static Record> {
    let mut at = SLOTS.load(SeqCst).cast_const();
    // SAFETY: slots are never freed.
    while let Some(slot) = unsafe { at.as_ref() } {
        // SAFETY: `HANDLERS` was raised before, so a record that is found here is not freed.
        let record = unsafe { slot.record.load(SeqCst).as_ref() };
        if let Some(record) =
            record.filter(|record| (record.start..record.start + record.bytes).contains(&address))
        {
            return Some(record);
        }
        at = slot.next;
    }
    None
}

impl Record {
    /// Returns why the byte at this offset is not available. Calls only functions that a signal
    /// handler may call.
    fn cause(&self, code: libc::c_int, offset: usize) -> &'static str {
        if code == libc::BUS_MCEERR_AR || code == libc::BUS_MCEERR_AO {
            return "the memory that it lies in is damaged, as the hardware reports; restore it from a copy";
        }
        // SAFETY: plain structs of numbers, for which zero is valid.
        let (mut file, mut system): (libc::stat, libc::statfs) = unsafe { std::mem::zeroed() };
        // SAFETY: the structs outlive the calls.
        let is_known = unsafe {
            libc::fstat(self.descriptor, &raw mut file) == 0
                && libc::fstatfs(self.descriptor, &raw mut system) == 0
        };
        if !is_known || file.st_mode & libc::S_IFMT != libc::S_IFREG {
            return "the device no longer has all of its memory, or cannot read it; see the kernel's log";
        }
        let offset = libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
        if offset >= file.st_size {
            return "it was truncated while it was open; restore it from a copy";
        }
        // SAFETY: the call touches no memory. The position of the descriptor is not used.
        let data = unsafe { libc::lseek(self.descriptor, offset, libc::SEEK_DATA) };
        if data != offset || super::free_bytes(&system) < FULL_BYTES {
            return "no space left on the device for a part of it that was not in use yet; make room, and create \
                    pools without `sparse` to have their space reserved";
        }
        "it cannot be read or written: an input/output error; see the kernel's log"
    }
}

/// Writes one line to stderr; ignores errors.
fn say(parts: [&[u8]; 5]) {
    let parts =
        parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: each part outlives the call, which only reads it.
    unsafe { libc::writev(libc::STDERR_FILENO, parts.as_ptr(), 5) };
}

#[cfg(test)]
#[cfg(not(miri))] // Miri cannot map files
mod tests {
    use super::super::mapping::Mapping;
    use super::*;
    use std::os::unix::fs::FileExt;

    const BYTES: usize = 64 << 10;

    #[test]
    fn a_mapping_of_a_file_is_found_by_its_addresses_until_it_is_dropped() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64).unwrap();
        let name = |address| find(address).map(|record| record.name.clone());
        let maps = [Mapping::shared, Mapping::copy];
        for map in maps {
            let one = map(&file, Path::new("/tmp/a\nb"), BYTES).unwrap();
            let other = map(&file, Path::new("other"), 4096).unwrap();
            let (start, second) = (one.address(), other.address());
            assert_eq!(name(start).as_deref(), Some("/tmp/a?b"));
            assert_eq!(name(start + BYTES - 1).as_deref(), Some("/tmp/a?b"));
            assert_ne!(name(start + BYTES).as_deref(), Some("/tmp/a?b"));
            assert_eq!(name(second + 4095).as_deref(), Some("other"));
            drop(one);
            assert_eq!(name(start), None);
            assert_eq!(name(second).as_deref(), Some("other"));
        }
        let memory = Mapping::anonymous(BYTES).unwrap();
        assert_eq!(name(memory.address()), None);
    }

    #[test]
    fn the_cause_follows_from_the_file_and_the_code() {
        let cause = |file: &File, code, offset| {
            let record = Record { start: 0, bytes: BYTES, descriptor: file.as_raw_fd(), name: String::new() };
            record.cause(code, offset)
        };
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64 / 2).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        let fault = libc::BUS_ADRERR;
        assert!(cause(&file, fault, BYTES / 2).contains("was truncated"));
        assert!(cause(&file, fault, BYTES / 2 - 1).contains("no space left"));
        assert!(cause(&file, fault, 4095).contains("input/output error"));
        assert!(cause(&file, libc::BUS_MCEERR_AR, 0).contains("is damaged"));
        assert!(cause(&File::open("/dev/null").unwrap(), fault, 0).contains("the device"));
    }
}
