//! Endpoints, and the calls that send and receive.

use std::ffi::c_void;
use std::ptr;

use super::domain::{bind, close, control};
use super::{Code, Counter, Domain, Memory, Queue, Vector, call, code, sys};

/// The name of an endpoint.
pub(crate) type Name = [u8; sys::FI_NAME_MAX];

/// An endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Endpoint {
    pub(crate) endpoint: *mut sys::fid_ep,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Endpoint {}
// SAFETY: as for `Send`.
unsafe impl Sync for Endpoint {}

/// The arguments of `fi_sendmsg`, `fi_tsendmsg` and their counterparts for receives. The address is
/// that of the peer, or `FI_ADDR_UNSPEC`.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) parts: &'a [Memory],
    pub(crate) address: u64,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: usize,
    pub(crate) data: u64,
}

impl Default for Call<'_> {
    fn default() -> Self {
        let address = sys::FI_ADDR_UNSPEC;
        Call { parts: &[], address, tag: 0, ignore: 0, context: 0, data: 0 }
    }
}

/// The address and the tag of a call.
pub(crate) fn at(address: u64, tag: u64) -> Call<'static> {
    Call { address, tag, ..Call::default() }
}

impl Call<'_> {
    /// Calls with the arguments as C structures, whose memory is gone when the call has returned.
    fn with(&self, run: impl FnOnce(&sys::fi_msg_tagged, &sys::fi_msg) -> Code) -> Code {
        let parts = parts_of(self.parts);
        let Call { address: addr, tag, ignore, context, data, .. } = *self;
        let context = word(context);
        let msg_iov = parts.as_ptr();
        let iov_count = parts.len();
        let desc = ptr::null_mut();
        let tagged =
            sys::fi_msg_tagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data };
        run(&tagged, &sys::fi_msg { msg_iov, desc, iov_count, addr, context, data })
    }
}

/// Memory without a description, one part of it or several.
pub(super) const NONE: *mut c_void = ptr::null_mut();
pub(super) const DESC: *mut *mut c_void = ptr::null_mut();

pub(super) fn word(context: usize) -> *mut c_void {
    ptr::without_provenance_mut(context)
}

pub(super) fn parts_of(parts: &[Memory]) -> Vec<libc::iovec> {
    parts.iter().map(Memory::part_of_call).collect()
}

/// Calls a function of a table of the endpoint, whose first argument is the endpoint.
macro_rules! run {
    ($self:ident.$table:ident.$function:ident($($argument:expr),*)) => {
        code(call!($self.object().$table, $function($self.endpoint, $($argument),*)))
    };
}
pub(super) use run;

impl Endpoint {
    pub(crate) fn open(domain: Domain) -> Result<Self, i32> {
        let functions = domain.functions();
        let mut endpoint = ptr::null_mut();
        let Domain { domain, info, .. } = domain;
        let context = ptr::null_mut();
        code(call!(functions, endpoint(domain, info, &raw mut endpoint, context)))?;
        Ok(Endpoint { endpoint })
    }

    pub(super) fn fid(&self) -> *mut sys::fid {
        self.endpoint.cast()
    }

    pub(super) fn object(&self) -> &sys::fid_ep {
        // SAFETY: the provider gave the endpoint.
        unsafe { &*self.endpoint }
    }

    pub(crate) fn bind(&self, other: *mut sys::fid, flags: u64) -> Code {
        bind(self.fid(), other, flags)
    }

    pub(crate) fn bind_vector(&self, vector: Vector) -> Code {
        self.bind(vector.vector.cast(), 0)
    }

    pub(crate) fn bind_queue(&self, queue: Queue, flags: u64) -> Code {
        self.bind(queue.queue.cast(), flags)
    }

    pub(crate) fn bind_counter(&self, counter: Counter, flags: u64) -> Code {
        self.bind(counter.counter.cast(), flags)
    }

    pub(crate) fn enable(&self) -> Code {
        control::<()>(self.fid(), sys::FI_ENABLE, ptr::null_mut())
    }

    pub(crate) fn close(&self) -> Code {
        close(self.fid())
    }

    pub(crate) fn name(&self) -> Name {
        let mut name = [0; sys::FI_NAME_MAX];
        let mut length = name.len();
        self.name_into(&mut name, &mut length).expect("an endpoint has a name");
        assert_eq!(length, name.len(), "names have 64 bytes");
        name
    }

    pub(crate) fn name_into(&self, to: &mut [u8], length: &mut usize) -> Code {
        self.name_at(to.as_mut_ptr().cast(), length)
    }

    /// Asks for the name without a place for it.
    pub(crate) fn name_nowhere(&self, length: &mut usize) -> Code {
        self.name_at(ptr::null_mut(), length)
    }

    fn name_at(&self, to: *mut c_void, length: &mut usize) -> Code {
        code(call!(self.object().cm, getname(self.fid(), to, ptr::from_mut(length))))
    }

    pub(crate) fn set_multi_min(&self, minimum: usize) {
        let level = sys::FI_OPT_ENDPOINT;
        let option = sys::FI_OPT_MIN_MULTI_RECV;
        let value = (&raw const minimum).cast();
        let length = size_of::<usize>();
        code(call!(self.object().ops, setopt(self.fid(), level, option, value, length)))
            .expect("the minimum can be set");
    }

    pub(crate) fn multi_min(&self) -> usize {
        let level = sys::FI_OPT_ENDPOINT;
        let option = sys::FI_OPT_MIN_MULTI_RECV;
        let mut minimum = 0usize;
        let mut length = size_of::<usize>();
        let value = (&raw mut minimum).cast();
        let length = &raw mut length;
        code(call!(self.object().ops, getopt(self.fid(), level, option, value, length)))
            .expect("the minimum can be read");
        minimum
    }

    /// The flags of operations in this direction that are given none.
    pub(crate) fn flags(&self, direction: u64) -> Result<u64, i32> {
        let mut flags = direction;
        control(self.fid(), sys::FI_GETOPSFLAG, &raw mut flags).map(|_| flags)
    }

    /// Sets the flags of operations in the direction that is one of the flags.
    pub(crate) fn set_flags(&self, flags: u64) -> Code {
        let mut flags = flags;
        control(self.fid(), sys::FI_SETOPSFLAG, &raw mut flags)
    }

    /// `fi_cancel`.
    pub(crate) fn cancel(&self, context: usize) -> Code {
        code(call!(self.object().ops, cancel(self.fid(), word(context))))
    }

    /// `fi_tsend`.
    pub(crate) fn tsend(&self, from: Memory, to: u64, tag: u64, context: usize) -> Code {
        run!(self.tagged.send(from.start().cast(), from.len(), NONE, to, tag, word(context)))
    }

    /// `fi_tsenddata`.
    pub(crate) fn tsenddata(&self, from: Memory, data: u64, to: Call<'_>, context: usize) -> Code {
        let start = from.start().cast();
        let length = from.len();
        let context = word(context);
        run!(self.tagged.senddata(start, length, NONE, data, to.address, to.tag, context))
    }

    /// `fi_tsendv`.
    pub(crate) fn tsendv(&self, parts: &[Memory], to: u64, tag: u64, context: usize) -> Code {
        let parts = parts_of(parts);
        run!(self.tagged.sendv(parts.as_ptr(), DESC, parts.len(), to, tag, word(context)))
    }

    /// `fi_tinject`.
    pub(crate) fn tinject(&self, bytes: &[u8], to: u64, tag: u64) -> Code {
        run!(self.tagged.inject(bytes.as_ptr().cast(), bytes.len(), to, tag))
    }

    /// `fi_tinjectdata`.
    pub(crate) fn tinjectdata(&self, bytes: &[u8], data: u64, to: u64, tag: u64) -> Code {
        run!(self.tagged.injectdata(bytes.as_ptr().cast(), bytes.len(), data, to, tag))
    }

    /// `fi_tsendmsg`.
    pub(crate) fn tsendmsg(&self, call: Call<'_>, flags: u64) -> Code {
        call.with(|message, _| run!(self.tagged.sendmsg(message, flags)))
    }

    /// `fi_trecv` from any source.
    pub(crate) fn trecv(&self, to: Memory, tag: u64, ignore: u64, context: usize) -> Code {
        self.trecv_from(to, Call { ignore, ..at(sys::FI_ADDR_UNSPEC, tag) }, context)
    }

    /// `fi_trecv`.
    pub(crate) fn trecv_from(&self, to: Memory, wanted: Call<'_>, context: usize) -> Code {
        let Call { address, tag, ignore, .. } = wanted;
        let start = to.start().cast();
        let length = to.len();
        let context = word(context);
        run!(self.tagged.recv(start, length, NONE, address, tag, ignore, context))
    }

    /// `fi_trecvv` from any source.
    pub(crate) fn trecvv(&self, parts: &[Memory], tag: u64, context: usize) -> Code {
        let parts = parts_of(parts);
        let to = parts.as_ptr();
        let count = parts.len();
        let any = sys::FI_ADDR_UNSPEC;
        run!(self.tagged.recvv(to, DESC, count, any, tag, 0, word(context)))
    }

    /// `fi_trecvmsg`.
    pub(crate) fn trecvmsg(&self, call: Call<'_>, flags: u64) -> Code {
        call.with(|message, _| run!(self.tagged.recvmsg(message, flags)))
    }

    /// `fi_send`.
    pub(crate) fn send(&self, from: Memory, to: u64, context: usize) -> Code {
        run!(self.msg.send(from.start().cast(), from.len(), NONE, to, word(context)))
    }

    /// `fi_senddata`.
    pub(crate) fn senddata(&self, from: Memory, data: u64, to: u64, context: usize) -> Code {
        run!(self.msg.senddata(from.start().cast(), from.len(), NONE, data, to, word(context)))
    }

    /// `fi_sendv`.
    pub(crate) fn sendv(&self, parts: &[Memory], to: u64, context: usize) -> Code {
        let parts = parts_of(parts);
        run!(self.msg.sendv(parts.as_ptr(), DESC, parts.len(), to, word(context)))
    }

    /// `fi_inject`.
    pub(crate) fn inject(&self, bytes: &[u8], to: u64) -> Code {
        run!(self.msg.inject(bytes.as_ptr().cast(), bytes.len(), to))
    }

    /// `fi_injectdata`.
    pub(crate) fn injectdata(&self, bytes: &[u8], data: u64, to: u64) -> Code {
        run!(self.msg.injectdata(bytes.as_ptr().cast(), bytes.len(), data, to))
    }

    /// `fi_sendmsg`.
    pub(crate) fn sendmsg(&self, call: Call<'_>, flags: u64) -> Code {
        call.with(|_, message| run!(self.msg.sendmsg(message, flags)))
    }

    /// `fi_recv` from any source.
    pub(crate) fn recv(&self, to: Memory, context: usize) -> Code {
        self.recv_from(to, sys::FI_ADDR_UNSPEC, context)
    }

    /// `fi_recv`.
    pub(crate) fn recv_from(&self, to: Memory, source: u64, context: usize) -> Code {
        run!(self.msg.recv(to.start().cast(), to.len(), NONE, source, word(context)))
    }

    /// `fi_recvv` from any source.
    pub(crate) fn recvv(&self, parts: &[Memory], context: usize) -> Code {
        let parts = parts_of(parts);
        let any = sys::FI_ADDR_UNSPEC;
        run!(self.msg.recvv(parts.as_ptr(), DESC, parts.len(), any, word(context)))
    }

    /// `fi_recvmsg`.
    pub(crate) fn recvmsg(&self, call: Call<'_>, flags: u64) -> Code {
        call.with(|_, message| run!(self.msg.recvmsg(message, flags)))
    }
}
