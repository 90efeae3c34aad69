//! Bits: capabilities, modes, flags of operations, orders.

use std::ffi::c_int;

use tagmatch_sys::constants;

constants! {
    FLAGS as i64, from "rdma/fabric.h":

    /// capabilities, and flags of operations, queues and calls. A name of our own: in C, these are
    /// macros for `uint64_t`. One bit may have several names, for different calls.
    fi_flags: u64 {
        FI_MSG = 1 << 1,
        FI_RMA = 1 << 2,
        FI_TAGGED = 1 << 3,
        FI_ATOMIC = 1 << 4,
        FI_MULTICAST = 1 << 5,
        FI_READ = 1 << 8,
        FI_WRITE = 1 << 9,
        FI_RECV = 1 << 10,
        FI_SEND = 1 << 11,
        FI_TRANSMIT = FI_SEND,
        FI_REMOTE_READ = 1 << 12,
        FI_REMOTE_WRITE = 1 << 13,
        FI_MULTI_RECV = 1 << 16,
        FI_REMOTE_CQ_DATA = 1 << 17,
        FI_MORE = 1 << 18,
        FI_PEEK = 1 << 19,
        FI_TRIGGER = 1 << 20,
        FI_FENCE = 1 << 21,
        FI_COMPLETION = 1 << 24,
        FI_EVENT = FI_COMPLETION,
        FI_INJECT = 1 << 25,
        FI_INJECT_COMPLETE = 1 << 26,
        FI_TRANSMIT_COMPLETE = 1 << 27,
        FI_DELIVERY_COMPLETE = 1 << 28,
        FI_AFFINITY = 1 << 29,
        FI_COMMIT_COMPLETE = 1 << 30,
        FI_MATCH_COMPLETE = 1 << 31,
        FI_LOCAL_COMM = 1 << 51,
        FI_REMOTE_COMM = 1 << 52,
        FI_SHARED_AV = 1 << 53,
        FI_PROV_ATTR_ONLY = 1 << 54,
        FI_NUMERICHOST = 1 << 55,
        FI_RMA_EVENT = 1 << 56,
        FI_SOURCE = 1 << 57,
        FI_NAMED_RX_CTX = 1 << 58,
        FI_DIRECTED_RECV = 1 << 59,
        FI_CLAIM = 1 << 59,
        FI_DISCARD = 1 << 58,
        FI_SELECTIVE_COMPLETION = 1 << 59,
    }

    /// what a provider wants of its user. A name of our own.
    fi_mode: u64 {
        FI_CONTEXT = 1 << 59,
        FI_ASYNC_IOV = 1 << 57,
        FI_CONTEXT2 = 1 << 52,
    }

    /// the orders that are kept between messages. A name of our own.
    fi_order: u64 {
        FI_ORDER_RAR = 1 << 0,
        FI_ORDER_SAW = 1 << 7,
        FI_ORDER_SAS = 1 << 8,
        FI_ORDER_STRICT = 0x1ff,
        FI_ORDER_RMA_RAW = 1 << 33,
        FI_ORDER_RMA_WAR = 1 << 34,
        FI_ORDER_RMA_WAW = 1 << 35,
        FI_ORDER_ATOMIC_RAR = 1 << 36,
        FI_ORDER_ATOMIC_RAW = 1 << 37,
        FI_ORDER_ATOMIC_WAR = 1 << 38,
        FI_ORDER_ATOMIC_WAW = 1 << 39,
    }

    /// the ways in which memory is registered. A name of our own; the first three are an `enum` in
    /// version 1.17.
    fi_mr_mode_bits: c_int {
        FI_MR_BASIC = 1 << 0,
        FI_MR_SCALABLE = 1 << 1,
        FI_MR_LOCAL = 1 << 2,
        FI_MR_VIRT_ADDR = 1 << 4,
        FI_MR_ALLOCATED = 1 << 5,
        FI_MR_PROV_KEY = 1 << 6,
        FI_MR_RMA_EVENT = 1 << 8,
        FI_MR_ENDPOINT = 1 << 9,
    }
}

constants! {
    AV_FLAGS as i64, from "rdma/fi_domain.h":

    /// flags of address vectors. A name of our own.
    fi_av_flags: u64 {
        FI_SYMMETRIC = 1 << 59,
        FI_SYNC_ERR = 1 << 58,
    }
}

constants! {
    ATOMIC_FLAGS as i64, from "rdma/fi_atomic.h":

    /// flags of `fi_query_atomic`. A name of our own.
    fi_atomic_flags: u64 {
        FI_FETCH_ATOMIC = 1 << 58,
        FI_COMPARE_ATOMIC = 1 << 59,
    }
}
