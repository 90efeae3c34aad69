//! Descriptors on which programs wait: of completions and of asynchronous events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use zerocopy::IntoBytes;

use crate::abi::AsyncEvent;

/// A pipe: the program has the reading end, the device both.
#[derive(Debug)]
pub(crate) struct Channel {
    read: OwnedFd,
    write: OwnedFd,
}

impl Channel {
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&write, OFlags::NONBLOCK)?;
        Ok(Channel { read, write })
    }

    /// The reading end, which the program gets.
    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    pub(crate) fn writer(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }

    /// Says an event. `false`: the pipe is full, or the program has closed it.
    fn say(&self, bytes: &[u8]) -> bool {
        rustix::io::write(&self.write, bytes).is_ok_and(|count| count == bytes.len())
    }

    /// Says that a completion queue has something: `struct ib_uverbs_comp_event_desc`.
    pub(crate) fn say_completion(&self, queue: u64) -> bool {
        self.say(&queue.to_ne_bytes())
    }

    /// Says an asynchronous event.
    pub(crate) fn say_event(&self, element: u64, event_type: u32) -> bool {
        self.say(AsyncEvent { element, event_type, reserved: 0 }.as_bytes())
    }

    /// Takes events of `size` bytes back that the program has not read and that are about an
    /// element; the number of them.
    pub(crate) fn take_back(&self, size: usize, element: u64) -> u32 {
        let waiting = rustix::io::ioctl_fionread(&self.read).unwrap_or(0) / size as u64;
        let mut taken = 0;
        let mut event = [0; 16];
        for _ in 0..waiting {
            let event = &mut event[..size];
            if !rustix::io::read(&self.read, &mut *event).is_ok_and(|count| count == size) {
                break;
            }
            if event[..8] == element.to_ne_bytes() {
                taken += 1;
            } else {
                self.say(event);
            }
        }
        taken
    }
}
