//! Calls, how they are answered, and objects: the driver's side and the device's side share them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::channel::Channel;

/// An error number of errno(3).
pub(crate) type Errno = i32;

/// A system call of the program that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// The number of the call.
    pub(crate) id: u64,
    /// The thread that made it.
    pub(crate) thread: i32,
    /// The descriptor that it was made on.
    pub(crate) fd: i32,
    /// The device behind the descriptor, from 0.
    pub(crate) device: usize,
    /// Where the command is in the program's memory.
    pub(crate) at: u64,
}

/// How calls are answered.
pub(crate) trait Answers {
    /// Gives the caller a descriptor, whose number is returned.
    fn give(&self, call: u64, fd: BorrowedFd<'_>) -> io::Result<i32>;

    /// Puts another file in the place of a descriptor of the caller.
    fn replace(&self, call: u64, place: i32, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Ends the call: 0, or an error number. `false`: a signal has interrupted the caller, who
    /// knows nothing of what was done.
    fn answer(&self, call: u64, errno: Errno) -> bool;

    /// Has the end of the device said on a channel of asynchronous events, until the result is
    /// dropped.
    fn keep(&self, channel: &Channel) -> Option<Kept>;
}

/// A channel on which the end of the device is said: see [`Answers::keep`].
#[derive(Debug)]
pub(crate) struct Kept {
    number: u64,
    released: std::sync::mpsc::Sender<u64>,
}

impl Kept {
    pub(crate) fn new(number: u64, released: std::sync::mpsc::Sender<u64>) -> Self {
        Kept { number, released }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.released.send(self.number);
    }
}

/// The kind of an object that a program has made.
#[derive(Debug)]
pub(crate) enum Kind {
    Pd,
    Mr {
        key: u32,
        pages: u64,
    },
    Cq(u32),
    Srq(u32),
    Qp(u32),
    Uar {
        page: usize,
    },
    /// An address handle.
    Ah,
}

impl Kind {
    pub(crate) fn is_ah(&self) -> bool {
        matches!(self, Kind::Ah)
    }
}

#[derive(Debug)]
pub(crate) struct Object {
    /// The descriptor of its context.
    pub(crate) context: i32,
    pub(crate) kind: Kind,
}

/// All objects of a program, by handle.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) all: BTreeMap<u32, Object>,
    last: u32,
    /// Numbers of completion queues and shared receive queues.
    last_number: u32,
    /// Pages that are locked.
    pub(crate) locked: u64,
    pub(crate) channels: HashMap<i32, Arc<Channel>>,
}

/// Objects that a program may have.
pub(crate) const OBJECTS_MAX: usize = 1 << 18;

impl Objects {
    /// Whether the program may have another object. A command that takes anything for its object
    /// asks before.
    pub(crate) fn check_room(&self) -> Result<(), Errno> {
        if self.all.len() < OBJECTS_MAX { Ok(()) } else { Err(libc::ENOMEM) }
    }

    pub(crate) fn add(&mut self, context: i32, kind: Kind) -> Result<u32, Errno> {
        self.check_room()?;
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.all.contains_key(&self.last) {
                self.all.insert(self.last, Object { context, kind });
                return Ok(self.last);
            }
        }
    }

    pub(crate) fn number(&mut self) -> u32 {
        self.last_number = self.last_number % 0xff_ffff + 1;
        self.last_number
    }

    pub(crate) fn pd(&self, context: i32, handle: u32) -> Result<u32, Errno> {
        match self.all.get(&handle) {
            Some(Object { context: of, kind: Kind::Pd }) if *of == context => Ok(handle),
            _ => Err(libc::EINVAL),
        }
    }

    /// The key of a memory region, and the pages that it locks.
    pub(crate) fn mr(&mut self, context: i32, handle: u32) -> Result<(u32, &mut u64), Errno> {
        match self.all.get_mut(&handle) {
            Some(Object { context: of, kind: Kind::Mr { key, pages } }) if *of == context => {
                Ok((*key, pages))
            }
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn cq(&self, context: i32, handle: u32) -> Result<u32, Errno> {
        match self.all.get(&handle) {
            Some(Object { context: of, kind: Kind::Cq(number) }) if *of == context => Ok(*number),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn srq(&self, context: i32, handle: u32) -> Result<u32, Errno> {
        match self.all.get(&handle) {
            Some(Object { context: of, kind: Kind::Srq(number) }) if *of == context => Ok(*number),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn qp(&self, context: i32, handle: u32) -> Result<u32, Errno> {
        match self.all.get(&handle) {
            Some(Object { context: of, kind: Kind::Qp(number) }) if *of == context => Ok(*number),
            _ => Err(libc::EINVAL),
        }
    }
}
