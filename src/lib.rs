//! tagmatch
