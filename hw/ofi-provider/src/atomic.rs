//! Atomic operations: fi_atomic(3).

use std::ffi::{c_int, c_void};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, enter_at_once};

use crate::memory::Memory;
use crate::policy::Provider;
use crate::remote::{
    AtomicForm, AtomicLimits, CALL_FLAGS, REMOTE_PARTS_MAX, RemoteAtomic, RemoteCall, RemotePlace,
    RemoteUse, Word, places_of, total,
};
use crate::rma::{allowed, begin, remote_functions};

/// The functions of this module.
pub(crate) const fn functions<P: Provider>() -> &'static sys::fi_ops_atomic {
    const {
        &sys::fi_ops_atomic {
            size: size_of::<sys::fi_ops_atomic>(),
            write: Some(write::<P>),
            writev: Some(writev::<P>),
            writemsg: Some(writemsg::<P>),
            inject: Some(inject::<P>),
            readwrite: Some(readwrite::<P>),
            readwritev: Some(readwritev::<P>),
            readwritemsg: Some(readwritemsg::<P>),
            compwrite: Some(compwrite::<P>),
            compwritev: Some(compwritev::<P>),
            compwritemsg: Some(compwritemsg::<P>),
            writevalid: Some(writevalid::<P>),
            readwritevalid: Some(readwritevalid::<P>),
            compwritevalid: Some(compwritevalid::<P>),
        }
    }
}

use sys::fi_datatype as Type;
use sys::fi_op as Op;

use CallElements::{One, Several};

/// The elements of one buffer of a call.
#[derive(Clone, Copy)]
enum CallElements {
    /// The first one, and how many there are.
    One(*const c_void, usize),
    /// An array of buffers, and its length.
    Several(*const sys::fi_ioc, usize),
}

/// What a call does with its elements.
struct AtomicCall {
    operands: CallElements,
    compare: Option<CallElements>,
    old: Option<CallElements>,
    datatype: Type,
    op: Op,
    /// How many elements of the peer are named, if the call says so. Its places have their lengths
    /// in elements.
    count: Option<usize>,
}

impl AtomicCall {
    fn new(operands: CallElements, datatype: Type, op: Op) -> Self {
        AtomicCall { operands, compare: None, old: None, datatype, op, count: None }
    }

    fn comparing(self, compare: CallElements) -> Self {
        AtomicCall { compare: Some(compare), ..self }
    }

    fn fetching(self, old: CallElements) -> Self {
        AtomicCall { old: Some(old), ..self }
    }

    fn form(&self) -> AtomicForm {
        match (&self.compare, &self.old) {
            (Some(_), _) => AtomicForm::Compare,
            (None, Some(_)) => AtomicForm::Fetch,
            (None, None) => AtomicForm::Base,
        }
    }
}

impl CallElements {
    /// The memory of elements of so many bytes.
    ///
    /// # Safety
    /// As for `Memory::new`; an array has as many entries as it says.
    unsafe fn memory(self, size: usize, writable: bool) -> Result<Vec<Memory>> {
        let memory = |start: *const c_void, count: usize| {
            let length = count.checked_mul(size).ok_or(Errno::INVALID)?;
            // SAFETY: the caller's promise.
            unsafe { Memory::new(start.cast(), length, writable) }
        };
        match self {
            One(start, count) => Ok(vec![memory(start, count)?]),
            Several(_, 0) => Ok(Vec::new()),
            Several(parts, count) if parts.is_null() || count > REMOTE_PARTS_MAX => {
                Err(Errno::INVALID)
            }
            Several(parts, count) => {
                // SAFETY: the caller's promise.
                let parts = unsafe { std::slice::from_raw_parts(parts, count) };
                parts.iter().map(|part| memory(part.addr, part.count)).collect()
            }
        }
    }
}

/// What the provider can do with this operation on elements of this type.
///
/// # Errors
/// Nothing.
fn limits<P: Provider>(datatype: Type, op: Op, form: AtomicForm) -> Result<AtomicLimits> {
    P::atomic(datatype, op, form).ok_or(Errno::NOT_SUPPORTED)
}

/// Begins an operation.
///
/// # Safety
/// `endpoint` is an endpoint, and the memory is as fi_atomic(3) asks.
unsafe fn change<P: Provider>(
    endpoint: *mut sys::fid_ep,
    mut call: RemoteCall,
    what: AtomicCall,
) -> Result<()> {
    let form = what.form();
    let AtomicCall { operands, compare, old, datatype, op, count } = what;
    let AtomicLimits { size, count: count_max } = limits::<P>(datatype, op, form)?;
    // SAFETY: the caller's promise.
    unsafe {
        let old = old.map(|old| old.memory(size, true)).transpose()?;
        // The operand of a read is ignored, and may be null whatever its length.
        let operands = match (&old, op) {
            (Some(_), sys::FI_ATOMIC_READ) => Vec::new(),
            _ => operands.memory(size, false)?,
        };
        let compare = compare.map_or(Ok(Vec::new()), |compare| compare.memory(size, false))?;
        let bytes = match &old {
            Some(old) => total(old)?,
            None => total(&operands)?,
        };
        let has_operands = op != sys::FI_ATOMIC_READ;
        let has_compare = form == AtomicForm::Compare;
        if bytes == 0
            || has_operands && total(&operands)? != bytes
            || has_compare && total(&compare)? != bytes
            || count.is_some_and(|count| count.checked_mul(size) != Some(bytes))
        {
            return Err(Errno::INVALID);
        }
        if bytes / size > count_max {
            return Err(Errno::TOO_LONG);
        }
        let is_several = !call.more.is_empty();
        for place in std::iter::once(&mut call.place).chain(&mut call.more) {
            if is_several && place.length == 0 {
                return Err(Errno::INVALID);
            }
            // No place has more elements than all of them.
            place.length *= size;
        }
        let atomic = RemoteAtomic { op, datatype, operands, compare, old };
        begin::<P>(endpoint, call, RemoteUse::Atomic(atomic))
    }
}

/// The arguments of the calls that take a structure.
///
/// # Safety
/// The message is null, or as fi_atomic(3) describes it.
unsafe fn message(
    message: *const sys::fi_msg_atomic,
    flags: u64,
) -> Result<(RemoteCall, AtomicCall)> {
    let flags = allowed(flags, CALL_FLAGS | sys::FI_INJECT)?;
    // SAFETY: the caller's promise.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        let sys::fi_msg_atomic { addr, context, .. } = *message;
        let places = places_of(message.rma_iov, message.rma_iov_count, |place| RemotePlace {
            key: place.key,
            address: place.addr,
            length: place.count,
        })?;
        let (call, count) = RemoteCall::on_places(addr, &places, context, flags)?;
        let operands = Several(message.msg_iov, message.iov_count);
        let what = AtomicCall::new(operands, message.datatype, message.op);
        Ok((call, AtomicCall { count: Some(count), ..what }))
    }
}

remote_functions! { change:
    fn write(
        operands: *const c_void, count: usize, _region: Word,
        peer: u64, address: u64, key: u64, datatype: Type, op: Op, context: Word
    ) {
        let what = AtomicCall::new(One(operands, count), datatype, op);
        (RemoteCall::new(peer, address, key, context), what)
    }

    fn writev(
        operands: *const sys::fi_ioc, _regions: *mut Word, count: usize,
        peer: u64, address: u64, key: u64, datatype: Type, op: Op, context: Word
    ) {
        let what = AtomicCall::new(Several(operands, count), datatype, op);
        (RemoteCall::new(peer, address, key, context), what)
    }

    fn writemsg(given: *const sys::fi_msg_atomic, flags: u64) {
        message(given, flags)?
    }

    fn inject(
        operands: *const c_void, count: usize,
        peer: u64, address: u64, key: u64, datatype: Type, op: Op
    ) {
        let what = AtomicCall::new(One(operands, count), datatype, op);
        (RemoteCall::injected(peer, address, key), what)
    }

    fn readwrite(
        operands: *const c_void, count: usize, _region: Word, old: Word, _old_region: Word,
        peer: u64, address: u64, key: u64, datatype: Type, op: Op, context: Word
    ) {
        let what = AtomicCall::new(One(operands, count), datatype, op);
        (RemoteCall::new(peer, address, key, context), what.fetching(One(old, count)))
    }

    fn readwritev(
        operands: *const sys::fi_ioc, _regions: *mut Word, count: usize,
        old: *mut sys::fi_ioc, _old_regions: *mut Word, old_count: usize,
        peer: u64, address: u64, key: u64, datatype: Type, op: Op, context: Word
    ) {
        let what = AtomicCall::new(Several(operands, count), datatype, op);
        (RemoteCall::new(peer, address, key, context), what.fetching(Several(old, old_count)))
    }

    fn readwritemsg(
        given: *const sys::fi_msg_atomic,
        old: *mut sys::fi_ioc, _old_regions: *mut Word, old_count: usize, flags: u64
    ) {
        let (call, what) = message(given, flags)?;
        (call, what.fetching(Several(old, old_count)))
    }

    fn compwrite(
        operands: *const c_void, count: usize, _region: Word,
        compare: *const c_void, _compare_region: Word, old: Word, _old_region: Word,
        peer: u64, address: u64, key: u64, datatype: Type, op: Op, context: Word
    ) {
        let what = AtomicCall::new(One(operands, count), datatype, op);
        let what = what.comparing(One(compare, count)).fetching(One(old, count));
        (RemoteCall::new(peer, address, key, context), what)
    }

    fn compwritev(
        operands: *const sys::fi_ioc, _regions: *mut Word, count: usize,
        compare: *const sys::fi_ioc, _compare_regions: *mut Word, compare_count: usize,
        old: *mut sys::fi_ioc, _old_regions: *mut Word, old_count: usize,
        peer: u64, address: u64, key: u64, datatype: Type, op: Op, context: Word
    ) {
        let what = AtomicCall::new(Several(operands, count), datatype, op);
        let what = what.comparing(Several(compare, compare_count));
        (RemoteCall::new(peer, address, key, context), what.fetching(Several(old, old_count)))
    }

    fn compwritemsg(
        given: *const sys::fi_msg_atomic,
        compare: *const sys::fi_ioc, _compare_regions: *mut Word, compare_count: usize,
        old: *mut sys::fi_ioc, _old_regions: *mut Word, old_count: usize, flags: u64
    ) {
        let (call, what) = message(given, flags)?;
        let what = what.comparing(Several(compare, compare_count));
        (call, what.fetching(Several(old, old_count)))
    }
}

/// `fi_atomicvalid` and its counterparts.
macro_rules! valid_functions {
    ($($name:ident: $form:ident)*) => {$(
        unsafe extern "C" fn $name<P: Provider>(
            _endpoint: *mut sys::fid_ep,
            datatype: Type,
            op: Op,
            count: *mut usize,
        ) -> c_int {
            enter(|| {
                let limits = limits::<P>(datatype, op, AtomicForm::$form)?;
                // SAFETY: the caller gives a place for a number, or null.
                *unsafe { count.as_mut() }.ok_or(Errno::INVALID)? = limits.count;
                Ok(())
            })
        }
    )*};
}

valid_functions! { writevalid: Base readwritevalid: Fetch compwritevalid: Compare }

/// `fi_query_atomic`.
pub(crate) unsafe extern "C" fn query<P: Provider>(
    _domain: *mut sys::fid_domain,
    datatype: Type,
    op: Op,
    attributes: *mut sys::fi_atomic_attr,
    flags: u64,
) -> c_int {
    enter(|| {
        let form = match flags {
            0 => AtomicForm::Base,
            sys::FI_FETCH_ATOMIC => AtomicForm::Fetch,
            sys::FI_COMPARE_ATOMIC => AtomicForm::Compare,
            _ => return Err(Errno::NOT_SUPPORTED),
        };
        let AtomicLimits { size, count } = limits::<P>(datatype, op, form)?;
        // SAFETY: the caller gives attributes, or null.
        let attributes = unsafe { attributes.as_mut() }.ok_or(Errno::INVALID)?;
        attributes.size = size;
        attributes.count = count;
        Ok(())
    })
}
