//! Tests that count the device's calls of libibverbs, by functions that wrap the library's.

use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tagmatch_device::{Buffer, Device, EventDescriptor, PeerId};
use tagmatch_os::sleep::sleep_until_readable;
use tagmatch_rdma_core_sys as sys;
use tagmatch_verbs::{Library, Verbs, VerbsConfig};

use crate::common::{Owned, PATIENCE, poll, wait_for};
use crate::verbs;

static REGISTERED: AtomicU64 = AtomicU64::new(0);
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
    REGISTERED.fetch_add(1, Relaxed);
    // SAFETY: the caller's promise to the library.
    unsafe { (below().ibv_reg_mr)(pd, start, length, access) }
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
        table
    }))
}

// SAFETY: each function that is replaced calls the library's.
const COUNTING: Library = unsafe { Library::new(counting) };

fn regions() -> u64 {
    REGISTERED.load(Relaxed) - UNREGISTERED.load(Relaxed)
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn a_region_is_unregistered_once_it_has_lingered() {
    for linger in [Duration::ZERO, Duration::from_millis(50)] {
        let mut device = verbs(VerbsConfig { linger, library: COUNTING, ..VerbsConfig::default() });
        let before = regions();
        let exposure = device.expose(Buffer::from(vec![7; 100_000])).unwrap();
        assert_eq!(regions(), before + 1);
        assert!(device.withdraw(exposure.id).is_some());
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
    let mut victim = verbs(VerbsConfig { library: COUNTING, ..VerbsConfig::default() });
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
