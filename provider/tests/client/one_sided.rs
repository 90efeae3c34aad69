//! Memory regions, and the calls that begin one-sided operations.

use std::ffi::c_void;
use std::ptr;

use super::domain::{bind, close, control};
use super::endpoint::{DESC, NONE, parts_of, run, word};
use super::{Code, Domain, Endpoint, Memory, call, code, sys};

/// A memory region.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    region: *mut sys::fid_mr,
}

/// A place in a peer's memory.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The peer's address in the vector.
    pub(crate) peer: u64,
    pub(crate) key: u64,
    pub(crate) address: u64,
}

/// The arguments of `fi_readmsg` and `fi_writemsg`.
#[derive(Clone, Copy)]
pub(crate) struct RemoteCall<'a> {
    pub(crate) parts: &'a [Memory],
    pub(crate) place: Place,
    /// The bytes that the call names there.
    pub(crate) length: usize,
    /// Further places, and how many bytes of each.
    pub(crate) more: &'a [(Place, usize)],
    pub(crate) context: usize,
    pub(crate) data: u64,
}

/// An operation on elements of a type.
#[derive(Clone, Copy)]
pub(crate) struct Elements {
    pub(crate) op: sys::fi_op,
    pub(crate) datatype: sys::fi_datatype,
    /// Bytes of an element.
    pub(crate) size: usize,
}

impl Region {
    /// `fi_mr_reg`.
    pub(crate) fn open(domain: Domain, memory: Memory, access: u64, key: u64) -> Result<Self, i32> {
        let mut region = ptr::null_mut();
        let fid = domain.domain.cast();
        let start = memory.start().cast_const().cast();
        let to = &raw mut region;
        let functions = domain.registrations();
        let length = memory.len();
        code(call!(functions, reg(fid, start, length, access, 0, key, 0, to, NONE)))?;
        Ok(Region { region })
    }

    /// `fi_mr_regv`.
    pub(crate) fn open_several(
        domain: Domain,
        parts: &[Memory],
        access: u64,
        key: u64,
    ) -> Result<Self, i32> {
        let mut region = ptr::null_mut();
        let fid = domain.domain.cast();
        let parts = parts_of(parts);
        let to = &raw mut region;
        let functions = domain.registrations();
        let from = parts.as_ptr();
        code(call!(functions, regv(fid, from, parts.len(), access, 0, key, 0, to, NONE)))?;
        Ok(Region { region })
    }

    /// `fi_mr_regattr`.
    pub(crate) fn open_as(
        domain: Domain,
        attributes: &sys::fi_mr_attr,
        flags: u64,
    ) -> Result<Self, i32> {
        let mut region = ptr::null_mut();
        let fid = domain.domain.cast();
        let to = &raw mut region;
        code(call!(domain.registrations(), regattr(fid, attributes, flags, to)))?;
        Ok(Region { region })
    }

    /// `fi_mr_key`.
    pub(crate) fn key(&self) -> u64 {
        // SAFETY: the provider gave the region.
        unsafe { (*self.region).key }
    }

    /// `fi_mr_bind`.
    pub(crate) fn bind(&self, other: *mut sys::fid, flags: u64) -> Code {
        bind(self.region.cast(), other, flags)
    }

    /// `fi_mr_enable`.
    pub(crate) fn enable(&self) -> Code {
        control::<()>(self.region.cast(), sys::FI_ENABLE, ptr::null_mut())
    }

    pub(crate) fn close(&self) -> Code {
        close(self.region.cast())
    }
}

impl Domain {
    fn registrations(&self) -> *mut sys::fi_ops_mr {
        // SAFETY: the provider gave the domain.
        unsafe { (*self.domain).mr }
    }

    /// A region that peers may read and write.
    pub(crate) fn region(&self, memory: Memory, key: u64) -> Region {
        let access = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
        Region::open(*self, memory, access, key).expect("memory is registered")
    }

    /// `fi_query_atomic`: the size of an element, and how many there may be.
    pub(crate) fn query_atomic(&self, what: Elements, flags: u64) -> Result<(usize, usize), i32> {
        let mut attributes = sys::fi_atomic_attr::zeroed();
        let Elements { op, datatype, .. } = what;
        let to = &raw mut attributes;
        let functions = self.functions();
        code(call!(functions, query_atomic(self.domain, datatype, op, to, flags)))?;
        Ok((attributes.size, attributes.count))
    }
}

impl RemoteCall<'_> {
    fn with(&self, run: impl FnOnce(&sys::fi_msg_rma) -> Code) -> Code {
        let parts = parts_of(self.parts);
        let places = [&[(self.place, self.length)], self.more].concat();
        let remote = |(place, len): &(Place, usize)| sys::fi_rma_iov {
            addr: place.address,
            len: *len,
            key: place.key,
        };
        let remote: Vec<_> = places.iter().map(remote).collect();
        run(&sys::fi_msg_rma {
            msg_iov: parts.as_ptr(),
            desc: DESC,
            iov_count: parts.len(),
            addr: self.place.peer,
            rma_iov: remote.as_ptr(),
            rma_iov_count: remote.len(),
            context: word(self.context),
            data: self.data,
        })
    }
}

/// The elements of memory as an argument of calls with several pieces.
fn elements_of(parts: &[Memory], size: usize) -> Vec<sys::fi_ioc> {
    let part = |part: &Memory| sys::fi_ioc { addr: part.start().cast(), count: part.len() / size };
    parts.iter().map(part).collect()
}

fn count_of(parts: &[Memory], what: Elements) -> usize {
    parts.iter().map(|part| part.len() / what.size).sum()
}

/// Calls with an operation on these elements as a C structure.
fn with_atomic(
    operands: &[Memory],
    places: &[(Place, usize)],
    what: Elements,
    context: usize,
    run: impl FnOnce(&sys::fi_msg_atomic) -> Code,
) -> Code {
    let parts = elements_of(operands, what.size);
    let remote = |(place, count): &(Place, usize)| sys::fi_rma_ioc {
        addr: place.address,
        count: *count,
        key: place.key,
    };
    let remote: Vec<_> = places.iter().map(remote).collect();
    run(&sys::fi_msg_atomic {
        msg_iov: parts.as_ptr(),
        desc: DESC,
        iov_count: parts.len(),
        addr: places[0].0.peer,
        rma_iov: remote.as_ptr(),
        rma_iov_count: remote.len(),
        datatype: what.datatype,
        op: what.op,
        context: word(context),
        data: 0,
    })
}

/// Calls a function of the endpoint that has the place of a peer's bytes among its arguments.
macro_rules! run_at {
    ($self:ident.$table:ident.$function:ident($($before:expr),*; $place:ident $(, $behind:expr)*)) => {
        run!($self.$table.$function(
            $($before,)* $place.peer, $place.address, $place.key $(, $behind)*
        ))
    };
}

/// Calls a function of the endpoint for elements: `what` and the context are its last arguments.
macro_rules! run_for {
    ($self:ident.$function:ident($($before:expr),*; $place:ident, $what:ident, $context:ident)) => {
        run_at!($self.atomic.$function(
            $($before),*; $place, $what.datatype, $what.op, word($context)
        ))
    };
}

impl Endpoint {
    /// `fi_read`.
    pub(crate) fn read(&self, to: Memory, from: Place, context: usize) -> Code {
        let start = to.start().cast::<c_void>();
        run_at!(self.rma.read(start, to.len(), NONE; from, word(context)))
    }

    /// `fi_readv`.
    pub(crate) fn readv(&self, to: &[Memory], from: Place, context: usize) -> Code {
        let parts = parts_of(to);
        run_at!(self.rma.readv(parts.as_ptr(), DESC, parts.len(); from, word(context)))
    }

    /// `fi_readmsg`.
    pub(crate) fn readmsg(&self, call: RemoteCall<'_>, flags: u64) -> Code {
        call.with(|message| run!(self.rma.readmsg(message, flags)))
    }

    /// `fi_write`.
    pub(crate) fn write(&self, from: Memory, to: Place, context: usize) -> Code {
        let start = from.start().cast();
        run_at!(self.rma.write(start, from.len(), NONE; to, word(context)))
    }

    /// `fi_writev`.
    pub(crate) fn writev(&self, from: &[Memory], to: Place, context: usize) -> Code {
        let parts = parts_of(from);
        run_at!(self.rma.writev(parts.as_ptr(), DESC, parts.len(); to, word(context)))
    }

    /// `fi_writemsg`.
    pub(crate) fn writemsg(&self, call: RemoteCall<'_>, flags: u64) -> Code {
        call.with(|message| run!(self.rma.writemsg(message, flags)))
    }

    /// `fi_inject_write`.
    pub(crate) fn inject_write(&self, bytes: &[u8], to: Place) -> Code {
        run_at!(self.rma.inject(bytes.as_ptr().cast(), bytes.len(); to))
    }

    /// `fi_writedata`.
    pub(crate) fn writedata(&self, from: Memory, data: u64, to: Place, context: usize) -> Code {
        let start = from.start().cast();
        run_at!(self.rma.writedata(start, from.len(), NONE, data; to, word(context)))
    }

    /// `fi_inject_writedata`.
    pub(crate) fn inject_writedata(&self, bytes: &[u8], data: u64, to: Place) -> Code {
        run_at!(self.rma.injectdata(bytes.as_ptr().cast(), bytes.len(), data; to))
    }

    /// `fi_atomic`.
    pub(crate) fn atomic(&self, from: Memory, to: Place, what: Elements, context: usize) -> Code {
        let count = from.len() / what.size;
        run_for!(self.write(from.start().cast(), count, NONE; to, what, context))
    }

    /// `fi_atomicv`.
    pub(crate) fn atomicv(
        &self,
        from: &[Memory],
        to: Place,
        what: Elements,
        context: usize,
    ) -> Code {
        let parts = elements_of(from, what.size);
        run_for!(self.writev(parts.as_ptr(), DESC, parts.len(); to, what, context))
    }

    /// `fi_atomicmsg`.
    pub(crate) fn atomicmsg(
        &self,
        from: &[Memory],
        to: Place,
        what: Elements,
        (context, flags): (usize, u64),
    ) -> Code {
        let run = |message: &_| run!(self.atomic.writemsg(message, flags));
        with_atomic(from, &[(to, count_of(from, what))], what, context, run)
    }

    /// `fi_inject_atomic`.
    pub(crate) fn inject_atomic(&self, bytes: &[u8], to: Place, what: Elements) -> Code {
        let start = bytes.as_ptr().cast();
        let count = bytes.len() / what.size;
        run_at!(self.atomic.inject(start, count; to, what.datatype, what.op))
    }

    /// `fi_fetch_atomic`.
    pub(crate) fn fetch_atomic(
        &self,
        parts: [Memory; 2],
        to: Place,
        what: Elements,
        context: usize,
    ) -> Code {
        let count = parts[1].len() / what.size;
        let [from, old] = parts.map(|part| part.start().cast());
        run_for!(self.readwrite(from, count, NONE, old, NONE; to, what, context))
    }

    /// `fi_fetch_atomicv`.
    pub(crate) fn fetch_atomicv(
        &self,
        parts: [&[Memory]; 2],
        to: Place,
        what: Elements,
        context: usize,
    ) -> Code {
        let [from, mut old] = parts.map(|parts| elements_of(parts, what.size));
        let count = old.len();
        let into = old.as_mut_ptr();
        run_for!(self.readwritev(
            from.as_ptr(), DESC, from.len(), into, DESC, count; to, what, context
        ))
    }

    /// `fi_fetch_atomicmsg`.
    pub(crate) fn fetch_atomicmsg(
        &self,
        parts: [&[Memory]; 2],
        to: Place,
        what: Elements,
        (context, flags): (usize, u64),
    ) -> Code {
        let places = [(to, count_of(parts[0], what))];
        self.fetch_atomicmsg_on(parts, &places, what, (context, flags))
    }

    /// `fi_fetch_atomicmsg` on several places.
    pub(crate) fn fetch_atomicmsg_on(
        &self,
        [from, old]: [&[Memory]; 2],
        places: &[(Place, usize)],
        what: Elements,
        (context, flags): (usize, u64),
    ) -> Code {
        let mut old = elements_of(old, what.size);
        let start = old.as_mut_ptr();
        let count = old.len();
        let run = |message: &_| run!(self.atomic.readwritemsg(message, start, DESC, count, flags));
        with_atomic(from, places, what, context, run)
    }

    /// `fi_compare_atomic`.
    pub(crate) fn compare_atomic(
        &self,
        parts: [Memory; 3],
        to: Place,
        what: Elements,
        context: usize,
    ) -> Code {
        let count = parts[0].len() / what.size;
        let [from, compare, old] = parts.map(|part| part.start().cast());
        run_for!(self.compwrite(from, count, NONE, compare, NONE, old, NONE; to, what, context))
    }

    /// `fi_compare_atomicv`.
    pub(crate) fn compare_atomicv(
        &self,
        parts: [&[Memory]; 3],
        to: Place,
        what: Elements,
        context: usize,
    ) -> Code {
        let [from, compare, mut old] = parts.map(|parts| elements_of(parts, what.size));
        let counts = [from.len(), compare.len(), old.len()];
        let into = old.as_mut_ptr();
        run_for!(self.compwritev(
            from.as_ptr(), DESC, counts[0], compare.as_ptr(), DESC, counts[1], into, DESC,
            counts[2]; to, what, context
        ))
    }

    /// `fi_compare_atomicmsg`.
    pub(crate) fn compare_atomicmsg(
        &self,
        [from, compare, old]: [&[Memory]; 3],
        to: Place,
        what: Elements,
        (context, flags): (usize, u64),
    ) -> Code {
        let [compare, mut old] = [compare, old].map(|parts| elements_of(parts, what.size));
        let counts = [compare.len(), old.len()];
        let into = old.as_mut_ptr();
        let run = |message: &_| {
            let compare = compare.as_ptr();
            run!(
                self.atomic
                    .compwritemsg(message, compare, DESC, counts[0], into, DESC, counts[1], flags)
            )
        };
        with_atomic(from, &[(to, count_of(from, what))], what, context, run)
    }

    /// `fi_atomicvalid`, `fi_fetch_atomicvalid` and `fi_compare_atomicvalid`.
    pub(crate) fn atomic_valid(&self, what: Elements) -> [Result<usize, i32>; 3] {
        let Elements { op, datatype, .. } = what;
        let mut count = 0;
        let to = &raw mut count;
        let base = run!(self.atomic.writevalid(datatype, op, to)).map(|_| count);
        let fetch = run!(self.atomic.readwritevalid(datatype, op, to)).map(|_| count);
        let compare = run!(self.atomic.compwritevalid(datatype, op, to)).map(|_| count);
        [base, fetch, compare]
    }
}
