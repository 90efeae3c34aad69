//! A device and descriptors that the model checker can follow: no kernel, no clock, no memory of
//! others. They behave as harshly as the real ones may.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Wake;
use std::time::Duration;

use loom::sync::Notify;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::SeqCst;
use tagmatch_device::{
    Address, Buffer, Bytes, Device, DeviceError, Event, EventDescriptor, Exposure, ExposureId,
    Flush, Incoming, Join, Limits, Network, Outgoing, PeerId, PeerNumbers, ReadError, ReadMode,
    ReadRequest, Refused,
};
use tagmatch_shm::ShmConfig;

const LIMITS: Limits = Limits { message_max: 4096, fragmented_max: 0 };

std::thread_local! {
    /// All descriptors of a run, by the inode of the pipe that stands for them; the threads of a
    /// model are one thread of the system.
    static SIGNALS: RefCell<HashMap<u64, Weak<Signal>>> = RefCell::default();
}

loom::thread_local! {
    /// The notification that a thread sleeps on. A thread keeps one for its whole life, since loom
    /// wakes every new one once spuriously.
    static SLEEP: Arc<Notify> = Arc::new(Notify::new());
}

/// Whether a descriptor is readable, and the threads that sleep until it is.
struct Signal {
    is_readable: AtomicBool,
    sleepers: Mutex<Vec<Arc<Notify>>>,
}

impl Signal {
    fn set(&self) {
        self.is_readable.swap(true, SeqCst);
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sleepers.iter().for_each(|sleeper| sleeper.notify());
    }

    fn clear(&self) {
        self.is_readable.swap(false, SeqCst);
    }

    /// Reads by an exchange, since a load may return an old value.
    fn is_set(&self) -> bool {
        self.is_readable.fetch_or(false, SeqCst)
    }

    fn with_sleepers(&self, change: impl FnOnce(&mut Vec<Arc<Notify>>)) {
        change(&mut self.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A descriptor, which may be duplicated as real ones are.
struct Descriptor {
    pipe: PipeReader,
    signal: Arc<Signal>,
}

impl Descriptor {
    fn new() -> io::Result<Self> {
        let (pipe, _) = io::pipe()?;
        let sleepers = Mutex::default();
        let signal = Arc::new(Signal { is_readable: AtomicBool::new(false), sleepers });
        let inode = inode(pipe.as_fd())?;
        SIGNALS.with_borrow_mut(|signals| signals.insert(inode, Arc::downgrade(&signal)));
        Ok(Descriptor { pipe, signal })
    }
}

fn inode(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(File::from(fd.try_clone_to_owned()?).metadata()?.ino())
}

/// Stands for [`tagmatch_os::sleep::sleep_until_readable`] without a time limit, so that a lost
/// wake-up is a deadlock, which loom reports.
pub(crate) fn sleep_until_readable(fds: &[BorrowedFd<'_>], _: Duration) -> io::Result<bool> {
    let inodes = fds.iter().map(|fd| inode(*fd)).collect::<io::Result<Vec<_>>>()?;
    let signals: Vec<_> = SIGNALS
        .with_borrow(|all| inodes.iter().filter_map(|inode| all.get(inode)?.upgrade()).collect());
    assert_eq!(signals.len(), fds.len(), "a descriptor that the model doesn't know");
    let notify = SLEEP.with(Arc::clone);
    while !signals.iter().any(|signal| signal.is_set()) {
        signals.iter().for_each(|s| s.with_sleepers(|all| all.push(notify.clone())));
        if !signals.iter().any(|signal| signal.is_set()) {
            notify.wait();
        }
        let is_other = |other: &Arc<Notify>| !Arc::ptr_eq(other, &notify);
        signals.iter().for_each(|s| s.with_sleepers(|all| all.retain(is_other)));
    }
    Ok(true)
}

/// Stands for [`tagmatch_os::sleep::EventFd`].
pub(crate) struct EventFd(Descriptor);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(EventFd(Descriptor::new()?))
    }

    pub(crate) fn signal(&self) {
        self.0.signal.set();
    }

    pub(crate) fn clear(&self) {
        self.0.signal.clear();
    }
}

impl std::fmt::Debug for EventFd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventFd")
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.pipe.as_fd()
    }
}

impl Wake for EventFd {
    fn wake(self: Arc<Self>) {
        self.signal();
    }
}

/// Messages on their way to the worker: its own, and those of a process that shares no lock with
/// it.
#[derive(Default)]
struct Way {
    messages: VecDeque<Vec<u8>>,
    /// The next sender has to wake the worker. Cleared by the sender that does.
    is_armed: bool,
}

/// Stands for the shared-memory device. Its one peer is oneself.
pub(crate) struct Shm {
    way: Arc<Mutex<Way>>,
    current: Vec<u8>,
    is_up: bool,
    events: Descriptor,
}

/// Another process, which sends in our name.
pub(crate) struct OtherProcess {
    way: Arc<Mutex<Way>>,
    signal: Arc<Signal>,
}

impl OtherProcess {
    /// Takes a message off its way, to send it later.
    pub(crate) fn intercept(&self) -> Option<Vec<u8>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner).messages.pop_back()
    }

    pub(crate) fn send(&self, message: Vec<u8>) {
        deliver(&self.way, &self.signal, message);
    }
}

/// That the message is there before one looks for sleepers is checked where the doorbell is.
fn deliver(way: &Mutex<Way>, signal: &Signal, message: Vec<u8>) {
    let mut way = way.lock().unwrap_or_else(PoisonError::into_inner);
    way.messages.push_back(message);
    if std::mem::take(&mut way.is_armed) {
        drop(way);
        signal.set();
    }
}

impl Shm {
    pub(crate) fn new(_: ShmConfig) -> Result<Self, DeviceError> {
        let system = |source| DeviceError::System { call: "pipe", source, hint: "" };
        let events = Descriptor::new().map_err(system)?;
        Ok(Shm { way: Arc::default(), current: Vec::new(), is_up: false, events })
    }

    pub(crate) fn other_process(&self) -> OtherProcess {
        OtherProcess { way: self.way.clone(), signal: self.events.signal.clone() }
    }

    fn way(&self) -> std::sync::MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Join for Shm {
    fn network(&self) -> Network {
        Network::Shm
    }

    fn section(&self, _: usize) -> Vec<u8> {
        vec![0; Network::SHM_BYTES]
    }

    fn join(&mut self, _: Address, _: &PeerNumbers) {}
}

impl Device for Shm {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn address(&self) -> Address {
        Address::from_bytes(b"model").expect("five bytes")
    }

    fn connect(&mut self, _: &Address) -> Result<PeerId, DeviceError> {
        Ok(PeerId::ONESELF)
    }

    fn peer_address(&self, _: PeerId) -> Option<Address> {
        Some(self.address())
    }

    fn read_mode(&self, _: PeerId) -> ReadMode {
        ReadMode::Direct
    }

    fn send(&mut self, _: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        if !self.is_up {
            return Err(Refused::NotUp);
        }
        // Nothing is signalled: the thread that sends polls, by `has_work`.
        self.way().messages.push_back([message.header, message.payload].concat());
        Ok(())
    }

    fn expose(&mut self, _: PeerId, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        Err((buffer, DeviceError::Exhausted { what: "exposed buffer", limit: 0 }))
    }

    fn withdraw(&mut self, _: PeerId, _: ExposureId) -> Option<Buffer> {
        None
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        Err((request.into, ReadError::BadSpan))
    }

    /// Clears the descriptor, also for other threads that sleep on it: the real device reads
    /// its sockets whenever it looks.
    fn poll(&mut self) -> Option<Event<'_>> {
        self.events.signal.clear();
        if !std::mem::replace(&mut self.is_up, true) {
            return Some(Event::PeerUp { peer: PeerId::ONESELF, limits: LIMITS });
        }
        let message = self.way().messages.pop_front()?;
        self.current = message;
        let bytes = Bytes::from_slice(&self.current);
        Some(Event::Message(Incoming {
            peer: PeerId::ONESELF,
            immediate: None,
            through_list: false,
            bytes,
        }))
    }

    fn flush(&mut self, _: PeerId, _: &mut Option<u64>) -> Flush {
        Flush::Done
    }

    fn disconnect(&mut self, _: PeerId) {}

    fn close(&mut self) {}

    fn arm(&mut self, _: &[PeerId]) -> bool {
        self.events.signal.clear();
        let mut way = self.way();
        way.is_armed = way.messages.is_empty();
        way.is_armed
    }

    fn has_work(&self) -> bool {
        let way = self.way();
        way.is_armed && !way.messages.is_empty()
    }

    fn disarm(&mut self) {
        self.way().is_armed = false;
        self.events.signal.clear();
    }
}

impl EventDescriptor for Shm {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.events.pipe.as_fd()
    }
}
