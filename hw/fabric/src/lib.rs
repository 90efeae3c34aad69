//! The device over a library that matches tags by itself, such as UCX or libfabric.

#![forbid(unsafe_code)]

pub mod handshake;
