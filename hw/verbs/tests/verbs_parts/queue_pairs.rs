//! What queue pairs are asked for, and what they get, by functions that wrap the library's.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tagmatch_device::{Device, DeviceError, Refused};
use tagmatch_rdma_core_sys as sys;
use tagmatch_verbs::{Library, Verbs, VerbsConfig};

use crate::common::{connect, message, poll};
use crate::{expect_message, verbs};

/// The most inline bytes that the device allows: as much as a device of another kind.
static INLINE_MAX: AtomicU32 = AtomicU32::new(u32::MAX);
/// The inline bytes of each queue pair that was asked for.
static ASKED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// The attributes of each change of a queue pair.
static CHANGES: Mutex<Vec<(sys::ibv_qp_attr, u32)>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The wrapped library.
fn below() -> &'static sys::Verbs {
    sys::Verbs::get().unwrap()
}

/// Refuses as `providers/irdma/uverbs.c` does: EINVAL above the limit.
unsafe extern "C" fn create_qp(
    pd: *mut sys::ibv_pd,
    attr: *mut sys::ibv_qp_init_attr,
) -> *mut sys::ibv_qp {
    let limit = INLINE_MAX.load(Relaxed);
    // SAFETY: the caller's promise to the library.
    let cap = unsafe { &mut (*attr).cap };
    locked(&ASKED).push(cap.max_inline_data);
    if cap.max_inline_data > limit {
        // SAFETY: the place of this thread's errno.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise to the library.
    let qp = unsafe { (below().ibv_create_qp)(pd, attr) };
    // SAFETY: as above.
    unsafe { (*attr).cap.max_inline_data = (*attr).cap.max_inline_data.min(limit) };
    qp
}

unsafe extern "C" fn modify_qp(
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    mask: i32,
) -> i32 {
    // SAFETY: the caller's promise to the library.
    locked(&CHANGES).push((unsafe { *attr }, mask.cast_unsigned()));
    // SAFETY: as above.
    unsafe { (below().ibv_modify_qp)(qp, attr, mask) }
}

/// The table of a port whose first key is a limited one, as in clouds.
unsafe extern "C" fn query_pkey(_: *mut sys::ibv_context, _: u8, index: i32, key: *mut u16) -> i32 {
    const KEYS: [u16; 4] = [0x7fff, 0x8005, 0x8001, 0xffff];
    let Some(found) = usize::try_from(index).ok().and_then(|index| KEYS.get(index)) else {
        return -1;
    };
    // SAFETY: the caller's promise to the library.
    unsafe { key.write(found.to_be()) };
    0
}

fn watching() -> Result<&'static sys::Verbs, &'static sys::LoadError> {
    static TABLE: OnceLock<sys::Verbs> = OnceLock::new();
    let verbs = sys::Verbs::get()?;
    Ok(TABLE.get_or_init(|| {
        let mut table = verbs.clone();
        (table.ibv_create_qp, table.ibv_modify_qp) = (create_qp, modify_qp);
        table
    }))
}

// SAFETY: each function that is replaced calls the library's, or fails as its manual page says.
const WATCHING: Library = unsafe { Library::new(watching) };

fn partitioned() -> Result<&'static sys::Verbs, &'static sys::LoadError> {
    static TABLE: OnceLock<sys::Verbs> = OnceLock::new();
    let verbs = watching()?;
    Ok(TABLE.get_or_init(|| {
        let mut table = verbs.clone();
        table.ibv_query_pkey = query_pkey;
        table
    }))
}

// SAFETY: as for `WATCHING`, and the function that is replaced writes a key of a port.
const PARTITIONED: Library = unsafe { Library::new(partitioned) };

/// The changes of queue pairs so far that set all of `mask`.
fn changes(mask: u32) -> Vec<sys::ibv_qp_attr> {
    let changes = locked(&CHANGES);
    changes.iter().filter(|(_, set)| set & mask == mask).map(|(attr, _)| *attr).collect()
}

/// The changes that set all of `mask` while two devices connect with each other.
fn changes_of_pair(config: VerbsConfig, mask: u32) -> Vec<sys::ibv_qp_attr> {
    locked(&CHANGES).clear();
    let config = config.library(WATCHING);
    let mut a = verbs(config.clone());
    let mut b = verbs(config);
    connect(&mut a, &mut b);
    changes(mask)
}

/// Whether the ports of this machine have tables of several keys, as those of InfiniBand.
fn has_partitions() -> bool {
    let devices = std::fs::read_dir("/sys/class/infiniband").unwrap().flatten();
    devices.map(|device| device.path().join("ports/1/pkeys/3")).all(|row| row.exists())
}

/// UCX survives an outage of 5 s: its default is a timeout of 1.07 s and 7 retries
/// (`src/uct/ib/rc/base/rc_iface.c`).
#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_queue_pair_goes_on_sending_through_an_outage_of_five_seconds() {
    let mask = sys::IBV_QP_TIMEOUT | sys::IBV_QP_RETRY_CNT;
    let found = changes_of_pair(VerbsConfig::default(), mask);
    assert_eq!(found.len(), 2);
    for attr in found {
        let each = Duration::from_nanos(4096 << attr.timeout);
        let all = each * (u32::from(attr.retry_cnt) + 1);
        assert!(all > Duration::from_secs(7), "{} retries of {each:?}", attr.retry_cnt);
    }
}

/// irdma, i40iw and others allow 101, 96, 64 or 48 bytes, and refuse more.
#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn messages_are_carried_inline_as_far_as_the_device_allows() {
    for limit in [101, 48, 16, 1, 0] {
        INLINE_MAX.store(limit, Relaxed);
        let config = VerbsConfig::default().library(WATCHING);
        let mut a = verbs(config.clone());
        let mut b = verbs(config.clone());
        let mut c = verbs(config);
        let (to_b, from_a) = connect(&mut a, &mut b);
        // The device is asked for what it allows, which a first queue pair has found out.
        locked(&ASKED).clear();
        connect(&mut a, &mut c);
        let asked = locked(&ASKED).clone();
        assert_eq!(asked.first(), Some(&limit), "{asked:?}");
        for length in [0, limit as usize, limit as usize + 1] {
            let bytes = vec![7; length];
            // Credits come back while both sides poll.
            while a.send(to_b, message(&bytes)) == Err(Refused::Full) {
                assert!(poll(&mut a).is_none() && poll(&mut b).is_none());
            }
            expect_message(&mut b, from_a, None, &bytes);
        }
    }
    INLINE_MAX.store(u32::MAX, Relaxed);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn what_a_user_sets_reaches_the_queue_pairs() {
    let config = VerbsConfig::default()
        .service_level(Some(3))
        .traffic_class(Some(106))
        .ack_timeout(Some(17))
        .retry_count(Some(5))
        .mtu(Some(512));
    let paths = changes_of_pair(config, sys::IBV_QP_PATH_MTU);
    assert_eq!(paths.len(), 2);
    for attr in paths {
        // The code of 512 bytes.
        assert_eq!((attr.path_mtu, attr.ah_attr.sl), (2, 3));
        assert!(attr.ah_attr.is_global == 0 || attr.ah_attr.grh.traffic_class == 106);
    }
    let times = changes(sys::IBV_QP_TIMEOUT | sys::IBV_QP_RETRY_CNT);
    assert!(times.iter().all(|attr| (attr.timeout, attr.retry_cnt) == (17, 5)));
}

/// Row 0 of a port may be a limited key, whose holders don't reach each other, or that of another
/// job.
#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn queue_pairs_are_in_the_first_partition_with_full_membership_or_in_the_one_that_is_set() {
    if !has_partitions() {
        return;
    }
    let with = |partition_key| {
        locked(&CHANGES).clear();
        let config = VerbsConfig::default().partition_key(partition_key).library(PARTITIONED);
        let mut a = verbs(config.clone());
        let b = verbs(config);
        let to_b = a.connect(&b.address());
        assert!(to_b.is_ok(), "{to_b:?}");
        // The queue pairs for datagrams and the one for the connection.
        let rows = changes(sys::IBV_QP_PKEY_INDEX);
        let rows: Vec<u16> = rows.iter().map(|attr| attr.pkey_index).collect();
        (a, rows)
    };
    let (mut default, rows) = with(None);
    assert_eq!(rows, [1, 1, 1]);
    let (set, rows) = with(Some(1));
    assert_eq!(rows, [2, 2, 2]);
    let error = default.connect(&set.address()).unwrap_err().to_string();
    for words in ["0x8005", "0x8001", "TAGMATCH_VERBS_PARTITION_KEY"] {
        assert!(error.contains(words), "{error}");
    }
    let missing = VerbsConfig::default().partition_key(Some(9)).library(PARTITIONED);
    let error = Verbs::new(missing).unwrap_err();
    assert!(matches!(error, DeviceError::InvalidValue { setting: "partition_key", .. }), "{error}");
}
