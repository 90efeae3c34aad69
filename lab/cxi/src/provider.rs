//! The provider as libfabric sees it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tagmatch_ofi_provider::{
    Bindings, Constants, Description, Hints, Offers, Pattern, Provider, description,
};
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, copy_text};
use tagmatch_os::notice;

use crate::endpoint::{Endpoint, Limits, TAG_BITS};
use crate::offer::{self, USUAL_MAX};
use crate::settings::{self, Mode, Settings};
use crate::wire::Name;

/// Its argument is a name.
const SET_MATCH_MODE: c_int = sys::FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE;
/// Its argument has room for a name.
const GET_MATCH_MODE: c_int = sys::FI_OPT_CXI_GET_RX_MATCH_MODE_OVERRIDE;

/// Gives the description of the provider. libfabric calls this function when it has loaded the
/// library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut sys::fi_provider {
    static PROVIDER: OnceLock<Box<Description>> = OnceLock::new();
    PROVIDER.get_or_init(|| description::<Cxi>(sys::FI_VERSION(2, 6))).as_ptr()
}

struct Cxi;

/// A domain: a NIC.
pub(crate) struct Domain {
    mode: Mutex<Mode>,
    /// Endpoints that were opened.
    endpoints: AtomicU32,
}

impl Provider for Cxi {
    const NAME: &'static CStr = c"cxi";
    const CONSTANTS: Constants = offer::CONSTANTS;
    const IS_TAGGED_ALONE: bool = true;
    const READS_ALONE_PROGRESS: bool = true;
    const READS_GIVE_WAY: bool = false;
    const CONTROLS_DOMAINS: bool = true;
    const SEND_FLAGS: u64 = offer::SEND_FLAGS;
    const RECEIVE_FLAGS: u64 = offer::RECEIVE_FLAGS;
    const CALL_SEND_FLAGS: u64 = offer::SEND_FLAGS;
    // No FI_DISCARD: cxip_trecvmsg has none.
    const CALL_RECEIVE_FLAGS: u64 = offer::RECEIVE_FLAGS | sys::FI_PEEK | sys::FI_CLAIM;

    type Settings = Arc<Settings>;
    type Domain = Domain;
    type Address = Name;
    type Endpoint = Endpoint;

    /// The knobs are read here.
    fn settings() -> Result<Arc<Self::Settings>> {
        settings::of_environment().map(Arc::new).map(Arc::new)
    }

    fn negotiate(settings: &Arc<Settings>, hints: &Hints) -> Offers {
        offer::negotiate(settings, hints)
    }

    /// Names of hosts lead to no endpoint.
    fn destination(_node: &str) -> Result<Vec<u8>> {
        Err(Errno::NO_DATA)
    }

    fn domain(settings: &Arc<Settings>) -> Domain {
        Domain { mode: Mutex::new(settings.mode), endpoints: AtomicU32::new(0) }
    }

    /// # Safety
    /// As the trait says.
    unsafe fn control(
        settings: &Arc<Settings>,
        domain: &Domain,
        command: c_int,
        argument: *mut c_void,
    ) -> Result<()> {
        if argument.is_null() || !settings.has_mode_control {
            return Err(Errno::INVALID);
        }
        let mut mode = domain.mode.lock().unwrap_or_else(PoisonError::into_inner);
        match command {
            SET_MATCH_MODE => {
                // SAFETY: the caller gives a name.
                let name = unsafe { CStr::from_ptr(argument.cast()) };
                let wanted = name.to_str().ok().and_then(Mode::named).ok_or(Errno::INVALID)?;
                // cxi takes a mode after the first endpoint as well, and doesn't apply it to that
                // endpoint. Here this mistake of a program is an error.
                if domain.endpoints.load(Ordering::Relaxed) > 0 {
                    return Err(Errno::BUSY);
                }
                *mode = wanted;
                Ok(())
            }
            GET_MATCH_MODE => {
                let name = mode.name();
                // SAFETY: the caller gives room for a name.
                unsafe { copy_text(name.as_bytes(), argument.cast(), name.len() + 1) };
                Ok(())
            }
            // As cxip_dom_control answers to what it doesn't know.
            _ => Err(Errno::INVALID),
        }
    }

    fn endpoint(settings: &Arc<Settings>, domain: &Domain, asked: &Hints) -> Result<Endpoint> {
        /// The endpoints of this process so far: their numbers are in their names.
        static OPENED: AtomicU32 = AtomicU32::new(0);
        if asked.endpoint.is_some_and(|endpoint| endpoint.protocol == sys::FI_PROTO_CXI_RNR) {
            return Err(Errno::NO_SYSTEM_CALL);
        }
        let limits = Limits {
            sends_max: asked.transmit.map_or(USUAL_MAX, |transmit| transmit.size),
            receives_max: asked.receive.map_or(USUAL_MAX, |receive| receive.size),
        };
        domain.endpoints.fetch_add(1, Ordering::Relaxed);
        let mode = *domain.mode.lock().unwrap_or_else(PoisonError::into_inner);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let bound = Bindings::new(asked.opened());
        Endpoint::new(settings, mode, number, bound, limits).map_err(|error| {
            notice::tell(&format!("cxi: fi_endpoint: {error}"));
            Errno::IO
        })
    }

    fn address(name: &[u8]) -> Option<Name> {
        name.try_into().ok().map(|name| Name(u64::from_ne_bytes(name)))
    }

    fn name(address: &Name) -> Option<Vec<u8>> {
        Some(address.0.to_ne_bytes().to_vec())
    }

    fn text(_name: &[u8]) -> Option<String> {
        None
    }

    fn tag(tag: u64) -> Result<u64> {
        if tag & !TAG_BITS == 0 { Ok(tag) } else { Err(Errno::INVALID) }
    }

    fn pattern(source: u64, tag: u64, ignore: u64) -> Result<Pattern> {
        Self::tag(tag | ignore).map(|_| Pattern { tag, mask: !ignore, source })
    }

    fn words(_reason: c_int) -> &'static CStr {
        c"see the error number of libfabric"
    }
}
