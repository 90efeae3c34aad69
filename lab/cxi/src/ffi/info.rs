//! A program's `fi_info` as plain values, and the answer in memory that fi_freeinfo(3) frees.

use std::ffi::{CStr, CString, c_char};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use super::offer::{FABRIC, Hints, Offer, VERSION};
use crate::wire::Name;

/// Reads the hints that a program passes to fi_getinfo(3).
///
/// # Safety
/// `hints` is null or points to a `fi_info`, whose parts are null or of their types.
pub(crate) unsafe fn read(hints: *const sys::fi_info) -> Hints {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(hints) = hints.as_ref() else { return Hints::default() };
        let (domain, fabric) = (hints.domain_attr.as_ref(), hints.fabric_attr.as_ref());
        Hints {
            caps: hints.caps,
            address_format: hints.addr_format,
            transmit: hints.tx_attr.as_ref().copied(),
            receive: hints.rx_attr.as_ref().copied(),
            endpoint: hints.ep_attr.as_ref().copied(),
            domain: domain.copied(),
            domain_name: domain.and_then(|domain| text(domain.name)),
            fabric_name: fabric.and_then(|fabric| text(fabric.name)),
        }
    }
}

/// # Safety
/// `text` is null or a terminated string.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// An answer of several `fi_info`.
///
/// # Errors
/// There is no memory; what was allocated is lost, as the process soon is.
pub(crate) fn write(nic: &str, version: u32, offers: &[Offer]) -> Result<*mut sys::fi_info> {
    let mut first = std::ptr::null_mut();
    for offer in offers.iter().rev() {
        // A newer libfabric reads more of it than version 1.17 has.
        let mut domain = sys::fi_domain_attr_2::zeroed();
        domain.common = sys::fi_domain_attr { name: copy_of(nic)?, ..offer.domain };
        let fabric = sys::fi_fabric_attr {
            name: copy_of(FABRIC)?,
            prov_version: VERSION,
            api_version: version,
            ..sys::fi_fabric_attr::zeroed()
        };
        first = allocate(sys::fi_info {
            next: first,
            caps: offer.caps,
            addr_format: sys::FI_ADDR_CXI,
            src_addrlen: Name::BYTES,
            // Any address: an endpoint has one of its own once it is opened (fi_getname).
            src_addr: allocate([0u8; Name::BYTES])?.cast(),
            tx_attr: allocate(offer.transmit)?,
            rx_attr: allocate(offer.receive)?,
            ep_attr: allocate(offer.endpoint)?,
            domain_attr: allocate(domain)?.cast(),
            fabric_attr: allocate(fabric)?,
            ..sys::fi_info::zeroed()
        })?;
    }
    Ok(first)
}

/// A value in memory that free(3) frees.
fn allocate<T: Copy>(value: T) -> Result<*mut T> {
    // SAFETY: the memory has the size of the value, and malloc(3) aligns it for all of these types.
    unsafe {
        let memory = libc::malloc(size_of::<T>()).cast::<T>();
        if memory.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        memory.write(value);
        Ok(memory)
    }
}

fn copy_of(text: &str) -> Result<*mut c_char> {
    let text = CString::new(text).map_err(|_| Errno::INVALID)?;
    // SAFETY: a terminated string.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() { Err(Errno::NO_MEMORY) } else { Ok(copy) }
}
