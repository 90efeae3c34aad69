//! Sending and receiving.

use std::ffi::c_void;

use libc::{c_int, ssize_t};

use super::answers::{answer, count, put, result};
use crate::faults::Call;
use crate::scope::ask;

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> ssize_t {
    let bytes = || match length {
        0 => &[][..],
        // SAFETY: the caller gives a place of so many bytes.
        _ => unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) },
    };
    match answer(ask(|kernel| kernel.send(fd, bytes())), Call::Send) {
        Some(answer) => result(answer.map(count)),
        None => real!(
            send as fn(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> ssize_t
        ),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
    let gathered = || {
        let mut bytes = Vec::new();
        // SAFETY: the caller gives a valid message; its parts have the lengths beside them.
        unsafe {
            for part in parts_of(message).iter().filter(|part| part.iov_len > 0) {
                let from = part.iov_base.cast::<u8>();
                bytes.extend_from_slice(std::slice::from_raw_parts(from, part.iov_len));
            }
        }
        bytes
    };
    let world =
        ask(|kernel| kernel.files.contains_key(&fd).then(|| kernel.send(fd, &gathered()))?);
    match answer(world, Call::Send) {
        Some(answer) => result(answer.map(count)),
        None => {
            real!(sendmsg as fn(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, to: *mut c_void, length: usize, flags: c_int) -> ssize_t {
    match answer(ask(|kernel| kernel.receive(fd, length)), Call::Receive) {
        Some(answer) => result(answer.map(|bytes| {
            // SAFETY: the caller has room for `length` bytes, and there are no more.
            unsafe { put(&bytes, to) };
            count(bytes.len())
        })),
        None => {
            real!(recv as fn(fd: c_int, to: *mut c_void, length: usize, flags: c_int) -> ssize_t)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller gives a valid message.
    let parts = unsafe { parts_of(message) };
    let room = parts.iter().map(|part| part.iov_len).sum();
    match answer(ask(|kernel| kernel.receive(fd, room)), Call::Receive) {
        Some(answer) => result(answer.map(|bytes| {
            let mut rest = &bytes[..];
            for part in parts {
                let (here, later) = rest.split_at(rest.len().min(part.iov_len));
                // SAFETY: the part has room for its length.
                unsafe { put(here, part.iov_base) };
                rest = later;
            }
            count(bytes.len())
        })),
        None => {
            real!(recvmsg as fn(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t)
        }
    }
}

/// A function of this file, which keeps all of them.
pub(super) fn names() -> *const () {
    recv as *const ()
}

/// The parts of a message.
///
/// # Safety
/// The message is valid.
unsafe fn parts_of<'a>(message: *const libc::msghdr) -> &'a [libc::iovec] {
    // SAFETY: by the caller's promise.
    let (parts, length) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
    // SAFETY: a message has so many parts.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(parts, length) } }
}
