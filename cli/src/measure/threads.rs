//! All lanes of a side at once: one on the thread that is there, more on threads of their own.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::MeasureError;
use super::thread::{Lane, Span};
use crate::link::{Access, Link, LinkError, Local, Shared};

/// A worker's handle that knows how many threads may use it.
pub(crate) trait Handle: Access {
    /// Runs `work` for every lane at the same time; gives the interval of each.
    fn at_once(
        link: &Link<Self>,
        lanes: &mut [Lane<Self>],
        work: impl Fn(&mut Lane<Self>, &Link<Self>) -> Result<Span, MeasureError> + Sync,
    ) -> Result<Vec<Span>, MeasureError>;
}

impl Handle for Local {
    fn at_once(
        link: &Link<Self>,
        lanes: &mut [Lane<Self>],
        work: impl Fn(&mut Lane<Self>, &Link<Self>) -> Result<Span, MeasureError> + Sync,
    ) -> Result<Vec<Span>, MeasureError> {
        lanes.iter_mut().map(|lane| work(lane, link)).collect()
    }
}

/// Added to the gate when a thread can't be had: those that wait there go home.
const CLOSED: usize = usize::MAX / 2;

impl Handle for Shared {
    fn at_once(
        link: &Link<Self>,
        lanes: &mut [Lane<Self>],
        work: impl Fn(&mut Lane<Self>, &Link<Self>) -> Result<Span, MeasureError> + Sync,
    ) -> Result<Vec<Span>, MeasureError> {
        if let [lane] = lanes {
            return Ok(vec![work(lane, link)?]);
        }
        let (count, gate) = (lanes.len(), AtomicUsize::new(0));
        // A thread takes long to start, as measured intervals go: they all wait for the last.
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
        let (work, enter, gate) = (&work, &enter, &gate);
        let results: Vec<_> = std::thread::scope(|scope| {
            let run = |lane| move || if enter() { work(lane, link) } else { Err(no_thread("")) };
            let spawn = |lane| {
                let thread = std::thread::Builder::new().name("lane".into());
                thread.spawn_scoped(scope, run(lane)).inspect_err(|_| {
                    gate.fetch_add(CLOSED, Ordering::AcqRel);
                })
            };
            let threads: Vec<_> = lanes.iter_mut().map(spawn).collect();
            let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| {
                let thread = thread.map_err(|error| no_thread(&error.to_string()))?;
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        // Whoever was only told that something is wrong knows the least.
        let vague =
            |error: &MeasureError| matches!(error, MeasureError::Link(LinkError::Attention));
        let mut spans = Vec::with_capacity(count);
        let mut errors = Vec::new();
        for result in results {
            match result {
                Ok(span) => spans.push(span),
                Err(error) => errors.push(error),
            }
        }
        let telling = errors.iter().position(|error| !vague(error)).unwrap_or(0);
        if errors.is_empty() { Ok(spans) } else { Err(errors.swap_remove(telling)) }
    }
}

fn no_thread(why: &str) -> MeasureError {
    MeasureError::Thread(why.to_owned())
}
