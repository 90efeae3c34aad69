//! Enumerations, limits and special values.

use std::ffi::{c_int, c_uint};

use tagmatch_sys::constants;

/// From `rdma/fi_domain.h`: a place of memory. Its values aren't declared here.
pub type fi_hmem_iface = c_uint;
/// From `rdma/fi_domain.h`: a collective operation. Its values aren't declared here.
pub type fi_collective_op = c_uint;

constants! {
    VALUES as i64, from "rdma/fabric.h":

    /// the longest name of an endpoint that programs make room for. A name of our own.
    fi_limits: usize {
        FI_NAME_MAX = 64,
    }

    /// special addresses. A name of our own.
    fi_special_addr: u64 {
        FI_ADDR_UNSPEC = u64::MAX,
        FI_ADDR_NOTAVAIL = u64::MAX,
    }

    /// counts of sending contexts with a meaning. A name of our own.
    fi_special_count: usize {
        FI_SHARED_CONTEXT = usize::MAX,
    }

    /// formats of addresses: `fi_info.addr_format`. A name of our own.
    fi_addr_format: u32 {
        FI_FORMAT_UNSPEC = 0,
        FI_SOCKADDR_IN = 2,
        FI_SOCKADDR_IN6 = 3,
        FI_ADDR_STR = 9,
    }

    /// types of address vectors.
    fi_av_type: c_uint {
        FI_AV_UNSPEC = 0,
        FI_AV_MAP = 1,
        FI_AV_TABLE = 2,
    }

    /// who makes progress.
    fi_progress: c_uint {
        FI_PROGRESS_AUTO = 1,
        FI_PROGRESS_MANUAL = 2,
    }

    /// what threads may call at the same time.
    fi_threading: c_uint {
        FI_THREAD_SAFE = 1,
        FI_THREAD_DOMAIN = 3,
        FI_THREAD_ENDPOINT = 5,
    }

    /// who keeps queues from overflowing.
    fi_resource_mgmt: c_uint {
        FI_RM_ENABLED = 2,
    }

    /// types of endpoints.
    fi_ep_type: c_uint {
        FI_EP_UNSPEC = 0,
        FI_EP_MSG = 1,
        FI_EP_DGRAM = 2,
        FI_EP_RDM = 3,
    }

    /// protocols: `fi_ep_attr.protocol`. A name of our own. A provider's own protocol has the
    /// highest bit.
    fi_protocol: u32 {
        FI_PROTO_UNSPEC = 0,
    }


    /// classes of objects: `fid.fclass`. A name of our own.
    fi_class: usize {
        FI_CLASS_FABRIC = 1,
        FI_CLASS_DOMAIN = 2,
        FI_CLASS_EP = 3,
        FI_CLASS_AV = 11,
        FI_CLASS_MR = 12,
        FI_CLASS_EQ = 13,
        FI_CLASS_CQ = 14,
        FI_CLASS_CNTR = 15,
    }

    /// commands of `fi_control(3)`. A name of our own.
    fi_command: c_int {
        FI_GETOPSFLAG = 2,
        FI_SETOPSFLAG = 3,
        FI_ALIAS = 4,
        FI_GETWAIT = 5,
        FI_ENABLE = 6,
        FI_GETWAITOBJ = 16,
        FI_GET_VAL = 17,
        FI_SET_VAL = 18,
    }
}

constants! {
    QUEUE_VALUES as i64, from "rdma/fi_eq.h":

    /// what a thread can wait on.
    fi_wait_obj: c_uint {
        FI_WAIT_NONE = 0,
        FI_WAIT_UNSPEC = 1,
        FI_WAIT_SET = 2,
        FI_WAIT_FD = 3,
        FI_WAIT_MUTEX_COND = 4,
        FI_WAIT_YIELD = 5,
        FI_WAIT_POLLFD = 6,
    }


    /// formats of completions.
    fi_cq_format: c_uint {
        FI_CQ_FORMAT_UNSPEC = 0,
        FI_CQ_FORMAT_CONTEXT = 1,
        FI_CQ_FORMAT_MSG = 2,
        FI_CQ_FORMAT_DATA = 3,
        FI_CQ_FORMAT_TAGGED = 4,
    }

    /// what `fi_cq_sread(3)` waits for.
    fi_cq_wait_cond: c_uint {
        FI_CQ_COND_NONE = 0,
        FI_CQ_COND_THRESHOLD = 1,
    }

    /// what a counter counts.
    fi_cntr_events: c_uint {
        FI_CNTR_EVENTS_COMP = 0,
    }
}

constants! {
    OPTIONS as i64, from "rdma/fi_endpoint.h":

    /// levels of the options of an endpoint. A name of our own.
    fi_opt_level: c_int {
        FI_OPT_ENDPOINT = 0,
    }

    /// options of an endpoint. A name of our own.
    fi_opt: c_int {
        FI_OPT_MIN_MULTI_RECV = 0,
    }
}

constants! {
    ELEMENT_VALUES as i64, from "rdma/fi_domain.h":

    /// types of elements.
    fi_datatype: c_uint {
        FI_INT8 = 0,
        FI_UINT8 = 1,
        FI_INT16 = 2,
        FI_UINT16 = 3,
        FI_INT32 = 4,
        FI_UINT32 = 5,
        FI_INT64 = 6,
        FI_UINT64 = 7,
        FI_FLOAT = 8,
        FI_DOUBLE = 9,
        FI_FLOAT_COMPLEX = 10,
        FI_DOUBLE_COMPLEX = 11,
        FI_LONG_DOUBLE = 12,
        FI_INT128 = 14,
        FI_UINT128 = 15,
    }

    /// atomic operations.
    fi_op: c_uint {
        FI_MIN = 0,
        FI_MAX = 1,
        FI_SUM = 2,
        FI_PROD = 3,
        FI_LOR = 4,
        FI_LAND = 5,
        FI_BOR = 6,
        FI_BAND = 7,
        FI_LXOR = 8,
        FI_BXOR = 9,
        FI_ATOMIC_READ = 10,
        FI_ATOMIC_WRITE = 11,
        FI_CSWAP = 12,
        FI_CSWAP_NE = 13,
        FI_CSWAP_LE = 14,
        FI_CSWAP_LT = 15,
        FI_CSWAP_GE = 16,
        FI_CSWAP_GT = 17,
        FI_MSWAP = 18,
    }
}
