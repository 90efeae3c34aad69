//! Words on standard error: a call does what it does, whether anybody reads them or not.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use crate::client::{World, alone, code, sys};

/// Both ends of a pipe, whose writer blocks.
fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors, which nothing else uses.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

fn pipe_without_a_reader() -> OwnedFd {
    pipe().1
}

fn full_pipe() -> OwnedFd {
    let (reader, writer) = pipe();
    // Nobody reads, and nobody sees that.
    let _ = reader.into_raw_fd();
    let fd = writer.as_raw_fd();
    // SAFETY: the bytes are readable, and the descriptor is open.
    unsafe {
        libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
        while libc::write(fd, [0u8; 512].as_ptr().cast(), 512) > 0 {}
        libc::fcntl(fd, libc::F_SETFL, 0);
    }
    writer
}

/// Calls an operation that the provider doesn't have, which it says at the first call.
fn call_what_is_not_there(world: &World, name: &CStr) {
    let endpoint = world.endpoint(0).endpoint;
    let nothing = std::ptr::null_mut();
    // SAFETY: the endpoint is open, and the functions use no argument.
    let answer = unsafe {
        let rma = &*(*endpoint).rma;
        match name.to_bytes() {
            b"fi_read" => rma.read.unwrap()(endpoint, nothing, 0, nothing, 0, 0, 0, nothing),
            b"fi_write" => rma.write.unwrap()(endpoint, nothing, 0, nothing, 0, 0, 0, nothing),
            _ => rma.inject.unwrap()(endpoint, nothing, 0, 0, 0, 0),
        }
    };
    assert_eq!(code(answer), Err(sys::FI_ENOSYS), "{name:?}");
}

#[test]
fn a_notice_that_cannot_be_written_changes_no_answer() {
    alone("notices::a_notice_that_cannot_be_written_changes_no_answer", || {
        let world = World::new(1);
        let before = OwnedFd::from(File::open("/dev/fd/2").or(File::open("/dev/null")).unwrap());
        let full_disk = || OwnedFd::from(File::options().write(true).open("/dev/full").unwrap());
        let outputs = [full_disk(), pipe_without_a_reader(), full_pipe()];
        for (output, name) in outputs.iter().zip([c"fi_read", c"fi_write", c"fi_inject_write"]) {
            // SAFETY: the descriptors are open. A program in C ends by a signal if it writes to a
            // pipe without a reader.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::dup2(output.as_raw_fd(), 2);
            }
            call_what_is_not_there(&world, name);
        }
        // SAFETY: as above.
        unsafe { libc::dup2(before.as_raw_fd(), 2) };
    });
}
