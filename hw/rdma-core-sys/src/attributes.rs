//! Attributes of devices, ports and addresses.

use tagmatch_sys::{constants, structures};

structures! {
    ATTRIBUTES from "infiniband/verbs.h":

    /// a GID, as bytes or as its two big-endian halves.
    16 union ibv_gid {
        0 raw: [u8; 16],
        0 global: ibv_gid_global,
    }

    /// the halves of a GID, big-endian.
    16 struct ibv_gid_global {
        0 subnet_prefix: u64,
        8 interface_id: u64,
    }

    /// one row of a port's GID table.
    32 struct ibv_gid_entry {
        0 gid: ibv_gid,
        16 gid_index: u32,
        20 port_num: u32,
        24 gid_type: u32,
        28 ndev_ifindex: u32,
    }

    /// a device's attributes. Both GUIDs are big-endian.
    232 struct ibv_device_attr {
        0 fw_ver: [libc::c_char; 64],
        64 node_guid: u64,
        72 sys_image_guid: u64,
        80 max_mr_size: u64,
        88 page_size_cap: u64,
        96 vendor_id: u32,
        100 vendor_part_id: u32,
        104 hw_ver: u32,
        108 max_qp: i32,
        112 max_qp_wr: i32,
        116 device_cap_flags: u32,
        120 max_sge: i32,
        124 max_sge_rd: i32,
        128 max_cq: i32,
        132 max_cqe: i32,
        136 max_mr: i32,
        140 max_pd: i32,
        144 max_qp_rd_atom: i32,
        148 max_ee_rd_atom: i32,
        152 max_res_rd_atom: i32,
        156 max_qp_init_rd_atom: i32,
        160 max_ee_init_rd_atom: i32,
        164 atomic_cap: u32,
        168 max_ee: i32,
        172 max_rdd: i32,
        176 max_mw: i32,
        180 max_raw_ipv6_qp: i32,
        184 max_raw_ethy_qp: i32,
        188 max_mcast_grp: i32,
        192 max_mcast_qp_attach: i32,
        196 max_total_mcast_qp_attach: i32,
        200 max_ah: i32,
        204 max_fmr: i32,
        208 max_map_per_fmr: i32,
        212 max_srq: i32,
        216 max_srq_wr: i32,
        220 max_srq_sge: i32,
        224 max_pkeys: u16,
        226 local_ca_ack_delay: u8,
        227 phys_port_cnt: u8,
    }

    /// room for later extensions of the query; zero.
    4 struct ibv_query_device_ex_input {
        0 comp_mask: u32,
    }

    /// the limits of a NIC's tag matching; all zero if the NIC has none.
    20 struct ibv_tm_caps {
        0 max_rndv_hdr_size: u32,
        4 max_num_tags: u32,
        8 flags: u32,
        12 max_ops: u32,
        16 max_sge: u32,
    }

    /// a device's attributes, as the extended query returns them. What nothing here asks for is
    /// only so long as the header's structure.
    400 struct ibv_device_attr_ex {
        0 orig_attr: ibv_device_attr,
        232 comp_mask: u32,
        240 odp_caps: [u64; 3],
        264 completion_timestamp_mask: u64,
        272 hca_core_clock: u64,
        280 device_cap_flags_ex: u64,
        288 tso_caps: [u32; 2],
        296 rss_caps: [u64; 4],
        328 max_wq_type_rq: u32,
        332 packet_pacing_caps: [u32; 3],
        344 raw_packet_caps: u32,
        348 tm_caps: ibv_tm_caps,
        368 cq_mod_caps: [u16; 2],
        376 max_dm_size: u64,
        384 pci_atomic_caps: [u16; 3],
        392 xrc_odp_caps: u32,
        396 phys_port_cnt_ex: u32,
    }

    /// a port's attributes.
    52 struct ibv_port_attr {
        0 state: ibv_port_state,
        4 max_mtu: ibv_mtu,
        8 active_mtu: ibv_mtu,
        12 gid_tbl_len: i32,
        16 port_cap_flags: u32,
        20 max_msg_sz: u32,
        24 bad_pkey_cntr: u32,
        28 qkey_viol_cntr: u32,
        32 pkey_tbl_len: u16,
        34 lid: u16,
        36 sm_lid: u16,
        38 lmc: u8,
        39 max_vl_num: u8,
        40 sm_sl: u8,
        41 subnet_timeout: u8,
        42 init_type_reply: u8,
        43 active_width: u8,
        44 active_speed: u8,
        45 phys_state: u8,
        46 link_layer: u8,
        47 flags: u8,
        48 port_cap_flags2: u16,
    }

    /// the global part of an address (the GRH's fields).
    24 struct ibv_global_route {
        0 dgid: ibv_gid,
        16 flow_label: u32,
        20 sgid_index: u8,
        21 hop_limit: u8,
        22 traffic_class: u8,
    }

    /// an address.
    32 struct ibv_ah_attr {
        0 grh: ibv_global_route,
        24 dlid: u16,
        26 sl: u8,
        27 src_path_bits: u8,
        28 static_rate: u8,
        29 is_global: u8,
        30 port_num: u8,
    }
}

constants! {
    VALUES_OF_ATTRIBUTES as u64, from "infiniband/verbs.h":

    /// the kinds of GIDs.
    ibv_gid_type: u32 {
        IBV_GID_TYPE_IB = 0,
        IBV_GID_TYPE_ROCE_V1 = 1,
        IBV_GID_TYPE_ROCE_V2 = 2,
    }

    /// the most bytes that a path carries in a packet.
    ibv_mtu: u32 {
        IBV_MTU_256 = 1,
        IBV_MTU_1024 = 3,
        IBV_MTU_4096 = 5,
    }

    /// the states of a port.
    ibv_port_state: u32 {
        IBV_PORT_DOWN = 1,
        IBV_PORT_ACTIVE = 4,
    }

    /// the kinds of a port's link. In the header, this enumeration has no name.
    ibv_link_layer: u8 {
        IBV_LINK_LAYER_UNSPECIFIED = 0,
        IBV_LINK_LAYER_INFINIBAND = 1,
        IBV_LINK_LAYER_ETHERNET = 2,
    }

    /// the transports of devices.
    ibv_transport_type: i32 {
        IBV_TRANSPORT_IWARP = 1,
    }

    /// bits of [`ibv_tm_caps`].
    ibv_tm_cap_flags: u32 {
        IBV_TM_CAP_RC = 1,
    }
}
