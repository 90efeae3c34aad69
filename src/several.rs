//! Waiting for several requests.

use std::time::Duration;

use tagmatch_fallback::RequestId;

use crate::access::{Access, State};
use crate::awaited::Awaited;
use crate::error::Failed;
use crate::request::{Output, Request};
use crate::wait::{Limit, wait_within};
use crate::worker::WorkerOf;

/// Waiting for several requests of this worker. Each look costs as much as there are requests; the
/// completion queue ([`ends`](Self::ends)) is for programs with many, and for sends and receives
/// in one wait.
///
/// Requests whose result was taken, and requests of another worker, are ignored.
///
/// ```
/// use tagmatch::{Config, Match, Worker};
///
/// let worker = Worker::new(Config::default())?;
/// let mut receives: Vec<_> =
///     (0..3).map(|tag| worker.recv(Match::tag(tag), vec![0; 8])).collect();
/// worker.inject(worker.oneself(), 1, &[7; 8])?;
/// let first = worker.wait_any(&receives).expect("three are under way");
/// assert_eq!(first, 1);
/// let received = receives.swap_remove(first).wait()?;
/// # assert_eq!(received.data(), [7; 8]);
/// # Ok::<(), tagmatch::Error>(())
/// ```
impl<A: Access> WorkerOf<A> {
    /// Blocks until one of the requests has ended, and gives its place. Its result is there to be
    /// taken. `None`: there is nothing to wait for. MPI-4.1 section 3.7.5 calls this `MPI_Waitany`.
    pub fn wait_any<T: Output>(&self, requests: &[Request<T, A>]) -> Option<usize> {
        loop {
            let found = self.any_within(requests, &Limit::NONE);
            if found.is_some() || self.under_way(requests).next().is_none() {
                return found;
            }
        }
    }

    /// As [`wait_any`](Self::wait_any), for a limited time. `None`: none had ended when the time
    /// was over, or when the worker was interrupted ([`crate::Interrupter`]).
    pub fn wait_any_timeout<T: Output>(
        &self,
        requests: &[Request<T, A>],
        timeout: Duration,
    ) -> Option<usize> {
        self.any_within(requests, &self.limit(timeout))
    }

    /// Blocks until all requests have ended, and gives their results in the same order. MPI-4.1
    /// section 3.7.5 calls this `MPI_Waitall`.
    pub fn wait_all<T: Output>(
        &self,
        requests: impl IntoIterator<Item = Request<T, A>>,
    ) -> Vec<Result<T, Failed>> {
        requests.into_iter().map(Request::wait).collect()
    }

    /// Blocks until all requests have ended, for a limited time; their results are there to be
    /// taken then. `false`: some had not ended when the time was over, or when the worker was
    /// interrupted ([`crate::Interrupter`]).
    pub fn wait_all_timeout<T: Output>(
        &self,
        requests: &[Request<T, A>],
        timeout: Duration,
    ) -> bool {
        let mut left: Vec<RequestId> =
            self.under_way(requests).map(|(_, request)| request).collect();
        let limit = self.limit(timeout);
        while let Some(&last) = left.last() {
            let look = |state: &mut State| {
                let (events, is_over) = state.progress_until(last);
                (events, is_over.then_some(()))
            };
            if wait_within(&self.access, Awaited::Requests(&[last]), &limit, look).is_none() {
                return false;
            }
            left.pop();
        }
        true
    }

    fn any_within<T: Output>(
        &self,
        requests: &[Request<T, A>],
        limit: &Limit<'_>,
    ) -> Option<usize> {
        let ended = requests.iter().position(|request| request.is_complete());
        let places: Vec<(usize, RequestId)> = self.under_way(requests).collect();
        if ended.is_some() || places.is_empty() {
            return ended;
        }
        let ids: Vec<RequestId> = places.iter().map(|&(_, request)| request).collect();
        let look = |state: &mut State| {
            let events = state.progress();
            let over =
                places.iter().find(|&&(_, request)| state.engine.requests().is_over(request));
            (events, over.map(|&(place, _)| place))
        };
        wait_within(&self.access, Awaited::Requests(&ids), limit, look)
    }

    /// The requests of this worker whose results are in its table, or will be, with their places.
    fn under_way<'a, T: Output>(
        &'a self,
        requests: &'a [Request<T, A>],
    ) -> impl Iterator<Item = (usize, RequestId)> + 'a {
        let worker = self.access.fixed().worker;
        let id = move |request: &Request<T, A>| request.id_on(worker);
        requests.iter().enumerate().filter_map(move |(place, request)| Some((place, id(request)?)))
    }
}
