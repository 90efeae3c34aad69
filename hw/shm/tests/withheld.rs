//! Memory whose pages its owner withholds, by userfaultfd(2).

mod common;
#[allow(dead_code, reason = "a part of it")]
mod hostile_peer;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use tagmatch_device::{Buffer, Device, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan};
use tagmatch_os::memory::page_bytes;
use tagmatch_shm::fuzzing::{Hello, OfferedMemory};
use tagmatch_shm::{ReadPolicy, SenderWrites, ShmConfig};

use common::{Owned, PATIENCE, connect, fall_asleep, read_end, shm, sleep, wait_for};
use hostile_peer::{Bystanders, HostilePeer, SEALS, hello, invented, memfd};

const LENGTH: usize = 1 << 20;

/// Of `linux/userfaultfd.h`.
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

fn page() -> u64 {
    page_bytes() as u64
}

fn control<const N: usize>(fault: &OwnedFd, request: u64, mut words: [u64; N]) -> io::Result<()> {
    // SAFETY: `words` is as long as the structure that the request takes.
    let answer = unsafe { libc::ioctl(fault.as_raw_fd(), request, words.as_mut_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Withheld {
    fn new(memory: MmapRaw) -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd =
            i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the descriptor is new.
        let fault = unsafe { OwnedFd::from_raw_fd(fd) };
        control(&fault, UFFDIO_API, [UFFD_API, 0, 0])?;
        let start = memory.as_mut_ptr().expose_provenance() as u64;
        control(&fault, UFFDIO_REGISTER, [start, memory.len() as u64, MISSING, 0])?;
        Ok(Withheld { memory, fault, waits: AtomicUsize::new(0), stop: AtomicBool::new(false) })
    }

    fn address(&self) -> u64 {
        self.memory.as_mut_ptr().expose_provenance() as u64
    }

    /// Whether an access waits for a page.
    fn is_waited_for(&self) -> bool {
        let mut poll =
            libc::pollfd { fd: self.fault.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives through the call.
        unsafe { libc::poll(&raw mut poll, 1, 10) > 0 }
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
                let start = event[2] & !(page() - 1);
                control(&self.fault, UFFDIO_ZEROPAGE, [start, page(), 0, 0]).unwrap();
            }
        }
    }
}

/// How often a peer makes a worker wait, by its hello and by a read.
fn waits(read: ReadPolicy, memory: &Withheld) -> usize {
    let mut bystanders = Bystanders::new(ShmConfig::default().read(read));
    let own_hello = hello(invented(&bystanders.victim.address(), 1));
    let own_hello = Hello { nonce_address: memory.address(), ..own_hello };
    let hostile = HostilePeer::greet(&mut bystanders.victim, &own_hello);
    let peer = PeerId(2);
    let address = memory.address() + page();
    let remote = RemoteSpan { address, key: 1, length: 5 * page() };
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

fn withheld(memory: MmapRaw) -> Option<Withheld> {
    Withheld::new(memory)
        .inspect_err(|error| {
            println!("SKIPPED: userfaultfd(2) for faults of the kernel needs root: {error}");
        })
        .ok()
}

/// The peer's mapping is the only one whose pages the peer can withhold.
#[test]
fn mapped_reads_wait_for_no_page_that_a_peer_withholds() {
    let memfd = memfd(LENGTH, 0);
    let Some(memory) = withheld(MmapOptions::new().len(LENGTH).map_raw(&memfd).unwrap()) else {
        return;
    };
    // SAFETY: no pointers.
    let sealed = unsafe {
        libc::fcntl(memfd.as_raw_fd(), libc::F_ADD_SEALS, SEALS | libc::F_SEAL_FUTURE_WRITE)
    };
    assert_eq!(sealed, 0);
    let config = ShmConfig::default().read(ReadPolicy::Copied);
    let mut bystanders = Bystanders::new(config);
    let address = memory.address();
    let offered = OfferedMemory { address, length: LENGTH as u64, generation: 0 };
    let own_hello = hello(invented(&bystanders.victim.address(), 1));
    let own_hello = Hello { memory: Some(offered), ..own_hello };
    let fds = [memfd.as_raw_fd()];
    let _hostile = HostilePeer::greet_with(&mut bystanders.victim, &own_hello, &fds);
    // Half of the memory.
    let remote = RemoteSpan { address: address + LENGTH as u64 / 2, key: 1, length: 1 << 19 };
    let into = Buffer::from(vec![1; 1 << 19]);
    let request = ReadRequest { peer: PeerId(2), remote, into, token: 3 };
    bystanders.victim.read(request).unwrap();
    let (into, result) = read_end(&mut [&mut bystanders.victim]);
    assert_eq!(result, Ok(()));
    assert!(into.iter().all(|byte| *byte == 0));
    // The peer itself waits for the other half.
    std::thread::scope(|scope| {
        scope.spawn(|| memory.serve());
        let _stop = Stop(&memory.stop);
        assert_eq!(memory.waits.load(Ordering::Relaxed), 0);
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { memory.memory.as_ptr().add(1 << 16).read_volatile() }, 0);
        assert_eq!(memory.waits.load(Ordering::Relaxed), 1);
    });
}

/// Direct reads wait for withheld pages, as their documentation says. Copied reads don't.
#[test]
fn copied_reads_wait_for_no_page_that_a_peer_withholds() {
    let memory = MmapRaw::from(MmapMut::map_anon(LENGTH).unwrap());
    let Some(memory) = withheld(memory) else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| memory.serve());
        let _stop = Stop(&memory.stop);
        let copied = waits(ReadPolicy::Copied, &memory);
        let direct = waits(ReadPolicy::Auto, &memory);
        assert_eq!(copied, 0);
        assert!(direct >= 6, "{direct} waits");
    });
}

/// The last piece of a message is withheld from its sender, until the receiver sleeps.
#[test]
fn a_receiver_sleeps_while_its_sender_copies_and_is_woken_afterwards() {
    const PIECE: usize = 128 << 10;
    let mut memory = MmapMut::map_anon(2 * LENGTH).unwrap();
    // Pages that were written are not missing.
    memory[..2 * LENGTH - PIECE].fill(1);
    let Some(memory) = withheld(MmapRaw::from(memory)) else { return };
    let start = std::ptr::NonNull::new(memory.memory.as_mut_ptr()).unwrap();
    // SAFETY: the mapping outlives the buffer, and nothing else uses its bytes meanwhile.
    let into = unsafe { Buffer::from_raw(start, 2 * LENGTH, true) };
    let config = ShmConfig::default()
        .sender_writes(SenderWrites::AllBuffers)
        .sweep_interval(Duration::from_secs(3600));
    let mut reader = shm(config.clone());
    let mut sender = shm(config);
    let (peer, to_reader) = connect(&mut reader, &mut sender);
    let remote = sender.expose(to_reader, Buffer::from(vec![5; 2 * LENGTH])).unwrap().span;
    reader.read(ReadRequest { peer, remote, into, token: 3 }).unwrap();
    assert!(reader.poll().is_none());
    std::thread::scope(|scope| {
        let _stop = Stop(&memory.stop);
        scope.spawn(|| {
            while !memory.stop.load(Ordering::Relaxed) {
                assert!(sender.poll().is_none());
            }
        });
        let begin = Instant::now();
        while !memory.is_waited_for() {
            assert!(begin.elapsed() < PATIENCE);
        }
        fall_asleep(&mut reader);
        assert!(!sleep(&reader, Duration::from_millis(20)));
        scope.spawn(|| memory.serve());
        assert!(sleep(&reader, PATIENCE), "nobody has woken the receiver");
        reader.disarm();
        wait_for(&mut [&mut reader], "the bytes", |_, event| match event {
            Owned::ReadDone(3, into, Ok(())) => (into[..] == vec![5; 2 * LENGTH]).then_some(()),
            other => panic!("{other:?}"),
        });
    });
}
