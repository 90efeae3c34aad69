//! Requests under way by the thousand: those that have ended are found without a look at the rest.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tagmatch::{Failed, Output, Request};

use crate::trace::Index;

/// Requests by the id they stand for.
pub(super) struct Requests<T: Output> {
    by_id: Vec<Option<Request<T>>>,
    /// Those to look at: new ones, and those that were woken.
    due: Arc<Due>,
}

#[derive(Default)]
struct Due(Mutex<Vec<Index>>);

impl Due {
    fn push(&self, id: Index) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    fn pop(&self) -> Option<Index> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// Says which request is to be looked at.
struct Bell {
    id: Index,
    due: Arc<Due>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.due.push(self.id);
    }
}

impl<T: Output> Requests<T> {
    /// For ids below `ids`.
    pub(super) fn new(ids: usize) -> Self {
        Self { by_id: std::iter::repeat_with(|| None).take(ids).collect(), due: Arc::default() }
    }

    pub(super) fn add(&mut self, id: Index, request: Request<T>) {
        self.by_id[id.at()] = Some(request);
        self.due.push(id);
    }

    pub(super) fn get_mut(&mut self, id: Index) -> Option<&mut Request<T>> {
        self.by_id[id.at()].as_mut()
    }

    /// Ids of those under way, in order.
    pub(super) fn left(&self) -> Vec<Index> {
        let ids = (0..).map(Index).zip(&self.by_id);
        ids.filter_map(|(id, request)| request.as_ref().map(|_| id)).collect()
    }

    /// One that has ended, if there is any. Makes progress.
    pub(super) fn next_ended(&mut self) -> Option<(Index, Result<T, Failed>)> {
        while let Some(id) = self.due.pop() {
            let Some(request) = &mut self.by_id[id.at()] else { continue };
            let waker = Waker::from(Arc::new(Bell { id, due: Arc::clone(&self.due) }));
            if let Poll::Ready(result) = Pin::new(request).poll(&mut Context::from_waker(&waker)) {
                self.by_id[id.at()] = None;
                return Some((id, result));
            }
        }
        None
    }
}
