//! A program's structures as plain values.

use std::ffi::{CStr, c_char};

use tagmatch_ofi_sys as sys;

use super::offer::Hints;
use crate::address::Name;

/// What a program asks for. Parts that are null ask for nothing. libfabric gives providers
/// structures of version 1.17 or later, whatever version the program asks for; only what version
/// 1.17 has is read.
///
/// # Safety
/// `hints` is null or points to a `fi_info`, whose parts are null or of their types.
pub(super) unsafe fn hints(hints: *const sys::fi_info) -> Hints {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(hints) = hints.as_ref() else { return Hints::default() };
        let (domain, fabric) = (hints.domain_attr.as_ref(), hints.fabric_attr.as_ref());
        Hints {
            caps: hints.caps,
            address_format: hints.addr_format,
            has_handle: !hints.handle.is_null(),
            transmit: hints.tx_attr.as_ref().copied(),
            receive: hints.rx_attr.as_ref().copied(),
            endpoint: hints.ep_attr.as_ref().copied(),
            domain: domain.copied(),
            domain_name: domain.and_then(|domain| text(domain.name)),
            fabric_name: fabric.and_then(|fabric| text(fabric.name)),
            provider_version: fabric.map_or(0, |fabric| fabric.prov_version),
        }
    }
}

/// The destination that a program gives.
///
/// # Safety
/// As for [`hints`]. `dest_addr` has `dest_addrlen` bytes.
pub(super) unsafe fn destination(hints: *const sys::fi_info) -> Option<Name> {
    // SAFETY: the caller's promise.
    unsafe {
        let hints = hints.as_ref()?;
        if hints.dest_addr.is_null() || hints.dest_addrlen != Name::BYTES {
            return None;
        }
        Some(Name::from_bytes(hints.dest_addr.cast::<[u8; Name::BYTES]>().read_unaligned()))
    }
}

/// A text, if there is one that is UTF-8.
///
/// # Safety
/// `text` is null or a terminated string.
pub(super) unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
