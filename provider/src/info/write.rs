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
        #[cfg(test)]
        tests::fail_sometimes()?;
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
    let domain = parts.zeroed::<sys::fi_domain_attr_2>()?;
    let fabric = parts.zeroed::<sys::fi_fabric_attr>()?;
    let (domain_name, fabric_name) = (parts.text(&offer.domain_name)?, parts.text(FABRIC)?);
    // Any address: an endpoint has one of its own once it is opened (fi_getname).
    let source = parts.zeroed::<[u8; Name::BYTES]>()?;
    let address = match destination {
        Some(_) => parts.zeroed::<[u8; Name::BYTES]>()?,
        None => std::ptr::null_mut(),
    };
    // SAFETY: all of it was allocated above, with the sizes of these types.
    unsafe {
        *transmit = offer.transmit;
        *receive = offer.receive;
        *endpoint = offer.endpoint;
        (*domain).common = sys::fi_domain_attr { name: domain_name, ..offer.domain };
        // A counter counts to the end of its 64 bits.
        (*domain).max_cntr_value = u64::MAX;
        (*domain).max_err_cntr_value = u64::MAX;
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
        (*info).src_addrlen = Name::BYTES;
        (*info).src_addr = source.cast();
        (*info).caps = offer.caps;
        (*info).addr_format = ADDRESS_FORMAT;
        (*info).tx_attr = transmit;
        (*info).rx_attr = receive;
        (*info).ep_attr = endpoint;
        (*info).domain_attr = domain.cast();
        (*info).fabric_attr = fabric;
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ffi::CStr;
    use std::ptr;

    use super::*;
    use crate::info::offer::{Hints, negotiate};
    use crate::info::profile::{CAPS, Profile};
    use crate::info::read;

    thread_local! {
        /// How many allocations of this thread succeed before one fails.
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    pub(super) fn fail_sometimes() -> Result<()> {
        LEFT.set(LEFT.get().checked_sub(1).ok_or(Errno::NO_MEMORY)?);
        Ok(())
    }

    fn offer() -> Offer {
        let profile = Profile { unasked: CAPS, domain: "auto".into() };
        negotiate(&profile, &Hints::default()).unwrap()
    }

    fn name() -> Name {
        let worker = tagmatch::Worker::new(tagmatch::Config::default()).unwrap();
        Name::of(&worker.address()).unwrap()
    }

    /// Frees an answer as libfabric does.
    ///
    /// # Safety
    /// `info` is an answer, which has no other user and isn't freed again.
    unsafe fn free(info: *mut sys::fi_info) {
        // SAFETY: the caller's promise.
        unsafe {
            let found = &*info;
            let names = [(*found.domain_attr).name, (*found.fabric_attr).name];
            names.into_iter().for_each(|name| libc::free(name.cast()));
            libc::free(found.domain_attr.cast());
            libc::free(found.fabric_attr.cast());
            libc::free(found.tx_attr.cast());
            libc::free(found.rx_attr.cast());
            libc::free(found.ep_attr.cast());
            libc::free(found.src_addr);
            libc::free(found.dest_addr);
            libc::free(info.cast());
        }
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let (offer, name, version) = (offer(), name(), sys::FI_VERSION(1, 18));
        let info = info(&offer, version, Some(&name)).unwrap();
        // SAFETY: the answer is freed at the end, once.
        unsafe {
            let found = &*info;
            let hints = read::hints(info);
            assert_eq!((hints.caps, hints.address_format), (CAPS, ADDRESS_FORMAT));
            assert_eq!(hints.domain_name.as_deref(), Some("auto"));
            assert_eq!(hints.fabric_name.as_deref(), Some(FABRIC));
            assert_eq!(hints.provider_version, VERSION);
            assert_eq!(hints.endpoint.unwrap().mem_tag_format, offer.endpoint.mem_tag_format);
            assert!(read::destination(info) == Some(name));
            // fi_getinfo(3) asks for a source address, though it need not be of use to a peer.
            assert_eq!((found.dest_addrlen, found.src_addrlen), (Name::BYTES, Name::BYTES));
            let source = *found.src_addr.cast::<[u8; Name::BYTES]>();
            assert!(Name::from_bytes(source).address().is_none());
            assert!((*found.fabric_attr).prov_name.is_null() && found.next.is_null());
            assert_eq!((*found.fabric_attr).api_version, version);
            let later = &*found.domain_attr.cast::<sys::fi_domain_attr_2>();
            assert_eq!(later.max_cntr_value, u64::MAX);
            assert_eq!(CStr::from_ptr(later.common.name), c"auto");
            free(info);
        }
        // SAFETY: null asks for nothing.
        assert_eq!(unsafe { read::hints(ptr::null()) }.caps, 0);
    }

    #[test]
    fn without_memory_there_is_no_answer() {
        let (offer, name) = (offer(), name());
        // The structure, five parts, two names, two addresses.
        for allocations in 0..10 {
            LEFT.set(allocations);
            let answer = info(&offer, 0, Some(&name));
            LEFT.set(usize::MAX);
            assert_eq!(answer, Err(Errno::NO_MEMORY), "{allocations}");
        }
    }
}
