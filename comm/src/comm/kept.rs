//! The calls for a communicator's attributes and its error handler.

use std::sync::{Arc, PoisonError};

use super::attributes::{Attributes, Keyval};
use super::communicator::Comm;
use super::error_handler::ErrorHandler;
use crate::error::Error;
use crate::net::Net;

impl<N: Net> Comm<N> {
    /// Sets the error handler of this communicator, in this process. Communicators that are made of
    /// it later begin with the same handler.
    pub fn set_error_handler(&self, handler: ErrorHandler<Comm<N>>) {
        let place = || self.inner.handler.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place(), handler);
        // Dropping the old handler may run code of the program, so it is dropped without the lock.
        drop(old);
    }

    /// The error handler of this communicator.
    pub fn error_handler(&self) -> ErrorHandler<Comm<N>> {
        self.inner.handler.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets an attribute, in this process. The value that it replaces is deleted first.
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>, value: T) {
        self.delete_attribute(key);
        self.with_attributes(|attributes| attributes.set(key, value));
    }

    /// An attribute's value.
    pub fn attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> Option<Arc<T>> {
        self.with_attributes(|attributes| attributes.value(key))
    }

    /// Deletes an attribute. Returns whether it was set.
    pub fn delete_attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> bool {
        let removed = self.with_attributes(|attributes| attributes.remove(key));
        // Without the lock, because the callback may use the communicator.
        removed.map(|entry| entry.delete(self.info())).is_some()
    }

    /// The attributes that a duplicate will have. They belong to this communicator until the
    /// duplicate is made.
    pub(crate) fn copy_attributes(&self) -> Result<Attributes, Error> {
        // Without the lock, because the callbacks may use the communicator.
        let attributes = self.with_attributes(|attributes| attributes.entries());
        Attributes::copied(self.info().clone(), attributes)
    }

    /// Gives a new communicator the attributes that were copied for it.
    pub(crate) fn take_attributes(&self, copies: Attributes) {
        self.with_attributes(|attributes| attributes.replace_by(copies));
    }

    fn with_attributes<R>(&self, f: impl FnOnce(&mut Attributes) -> R) -> R {
        f(&mut self.inner.attributes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
