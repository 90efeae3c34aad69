//! Loading libfabric, once a process, and what it offers.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use tagmatch_device::DeviceError;
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::signals::Signals;

/// The version of the interface that this device asks for: the first that it knows. A later
/// libfabric behaves as that one then.
const API: u32 = sys::load::VERSION_MIN;

/// libfabric, loaded when the first device is made. It is never unloaded.
pub(super) fn load() -> Result<&'static sys::Libfabric, DeviceError> {
    static LIBRARY: OnceLock<Result<sys::Libfabric, String>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| {
        let loaded = sys::Libfabric::from_environment().map_err(|error| error.to_string())?;
        // SAFETY: a function without arguments.
        let version = unsafe { (loaded.fi_version)() };
        if sys::FI_MAJOR(version) > MAJOR_MAX {
            return Err(format!(
                "{} is libfabric {}.{}, and this version is known up to {MAJOR_MAX}.x; try: \
                 {}=libfabric.so.1 with an older one",
                loaded.path(),
                sys::FI_MAJOR(version),
                sys::FI_MINOR(version),
                sys::load::LIBRARY_VARIABLE,
            ));
        }
        Ok(loaded)
    });
    loaded.as_ref().map_err(|why| DeviceError::System {
        call: "load libfabric",
        source: io::Error::new(io::ErrorKind::NotFound, why.clone()),
        hint: "",
    })
}

/// The last major version whose structures are known to fit.
const MAJOR_MAX: u32 = 2;

/// libfabric's answer to a query: a list of ways to communicate.
pub(super) struct Offers {
    libfabric: &'static sys::Libfabric,
    first: *mut sys::fi_info,
}

/// A query for `fi_getinfo(3)`.
#[derive(Clone, Copy, Default)]
pub(super) struct OfferQuery<'a> {
    /// Only this provider.
    pub(super) provider: Option<&'a str>,
    /// Capabilities that an offer must have, besides tagged messages.
    pub(super) caps: u64,
    /// Levels of completion that have to be there.
    pub(super) op_flags: u64,
    /// Receives that can be posted at a time; 0: the provider's usual number.
    pub(super) receives: usize,
}

/// One way to communicate, as far as the choice among them depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) provider: String,
    /// The major version of the provider; those of libfabric 1.17 have 117.
    pub(super) version: u32,
    pub(super) domain: String,
    /// The address of its interface, if it is IP's.
    pub(super) ip: Option<IpAddr>,
    /// Bits of a tag that are matched.
    pub(super) tag_bits: u32,
    /// Bytes of data beside the tag.
    pub(super) data_bytes: usize,
    /// Most bytes of a message that is copied at once.
    pub(super) inject_max: usize,
    /// Most bytes of a message.
    pub(super) message_max: usize,
    /// Receives that can be posted at a time.
    pub(super) receives_max: usize,
    /// A receive can name its sender beside the tag.
    pub(super) is_directed: bool,
}

impl Offers {
    /// Asks libfabric. An answer of nothing is an empty list.
    pub(super) fn ask(libfabric: &'static sys::Libfabric, wanted: OfferQuery<'_>) -> Self {
        let name = wanted.provider.and_then(|name| CString::new(name).ok());
        let mut first = ptr::null_mut();
        // Some providers are loaded now, each with its constructors.
        let signals = Signals::now();
        // SAFETY: `fi_dupinfo` of null gives attributes to be filled, all of whose parts are there.
        // `strdup`'s memory belongs to them, and `fi_freeinfo` frees all of it.
        unsafe {
            let hints = (libfabric.fi_dupinfo)(ptr::null());
            if !hints.is_null() {
                (*hints).caps = sys::FI_TAGGED | sys::FI_SEND | sys::FI_RECV | wanted.caps;
                (*hints).mode = sys::FI_CONTEXT | sys::FI_CONTEXT2 | sys::FI_ASYNC_IOV;
                (*(*hints).ep_attr).r#type = sys::FI_EP_RDM;
                let writes = if wanted.caps & sys::FI_RMA == 0 { 0 } else { sys::FI_ORDER_SAW };
                (*(*hints).tx_attr).msg_order = sys::FI_ORDER_SAS | writes;
                (*(*hints).tx_attr).op_flags = wanted.op_flags;
                (*(*hints).rx_attr).msg_order = sys::FI_ORDER_SAS | writes;
                (*(*hints).rx_attr).size = wanted.receives;
                let domain = &mut *(*hints).domain_attr;
                domain.threading = sys::FI_THREAD_DOMAIN;
                domain.control_progress = sys::FI_PROGRESS_MANUAL;
                domain.data_progress = sys::FI_PROGRESS_MANUAL;
                domain.resource_mgmt = sys::FI_RM_ENABLED;
                domain.av_type = sys::FI_AV_TABLE;
                domain.mr_mode = sys::FI_MR_ENDPOINT
                    | sys::FI_MR_ALLOCATED
                    | sys::FI_MR_PROV_KEY
                    | sys::FI_MR_VIRT_ADDR;
                if let Some(name) = &name {
                    (*(*hints).fabric_attr).prov_name = libc::strdup(name.as_ptr());
                }
                let getinfo = libfabric.fi_getinfo;
                if getinfo(API, ptr::null(), ptr::null(), 0, hints, &raw mut first) != 0 {
                    first = ptr::null_mut();
                }
                (libfabric.fi_freeinfo)(hints);
            }
        }
        signals.restore();
        Offers { libfabric, first }
    }

    /// All of them, in libfabric's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Offer> {
        self.raw().map(|info| {
            // SAFETY: an element of a list that libfabric has made, with all its parts.
            unsafe { read(info) }
        })
    }

    fn raw(&self) -> impl Iterator<Item = NonNull<sys::fi_info>> {
        // SAFETY: the list lives as long as `self`, and ends with null.
        let next = |info: &NonNull<sys::fi_info>| NonNull::new(unsafe { info.as_ref() }.next);
        std::iter::successors(NonNull::new(self.first), next)
    }

    /// The description at a place of the list, for libfabric's calls. It lives as long as the list.
    pub(super) fn raw_at(&self, place: usize) -> Option<NonNull<sys::fi_info>> {
        self.raw().nth(place)
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: the list that `fi_getinfo` gave, freed once.
            unsafe { (self.libfabric.fi_freeinfo)(self.first) };
        }
    }
}

/// # Safety
/// A description that libfabric has made.
unsafe fn read(info: NonNull<sys::fi_info>) -> Offer {
    // SAFETY: by the caller; all parts of a description are there, and texts are null or end with
    // zero.
    unsafe {
        let info = info.as_ref();
        let endpoint = &*info.ep_attr;
        let domain = &*info.domain_attr;
        Offer {
            provider: text((*info.fabric_attr).prov_name),
            version: sys::FI_MAJOR((*info.fabric_attr).prov_version),
            domain: text(domain.name),
            ip: ip_of(info.addr_format, info.src_addr.cast(), info.src_addrlen),
            tag_bits: 64 - endpoint.mem_tag_format.leading_zeros(),
            data_bytes: domain.cq_data_size,
            inject_max: (*info.tx_attr).inject_size,
            message_max: endpoint.max_msg_size,
            receives_max: (*info.rx_attr).size,
            is_directed: info.caps & sys::FI_DIRECTED_RECV != 0,
        }
    }
}

/// # Safety
/// Null, or a text that ends with zero.
unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: by the caller.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// # Safety
/// Null, or the address of an interface, of so many bytes.
unsafe fn ip_of(format: u32, from: *const u8, length: usize) -> Option<IpAddr> {
    if from.is_null() || !matches!(format, sys::FI_SOCKADDR_IN | sys::FI_SOCKADDR_IN6) {
        return None;
    }
    // SAFETY: by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(from, length) };
    // `sockaddr_in` and `sockaddr_in6`: family, port, and the address behind 4 or 8 bytes.
    if format == sys::FI_SOCKADDR_IN {
        return Some(Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into());
    }
    Some(Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into())
}
