//! The functions of the C library that a program with a world calls in place of the real ones: the
//! linker takes a program's own definition of a name first.

#![allow(unsafe_code, reason = "the C library's functions")]

#[macro_use]
mod real;
mod answers;
mod memory;
mod options;
mod sockets;
mod transfers;
mod waiting;

pub(crate) use sockets::close_descriptor;

/// Has the linker keep the functions of this folder: it takes from a library what is named.
pub(crate) fn keep() {
    let sockets = [sockets::names(), transfers::names(), options::names()];
    std::hint::black_box((sockets, memory::names(), waiting::names()));
}
