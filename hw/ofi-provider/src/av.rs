//! The functions of an address vector: fi_av(3).

use std::ffi::{c_char, c_int, c_void};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, copy_text, count, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};

use crate::handle::{Handle, domain_of};
use crate::objects::Vector;
use crate::policy::Provider;
use crate::state::{State, closed, insert};

pub(crate) type VectorHandle<P> = Handle<P, sys::fid_av>;

const fn functions<P: Provider>() -> &'static sys::fi_ops_av {
    const {
        &sys::fi_ops_av {
            size: size_of::<sys::fi_ops_av>(),
            insert: Some(insert_names::<P>),
            insertsvc: Stub::STUB,
            insertsym: Stub::STUB,
            remove: Some(remove::<P>),
            lookup: Some(lookup::<P>),
            straddr: Some(straddr::<P>),
            av_set: Stub::STUB,
        }
    }
}

/// `fi_av_open`. Vectors of both types are tables.
pub(crate) unsafe extern "C" fn open<P: Provider>(
    domain: *mut sys::fid_domain,
    attributes: *mut sys::fi_av_attr,
    vector: *mut *mut sys::fid_av,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if attributes.is_null() || vector.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain and attributes.
        let (domain, attributes) = unsafe { (domain_of::<P>(domain)?, &mut *attributes) };
        if !attributes.name.is_null() || attributes.flags & sys::FI_EVENT != 0 {
            // Neither vectors that processes share, nor insertions that end later.
            return Err(Errno::NO_SYSTEM_CALL);
        }
        if attributes.flags & !(sys::FI_READ | sys::FI_SYMMETRIC) != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        match attributes.r#type {
            sys::FI_AV_UNSPEC => attributes.r#type = sys::FI_AV_TABLE,
            sys::FI_AV_MAP | sys::FI_AV_TABLE => {}
            _ => return Err(Errno::INVALID),
        }
        let key = insert(&mut domain.lock().tables.vectors, Vector::default())?;
        let fid = head(sys::FI_CLASS_AV, context, const { &closable(close::<P>) });
        let object = sys::fid_av { fid, ops: table(functions::<P>()) };
        // SAFETY: the caller gives a place for the vector.
        unsafe { *vector = Handle::into_raw(object, domain, key) };
        Ok(())
    })
}

unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    // SAFETY: the caller closes an address vector.
    enter(|| unsafe { VectorHandle::<P>::close(fid, State::close_vector) })
}

/// `fi_av_insert`: gives the number of addresses that were inserted.
unsafe extern "C" fn insert_names<P: Provider>(
    vector: *mut sys::fid_av,
    names: *const c_void,
    number: usize,
    addresses: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    count(|| {
        if flags & !(sys::FI_MORE | sys::FI_SYNC_ERR) != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        let reports = flags & sys::FI_SYNC_ERR != 0;
        if (names.is_null() && number > 0) || (reports && context.is_null()) {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives an address vector.
        let handle = unsafe { VectorHandle::<P>::of(vector) };
        let mut state = handle.domain.lock();
        let vector = closed(state.tables.vectors.get_mut(handle.key))?;
        let mut inserted = 0;
        for index in 0..number {
            // SAFETY: the caller gives `number` names, each as long as those of fi_getname(3).
            let name = unsafe { name_at::<P>(names.byte_add(index * P::CONSTANTS.name_bytes)) };
            let address = P::address(name).ok_or(Errno::INVALID);
            let address = address.map(|address| vector.insert(address));
            inserted += usize::from(address.is_ok());
            if !addresses.is_null() {
                // SAFETY: the caller gives room for `number` addresses, or none.
                unsafe { *addresses.add(index) = address.unwrap_or(sys::FI_ADDR_NOTAVAIL) };
            }
            if reports {
                let error = address.err().map_or(0, |errno| errno.0);
                // SAFETY: with this flag the context is an array of `number` integers.
                unsafe { *context.cast::<c_int>().add(index) = error };
            }
        }
        Ok(inserted)
    })
}

unsafe extern "C" fn remove<P: Provider>(
    vector: *mut sys::fid_av,
    addresses: *mut u64,
    number: usize,
    flags: u64,
) -> c_int {
    enter(|| {
        if flags != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        if addresses.is_null() && number > 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives an address vector.
        let handle = unsafe { VectorHandle::<P>::of(vector) };
        let mut state = handle.domain.lock();
        // The last first, as fi_av(3) says; a wrong one doesn't keep the others in.
        let mut removed = Ok(());
        for index in (0..number).rev() {
            // SAFETY: the caller gives `number` addresses.
            let address = unsafe { *addresses.add(index) };
            removed = state.remove_address(handle.key, address).and(removed);
        }
        removed
    })
}

/// A caller's name.
///
/// # Safety
/// The memory has the bytes of a name, which nobody writes while the name is used.
unsafe fn name_at<'a, P: Provider>(name: *const c_void) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(name.cast(), P::CONSTANTS.name_bytes) }
}

/// Copies a name into a caller's memory, as much as has room, and tells its length.
///
/// # Safety
/// `room` points to the length of the memory at `to`.
pub(crate) unsafe fn copy_name(name: &[u8], to: *mut c_void, room: *mut usize) -> Result<()> {
    if room.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller gives a length.
    let length = unsafe { room.replace(name.len()) };
    if to.is_null() && length > 0 {
        return Err(Errno::INVALID);
    }
    let count = length.min(name.len());
    // SAFETY: the memory has `length` bytes.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), count) };
    if length < name.len() { Err(Errno::TOO_SMALL) } else { Ok(()) }
}

unsafe extern "C" fn lookup<P: Provider>(
    vector: *mut sys::fid_av,
    address: u64,
    to: *mut c_void,
    room: *mut usize,
) -> c_int {
    enter(|| {
        // SAFETY: the caller gives an address vector.
        let handle = unsafe { VectorHandle::<P>::of(vector) };
        let address =
            closed(handle.domain.lock().tables.vectors.get(handle.key))?.address(address)?;
        let name = P::name(&address).ok_or(Errno::INVALID)?;
        // SAFETY: the caller gives memory and its length.
        unsafe { copy_name(&name, to, room) }.or_else(|errno| {
            // A name that was cut off is no error: the length tells.
            if errno == Errno::TOO_SMALL { Ok(()) } else { Err(errno) }
        })
    })
}

unsafe extern "C" fn straddr<P: Provider>(
    _vector: *mut sys::fid_av,
    name: *const c_void,
    to: *mut c_char,
    room: *mut usize,
) -> *const c_char {
    let copied: c_int = enter(|| {
        if name.is_null() || room.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a name, and memory with its length.
        unsafe {
            let text = P::text(name_at::<P>(name)).ok_or(Errno::INVALID)?;
            let length = room.replace(text.len() + 1);
            if to.is_null() && length > 0 {
                return Err(Errno::INVALID);
            }
            copy_text(text.as_bytes(), to, length);
        }
        Ok(())
    });
    if copied == 0 { to } else { std::ptr::null() }
}
