//! Error handlers (MPI-4.1 section 9.3).

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::error::{Error, Failed};
use crate::net::Net;

use super::Comm;

type Callback<N> = dyn Fn(&Comm<N>, &Error) + Send + Sync;

/// What happens to errors of a communicator, besides that the call returns them.
///
/// MPI's default is to end the program; here that would have to be said by a handler that does.
pub enum ErrorHandler<N: Net> {
    /// Nothing (`MPI_ERRORS_RETURN`).
    Returns,
    /// This is called first, in the thread that is told of the error: by a blocking call, or where the end of a
    /// request is taken. It may use the communicator: revoke it, or shrink it and keep the smaller one.
    Calls(Arc<Callback<N>>),
}

impl<N: Net> ErrorHandler<N> {
    /// One that calls this.
    pub fn calls(callback: impl Fn(&Comm<N>, &Error) + Send + Sync + 'static) -> Self {
        ErrorHandler::Calls(Arc::new(callback))
    }
}

impl<N: Net> Clone for ErrorHandler<N> {
    fn clone(&self) -> Self {
        match self {
            ErrorHandler::Returns => ErrorHandler::Returns,
            ErrorHandler::Calls(callback) => ErrorHandler::Calls(Arc::clone(callback)),
        }
    }
}

impl<N: Net> fmt::Debug for ErrorHandler<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorHandler::Returns => "Returns",
            ErrorHandler::Calls(_) => "Calls",
        })
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
    pub fn set_error_handler(&self, handler: ErrorHandler<N>) {
        let mut place = self.inner.handler.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, handler);
        // What it holds may be the program's, and is dropped without the lock.
        drop(place);
        drop(old);
    }

    /// What happens to its errors.
    pub fn error_handler(&self) -> ErrorHandler<N> {
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
        if let ErrorHandler::Calls(callback) = self.error_handler()
            && *error != Error::Cancelled
        {
            callback(self, error);
        }
    }
}
