//! Types and constants of `pmix_common.h`. All versions of libpmix.so.2 share them.

use std::ffi::{c_char, c_int};

/// The size of a namespace in bytes, with its terminating zero.
pub(super) const NAMESPACE_BYTES: usize = 256;
/// The size of a key in bytes, with its terminating zero.
pub(super) const KEY_BYTES: usize = 512;
/// `PMIX_RANK_WILDCARD`: the whole job.
pub(super) const WHOLE_JOB: u32 = u32::MAX - 1;
/// `PMIX_GLOBAL`: visible to processes of this machine and of others.
pub(super) const GLOBAL: u8 = 3;
/// `PMIX_BOOL`.
const BOOL: u16 = 1;
/// `PMIX_STRING`.
pub(super) const STRING: u16 = 3;
/// `PMIX_UINT32`.
pub(super) const UINT32: u16 = 14;
/// `PMIX_SUCCESS`.
pub(super) const SUCCESS: c_int = 0;

/// `PMIX_JOB_SIZE`.
pub(super) const JOB_SIZE: &str = "pmix.job.size";
/// `PMIX_COLLECT_DATA`.
pub(super) const COLLECT: &str = "pmix.collect";
/// `PMIX_OPTIONAL`.
pub(super) const OPTIONAL: &str = "pmix.optional";

/// `pmix_proc_t`: names a process, or a whole job.
#[repr(C)]
pub(super) struct PmixProcess {
    pub(super) namespace: [c_char; NAMESPACE_BYTES],
    pub(super) rank: u32,
}

/// The union in `pmix_value_t`, with the members used here.
#[repr(C)]
pub(super) union PmixData {
    pub(super) flag: bool,
    pub(super) number: u32,
    pub(super) string: *mut c_char,
    /// The largest members of the C union have three words.
    pub(super) room: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
pub(super) struct PmixValue {
    pub(super) kind: u16,
    pub(super) data: PmixData,
}

/// `pmix_info_t`: an attribute of a call.
#[repr(C)]
pub(super) struct PmixInfo {
    pub(super) key: [c_char; KEY_BYTES],
    pub(super) flags: u32,
    pub(super) value: PmixValue,
}

/// `pmix_app_t`: a command to spawn.
#[repr(C)]
pub(super) struct PmixApp {
    pub(super) command: *mut c_char,
    pub(super) arguments: *mut *mut c_char,
    pub(super) environment: *mut *mut c_char,
    pub(super) directory: *mut c_char,
    pub(super) processes: c_int,
    pub(super) settings: *mut PmixInfo,
    pub(super) setting_count: usize,
}

// The layout that a C compiler gives these types on a 64-bit machine, in PMIx versions 3 to 5.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<PmixProcess>() == 260);
    assert!(size_of::<PmixValue>() == 32 && std::mem::offset_of!(PmixValue, data) == 8);
    assert!(size_of::<PmixInfo>() == 552 && std::mem::offset_of!(PmixInfo, value) == 520);
    assert!(size_of::<PmixApp>() == 56 && std::mem::offset_of!(PmixApp, settings) == 40);
};

impl PmixInfo {
    /// A boolean attribute with the value `true`.
    pub(super) fn set(name: &str) -> Self {
        let mut data = PmixData { room: [0; 3] };
        data.flag = true;
        let mut key = [0; KEY_BYTES];
        for (to, from) in key[..KEY_BYTES - 1].iter_mut().zip(name.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        PmixInfo { key, flags: 0, value: PmixValue { kind: BOOL, data } }
    }
}

/// The sizes, offsets and constants declared here, one per line. `ci/parts/headers` lets a C
/// compiler compare them with `pmix_common.h`.
#[doc(hidden)]
pub fn facts() -> String {
    let pointer = size_of::<usize>();
    let fields = [
        ("pmix_proc_t", "nspace", std::mem::offset_of!(PmixProcess, namespace), NAMESPACE_BYTES),
        ("pmix_proc_t", "rank", std::mem::offset_of!(PmixProcess, rank), size_of::<u32>()),
        ("pmix_value_t", "type", std::mem::offset_of!(PmixValue, kind), size_of::<u16>()),
        ("pmix_value_t", "data", std::mem::offset_of!(PmixValue, data), size_of::<PmixData>()),
        ("pmix_value_t", "data.flag", std::mem::offset_of!(PmixValue, data), size_of::<bool>()),
        ("pmix_value_t", "data.uint32", std::mem::offset_of!(PmixValue, data), size_of::<u32>()),
        ("pmix_value_t", "data.string", std::mem::offset_of!(PmixValue, data), size_of::<usize>()),
        ("pmix_info_t", "key", std::mem::offset_of!(PmixInfo, key), KEY_BYTES),
        ("pmix_info_t", "flags", std::mem::offset_of!(PmixInfo, flags), size_of::<u32>()),
        ("pmix_info_t", "value", std::mem::offset_of!(PmixInfo, value), size_of::<PmixValue>()),
        ("pmix_app_t", "cmd", std::mem::offset_of!(PmixApp, command), pointer),
        ("pmix_app_t", "argv", std::mem::offset_of!(PmixApp, arguments), pointer),
        ("pmix_app_t", "env", std::mem::offset_of!(PmixApp, environment), pointer),
        ("pmix_app_t", "cwd", std::mem::offset_of!(PmixApp, directory), pointer),
        ("pmix_app_t", "maxprocs", std::mem::offset_of!(PmixApp, processes), size_of::<c_int>()),
        ("pmix_app_t", "info", std::mem::offset_of!(PmixApp, settings), pointer),
        ("pmix_app_t", "ninfo", std::mem::offset_of!(PmixApp, setting_count), pointer),
    ];
    let sizes = [
        ("pmix_proc_t", size_of::<PmixProcess>()),
        ("pmix_value_t", size_of::<PmixValue>()),
        ("pmix_info_t", size_of::<PmixInfo>()),
        ("pmix_app_t", size_of::<PmixApp>()),
    ];
    let values = [
        ("PMIX_RANK_WILDCARD", i64::from(WHOLE_JOB)),
        ("PMIX_GLOBAL", GLOBAL.into()),
        ("PMIX_BOOL", BOOL.into()),
        ("PMIX_STRING", STRING.into()),
        ("PMIX_UINT32", UINT32.into()),
        ("PMIX_SUCCESS", SUCCESS.into()),
    ];
    let texts =
        [("PMIX_JOB_SIZE", JOB_SIZE), ("PMIX_COLLECT_DATA", COLLECT), ("PMIX_OPTIONAL", OPTIONAL)];
    let sizes = sizes.map(|(of, size)| format!("SIZE({of}, {size})\n"));
    let fields = fields.map(|(of, name, at, size)| format!("FIELD({of}, {name}, {at}, {size})\n"));
    let values = values.map(|(name, value)| format!("VALUE({name}, {value})\n"));
    let texts = texts.map(|(name, text)| format!("TEXT({name}, \"{text}\")\n"));
    [sizes.concat(), fields.concat(), values.concat(), texts.concat()].concat()
}
