//! The wires between the programs' parts of the device: who has which queue pair.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use super::dice::Dice;
use super::disorder::Disorder;
use super::packet::{Body, Packet};
use super::ports::Ports;
use crate::boundary::Call;
use crate::fault::FaultKind;
use crate::roce::link::{ArrivedPacket, PacketLink, WirePath};
use crate::roce::packet::RocePacket;
use crate::settings::Settings;

/// Bytes of datagrams that may wait for one program. More are lost, as on a network.
const DATAGRAMS_MAX: usize = 4 << 20;
/// Bytes of messages that may be under way between all programs, unless there is only one message.
const UNDER_WAY_MAX: usize = 256 << 20;

/// What a program's part of the device is told.
#[derive(Debug)]
pub(crate) enum Letter {
    Packet(Packet),
    /// A packet has come over a network.
    Arrived(Box<ArrivedPacket>),
    Call(Call),
    /// A fault of one device, or of all.
    Fault(Option<usize>, FaultKind),
    /// The process has ended, or the device ends.
    End,
}

/// The inbox of a program's part of the device. (A channel of the standard library would give its
/// processor up again and again before it sleeps, and then wait for the programs' turns.)
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox(Arc<Letters>);

#[derive(Debug, Default)]
struct Letters {
    waiting: Mutex<VecDeque<Letter>>,
    came: Condvar,
    /// Bytes of datagrams, and of packets of networks, that wait.
    datagrams: AtomicUsize,
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Letter>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, letter: Letter) {
        let mut waiting = self.waiting();
        waiting.push_back(letter);
        let is_first = waiting.len() == 1;
        drop(waiting);
        if is_first {
            self.0.came.notify_one();
        }
    }

    /// The next letter.
    pub(crate) fn take(&self) -> Option<Letter> {
        self.waiting().pop_front()
    }

    /// Sleeps until there is a letter, or for so long.
    pub(crate) fn sleep(&self, limit: Duration) {
        let waiting = self.waiting();
        if waiting.is_empty() {
            drop(self.0.came.wait_timeout(waiting, limit));
        }
    }

    /// A datagram was taken out.
    pub(crate) fn taken(&self, bytes: usize) {
        self.0.datagrams.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The numbers of all queue pairs, over all devices and programs.
#[derive(Debug, Default)]
pub(crate) struct Fabric {
    queue_pairs: RwLock<HashMap<u32, Inbox>>,
    last: AtomicU32,
    under_way: Arc<AtomicUsize>,
    pub(crate) ports: Ports,
    disorder: Disorder,
    /// Which registrations fail is drawn apart, so that it depends on no packet.
    pub(crate) registrations: Dice,
    link: OnceLock<Box<dyn PacketLink>>,
}

/// Bytes of a message that is under way, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Fabric {
    /// Wires on which packets are lost as the knobs say.
    pub(crate) fn new(settings: &Settings) -> Self {
        let disorder = Disorder::new(settings);
        let registrations = Dice::new(settings.model.seed);
        Fabric { disorder, registrations, ..Fabric::default() }
    }

    /// The number of a new queue pair: 0 and 1 have a meaning of their own, and are never given.
    pub(crate) fn add(&self, inbox: &Inbox) -> u32 {
        let mut all = self.queue_pairs.write().unwrap_or_else(PoisonError::into_inner);
        loop {
            let number = 0x100 + self.last.fetch_add(1, Ordering::Relaxed) % 0xff_f000;
            if let Entry::Vacant(free) = all.entry(number) {
                free.insert(inbox.clone());
                return number;
            }
        }
    }

    /// A queue pair whose removal was undone.
    pub(crate) fn restore(&self, number: u32, inbox: &Inbox) {
        let mut all = self.queue_pairs.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(number, inbox.clone());
    }

    pub(crate) fn remove(&self, number: u32) {
        self.queue_pairs.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// Sends a packet. One to a queue pair that nobody has is lost.
    pub(crate) fn send(&self, packet: Packet) {
        if !self.ports.passes(packet.from_lid) || self.disorder.loses() {
            return;
        }
        let all = self.queue_pairs.read().unwrap_or_else(PoisonError::into_inner);
        let Some(inbox) = all.get(&packet.to) else { return };
        if let Body::Datagram { message, .. } = &packet.body {
            let bytes = message.bytes.len();
            if inbox.0.datagrams.fetch_add(bytes, Ordering::Relaxed) > DATAGRAMS_MAX {
                inbox.taken(bytes);
                return;
            }
        }
        inbox.put(Letter::Packet(packet));
    }

    /// Connects a network, once.
    pub(crate) fn connect(&self, link: Box<dyn PacketLink>) {
        let _ = self.link.set(link);
    }

    /// Sends a packet out, from the port of a device.
    pub(crate) fn send_out(&self, lid: u16, path: &WirePath, packet: &RocePacket) {
        if self.ports.passes(lid)
            && let Some(link) = self.link.get()
        {
            self.disorder.send(link.as_ref(), path, packet);
        }
    }

    /// Sends packets that were held back long enough.
    pub(crate) fn send_late(&self) {
        if let Some(link) = self.link.get() {
            self.disorder.send_late(link.as_ref());
        }
    }

    /// Bytes that a packet of a network takes while it waits for a program.
    pub(crate) fn room_of(arrived: &ArrivedPacket) -> usize {
        arrived.packet.data.len() + size_of::<ArrivedPacket>()
    }

    /// A packet has come over a network. One for a queue pair that nobody has is lost, and so are
    /// packets of which too many wait.
    pub(crate) fn arrive(&self, arrived: ArrivedPacket) {
        if !self.ports.passes(arrived.lid) {
            return;
        }
        let all = self.queue_pairs.read().unwrap_or_else(PoisonError::into_inner);
        let Some(inbox) = all.get(&arrived.packet.to) else { return };
        let bytes = Self::room_of(&arrived);
        if inbox.0.datagrams.fetch_add(bytes, Ordering::Relaxed) > DATAGRAMS_MAX {
            inbox.taken(bytes);
            return;
        }
        inbox.put(Letter::Arrived(Box::new(arrived)));
    }

    /// Takes room for a message of so many bytes; `None`: later.
    pub(crate) fn take_room(&self, bytes: usize) -> Option<UnderWay> {
        let before = self.under_way.fetch_add(bytes, Ordering::Relaxed);
        let taken = UnderWay { bytes, all: Arc::clone(&self.under_way) };
        (before == 0 || before + bytes <= UNDER_WAY_MAX).then_some(taken)
    }
}
