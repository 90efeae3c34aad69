//! The rest of a long message, where its sender writes it into the receiver's buffer.
//!
//! Over `ofi_rxm` pieces have to be short, so each is copied twice. There the receiver registers
//! its buffer and tells the sender where to write (`Packet::WriteTo`). The sender writes the rest
//! by RMA (`fi_rma(3)`), and says so when all of it has gone (`Packet::Written`), which arrives
//! behind what was written (`FI_ORDER_SAW`).
//!
//! It isn't the receiver that reads: `tcp` of libfabric 1.17 reports a read twice if its connection
//! ends in the middle of the answer (it is the current one, and stands in its queue, too), and
//! `ofi_rxm` then ends the process by a segmentation fault. A write is reported once, whoever dies.
//!
//! **Keys.** Whoever has the key of a buffer can write to it while it is registered. A key is told
//! to one peer, and is random where the provider lets this device choose.
//!
//! **Memory.** A provider may be in the middle of writing to a buffer when its peer ends, and
//! nothing tells when it has stopped. So memory that is being written to stays with the device
//! then. Memory that is only lent to the device is never registered: the rest of a message of at
//! most 4 MiB is written to memory of the device's own, and that of a longer one comes in pieces.

use std::ptr::{NonNull, null_mut};

use tagmatch_device::PeerId;
use tagmatch_device::slab::Key;
use tagmatch_ofi_sys as sys;

use super::OfiTransport;
use super::endpoint::{Begun, MemorySpan, OperationContext, begun};
use super::objects::{Endpoint, call};
use super::operations::{Kind, OfiOperation, WRITTEN_MAX};
use super::rma::{Target, WritableRegion};

impl Endpoint {
    /// Whether the sender of a long message can write it, at both ends.
    pub(super) fn writes(&self) -> bool {
        self.registering.is_some()
    }

    /// Lets the peer that is told the key write to this memory.
    ///
    /// # Safety
    /// The memory stays, and nobody looks at it, until it is registered no more and no peer writes
    /// to it, or the endpoint is gone.
    unsafe fn register(
        &mut self,
        start: *const u8,
        length: usize,
    ) -> Option<(WritableRegion, Target)> {
        let Endpoint { registering, domain, registered, .. } = self;
        let registering = (*registering)?;
        let key = if registering.chooses {
            0
        } else {
            u64::from_ne_bytes(tagmatch_os::random().ok()?) & registering.key_mask
        };
        let mut mr = null_mut();
        // SAFETY: an open domain, a place for the result, and by the caller.
        let (mr, key) = unsafe {
            let fid = &raw mut (**domain).fid;
            let access = sys::FI_REMOTE_WRITE;
            let place = &raw mut mr;
            let mr_ops = (**domain).mr;
            let memory = start.cast();
            let answer =
                call!(mr_ops, reg(fid, memory, length, access, 0, key, 0, place, null_mut()));
            let mr = NonNull::new(mr).filter(|_| answer == 0)?;
            (mr, (*mr.as_ptr()).key)
        };
        registered.insert(mr);
        let address = if registering.is_virtual { start.addr() as u64 } else { 0 };
        Some((WritableRegion(mr), Target { key, address }))
    }

    /// No peer may begin to write there any more.
    fn unregister(&mut self, region: &WritableRegion) {
        if self.registered.remove(&region.0) {
            self.close_one(region.0.as_ptr().cast());
        }
    }

    /// Begins to write to memory of a peer.
    ///
    /// # Safety
    /// Those of [`Endpoint::send`].
    pub(super) unsafe fn write(
        &self,
        to: sys::fi_addr_t,
        bytes: MemorySpan,
        Target { key, address }: Target,
        context: &OperationContext,
    ) -> Begun {
        let Some(registering) = self.registering else {
            return Begun::Failed(sys::FI_ENOSYS);
        };
        let ep = self.eps[0];
        let start = bytes.start.cast_const().cast();
        let context = context.place();
        // SAFETY: an open endpoint, and by the caller.
        begun(unsafe {
            (registering.write)(ep, start, bytes.length, null_mut(), to, address, key, context)
        })
    }
}

impl OfiTransport {
    /// Lets a peer write the first bytes of the message of a receive, if that can be.
    pub(super) fn register(&mut self, key: Key, length: usize) -> Option<(WritableRegion, Target)> {
        let buffer = &self.core.operations.at(key)?.buffer;
        let is_lent = !buffer.is_vec();
        let room = if is_lent { WRITTEN_MAX } else { buffer.len() };
        if length > room {
            return None;
        }
        if is_lent {
            let own = self.core.operations.pool.written.take();
            let head = std::mem::replace(&mut self.core.operations.at(key)?.own, own);
            self.core.operations.pool.heads.keep(head);
        }
        let OfiOperation { buffer, own, .. } = self.core.operations.at(key)?;
        let start = if is_lent { own.as_mut_ptr().cast_const() } else { buffer.as_ptr() };
        // SAFETY: there are so many bytes. The operation keeps its buffer, a vector, or else its
        // own memory until the writer has said that it is done, or else until the endpoint is gone
        // (`OfiTransport::end_writes`).
        unsafe { self.endpoint.register(start, length) }
    }

    /// The sender of a message has written the rest of it.
    pub(super) fn was_written(&mut self, source: PeerId, receive: u32) -> Result<(), &'static str> {
        // A receive that has ended meanwhile, because its peer is ending.
        let Some(key) = self.core.operations.of_peer(receive) else { return Ok(()) };
        let Some(operation) = self.core.operations.at(key) else { return Ok(()) };
        let is_its = operation.kind == Kind::Receive && operation.peer == Some(source);
        let long = operation.long.as_mut().filter(|_| is_its);
        let Some((long, region)) =
            long.and_then(|long| long.region.take().map(|region| (long, region)))
        else {
            return Err("the end of no message that is being written");
        };
        long.out = 0;
        let rest = long.next..long.end;
        self.endpoint.unregister(&region);
        if let Some(bytes) = operation.own.get(rest.clone())
            && !operation.buffer.is_vec()
        {
            operation.buffer.room().and_then(|room| room.part(rest)).map(|room| room.fill(bytes));
        }
        self.rest_received(key);
        Ok(())
    }

    /// Ends what a peer was writing. The memory stays with the device.
    pub(super) fn end_writes(&mut self, peer: PeerId) {
        let keys = self.core.operations.keys(|operation| {
            operation.peer == Some(peer)
                && operation.long.as_ref().is_some_and(|long| long.region.is_some())
        });
        for key in keys {
            let long = self.core.operations.at(key).and_then(|operation| operation.long.as_mut());
            if let Some(region) = long.and_then(|long| long.region.take()) {
                self.endpoint.unregister(&region);
                self.end_lost(key);
            }
        }
    }
}
