//! The provider's description (fi_provider(3)), and `fi_getinfo`.

use std::env;
use std::ffi::{c_char, c_int};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter};
use tagmatch_os::notice;

use crate::hints::Hints;
use crate::policy::Provider;
use crate::{answer, fabric, hints, parent};

/// Flags of fi_getinfo(3). None of them changes the answer: attributes don't depend on a search,
/// and names of hosts aren't resolved.
const FLAGS: u64 = sys::FI_SOURCE | sys::FI_NUMERICHOST | sys::FI_PROV_ATTR_ONLY | sys::FI_RESCAN;

/// What `fi_prov_ini` gives a pointer to.
pub struct Description(sys::fi_provider);

// SAFETY: libfabric alone uses the description, after `fi_prov_ini` has given it.
unsafe impl Sync for Description {}
// SAFETY: as for `Sync`.
unsafe impl Send for Description {}

/// The description of a provider. `core`: the version of libfabric for which it is made; libfabric
/// passes over providers that are older than what a program asks for.
pub fn description<P: Provider>(core: u32) -> Box<Description> {
    Box::new(Description(sys::fi_provider {
        version: P::CONSTANTS.provider_version,
        fi_version: core,
        name: P::NAME.as_ptr(),
        getinfo: Some(getinfo::<P>),
        fabric: Some(fabric::open::<P>),
        cleanup: Some(cleanup::<P>),
        ..sys::fi_provider::zeroed()
    }))
}

impl Description {
    /// The answer of `fi_prov_ini`.
    pub fn as_ptr(&self) -> *mut sys::fi_provider {
        std::ptr::from_ref(&self.0).cast_mut()
    }

    /// The version of libfabric for which it is made.
    pub fn core(&self) -> u32 {
        self.0.fi_version
    }
}

unsafe extern "C" fn getinfo<P: Provider>(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    wanted: *const sys::fi_info,
    found: *mut *mut sys::fi_info,
) -> c_int {
    // SAFETY: libfabric passes on what its caller gives.
    enter(|| unsafe { answer::<P>(version, node, flags, wanted, found) })
}

/// The body of `fi_getinfo`. `node` may be the text of an endpoint's name (fi_av_straddr(3)).
/// Without `FI_SOURCE`, other names are refused: names of endpoints travel by the program's own
/// means.
///
/// # Safety
/// As fi_getinfo(3) asks.
unsafe fn answer<P: Provider>(
    version: u32,
    node: *const c_char,
    flags: u64,
    wanted: *const sys::fi_info,
    found: *mut *mut sys::fi_info,
) -> Result<()> {
    let settings = P::settings()?;
    if found.is_null() {
        return Err(Errno::INVALID);
    }
    // libfabric's own flags, by which utility providers look for others, are above these.
    if flags & !FLAGS != 0 {
        return Err(Errno::NO_DATA);
    }
    // With this flag, hints don't count.
    let wanted = if flags & sys::FI_PROV_ATTR_ONLY == 0 { wanted } else { std::ptr::null() };
    // SAFETY: the caller gives hints or null, and a name or null.
    let (hints, named_destination, node) = unsafe {
        (
            Hints { api_version: version, ..hints::read(wanted) },
            hints::destination(wanted, P::CONSTANTS.name_bytes),
            hints::text(node),
        )
    };
    let offers = P::negotiate(&settings, &hints).map_err(|why| {
        if env::var("FI_LOG_LEVEL").is_ok_and(|level| ["info", "debug"].contains(&&*level)) {
            notice::tell(&format!("{}: fi_getinfo: {why}", P::NAME.to_string_lossy()));
        }
        Errno::NO_DATA
    })?;
    let destination = match node {
        Some(node) if flags & sys::FI_SOURCE == 0 => Some(P::destination(&node)?),
        _ => named_destination,
    };
    // SAFETY: the caller gives a place for the answer.
    unsafe { *found = answer::write(&P::CONSTANTS, &offers, version, destination.as_deref())? };
    Ok(())
}

/// libfabric calls it at the end of the process, and in each forked child that calls exit(3).
unsafe extern "C" fn cleanup<P: Provider>() {
    let _: c_int = enter(|| {
        parent::close_all();
        P::cleanup();
        Ok(())
    });
}
