//! The orders of a worker to the threads that watch its lifelines.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::panicking;

use tagmatch_os::process::Pid;
use tagmatch_os::socket;

/// One order of a worker to a thread.
pub(crate) enum LifelineOrder<L> {
    /// Watch a lifeline. Its descriptors come with the packet.
    Take(Arc<L>),
    Bye(Arc<L>),
    Close(Arc<L>),
    Stop,
}

/// The orders that the thread has not carried out, oldest first.
pub(super) type OrderQueue<L> = Arc<Mutex<VecDeque<LifelineOrder<L>>>>;

/// A thread that watches lifelines, as its worker sees it.
pub(crate) struct LifelineThread<L> {
    /// For each packet that goes in here there is an order in the queue.
    packets: OwnedFd,
    orders: OrderQueue<L>,
    /// Lifelines that the thread can take, and how many they were at first.
    room: AtomicUsize,
    room_max: usize,
    /// Until it closes, the thread runs. It says so if it ends in order.
    ended: Mutex<Receiver<()>>,
    owner: Pid,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L> LifelineThread<L> {
    /// The worker's side of a thread that can take `room` lifelines. `packets` leads to the thread,
    /// and `ended` is closed at its end.
    pub(super) fn new(
        packets: OwnedFd,
        orders: OrderQueue<L>,
        room: usize,
        ended: Receiver<()>,
    ) -> Self {
        let room_max = room;
        let room = AtomicUsize::new(room);
        let ended = Mutex::new(ended);
        LifelineThread { packets, orders, room, room_max, ended, owner: Pid::own() }
    }

    /// Whether it can take another lifeline.
    pub(crate) fn has_room(&self) -> bool {
        self.room.load(Relaxed) > 0
    }

    /// How many lifelines it has.
    pub(super) fn taken(&self) -> usize {
        self.room_max.saturating_sub(self.room.load(Relaxed))
    }

    /// Gives a lifeline to the thread. `false`: the thread can't take it now.
    pub(crate) fn take(
        &self,
        lifeline: &Arc<L>,
        socket: BorrowedFd<'_>,
        pidfd: Option<BorrowedFd<'_>>,
    ) -> bool {
        let fds: Vec<_> = [Some(socket), pidfd].into_iter().flatten().collect();
        // The thread waits for the queue, which has the order once the packet was sent.
        let mut orders = lock(&self.orders);
        let is_sent = socket::send(self.packets.as_fd(), b"t", &fds).is_ok();
        if is_sent {
            self.room.fetch_sub(1, Relaxed);
            orders.push_back(LifelineOrder::Take(Arc::clone(lifeline)));
        }
        is_sent
    }

    /// Gives an order to the thread.
    pub(crate) fn tell(&self, order: LifelineOrder<L>) {
        if self.owner != Pid::own() {
            return;
        }
        if matches!(order, LifelineOrder::Close(_)) {
            self.room.fetch_add(1, Relaxed);
        }
        lock(&self.orders).push_back(order);
        // If the socket is full, the packets in it make the thread look at the queue.
        let _ = socket::send(self.packets.as_fd(), b"c", &[]);
    }

    /// Ends the thread after it has carried out all orders, and waits for that.
    pub(crate) fn stop(&self) {
        self.tell(LifelineOrder::Stop);
        if self.owner == Pid::own() {
            let ended = lock(&self.ended);
            let is_orderly = ended.recv().is_ok();
            let _ = ended.recv();
            debug_assert!(is_orderly || panicking(), "a thread that watches ends has panicked");
        }
    }
}
