//! What a worker tells its peers about itself.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tagmatch_device::contents::route;
use tagmatch_device::{Address, DeviceError, InCall, Limits, Network};
use tagmatch_os::memory::{self, MemoryUse, SealedMemory};
use tagmatch_os::wake_socket::WakeSocket;
use tagmatch_os::{process, socket};

use crate::arena::Arena;
use crate::config::{ReadPolicy, ShmConfig};
use crate::doorbell::{self, Doorbell};
use crate::inboxes::Inboxes;
use crate::name::ShmName;
use crate::nonce::OwnNonce;
use crate::packet::{Hello, OfferedMemory};
use crate::peers::HelloOffer;
use crate::ring::Geometry;

/// This worker's own end of its connections: its address, settings, doorbell and waker.
pub(crate) struct LocalEnd {
    pub(crate) config: ShmConfig,
    /// The size of the rings to peers that have no wide ones.
    pub(crate) geometry: Geometry,
    pub(crate) name: ShmName,
    pub(crate) address: Address,
    pub(crate) doorbell: Arc<Doorbell>,
    doorbell_memory: SealedMemory,
    /// The memory of the device; `None` if it is switched off, or not possible here.
    pub(crate) arena: Option<Arena>,
    /// Wakes this worker, and out of it this worker wakes its peers.
    pub(crate) waker: Arc<WakeSocket>,
    /// The largest message that takes longer to be read by the kernel than to be sent in fragments,
    /// once that was measured.
    pub(crate) fragmented_max: OnceCell<usize>,
    /// Whether a barrier made by another process reaches this one.
    pub(crate) hears_barriers: bool,
    /// Whether this process can put a barrier on others.
    pub(crate) makes_barriers: bool,
}

impl LocalEnd {
    /// Checks the settings and makes the doorbell.
    pub(crate) fn new(config: ShmConfig) -> Result<Self, DeviceError> {
        let geometry = config.check()?;
        process::learn_own_user();
        let name = ShmName::create().in_call("getrandom")?;
        let doorbell_memory = SealedMemory::new(c"tagmatch-doorbell", doorbell::LENGTH_BYTES)
            .map_err(|error| DeviceError::system("memfd_create", memfd_hint(&error))(error))?;
        let mapping = doorbell_memory.map().in_call("mmap")?;
        let doorbell = Doorbell::new(mapping)
            .ok_or(DeviceError::BadBuffer { why: "a page is too small for a doorbell" })?;
        let hears_barriers = config.membarrier && process::register_for_barriers().is_ok();
        let makes_barriers = config.membarrier && process::barrier_everywhere().is_ok();
        if config.allow_readers && config.read != ReadPolicy::Copied {
            // The call fails where there is no Yama. It isn't needed there.
            let _ = process::allow_readers();
        }
        let arena = device_memory(&config).ok();
        let key = tagmatch_os::random().in_call("getrandom")?;
        let waker = WakeSocket::bind(name.waker_name().as_bytes(), key);
        Ok(LocalEnd {
            geometry,
            address: name.address()?,
            name,
            doorbell: Arc::new(doorbell),
            doorbell_memory,
            arena,
            waker: Arc::new(waker.in_call("bind an abstract socket")?),
            fragmented_max: OnceCell::new(),
            hears_barriers,
            makes_barriers,
            config,
        })
    }

    /// Whether the worker with this address is to be reached over shared memory.
    pub(crate) fn check_route(&self, peer: &Address) -> Result<(), DeviceError> {
        match route(&self.address, peer)? {
            Network::Shm => Ok(()),
            _ => Err(DeviceError::BadAddress { why: "its worker is on another machine" }),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        // A worker reads its own messages without a system call.
        Limits { message_max: self.config.message_max as usize, fragmented_max: 0 }
    }

    /// The longest rings of a next connection.
    pub(crate) fn room(&self, inboxes: &Inboxes) -> Geometry {
        self.config.wide_rings(inboxes.taken_count()).unwrap_or(self.geometry)
    }

    /// Makes the memory of a pair.
    pub(crate) fn pair_memory(room: Geometry) -> io::Result<SealedMemory> {
        SealedMemory::new(c"tagmatch-pair", room.pair_bytes())
    }

    /// Makes a nonce for a peer to read, and reserves a doorbell bit for the peer's ring.
    pub(crate) fn offer(&self, inboxes: &mut Inboxes) -> io::Result<HelloOffer> {
        let nonce = OwnNonce::new()?;
        let bit = inboxes.reserve().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(HelloOffer { bit, nonce })
    }

    /// Answers a first hello with a hello, which says that the rings have this geometry.
    pub(crate) fn answer(
        &self,
        inboxes: &mut Inboxes,
        socket: impl AsFd,
        geometry: Geometry,
    ) -> io::Result<HelloOffer> {
        let offer = self.offer(inboxes)?;
        let sent = self.send_hello(socket.as_fd(), &offer, None, geometry);
        sent.inspect_err(|_| inboxes.release(offer.bit)).map(|()| offer)
    }

    /// Sends a hello. `pair`: the memory of the pair, unless the peer has made it. `geometry`: how
    /// many long lines each ring has.
    pub(crate) fn send_hello(
        &self,
        socket: BorrowedFd<'_>,
        offer: &HelloOffer,
        pair: Option<&SealedMemory>,
        geometry: Geometry,
    ) -> io::Result<()> {
        let memory = self.arena.as_ref().map(|arena| OfferedMemory {
            address: arena.address(),
            length: arena.length() as u64,
            generation: arena.generation(offer.bit),
        });
        let (nonce_address, nonce) = offer.nonce.address_and_bytes();
        let hello = Hello {
            address: self.address,
            message_max: self.config.message_max.min(geometry.message_max()),
            takes_fragments: self.config.fragments,
            takes_offers: self.config.sender_copies,
            geometry,
            doorbell_bit: offer.bit,
            hears_barriers: self.hears_barriers,
            makes_barriers: self.makes_barriers,
            nonce_address,
            nonce,
            memory,
            wake_key: self.waker.key(),
        };
        let pair = pair.into_iter().map(AsFd::as_fd);
        let arena = self.arena.iter().map(AsFd::as_fd);
        let fds: Vec<_> = pair.chain([self.doorbell_memory.as_fd()]).chain(arena).collect();
        socket::send(socket, &hello.emit(), &fds)
    }
}

/// What to do about memory that can't be made.
fn memfd_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            "; the seccomp profile of a container must allow memfd_create(2)"
        }
        _ => "",
    }
}

/// Makes the memory of the device.
///
/// # Errors
/// Why there is none.
pub(crate) fn device_memory(config: &ShmConfig) -> Result<Arena, String> {
    if config.device_memory_bytes == 0 {
        return Err("switched off by ShmConfig::device_memory_bytes".into());
    }
    if let Some(obstacle) = memory::sparse_memory_obstacle() {
        return Err(obstacle.into());
    }
    let by_peers = if config.direct_regions { MemoryUse::Write } else { MemoryUse::Read };
    Arena::new(config.device_memory_bytes, by_peers)
        .map_err(|error| format!("memfd_create: {error}"))
}
