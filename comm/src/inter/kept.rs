//! What a program keeps with an intercommunicator: attributes, and an error handler.

use std::sync::{Arc, OnceLock};

use crate::comm::{Attributes, Comm, ErrorHandler, Handler, Keyval};
use crate::error::Error;
use crate::net::Net;

use super::InterComm;

impl<N: Net> InterComm<N> {
    /// As [`Comm::set_error_handler`](crate::Comm::set_error_handler). What is duplicated or shrunk of it begins
    /// with its handler; what is made of communicators, or a communicator made of it, with none, as a handler is
    /// for one kind.
    pub fn set_error_handler(&self, handler: ErrorHandler<InterComm<N>>) {
        let local = Arc::clone(&self.local);
        self.comm.set_handler(Handler::Inter(InterHandler { handler, local }));
    }

    /// What happens to its errors.
    pub fn error_handler(&self) -> ErrorHandler<InterComm<N>> {
        match self.comm.handler() {
            Handler::Inter(InterHandler { handler, .. }) => handler,
            Handler::Comm(_) => ErrorHandler::Returns,
        }
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

/// A handler, and what it takes to have the intercommunicator again for it.
pub(crate) struct InterHandler<N: Net> {
    handler: ErrorHandler<InterComm<N>>,
    local: Arc<OnceLock<Comm<N>>>,
}

impl<N: Net> InterHandler<N> {
    pub(crate) fn hear(&self, comm: &Comm<N>, error: &Error) {
        if let Some(remote) = &comm.inner.remote {
            let (remote, local) = (Arc::clone(remote), Arc::clone(&self.local));
            self.handler.hear(&InterComm { comm: comm.clone(), remote, local }, error);
        }
    }
}

impl<N: Net> Clone for InterHandler<N> {
    fn clone(&self) -> Self {
        InterHandler { handler: self.handler.clone(), local: Arc::clone(&self.local) }
    }
}

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
