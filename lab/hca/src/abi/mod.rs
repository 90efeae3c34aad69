//! The boundary between libibverbs and the kernel, as far as the device answers it: the ioctl
//! `RDMA_VERBS_IOCTL`, its attributes, and the structures of commands.
//!
//! Source: `rdma/rdma_user_ioctl_cmds.h`, `ib_user_ioctl_cmds.h`, `ib_user_verbs.h` and
//! `mlx5-abi.h` of the kernel's headers for programs.

mod core;
mod mlx5;

pub(crate) use self::core::*;
pub(crate) use self::mlx5::*;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The number of the one system call that the device answers: `_IOWR(0x1b, 1, 24 bytes)`.
pub(crate) const RDMA_VERBS_IOCTL: u32 = 0xc018_1b01;

/// `struct ib_uverbs_ioctl_hdr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) length: u16,
    pub(crate) object: u16,
    pub(crate) method: u16,
    pub(crate) attributes: u16,
    reserved1: u64,
    pub(crate) driver: u32,
    reserved2: u32,
}

/// `struct ib_uverbs_attr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Attribute {
    pub(crate) id: u16,
    pub(crate) length: u16,
    pub(crate) flags: u16,
    element: u16,
    /// A value, a handle, a descriptor, or the address of longer data.
    pub(crate) data: u64,
}

impl Attribute {
    /// Where the flags are in the structure.
    pub(crate) const FLAGS_AT: u64 = 4;
    /// Where the data is in the structure.
    pub(crate) const DATA_AT: u64 = 8;
    /// `UVERBS_ATTR_F_VALID_OUTPUT`.
    pub(crate) const VALID_OUTPUT: u16 = 2;
}

/// Attributes of a command; no command of the kernel has more.
pub(crate) const ATTRIBUTES_MAX: usize = 64;

/// `UVERBS_ATTR_UHW_IN`: the driver's own structure of a command.
pub(crate) const UHW_IN: u16 = 0x1000;
/// `UVERBS_ATTR_UHW_OUT`.
pub(crate) const UHW_OUT: u16 = 0x1001;

/// An object and a method of it, as one number.
pub(crate) const fn method(object: u16, method: u16) -> u32 {
    (object as u32) << 16 | method as u32
}

/// `UVERBS_OBJECT_DEVICE` with its methods.
pub(crate) mod device {
    pub(crate) const INVOKE_WRITE: u32 = super::method(0, 0);
    pub(crate) const QUERY_PORT: u32 = super::method(0, 2);
    pub(crate) const GET_CONTEXT: u32 = super::method(0, 3);
    pub(crate) const QUERY_GID_TABLE: u32 = super::method(0, 5);
    pub(crate) const QUERY_GID_ENTRY: u32 = super::method(0, 6);

    pub(crate) const CORE_IN: u16 = 0;
    pub(crate) const CORE_OUT: u16 = 1;
    pub(crate) const WRITE_CMD: u16 = 2;

    pub(crate) const PORT_NUM: u16 = 0;
    pub(crate) const PORT_RESP: u16 = 1;

    pub(crate) const NUM_COMP_VECTORS: u16 = 0;
    pub(crate) const CORE_SUPPORT: u16 = 1;

    pub(crate) const TABLE_ENTRY_SIZE: u16 = 0;
    pub(crate) const TABLE_ENTRIES: u16 = 2;
    pub(crate) const TABLE_COUNT: u16 = 3;

    pub(crate) const ENTRY_PORT: u16 = 0;
    pub(crate) const ENTRY_INDEX: u16 = 1;
    pub(crate) const ENTRY_RESP: u16 = 3;
}

/// `UVERBS_OBJECT_PD`.
pub(crate) mod pd {
    pub(crate) const DESTROY: u32 = super::method(1, 0);
    pub(crate) const HANDLE: u16 = 0;
}

/// `UVERBS_OBJECT_CQ`.
pub(crate) mod cq {
    pub(crate) const CREATE: u32 = super::method(3, 0);
    pub(crate) const DESTROY: u32 = super::method(3, 1);

    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const CQE: u16 = 1;
    pub(crate) const USER_HANDLE: u16 = 2;
    pub(crate) const CHANNEL: u16 = 3;
    pub(crate) const VECTOR: u16 = 4;
    pub(crate) const FLAGS: u16 = 5;
    pub(crate) const RESP_CQE: u16 = 6;

    pub(crate) const DESTROY_HANDLE: u16 = 0;
    pub(crate) const DESTROY_RESP: u16 = 1;
}

/// `UVERBS_OBJECT_QP`.
pub(crate) mod qp {
    pub(crate) const CREATE: u32 = super::method(4, 0);
    pub(crate) const DESTROY: u32 = super::method(4, 1);

    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const PD: u16 = 2;
    pub(crate) const SRQ: u16 = 3;
    pub(crate) const SEND_CQ: u16 = 4;
    pub(crate) const RECV_CQ: u16 = 5;
    pub(crate) const USER_HANDLE: u16 = 7;
    pub(crate) const CAP: u16 = 8;
    pub(crate) const TYPE: u16 = 9;
    pub(crate) const FLAGS: u16 = 10;
    pub(crate) const RESP_CAP: u16 = 13;
    pub(crate) const RESP_QP_NUM: u16 = 14;

    pub(crate) const DESTROY_HANDLE: u16 = 0;
    pub(crate) const DESTROY_RESP: u16 = 1;
}

/// `UVERBS_OBJECT_SRQ`.
pub(crate) mod srq {
    pub(crate) const CREATE: u32 = super::method(5, 0);
    pub(crate) const DESTROY: u32 = super::method(5, 1);

    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const PD: u16 = 1;
    pub(crate) const CQ: u16 = 3;
    pub(crate) const USER_HANDLE: u16 = 4;
    pub(crate) const MAX_WR: u16 = 5;
    pub(crate) const MAX_SGE: u16 = 6;
    #[cfg(test)]
    pub(crate) const LIMIT: u16 = 7;
    pub(crate) const MAX_NUM_TAGS: u16 = 8;
    pub(crate) const TYPE: u16 = 9;
    pub(crate) const RESP_MAX_WR: u16 = 11;
    pub(crate) const RESP_MAX_SGE: u16 = 12;

    pub(crate) const DESTROY_HANDLE: u16 = 0;
    pub(crate) const DESTROY_RESP: u16 = 1;
}

/// `UVERBS_OBJECT_AH`.
pub(crate) mod ah {
    pub(crate) const DESTROY: u32 = super::method(6, 0);
    pub(crate) const HANDLE: u16 = 0;
}

/// `UVERBS_OBJECT_MR`.
pub(crate) mod mr {
    pub(crate) const DESTROY: u32 = super::method(7, 1);
    pub(crate) const HANDLE: u16 = 0;
}

/// `UVERBS_OBJECT_ASYNC_EVENT`.
pub(crate) mod async_event {
    pub(crate) const ALLOC: u32 = super::method(16, 0);
    pub(crate) const FD_HANDLE: u16 = 0;
}

/// `MLX5_IB_OBJECT_UAR`.
pub(crate) mod uar {
    pub(crate) const ALLOC: u32 = super::method(0x1008, 0x1000);
    pub(crate) const DESTROY: u32 = super::method(0x1008, 0x1001);

    pub(crate) const HANDLE: u16 = 0x1000;
    pub(crate) const MMAP_OFFSET: u16 = 0x1002;
    pub(crate) const MMAP_LENGTH: u16 = 0x1003;
    pub(crate) const PAGE_ID: u16 = 0x1004;
    pub(crate) const DESTROY_HANDLE: u16 = 0x1000;
}

/// Commands of `INVOKE_WRITE`: `enum ib_uverbs_write_cmds`.
pub(crate) mod write_command {
    /// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
    pub(crate) const EXTENDED: u32 = 0x8000_0000;
    pub(crate) const QUERY_DEVICE: u32 = 1;
    pub(crate) const ALLOC_PD: u32 = 3;
    pub(crate) const CREATE_AH: u32 = 5;
    pub(crate) const DESTROY_AH: u32 = 8;
    pub(crate) const REG_MR: u32 = 9;
    pub(crate) const REREG_MR: u32 = 11;
    pub(crate) const CREATE_COMP_CHANNEL: u32 = 17;
    pub(crate) const RESIZE_CQ: u32 = 19;
    pub(crate) const QUERY_QP: u32 = 25;
    pub(crate) const MODIFY_QP: u32 = 26;
    pub(crate) const MODIFY_SRQ: u32 = 33;
    pub(crate) const QUERY_SRQ: u32 = 34;
}
