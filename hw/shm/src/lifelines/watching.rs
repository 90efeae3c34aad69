//! A thread that watches how connections end. It has a descriptor table of its own, so the sockets
//! and pidfds that it has been given take no descriptor of the program.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, mem};

use tagmatch_device::{DownReason, Shortage};
use tagmatch_os::event::{self, BATCH, Epoll};
use tagmatch_os::own_table;
use tagmatch_os::process;
use tagmatch_os::sleep::{self, EventFd};
use tagmatch_os::socket::{self, LastWord};

use super::lifeline::{Lifeline, reason_of};
use super::orders::{LifelineOrder, LifelineThread, OrderQueue, lock};

const STACK_BYTES: usize = 64 << 10;
const HOUR: Duration = Duration::from_secs(3600);

/// EndDescriptors of a thread beside those of lifelines, with some to spare.
const OTHERS: u64 = 16;
/// EndDescriptors of a lifeline.
const OF_A_LINK: u64 = 2;

/// A lifeline that has ended, and why.
pub(crate) type EndReport = (Arc<Lifeline>, DownReason);

/// What the worker and its threads share.
#[derive(Default)]
pub(crate) struct EndReports(Mutex<Vec<EndReport>>);

impl EndReports {
    /// The ends that were seen since the last call.
    pub(crate) fn take(&self) -> Vec<EndReport> {
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
    let room = limit.saturating_sub(OTHERS) / OF_A_LINK;
    let (running, ended) = mpsc::channel();
    let (queue, reports) = (Arc::clone(&orders), Arc::clone(reports));
    let kept = [there.as_fd(), epoll.as_fd(), reported.as_fd()];
    let body = move |[packets, epoll, reported]: [OwnedFd; 3]| {
        let (epoll, reported) = (Epoll::from(epoll), EventFd::from(reported));
        let lifelines = Vec::new();
        Watching { packets, epoll, reported, queue, reports, lifelines, _running: running }.run();
    };
    // SAFETY: `Watching` gives no descriptor away, and receives from sockets without their
    // descriptors, so that nothing is left to the thread that closes in the background.
    unsafe { own_table::spawn("tagmatch-ends", STACK_BYTES, kept, body) }?;
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    Ok(Arc::new(LifelineThread::new(packets, orders, room, ended)))
}

/// A lifeline, with its descriptors in this thread's table.
struct WatchedLifeline {
    lifeline: Arc<Lifeline>,
    socket: OwnedFd,
    pidfd: Option<OwnedFd>,
    has_ended: bool,
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
    _running: Sender<()>,
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

    /// Does what the worker has told. Returns whether the thread is to end.
    fn obey(&mut self) -> bool {
        loop {
            let queue = Arc::clone(&self.queue);
            let mut orders = lock(&queue);
            let order = orders.pop_front();
            if order.is_none() {
                // No order comes while the queue is locked: these packets have no descriptors.
                while socket::receive(self.packets.as_fd(), &mut [0]).is_ok() {}
                return false;
            }
            drop(orders);
            match order {
                Some(LifelineOrder::Take(lifeline)) => self.take(lifeline),
                Some(LifelineOrder::Bye(lifeline)) => {
                    if let Some(watched) =
                        self.find(&lifeline).and_then(|at| self.lifelines[at].as_ref())
                    {
                        socket::send_bye(&watched.socket);
                    }
                }
                Some(LifelineOrder::Close(lifeline)) => {
                    if let Some(at) = self.find(&lifeline) {
                        self.lifelines[at]
                            .take()
                            .into_iter()
                            .for_each(|watched| self.close(watched));
                    }
                }
                Some(LifelineOrder::Stop) => {
                    for watched in mem::take(&mut self.lifelines).into_iter().flatten() {
                        self.close(watched);
                    }
                    return true;
                }
                None => {}
            }
        }
    }

    /// Watches a lifeline, whose descriptors come with the next packet that has some.
    fn take(&mut self, lifeline: Arc<Lifeline>) {
        let mut lacks_descriptors = false;
        let mut fds = loop {
            let Ok(packet) = socket::receive(self.packets.as_fd(), &mut [0]) else { break vec![] };
            lacks_descriptors = packet.lacks_descriptors;
            let fds = packet.fds.into_checked();
            if lacks_descriptors || !fds.is_empty() {
                break fds;
            }
        }
        .into_iter();
        let Some(socket) = fds.next().filter(|_| !lacks_descriptors) else {
            // The limit was lowered since the thread started.
            return self.report(lifeline, DownReason::Shortage(Shortage::Descriptors));
        };
        let watched = WatchedLifeline { lifeline, socket, pidfd: fds.next(), has_ended: false };
        let at = self.lifelines.iter().position(Option::is_none).unwrap_or(self.lifelines.len());
        let number = 2 * at as u64 + 1;
        let pidfd = watched.pidfd.as_ref().map(|fd| self.epoll.watch(fd.as_fd(), number + 1));
        let socket = self.epoll.watch(watched.socket.as_fd(), number);
        if socket.and(pidfd.unwrap_or(Ok(()))).is_err() {
            let reason = DownReason::Shortage(Shortage::Memory);
            self.report(Arc::clone(&watched.lifeline), reason);
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

    /// Looks whether a lifeline has ended.
    fn look(&mut self, at: usize) {
        let Some(Some(watched)) = self.lifelines.get_mut(at) else { return };
        let is_dead = watched.pidfd.as_ref().is_some_and(|fd| event::is_readable(fd.as_fd()));
        // The place may have another lifeline than the one that was reported.
        let Some(reason) = reason_of(socket::last_word(watched.socket.as_fd()), is_dead) else {
            return;
        };
        if mem::replace(&mut watched.has_ended, true) {
            return;
        }
        let lifeline = Arc::clone(&watched.lifeline);
        if let Some(Some(watched)) = self.lifelines.get(at) {
            self.forget(watched);
        }
        self.report(lifeline, reason);
    }

    fn report(&self, lifeline: Arc<Lifeline>, reason: DownReason) {
        lifeline.note_end();
        lock(&self.reports.0).push((lifeline, reason));
        self.reported.signal();
    }

    /// Watches the descriptors of a lifeline no more.
    fn forget(&self, watched: &WatchedLifeline) {
        self.epoll.forget(watched.socket.as_fd());
        watched.pidfd.iter().for_each(|pidfd| self.epoll.forget(pidfd.as_fd()));
    }

    fn close(&self, watched: WatchedLifeline) {
        self.forget(&watched);
        let WatchedLifeline { socket, .. } = watched;
        socket::shut_down(&socket);
        // Before Linux 6.16 a peer can send descriptors, and closing those may block. The socket
        // stays in this thread's table then.
        if socket::last_word(socket.as_fd()) == LastWord::Nonsense {
            mem::forget(socket);
        }
    }
}
