//! The attributes and the error handler of an intercommunicator.

use std::sync::{Arc, PoisonError};

use super::intercomm::{HandlerSlot, InterComm};
use crate::comm::{Comm, ErrorHandler, Keyval};
use crate::net::Net;

impl<N: Net> InterComm<N> {
    /// As [`Comm::set_error_handler`](crate::Comm::set_error_handler). An intercommunicator that
    /// is made of one inherits its handler. A handler is for one kind of communicator. So an
    /// intercommunicator made of communicators, and a communicator made of an intercommunicator,
    /// have none at first.
    pub fn set_error_handler(&self, handler: ErrorHandler<InterComm<N>>) {
        let place = Arc::clone(&self.handler);
        self.comm.set_error_handler(ErrorHandler::calls(move |comm: &Comm<N>, error| {
            let Some(remote) = comm.inner.remote.clone() else { return };
            let inter = InterComm { comm: comm.clone(), remote, handler: Arc::clone(&place) };
            inter.error_handler().hear(&inter, error);
        }));
        let mut place = self.handler.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, handler);
        // The old handler may hold things of the program's, which are dropped without the lock.
        drop(place);
        drop(old);
    }

    /// The error handler.
    pub fn error_handler(&self) -> ErrorHandler<InterComm<N>> {
        handler_in(&self.handler)
    }

    /// As [`Comm::set_attribute`](crate::Comm::set_attribute). The functions of the key get the
    /// local group, and the id in which it receives.
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>, value: T) {
        self.comm.set_attribute(key, value);
    }

    /// The value of an attribute.
    pub fn attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> Option<Arc<T>> {
        self.comm.attribute(key)
    }

    /// Deletes an attribute. Returns whether there was one.
    pub fn delete_attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> bool {
        self.comm.delete_attribute(key)
    }
}

/// The error handler in this place.
pub(super) fn handler_in<N: Net>(place: &HandlerSlot<N>) -> ErrorHandler<InterComm<N>> {
    place.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
