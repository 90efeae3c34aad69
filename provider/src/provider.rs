//! The provider's description: fi_provider(3).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use tagmatch_ofi_sys as sys;
use tagmatch_os::notice;

use crate::errno::{Errno, Result};
use crate::ffi;
use crate::info;
use crate::library;
use crate::report;
use crate::settings;

/// The provider's name, for `FI_PROVIDER`.
pub(crate) const NAME: &CStr = c"tagmatch";

/// The version to claim if libfabric can't be asked for its own. libfabric passes over providers
/// that are older than what a program asks for.
const VERSION: u32 = sys::FI_VERSION(2, 6);

/// The oldest libfabric whose structures are as large as those that this provider reads.
const OLDEST: u32 = sys::FI_VERSION(1, 17);

struct Provider(sys::fi_provider);

// SAFETY: libfabric alone uses the description, after `fi_prov_ini` has given it.
unsafe impl Sync for Provider {}

static PROVIDER: OnceLock<Box<Provider>> = OnceLock::new();

// SAFETY: as for `Sync`.
unsafe impl Send for Provider {}

/// What libfabric calls when it has loaded the provider. Gives the provider's description.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut sys::fi_provider {
    let provider = PROVIDER.get_or_init(|| {
        Box::new(Provider(sys::fi_provider {
            version: info::VERSION,
            fi_version: version_of_core().unwrap_or(VERSION),
            name: NAME.as_ptr(),
            getinfo: Some(getinfo),
            fabric: Some(ffi::open_fabric),
            cleanup: Some(cleanup),
            ..sys::fi_provider::zeroed()
        }))
    });
    ptr::from_ref(&provider.0).cast_mut()
}

/// The version of the libfabric that is loaded. Not by its usual file name: some MPI libraries
/// bring a copy with another one.
fn version_of_core() -> Option<u32> {
    let file = library::loaded(b"libfabric")?;
    // SAFETY: the name is a string. The library is loaded and stays so; its function takes nothing
    // and gives a number.
    unsafe {
        let handle = libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        let function = libc::dlsym(handle, c"fi_version".as_ptr());
        let version = (!function.is_null()).then(|| {
            let function: unsafe extern "C" fn() -> u32 = std::mem::transmute(function);
            function()
        });
        libc::dlclose(handle);
        version
    }
}

/// The error message for a libfabric of this version, if the version is too old.
fn fault_of_core(version: u32) -> Option<String> {
    let numbers = |version: u32| format!("{}.{}", version >> 16, version & 0xffff);
    (version < OLDEST).then(|| {
        let (version, oldest) = (numbers(version), numbers(OLDEST));
        format!("libfabric {version} is too old; {oldest} or a later one is needed")
    })
}

/// Whether libfabric is new enough. If it isn't, that is said on standard error once.
fn check_core() -> Result<()> {
    static CHECKED: OnceLock<bool> = OnceLock::new();
    let check = || {
        let version = PROVIDER.get().map_or(VERSION, |provider| provider.0.fi_version);
        let fault = fault_of_core(version);
        if let Some(fault) = &fault {
            notice::tell(&format!("tagmatch: {fault}"));
        }
        fault.is_none()
    };
    if *CHECKED.get_or_init(check) { Ok(()) } else { Err(Errno::NO_DATA) }
}

unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const sys::fi_info,
    found: *mut *mut sys::fi_info,
) -> c_int {
    ffi::enter(|| {
        check_core()?;
        let settings = settings::of_environment().ok_or(Errno::NO_DATA)?;
        // SAFETY: libfabric passes on what its caller gives.
        unsafe { info::getinfo(&settings, version, node, flags, hints, found) }
    })
}

/// libfabric calls it at the end of the process, and in each forked child that calls exit(3).
unsafe extern "C" fn cleanup() {
    let _: c_int = ffi::enter(|| {
        crate::domain::close_all();
        let settings = settings::of_environment();
        if let Some(path) = settings.as_ref().and_then(|settings| settings.report()) {
            report::write(path);
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_libfabric_with_smaller_structures_is_refused_in_words() {
        for (major, minor) in [(1, 17), (1, 22), (2, 0), (2, 6)] {
            assert_eq!(fault_of_core(sys::FI_VERSION(major, minor)), None);
        }
        let fault = fault_of_core(sys::FI_VERSION(1, 16)).unwrap();
        assert_eq!(fault, "libfabric 1.16 is too old; 1.17 or a later one is needed");
    }
}
