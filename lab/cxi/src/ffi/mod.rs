//! The functions that libfabric's callers enter, and the tables of them: fi_provider(3).

mod av;
mod cq;
mod domain;
mod ep;
mod fabric;
mod info;
mod object;
mod offer;
mod tagged;

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, enter};
use tagmatch_os::notice;

use crate::settings;

struct Provider(sys::fi_provider);

// SAFETY: libfabric alone uses the description, after `fi_prov_ini` has given it.
unsafe impl Sync for Provider {}
// SAFETY: as for `Sync`.
unsafe impl Send for Provider {}

static PROVIDER: OnceLock<Box<Provider>> = OnceLock::new();

/// Gives the description of the provider. libfabric calls this function when it has loaded the
/// library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut sys::fi_provider {
    let provider = PROVIDER.get_or_init(|| {
        Box::new(Provider(sys::fi_provider {
            version: offer::VERSION,
            // libfabric passes over providers that are older than what a program asks for.
            fi_version: sys::FI_VERSION(2, 6),
            name: c"cxi".as_ptr(),
            getinfo: Some(getinfo),
            fabric: Some(fabric::open),
            cleanup: Some(cleanup),
            ..sys::fi_provider::zeroed()
        }))
    });
    ptr::from_ref(&provider.0).cast_mut()
}

unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const sys::fi_info,
    found: *mut *mut sys::fi_info,
) -> c_int {
    enter(|| {
        if found.is_null() {
            return Err(Errno::INVALID);
        }
        // Names of hosts lead to no endpoint.
        if !node.is_null() {
            return Err(Errno::NO_DATA);
        }
        let settings = settings::of_environment()?;
        // SAFETY: libfabric passes on what its caller gives.
        unsafe {
            let offers = offer::negotiate(&settings, &info::read(hints)).map_err(|why| {
                if std::env::var("FI_LOG_LEVEL").is_ok_and(|level| level == "info") {
                    notice::tell(&format!("cxi: fi_getinfo: {why}"));
                }
                Errno::NO_DATA
            })?;
            *found = info::write(&settings.nic, version, &offers)?;
        }
        Ok(())
    })
}

unsafe extern "C" fn cleanup() {}
