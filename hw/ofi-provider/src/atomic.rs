//! Atomic operations: fi_atomic(3).

use std::ffi::{c_int, c_void};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, enter_at_once};

use crate::memory::Memory;
use crate::policy::Provider;
use crate::remote::{
    AtomicForm, AtomicLimits, CALL_FLAGS, REMOTE_PARTS_MAX, RemoteAtomic, RemoteCall, RemoteUse,
    total,
};
use crate::rma::begin;

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
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    /// How many elements of the peer are named, if the call says so.
    count: Option<usize>,
}

impl AtomicCall {
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
            CallElements::One(start, count) => Ok(vec![memory(start, count)?]),
            CallElements::Several(_, 0) => Ok(Vec::new()),
            CallElements::Several(parts, count) if parts.is_null() || count > REMOTE_PARTS_MAX => {
                Err(Errno::INVALID)
            }
            CallElements::Several(parts, count) => {
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
fn limits<P: Provider>(
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    form: AtomicForm,
) -> Result<AtomicLimits> {
    P::atomic(datatype, op, form).ok_or(Errno::NOT_SUPPORTED)
}

/// Begins an operation.
///
/// # Safety
/// `endpoint` is an endpoint, and the memory is as fi_atomic(3) asks.
unsafe fn change<P: Provider>(
    endpoint: *mut sys::fid_ep,
    call: RemoteCall,
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
    may: u64,
) -> Result<(RemoteCall, AtomicCall)> {
    // SAFETY: the caller's promise.
    unsafe {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        if flags & !may != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        if message.rma_iov_count != 1 || message.rma_iov.is_null() {
            return Err(Errno::INVALID);
        }
        let remote = &*message.rma_iov;
        let call = RemoteCall::new(message.addr, remote.addr, remote.key, message.context);
        let call = RemoteCall { flags: Some(flags), ..call };
        let operands = CallElements::Several(message.msg_iov, message.iov_count);
        let sys::fi_msg_atomic { datatype, op, .. } = *message;
        let count = Some(remote.count);
        Ok((call, AtomicCall { operands, compare: None, old: None, datatype, op, count }))
    }
}

unsafe extern "C" fn write<P: Provider>(
    endpoint: *mut sys::fid_ep,
    operands: *const c_void,
    count: usize,
    _region: *mut c_void,
    destination: u64,
    address: u64,
    key: u64,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    context: *mut c_void,
) -> isize {
    let operands = CallElements::One(operands, count);
    let what = AtomicCall { operands, compare: None, old: None, datatype, op, count: None };
    // SAFETY: the caller gives an endpoint, and keeps the promises of fi_atomic(3).
    enter_at_once(move || unsafe {
        change::<P>(endpoint, RemoteCall::new(destination, address, key, context), what)
    })
}

unsafe extern "C" fn writev<P: Provider>(
    endpoint: *mut sys::fid_ep,
    operands: *const sys::fi_ioc,
    _regions: *mut *mut c_void,
    count: usize,
    destination: u64,
    address: u64,
    key: u64,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    context: *mut c_void,
) -> isize {
    let operands = CallElements::Several(operands, count);
    let what = AtomicCall { operands, compare: None, old: None, datatype, op, count: None };
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        change::<P>(endpoint, RemoteCall::new(destination, address, key, context), what)
    })
}

unsafe extern "C" fn writemsg<P: Provider>(
    endpoint: *mut sys::fid_ep,
    given: *const sys::fi_msg_atomic,
    flags: u64,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let (call, what) = message(given, flags, CALL_FLAGS | sys::FI_INJECT)?;
        change::<P>(endpoint, call, what)
    })
}

unsafe extern "C" fn inject<P: Provider>(
    endpoint: *mut sys::fid_ep,
    operands: *const c_void,
    count: usize,
    destination: u64,
    address: u64,
    key: u64,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
) -> isize {
    let operands = CallElements::One(operands, count);
    let what = AtomicCall { operands, compare: None, old: None, datatype, op, count: None };
    let call = RemoteCall::new(destination, address, key, std::ptr::null_mut());
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        change::<P>(endpoint, RemoteCall { is_injected: true, ..call }, what)
    })
}

unsafe extern "C" fn readwrite<P: Provider>(
    endpoint: *mut sys::fid_ep,
    operands: *const c_void,
    count: usize,
    _region: *mut c_void,
    old: *mut c_void,
    _old_region: *mut c_void,
    destination: u64,
    address: u64,
    key: u64,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    context: *mut c_void,
) -> isize {
    let operands = CallElements::One(operands, count);
    let old = Some(CallElements::One(old, count));
    let what = AtomicCall { operands, compare: None, old, datatype, op, count: None };
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        change::<P>(endpoint, RemoteCall::new(destination, address, key, context), what)
    })
}

unsafe extern "C" fn readwritev<P: Provider>(
    endpoint: *mut sys::fid_ep,
    operands: *const sys::fi_ioc,
    _regions: *mut *mut c_void,
    count: usize,
    old: *mut sys::fi_ioc,
    _old_regions: *mut *mut c_void,
    old_count: usize,
    destination: u64,
    address: u64,
    key: u64,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    context: *mut c_void,
) -> isize {
    let operands = CallElements::Several(operands, count);
    let old = Some(CallElements::Several(old, old_count));
    let what = AtomicCall { operands, compare: None, old, datatype, op, count: None };
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        change::<P>(endpoint, RemoteCall::new(destination, address, key, context), what)
    })
}

unsafe extern "C" fn readwritemsg<P: Provider>(
    endpoint: *mut sys::fid_ep,
    given: *const sys::fi_msg_atomic,
    old: *mut sys::fi_ioc,
    _old_regions: *mut *mut c_void,
    old_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let (call, what) = message(given, flags, CALL_FLAGS)?;
        let old = Some(CallElements::Several(old, old_count));
        change::<P>(endpoint, call, AtomicCall { old, ..what })
    })
}

unsafe extern "C" fn compwrite<P: Provider>(
    endpoint: *mut sys::fid_ep,
    operands: *const c_void,
    count: usize,
    _region: *mut c_void,
    compare: *const c_void,
    _compare_region: *mut c_void,
    old: *mut c_void,
    _old_region: *mut c_void,
    destination: u64,
    address: u64,
    key: u64,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    context: *mut c_void,
) -> isize {
    let operands = CallElements::One(operands, count);
    let compare = Some(CallElements::One(compare, count));
    let old = Some(CallElements::One(old, count));
    let what = AtomicCall { operands, compare, old, datatype, op, count: None };
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        change::<P>(endpoint, RemoteCall::new(destination, address, key, context), what)
    })
}

unsafe extern "C" fn compwritev<P: Provider>(
    endpoint: *mut sys::fid_ep,
    operands: *const sys::fi_ioc,
    _regions: *mut *mut c_void,
    count: usize,
    compare: *const sys::fi_ioc,
    _compare_regions: *mut *mut c_void,
    compare_count: usize,
    old: *mut sys::fi_ioc,
    _old_regions: *mut *mut c_void,
    old_count: usize,
    destination: u64,
    address: u64,
    key: u64,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    context: *mut c_void,
) -> isize {
    let operands = CallElements::Several(operands, count);
    let compare = Some(CallElements::Several(compare, compare_count));
    let old = Some(CallElements::Several(old, old_count));
    let what = AtomicCall { operands, compare, old, datatype, op, count: None };
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        change::<P>(endpoint, RemoteCall::new(destination, address, key, context), what)
    })
}

unsafe extern "C" fn compwritemsg<P: Provider>(
    endpoint: *mut sys::fid_ep,
    given: *const sys::fi_msg_atomic,
    compare: *const sys::fi_ioc,
    _compare_regions: *mut *mut c_void,
    compare_count: usize,
    old: *mut sys::fi_ioc,
    _old_regions: *mut *mut c_void,
    old_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as the caller promises.
    enter_at_once(move || unsafe {
        let (call, what) = message(given, flags, CALL_FLAGS)?;
        let compare = Some(CallElements::Several(compare, compare_count));
        let old = Some(CallElements::Several(old, old_count));
        change::<P>(endpoint, call, AtomicCall { compare, old, ..what })
    })
}

/// The answer to `fi_atomicvalid` and its counterparts.
///
/// # Safety
/// `count` is null, or has room for a number.
unsafe fn valid<P: Provider>(
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    form: AtomicForm,
    count: *mut usize,
) -> Result<()> {
    let limits = limits::<P>(datatype, op, form)?;
    if count.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    unsafe { *count = limits.count };
    Ok(())
}

unsafe extern "C" fn writevalid<P: Provider>(
    _endpoint: *mut sys::fid_ep,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: as the caller promises.
    enter(|| unsafe { valid::<P>(datatype, op, AtomicForm::Base, count) })
}

unsafe extern "C" fn readwritevalid<P: Provider>(
    _endpoint: *mut sys::fid_ep,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: as the caller promises.
    enter(|| unsafe { valid::<P>(datatype, op, AtomicForm::Fetch, count) })
}

unsafe extern "C" fn compwritevalid<P: Provider>(
    _endpoint: *mut sys::fid_ep,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: as the caller promises.
    enter(|| unsafe { valid::<P>(datatype, op, AtomicForm::Compare, count) })
}

/// `fi_query_atomic`.
pub(crate) unsafe extern "C" fn query<P: Provider>(
    _domain: *mut sys::fid_domain,
    datatype: sys::fi_datatype,
    op: sys::fi_op,
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
