//! Types and constants of `pmix_common.h`, under their names in C. All versions of libpmix.so.2
//! share them; the layouts are those of PMIx versions 3 to 5.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int};

use tagmatch_sys::{Constant, Structure, constants, structures};

/// The size of a namespace in bytes, with its terminating zero.
pub(super) const NAMESPACE_BYTES: usize = 256;
/// The size of a key in bytes, with its terminating zero.
pub(super) const KEY_BYTES: usize = 512;

/// The key of the number of processes in a job.
pub(super) const PMIX_JOB_SIZE: &str = "pmix.job.size";
/// The key of the list of a job's processes on this machine.
pub(super) const PMIX_LOCAL_PEERS: &str = "pmix.lpeers";
/// The attribute of a fence that brings the values of all processes.
pub(super) const PMIX_COLLECT_DATA: &str = "pmix.collect";
/// The attribute of a call that doesn't ask the server for a value that isn't in this process.
pub(super) const PMIX_OPTIONAL: &str = "pmix.optional";
/// The attribute of a call that doesn't wait for a value that the server doesn't have.
pub(super) const PMIX_IMMEDIATE: &str = "pmix.immediate";

structures! {
    STRUCTURES from "pmix_common.h":

    /// a process, or a whole job.
    260 struct pmix_proc_t {
        0 nspace: [c_char; NAMESPACE_BYTES],
        256 rank: pmix_rank_t,
    }

    /// the union in `pmix_value_t`, which C leaves without a name. `envar` is its largest member;
    /// only its size is used.
    24 union pmix_value_data {
        0 flag: bool,
        0 uint32: u32,
        0 string: *mut c_char,
        0 envar: [usize; 3],
    }

    /// a value. `type_` tells which member of `data` is set.
    32 struct pmix_value_t {
        0 type_: pmix_data_type_t,
        8 data: pmix_value_data,
    }

    /// an attribute of a call.
    552 struct pmix_info_t {
        0 key: [c_char; KEY_BYTES],
        512 flags: u32,
        520 value: pmix_value_t,
    }

    /// a command to spawn.
    56 struct pmix_app_t {
        0 cmd: *mut c_char,
        8 argv: *mut *mut c_char,
        16 env: *mut *mut c_char,
        24 cwd: *mut c_char,
        32 maxprocs: c_int,
        40 info: *mut pmix_info_t,
        48 ninfo: usize,
    }
}

constants! {
    CONSTANTS as u32, from "pmix_common.h":

    /// which process of a job; the wildcard is the whole job.
    pmix_rank_t: u32 { PMIX_RANK_WILDCARD = u32::MAX - 1, }

    /// who can see a value: processes of this machine; processes of this machine and of others.
    pmix_scope_t: u8 {
        PMIX_LOCAL = 1,
        PMIX_GLOBAL = 3,
    }

    /// what a value is.
    pmix_data_type_t: u16 {
        PMIX_BOOL = 1,
        PMIX_STRING = 3,
        PMIX_UINT32 = 14,
    }

    /// the result of a call.
    pmix_status_t: c_int { PMIX_SUCCESS = 0, }
}

impl pmix_info_t {
    /// A boolean attribute with the value `true`.
    pub(super) fn set(name: &str) -> Self {
        let mut info = Self::zeroed();
        for (to, from) in info.key[..KEY_BYTES - 1].iter_mut().zip(name.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        info.value.type_ = PMIX_BOOL;
        info.value.data.flag = true;
        info
    }
}

/// The structures, constants and texts of this module, which `examples/pmix_layout.rs` prints
/// for a comparison with the header of PMIx.
#[doc(hidden)]
pub fn facts() -> (&'static [Structure], &'static [Constant], [(&'static str, &'static str); 5]) {
    let texts = [
        ("PMIX_JOB_SIZE", PMIX_JOB_SIZE),
        ("PMIX_COLLECT_DATA", PMIX_COLLECT_DATA),
        ("PMIX_OPTIONAL", PMIX_OPTIONAL),
        ("PMIX_IMMEDIATE", PMIX_IMMEDIATE),
        ("PMIX_LOCAL_PEERS", PMIX_LOCAL_PEERS),
    ];
    (STRUCTURES, CONSTANTS, texts)
}
