//! Pool files: shared by mappings and processes, refused if they are not pools, locked by live
//! processes.

use darter_fabric::files::Sharing;
use darter_fabric::local::{FileOptions, Space};
use darter_fabric::{
    Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Local, Membership, SUPERBLOCK_MAGIC,
    SUPERBLOCK_NODE_BYTES_WORD, SUPERBLOCK_NODES_WORD, Suspect, block_on,
};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const NODE_BYTES: u64 = 64 << 10;

/// Options that replace existing contents.
fn overwrite() -> FileOptions {
    FileOptions { overwrite: true, space: Space::Sparse, ..FileOptions::default() }
}

/// Writes the words of the superblock that this crate reads.
fn write_superblock(pool: &Local) {
    let mut endpoint = pool.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let word = |index: usize| GlobalAddr::new(0, index as u64 * 8);
    batch.write(word(SUPERBLOCK_NODES_WORD), &[pool.nodes() as u64]);
    batch.write(word(SUPERBLOCK_NODE_BYTES_WORD), &[pool.node_bytes(0)]);
    batch.write(word(0), &[SUPERBLOCK_MAGIC]);
    block_on(endpoint.submit(batch)).unwrap();
}

fn create(path: &Path) -> Local {
    let pool = Local::file_create(path, NODE_BYTES, 3).unwrap();
    write_superblock(&pool);
    pool
}

fn word(pool: &Local, at: GlobalAddr) -> u64 {
    let mut endpoint = pool.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let id = batch.read(at, 1);
    block_on(endpoint.submit(batch)).unwrap().words(id)[0]
}

fn add(pool: &Local, at: GlobalAddr, addend: u64) {
    let mut endpoint = pool.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.faa(at, addend);
    block_on(endpoint.submit(batch)).unwrap();
}

/// Returns the message with which opening is refused, which must name the file.
fn refusal(path: &Path) -> String {
    match Local::file_open(path) {
        Err(FabricError::Geometry(message)) => {
            let message = message.to_string();
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            message
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_mappings_of_one_file_are_one_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let first = create(&path);
    let second = Local::file_open(&path).unwrap();
    assert_eq!((second.nodes(), second.node_bytes(2)), (3, NODE_BYTES));
    assert_eq!(second.path(), Some(path.as_path()));
    let at = GlobalAddr::new(2, NODE_BYTES - 8);
    let rounds = 20_000;
    std::thread::scope(|scope| {
        for pool in [&first, &second, &first, &second] {
            scope.spawn(move || {
                let mut endpoint = pool.endpoint().unwrap();
                for _ in 0..rounds {
                    let mut batch = endpoint.batch();
                    batch.faa(at, 1);
                    let done = block_on(endpoint.submit(batch)).unwrap();
                    endpoint.recycle(done);
                }
            });
        }
    });
    assert_eq!((word(&first, at), word(&second, at)), (4 * rounds, 4 * rounds));
    first.persist().unwrap();
    drop((first, second));
    let again = Local::file_open(&path).unwrap();
    assert_eq!(word(&again, at), 4 * rounds);
    assert!(again.capabilities().persistent);
    // The last word of the last region is the last of the file.
    let mut bytes = [0; 8];
    File::open(&path).unwrap().read_exact_at(&mut bytes, 3 * NODE_BYTES - 8).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 4 * rounds);
}

#[test]
fn an_endpoint_outlives_its_fabric() {
    let folder = tempfile::tempdir().unwrap();
    let pool = create(&folder.path().join("pool"));
    let mut endpoint = pool.endpoint().unwrap();
    drop(pool);
    let mut batch = endpoint.batch();
    let id = batch.read(GlobalAddr::NULL, 1);
    assert_eq!(block_on(endpoint.submit(batch)).unwrap().words(id), [SUPERBLOCK_MAGIC]);
}

#[test]
fn file_without_a_pool_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    assert!(matches!(Local::file_open(&path), Err(FabricError::Io(_))), "absent");
    assert!(!path.exists());
    assert!(refusal(folder.path()).contains("neither a plain file nor a DAX device"), "a folder");
    assert!(Local::file_open("/dev/null").unwrap_err().to_string().contains("device"));
    fs::write(&path, b"").unwrap();
    assert!(refusal(&path).contains("empty"));
    fs::write(&path, [7; 4095]).unwrap();
    assert!(refusal(&path).contains("too short"));
    fs::write(&path, [0; 8192]).unwrap();
    assert!(refusal(&path).contains("not finished"));
    fs::write(&path, [7; 8192]).unwrap();
    assert!(refusal(&path).contains("foreign"));
}

#[test]
fn a_damaged_geometry_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    drop(create(&path));
    let file = File::options().write(true).open(&path).unwrap();
    let put = |index: usize, value: u64| file.write_all_at(&value.to_le_bytes(), index as u64 * 8).unwrap();
    for nodes in [0, 257, u64::from(u32::MAX)] {
        put(SUPERBLOCK_NODES_WORD, nodes);
        assert!(refusal(&path).contains("superblock"), "{nodes}");
    }
    put(SUPERBLOCK_NODES_WORD, 3 | 1 << 32);
    assert!(refusal(&path).contains("another node"));
    put(SUPERBLOCK_NODES_WORD, 4);
    assert!(refusal(&path).contains("cut short"));
    put(SUPERBLOCK_NODES_WORD, 3);
    for bytes in [0, 8, 4097, u64::MAX, 1 << 63] {
        put(SUPERBLOCK_NODE_BYTES_WORD, bytes);
        assert!(refusal(&path).contains("superblock"), "{bytes}");
    }
    put(SUPERBLOCK_NODE_BYTES_WORD, 1 << 40);
    assert!(refusal(&path).contains("cut short"));
    put(SUPERBLOCK_NODE_BYTES_WORD, NODE_BYTES);
    Local::file_open(&path).unwrap();
    file.set_len(3 * NODE_BYTES - 1).unwrap();
    assert!(refusal(&path).contains("cut short"));
}

#[test]
fn contents_are_not_destroyed_without_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    fs::write(&path, b"a letter").unwrap();
    let error = Local::file_create(&path, NODE_BYTES, 1).unwrap_err();
    assert!(error.to_string().contains("has contents"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"a letter");
    // An impossible shape does no harm either, and leaves no file.
    assert!(Local::file_create_with(&path, 1, 1, &overwrite()).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"a letter");
    assert!(Local::file_create(folder.path().join("other"), 1, 1).is_err());
    assert!(!folder.path().join("other").exists());

    let pool = Local::file_create_with(&path, NODE_BYTES, 1, &overwrite()).unwrap();
    assert_eq!(word(&pool, GlobalAddr::NULL), 0);
    assert_eq!(fs::metadata(&path).unwrap().len(), NODE_BYTES);
    let error = Local::file_create_with(&path, NODE_BYTES, 1, &overwrite()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(pool);
    Local::file_create_with(&path, 2 * NODE_BYTES, 1, &overwrite()).unwrap();
}

#[test]
fn an_empty_file_may_become_a_pool() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let pool = Local::file_create(file.path(), NODE_BYTES, 1).unwrap();
    write_superblock(&pool);
    Local::file_open(file.path()).unwrap();
}

#[test]
fn space_can_be_reserved() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    for space in [Space::Reserved, Space::Preallocated] {
        let options = FileOptions { space, overwrite: true, ..FileOptions::default() };
        let pool = Local::file_create_with(&path, NODE_BYTES, 2, &options).unwrap();
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 2 * NODE_BYTES);
        drop(pool);
        // More than any disk here has: returns an error, and leaves no incomplete pool.
        let path = folder.path().join("huge");
        let error = Local::file_create_with(&path, 1 << 40, 64, &options).unwrap_err();
        assert!(matches!(error, FabricError::Io(_) | FabricError::DiskFull(_)), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
    assert_eq!(FileOptions::default().space, Space::Reserved);
}

/// A file system of four megabytes, mounted until dropped; `None`, with a message, if this process
/// may not mount.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
            .arg(folder.path())
            .output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        assert!(std::env::var_os("DARTER_TEST_ALL").is_none(), "a file system cannot be mounted here");
        eprintln!("skipped: a file system cannot be mounted here");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_disk_too_small_refuses_the_file_and_not_a_write() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.0.path().join("pool");
    let refused = [
        Local::file_create(&path, 4 << 20, 2).unwrap_err(),
        Local::file_region(&path, 8 << 20, Space::Reserved, &Sharing::default()).unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(&error, FabricError::DiskFull(what) if what.needed.0 == 8 << 20), "{error}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("8M"), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
    // Reserved space is available for every write, regardless of how full the disk gets.
    let pool = Local::file_create(&path, 3 << 20, 1).unwrap();
    let filler = fs::write(disk.0.path().join("filler"), vec![1; 4 << 20]);
    assert_eq!(filler.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let mut endpoint = pool.endpoint().unwrap();
    for page in 0..(3 << 20) / 4096 {
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(0, page * 4096), &[page]);
        darter_fabric::block_on(endpoint.submit(batch)).unwrap();
    }
}

#[test]
fn a_pool_larger_than_its_disk_is_remarked_upon() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = FileOptions { space: Space::Sparse, ..FileOptions::default() };
    let Ok(pool) = Local::file_create_with(folder.path().join("pool"), 1 << 40, 8, &sparse) else {
        return; // this file system has no sparse files of 8 TiB
    };
    assert!(pool.notes().iter().any(|note| note.contains("make room")), "{:?}", pool.notes());
    let small = Local::file_create(folder.path().join("small"), 4 << 20, 1).unwrap();
    assert!(!small.notes().iter().any(|note| note.contains("make room")), "{:?}", small.notes());
    assert!(small.notes().iter().any(|note| note.starts_with("huge pages")), "{:?}", small.notes());
}

#[test]
fn a_slot_of_a_file_has_one_holder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let first = create(&path);
    let second = Local::file_open(&path).unwrap();
    let held = first.claim(7).unwrap();
    for pool in [&first, &second] {
        assert!(matches!(pool.claim(7), Err(FabricError::IdentityTaken { slot: 7 })));
        assert_eq!(pool.fence(suspect(7)).unwrap(), FenceOutcome::Alive);
        assert_eq!(pool.fence(suspect(8)).unwrap(), FenceOutcome::Fenced);
        assert_eq!(pool.fence(suspect(u32::MAX)).unwrap(), FenceOutcome::Fenced);
    }
    let other = second.claim(u32::MAX).unwrap();
    assert_eq!(first.fence(suspect(u32::MAX)).unwrap(), FenceOutcome::Alive);
    // An identity needs neither the fabric nor the file's name.
    drop(first);
    fs::rename(&path, folder.path().join("moved")).unwrap();
    assert_eq!(second.fence(suspect(7)).unwrap(), FenceOutcome::Alive);
    drop((held, other));
    assert_eq!(second.fence(suspect(7)).unwrap(), FenceOutcome::Fenced);
    second.claim(7).unwrap();
}

/// Not a real test: the program of the child process in the next test.
#[test]
fn child_that_writes_until_killed() {
    let Ok(path) = std::env::var("DARTER_FABRIC_CHILD") else { return };
    let pool = Local::file_open(path).unwrap();
    let _held = pool.claim(1).unwrap();
    println!("\nready");
    std::io::stdout().flush().unwrap();
    for _ in 0..u64::MAX {
        add(&pool, GlobalAddr::new(1, 64), 1);
    }
}

#[test]
fn a_killed_process_is_known_to_be_dead_and_its_writes_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let pool = create(&path);
    let at = GlobalAddr::new(1, 64);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "files::child_that_writes_until_killed", "--nocapture"])
        .env("DARTER_FABRIC_CHILD", &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    assert_eq!(pool.fence(suspect(1)).unwrap(), FenceOutcome::Alive);
    assert!(pool.claim(1).is_err());
    while word(&pool, at) == 0 {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(pool.fence(suspect(1)).unwrap(), FenceOutcome::Fenced);
    let last = word(&pool, at);
    assert!(last > 0);
    let _held = pool.claim(1).unwrap();
    add(&pool, at, 1);
    assert_eq!(word(&pool, at), last + 1);
}

/// Any holder of the slot: the lock is sufficient to decide.
fn suspect(slot: u32) -> Suspect {
    Suspect { slot, holder: 0, lapsed: true }
}

/// For the virtual machine of `scripts/rdma-vm --memmap '256M!1G'`, whose persistent memory is
/// mounted with `-o dax`.
#[test]
#[ignore = "needs a DAX file system, whose directory the variable DARTER_DAX names"]
fn a_file_in_persistent_memory_is_flushed() {
    let folder = std::path::PathBuf::from(std::env::var_os("DARTER_DAX").unwrap());
    let path = folder.join("pool");
    let flushed = FileOptions { flush: true, overwrite: true, ..FileOptions::default() };
    let pool = Local::file_create_with(&path, NODE_BYTES, 3, &flushed).unwrap();
    write_superblock(&pool);
    assert_eq!(pool.capabilities().durability, darter_fabric::Durability::OnCompletion);
    let second = Local::file_open_flushed(&path).unwrap();
    let at = GlobalAddr::new(2, NODE_BYTES - 8);
    std::thread::scope(|scope| {
        for pool in [&pool, &second] {
            scope.spawn(move || (0..1000).for_each(|_| add(pool, at, 1)));
        }
    });
    assert_eq!((word(&pool, at), word(&second, at)), (2000, 2000));
    let refused = Local::file_open(&path).unwrap_err().to_string();
    assert!(refused.contains("`?durability=flush`"), "{refused}");
    drop((pool, second));
    assert_eq!(word(&Local::file_open_flushed(&path).unwrap(), at), 2000);
    std::fs::remove_file(&path).unwrap();
    // An ordinary file on the same machine.
    let elsewhere = tempfile::tempdir().unwrap();
    let refused =
        Local::file_create_with(elsewhere.path().join("pool"), NODE_BYTES, 1, &flushed).unwrap_err();
    assert!(refused.to_string().contains("--durability log"), "{refused}");
}
