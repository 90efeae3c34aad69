//! Runs the parts of all threads at once: a single one on the calling thread, several on threads of
//! their own.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::MeasureError;
use super::thread::{Span, ThreadPart};
use crate::link::{Access, Link, LinkError, Local, Shared};

/// A worker's handle that knows how many threads may use it.
pub(crate) trait RunThreads: Access {
    /// Runs `work` for every part at the same time; returns the interval of each.
    fn run_on_all(
        link: &Link<Self>,
        parts: &mut [ThreadPart<Self>],
        work: impl Fn(&mut ThreadPart<Self>, &Link<Self>) -> Result<Span, MeasureError> + Sync,
    ) -> Result<Vec<Span>, MeasureError>;
}

impl RunThreads for Local {
    fn run_on_all(
        link: &Link<Self>,
        parts: &mut [ThreadPart<Self>],
        work: impl Fn(&mut ThreadPart<Self>, &Link<Self>) -> Result<Span, MeasureError> + Sync,
    ) -> Result<Vec<Span>, MeasureError> {
        parts.iter_mut().map(|part| work(part, link)).collect()
    }
}

/// Added to the gate when a thread can't be started: the threads that wait at the gate then return.
const CLOSED: usize = usize::MAX / 2;

impl RunThreads for Shared {
    fn run_on_all(
        link: &Link<Self>,
        parts: &mut [ThreadPart<Self>],
        work: impl Fn(&mut ThreadPart<Self>, &Link<Self>) -> Result<Span, MeasureError> + Sync,
    ) -> Result<Vec<Span>, MeasureError> {
        if let [part] = parts {
            return Ok(vec![work(part, link)?]);
        }
        let count = parts.len();
        let gate = AtomicUsize::new(0);
        // Starting a thread takes long compared with a measured interval, so all threads wait for
        // the last.
        let enter = || {
            gate.fetch_add(1, Ordering::AcqRel);
            loop {
                match gate.load(Ordering::Acquire) {
                    waiting if waiting >= CLOSED => return false,
                    waiting if waiting >= count => return true,
                    _ => std::thread::yield_now(),
                }
            }
        };
        let work = &work;
        let enter = &enter;
        let gate = &gate;
        let mut results: Vec<Result<Span, _>> = std::thread::scope(|scope| {
            let run = |part| move || if enter() { work(part, link) } else { Err(no_thread("")) };
            let spawn = |part| {
                let thread = std::thread::Builder::new().name("measuring".into());
                thread.spawn_scoped(scope, run(part)).inspect_err(|_| {
                    gate.fetch_add(CLOSED, Ordering::AcqRel);
                })
            };
            let threads: Vec<_> = parts.iter_mut().map(spawn).collect();
            let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| {
                let thread = thread.map_err(|error| no_thread(&error.to_string()))?;
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        // An error that only says that the other side wants attention, or is gone, tells least:
        // another one is preferred.
        let vague = |error: &MeasureError| {
            matches!(error, MeasureError::Link(LinkError::Attention | LinkError::PeerDown(_)))
        };
        let is_precise = |result: &_| matches!(result, Err(error) if !vague(error));
        if let Some(at) = results.iter().position(is_precise) {
            results.swap(0, at);
        }
        results.into_iter().collect()
    }
}

fn no_thread(why: &str) -> MeasureError {
    MeasureError::Thread(why.to_owned())
}
