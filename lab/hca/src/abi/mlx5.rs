//! Structures of the mlx5 driver: `mlx5-abi.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::core::structures;

structures! {
    /// `struct mlx5_ib_alloc_ucontext_req_v2`.
    ContextRequest {
        total_num_bfregs: u32,
        num_low_latency_bfregs: u32,
        flags: u32,
        comp_mask: u32,
        max_cqe_version: u8,
        reserved0: u8,
        reserved1: u16,
        reserved2: u32,
        lib_caps: u64,
    }

    /// `struct mlx5_ib_alloc_ucontext_resp`.
    ContextResponse {
        qp_tab_size: u32,
        bf_reg_size: u32,
        tot_bfregs: u32,
        cache_line_size: u32,
        max_sq_desc_sz: u16,
        max_rq_desc_sz: u16,
        max_send_wqebb: u32,
        max_recv_wr: u32,
        max_srq_recv_wr: u32,
        num_ports: u16,
        flow_action_flags: u16,
        comp_mask: u32,
        response_length: u32,
        cqe_version: u8,
        cmds_supp_uhw: u8,
        eth_min_inline: u8,
        clock_info_versions: u8,
        hca_core_clock_offset: u64,
        log_uar_size: u32,
        num_uars_per_page: u32,
        num_dyn_bfregs: u32,
        dump_fill_mkey: u32,
    }

    /// `struct mlx5_ib_resize_cq`.
    ResizedCq {
        buf_addr: u64,
        cqe_size: u16,
        reserved0: u16,
        reserved1: u32,
    }

    /// `struct mlx5_ib_create_cq`.
    CreateCq {
        buf_addr: u64,
        db_addr: u64,
        cqe_size: u32,
        cqe_comp_en: u8,
        cqe_comp_res_format: u8,
        flags: u16,
        uar_page_index: u16,
        reserved0: u16,
        reserved1: u32,
    }

    /// `struct mlx5_ib_create_ah_resp`.
    CreatedAh {
        response_length: u32,
        dmac: [u8; 6],
        reserved: [u8; 6],
    }

    /// `struct mlx5_ib_create_srq`.
    CreateSrq {
        buf_addr: u64,
        db_addr: u64,
        flags: u32,
        reserved0: u32,
        uidx: u32,
        reserved1: u32,
    }

    /// `struct mlx5_ib_create_qp`.
    CreateQp {
        buf_addr: u64,
        db_addr: u64,
        sq_wqe_count: u32,
        rq_wqe_count: u32,
        rq_wqe_shift: u32,
        flags: u32,
        uidx: u32,
        bfreg_index: u32,
        sq_buf_addr: u64,
        ece_options: u32,
        dci_streams: [u8; 2],
        reserved: u16,
    }

    /// `struct mlx5_ib_create_qp_resp`.
    CreatedQp {
        bfreg_index: u32,
        ece_options: u32,
        comp_mask: u32,
        tirn: u32,
        tisn: u32,
        rqn: u32,
        sqn: u32,
        reserved1: u32,
        tir_icm_addr: u64,
    }
}

/// The names of devices without their numbers.
pub(crate) const DEVICE_PREFIX: &str = "mlx5_";
/// `MLX5_IB_ALLOC_UCTX_DEVX`.
pub(crate) const UCTX_DEVX: u32 = 1;
/// `MLX5_USER_CMDS_SUPP_UHW_CREATE_AH`.
pub(crate) const UHW_CREATE_AH: u8 = 2;
/// `MLX5_LIB_CAP_DYN_UAR`.
pub(crate) const LIB_CAP_DYN_UAR: u64 = 2;

/// Flags of [`CreateQp`].
pub(crate) mod qp_flags {
    pub(crate) const SCATTER_CQE: u32 = 1 << 1;
    pub(crate) const BFREG_INDEX: u32 = 1 << 3;
    pub(crate) const ALLOW_SCATTER_CQE: u32 = 1 << 8;
    pub(crate) const PACKET_BASED_CREDIT_MODE: u32 = 1 << 9;
    pub(crate) const UAR_PAGE_INDEX: u32 = 1 << 10;
}
