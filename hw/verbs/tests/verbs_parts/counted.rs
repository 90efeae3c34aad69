//! Tests that count the device's calls of libibverbs, by functions that wrap the library's.

use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tagmatch_device::{
    Buffer, Device, DeviceError, EventDescriptor, PeerId, RawMemory, ReadRequest, Registered,
};
use tagmatch_os::sleep::sleep_until_readable;
use tagmatch_rdma_core_sys as sys;
use tagmatch_verbs::{Library, Verbs, VerbsConfig};

use crate::common::{Owned, PATIENCE, READER, connect, pattern, poll, wait_for};
use crate::{read_result, verbs};

static REGISTERED: AtomicU64 = AtomicU64::new(0);
/// Bytes of all regions that were ever registered.
static REGISTERED_BYTES: AtomicU64 = AtomicU64::new(0);
static UNREGISTERED: AtomicU64 = AtomicU64::new(0);
static HANDLES: AtomicU64 = AtomicU64::new(0);
/// Whether creating an address handle takes long, as for a host that doesn't answer.
static ARE_SLOW: AtomicBool = AtomicBool::new(false);

/// The wrapped library.
fn below() -> &'static sys::Verbs {
    sys::Verbs::get().unwrap()
}

unsafe extern "C" fn reg_mr(
    pd: *mut sys::ibv_pd,
    start: *mut std::ffi::c_void,
    length: usize,
    access: i32,
) -> *mut sys::ibv_mr {
    // SAFETY: the caller's promise to the library.
    let region = unsafe { (below().ibv_reg_mr)(pd, start, length, access) };
    REGISTERED.fetch_add(u64::from(!region.is_null()), Relaxed);
    REGISTERED_BYTES.fetch_add(length as u64, Relaxed);
    region
}

unsafe extern "C" fn dereg_mr(mr: *mut sys::ibv_mr) -> i32 {
    UNREGISTERED.fetch_add(1, Relaxed);
    // SAFETY: the caller's promise to the library.
    unsafe { (below().ibv_dereg_mr)(mr) }
}

unsafe extern "C" fn create_ah(
    pd: *mut sys::ibv_pd,
    attr: *mut sys::ibv_ah_attr,
) -> *mut sys::ibv_ah {
    HANDLES.fetch_add(1, Relaxed);
    if ARE_SLOW.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(300));
    }
    // SAFETY: the caller's promise to the library.
    unsafe { (below().ibv_create_ah)(pd, attr) }
}

fn counting() -> Result<&'static sys::Verbs, &'static sys::LoadError> {
    static TABLE: OnceLock<sys::Verbs> = OnceLock::new();
    let verbs = sys::Verbs::get()?;
    Ok(TABLE.get_or_init(|| {
        let mut table = verbs.clone();
        (table.ibv_reg_mr, table.ibv_dereg_mr) = (reg_mr, dereg_mr);
        table.ibv_create_ah = create_ah;
        // Memory is registered by the call that counts.
        table.ibv_reg_mr_iova2 = None;
        table
    }))
}

// SAFETY: each function that is replaced calls the library's.
const COUNTING: Library = unsafe { Library::new(counting) };

fn regions() -> u64 {
    REGISTERED.load(Relaxed) - UNREGISTERED.load(Relaxed)
}

/// Has a device register its own buffers, as it does before it registers a user's first one.
fn settle(device: &mut Verbs) {
    let exposure = device.expose(READER, Buffer::default()).unwrap();
    assert!(device.withdraw(READER, exposure.id).is_some());
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_region_is_unregistered_once_it_has_lingered() {
    for linger in [Duration::ZERO, Duration::from_millis(50)] {
        let mut device = verbs(VerbsConfig::default().linger(linger).library(COUNTING));
        settle(&mut device);
        let before = regions();
        let exposure = device.expose(READER, Buffer::from(vec![7; 100_000])).unwrap();
        assert_eq!(regions(), before + 1);
        assert!(device.withdraw(READER, exposure.id).is_some());
        // Nothing was polled, so it lingers, however much time has passed.
        assert_eq!(regions(), before + u64::from(!linger.is_zero()));
        // A sleeper without peers is woken for it, too.
        let start = Instant::now();
        while regions() > before {
            assert!(start.elapsed() < PATIENCE, "still registered");
            if device.arm(&[]) {
                let descriptor = device.event_descriptor();
                let is_woken = sleep_until_readable(&[descriptor.as_fd()], PATIENCE).unwrap();
                assert!(is_woken, "not woken though a region lingers");
                device.disarm();
            }
            assert!(poll(&mut device).is_none());
        }
    }
}

fn registered(device: &mut Verbs, memory: &mut [u8]) -> Registered {
    // SAFETY: the memory is freed after everything that is made of it.
    let memory = unsafe { RawMemory::new(NonNull::from(&mut *memory).cast(), memory.len()) };
    device.register(memory.unwrap()).unwrap()
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn parts_of_registered_memory_are_not_registered_again() {
    const PART: usize = 100_000;
    let config = || VerbsConfig::default().library(COUNTING);
    let mut a = verbs(config());
    let mut b = verbs(config());
    let (to_b, _) = connect(&mut a, &mut b);
    let mut of_a = vec![0; 3 * PART];
    let mut of_b = pattern(5, 3 * PART);
    for node in [&mut a, &mut b] {
        settle(node);
    }
    let without = regions();
    let to = registered(&mut a, &mut of_a);
    let from = registered(&mut b, &mut of_b);
    assert_eq!(regions(), without + 2);
    let calls = REGISTERED.load(Relaxed);
    let ranges = [0..PART, PART..2 * PART, 2 * PART..3 * PART];
    // All parts are exposed and read at once.
    let exposed = ranges.clone().map(|range| {
        // SAFETY: the parts are only read.
        b.expose(READER, unsafe { from.read_only(range) }.unwrap()).unwrap()
    });
    let key = exposed[0].span.key;
    assert!(exposed.iter().all(|exposure| exposure.span.key == key));
    for (token, range) in (0..).zip(ranges.clone()) {
        // SAFETY: the parts don't overlap.
        let into = unsafe { to.buffer(range) }.unwrap();
        let remote = exposed[token as usize].span;
        a.read(ReadRequest { peer: to_b, remote, into, token }).unwrap();
    }
    for (token, range) in (0..).zip(ranges) {
        let (into, result) = read_result(&mut a, &mut b, token);
        assert_eq!(result, Ok(()));
        assert!(into[..] == pattern(5, 3 * PART)[range]);
    }
    let mut parts = exposed.map(|exposure| b.withdraw(READER, exposure.id).unwrap());
    assert_eq!(REGISTERED.load(Relaxed), calls, "a part was registered");
    // Another device registers a part for its operation.
    let exposure = a.expose(READER, std::mem::take(&mut parts[0])).unwrap();
    assert_eq!((REGISTERED.load(Relaxed), regions()), (calls + 1, without + 3));
    drop(a.withdraw(READER, exposure.id));
    // The last part ends the registration, after the handle and the device.
    drop((to, from));
    assert_eq!(regions(), without + 1, "it has no part");
    drop(b);
    let before = regions();
    std::thread::spawn(move || drop(parts)).join().unwrap();
    assert_eq!(regions(), before - 1, "it is still registered");
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn memory_that_is_not_there_is_not_registered() {
    let mut device = verbs(VerbsConfig::default().library(COUNTING));
    settle(&mut device);
    let before = regions();
    let nowhere = NonNull::new(ptr::without_provenance_mut(1 << 40)).unwrap();
    // SAFETY: no buffer is made of it.
    let memory = unsafe { RawMemory::new(nowhere, 8192) }.unwrap();
    let refused = device.register(memory);
    assert!(matches!(refused, Err(DeviceError::System { call: "ibv_reg_mr", .. })), "{refused:?}");
    assert_eq!(regions(), before);
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn devices_and_idle_peers_take_little_memory() {
    const PEERS: u64 = 24;
    let config = || VerbsConfig::default().library(COUNTING);
    let before = REGISTERED_BYTES.load(Relaxed);
    let mut center = verbs(config());
    let registered = REGISTERED_BYTES.load(Relaxed) - before;
    assert!(registered < 640 << 10, "a device registers {registered} bytes");
    let mut others: Vec<_> = (0..PEERS).map(|_| verbs(config())).collect();
    let before = (REGISTERED_BYTES.load(Relaxed), resident_bytes());
    for other in &mut others {
        connect(other, &mut center);
    }
    // The center needed one more block of 64 receive buffers.
    let registered = REGISTERED_BYTES.load(Relaxed) - before.0;
    assert!(registered < 640 << 10, "{PEERS} idle peers take {registered} registered bytes");
    // Each connection has two ends here. Soft-RoCE's send queues are longer than others'.
    let resident = resident_bytes().saturating_sub(before.1) / (2 * PEERS);
    assert!(resident < 112 << 10, "an idle peer takes {resident} bytes");
}

/// Polls until a peer has connected to `victim`, and returns it.
fn first_up(victim: &mut Verbs, others: &mut [Verbs]) -> PeerId {
    let mut devices: Vec<&mut Verbs> = std::iter::once(victim).chain(others).collect();
    wait_for(&mut devices, "a peer to come up", |index, event| match event {
        Owned::Up(peer, _) if index == 0 => Some(peer),
        _ => None,
    })
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn requests_from_hosts_that_are_not_there_do_not_take_all_the_time() {
    let mut victim = verbs(VerbsConfig::default().library(COUNTING));
    let mut others: Vec<_> = (0..3).map(|_| verbs(VerbsConfig::default())).collect();
    for other in &mut others {
        other.connect(&victim.address()).unwrap();
        // Its request waits in the victim's queue, unless the network has lost it.
        assert!(poll(other).is_none());
    }
    ARE_SLOW.store(true, Relaxed);
    let before = HANDLES.load(Relaxed);
    first_up(&mut victim, &mut others);
    assert_eq!(HANDLES.load(Relaxed) - before, 1, "only one slow handle was created");
    ARE_SLOW.store(false, Relaxed);
    // All connect in the end, since requests are repeated.
    for _ in 1..others.len() {
        first_up(&mut victim, &mut others);
    }
}
