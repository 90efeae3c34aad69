//! What a program's calls do on an endpoint: arguments become buffers of the worker.

use std::os::fd::BorrowedFd;

use tagmatch::{Address, Buffer};
use tagmatch_ofi_provider::{
    self as ofi, Bindings, Incoming, Injected, Memory, Outgoing, Pieces, RemoteCall, RemoteUse,
    SharedRegion,
};
use tagmatch_ofi_sys as sys;

use super::endpoint::{Endpoint, Sinks};
use super::operation::Receive;
use super::send::{EndpointSend, immediate};
use crate::errno::{Errno, Result};
use crate::info::{INJECT_MAX, PARTS_MAX};
use crate::memory::buffer;

/// The first byte's place, and a buffer of all pieces.
///
/// # Safety
/// As for [`Pieces::only`].
unsafe fn buffer_of(pieces: Pieces, writable: bool) -> Result<(usize, Buffer)> {
    // SAFETY: as the caller promises.
    unsafe {
        match pieces.only::<PARTS_MAX>(writable)? {
            Some(memory) => Ok((memory.start(), buffer(memory))),
            None => {
                let all = pieces.all::<PARTS_MAX>(writable)?;
                let start = all.first().map_or(0, Memory::start);
                Ok((start, Buffer::from_slices(all.into_iter().map(buffer))))
            }
        }
    }
}

/// A copy of the bytes.
///
/// # Safety
/// As for [`Pieces::only`].
unsafe fn copy_of(pieces: Pieces) -> Result<Buffer> {
    // SAFETY: as the caller promises.
    unsafe {
        let all = pieces.all::<PARTS_MAX>(false)?;
        if all.iter().map(Memory::len).sum::<usize>() > INJECT_MAX {
            return Err(Errno::TOO_LONG);
        }
        Ok(all.iter().map(|piece| piece.bytes()).collect::<Vec<_>>().concat().into())
    }
}

#[inline(always)]
fn receive_of(incoming: &Incoming, start: usize, room: usize, tells: bool) -> Receive {
    let kind = sys::FI_RECV | incoming.kind;
    Receive { context: incoming.context as usize, kind, start, room, tells, multi: None }
}

impl Endpoint {
    #[inline(always)]
    fn send_of(&self, message: &Outgoing) -> EndpointSend {
        EndpointSend {
            destination: message.destination,
            tag: message.tag,
            immediate: immediate(message.data),
            context: message.context as usize,
            kind: sys::FI_SEND | message.kind,
            flags: message.flags.unwrap_or(self.bound.opened.send_flags),
        }
    }

    /// Whether the success of a receive is an entry.
    #[inline(always)]
    fn tells(&self, incoming: &Incoming) -> bool {
        self.bound.receive_tells(incoming.flags.unwrap_or(self.bound.opened.receive_flags))
    }

    /// Begins to send a message that can't leave at once.
    ///
    /// # Safety
    /// The caller keeps the promises of fi_msg(3).
    #[cold]
    #[inline(never)]
    unsafe fn send_later(&mut self, sinks: &mut Sinks<'_>, message: Outgoing) -> Result<()> {
        let send = self.send_of(&message);
        // SAFETY: the caller's promise.
        let buffer = unsafe {
            match send.flags & sys::FI_INJECT {
                0 => buffer_of(message.pieces, false)?.1,
                _ => copy_of(message.pieces)?,
            }
        };
        self.send_buffer(sinks, &send, buffer)
    }

    /// Posts a receive that [`Endpoint::post_plain`] leaves.
    ///
    /// # Safety
    /// The caller keeps the promises of fi_msg(3).
    #[cold]
    #[inline(never)]
    unsafe fn post_any(&mut self, sinks: &mut Sinks<'_>, incoming: Incoming) -> Result<()> {
        // SAFETY: the caller's promise.
        let (start, buffer) = unsafe { buffer_of(incoming.pieces, true)? };
        let receive = receive_of(&incoming, start, buffer.total_len(), self.tells(&incoming));
        self.post_buffer(sinks, incoming.pattern, buffer, receive)
    }
}

impl ofi::ProviderEndpoint<Address> for Endpoint {
    #[inline(always)]
    fn bound(&self) -> &Bindings {
        &self.bound
    }

    #[inline(always)]
    fn bound_mut(&mut self) -> &mut Bindings {
        &mut self.bound
    }

    fn address(&self) -> Address {
        self.worker.address()
    }

    fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.worker.event_descriptor())
    }

    /// The worker has an event for the thread that sleeps, and none for an unexpected message that
    /// a probe has taken in.
    fn may_sleep(&self) -> bool {
        self.directed == 0
    }

    fn arm(&mut self) -> bool {
        self.worker.arm()
    }

    fn disarm(&mut self) {
        self.worker.disarm();
    }

    #[inline]
    fn progress(&mut self, sinks: &mut Sinks<'_>) {
        self.progress(sinks);
    }

    fn rounds(&self) -> u32 {
        self.rounds
    }

    fn forget(&mut self, address: u64) {
        self.forget(address);
    }

    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn send(&mut self, sinks: &mut Sinks<'_>, message: &Outgoing) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(memory) = message.pieces.only::<PARTS_MAX>(false)?
                && memory.len() <= INJECT_MAX
                && self.send_short(sinks, &self.send_of(message), memory.bytes())?
            {
                return Ok(());
            }
            // Put together again, so that the fields stay in registers until then.
            let Outgoing { pieces, destination, tag, data, context, kind, flags } = *message;
            let message = Outgoing { pieces, destination, tag, data, context, kind, flags };
            self.send_later(sinks, message)
        }
    }

    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn inject(&mut self, sinks: &mut Sinks<'_>, message: Injected) -> Result<()> {
        let Injected { start, length, .. } = message;
        if length > INJECT_MAX {
            return Err(Errno::TOO_LONG);
        }
        // SAFETY: the caller's promise. The bytes are copied before the call ends.
        let bytes = unsafe { Memory::new(start.cast(), length, false)?.bytes() };
        self.inject_bytes(sinks, bytes, &message)
    }

    /// # Safety
    /// As the trait says.
    #[inline(always)]
    unsafe fn post(&mut self, sinks: &mut Sinks<'_>, incoming: &Incoming) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(memory) = incoming.pieces.only::<PARTS_MAX>(true)?
                && self.post_plain(sinks, incoming, memory, self.tells(incoming))?
            {
                return Ok(());
            }
            // Put together again, so that the fields stay in registers until then.
            let Incoming { pieces, pattern, context, kind, flags } = *incoming;
            self.post_any(sinks, Incoming { pieces, pattern, context, kind, flags })
        }
    }

    /// # Safety
    /// As the trait says.
    unsafe fn post_multi(&mut self, sinks: &mut Sinks<'_>, incoming: &Incoming) -> Result<()> {
        // SAFETY: the caller's promise.
        let memory = unsafe { incoming.pieces.only::<PARTS_MAX>(true)?.ok_or(Errno::INVALID)? };
        let receive = receive_of(incoming, memory.start(), memory.len(), self.tells(incoming));
        self.post_whole(sinks, incoming.pattern.source, memory, receive)
    }

    fn peek(&mut self, sinks: &mut Sinks<'_>, incoming: &Incoming) -> Result<()> {
        let receive = receive_of(incoming, 0, 0, true);
        self.look_for(sinks, incoming.pattern, receive, incoming.flags.unwrap_or(0))
    }

    /// # Safety
    /// As the trait says.
    unsafe fn claim(&mut self, sinks: &mut Sinks<'_>, incoming: &Incoming) -> Result<()> {
        let flags = incoming.flags.unwrap_or(0);
        let (start, buffer) = if flags & sys::FI_DISCARD != 0 {
            (0, Buffer::default())
        } else {
            // SAFETY: the caller's promise.
            unsafe { buffer_of(incoming.pieces, true)? }
        };
        let receive = receive_of(incoming, start, buffer.total_len(), self.tells(incoming));
        self.receive_claimed(sinks, buffer, receive, flags)
    }

    fn expose(&mut self, region: &SharedRegion) -> Result<()> {
        self.expose_region(region)
    }

    fn conceal(&mut self, key: u64) -> Result<()> {
        self.conceal_region(key)
    }

    fn begin_remote(
        &mut self,
        sinks: &mut Sinks<'_>,
        call: RemoteCall,
        what: RemoteUse,
    ) -> Result<()> {
        self.access(sinks, call, &what)
    }

    /// Without such a receive nothing happens.
    fn cancel(&mut self, sinks: &mut Sinks<'_>, context: usize) -> Result<()> {
        self.cancel(sinks, context);
        Ok(())
    }
}
