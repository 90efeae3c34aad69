//! The functions of an address vector: fi_av(3).

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, count, enter, head, table};
use tagmatch_ofi_sys::stub::{Stub, closable};

use super::object::{DomainObject, Object, OpenedVector, VectorObject};
use crate::wire::Name;

static HEAD: sys::fi_ops = closable(close);

static VECTOR: sys::fi_ops_av = sys::fi_ops_av {
    size: size_of::<sys::fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Stub::STUB,
    insertsym: Stub::STUB,
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: Stub::STUB,
};

/// `fi_av_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut sys::fid_domain,
    attributes: *mut sys::fi_av_attr,
    vector: *mut *mut sys::fid_av,
    context: *mut c_void,
) -> c_int {
    enter(|| {
        if attributes.is_null() || vector.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a domain, attributes, and a place for the vector.
        unsafe {
            let domain = DomainObject::of(domain).clone();
            if (*attributes).r#type == sys::FI_AV_MAP {
                return Err(Errno::INVALID);
            }
            (*attributes).r#type = sys::FI_AV_TABLE;
            let fid = head(sys::FI_CLASS_AV, context, &HEAD);
            let object = sys::fid_av { fid, ops: table(&VECTOR) };
            let opened = OpenedVector { vector: Arc::default(), _domain: domain };
            *vector = Object::into_raw(object, Arc::new(opened));
        }
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    // SAFETY: the caller closes an address vector.
    enter(|| unsafe {
        if Arc::strong_count(&VectorObject::of(fid.cast()).vector) > 1 {
            return Err(Errno::BUSY);
        }
        VectorObject::close(fid)
    })
}

unsafe extern "C" fn insert(
    vector: *mut sys::fid_av,
    names: *const c_void,
    number: usize,
    addresses: *mut u64,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    count(|| {
        if names.is_null() && number > 0 {
            return Err(Errno::INVALID);
        }
        for index in 0..number {
            // SAFETY: the caller gives a vector, `number` names, and room for as many addresses or
            // none.
            unsafe {
                let name = Name(names.cast::<u64>().add(index).read_unaligned());
                let address = VectorObject::of(vector).vector.insert(name);
                if !addresses.is_null() {
                    *addresses.add(index) = address;
                }
            }
        }
        Ok(number)
    })
}

unsafe extern "C" fn remove(
    vector: *mut sys::fid_av,
    addresses: *mut u64,
    number: usize,
    _flags: u64,
) -> c_int {
    enter(|| {
        if addresses.is_null() && number > 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a vector and `number` addresses.
        (0..number).try_for_each(|index| unsafe {
            VectorObject::of(vector).vector.remove(*addresses.add(index))
        })
    })
}

unsafe extern "C" fn lookup(
    vector: *mut sys::fid_av,
    address: u64,
    to: *mut c_void,
    room: *mut usize,
) -> c_int {
    enter(|| {
        // SAFETY: the caller gives a vector, and memory with its length.
        unsafe {
            let name = VectorObject::of(vector).vector.name(address)?;
            // A name that was cut off is no error: the length tells.
            copy_name(name, to, room).map(drop)
        }
    })
}

/// Names have no text.
unsafe extern "C" fn straddr(
    _vector: *mut sys::fid_av,
    _name: *const c_void,
    _to: *mut c_char,
    _room: *mut usize,
) -> *const c_char {
    std::ptr::null()
}

/// Copies a name into a caller's memory, as much as has room, and tells its length. Gives whether
/// all of it had room.
///
/// # Safety
/// `room` points to the length of the memory at `to`.
pub(crate) unsafe fn copy_name(name: Name, to: *mut c_void, room: *mut usize) -> Result<bool> {
    if room.is_null() || to.is_null() {
        return Err(Errno::INVALID);
    }
    let bytes = name.0.to_ne_bytes();
    // SAFETY: the caller's promise.
    unsafe {
        let length = room.replace(bytes.len());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), length.min(bytes.len()));
        Ok(length >= bytes.len())
    }
}
