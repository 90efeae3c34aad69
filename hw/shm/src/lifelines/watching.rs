//! A thread that watches how connections end. It has a descriptor table of its own, so the sockets
//! and pidfds that it has been given take no descriptor of the program.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, iter, mem};

use tagmatch_device::{DownReason, PeerId, Shortage};
use tagmatch_os::event::{self, BATCH, Epoll};
use tagmatch_os::sleep::{self, EventFd};
use tagmatch_os::{own_table, process, socket};

use super::lifeline::{Lifeline, reason_of};
use super::orders::{LifelineOrder, LifelineThread, OrderQueue, lock};

const STACK_BYTES: usize = 64 << 10;
const HOUR: Duration = Duration::from_secs(3600);

/// Descriptors of a thread beside those of lifelines, with some to spare.
const OTHERS: u64 = 16;
/// Descriptors of a lifeline.
const OF_A_LIFELINE: u64 = 2;

/// The peers whose lifelines have ended, and why, until the worker takes them.
#[derive(Default)]
pub(crate) struct EndReports(Mutex<Vec<(PeerId, DownReason)>>);

impl EndReports {
    /// The ends that were seen since the last call.
    pub(crate) fn take(&self) -> Vec<(PeerId, DownReason)> {
        mem::take(&mut *lock(&self.0))
    }
}

/// Starts a thread that puts ends into `reports`, and then signals `reported`.
///
/// # Errors
/// The system gives no thread, or no descriptor table to it.
pub(super) fn start(
    reports: &Arc<EndReports>,
    reported: &Arc<EventFd>,
) -> io::Result<Arc<LifelineThread<Lifeline>>> {
    let [packets, there] = socket::pair()?;
    let epoll = Epoll::new()?;
    let orders = OrderQueue::default();
    let limit = process::descriptor_limit().unwrap_or(u64::MAX);
    let room = limit.saturating_sub(OTHERS) / OF_A_LIFELINE;
    let (running, ended) = mpsc::channel();
    let queue = Arc::clone(&orders);
    let reports = Arc::clone(reports);
    let kept = [there.as_fd(), epoll.as_fd(), reported.as_fd()];
    let body = move |[packets, epoll, reported]: [OwnedFd; 3]| {
        let epoll = Epoll::from(epoll);
        let reported = EventFd::from(reported);
        let lifelines = Vec::new();
        Watching { packets, epoll, reported, queue, reports, lifelines, running }.run();
    };
    // SAFETY: `Watching` gives no descriptor away, looks at peers' packets without receiving their
    // descriptors, and closes by itself what the worker sends. So nothing is left to the thread
    // that closes in the background.
    unsafe { own_table::spawn("tagmatch-ends", STACK_BYTES, kept, body) }?;
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    Ok(Arc::new(LifelineThread::new(packets, orders, room, ended)))
}

/// A lifeline, with its descriptors in this thread's table.
struct WatchedLifeline {
    lifeline: Arc<Lifeline>,
    socket: OwnedFd,
    pidfd: Option<OwnedFd>,
}

/// The state of the thread.
struct Watching {
    packets: OwnedFd,
    epoll: Epoll,
    reported: EventFd,
    queue: OrderQueue<Lifeline>,
    reports: Arc<EndReports>,
    lifelines: Vec<Option<WatchedLifeline>>,
    /// Closed at the end, last.
    running: Sender<()>,
}

/// The number of the packets' socket. A lifeline's socket and pidfd have the two that belong to its
/// place.
const PACKETS: u64 = 0;

impl Watching {
    fn run(mut self) {
        if self.epoll.watch(self.packets.as_fd(), PACKETS).is_err() {
            return;
        }
        loop {
            // A signal, or the end of an hour, ends the sleep with nothing to do.
            let _ = sleep::sleep_until_readable(&[self.epoll.as_fd()], HOUR);
            let mut numbers = [0; BATCH];
            let count = self.epoll.ready(&mut numbers);
            for number in &numbers[..count] {
                if *number != PACKETS {
                    self.look(usize::try_from((number - 1) / 2).unwrap_or(usize::MAX));
                } else if self.obey() {
                    return;
                }
            }
        }
    }

    /// Carries out the worker's orders. Returns whether the thread is to end.
    fn obey(&mut self) -> bool {
        let queue = Arc::clone(&self.queue);
        loop {
            let mut orders = lock(&queue);
            let Some(order) = orders.pop_front() else {
                // No order comes while the queue is locked: these packets have no descriptors.
                while self.next_packet().is_some() {}
                return false;
            };
            drop(orders);
            match order {
                LifelineOrder::Take(lifeline) => self.take(lifeline),
                LifelineOrder::Bye(lifeline) => {
                    let at = self.find(&lifeline);
                    if let Some(watched) = at.and_then(|at| self.lifelines[at].as_ref()) {
                        socket::send_bye(&watched.socket);
                    }
                }
                LifelineOrder::Close(lifeline) => {
                    let at = self.find(&lifeline);
                    if let Some(watched) = at.and_then(|at| self.lifelines[at].take()) {
                        self.close(watched);
                    }
                }
                LifelineOrder::Stop => {
                    let mut lifelines = mem::take(&mut self.lifelines).into_iter().flatten();
                    debug_assert!(lifelines.next().is_none(), "a lifeline was not given back");
                    for watched in lifelines {
                        self.close(watched);
                    }
                    let _ = self.running.send(());
                    return true;
                }
            }
        }
    }

    /// The descriptors of the worker's next packet, and whether some of them did not get in.
    fn next_packet(&self) -> Option<(Vec<OwnedFd>, bool)> {
        loop {
            match socket::receive(self.packets.as_fd(), &mut [0]) {
                // They are the worker's: this thread closes them itself.
                Ok(packet) => return Some((packet.fds.into_checked(), packet.lacks_descriptors)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    /// Watches a lifeline, whose descriptors come with the next packet that has some.
    fn take(&mut self, lifeline: Arc<Lifeline>) {
        let with_some = |(fds, lacks): &(Vec<OwnedFd>, bool)| *lacks || !fds.is_empty();
        let packet = iter::from_fn(|| self.next_packet()).find(with_some);
        let mut fds = packet.filter(|(_, lacks)| !lacks).unwrap_or_default().0.into_iter();
        let Some(socket) = fds.next() else {
            // The limit was lowered since the thread started.
            return self.report(&lifeline, DownReason::Shortage(Shortage::Descriptors));
        };
        let watched = WatchedLifeline { lifeline, socket, pidfd: fds.next() };
        let at = self.lifelines.iter().position(Option::is_none).unwrap_or(self.lifelines.len());
        let number = 2 * at as u64 + 1;
        let pidfd = watched.pidfd.as_ref().map(|fd| self.epoll.watch(fd.as_fd(), number + 1));
        let socket = self.epoll.watch(watched.socket.as_fd(), number);
        if socket.and(pidfd.unwrap_or(Ok(()))).is_err() {
            let reason = DownReason::Shortage(Shortage::Memory);
            self.report(&watched.lifeline, reason);
        }
        if at == self.lifelines.len() {
            self.lifelines.push(None);
        }
        self.lifelines[at] = Some(watched);
    }

    fn find(&self, lifeline: &Arc<Lifeline>) -> Option<usize> {
        let is_it = |watched: &WatchedLifeline| Arc::ptr_eq(&watched.lifeline, lifeline);
        self.lifelines.iter().position(|watched| watched.as_ref().is_some_and(is_it))
    }

    /// Looks whether a lifeline has ended. Its end may be reported twice, since it has two
    /// descriptors.
    fn look(&self, at: usize) {
        let Some(Some(watched)) = self.lifelines.get(at) else { return };
        let is_dead = watched.pidfd.as_ref().is_some_and(|fd| event::is_readable(fd.as_fd()));
        // The place may have another lifeline than the one that was reported.
        if let Some(reason) = reason_of(socket::last_word(watched.socket.as_fd()), is_dead) {
            self.forget(watched);
            self.report(&watched.lifeline, reason);
        }
    }

    fn report(&self, lifeline: &Lifeline, reason: DownReason) {
        lifeline.note_end();
        lock(&self.reports.0).push((lifeline.peer(), reason));
        self.reported.signal();
    }

    /// Watches the descriptors of a lifeline no more.
    fn forget(&self, watched: &WatchedLifeline) {
        self.epoll.forget(watched.socket.as_fd());
        if let Some(pidfd) = &watched.pidfd {
            self.epoll.forget(pidfd.as_fd());
        }
    }

    fn close(&self, watched: WatchedLifeline) {
        self.forget(&watched);
        let WatchedLifeline { socket, .. } = watched;
        socket::shut_down(&socket);
        // Before Linux 6.16 a peer can send descriptors, and closing those may block. The socket
        // stays in this thread's table then.
        if !socket::holds_plain_packets(socket.as_fd()) {
            mem::forget(socket);
        }
    }
}
