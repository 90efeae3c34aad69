//! Sends, receives and probes: those of a communicator, with the remote group for its own.

use tagmatch::Buffer;

use crate::comm::{Destination, Message, RecvRequest, SendRequest, Source, Status, TagChoice};
use crate::error::Error;
use crate::net::Net;

use super::InterComm;

impl<N: Net> InterComm<N> {
    /// As [`Comm::send`](crate::Comm::send), to a remote process.
    pub fn send(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.comm.send(to, tag, data)
    }

    /// As [`Comm::send_sync`](crate::Comm::send_sync), to a remote process.
    pub fn send_sync(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.comm.send_sync(to, tag, data)
    }

    /// As [`Comm::send_ready`](crate::Comm::send_ready), to a remote process.
    pub fn send_ready(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: impl Into<Buffer>,
    ) -> SendRequest<N> {
        self.comm.send_ready(to, tag, data)
    }

    /// As [`Comm::send_buffered`](crate::Comm::send_buffered), to a remote process.
    ///
    /// # Errors
    /// [`Error::BufferFull`]; no such rank or tag.
    pub fn send_buffered(
        &self,
        to: impl Into<Destination>,
        tag: u32,
        data: &[u8],
    ) -> Result<(), Error> {
        self.comm.send_buffered(to, tag, data)
    }

    /// As [`Comm::recv`](crate::Comm::recv), from remote processes. Of any source, a failure in either group
    /// is reported until it is [acknowledged](Self::acknowledge).
    pub fn recv(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
        room: impl Into<Buffer>,
    ) -> RecvRequest<N> {
        self.comm.recv(from, tag, room)
    }

    /// As [`Comm::probe`](crate::Comm::probe), from remote processes.
    ///
    /// # Errors
    /// The same.
    pub fn probe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Option<Status>, Error> {
        self.comm.probe(from, tag)
    }

    /// As [`Comm::mprobe`](crate::Comm::mprobe), from remote processes.
    ///
    /// # Errors
    /// The same.
    pub fn mprobe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Option<Message<N>>, Error> {
        self.comm.mprobe(from, tag)
    }

    /// As [`Comm::probe_blocking`](crate::Comm::probe_blocking), from remote processes.
    ///
    /// # Errors
    /// The same.
    pub fn probe_blocking(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Status, Error> {
        self.comm.probe_blocking(from, tag)
    }

    /// As [`Comm::mprobe_blocking`](crate::Comm::mprobe_blocking), from remote processes.
    ///
    /// # Errors
    /// The same.
    pub fn mprobe_blocking(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagChoice>,
    ) -> Result<Message<N>, Error> {
        self.comm.mprobe_blocking(from, tag)
    }
}
