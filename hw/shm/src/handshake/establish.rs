//! Checks a peer's hello, and makes the connection when both sides have sent theirs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch_device::{
    Bug, CopiedReads, DownReason, Event, Limits, OrBug, PeerId, ReadMode, Shortage,
};
use tagmatch_os::memory::{Mapping, SealedMemory};
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::process::Pid;
use tagmatch_os::socket;
use tagmatch_os::socket::{Credentials, Packet};

use super::local::LocalEnd;
use super::step::HandshakeStep;
use crate::carrying::Carrying;
use crate::config::ReadPolicy;
use crate::connection::{Connection, OtherEnd, PeerWaker};
use crate::doorbell::{self, Doorbell, DoorbellBit};
use crate::lifelines::lifeline::{EndDescriptors, Lifeline};
use crate::name::ShmName;
use crate::nonce::OwnNonce;
use crate::packet::{Hello, HelloRefusal, OfferedMemory};
use crate::peer_memory::PeerMemory;
use crate::peers::{HelloOffer, PeerState};
use crate::processes::{CallingProcess, OwnUsersSocket, ReadableProcess};
use crate::ring::{Consumer, Geometry, Piggyback, Producer, Ring};
use crate::sharing::Sharing;
use crate::streaming;

/// Reads of a nonce that are timed. The shortest one counts, since others may be interrupted.
const TIMED_READS: u32 = 3;
/// Messages of so many bytes for each nanosecond that a short read takes are sent in fragments. So
/// the bound is where the time to begin a read is the time by which a copy through the ring is
/// slower than the kernel's copy. That was measured: at 11 KiB where a read begins in 0.7
/// microseconds, and between 32 and 64 KiB where it takes 3.
const FRAGMENTED_BYTES_PER_NANOSECOND: usize = 16;
/// As [`FRAGMENTED_BYTES_PER_NANOSECOND`], where long runs are written past the cache. Measured:
/// some 100 KiB where a read begins in 2 microseconds.
const STREAMED_BYTES_PER_NANOSECOND: usize = 48;

/// Why a hello was not accepted: the answer to the peer, and the reason to report.
pub(super) struct Rejection {
    pub(super) answer: HelloRefusal,
    pub(super) reason: DownReason,
}

impl Rejection {
    fn misbehaved(what: &'static str) -> Self {
        Rejection { answer: HelloRefusal::Invalid, reason: DownReason::Misbehaved { what } }
    }

    fn bug(bug: Bug) -> Self {
        Rejection { answer: HelloRefusal::Invalid, reason: DownReason::Bug(bug) }
    }

    fn unreachable(errno: i32) -> Self {
        Rejection { answer: HelloRefusal::Busy, reason: DownReason::Unreachable { errno } }
    }

    /// A system call failed.
    fn failed(error: &io::Error) -> Self {
        let unreachable = || Rejection::unreachable(error.raw_os_error().unwrap_or(0));
        shortage_of(error).map_or_else(unreachable, Rejection::shortage)
    }

    fn shortage(shortage: Shortage) -> Self {
        Rejection { answer: HelloRefusal::Busy, reason: DownReason::Shortage(shortage) }
    }
}

/// What this process lacks, if that is why a system call failed.
pub(super) fn shortage_of(error: &io::Error) -> Option<Shortage> {
    Shortage::of_errno(error.raw_os_error()?)
}

/// Which hello of a handshake it is.
#[derive(Clone, Copy)]
pub(super) enum HelloKind {
    /// The hello of the side that connects. The memory of the pair comes with it. This side takes
    /// rings of this length at most.
    First { room: Geometry },
    /// The hello of the side that listens, which answers the first one. That has offered rings of
    /// this length at most.
    Answer { room: Geometry },
}

/// The memory of a pair.
pub(super) struct PairMemory {
    pub(super) memory: Mapping,
    /// The longest rings that the memory has room for.
    pub(super) room: Geometry,
    /// Whether this side has made the memory.
    pub(super) is_own: bool,
}

/// What both hellos of a connection have agreed on.
pub(super) struct Accepted {
    pub(super) offer: HelloOffer,
    pub(super) pair: PairMemory,
    pub(super) hello: VerifiedHello,
}

/// What a hello has brought, after everything in it was checked.
pub(super) struct VerifiedHello {
    doorbell: Arc<Doorbell>,
    pub(super) geometry: Geometry,
    message_max: u32,
    fragmented_max: usize,
    doorbell_bit: DoorbellBit,
    takes_offers: bool,
    makes_barriers: bool,
    pidfd: Option<OwnedFd>,
    process: Option<ReadableProcess>,
    waker: PeerWaker,
    /// The process to count the connection for; `None` if the connection is not to be counted.
    pub(super) counted_for: Option<CallingProcess>,
    read_mode: ReadMode,
    memory: Option<PeerMemory>,
}

/// Checks that the process at the other end is the one that a hello's address names.
fn verify_sender(
    local: &LocalEnd,
    sender: Credentials,
    hello: &Hello,
) -> Result<ShmName, Rejection> {
    let misbehaved = Rejection::misbehaved;
    let name = local.check_route(&hello.address).and_then(|()| ShmName::parse(&hello.address));
    let name = name.map_err(|_| misbehaved("a hello with an unusable address"))?;
    if !name.is_process(&local.name, sender.pid) {
        return Err(misbehaved("a process claims the address of another process"));
    }
    Ok(name)
}

/// Checks everything that a hello claims, and the descriptors of the packet that brought it. The
/// sender is checked first, so a shortage is reported for a connection to this sender. Also returns
/// the memory of the pair, which a first hello brings.
pub(super) fn verify(
    local: &LocalEnd,
    socket: &OwnUsersSocket,
    hello: &Hello,
    packet: Packet,
    kind: HelloKind,
) -> Result<(VerifiedHello, Option<Mapping>), Rejection> {
    let misbehaved = Rejection::misbehaved;
    let system = |error: io::Error| Rejection::failed(&error);
    let sender = socket.sender;
    let name = verify_sender(local, sender, hello)?.waker_name();
    if packet.lacks_descriptors {
        return Err(Rejection::shortage(Shortage::Descriptors));
    }
    let (pair_bytes, room) = match kind {
        HelloKind::First { room } => (Some(hello.geometry.pair_bytes()), room),
        HelloKind::Answer { room } if hello.geometry > room => {
            return Err(misbehaved("an answer with longer rings than were offered"));
        }
        HelloKind::Answer { room } => (None, room),
    };
    let device_bytes = hello.memory.map(|it| usize::try_from(it.length).unwrap_or(0));
    let lengths: Vec<_> =
        pair_bytes.into_iter().chain([doorbell::LENGTH_BYTES]).chain(device_bytes).collect();
    // Mapped memory needs no descriptor, so the descriptors are closed here: the process may have
    // few.
    let mut memories = SealedMemory::from_peer(packet.fds, &lengths).map_err(misbehaved)?;
    let mut map = || {
        let sealed = memories.next().or_bug("there are as many memories as lengths");
        sealed.map_err(Rejection::bug)?.map().map_err(system)
    };
    let pair = pair_bytes.map(|_| map()).transpose()?;
    let doorbell = Doorbell::new(map()?);
    let doorbell = doorbell.ok_or(Rejection::unreachable(libc::EINVAL))?;
    let mut memory = None;
    if let (Some(offered), Some(sealed)) = (hello.memory, memories.next()) {
        memory = map_memory(local, &sealed, offered, hello);
    }
    let pid = sender.pid;
    let pidfd = match socket::peer_pidfd(socket.as_fd(), sender) {
        Ok(pidfd) => Some(pidfd),
        Err(error) if shortage_of(&error).is_some() => return Err(system(error)),
        // The process isn't in this pid namespace, or the kernel forbids it.
        Err(_) => None,
    };
    let nonce_address = hello.nonce_address;
    let nonce = hello.nonce;
    let process = ReadableProcess { pid, nonce_address, nonce };
    let process = (pid.0 > 0 && pidfd.is_some()).then_some(process);
    let (read_mode, fragmented_max) = choose_read_mode(local, process);
    if local.config.read == ReadPolicy::Direct && read_mode != ReadMode::Direct {
        return Err(Rejection {
            answer: HelloRefusal::Invalid,
            reason: DownReason::Unreachable { errno: libc::EACCES },
        });
    }
    let geometry = hello.geometry.min(room);
    let verified = VerifiedHello {
        doorbell: Arc::new(doorbell),
        geometry,
        message_max: hello.message_max.min(geometry.message_max()),
        fragmented_max: if hello.takes_fragments { fragmented_max } else { 0 },
        doorbell_bit: hello.doorbell_bit,
        takes_offers: hello.takes_offers,
        makes_barriers: hello.makes_barriers,
        counted_for: CallingProcess::of(pid, pidfd.as_ref().map(AsFd::as_fd)),
        pidfd,
        process,
        waker: PeerWaker { from: Arc::clone(&local.waker), name, key: hello.wake_key },
        read_mode,
        memory,
    };
    Ok((verified, pair))
}

/// Maps the memory of a peer's device. `None` if the peer's is longer than this worker's own may
/// be, which bounds the address space that peers take, or if there is no room for it: the peer's
/// memory is read in other ways then.
fn map_memory(
    local: &LocalEnd,
    memory: &SealedMemory,
    offered: OfferedMemory,
    hello: &Hello,
) -> Option<PeerMemory> {
    let own = local.arena.as_ref()?;
    let mapping = (offered.length <= own.length() as u64).then(|| memory.map_of_peer().ok());
    PeerMemory::new(mapping??, offered, hello.doorbell_bit)
}

/// Direct reads, if the peer's nonce can be read at the address that its hello gives. Also returns
/// the largest message that takes longer to be read than to be sent in fragments.
fn choose_read_mode(local: &LocalEnd, process: Option<ReadableProcess>) -> (ReadMode, usize) {
    match process {
        Some(process) if local.config.read != ReadPolicy::Copied && process.has_nonce() => {
            (ReadMode::Direct, *local.fragmented_max.get_or_init(longest_in_fragments))
        }
        _ => (ReadMode::Copied, usize::MAX),
    }
}

/// The largest message that takes longer to be read than to be sent in fragments. A read takes as
/// long between any two workers of a machine, so a read of this process' own memory is timed.
fn longest_in_fragments() -> usize {
    let own = OwnNonce::new().map(|nonce| (nonce.address_and_bytes(), nonce));
    let Ok(((nonce_address, nonce), _own)) = own else { return usize::MAX };
    let process = ReadableProcess { pid: Pid::own(), nonce_address, nonce };
    let mut shortest = Duration::MAX;
    for _ in 0..TIMED_READS {
        let start = Instant::now();
        if process.has_nonce() {
            shortest = shortest.min(start.elapsed());
        }
    }
    let nanoseconds = usize::try_from(shortest.as_nanos()).unwrap_or(usize::MAX);
    let bytes_per_nanosecond = if streaming::is_faster_here() {
        STREAMED_BYTES_PER_NANOSECOND
    } else {
        FRAGMENTED_BYTES_PER_NANOSECOND
    };
    nanoseconds.saturating_mul(bytes_per_nanosecond)
}

impl HandshakeStep<'_> {
    /// Makes the connection, after both sides have sent a hello and the peer's hello was verified.
    pub(super) fn establish(&mut self, peer: PeerId, socket: PeerSocket, accepted: Accepted) {
        let HandshakeStep { local, connections, .. } = self;
        let Accepted { offer, pair, hello } = accepted;
        let rings = Ring::pair(pair.memory, pair.room, hello.geometry);
        let [mut inbound, mut outbound] = match rings.or_bug("the memory of a pair has its length")
        {
            Ok(rings) => rings,
            Err(bug) => {
                connections.watcher.forget(socket.as_fd());
                connections.inboxes.release(offer.bit);
                return connections.finish(peer, DownReason::Bug(bug));
            }
        };
        if !pair.is_own {
            std::mem::swap(&mut inbound, &mut outbound);
        }
        socket.refuse_descriptors();
        // The side that connects has watched its socket since it sent the hello.
        let ends = EndDescriptors {
            socket,
            pidfd: hello.pidfd,
            is_socket_watched: pair.is_own,
            is_pidfd_watched: false,
        };
        let lifeline = Lifeline::new(peer, ends);
        connections.lifelines.add(&lifeline, &connections.watcher);
        let waker = hello.waker;
        let own_nonce = offer.nonce;
        let process = hello.process;
        let piggyback = Arc::<Piggyback>::default();
        let consumer =
            Consumer::new(inbound.clone(), local.config.message_max, Arc::clone(&piggyback));
        connections.inboxes.insert(offer.bit, consumer, peer);
        let carrying =
            Carrying::new(local.config.learns, local.config.sends_fragments, hello.fragmented_max);
        let limits = Limits {
            message_max: hello.message_max as usize,
            fragmented_max: carrying.fragmented_max(),
        };
        let connection = Connection {
            producer: Producer::new(outbound, piggyback)
                .with_ways(local.config.pinned_laps(), local.config.streams),
            message_max: hello.message_max,
            is_fenced: !(local.hears_barriers && hello.makes_barriers),
            doorbell: hello.doorbell,
            doorbell_bit: hello.doorbell_bit,
            inbox: offer.bit,
            other_end: Some(OtherEnd { lifeline, waker, own_nonce, process }),
            eventfd: None,
            counted_for: hello.counted_for,
            read_mode: hello.read_mode,
            memory: hello.memory,
            copied: CopiedReads::default(),
            inbound,
            takes_offers: hello.takes_offers,
            offers: 0,
            is_offering: false,
            carrying,
            sharing: Sharing::new(local.config.pinned_sharing()),
        };
        connections.regions.note_begin(&connection);
        connections.peers.replace(peer, PeerState::Up(Box::new(connection)));
        connections.events.push_back(Event::PeerUp { peer, limits });
        connections.needs_attention = true;
    }
}
