//! Memory whose pages its owner withholds, by userfaultfd(2).

mod common;
#[allow(dead_code, reason = "a part of it")]
mod hostile_peer;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Owned, wait_for};
use hostile_peer::{Bystanders, HostilePeer, hello, invented};
use memmap2::{MmapMut, MmapRaw};
use tagmatch_device::{Buffer, Device, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan};
use tagmatch_shm::fuzzing::Hello;
use tagmatch_shm::{ReadPolicy, ShmConfig};

const LENGTH: usize = 1 << 20;
const PAGE: u64 = 4096;

/// Of linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const MISSING: u64 = 1;

/// Memory of which each page is missing until [`Withheld::serve`] gives it out.
struct Withheld {
    memory: MmapRaw,
    fault: OwnedFd,
    /// Accesses that had to wait.
    waits: AtomicUsize,
    stop: AtomicBool,
}

/// Stops the serving thread, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn control<const N: usize>(fault: &OwnedFd, request: u64, mut words: [u64; N]) -> io::Result<()> {
    // SAFETY: `words` is as long as the structure that the request takes.
    let answer = unsafe { libc::ioctl(fault.as_raw_fd(), request, words.as_mut_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Withheld {
    fn new() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd =
            i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the descriptor is new.
        let fault = unsafe { OwnedFd::from_raw_fd(fd) };
        let memory = MmapRaw::from(MmapMut::map_anon(LENGTH)?);
        control(&fault, UFFDIO_API, [UFFD_API, 0, 0])?;
        let start = memory.as_mut_ptr().expose_provenance() as u64;
        control(&fault, UFFDIO_REGISTER, [start, LENGTH as u64, MISSING, 0])?;
        Ok(Withheld { memory, fault, waits: AtomicUsize::new(0), stop: AtomicBool::new(false) })
    }

    fn address(&self) -> u64 {
        self.memory.as_mut_ptr().expose_provenance() as u64
    }

    /// Counts the accesses that wait for a page, and gives the pages out.
    fn serve(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut poll =
                libc::pollfd { fd: self.fault.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let mut event = [0u64; 4];
            // SAFETY: one entry; and `event` is as long as a `uffd_msg`, whose third word is the
            // address.
            let got = unsafe {
                libc::poll(&raw mut poll, 1, 10);
                libc::read(self.fault.as_raw_fd(), event.as_mut_ptr().cast(), 32)
            };
            if got == 32 {
                self.waits.fetch_add(1, Ordering::Relaxed);
                let page = event[2] & !(PAGE - 1);
                control(&self.fault, UFFDIO_ZEROPAGE, [page, PAGE, 0, 0]).unwrap();
            }
        }
    }
}

/// How often a peer makes a worker wait, by its hello and by a read.
fn waits(read: ReadPolicy, memory: &Withheld) -> usize {
    let mut bystanders = Bystanders::new(ShmConfig { read, ..ShmConfig::default() });
    let own_hello = hello(invented(&bystanders.victim.address(), 1));
    let own_hello = Hello { nonce_address: memory.address(), ..own_hello };
    let hostile = HostilePeer::greet(&mut bystanders.victim, &own_hello);
    let peer = PeerId(2);
    let address = memory.address() + PAGE;
    let remote = RemoteSpan { address, key: 1, length: 5 * PAGE };
    let into = Buffer::zeroed(LENGTH);
    bystanders.victim.read(ReadRequest { peer, remote, into, token: 3 }).unwrap();
    let expected = match bystanders.victim.read_mode(peer) {
        ReadMode::Direct => Ok(()),
        _ => {
            // The peer doesn't answer, which must not disturb others.
            for _ in 0..100 {
                assert!(bystanders.exchange().is_empty());
            }
            Err(ReadError::PeerDown)
        }
    };
    if expected.is_err() {
        drop(hostile);
    }
    wait_for(&mut [&mut bystanders.victim], "the read", |_, event| match event {
        Owned::ReadDone(3, _, result) => {
            assert_eq!(result, expected);
            Some(())
        }
        other => panic!("{other:?}"),
    });
    memory.waits.load(Ordering::Relaxed)
}

/// Direct reads wait for withheld pages, as their documentation says. Copied reads don't.
#[test]
fn copied_reads_wait_for_no_page_that_a_peer_withholds() {
    let memory = match Withheld::new() {
        Ok(memory) => memory,
        Err(error) => {
            println!("SKIPPED: userfaultfd(2) for faults of the kernel needs root: {error}");
            return;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| memory.serve());
        let _stop = Stop(&memory.stop);
        let copied = waits(ReadPolicy::Copied, &memory);
        let direct = waits(ReadPolicy::Auto, &memory);
        assert_eq!(copied, 0);
        assert!(direct >= 6, "{direct} waits");
    });
}
