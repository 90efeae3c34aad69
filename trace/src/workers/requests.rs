//! Thousands of requests under way. Requests that have ended are found without a look at the
//! others.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tagmatch::{Failed, Output, Request};

use crate::format::Id;

/// The requests of messages or receives.
pub(super) struct RequestsById<T: Output> {
    by_id: Vec<Option<Request<T>>>,
    /// Requests to poll: new ones, and those that were woken.
    to_poll: Arc<ToPoll>,
}

#[derive(Default)]
struct ToPoll(Mutex<Vec<Id>>);

impl ToPoll {
    fn push(&self, id: Id) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    fn pop(&self) -> Option<Id> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// The waker of one request.
struct PollAgain {
    id: Id,
    to_poll: Arc<ToPoll>,
}

impl Wake for PollAgain {
    fn wake(self: Arc<Self>) {
        self.to_poll.push(self.id);
    }
}

impl<T: Output> RequestsById<T> {
    /// For ids below `ids`.
    pub(super) fn new(ids: usize) -> Self {
        Self { by_id: std::iter::repeat_with(|| None).take(ids).collect(), to_poll: Arc::default() }
    }

    pub(super) fn add(&mut self, id: Id, request: Request<T>) {
        self.by_id[id.index()] = Some(request);
        self.to_poll.push(id);
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Request<T>> {
        self.by_id[id.index()].as_mut()
    }

    /// The requests that are under way, in order of their ids.
    pub(super) fn under_way(&self) -> Vec<Id> {
        let ids = (0..).map(Id).zip(&self.by_id);
        ids.filter_map(|(id, request)| request.as_ref().map(|_| id)).collect()
    }

    /// Removes a request that has ended, if there is one. Makes progress.
    pub(super) fn next_ended(&mut self) -> Option<(Id, Result<T, Failed>)> {
        while let Some(id) = self.to_poll.pop() {
            let Some(request) = &mut self.by_id[id.index()] else { continue };
            let waker = Waker::from(Arc::new(PollAgain { id, to_poll: Arc::clone(&self.to_poll) }));
            if let Poll::Ready(result) = Pin::new(request).poll(&mut Context::from_waker(&waker)) {
                self.by_id[id.index()] = None;
                return Some((id, result));
            }
        }
        None
    }
}
