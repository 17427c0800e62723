//! The binding to libibverbs: only the functions, structures and constants that the provider uses.
//! The library is opened at run time, so that a program that never names a device runs without it.
//!
//! Layouts follow `infiniband/verbs.h` of rdma-core, whose ABI (`IBVERBS_1.1`) is stable; a test
//! compares them with the header if it is installed. Functions return 0 or an `errno`, or a null
//! pointer with `errno` set, unless noted.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Declares structures of the library whose contents are not used here.
macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub(super) struct $name([u8; 0]);
    )*};
}

opaque!(IbvDevice, IbvPd);

/// The functions of a device that have no symbol, by their position in the table.
#[repr(C)]
pub(super) struct IbvContextOps {
    before_poll: [usize; 11],
    pub poll_cq: unsafe extern "C" fn(*mut IbvCq, c_int, *mut IbvWc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int,
    between: [usize; 12],
    pub post_send: unsafe extern "C" fn(*mut IbvQp, *mut IbvSendWr, *mut *mut IbvSendWr) -> c_int,
    after_post: [usize; 6],
}

#[repr(C)]
pub(super) struct IbvContext {
    device: *mut IbvDevice,
    pub ops: IbvContextOps,
    cmd_fd: c_int,
    pub async_fd: c_int,
}

#[repr(C)]
pub(super) struct IbvCompChannel {
    context: *mut IbvContext,
    pub fd: c_int,
    refcnt: c_int,
}

#[repr(C)]
pub(super) struct IbvCq {
    pub context: *mut IbvContext,
}

#[repr(C)]
pub(super) struct IbvQp {
    pub context: *mut IbvContext,
    qp_context: *mut c_void,
    pd: *mut IbvPd,
    send_cq: *mut IbvCq,
    recv_cq: *mut IbvCq,
    srq: *mut c_void,
    handle: u32,
    pub qp_num: u32,
}

#[repr(C)]
pub(super) struct IbvMr {
    context: *mut IbvContext,
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IbvGid(pub [u64; 2]);

impl IbvGid {
    /// Returns its bytes, in the order of the network.
    pub(super) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_ne_bytes());
        bytes
    }

    pub(super) fn of(bytes: [u8; 16]) -> Self {
        let (halves, _) = bytes.as_chunks::<8>();
        Self([u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])])
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IbvDeviceAttr {
    fw_ver: [u8; 64],
    node_guid: u64,
    sys_image_guid: u64,
    max_mr_size: u64,
    page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    hw_ver: u32,
    max_qp: c_int,
    pub max_qp_wr: c_int,
    device_cap_flags: c_uint,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    counts: [c_int; 14],
    max_pkeys: u16,
    local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IbvPortAttr {
    pub state: c_uint,
    max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    port_cap_flags: u32,
    pub max_msg_sz: u32,
    bad_pkey_cntr: u32,
    qkey_viol_cntr: u32,
    pkey_tbl_len: u16,
    pub lid: u16,
    sm_lid: u16,
    levels: [u8; 7],
    phys_state: u8,
    pub link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_field_names, reason = "the header's")]
pub(super) struct IbvQpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub(super) struct IbvQpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut IbvCq,
    pub recv_cq: *mut IbvCq,
    pub srq: *mut c_void,
    pub cap: IbvQpCap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IbvGlobalRoute {
    pub dgid: IbvGid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IbvAhAttr {
    pub grh: IbvGlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IbvQpAttr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: IbvQpCap,
    pub ah_attr: IbvAhAttr,
    pub alt_ah_attr: IbvAhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IbvSge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// The target of a work request: `remote_addr` and `rkey` of a READ or WRITE are in the first two
/// words; an atomic's operands are between its address and its key.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IbvWrTarget {
    pub remote_addr: u64,
    /// The key of a READ or WRITE (its low half); the word that an atomic compares with or adds.
    pub rkey_or_compare: u64,
    pub swap: u64,
    pub atomic_rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct IbvSendWr {
    pub wr_id: u64,
    pub next: *mut IbvSendWr,
    pub sg_list: *mut IbvSge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub wr: IbvWrTarget,
    pub qp_type: u64,
    pub bind_mw: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IbvWc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub(super) const ACCESS_REMOTE_READ: c_int = 1 << 2;
pub(super) const ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;

pub(super) const PORT_ACTIVE: c_uint = 4;
pub(super) const LINK_ETHERNET: u8 = 2;
pub(super) const ATOMICS_NONE: c_uint = 0;

pub(super) const QPT_RC: c_uint = 2;
pub(super) const QPS_INIT: c_uint = 1;
pub(super) const QPS_RTR: c_uint = 2;
pub(super) const QPS_RTS: c_uint = 3;

pub(super) const QP_STATE: c_int = 1;
pub(super) const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(super) const QP_PKEY_INDEX: c_int = 1 << 4;
pub(super) const QP_PORT: c_int = 1 << 5;
pub(super) const QP_AV: c_int = 1 << 7;
pub(super) const QP_PATH_MTU: c_int = 1 << 8;
pub(super) const QP_TIMEOUT: c_int = 1 << 9;
pub(super) const QP_RETRY_CNT: c_int = 1 << 10;
pub(super) const QP_RNR_RETRY: c_int = 1 << 11;
pub(super) const QP_RQ_PSN: c_int = 1 << 12;
pub(super) const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(super) const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(super) const QP_SQ_PSN: c_int = 1 << 16;
pub(super) const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(super) const QP_DEST_QPN: c_int = 1 << 20;

pub(super) const WR_RDMA_WRITE: c_uint = 0;
pub(super) const WR_RDMA_READ: c_uint = 4;
pub(super) const WR_ATOMIC_CMP_AND_SWP: c_uint = 5;
pub(super) const WR_ATOMIC_FETCH_AND_ADD: c_uint = 6;

pub(super) const SEND_FENCE: c_uint = 1;
pub(super) const SEND_SIGNALED: c_uint = 1 << 1;
pub(super) const SEND_INLINE: c_uint = 1 << 3;

pub(super) const WC_SUCCESS: c_uint = 0;

/// Declares the functions of the library, with the code that looks them up.
macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the opened library.
        #[derive(Clone, Copy)]
        pub(super) struct Verbs {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Verbs {
            fn found_in(library: *mut c_void) -> Result<Self, String> {
                $(
                    // SAFETY: `library` is an open library, and the name ends with a zero byte.
                    let symbol = unsafe { libc::dlsym(library, $symbol.as_ptr()) };
                    if symbol.is_null() {
                        return Err(format!("it lacks {}; is it older than rdma-core 17?", $symbol.to_string_lossy()));
                    }
                    // SAFETY: the type is that of the header for this name; the test of layouts
                    // compiles the same list against it.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(symbol)
                    };
                )*
                Ok(Self { $($name),* })
            }
        }
    };
}

functions! {
    get_device_list = c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut IbvDevice;
    free_device_list = c"ibv_free_device_list": fn(*mut *mut IbvDevice);
    get_device_name = c"ibv_get_device_name": fn(*mut IbvDevice) -> *const c_char;
    open_device = c"ibv_open_device": fn(*mut IbvDevice) -> *mut IbvContext;
    close_device = c"ibv_close_device": fn(*mut IbvContext) -> c_int;
    query_device = c"ibv_query_device": fn(*mut IbvContext, *mut IbvDeviceAttr) -> c_int;
    query_port = c"ibv_query_port": fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int;
    query_gid = c"ibv_query_gid": fn(*mut IbvContext, u8, c_int, *mut IbvGid) -> c_int;
    alloc_pd = c"ibv_alloc_pd": fn(*mut IbvContext) -> *mut IbvPd;
    dealloc_pd = c"ibv_dealloc_pd": fn(*mut IbvPd) -> c_int;
    reg_mr = c"ibv_reg_mr": fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr;
    dereg_mr = c"ibv_dereg_mr": fn(*mut IbvMr) -> c_int;
    create_comp_channel = c"ibv_create_comp_channel": fn(*mut IbvContext) -> *mut IbvCompChannel;
    destroy_comp_channel = c"ibv_destroy_comp_channel": fn(*mut IbvCompChannel) -> c_int;
    create_cq = c"ibv_create_cq": fn(*mut IbvContext, c_int, *mut c_void, *mut IbvCompChannel, c_int) -> *mut IbvCq;
    destroy_cq = c"ibv_destroy_cq": fn(*mut IbvCq) -> c_int;
    get_cq_event = c"ibv_get_cq_event": fn(*mut IbvCompChannel, *mut *mut IbvCq, *mut *mut c_void) -> c_int;
    ack_cq_events = c"ibv_ack_cq_events": fn(*mut IbvCq, c_uint);
    create_qp = c"ibv_create_qp": fn(*mut IbvPd, *mut IbvQpInitAttr) -> *mut IbvQp;
    modify_qp = c"ibv_modify_qp": fn(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int;
    destroy_qp = c"ibv_destroy_qp": fn(*mut IbvQp) -> c_int;
}

/// Names of the library; the one used by all distributions comes first.
const LIBRARY: &CStr = c"libibverbs.so.1";

/// Opens the library, once.
///
/// # Errors
/// Fails with a message that names the missing part and how to get it.
pub(super) fn verbs() -> Result<&'static Verbs, String> {
    static VERBS: OnceLock<Result<Verbs, String>> = OnceLock::new();
    let opened = VERBS.get_or_init(|| {
        // SAFETY: the name ends with a zero byte; the library's initializers do not access this
        // program's data.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            return Err(
                "libibverbs.so.1 is not installed; install rdma-core's library and its providers (Debian: \
                 `apt-get install libibverbs1 ibverbs-providers`)"
                    .to_owned(),
            );
        }
        Verbs::found_in(library).map_err(|what| format!("libibverbs.so.1 cannot be used: {what}"))
    });
    opened.as_ref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::mem::offset_of;
    use std::process::Command;

    /// Lists names of the header with the values that they have here.
    macro_rules! layouts {
        ($($kind:literal, $offset:expr);* $(;)?) => { [$(($kind, $offset as usize)),*] };
    }

    /// Compiles the header's layouts into a program and compares its output.
    #[test]
    fn layouts_are_those_of_the_header() {
        let here = layouts! {
            "sizeof(struct ibv_context_ops)", size_of::<IbvContextOps>();
            "offsetof(struct ibv_context_ops, poll_cq)", offset_of!(IbvContextOps, poll_cq);
            "offsetof(struct ibv_context_ops, req_notify_cq)", offset_of!(IbvContextOps, req_notify_cq);
            "offsetof(struct ibv_context_ops, post_send)", offset_of!(IbvContextOps, post_send);
            "offsetof(struct ibv_context, ops)", offset_of!(IbvContext, ops);
            "offsetof(struct ibv_context, async_fd)", offset_of!(IbvContext, async_fd);
            "offsetof(struct ibv_comp_channel, fd)", offset_of!(IbvCompChannel, fd);
            "offsetof(struct ibv_cq, context)", offset_of!(IbvCq, context);
            "offsetof(struct ibv_qp, context)", offset_of!(IbvQp, context);
            "offsetof(struct ibv_qp, qp_num)", offset_of!(IbvQp, qp_num);
            "offsetof(struct ibv_mr, lkey)", offset_of!(IbvMr, lkey);
            "offsetof(struct ibv_mr, rkey)", offset_of!(IbvMr, rkey);
            "sizeof(union ibv_gid)", size_of::<IbvGid>();
            "sizeof(struct ibv_device_attr)", size_of::<IbvDeviceAttr>();
            "offsetof(struct ibv_device_attr, vendor_id)", offset_of!(IbvDeviceAttr, vendor_id);
            "offsetof(struct ibv_device_attr, max_qp_wr)", offset_of!(IbvDeviceAttr, max_qp_wr);
            "offsetof(struct ibv_device_attr, max_cqe)", offset_of!(IbvDeviceAttr, max_cqe);
            "offsetof(struct ibv_device_attr, max_qp_rd_atom)", offset_of!(IbvDeviceAttr, max_qp_rd_atom);
            "offsetof(struct ibv_device_attr, max_qp_init_rd_atom)", offset_of!(IbvDeviceAttr, max_qp_init_rd_atom);
            "offsetof(struct ibv_device_attr, atomic_cap)", offset_of!(IbvDeviceAttr, atomic_cap);
            "offsetof(struct ibv_device_attr, phys_port_cnt)", offset_of!(IbvDeviceAttr, phys_port_cnt);
            "sizeof(struct ibv_port_attr)", size_of::<IbvPortAttr>();
            "offsetof(struct ibv_port_attr, active_mtu)", offset_of!(IbvPortAttr, active_mtu);
            "offsetof(struct ibv_port_attr, gid_tbl_len)", offset_of!(IbvPortAttr, gid_tbl_len);
            "offsetof(struct ibv_port_attr, max_msg_sz)", offset_of!(IbvPortAttr, max_msg_sz);
            "offsetof(struct ibv_port_attr, lid)", offset_of!(IbvPortAttr, lid);
            "offsetof(struct ibv_port_attr, link_layer)", offset_of!(IbvPortAttr, link_layer);
            "sizeof(struct ibv_qp_init_attr)", size_of::<IbvQpInitAttr>();
            "offsetof(struct ibv_qp_init_attr, cap)", offset_of!(IbvQpInitAttr, cap);
            "offsetof(struct ibv_qp_init_attr, qp_type)", offset_of!(IbvQpInitAttr, qp_type);
            "offsetof(struct ibv_qp_init_attr, sq_sig_all)", offset_of!(IbvQpInitAttr, sq_sig_all);
            "sizeof(struct ibv_qp_cap)", size_of::<IbvQpCap>();
            "sizeof(struct ibv_ah_attr)", size_of::<IbvAhAttr>();
            "offsetof(struct ibv_ah_attr, dlid)", offset_of!(IbvAhAttr, dlid);
            "offsetof(struct ibv_ah_attr, is_global)", offset_of!(IbvAhAttr, is_global);
            "offsetof(struct ibv_ah_attr, port_num)", offset_of!(IbvAhAttr, port_num);
            "offsetof(struct ibv_global_route, sgid_index)", offset_of!(IbvGlobalRoute, sgid_index);
            "offsetof(struct ibv_global_route, hop_limit)", offset_of!(IbvGlobalRoute, hop_limit);
            "sizeof(struct ibv_qp_attr)", size_of::<IbvQpAttr>();
            "offsetof(struct ibv_qp_attr, path_mtu)", offset_of!(IbvQpAttr, path_mtu);
            "offsetof(struct ibv_qp_attr, dest_qp_num)", offset_of!(IbvQpAttr, dest_qp_num);
            "offsetof(struct ibv_qp_attr, qp_access_flags)", offset_of!(IbvQpAttr, qp_access_flags);
            "offsetof(struct ibv_qp_attr, ah_attr)", offset_of!(IbvQpAttr, ah_attr);
            "offsetof(struct ibv_qp_attr, max_rd_atomic)", offset_of!(IbvQpAttr, max_rd_atomic);
            "offsetof(struct ibv_qp_attr, max_dest_rd_atomic)", offset_of!(IbvQpAttr, max_dest_rd_atomic);
            "offsetof(struct ibv_qp_attr, min_rnr_timer)", offset_of!(IbvQpAttr, min_rnr_timer);
            "offsetof(struct ibv_qp_attr, port_num)", offset_of!(IbvQpAttr, port_num);
            "offsetof(struct ibv_qp_attr, timeout)", offset_of!(IbvQpAttr, timeout);
            "offsetof(struct ibv_qp_attr, retry_cnt)", offset_of!(IbvQpAttr, retry_cnt);
            "offsetof(struct ibv_qp_attr, rnr_retry)", offset_of!(IbvQpAttr, rnr_retry);
            "sizeof(struct ibv_sge)", size_of::<IbvSge>();
            "sizeof(struct ibv_send_wr)", size_of::<IbvSendWr>();
            "offsetof(struct ibv_send_wr, sg_list)", offset_of!(IbvSendWr, sg_list);
            "offsetof(struct ibv_send_wr, opcode)", offset_of!(IbvSendWr, opcode);
            "offsetof(struct ibv_send_wr, send_flags)", offset_of!(IbvSendWr, send_flags);
            "offsetof(struct ibv_send_wr, wr.rdma.remote_addr)", offset_of!(IbvSendWr, wr.remote_addr);
            "offsetof(struct ibv_send_wr, wr.rdma.rkey)", offset_of!(IbvSendWr, wr.rkey_or_compare);
            "offsetof(struct ibv_send_wr, wr.atomic.compare_add)", offset_of!(IbvSendWr, wr.rkey_or_compare);
            "offsetof(struct ibv_send_wr, wr.atomic.swap)", offset_of!(IbvSendWr, wr.swap);
            "offsetof(struct ibv_send_wr, wr.atomic.rkey)", offset_of!(IbvSendWr, wr.atomic_rkey);
            "sizeof(struct ibv_wc)", size_of::<IbvWc>();
            "offsetof(struct ibv_wc, status)", offset_of!(IbvWc, status);
            "offsetof(struct ibv_wc, qp_num)", offset_of!(IbvWc, qp_num);
            "IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE;
            "IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_WRITE;
            "IBV_ACCESS_REMOTE_READ", ACCESS_REMOTE_READ;
            "IBV_ACCESS_REMOTE_ATOMIC", ACCESS_REMOTE_ATOMIC;
            "IBV_PORT_ACTIVE", PORT_ACTIVE;
            "IBV_LINK_LAYER_ETHERNET", LINK_ETHERNET;
            "IBV_ATOMIC_NONE", ATOMICS_NONE;
            "IBV_QPT_RC", QPT_RC;
            "IBV_QPS_INIT", QPS_INIT;
            "IBV_QPS_RTR", QPS_RTR;
            "IBV_QPS_RTS", QPS_RTS;
            "IBV_QP_STATE", QP_STATE;
            "IBV_QP_ACCESS_FLAGS", QP_ACCESS_FLAGS;
            "IBV_QP_PKEY_INDEX", QP_PKEY_INDEX;
            "IBV_QP_PORT", QP_PORT;
            "IBV_QP_AV", QP_AV;
            "IBV_QP_PATH_MTU", QP_PATH_MTU;
            "IBV_QP_TIMEOUT", QP_TIMEOUT;
            "IBV_QP_RETRY_CNT", QP_RETRY_CNT;
            "IBV_QP_RNR_RETRY", QP_RNR_RETRY;
            "IBV_QP_RQ_PSN", QP_RQ_PSN;
            "IBV_QP_MAX_QP_RD_ATOMIC", QP_MAX_QP_RD_ATOMIC;
            "IBV_QP_MIN_RNR_TIMER", QP_MIN_RNR_TIMER;
            "IBV_QP_SQ_PSN", QP_SQ_PSN;
            "IBV_QP_MAX_DEST_RD_ATOMIC", QP_MAX_DEST_RD_ATOMIC;
            "IBV_QP_DEST_QPN", QP_DEST_QPN;
            "IBV_WR_RDMA_WRITE", WR_RDMA_WRITE;
            "IBV_WR_RDMA_READ", WR_RDMA_READ;
            "IBV_WR_ATOMIC_CMP_AND_SWP", WR_ATOMIC_CMP_AND_SWP;
            "IBV_WR_ATOMIC_FETCH_AND_ADD", WR_ATOMIC_FETCH_AND_ADD;
            "IBV_SEND_FENCE", SEND_FENCE;
            "IBV_SEND_SIGNALED", SEND_SIGNALED;
            "IBV_SEND_INLINE", SEND_INLINE;
            "IBV_WC_SUCCESS", WC_SUCCESS;
        };
        if !std::path::Path::new("/usr/include/infiniband/verbs.h").exists() {
            println!("skipped: infiniband/verbs.h is not installed");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("layouts.c"), folder.path().join("layouts"));
        let mut lines = String::new();
        for (name, _) in &here {
            writeln!(lines, "printf(\"%zu\\n\", (size_t)({name}));").unwrap();
        }
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) {{\n{lines}return 0;\n}}\n"
        );
        std::fs::write(&source, text).unwrap();
        let compiled = Command::new("cc").arg("-o").arg(&program).arg(&source).status().unwrap();
        assert!(compiled.success());
        let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
        let theirs: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(theirs.len(), here.len());
        for ((name, mine), theirs) in here.iter().zip(theirs) {
            assert_eq!(*mine, theirs, "{name}");
        }
    }
}
