//! Error handlers (MPI-4.1 section 9.3).

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

type Callback<C> = dyn Fn(&C, &Error) + Send + Sync;

/// The action on errors of a communicator or an intercommunicator. The call also returns the error.
///
/// MPI's default is to end the program. A program that wants this here sets a handler that ends it.
#[derive(Default)]
pub enum ErrorHandler<C> {
    /// No action (`MPI_ERRORS_RETURN`).
    #[default]
    Returns,
    /// This function is called first, in the thread that gets the error: in a blocking call, or
    /// where the result of a request is taken. It may use the communicator: revoke it, or shrink it
    /// and keep the smaller one.
    Calls(Arc<Callback<C>>),
}

impl<C> ErrorHandler<C> {
    /// A handler that calls this function.
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
