//! Operations under way, and the callbacks by which UCX reports their ends.
//!
//! UCX calls back from inside its own functions. A callback writes to the context of its
//! operation, whose memory never moves, and appends the context to a list. It does nothing else: it
//! calls no function that could panic, and none of UCX or of the device. Polling takes contexts off
//! the list.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use tagmatch_device::{Buffer, PeerId};
use tagmatch_fabric::{Canceller, Operation};
use tagmatch_ucx_sys as sys;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A send.
    Send,
    /// A receive.
    Receive,
    /// A receive that discards a message.
    Discard,
}

/// One operation. UCX owns its buffer until it has ended.
pub struct UcxOperation {
    pub(super) kind: RequestKind,
    pub(super) token: u64,
    /// The peer that the operation depends on: the receiver of a send, the sender that a receive
    /// names.
    pub(super) peer: Option<PeerId>,
    pub(super) buffer: Buffer,
    pub(super) canceller: Canceller,
    /// Of a send: the application's tag and immediate data, and whether the send ends when it is
    /// matched.
    pub(super) tag: u64,
    pub(super) immediate: Option<u32>,
    pub(super) is_synchronous: bool,
}

/// What UCX has of an operation, and what its callback tells.
pub struct UcxContext {
    pub(super) index: u32,
    /// UCX's request, to be freed when the operation has ended.
    pub(super) request: Cell<*mut c_void>,
    pub(super) has_ended: Cell<bool>,
    pub(super) status: Cell<sys::ucs_status_t>,
    /// Of a receive: tag and length of its message.
    pub(super) tag: Cell<u64>,
    pub(super) length: Cell<usize>,
    next: Cell<*const UcxContext>,
    ends: Rc<Ends>,
}

/// The list of ended operations, first to last, and whether an endpoint has failed.
pub struct Ends {
    first: Cell<*const UcxContext>,
    last: Cell<*const UcxContext>,
    /// An endpoint has failed since the last look at this flag.
    pub(super) has_fault: Cell<bool>,
}

/// The argument of the callback for an endpoint's failure.
pub(super) struct Fault {
    pub(super) has_failed: Cell<bool>,
    ends: Rc<Ends>,
}

impl UcxOperation {
    /// An operation that isn't a send.
    pub(super) fn new(kind: RequestKind, peer: Option<PeerId>, token: u64, buffer: Buffer) -> Self {
        UcxOperation {
            kind,
            token,
            peer,
            buffer,
            canceller: Canceller::Nobody,
            tag: 0,
            immediate: None,
            is_synchronous: false,
        }
    }
}

impl Operation for UcxOperation {
    type Context = UcxContext;
    type Pool = Rc<Ends>;
    const MAX: u32 = 1 << 24;

    fn context(index: u32, ends: &Rc<Ends>) -> UcxContext {
        UcxContext {
            index,
            request: Cell::new(ptr::null_mut()),
            has_ended: Cell::new(false),
            status: Cell::new(sys::UCS_OK),
            tag: Cell::new(0),
            length: Cell::new(0),
            next: Cell::new(ptr::null()),
            ends: Rc::clone(ends),
        }
    }

    #[inline]
    fn recycle(&mut self, _: &mut Rc<Ends>) {}

    #[inline]
    fn token(&self) -> u64 {
        self.token
    }

    #[inline]
    fn peer(&self) -> Option<PeerId> {
        self.peer
    }

    fn is_send(&self) -> bool {
        self.kind == RequestKind::Send
    }

    fn is_receive(&self) -> bool {
        self.kind == RequestKind::Receive
    }

    #[inline]
    fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl UcxContext {
    /// The argument that UCX passes to the callback.
    #[inline]
    pub(super) fn user_data(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// For another operation.
    #[inline]
    pub(super) fn renew(&self) {
        self.request.set(ptr::null_mut());
        self.has_ended.set(false);
    }

    /// Appends the operation to the list of ended operations.
    #[inline]
    pub(super) fn end(&self, status: sys::ucs_status_t) {
        self.status.set(status);
        self.has_ended.set(true);
        let last = self.ends.last.replace(self);
        if last.is_null() {
            self.ends.first.set(self);
        } else {
            // SAFETY: a context of the table, whose memory stays.
            unsafe { (*last).next.set(self) };
        }
    }
}

impl Ends {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Ends {
            first: Cell::new(ptr::null()),
            last: Cell::new(ptr::null()),
            has_fault: Cell::new(false),
        })
    }

    /// Takes the first operation off the list.
    #[inline]
    pub(super) fn next(&self) -> Option<&UcxContext> {
        // SAFETY: null, or a context of the table, whose memory stays.
        let first = unsafe { self.first.get().as_ref() }?;
        let next = first.next.replace(ptr::null());
        self.first.set(next);
        if next.is_null() {
            self.last.set(ptr::null());
        }
        Some(first)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.get().is_null()
    }

    /// The argument for the callback of an endpoint's failure.
    pub(super) fn fault(self: &Rc<Self>) -> Rc<Fault> {
        Rc::new(Fault { has_failed: Cell::new(false), ends: Rc::clone(self) })
    }
}

/// The callback for the end of a send.
pub(super) unsafe extern "C" fn sent(
    _request: *mut c_void,
    status: sys::ucs_status_t,
    user_data: *mut c_void,
) {
    // SAFETY: the `user_data` of a context, whose memory stays.
    unsafe { (*user_data.cast::<UcxContext>()).end(status) };
}

/// The callback for the end of a receive, cancelled ones included.
pub(super) unsafe extern "C" fn received(
    _request: *mut c_void,
    status: sys::ucs_status_t,
    info: *const sys::ucp_tag_recv_info_t,
    user_data: *mut c_void,
) {
    // SAFETY: the `user_data` of a context, whose memory stays; facts that live through the call.
    unsafe {
        let context = &*user_data.cast::<UcxContext>();
        if let Some(info) = info.as_ref() {
            context.tag.set(info.sender_tag);
            context.length.set(info.length);
        }
        context.end(status);
    }
}

/// The callback for the failure of an endpoint.
pub(super) unsafe extern "C" fn failed(
    fault: *mut c_void,
    _endpoint: sys::ucp_ep_h,
    _status: sys::ucs_status_t,
) {
    // SAFETY: what `Worker::connect` gave UCX, which lives as long as the worker.
    let fault = unsafe { &*fault.cast::<Fault>() };
    fault.has_failed.set(true);
    fault.ends.has_fault.set(true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tagmatch_fabric::Operations;

    #[test]
    fn ends_come_in_their_order_and_slots_are_used_again() {
        let mut table = Operations::new(Ends::new());
        let keys: Vec<_> = (0..600u64)
            .map(|token| {
                let operation =
                    UcxOperation::new(RequestKind::Receive, None, token, Buffer::default());
                table.enter(operation).ok().unwrap()
            })
            .collect();
        for key in keys.iter().rev() {
            let info = sys::ucp_tag_recv_info_t { sender_tag: 5, length: 6 };
            let user_data = table.with_context(*key).unwrap().1.user_data();
            // SAFETY: a context of this table.
            unsafe { received(ptr::null_mut(), -9, &raw const info, user_data) };
        }
        let ends = Rc::clone(&table.pool);
        for token in (0..600).rev() {
            let ended = ends.next().unwrap();
            assert_eq!((ended.status.get(), ended.has_ended.get()), (-9, true));
            assert_eq!((ended.tag.get(), ended.length.get()), (5, 6));
            let key = table.key_at(ended.index).unwrap();
            assert_eq!(table.remove(key).unwrap().token, token);
        }
        assert!(ends.next().is_none() && ends.is_empty() && table.is_empty());
        let again = UcxOperation::new(RequestKind::Send, Some(PeerId(1)), 9, Buffer::default());
        let key = table.enter(again).ok().unwrap();
        let (_, context) = table.with_context(key).unwrap();
        context.renew();
        assert!(!context.has_ended.get() && key.index < 600);
    }

    #[test]
    fn a_fault_is_noticed() {
        let ends = Ends::new();
        let fault = ends.fault();
        let argument = Rc::as_ptr(&fault).cast_mut().cast();
        // SAFETY: a fault, which lives through the call.
        unsafe { failed(argument, ptr::null_mut(), -80) };
        assert!(ends.has_fault.get() && fault.has_failed.get());
    }
}
