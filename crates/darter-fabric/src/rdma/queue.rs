//! Queue pairs and completion queues: creation, connection, posting and polling.

use super::device::{Device, failure};
use super::verbs::{
    self, IbvAhAttr, IbvCompChannel, IbvCq, IbvGid, IbvGlobalRoute, IbvQp, IbvQpAttr, IbvQpCap,
    IbvQpInitAttr, IbvSendWr, IbvWc, IbvWrTarget,
};
use crate::wire::Pairing;
use crate::{FabricError, NODES_MAX, VerbKind, random_word};
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Entries of a completion queue, if the device supports this number: room for every work request
/// of all memory nodes, since each of them completes when its queue fails.
const COMPLETIONS_MAX: c_int = 32 << 10;
/// Completions fetched in one call.
pub(super) const POLL_MAX: c_int = 32;
/// Bytes of a WRITE that are sent inside its work request, if the device supports this number.
const INLINE_BYTES: u32 = 220;
/// 4 µs times two to the power of this: how long a queue waits for an acknowledgement, 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// Retries before a queue fails. 7 would mean infinite retries on some devices.
const RETRIES: u8 = 5;
/// Maximum number of routers between two nodes.
const HOPS: u8 = 64;
const PSN_MASK: u32 = 0x00ff_ffff;

/// A queue of completions, with a descriptor that becomes readable after it is armed and something
/// has completed.
pub(crate) struct CompletionQueue {
    pub(super) device: Arc<Device>,
    cq: NonNull<IbvCq>,
    channel: NonNull<IbvCompChannel>,
    /// Work requests that one queue pair may have outstanding.
    depth: u32,
}

// SAFETY: the library locks the queue; no field changes.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueue").field("device", &self.device).finish_non_exhaustive()
    }
}

impl CompletionQueue {
    /// Creates a queue for the completions of a queue pair to each memory node.
    ///
    /// # Errors
    /// Fails if the device or the system has no room for one.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self, FabricError> {
        let refused = |what, error: io::Error| {
            FabricError::geometry(format!("{}: cannot make {what}: {error}", device.describe()))
        };
        let (verbs, context) = (device.verbs, device.context.as_ptr());
        // SAFETY: the device is open.
        let channel = NonNull::new(unsafe { (verbs.create_comp_channel)(context) })
            .ok_or_else(|| refused("a completion channel", failure(0)))?;
        let entries = device.limits.max_cqe.clamp(1, COMPLETIONS_MAX);
        // SAFETY: as above, and the channel is of the same device.
        let cq = unsafe { (verbs.create_cq)(context, entries, ptr::null_mut(), channel.as_ptr(), 0) };
        let Some(cq) = NonNull::new(cq) else {
            let error = failure(0);
            // SAFETY: no queue uses it.
            unsafe { (verbs.destroy_comp_channel)(channel.as_ptr()) };
            return Err(refused("a completion queue", error));
        };
        let depth = (entries as u32 / NODES_MAX as u32).clamp(8, device.limits.max_qp_wr.max(8) as u32);
        let queue = Self { device: Arc::clone(device), cq, channel, depth };
        rustix::io::ioctl_fionbio(queue.readable(), true)
            .map_err(|error| refused("a completion channel", error.into()))?;
        Ok(queue)
    }

    /// Returns a descriptor that is readable when something has completed since it was armed.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel and its descriptor live as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Makes the next completion set the descriptor readable. Earlier completions do not: poll
    /// again.
    pub(crate) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue is live, and its context's table of functions is filled.
        let returned = unsafe {
            let cq = self.cq.as_ptr();
            ((*(*cq).context).ops.req_notify_cq)(cq, 0)
        };
        if returned == 0 { Ok(()) } else { Err(failure(returned)) }
    }

    /// Makes the descriptor unreadable, if it is readable; returns whether it was.
    pub(crate) fn quiet(&self) -> bool {
        let (mut cq, mut context, mut events) = (ptr::null_mut(), ptr::null_mut(), 0);
        // SAFETY: the channel is live, and both places outlive the calls.
        while unsafe {
            (self.device.verbs.get_cq_event)(self.channel.as_ptr(), &raw mut cq, &raw mut context)
        } == 0
        {
            events += 1;
        }
        if events > 0 {
            // SAFETY: this number of events of this queue were taken.
            unsafe { (self.device.verbs.ack_cq_events)(self.cq.as_ptr(), events) };
        }
        events > 0
    }

    /// Fetches completions and returns their number.
    ///
    /// # Errors
    /// Fails if the queue is broken: the device was removed, or the queue was overrun.
    #[inline]
    pub(super) fn poll(&self, completions: &mut [IbvWc; POLL_MAX as usize]) -> io::Result<usize> {
        // SAFETY: as for `arm`; the buffer has room for the requested number.
        let count = unsafe {
            let cq = self.cq.as_ptr();
            ((*(*cq).context).ops.poll_cq)(cq, POLL_MAX, completions.as_mut_ptr())
        };
        usize::try_from(count).map_err(|_| io::Error::other("the completion queue is broken"))
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.quiet();
        // SAFETY: queue pairs keep their completion queue alive, so none uses it.
        unsafe {
            (self.device.verbs.destroy_cq)(self.cq.as_ptr());
            (self.device.verbs.destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

/// A reliable connected queue pair. After it is dropped, none of its verbs takes effect, at either
/// end.
pub(crate) struct Queue {
    completions: Arc<CompletionQueue>,
    qp: NonNull<IbvQp>,
    psn: u32,
    /// Work requests that may be outstanding.
    pub(super) depth: u32,
    pub(super) inline_bytes: usize,
}

// SAFETY: the library locks the queue pair.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("number", &self.number()).finish_non_exhaustive()
    }
}

impl Queue {
    /// Creates a queue pair whose completions go to a queue.
    ///
    /// # Errors
    /// Fails if the device has no room for one.
    pub(crate) fn new(completions: &Arc<CompletionQueue>) -> Result<Self, FabricError> {
        let device = &completions.device;
        let made = |inline: u32| {
            let mut wanted = IbvQpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: completions.cq.as_ptr(),
                recv_cq: completions.cq.as_ptr(),
                srq: ptr::null_mut(),
                cap: IbvQpCap {
                    max_send_wr: completions.depth,
                    max_recv_wr: 1,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: verbs::QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: the domain and the completion queue are of the same open device.
            let qp = unsafe { (device.verbs.create_qp)(device.pd.as_ptr(), &raw mut wanted) };
            (NonNull::new(qp), wanted.cap)
        };
        let (qp, cap) = match made(INLINE_BYTES) {
            (None, _) => made(0),
            made => made,
        };
        let qp = qp.ok_or_else(|| {
            FabricError::geometry(format!("{}: cannot make a queue pair: {}", device.describe(), failure(0)))
        })?;
        Ok(Self {
            completions: Arc::clone(completions),
            qp,
            psn: random_word() as u32 & PSN_MASK,
            depth: completions.depth.min(cap.max_send_wr.max(1)),
            inline_bytes: cap.max_inline_data as usize,
        })
    }

    /// Returns its number, unique on the device.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: live until dropped; the library does not change the field.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    pub(super) fn device(&self) -> &Device {
        &self.completions.device
    }

    /// Returns the data that the other end needs.
    pub(crate) fn pairing(&self) -> Pairing {
        let device = self.device();
        let depth = |limit: c_int| u8::try_from(limit).unwrap_or(u8::MAX);
        Pairing {
            gid: device.gid.bytes(),
            queue: self.number(),
            psn: self.psn,
            lid: device.port.lid,
            mtu: device.port.active_mtu.clamp(1, 5) as u8,
            reads_made: depth(device.limits.max_qp_init_rd_atom),
            reads_served: depth(device.limits.max_qp_rd_atom),
            ..Pairing::default()
        }
    }

    /// Connects it to the other end, which must do the same.
    ///
    /// # Errors
    /// Fails if the two devices cannot reach each other, or the other end's numbers are invalid.
    pub(crate) fn connect(&self, theirs: &Pairing, serves: bool) -> Result<(), FabricError> {
        let device = self.device();
        let refused = |what: &str, error: io::Error| {
            FabricError::geometry(format!(
                "{}: cannot {what}: {error}; are both devices on the same network, with GIDs of the same kind?",
                device.describe()
            ))
        };
        if theirs.queue > PSN_MASK || theirs.psn > PSN_MASK || !(1..=5).contains(&theirs.mtu) {
            return Err(refused("pair with such a queue", io::ErrorKind::InvalidData.into()));
        }
        let ours = self.pairing();
        let access = verbs::ACCESS_REMOTE_READ | verbs::ACCESS_REMOTE_WRITE | verbs::ACCESS_REMOTE_ATOMIC;
        let mut attributes = IbvQpAttr {
            qp_state: verbs::QPS_INIT,
            port_num: device.port_number,
            qp_access_flags: if serves { access as u32 } else { 0 },
            ..IbvQpAttr::default()
        };
        let mask = verbs::QP_STATE | verbs::QP_PKEY_INDEX | verbs::QP_PORT | verbs::QP_ACCESS_FLAGS;
        self.modify(&mut attributes, mask).map_err(|error| refused("prepare a queue pair", error))?;
        let is_ethernet = device.port.link_layer == verbs::LINK_ETHERNET;
        let mut attributes = IbvQpAttr {
            qp_state: verbs::QPS_RTR,
            path_mtu: u32::from(theirs.mtu.min(ours.mtu)),
            dest_qp_num: theirs.queue,
            rq_psn: theirs.psn,
            max_dest_rd_atomic: ours.reads_served.min(theirs.reads_made).max(1),
            min_rnr_timer: 12,
            ah_attr: IbvAhAttr {
                grh: IbvGlobalRoute {
                    dgid: IbvGid::of(theirs.gid),
                    sgid_index: device.gid_index,
                    hop_limit: HOPS,
                    ..IbvGlobalRoute::default()
                },
                dlid: theirs.lid,
                is_global: is_ethernet.into(),
                port_num: device.port_number,
                ..IbvAhAttr::default()
            },
            ..IbvQpAttr::default()
        };
        let mask = verbs::QP_STATE
            | verbs::QP_AV
            | verbs::QP_PATH_MTU
            | verbs::QP_DEST_QPN
            | verbs::QP_RQ_PSN
            | verbs::QP_MAX_DEST_RD_ATOMIC
            | verbs::QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, mask).map_err(|error| refused("reach the other device", error))?;
        let mut attributes = IbvQpAttr {
            qp_state: verbs::QPS_RTS,
            sq_psn: self.psn,
            timeout: ACK_TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            max_rd_atomic: ours.reads_made.min(theirs.reads_served).max(1),
            ..IbvQpAttr::default()
        };
        let mask = verbs::QP_STATE
            | verbs::QP_SQ_PSN
            | verbs::QP_TIMEOUT
            | verbs::QP_RETRY_CNT
            | verbs::QP_RNR_RETRY
            | verbs::QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attributes, mask).map_err(|error| refused("let a queue pair send", error))
    }

    fn modify(&self, attributes: &mut IbvQpAttr, mask: c_int) -> io::Result<()> {
        // SAFETY: the queue pair is live, and `attributes` has the layout of the header.
        let returned = unsafe { (self.device().verbs.modify_qp)(self.qp.as_ptr(), attributes, mask) };
        if returned == 0 { Ok(()) } else { Err(failure(returned)) }
    }

    /// Returns the work request for a verb of `bytes` bytes on memory that the other end identifies
    /// by `remote_addr` and `rkey`, with an atomic's operands: the word to compare with or add, and
    /// the word to swap in. Its local memory must still be set.
    #[inline]
    pub(super) fn request(
        &self,
        kind: VerbKind,
        remote_addr: u64,
        rkey: u32,
        operands: [u64; 2],
        bytes: u32,
    ) -> IbvSendWr {
        let moved = IbvWrTarget { remote_addr, rkey_or_compare: rkey.into(), ..IbvWrTarget::default() };
        let [compare, swap] = operands;
        let atomic = IbvWrTarget { remote_addr, rkey_or_compare: compare, swap, atomic_rkey: rkey };
        let (opcode, wr) = match kind {
            VerbKind::Read => (verbs::WR_RDMA_READ, moved),
            VerbKind::Write => (verbs::WR_RDMA_WRITE, moved),
            VerbKind::Cas => (verbs::WR_ATOMIC_CMP_AND_SWP, atomic),
            VerbKind::Faa => (verbs::WR_ATOMIC_FETCH_AND_ADD, atomic),
        };
        let is_inline = kind == VerbKind::Write && bytes as usize <= self.inline_bytes;
        IbvSendWr {
            wr_id: 0,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 1,
            opcode,
            send_flags: if is_inline { verbs::SEND_INLINE } else { 0 },
            imm_data: 0,
            wr,
            qp_type: 0,
            bind_mw: [0; 6],
        }
    }

    /// Posts a chain of work requests.
    ///
    /// # Safety
    /// The memory that they name locally must stay allocated, and must not be accessed elsewhere,
    /// until the chain's last request has completed or the queue is dropped.
    ///
    /// # Errors
    /// Fails if the device refuses one; the requests before it may have been posted.
    #[inline]
    pub(super) unsafe fn post(&self, first: *mut IbvSendWr) -> io::Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live; the caller is responsible for the chain.
        let returned = unsafe {
            let qp = self.qp.as_ptr();
            ((*(*qp).context).ops.post_send)(qp, first, &raw mut bad)
        };
        if returned == 0 { Ok(()) } else { Err(failure(returned)) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: created by this device, and dropped once.
        unsafe { (self.completions.device.verbs.destroy_qp)(self.qp.as_ptr()) };
    }
}
