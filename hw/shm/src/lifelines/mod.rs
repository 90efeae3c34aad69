//! The lifelines of a worker: which of them it watches itself, and the threads that watch the
//! others.

pub(crate) mod lifeline;
mod orders;
mod watching;

use std::mem::take;
use std::os::fd::AsFd;
use std::sync::Arc;

use tagmatch_device::{DownReason, PeerId};
use tagmatch_os::sleep::EventFd;

use crate::watcher::{Watched, Watcher};
use lifeline::Lifeline;
use orders::LifelineThread;
use watching::EndReports;

/// A worker with more lifelines than this leaves them to threads.
const HERE_MAX: usize = 4;

/// The lifelines of a worker.
pub(crate) struct Lifelines {
    /// The lifelines whose descriptors are in the program's table.
    here: Vec<Arc<Lifeline>>,
    /// The lifelines of `here` that are not watched yet.
    new: Vec<Arc<Lifeline>>,
    threads: Option<Threads>,
    /// The system gives no thread with a descriptor table of its own.
    is_alone: bool,
}

/// The threads that watch lifelines, and what they tell.
struct Threads {
    all: Vec<Arc<LifelineThread<Lifeline>>>,
    reports: Arc<EndReports>,
    reported: Arc<EventFd>,
}

impl Threads {
    fn new(watcher: &Watcher) -> std::io::Result<Self> {
        let reported = Arc::new(EventFd::new()?);
        watcher.watch(reported.as_fd(), Watched::Reports)?;
        Ok(Threads { all: Vec::new(), reports: Arc::default(), reported })
    }

    /// A thread that can take another lifeline.
    fn with_room(&mut self) -> std::io::Result<Arc<LifelineThread<Lifeline>>> {
        if let Some(thread) = self.all.iter().find(|thread| thread.has_room()) {
            return Ok(Arc::clone(thread));
        }
        let thread = watching::start(&self.reports, &self.reported)?;
        self.all.push(Arc::clone(&thread));
        Ok(thread)
    }
}

impl Lifelines {
    pub(crate) fn new() -> Self {
        Lifelines { here: Vec::new(), new: Vec::new(), threads: None, is_alone: false }
    }

    /// Takes a new lifeline. [`Lifelines::watch_new`] must follow.
    pub(crate) fn add(&mut self, lifeline: &Arc<Lifeline>, watcher: &Watcher) {
        self.here.push(Arc::clone(lifeline));
        self.new.push(Arc::clone(lifeline));
        // Few descriptors wait in the program's table.
        if self.new.len() >= HERE_MAX {
            self.watch_new(watcher);
        }
    }

    /// Watches the new lifelines. A thread is woken once for several.
    pub(crate) fn watch_new(&mut self, watcher: &Watcher) {
        if self.here.len() > HERE_MAX && !self.is_alone && !self.new.is_empty() {
            self.leave_to_threads(watcher);
        }
        // One that can't be watched now, for want of memory, is tried again at the next call.
        self.new.retain(|lifeline| !watch_here(lifeline, watcher));
    }

    fn leave_to_threads(&mut self, watcher: &Watcher) {
        if self.threads.is_none() {
            self.threads = Threads::new(watcher).ok();
        }
        let Some(threads) = &mut self.threads else { return };
        let is_alone = &mut self.is_alone;
        let new = &mut self.new;
        self.here.retain(|lifeline| {
            // A lifeline that the thread can't take now is tried again with the next one.
            let Ok(thread) = threads.with_room() else {
                *is_alone = threads.all.is_empty();
                return true;
            };
            unwatch_here(lifeline, watcher);
            let is_moved = lifeline.move_to(&thread);
            if !is_moved && !new.iter().any(|other| Arc::ptr_eq(other, lifeline)) {
                new.push(Arc::clone(lifeline));
            }
            !is_moved
        });
    }

    /// Watches a lifeline no more, after its end was noticed.
    pub(crate) fn unwatch(&mut self, lifeline: &Arc<Lifeline>, watcher: &Watcher) {
        unwatch_here(lifeline, watcher);
        for all in [&mut self.here, &mut self.new] {
            all.retain(|other| !Arc::ptr_eq(other, lifeline));
        }
    }

    /// For tests: the errors in the books. `all` has the lifelines of all connections.
    pub(crate) fn audit(&self, all: &[&Arc<Lifeline>]) -> Vec<String> {
        let mut wrong = Vec::new();
        for thread in self.threads.iter().flat_map(|threads| &threads.all) {
            let given = all.iter().filter(|lifeline| lifeline.is_watched_by(thread)).count();
            let taken = thread.taken();
            if taken != given {
                wrong.push(format!("a thread counts {taken} lifelines, and has {given}"));
            }
        }
        let is_in = |list: &[Arc<Lifeline>], lifeline| {
            list.iter().any(|other| Arc::ptr_eq(other, lifeline))
        };
        let here = self.here.iter();
        let lost = here.filter(|lifeline| !all.iter().any(|other| Arc::ptr_eq(other, lifeline)));
        wrong.extend(lost.map(|lost| format!("{:?} is watched after its end", lost.peer())));
        let lost = self.new.iter().filter(|lifeline| !is_in(&self.here, lifeline));
        wrong.extend(lost.map(|lost| format!("{:?} waits to be watched elsewhere", lost.peer())));
        wrong
    }

    /// The ends that threads have seen since the last call.
    pub(crate) fn reports(&self) -> Vec<(PeerId, DownReason)> {
        self.threads.as_ref().map_or_else(Vec::new, |threads| {
            threads.reported.clear();
            threads.reports.take()
        })
    }
}

impl Drop for Lifelines {
    /// Ends the threads, after they have carried out all orders.
    fn drop(&mut self) {
        for thread in self.threads.iter().flat_map(|threads| &threads.all) {
            thread.stop();
        }
    }
}

/// Watches a lifeline whose descriptors are in the program's table. `false` if that fails.
fn watch_here(lifeline: &Lifeline, watcher: &Watcher) -> bool {
    let mut is_watched = true;
    lifeline.watch_here(|ends| {
        if !ends.is_socket_watched {
            let what = Watched::Socket(lifeline.peer());
            ends.is_socket_watched = watcher.watch(ends.socket.as_fd(), what).is_ok();
        }
        if let Some(pidfd) = &ends.pidfd
            && !ends.is_pidfd_watched
        {
            let what = Watched::Process(lifeline.peer());
            ends.is_pidfd_watched = watcher.watch(pidfd.as_fd(), what).is_ok();
        }
        is_watched = ends.is_socket_watched && (ends.is_pidfd_watched || ends.pidfd.is_none());
    });
    is_watched
}

fn unwatch_here(lifeline: &Lifeline, watcher: &Watcher) {
    lifeline.watch_here(|ends| {
        if take(&mut ends.is_socket_watched) {
            watcher.forget(ends.socket.as_fd());
        }
        let was_watched = take(&mut ends.is_pidfd_watched);
        if let Some(pidfd) = ends.pidfd.as_ref().filter(|_| was_watched) {
            watcher.forget(pidfd.as_fd());
        }
    });
}
