//! Error handlers (MPI-4.1 section 9.3).

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::error::{Error, Failed};
use crate::inter::InterHandler;
use crate::net::Net;
use crate::runtime::Shared;

use super::{Comm, Inner};

type Callback<C> = dyn Fn(&C, &Error) + Send + Sync;

/// What happens to errors of a communicator, or of an intercommunicator, besides that the call returns them.
///
/// MPI's default is to end the program; here that would have to be said by a handler that does.
pub enum ErrorHandler<C> {
    /// Nothing (`MPI_ERRORS_RETURN`).
    Returns,
    /// This is called first, in the thread that is told of the error: by a blocking call, or where the end of a
    /// request is taken. It may use the communicator: revoke it, or shrink it and keep the smaller one.
    Calls(Arc<Callback<C>>),
}

impl<C> ErrorHandler<C> {
    /// One that calls this.
    pub fn calls(callback: impl Fn(&C, &Error) + Send + Sync + 'static) -> Self {
        ErrorHandler::Calls(Arc::new(callback))
    }

    pub(crate) fn hear(&self, comm: &C, error: &Error) {
        if let ErrorHandler::Calls(callback) = self {
            callback(comm, error);
        }
    }
}

impl<C> Clone for ErrorHandler<C> {
    fn clone(&self) -> Self {
        match self {
            ErrorHandler::Returns => ErrorHandler::Returns,
            ErrorHandler::Calls(callback) => ErrorHandler::Calls(Arc::clone(callback)),
        }
    }
}

impl<C> fmt::Debug for ErrorHandler<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorHandler::Returns => "Returns",
            ErrorHandler::Calls(_) => "Calls",
        })
    }
}

/// The handler of a communicator, or of the intercommunicator that it is a part of.
pub(crate) enum Handler<N: Net> {
    Comm(ErrorHandler<Comm<N>>),
    Inter(InterHandler<N>),
}

impl<N: Net> Default for Handler<N> {
    fn default() -> Self {
        Handler::Comm(ErrorHandler::Returns)
    }
}

impl<N: Net> Clone for Handler<N> {
    fn clone(&self) -> Self {
        match self {
            Handler::Comm(handler) => Handler::Comm(handler.clone()),
            Handler::Inter(handler) => Handler::Inter(handler.clone()),
        }
    }
}

/// What may be, or have in it, an error of a communicator.
pub(crate) trait HasError {
    fn error(&self) -> &Error;
}

impl HasError for Error {
    fn error(&self) -> &Error {
        self
    }
}

impl HasError for Failed {
    fn error(&self) -> &Error {
        &self.error
    }
}

impl<N: Net> Comm<N> {
    /// Says what happens to its errors from now on, in this process. Communicators that are made of it begin
    /// with its handler.
    pub fn set_error_handler(&self, handler: ErrorHandler<Comm<N>>) {
        self.set_handler(Handler::Comm(handler));
    }

    pub(crate) fn set_handler(&self, handler: Handler<N>) {
        let mut place = self.inner.handler.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, handler);
        // What it holds may be the program's, and is dropped without the lock.
        drop(place);
        drop(old);
    }

    /// What happens to its errors.
    pub fn error_handler(&self) -> ErrorHandler<Comm<N>> {
        match self.handler() {
            Handler::Comm(handler) => handler,
            Handler::Inter(_) => ErrorHandler::Returns,
        }
    }

    pub(crate) fn handler(&self) -> Handler<N> {
        self.inner.handler.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The result, of whose error the handler has heard. To have cancelled something is none.
    pub(crate) fn raise<T, E: HasError>(&self, result: Result<T, E>) -> Result<T, E> {
        if let Err(error) = &result {
            self.handle(error.error());
        }
        result
    }

    #[cold]
    fn handle(&self, error: &Error) {
        match self.handler() {
            _ if *error == Error::Cancelled => {}
            Handler::Comm(handler) => handler.hear(self, error),
            Handler::Inter(handler) => handler.hear(self, error),
        }
    }
}

impl<N: Net> Inner<N> {
    /// As [`Comm::raise`], where there is no handle.
    pub(super) fn raise<T, E: HasError>(
        self: &Arc<Self>,
        shared: &Arc<Shared<N>>,
        result: Result<T, E>,
    ) -> Result<T, E> {
        if let Err(error) = &result {
            Comm::new(shared, Arc::clone(self)).handle(error.error());
        }
        result
    }
}
