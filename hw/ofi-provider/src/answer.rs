//! The answer, in memory that libfabric frees: fi_freeinfo(3) calls free(3) for each part.

use std::ffi::{CString, c_char, c_void};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

use crate::offer::{Constants, Offer};

/// An answer of one `fi_info` for each offer. `version`: of libfabric's interface, as the program
/// asks for it.
///
/// # Errors
/// There is no memory.
pub(crate) fn write(
    constants: &Constants,
    offers: &[Offer],
    version: u32,
    destination: Option<&[u8]>,
) -> Result<*mut sys::fi_info> {
    let mut parts = Parts::default();
    let answer = offers.iter().rev().try_fold(std::ptr::null_mut(), |next, offer| {
        let info = constants.info(&mut parts, offer, version, destination)?;
        parts.value(sys::fi_info { next, ..info })
    });
    if answer.is_err() {
        parts.free();
    }
    answer
}

/// What was allocated so far.
#[derive(Default)]
struct Parts {
    taken: Vec<*mut c_void>,
}

impl Parts {
    /// A copy of a value.
    fn value<T: Copy>(&mut self, value: T) -> Result<*mut T> {
        // SAFETY: the call has no pointers.
        let memory = unsafe { libc::malloc(size_of::<T>()) };
        let memory = self.keep(memory)?.cast::<T>();
        // SAFETY: the memory has the size of the value, and malloc(3) aligns it for all types here.
        unsafe { memory.write(value) };
        Ok(memory)
    }

    /// A copy of bytes.
    fn bytes(&mut self, bytes: &[u8]) -> Result<*mut c_void> {
        // SAFETY: the call has no pointers.
        let memory = unsafe { libc::malloc(bytes.len()) };
        let memory = self.keep(memory)?;
        // SAFETY: the memory has as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len()) };
        Ok(memory)
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

impl Constants {
    fn info(
        &self,
        parts: &mut Parts,
        offer: &Offer,
        version: u32,
        destination: Option<&[u8]>,
    ) -> Result<sys::fi_info> {
        // A newer libfabric reads more of it than version 1.17 has.
        let mut domain = sys::fi_domain_attr_2::zeroed();
        domain.common =
            sys::fi_domain_attr { name: parts.text(&offer.domain_name)?, ..offer.domain };
        // A counter counts to the end of its 64 bits.
        domain.max_cntr_value = u64::MAX;
        domain.max_err_cntr_value = u64::MAX;
        let fabric = sys::fi_fabric_attr {
            name: parts.text(self.fabric)?,
            prov_version: self.provider_version,
            api_version: version,
            ..sys::fi_fabric_attr::zeroed()
        };
        Ok(sys::fi_info {
            caps: offer.caps,
            addr_format: self.address_format,
            // Any address: an endpoint has one of its own once it is opened (fi_getname).
            src_addrlen: self.name_bytes,
            src_addr: parts.bytes(&vec![0; self.name_bytes])?,
            dest_addrlen: destination.map_or(0, <[u8]>::len),
            dest_addr: match destination {
                Some(name) => parts.bytes(name)?,
                None => std::ptr::null_mut(),
            },
            tx_attr: parts.value(offer.transmit)?,
            rx_attr: parts.value(offer.receive)?,
            ep_attr: parts.value(offer.endpoint)?,
            domain_attr: parts.value(domain)?.cast(),
            fabric_attr: parts.value(fabric)?,
            ..sys::fi_info::zeroed()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ffi::CStr;
    use std::ptr;

    use super::*;
    use crate::hints;

    const CONSTANTS: Constants = Constants {
        provider_version: 7,
        fabric: "fabric",
        address_format: 9,
        name_bytes: 64,
        has_auto_progress: false,
    };

    thread_local! {
        /// How many allocations of this thread succeed before one fails.
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    pub(super) fn fail_sometimes() -> Result<()> {
        LEFT.set(LEFT.get().checked_sub(1).ok_or(Errno::NO_MEMORY)?);
        Ok(())
    }

    fn offer(caps: u64) -> Offer {
        Offer {
            caps,
            transmit: sys::fi_tx_attr::zeroed(),
            receive: sys::fi_rx_attr::zeroed(),
            endpoint: sys::fi_ep_attr { mem_tag_format: 5, ..sys::fi_ep_attr::zeroed() },
            domain: sys::fi_domain_attr::zeroed(),
            domain_name: "auto".into(),
        }
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
            for name in names {
                libc::free(name.cast());
            }
            libc::free(found.domain_attr.cast());
            libc::free(found.fabric_attr.cast());
            libc::free(found.tx_attr.cast());
            libc::free(found.rx_attr.cast());
            libc::free(found.ep_attr.cast());
            libc::free(found.src_addr);
            libc::free(found.dest_addr);
            let next = found.next;
            libc::free(info.cast());
            if !next.is_null() {
                free(next);
            }
        }
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let offers = [offer(1), offer(2)];
        let name = [3; 64];
        let version = sys::FI_VERSION(1, 18);
        let info = write(&CONSTANTS, &offers, version, Some(&name)).unwrap();
        // SAFETY: the answer is freed at the end, once.
        unsafe {
            let found = &*info;
            let hints = hints::read(info);
            assert_eq!((hints.caps, hints.address_format), (1, 9));
            assert_eq!(hints.fabric_name.as_deref(), Some("fabric"));
            assert_eq!(hints.domain_name.as_deref(), Some("auto"));
            assert_eq!(hints.provider_version, 7);
            assert_eq!(hints.endpoint.unwrap().mem_tag_format, 5);
            assert_eq!(hints::destination(info, 64).as_deref(), Some(&name[..]));
            assert_eq!(hints::destination(info, 8), None);
            // fi_getinfo(3) asks for a source address, though it need not be of use to a peer.
            assert_eq!((found.dest_addrlen, found.src_addrlen), (64, 64));
            assert_eq!(*found.src_addr.cast::<[u8; 64]>(), [0; 64]);
            assert!((*found.fabric_attr).prov_name.is_null());
            assert_eq!((*found.fabric_attr).api_version, version);
            let later = &*found.domain_attr.cast::<sys::fi_domain_attr_2>();
            assert_eq!(later.max_cntr_value, u64::MAX);
            assert_eq!(CStr::from_ptr(later.common.name), c"auto");
            assert!((*found.next).caps == 2 && (*found.next).next.is_null());
            free(info);
        }
        // SAFETY: null asks for nothing.
        assert_eq!(unsafe { hints::read(ptr::null()) }.caps, 0);
    }

    #[test]
    fn without_memory_there_is_no_answer() {
        // Two offers: the structure, five parts, two names, two addresses.
        for allocations in 0..20 {
            LEFT.set(allocations);
            let answer = write(&CONSTANTS, &[offer(1), offer(2)], 0, Some(&[3; 64]));
            LEFT.set(usize::MAX);
            assert_eq!(answer, Err(Errno::NO_MEMORY), "{allocations}");
        }
    }
}
