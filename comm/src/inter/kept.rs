//! What a program keeps with an intercommunicator: attributes, and an error handler.

use std::sync::{Arc, Mutex, PoisonError};

use crate::comm::{Attributes, Comm, ErrorHandler, Keyval};
use crate::error::Error;
use crate::net::Net;

use super::InterComm;

impl<N: Net> InterComm<N> {
    /// As [`Comm::set_error_handler`](crate::Comm::set_error_handler). What is duplicated or shrunk of it begins
    /// with its handler; what is made of communicators, or a communicator made of it, with none, as a handler is
    /// for one kind.
    pub fn set_error_handler(&self, handler: ErrorHandler<InterComm<N>>) {
        let place = Arc::clone(&self.handler);
        self.comm.set_error_handler(ErrorHandler::calls(move |comm: &Comm<N>, error| {
            let Some(remote) = comm.inner.remote.clone() else { return };
            let handler = place.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let inter = InterComm { comm: comm.clone(), remote, handler: Arc::clone(&place) };
            handler.hear(&inter, error);
        }));
        let mut place = self.handler.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, handler);
        // The old handler may hold things of the program's, which are dropped without the lock.
        drop(place);
        drop(old);
    }

    /// What happens to its errors.
    pub fn error_handler(&self) -> ErrorHandler<InterComm<N>> {
        self.handler.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As [`Comm::set_attribute`](crate::Comm::set_attribute). The key's functions are given the local group and
    /// the id in which it receives.
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>, value: T) {
        self.comm.set_attribute(key, value);
    }

    /// An attribute's value.
    pub fn attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> Option<Arc<T>> {
        self.comm.attribute(key)
    }

    /// Deletes an attribute; whether there was one.
    pub fn delete_attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> bool {
        self.comm.delete_attribute(key)
    }
}

/// What happens to the errors of an intercommunicator, the same for all of its handles.
pub(super) type Handler<N> = Arc<Mutex<ErrorHandler<InterComm<N>>>>;

/// What a duplicate has from its parent: the handler, and the attributes that were copied when it was begun.
pub(super) struct Bequest<N: Net> {
    parent: InterComm<N>,
    attributes: Result<Attributes, Error>,
}

impl<N: Net> Bequest<N> {
    pub(super) fn of(parent: &InterComm<N>) -> Self {
        Bequest { parent: parent.clone(), attributes: parent.comm.copy_attributes() }
    }

    pub(super) fn give(self, made: Result<InterComm<N>, Error>) -> Result<InterComm<N>, Error> {
        let both = made.and_then(|made| Ok((made, self.attributes?)));
        let (made, attributes) = self.parent.comm.raise(both)?;
        made.comm.take_attributes(attributes);
        made.set_error_handler(self.parent.error_handler());
        Ok(made)
    }
}
