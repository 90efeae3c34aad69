//! A program's structures as plain values.

use std::ffi::{CStr, c_char};

use tagmatch_ofi_sys as sys;

/// What a program asks for (`hints` of fi_getinfo(3)). Zero asks for nothing.
#[derive(Clone, Default)]
pub struct Hints {
    /// The version of libfabric's interface that the program asks for; 0 if it isn't known here.
    pub api_version: u32,
    /// Capabilities.
    pub caps: u64,
    /// The format of addresses.
    pub address_format: u32,
    /// The program gives a connection request.
    pub has_handle: bool,
    /// Attributes of sends.
    pub transmit: Option<sys::fi_tx_attr>,
    /// Attributes of receives.
    pub receive: Option<sys::fi_rx_attr>,
    /// Attributes of the endpoint.
    pub endpoint: Option<sys::fi_ep_attr>,
    /// Attributes of the domain.
    pub domain: Option<sys::fi_domain_attr>,
    /// The domain's name.
    pub domain_name: Option<String>,
    /// The fabric's name.
    pub fabric_name: Option<String>,
    /// The oldest version of the provider that will do.
    pub provider_version: u32,
}

/// The settings that an endpoint was opened with.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The capabilities of the endpoint: `FI_SEND`, `FI_RECV` and others.
    pub caps: u64,
    /// `FI_DIRECTED_RECV`: receives may name their source.
    pub directed: bool,
    /// `FI_SOURCE`: entries tell the source.
    pub source: bool,
    /// The flags of sends that are given none.
    pub send_flags: u64,
    /// The flags of receives that are given none.
    pub receive_flags: u64,
}

impl Hints {
    /// The settings of an endpoint that is opened with these attributes.
    pub fn opened(&self) -> Opened {
        Opened {
            caps: with_directions(self.caps),
            directed: self.caps & sys::FI_DIRECTED_RECV != 0,
            source: self.caps & sys::FI_SOURCE != 0,
            send_flags: self.transmit.map_or(0, |transmit| transmit.op_flags),
            receive_flags: self.receive.map_or(0, |receive| receive.op_flags),
        }
    }
}

/// Capabilities with all directions, if they name none: of messages, and of one-sided operations.
pub fn with_directions(caps: u64) -> u64 {
    const MESSAGES: u64 = sys::FI_SEND | sys::FI_RECV;
    const ONE_SIDED: u64 =
        sys::FI_READ | sys::FI_WRITE | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
    let is_one_sided = caps & (sys::FI_RMA | sys::FI_ATOMIC) != 0;
    let has_messages = caps & (sys::FI_MSG | sys::FI_TAGGED) != 0 || !is_one_sided;
    let mut all = caps;
    if has_messages && caps & MESSAGES == 0 {
        all |= MESSAGES;
    }
    if is_one_sided && caps & ONE_SIDED == 0 {
        all |= ONE_SIDED;
    }
    all
}

/// What a program asks for. Parts that are null ask for nothing. libfabric gives providers
/// structures of version 1.17 or later, whatever version the program asks for; only what version
/// 1.17 has is read.
///
/// # Safety
/// `hints` is null or points to a `fi_info`, whose parts are null or of their types.
pub(crate) unsafe fn read(hints: *const sys::fi_info) -> Hints {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(hints) = hints.as_ref() else { return Hints::default() };
        let domain = hints.domain_attr.as_ref();
        let fabric = hints.fabric_attr.as_ref();
        Hints {
            api_version: 0,
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

/// The destination that a program gives, if it is as long as a name.
///
/// # Safety
/// As for [`read`]. `dest_addr` has `dest_addrlen` bytes.
pub(crate) unsafe fn destination(hints: *const sys::fi_info, length: usize) -> Option<Vec<u8>> {
    // SAFETY: the caller's promise.
    unsafe {
        let hints = hints.as_ref()?;
        if hints.dest_addr.is_null() || hints.dest_addrlen != length {
            return None;
        }
        Some(std::slice::from_raw_parts(hints.dest_addr.cast(), length).to_vec())
    }
}

/// A text, if there is one. Bytes that are not UTF-8 are replaced.
///
/// # Safety
/// `text` is null or a terminated string.
pub(crate) unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
