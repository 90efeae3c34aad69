//! What the guardian, the device and the program's process tell each other before they go on.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// A message between processes of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The listener, with the program's process.
    Listener(u64),
    /// A channel of asynchronous events.
    Channel(u64),
    /// The channel is closed.
    Closed(u64),
    /// All programs have ended, the first one with this status of waitpid(2).
    Ended(u64),
    /// The program may begin.
    Go,
}

impl Notice {
    fn to_bytes(self) -> [u8; 9] {
        let (kind, number) = match self {
            Notice::Listener(number) => (1, number),
            Notice::Channel(number) => (2, number),
            Notice::Closed(number) => (3, number),
            Notice::Ended(number) => (4, number),
            Notice::Go => (5, 0),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&number.to_ne_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let number = u64::from_ne_bytes(bytes.get(1..9)?.try_into().ok()?);
        Some(match bytes[0] {
            1 => Notice::Listener(number),
            2 => Notice::Channel(number),
            3 => Notice::Closed(number),
            4 => Notice::Ended(number),
            5 => Notice::Go,
            _ => return None,
        })
    }
}

/// One end of a connection between two processes of the command.
#[derive(Debug)]
pub(crate) struct Wire(OwnedFd);

impl Wire {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let kind = SocketType::SEQPACKET;
        let (a, b) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Wire(a), Wire(b)))
    }

    pub(crate) fn new(fd: OwnedFd) -> Self {
        Wire(fd)
    }

    pub(crate) fn say(&self, notice: Notice, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fd.into_iter().collect();
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let bytes = notice.to_bytes();
        sendmsg(&self.0, &[io::IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next message; `None`: the other process has ended.
    pub(crate) fn hear(&self) -> io::Result<Option<(Notice, Option<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 9];
        let got = {
            let mut into = [io::IoSliceMut::new(&mut bytes)];
            recvmsg(&self.0, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?
        };
        if got.bytes == 0 {
            return Ok(None);
        }
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let notice = Notice::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some((notice, fd)))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_notice_arrives_as_it_was_said_with_its_descriptor() {
        let (own, other) = Wire::pair().unwrap();
        let number = 0x8182_8384_8586_8788;
        let (events, _writer) = rustix::pipe::pipe().unwrap();
        for notice in [
            Notice::Listener(number),
            Notice::Channel(number + 1),
            Notice::Closed(number + 2),
            Notice::Ended(number + 3),
            Notice::Go,
        ] {
            for fd in [None, Some(events.as_fd())] {
                own.say(notice, fd).unwrap();
                let (heard, with) = other.hear().unwrap().unwrap();
                assert_eq!((heard, with.is_some()), (notice, fd.is_some()));
                let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
                assert!(with.is_none_or(|with| inode(with.as_fd()) == inode(events.as_fd())));
            }
        }
        drop(own);
        assert!(other.hear().unwrap().is_none(), "the other process has ended");
    }

    #[test]
    fn what_is_no_notice_is_an_error() {
        for bytes in [&[0; 9][..], &[6; 9], &[1; 8], &[]] {
            assert_eq!(Notice::parse(bytes), None);
        }
        let (own, other) = Wire::pair().unwrap();
        rustix::net::send(&own, &[9; 9], SendFlags::NOSIGNAL).unwrap();
        assert!(other.hear().is_err());
    }
}
