//! An open RDMA device: its port, its address on the network, and the memory registered with it.

use super::name::DeviceName;
use super::verbs::{self, IbvContext, IbvDeviceAttr, IbvGid, IbvMr, IbvPd, IbvPortAttr, Verbs};
use crate::{FabricError, Local};
use std::ffi::{CStr, c_int};
use std::io;
use std::net::Ipv6Addr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Vendor and part of the kernel's software device, Soft-RoCE.
const SOFT_ROCE: (u32, u32) = (0x00ff_ffff, 0);

/// The use of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Words of batches: only this process's queues access them.
    Buffers,
    /// A memory node's region: its clients' queues access it.
    Region,
}

/// An open device. All objects created from it keep it open.
pub(crate) struct Device {
    pub(super) verbs: &'static Verbs,
    pub(super) context: NonNull<IbvContext>,
    pub(super) pd: NonNull<IbvPd>,
    pub(super) limits: IbvDeviceAttr,
    pub(super) port: IbvPortAttr,
    pub(super) port_number: u8,
    pub(super) gid: IbvGid,
    pub(super) gid_index: u8,
    name: String,
}

// SAFETY: libibverbs's functions on a context and on objects created from it may be called from any
// thread; the fields do not change.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("port", &self.port_number)
            .finish_non_exhaustive()
    }
}

/// Returns the error of a call that returned an `errno`, or set it.
pub(super) fn failure(returned: c_int) -> io::Error {
    if returned > 0 { io::Error::from_raw_os_error(returned) } else { io::Error::last_os_error() }
}

/// Finds and opens a device by name.
fn open(verbs: &Verbs, name: &str) -> Result<NonNull<IbvContext>, String> {
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    let list = unsafe { (verbs.get_device_list)(&raw mut count) };
    if list.is_null() {
        return Err(format!("cannot list RDMA devices: {}", failure(0)));
    }
    let mut names = Vec::new();
    let mut context = Err(None);
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices, valid until it is freed.
        let device = unsafe { *list.add(at) };
        // SAFETY: as above; the name ends with a zero byte.
        let found = unsafe { CStr::from_ptr((verbs.get_device_name)(device)) }.to_string_lossy().into_owned();
        if found == name {
            // SAFETY: as above.
            context = NonNull::new(unsafe { (verbs.open_device)(device) }).ok_or_else(|| Some(failure(0)));
        }
        names.push(found);
    }
    // SAFETY: the list came from `get_device_list` and is no longer used.
    unsafe { (verbs.free_device_list)(list) };
    context.map_err(|error| match error {
        Some(error) => format!(
            "cannot open it: {error}; may this user open /dev/infiniband, and is the device's provider installed?"
        ),
        None if names.is_empty() => {
            "there is no RDMA device; load its driver, or `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev \
             eth0` for Soft-RoCE; then install ibverbs-providers"
                .to_owned()
        }
        None => format!("this device does not exist; there are {}", names.join(", ")),
    })
}

impl Device {
    /// Opens a device and one of its ports.
    ///
    /// # Errors
    /// [`FabricError::Geometry`]: the library, the device, the port or its address is missing or
    /// cannot be used; the message says what to do.
    pub(crate) fn open(name: &DeviceName) -> Result<Arc<Self>, FabricError> {
        let refused = |what: String| FabricError::geometry(format!("RDMA device {name}: {what}"));
        let verbs = verbs::verbs().map_err(refused)?;
        let context = open(verbs, &name.device).map_err(refused)?;
        // SAFETY: `context` is open.
        let pd = NonNull::new(unsafe { (verbs.alloc_pd)(context.as_ptr()) });
        let Some(pd) = pd else {
            let error = failure(0);
            // SAFETY: nothing was created from it.
            unsafe { (verbs.close_device)(context.as_ptr()) };
            return Err(refused(format!("cannot make a protection domain: {error}")));
        };
        let mut device = Self {
            verbs,
            context,
            pd,
            // SAFETY: numbers only, for which zero is valid.
            limits: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            port: unsafe { std::mem::zeroed() },
            port_number: name.port.unwrap_or(1),
            gid: IbvGid::default(),
            gid_index: 0,
            name: name.to_string(),
        };
        device.ask(name.gid).map_err(refused)?;
        Ok(Arc::new(device))
    }

    /// Queries its limits, its port's state and its address.
    fn ask(&mut self, gid: Option<u8>) -> Result<(), String> {
        let context = self.context.as_ptr();
        // SAFETY: `context` is open, and `limits` has the layout of the header.
        let returned = unsafe { (self.verbs.query_device)(context, &raw mut self.limits) };
        if returned != 0 {
            return Err(format!("cannot query its limits: {}", failure(returned)));
        }
        if self.limits.atomic_cap == verbs::ATOMICS_NONE {
            return Err("it has no atomic operations, which darter needs".to_owned());
        }
        if !(1..=self.limits.phys_port_cnt).contains(&self.port_number) {
            return Err(format!("it has ports 1 to {}", self.limits.phys_port_cnt));
        }
        // SAFETY: as above; the library fills the fields of its first version.
        let returned = unsafe { (self.verbs.query_port)(context, self.port_number, &raw mut self.port) };
        if returned != 0 {
            return Err(format!(
                "cannot query the state of port {}: {}",
                self.port_number,
                failure(returned)
            ));
        }
        if self.port.state != verbs::PORT_ACTIVE {
            return Err(format!("port {} is not active; is its link up (`rdma link`)?", self.port_number));
        }
        let entries = u8::try_from(self.port.gid_tbl_len).unwrap_or(u8::MAX);
        (self.gid_index, self.gid) = match gid {
            Some(index) if index >= entries => {
                return Err(format!("port {} has GIDs 0 to {}", self.port_number, i32::from(entries) - 1));
            }
            Some(index) => {
                let gid = self.gid_at(index).filter(|gid| *gid != Ipv6Addr::UNSPECIFIED);
                let gid = gid.ok_or_else(|| format!("GID {index} is empty; give it an IP address"))?;
                (index, IbvGid::of(gid.octets()))
            }
            None => {
                self.chosen_gid(entries).ok_or("no GID has an address; give its interface an IP address")?
            }
        };
        Ok(())
    }

    fn gid_at(&self, index: u8) -> Option<Ipv6Addr> {
        let mut gid = IbvGid::default();
        // SAFETY: the device is open, and `gid` outlives the call.
        let returned = unsafe {
            (self.verbs.query_gid)(self.context.as_ptr(), self.port_number, index.into(), &raw mut gid)
        };
        (returned == 0).then(|| Ipv6Addr::from(gid.bytes()))
    }

    /// Returns the first GID of RoCE version 2 that is an IPv4 address; otherwise the first of
    /// version 2; otherwise the first that is not empty.
    fn chosen_gid(&self, entries: u8) -> Option<(u8, IbvGid)> {
        let filled: Vec<(u8, Ipv6Addr)> = (0..entries)
            .filter_map(|index| Some((index, self.gid_at(index)?)))
            .filter(|(_, gid)| *gid != Ipv6Addr::UNSPECIFIED)
            .collect();
        let rank = |&&(index, gid): &&(u8, Ipv6Addr)| {
            let is_routed = self.gid_type(index).is_some_and(|kind| kind.trim() == "RoCE v2");
            (!is_routed, gid.to_ipv4_mapped().is_none())
        };
        filled.iter().min_by_key(rank).map(|&(index, gid)| (index, IbvGid::of(gid.octets())))
    }

    /// Returns the kind of a GID, as the kernel names it.
    fn gid_type(&self, index: u8) -> Option<String> {
        let device = self.name.split(':').next()?;
        let port = self.port_number;
        std::fs::read_to_string(format!(
            "/sys/class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}"
        ))
        .ok()
    }

    /// Registers memory, which stays allocated while the registration lives.
    ///
    /// # Errors
    /// Fails if the memory cannot be pinned.
    pub(crate) fn register(
        self: &Arc<Self>,
        memory: Local,
        what_for: Use,
    ) -> Result<Registration, FabricError> {
        let access = verbs::ACCESS_LOCAL_WRITE
            | match what_for {
                Use::Buffers => 0,
                Use::Region => {
                    verbs::ACCESS_REMOTE_READ | verbs::ACCESS_REMOTE_WRITE | verbs::ACCESS_REMOTE_ATOMIC
                }
            };
        let words = memory.words();
        let (base, bytes) = (words.as_ptr().cast_mut().cast(), size_of_val(words));
        // SAFETY: the domain is open, and the registration keeps the memory, which is only accessed
        // as atomics or lent to one batch at a time.
        let mr = unsafe { (self.verbs.reg_mr)(self.pd.as_ptr(), base, bytes, access) };
        let mr = NonNull::new(mr).ok_or_else(|| {
            FabricError::geometry(format!(
                "RDMA device {}: cannot pin {bytes} bytes of memory: {}; raise the limit of locked memory (`ulimit \
                 -l`, LimitMEMLOCK= of a systemd unit)",
                self.name,
                failure(0)
            ))
        })?;
        Ok(Registration { device: Arc::clone(self), mr, memory })
    }

    /// Returns whether requests with the fence flag may be lost: Soft-RoCE (observed on Linux 6.1)
    /// stops when it processes one while READs are outstanding, and nothing wakes it again.
    pub(super) fn forgets_fences(&self) -> bool {
        (self.limits.vendor_id, self.limits.vendor_part_id) == SOFT_ROCE
    }

    /// Returns the maximum number of bytes that one work request moves; whole words.
    pub(super) fn message_bytes_max(&self) -> usize {
        (self.port.max_msg_sz as usize).clamp(8, 1 << 30) / 8 * 8
    }

    /// Returns a description for an operator.
    pub(crate) fn describe(&self) -> String {
        let gid = Ipv6Addr::from(self.gid.bytes());
        let address = gid.to_ipv4_mapped().map_or_else(|| gid.to_string(), |ipv4| ipv4.to_string());
        format!(
            "RDMA device {}: port {}, GID {} ({address}), MTU {}",
            self.name,
            self.port_number,
            self.gid_index,
            128_u32 << self.port.active_mtu.min(5)
        )
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: objects created from it kept it alive, and are gone.
        unsafe {
            (self.verbs.dealloc_pd)(self.pd.as_ptr());
            (self.verbs.close_device)(self.context.as_ptr());
        }
    }
}

/// Memory that a device may read and write, until dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    device: Arc<Device>,
    mr: NonNull<IbvMr>,
    memory: Local,
}

// SAFETY: the library lets any thread deregister; nothing else changes.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Returns the memory's words.
    pub(super) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// Returns the address of the first byte.
    pub(super) fn base(&self) -> u64 {
        self.words().as_ptr().expose_provenance() as u64
    }

    /// Returns the key that this process's work requests use for the memory.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: registered until dropped; the library does not change the field.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    /// Returns the key that other processes' work requests use for it.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.mr.as_ptr()).rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered by this device, and dropped once.
        unsafe { (self.device.verbs.dereg_mr)(self.mr.as_ptr()) };
    }
}
