//! The worker: where sends, receives and probes begin.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use log::Level;
use tagmatch_device::contents::Contents;
use tagmatch_device::{Address, Buffer, LearnedChoice, PeerId, ReadMode};
use tagmatch_fallback::{Counters, Decision, Fault, PeerFault, Send, SendMode};
use tagmatch_soft::Tag;

use crate::access::{Access, Fixed, Local, Shared, State};
use crate::close::Close;
use crate::config::Config;
use crate::crowding::Crowding;
use crate::engine::WorkerEngine;
use crate::envelope::{Match, Peer, Received, SendOptions, Sent, Status};
use crate::error::Error;
use crate::interrupt::Interrupter;
use crate::progress_thread::ProgressThread;
use crate::request::Request;
use crate::wait::{Limit, Sleeper};

/// Numbers workers, so that a peer of one is not taken for a peer of another.
static WORKERS: AtomicU32 = AtomicU32::new(0);

/// A worker for one thread: no locks.
pub type Worker = WorkerOf<Local>;

/// A worker for many threads, under one lock. Clones are handles of the same worker.
pub type SharedWorker = WorkerOf<Shared>;

/// Where messages are sent from and received at. See [`Worker`] and [`SharedWorker`].
///
/// **Ordering.** Messages from one worker to another are matched in the order in which they were
/// sent; receives are matched in the order in which they were posted (MPI-4.1 section 3.5).
/// Completion has no order.
///
/// **Progress.** Nothing moves by itself: messages are taken in by [`progress`](Self::progress), by
/// [`Request::test`], [`Request::wait`] and polling a request as a future, by probes and by
/// blocking calls; on a [`SharedWorker`] by a [`ProgressThread`] too. No call blocks unless its
/// page says so.
///
/// **Buffers.** An operation owns its buffer until it ends, and gives it back. Blocking calls and
/// [`scope`](Self::scope) take borrowed slices.
///
/// **End.** Dropping the last handle first blocks until all messages that sends and
/// [`inject`](Self::inject) have accepted are with their peers, for at most
/// [`Config::drain_timeout`]. Then it breaks with all peers, for whom that is no fault
/// ([`PeerFault::Left`]), and requests that are still there end with an error.
/// - A small message counts as being with its peer once the device has taken it for a connected
///   peer, which can receive it also after this worker is gone. A large one, or a synchronous one,
///   counts once the peer has matched it and read it; so dropping waits for the whole time for a
///   message that its peer never receives.
/// - Messages to a peer that is down are lost. So are messages to a peer that can't be reached, or
///   that makes no progress in that time. Messages to oneself are not waited for.
/// - Two workers of one thread: while one is being dropped, nothing makes progress for the other.
/// - While a thread panics, and in a child after fork(2), dropping a worker waits for nothing. A
///   process that ends without dropping its worker loses what [`send`](Self::send) and
///   [`inject`](Self::inject) could not hand over at once, unless it has [flushed](Self::flush).
/// - [`close`](Self::close) ends a worker and tells what was lost.
///
/// **After fork(2).** A worker belongs to the process that made it. The child must not use it. It
/// may drop it, and whatever belongs to it; that does nothing. It may also call exec.
///
/// ```
/// use tagmatch::{Config, Match, Tag, Worker};
///
/// let worker = Worker::new(Config::default())?;
/// let receive = worker.recv(Match::tag(7), vec![0; 5]);
/// worker.send(worker.oneself(), Tag(7), b"hello".to_vec()).wait()?;
/// let message = receive.wait()?;
/// assert_eq!(message.data(), b"hello");
/// assert_eq!(message.status.source, worker.oneself());
/// # Ok::<(), tagmatch::Error>(())
/// ```
pub struct WorkerOf<A: Access> {
    pub(crate) access: A,
    /// Shared by the clones; the last one to go closes the worker.
    pub(crate) handle: Arc<Close<A>>,
}

impl<A: Access> WorkerOf<A> {
    /// A worker with its device, reachable from now on.
    ///
    /// # Errors
    /// A setting is out of range, or the system refused sockets or memory; the error says which.
    pub fn new(config: Config) -> Result<Self, Error> {
        // The standard library's keys come from the system's randomness and stay in this process.
        let seed = RandomState::new().build_hasher().finish();
        let mut engine = WorkerEngine::new(&config, seed)?;
        if config.peer_events {
            engine.requests_mut().tell_peers();
        }
        let worker = WORKERS.fetch_add(1, Ordering::Relaxed);
        if log::log_enabled!(Level::Debug) {
            engine.as_dyn_mut().watch_decisions(Box::new(move |decision| match decision {
                Decision::NotOffloaded(_) => log::trace!("worker {worker}: {decision}"),
                _ => log::debug!("worker {worker}: {decision}"),
            }));
        }
        let address = engine.as_dyn().address();
        if let Ok(contents) = Contents::of(&address) {
            log::debug!("worker {worker}: reached over {}", contents.networks());
        }
        let events = engine.event_descriptor().try_clone_to_owned();
        let events = events.map_err(Error::wait(address))?;
        engine.as_dyn_mut().connect(&address)?;
        let free_tag_bits = config.free_tag_bits();
        let Config { wait, drain_timeout, inject_bytes_max, .. } = config;
        let process = std::process::id();
        let interrupter = Interrupter::new();
        let fixed = Fixed {
            worker,
            address,
            wait,
            drain_timeout,
            inject_bytes_max,
            free_tag_bits,
            process,
            interrupter,
            crowding: Crowding::new(),
            events,
        };
        let access = A::new(State::new(engine), fixed);
        let close = Close { access: access.clone(), drains: true };
        Ok(WorkerOf { handle: Arc::new(close), access })
    }

    /// Where peers reach this worker. To be handed to them by any means.
    pub fn address(&self) -> Address {
        self.access.fixed().address
    }

    /// The worker at an address. Returns at once; the connection is made while the worker makes
    /// progress, and a failure ends the operations that depend on the peer. The same address gives
    /// the same peer, also if it connected first or is down, until that peer is forgotten
    /// ([`Config::departed_max`]); our own gives [`oneself`](Self::oneself).
    ///
    /// # Errors
    /// The bytes can't be an address of a device that this worker has.
    pub fn connect(&self, address: &Address) -> Result<Peer, Error> {
        let id = self.access.with(|state| state.engine.as_dyn_mut().connect(address))?;
        Ok(self.peer(id))
    }

    /// This worker as its own peer. Sending to oneself works like sending to anyone.
    pub fn oneself(&self) -> Peer {
        self.peer(PeerId::ONESELF)
    }

    /// A buffer of `length` bytes in the memory that suits the device best. Over RDMA, a buffer for
    /// a message too long to be sent eagerly is registered with the NIC and stays registered, which
    /// saves each operation a registration; one costs as much as moving some ten KiB. Over shared
    /// memory, peers map the memory of such a buffer, and read a message from it without a system
    /// call, in about half the time (`ShmConfig::device_memory_bytes` bounds it). Other devices,
    /// and a device that has no more such memory, give ordinary memory.
    ///
    /// The memory goes back to the device when the buffer is dropped, on any thread, and a later
    /// call may give it out again with its old contents. A peer that has read a large message from
    /// this memory can go on to read it; over shared memory all connected peers can read it at any
    /// time. A forked child shares it with its parent. [`raw::register`](crate::raw::register)
    /// registers memory of the caller's own.
    pub fn buffer(&self, length: usize) -> Buffer {
        self.access.with(|state| state.engine.as_dyn_mut().allocate(length))
    }

    /// Sends a message; complete when its buffer may be used again.
    #[inline]
    pub fn send(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        buffer: impl Into<Buffer>,
    ) -> Request<Sent, A> {
        self.send_with(peer, tag, buffer, SendOptions::default())
    }

    /// Sends a message; complete when it was matched and its receive has begun.
    pub fn send_sync(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        buffer: impl Into<Buffer>,
    ) -> Request<Sent, A> {
        let options = SendOptions::default().mode(SendMode::Synchronous);
        self.send_with(peer, tag, buffer, options)
    }

    /// Sends a message; complete when its bytes are in the receiver's buffer. Refused over UCX,
    /// which can't tell when that is ([`Ability::Delivered`](crate::Ability)); libfabric can.
    pub fn send_delivered(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        buffer: impl Into<Buffer>,
    ) -> Request<Sent, A> {
        let options = SendOptions::default().mode(SendMode::Delivered);
        self.send_with(peer, tag, buffer, options)
    }

    /// Sends a message in any mode, with immediate data if wanted.
    #[inline]
    pub fn send_with(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        buffer: impl Into<Buffer>,
        options: SendOptions,
    ) -> Request<Sent, A> {
        let tag = tag.into();
        let mut buffer = buffer.into();
        let SendOptions { mode, immediate, .. } = options;
        match self.own(peer) {
            Ok(peer) => {
                let message = Send { peer, tag, immediate, payload: &mut buffer };
                match self.access.with(|state| state.engine.send_from(message, mode)) {
                    None => Request::sent(buffer),
                    Some(posted) => Request::begun(&self.access, posted),
                }
            }
            Err(error) => Request::refused(error, buffer),
        }
    }

    /// Receives a message into a buffer: the oldest waiting one that matches, else the first that
    /// comes. The buffer's length is the most that is received; a longer message is truncated.
    #[inline]
    pub fn recv(&self, which: impl Into<Match>, buffer: impl Into<Buffer>) -> Request<Received, A> {
        let which = which.into();
        let buffer = buffer.into().into_parts();
        if let Err(error) = self.check(&which) {
            return Request::refused(error, buffer.into_buffer());
        }
        // No closure: its captures would be stored in memory.
        let mut state = self.access.lock();
        let posted = state.engine.receive_parts(which.pattern(), buffer, which.is_sole(), None);
        A::unlock(state);
        Request::begun(&self.access, posted)
    }

    /// Takes in the events that have come, and returns their number: at most 64, more only while
    /// other threads sleep on a shared worker. 0: nothing to do now.
    #[inline]
    pub fn progress(&self) -> usize {
        self.access.with(State::progress)
    }

    /// The address of a peer.
    ///
    /// # Errors
    /// The peer belongs to another worker, or was forgotten ([`Config::departed_max`]).
    pub fn peer_address(&self, peer: Peer) -> Result<Address, Error> {
        let id = self.own(peer)?;
        let (address, fault) = self.access.with(|state| {
            (state.engine.as_dyn().peer_address(id), state.engine.as_dyn().peer_fault(id))
        });
        address.ok_or_else(|| {
            let down = |fault| Fault::PeerDown { peer: id, fault };
            self.error(fault.map_or(Fault::NoSuchPeer { peer: id }, down))
        })
    }

    /// Why a peer is down, if it is.
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn peer_fault(&self, peer: Peer) -> Result<Option<PeerFault>, Error> {
        let id = self.own(peer)?;
        Ok(self.access.with(|state| state.engine.as_dyn().peer_fault(id)))
    }

    /// How large messages are read from a peer: straight out of its memory, or copied twice.
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn read_mode(&self, peer: Peer) -> Result<ReadMode, Error> {
        let id = self.own(peer)?;
        Ok(self.access.with(|state| state.engine.as_dyn().read_mode(id)))
    }

    /// The choices that this worker has learned for messages to and from a peer: for each class of
    /// lengths which of two ways is faster. Only shared memory learns
    /// ([`ShmConfig::learns`](crate::shm::ShmConfig#structfield.learns)); over other devices, and
    /// while the peer is not connected, the list is empty. `tagperf info --learned` prints it.
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn learned(&self, peer: Peer) -> Result<Vec<LearnedChoice>, Error> {
        let id = self.own(peer)?;
        Ok(self.access.with(|state| state.engine.as_dyn().learned(id)))
    }

    /// The transports used to reach this peer, as UCX or libfabric names them. Empty over other
    /// devices, and while the peer is not connected.
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn transports(&self, peer: Peer) -> Result<Vec<String>, Error> {
        let id = self.own(peer)?;
        Ok(self.access.with(|state| state.engine.as_dyn().transports(id)))
    }

    /// Disconnects a peer for good: the peer sees this worker go down, operations that depend on
    /// the peer end with an error here, and the two workers can't connect again before this one has
    /// forgotten the peer ([`Config::departed_max`]).
    ///
    /// # Errors
    /// The peer belongs to another worker.
    pub fn disconnect(&self, peer: Peer) -> Result<(), Error> {
        let id = self.own(peer)?;
        self.access.with(|state| state.engine.as_dyn_mut().disconnect(id));
        Ok(())
    }

    /// The counters since the worker was made.
    pub fn counters(&self) -> Counters {
        self.access.with(|state| state.engine.as_dyn().counters())
    }

    /// Sends a slice and blocks until it may be used again.
    ///
    /// # Errors
    /// The peer is down.
    pub fn send_blocking(
        &self,
        peer: Peer,
        tag: impl Into<Tag>,
        payload: &[u8],
    ) -> Result<(), Error> {
        self.scope(|scope| scope.send(peer, tag, payload).wait()).map(|_| ())
    }

    /// Receives into a slice and blocks until a message has come.
    ///
    /// # Errors
    /// The peer that the receive names is down, or the message's sender died with it.
    pub fn recv_blocking(
        &self,
        which: impl Into<Match>,
        buffer: &mut [u8],
    ) -> Result<Status, Error> {
        self.scope(|scope| scope.recv(which, buffer).wait())
    }

    /// Blocks until a message that matches is there, and receives all of it into memory that is
    /// allocated for it: a matched probe, and [`recv_whole`](crate::Message::recv_whole).
    ///
    /// # Errors
    /// As for [`mprobe_blocking`](Self::mprobe_blocking). The message's sender died with it, or
    /// there is no memory for it.
    pub fn recv_whole_blocking(&self, which: impl Into<Match>) -> Result<Received, Error> {
        Ok(self.mprobe_blocking(which)?.recv_whole().wait()?)
    }

    /// Runs a future to its end on this thread, making progress for this worker meanwhile. Blocks.
    ///
    /// For programs without an executor. The future may use several requests at once; it is polled
    /// again when one of them asks for it.
    ///
    /// # Errors
    /// The system refused the descriptor that this thread sleeps on.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        crate::request::block_on(&self.access, future)
    }

    /// Readable once there is something to do, after [`arm`](Self::arm): to be watched by poll(2),
    /// epoll(7) or an executor's reactor. A device that looks after its peers at intervals makes
    /// the descriptor readable for that too; then progress finds nothing, and the worker is armed
    /// again.
    pub fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.access.fixed().events.as_fd()
    }

    /// Asks that [`event_descriptor`](Self::event_descriptor) become readable at the next event.
    /// `false`: there is something to do already; make progress and arm again.
    pub fn arm(&self) -> bool {
        self.access.with(State::arm)
    }

    /// Whether [`event_descriptor`](Self::event_descriptor) tells of each message that no receive
    /// takes. A device that matches by itself may take it in during any call.
    #[doc(hidden)]
    pub fn reports_messages(&self) -> bool {
        self.access.with(|state| matches!(state.engine, WorkerEngine::Matching(_)))
    }

    /// Whether the completion queue has an end. Makes no progress.
    #[doc(hidden)]
    pub fn has_ends(&self) -> bool {
        self.access.with(|state| state.engine.requests().has_ends())
    }

    /// Lets a thread sleep without holding the worker; see [`Sleeper`].
    ///
    /// # Errors
    /// The system refused a descriptor ([`Error::Wait`]).
    pub fn sleeper(&self) -> Result<Sleeper, Error> {
        let fixed = self.access.fixed();
        fixed.events.try_clone().and_then(Sleeper::new).map_err(Error::wait(fixed.address))
    }

    /// Tells peers that this worker is awake. To be called after waking. Optional: without it,
    /// peers go on to make system calls that wake this worker, until its next blocking call.
    pub fn disarm(&self) {
        self.access.with(|state| {
            if state.sleepers == 0 {
                state.engine.as_dyn_mut().disarm();
            }
        });
    }

    pub(crate) fn peer(&self, id: PeerId) -> Peer {
        Peer { id, worker: self.access.fixed().worker }
    }

    #[inline]
    pub(crate) fn own(&self, peer: Peer) -> Result<PeerId, Error> {
        if peer.worker == self.access.fixed().worker {
            Ok(peer.id)
        } else {
            Err(Error::ForeignPeer { peer })
        }
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        Error::from_fault(fault, self.access.fixed().worker)
    }

    /// A handle by which another thread ends blocking calls of this worker.
    pub fn interrupter(&self) -> Interrupter {
        self.access.fixed().interrupter.clone()
    }

    pub(crate) fn limit(&self, timeout: Duration) -> Limit<'_> {
        Limit::of_call(timeout, &self.access.fixed().interrupter)
    }

    /// # Errors
    /// The peer that is named belongs to another worker.
    #[inline(always)]
    pub(crate) fn check(&self, which: &Match) -> Result<(), Error> {
        which.peer().map_or(Ok(()), |peer| self.own(peer).map(drop))
    }
}

impl SharedWorker {
    /// A thread that makes progress for this worker until it is dropped. It sleeps while there is
    /// nothing to do. It does not keep the worker from ending: drop it first, or with it.
    ///
    /// # Errors
    /// The system refused a thread or a descriptor.
    pub fn progress_thread(&self) -> std::io::Result<ProgressThread> {
        ProgressThread::spawn(self.access.clone())
    }
}

impl Clone for SharedWorker {
    fn clone(&self) -> Self {
        WorkerOf { access: self.access.clone(), handle: self.handle.clone() }
    }
}

impl<A: Access> fmt::Debug for WorkerOf<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Worker({})", self.address())
    }
}
