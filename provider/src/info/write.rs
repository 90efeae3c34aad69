//! The answer, in memory that libfabric frees: fi_freeinfo(3) calls free(3) for each part.

use std::ffi::{CString, c_char, c_void};

use tagmatch_ofi_sys as sys;

use super::offer::Offer;
use super::profile::{ADDRESS_FORMAT, FABRIC, VERSION};
use crate::address::Name;
use crate::errno::{Errno, Result};

/// An answer of one `fi_info`. `version`: of libfabric's interface, as the program asks for it.
pub(super) fn info(
    offer: &Offer,
    version: u32,
    destination: Option<&Name>,
) -> Result<*mut sys::fi_info> {
    let mut parts = Parts::default();
    let written = write(&mut parts, offer, version, destination);
    if written.is_err() {
        parts.free();
    }
    written
}

/// What was allocated so far.
#[derive(Default)]
struct Parts {
    taken: Vec<*mut c_void>,
}

impl Parts {
    /// Zeroed memory for a structure of which all bytes may be zero.
    fn zeroed<T>(&mut self) -> Result<*mut T> {
        // SAFETY: the call has no pointers.
        let memory = unsafe { libc::calloc(1, size_of::<T>()) };
        self.keep(memory).map(<*mut c_void>::cast)
    }

    /// A copy of a text.
    fn text(&mut self, text: &str) -> Result<*mut c_char> {
        let text = CString::new(text).map_err(|_| Errno::OTHER)?;
        // SAFETY: a terminated string.
        let memory = unsafe { libc::strdup(text.as_ptr()) };
        self.keep(memory.cast()).map(<*mut c_void>::cast)
    }

    fn keep(&mut self, memory: *mut c_void) -> Result<*mut c_void> {
        if memory.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        self.taken.push(memory);
        Ok(memory)
    }

    fn free(self) {
        for memory in self.taken {
            // SAFETY: `keep` was given it by the allocator, and nobody else has it.
            unsafe { libc::free(memory) };
        }
    }
}

fn write(
    parts: &mut Parts,
    offer: &Offer,
    version: u32,
    destination: Option<&Name>,
) -> Result<*mut sys::fi_info> {
    let info = parts.zeroed::<sys::fi_info>()?;
    let transmit = parts.zeroed::<sys::fi_tx_attr>()?;
    let receive = parts.zeroed::<sys::fi_rx_attr>()?;
    let endpoint = parts.zeroed::<sys::fi_ep_attr>()?;
    // A newer libfabric reads more of it than version 1.17 has.
    let domain = parts.zeroed::<sys::fi_domain_attr_2>()?.cast::<sys::fi_domain_attr>();
    let fabric = parts.zeroed::<sys::fi_fabric_attr>()?;
    let (domain_name, fabric_name) = (parts.text(&offer.domain_name)?, parts.text(FABRIC)?);
    let address = match destination {
        Some(_) => parts.zeroed::<[u8; Name::BYTES]>()?,
        None => std::ptr::null_mut(),
    };
    // SAFETY: all of it was allocated above, with the sizes of these types.
    unsafe {
        *transmit = offer.transmit;
        *receive = offer.receive;
        *endpoint = offer.endpoint;
        *domain = sys::fi_domain_attr { name: domain_name, ..offer.domain };
        *fabric = sys::fi_fabric_attr {
            name: fabric_name,
            prov_version: VERSION,
            api_version: version,
            ..sys::fi_fabric_attr::zeroed()
        };
        if let Some(destination) = destination {
            *address = *destination.as_bytes();
            (*info).dest_addrlen = Name::BYTES;
            (*info).dest_addr = address.cast();
        }
        (*info).caps = offer.caps;
        (*info).addr_format = ADDRESS_FORMAT;
        (*info).tx_attr = transmit;
        (*info).rx_attr = receive;
        (*info).ep_attr = endpoint;
        (*info).domain_attr = domain;
        (*info).fabric_attr = fabric;
    }
    Ok(info)
}
