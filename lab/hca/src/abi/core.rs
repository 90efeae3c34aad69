//! Structures of commands that all drivers share: `ib_user_verbs.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Structures that the two sides of the boundary exchange: native byte order, no padding.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }
    )*};
}
pub(super) use structures;

structures! {
    /// `struct ib_uverbs_query_device_resp`.
    DeviceAttributes {
        fw_ver: u64,
        node_guid: [u8; 8],
        sys_image_guid: [u8; 8],
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: u32,
        max_qp_wr: u32,
        device_cap_flags: u32,
        max_sge: u32,
        max_sge_rd: u32,
        max_cq: u32,
        max_cqe: u32,
        max_mr: u32,
        max_pd: u32,
        max_qp_rd_atom: u32,
        max_ee_rd_atom: u32,
        max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32,
        max_ee_init_rd_atom: u32,
        atomic_cap: u32,
        max_ee: u32,
        max_rdd: u32,
        max_mw: u32,
        max_raw_ipv6_qp: u32,
        max_raw_ethy_qp: u32,
        max_mcast_grp: u32,
        max_mcast_qp_attach: u32,
        max_total_mcast_qp_attach: u32,
        max_ah: u32,
        max_fmr: u32,
        max_map_per_fmr: u32,
        max_srq: u32,
        max_srq_wr: u32,
        max_srq_sge: u32,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
        reserved: [u8; 4],
    }

    /// `struct ib_uverbs_tm_caps`.
    TagCapabilities {
        max_rndv_hdr_size: u32,
        max_num_tags: u32,
        flags: u32,
        max_ops: u32,
        max_sge: u32,
        reserved: u32,
    }

    /// `struct ib_uverbs_ex_query_device_resp`.
    ExtendedDeviceAttributes {
        base: DeviceAttributes,
        comp_mask: u32,
        response_length: u32,
        odp_caps: [u32; 6],
        timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        rss_caps: [u32; 4],
        max_wq_type_rq: u32,
        raw_packet_caps: u32,
        tm_caps: TagCapabilities,
        cq_moderation_caps: [u32; 2],
        max_dm_size: u64,
        xrc_odp_caps: u32,
        reserved: u32,
    }

    /// `struct ib_uverbs_query_port_resp_ex`.
    PortAttributes {
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        gid_tbl_len: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        state: u8,
        max_mtu: u8,
        active_mtu: u8,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        reserved: u8,
        port_cap_flags2: u16,
        reserved2: [u8; 6],
    }

    /// `struct ib_uverbs_gid_entry`.
    GidEntry {
        gid: [u8; 16],
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        netdev_ifindex: u32,
    }

    /// `struct ib_uverbs_alloc_pd_resp`, `ib_uverbs_create_comp_channel_resp`: a handle or a
    /// descriptor.
    OneWord {
        value: u32,
    }

    /// `struct ib_uverbs_reg_mr`.
    RegisterMemory {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }

    /// `struct ib_uverbs_rereg_mr`.
    ReregisterMemory {
        response: u64,
        mr_handle: u32,
        flags: u32,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }

    /// `struct ib_uverbs_resize_cq`.
    ResizeCq {
        response: u64,
        cq_handle: u32,
        cqe: u32,
    }

    /// `struct ib_uverbs_reg_mr_resp`.
    RegisteredMemory {
        mr_handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// `struct ib_uverbs_qp_dest`.
    Destination {
        dgid: [u8; 16],
        flow_label: u32,
        dlid: u16,
        reserved: u16,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// `struct ib_uverbs_create_ah`, with its `struct ib_uverbs_ah_attr`.
    CreateAh {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        reserved: u32,
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved1: u8,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved2: u8,
    }

    /// `struct ib_uverbs_destroy_ah`.
    DestroyAh {
        ah_handle: u32,
    }

    /// `struct ib_uverbs_modify_qp`.
    ModifyQp {
        dest: Destination,
        alt_dest: Destination,
        qp_handle: u32,
        attr_mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        en_sqd_async_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 2],
    }

    /// `struct ib_uverbs_query_qp`.
    QueryQp {
        response: u64,
        qp_handle: u32,
        attr_mask: u32,
    }

    /// `struct ib_uverbs_query_qp_resp`.
    QpAttributes {
        dest: Destination,
        alt_dest: Destination,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        sq_sig_all: u8,
        reserved: [u8; 5],
    }

    /// `struct ib_uverbs_ex_modify_qp_resp`, `ib_uverbs_destroy_cq_resp`.
    TwoWords {
        first: u32,
        second: u32,
    }

    /// `struct ib_uverbs_modify_srq`.
    ModifySrq {
        srq_handle: u32,
        attr_mask: u32,
        max_wr: u32,
        srq_limit: u32,
    }

    /// `struct ib_uverbs_query_srq_resp`.
    SrqAttributes {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
        reserved: u32,
    }

    /// `struct ib_uverbs_qp_cap`.
    QpCapabilities {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    /// `struct ib_uverbs_async_event_desc`.
    AsyncEvent {
        element: u64,
        event_type: u32,
        reserved: u32,
    }
}

/// Bits of `device_cap_flags`: `enum ib_uverbs_device_cap_flags`.
pub(crate) const PORT_ACTIVE_EVENT: u32 = 1 << 10;
pub(crate) const SYS_IMAGE_GUID: u32 = 1 << 11;
pub(crate) const RC_RNR_NAK_GEN: u32 = 1 << 12;

/// Bits of `attr_mask` of `ibv_modify_qp(3)`: `enum ib_uverbs_qp_attr_mask`.
pub(crate) mod qp_mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const CUR_STATE: u32 = 1 << 1;
    pub(crate) const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub(crate) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const AV: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_CNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RQ_PSN: u32 = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(crate) const ALT_PATH: u32 = 1 << 14;
    pub(crate) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(crate) const PATH_MIG_STATE: u32 = 1 << 18;
    pub(crate) const DEST_QPN: u32 = 1 << 20;
}

/// Bits of `access` of `ibv_reg_mr(3)`.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 2;
    pub(crate) const REMOTE_READ: u32 = 4;
    pub(crate) const REMOTE_ATOMIC: u32 = 8;
    pub(crate) const MW_BIND: u32 = 16;
    /// `IB_UVERBS_ACCESS_RELAXED_ORDERING` and the other optional bits.
    pub(crate) const OPTIONAL: u32 = 0x3ff0_0000;
}

/// `enum ib_event_type`.
pub(crate) mod event {
    pub(crate) const CQ_ERR: u32 = 0;
    pub(crate) const QP_FATAL: u32 = 1;
    pub(crate) const QP_REQ_ERR: u32 = 2;
    pub(crate) const QP_ACCESS_ERR: u32 = 3;
    pub(crate) const SQ_DRAINED: u32 = 5;
    pub(crate) const DEVICE_FATAL: u32 = 8;
    pub(crate) const PORT_ACTIVE: u32 = 9;
    pub(crate) const PORT_ERR: u32 = 10;
    pub(crate) const LID_CHANGE: u32 = 11;
    pub(crate) const PKEY_CHANGE: u32 = 12;
    pub(crate) const SM_CHANGE: u32 = 13;
    pub(crate) const SRQ_ERR: u32 = 14;
    pub(crate) const SRQ_LIMIT_REACHED: u32 = 15;
    pub(crate) const QP_LAST_WQE_REACHED: u32 = 16;
    pub(crate) const CLIENT_REREGISTER: u32 = 17;
    pub(crate) const GID_CHANGE: u32 = 18;

    /// Events that are about a port.
    pub(crate) const OF_PORTS: [u32; 7] =
        [PORT_ACTIVE, PORT_ERR, LID_CHANGE, PKEY_CHANGE, SM_CHANGE, CLIENT_REREGISTER, GID_CHANGE];
}
