//! The rest of a long message, where its sender writes it into the receiver's buffer.
//!
//! Over `ofi_rxm` pieces have to be short, so each is copied twice. There the receiver registers
//! its buffer and tells the sender where to write (`Packet::WriteTo`). The sender writes the rest
//! by RMA (`fi_rma(3)`), and says so when all of it has gone (`Packet::Written`), which arrives
//! behind what was written (`FI_ORDER_SAW`).
//!
//! It isn't the receiver that reads: `tcp` of libfabric 1.17 reports a read twice if its endpoint
//! is closed in the middle of the answer, and `ofi_rxm` then ends the process by a segmentation
//! fault. A write is reported once, whoever dies.
//!
//! **Keys.** Whoever has the key of a buffer can write to it while it is registered. A key is told
//! to one peer, and is random where the provider lets this device choose.
//!
//! **Memory.** A provider may be in the middle of writing to a buffer when its peer ends, and
//! nothing tells when it has stopped. So memory that is being written to stays with the device then.
//! Memory that is only lent to the device is never registered: the rest of a message of at most 4
//! MiB is written to memory of the device's own, and that of a longer one comes in pieces.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use tagmatch_device::slab::Key;
use tagmatch_device::{Buffer, PeerId};
use tagmatch_ofi_sys as sys;

use super::Ofi;
use super::endpoint::{Begun, Context, Endpoint, begun};
use super::objects::{FabricObjects, call};
use super::operations::{Kind, Operation, WRITTEN_MAX};
use super::pieces::LENT_PIECE;

/// What an endpoint must be able to do for it.
pub(super) const CAPS: u64 = sys::FI_RMA | sys::FI_WRITE | sys::FI_REMOTE_WRITE;

/// Most bytes that are written at a time.
const WRITE_MAX: u32 = 1 << 30;

/// The function of an endpoint that writes.
pub(super) type WriteCall = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    sys::fi_addr_t,
    u64,
    u64,
    *mut c_void,
) -> isize;

/// Memory that a peer may write to.
pub(super) struct Registration(NonNull<sys::fid_mr>);

/// Where a peer may write, as it names the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) key: u64,
    /// Of the first byte of the message.
    pub(super) address: u64,
}

impl Target {
    /// The place of this byte of the message.
    pub(super) fn at(self, start: usize) -> Self {
        Target { address: self.address.wrapping_add(start as u64), ..self }
    }
}

/// How an endpoint registers memory.
#[derive(Clone, Copy)]
pub(super) struct Registering {
    write: WriteCall,
    /// The provider chooses the keys.
    chooses: bool,
    /// The bits of a key.
    key_mask: u64,
    /// Memory is named by its address.
    is_virtual: bool,
}

impl Registering {
    /// `None`: the endpoint can't do it.
    ///
    /// # Safety
    /// An open endpoint, and the description that it was opened with.
    pub(super) unsafe fn of(info: *const sys::fi_info, ep: *const sys::fid_ep) -> Option<Self> {
        // SAFETY: by the caller; all parts of a description are there.
        let (caps, order, domain, rma) = unsafe {
            let order = (*(*info).tx_attr).msg_order & (*(*info).rx_attr).msg_order;
            ((*info).caps, order, &*(*info).domain_attr, (*ep).rma.as_ref()?)
        };
        let needs = |bit| domain.mr_mode & bit != 0;
        if caps & CAPS != CAPS
            || order & sys::FI_ORDER_SAW == 0
            || needs(sys::FI_MR_LOCAL)
            || needs(sys::FI_MR_ENDPOINT)
        {
            return None;
        }
        let key_bits = u32::try_from(domain.mr_key_size).unwrap_or(u32::MAX).saturating_mul(8);
        Some(Registering {
            write: rma.write?,
            chooses: needs(sys::FI_MR_PROV_KEY),
            key_mask: u64::MAX.checked_shr(64u32.saturating_sub(key_bits)).unwrap_or(0),
            is_virtual: needs(sys::FI_MR_VIRT_ADDR),
        })
    }
}

impl Endpoint {
    /// Whether the sender of a long message can write it, at both ends.
    pub(super) fn writes(&self) -> bool {
        self.objects.registering.is_some()
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
    ) -> Option<(Registration, Target)> {
        let FabricObjects { registering, domain, registered, .. } = &mut self.objects;
        let registering = (*registering)?;
        let key = match registering.chooses {
            true => 0,
            false => u64::from_ne_bytes(tagmatch_os::random().ok()?) & registering.key_mask,
        };
        let mut mr = null_mut();
        // SAFETY: an open domain, a place for the result, and by the caller.
        let (mr, key) = unsafe {
            let fid = &raw mut (**domain).fid;
            let (access, place) = (sys::FI_REMOTE_WRITE, &raw mut mr);
            let mr_ops = (**domain).mr;
            let memory = start.cast();
            let answer =
                call!(mr_ops, reg(fid, memory, length, access, 0, key, 0, place, null_mut()));
            let mr = NonNull::new(mr).filter(|_| answer == 0)?;
            (mr, (*mr.as_ptr()).key)
        };
        registered.insert(mr);
        let address = if registering.is_virtual { start.addr() as u64 } else { 0 };
        Some((Registration(mr), Target { key, address }))
    }

    /// No peer may begin to write there any more.
    fn unregister(&mut self, registration: &Registration) {
        if self.objects.registered.remove(&registration.0) {
            self.objects.close_one(registration.0.as_ptr().cast());
        }
    }

    /// Begins to write to memory of a peer.
    ///
    /// # Safety
    /// `length` bytes at `start` stay as they are until the operation has ended or the endpoint is
    /// gone; so does the context, which no other operation has.
    pub(super) unsafe fn write(
        &self,
        to: sys::fi_addr_t,
        (start, length): (*const u8, usize),
        Target { key, address }: Target,
        context: &Context,
    ) -> Begun {
        let Some(registering) = self.objects.registering else {
            return Begun::Failed(sys::FI_ENOSYS);
        };
        let (ep, context) = (self.objects.eps[0], context.place());
        // SAFETY: an open endpoint, and by the caller.
        begun(unsafe {
            (registering.write)(ep, start.cast(), length, null_mut(), to, address, key, context)
        })
    }
}

impl Ofi {
    /// Lets a peer write the first bytes of the message of a receive, if that can be.
    pub(super) fn register(&mut self, key: Key, length: usize) -> Option<(Registration, Target)> {
        let is_lent = !self.operations.at(key)?.buffer.is_vec();
        if is_lent {
            if length > WRITTEN_MAX {
                return None;
            }
            let own = self.operations.written.take();
            let head = std::mem::replace(&mut self.operations.at(key)?.own, own);
            self.operations.heads.keep(head);
        }
        let Operation { buffer, own, .. } = self.operations.at(key)?;
        let memory: &[u8] = if is_lent { own } else { buffer };
        let memory = memory.get(..length)?;
        // SAFETY: the operation keeps its buffer, a vector, or else its own memory until the writer
        // has said that it is done, or else until the endpoint is gone (`Ofi::end_writes`).
        unsafe { self.endpoint.register(memory.as_ptr(), length) }
    }

    /// The sender of a message has written the rest of it.
    pub(super) fn was_written(&mut self, source: PeerId, receive: u32) -> Result<(), &'static str> {
        // A receive that has ended meanwhile, because its peer is ending.
        let Some(key) = self.operations.of_peer(receive) else { return Ok(()) };
        let Some(operation) = self.operations.at(key) else { return Ok(()) };
        let is_its = operation.kind == Kind::Receive && operation.peer == Some(source);
        let long = operation.long.as_mut().filter(|_| is_its);
        let Some((long, registration)) =
            long.and_then(|long| long.registration.take().map(|registration| (long, registration)))
        else {
            return Err("the end of no message that is being written");
        };
        long.out = 0;
        let rest = long.next..long.end;
        self.endpoint.unregister(&registration);
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
        let keys = self.operations.keys(|operation| {
            operation.peer == Some(peer)
                && operation.long.as_ref().is_some_and(|long| long.registration.is_some())
        });
        for key in keys {
            let long = self.operations.at(key).and_then(|operation| operation.long.as_mut());
            if let Some(registration) = long.and_then(|long| long.registration.take()) {
                self.endpoint.unregister(&registration);
                self.end_lost(key);
            }
        }
    }
}

/// Most bytes of this buffer that are written at a time.
pub(super) fn write_max(buffer: &Buffer) -> u32 {
    if buffer.is_vec() { WRITE_MAX } else { LENT_PIECE }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn write(
        _: *mut sys::fid_ep,
        _: *const c_void,
        _: usize,
        _: *mut c_void,
        _: sys::fi_addr_t,
        _: u64,
        _: u64,
        _: *mut c_void,
    ) -> isize {
        0
    }

    /// How an endpoint registers memory that has these capabilities, orders, modes and bytes of a
    /// key.
    fn registering(
        caps: u64,
        [tx_order, rx_order]: [u64; 2],
        mr_mode: i32,
        key_bytes: usize,
    ) -> Option<Registering> {
        let (mut tx, mut rx) = (sys::fi_tx_attr::zeroed(), sys::fi_rx_attr::zeroed());
        (tx.msg_order, rx.msg_order) = (tx_order, rx_order);
        let mut domain = sys::fi_domain_attr::zeroed();
        (domain.mr_mode, domain.mr_key_size) = (mr_mode, key_bytes);
        let mut info = sys::fi_info::zeroed();
        info.caps = caps;
        (info.tx_attr, info.rx_attr) = (&raw mut tx, &raw mut rx);
        info.domain_attr = &raw mut domain;
        let mut rma = sys::fi_ops_rma { write: Some(write), ..sys::fi_ops_rma::zeroed() };
        let mut ep = sys::fid_ep::zeroed();
        ep.rma = &raw mut rma;
        // SAFETY: a description with the parts that are read, and an endpoint with its functions.
        unsafe { Registering::of(&raw const info, &raw const ep) }
    }

    #[test]
    fn memory_is_registered_as_the_provider_wants_it() {
        let ordered = [sys::FI_ORDER_SAW; 2];
        let plain = registering(CAPS, ordered, 0, 8).unwrap();
        assert!(!plain.chooses && !plain.is_virtual && plain.key_mask == u64::MAX);
        let mode = sys::FI_MR_PROV_KEY | sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED;
        let verbs = registering(CAPS, ordered, mode, 4).unwrap();
        assert!(verbs.chooses && verbs.is_virtual && verbs.key_mask == 0xffff_ffff);
    }

    #[test]
    fn nothing_is_written_that_the_word_of_its_end_may_overtake_or_that_needs_more() {
        let ordered = [sys::FI_ORDER_SAW; 2];
        for (caps, order, mode) in [
            (CAPS & !sys::FI_REMOTE_WRITE, ordered, 0),
            (CAPS & !sys::FI_WRITE, ordered, 0),
            (CAPS, [sys::FI_ORDER_SAW, 0], 0),
            (CAPS, [0, sys::FI_ORDER_SAW], 0),
            (CAPS, ordered, sys::FI_MR_LOCAL),
            (CAPS, ordered, sys::FI_MR_ENDPOINT),
        ] {
            assert!(registering(caps, order, mode, 8).is_none(), "{caps:x} {order:?} {mode}");
        }
    }

    #[test]
    fn places_of_a_message_are_counted_from_its_first_byte() {
        let target = Target { key: 3, address: u64::MAX - 1 };
        assert_eq!(target.at(5), Target { key: 3, address: 3 });
    }

    #[test]
    fn lent_memory_is_written_in_parts_and_vectors_whole() {
        let mut lent = vec![0u8; 8];
        let start = NonNull::new(lent.as_mut_ptr()).unwrap();
        // SAFETY: the memory lives longer than the buffer.
        let lent = unsafe { Buffer::from_raw(start, 8, true) };
        assert_eq!((write_max(&lent), write_max(&Buffer::zeroed(8))), (LENT_PIECE, 1 << 30));
    }
}
