//! The provider as libfabric sees it.

use std::env;
use std::ffi::{CStr, c_int};
use std::sync::{Arc, OnceLock};

use tagmatch::{Address, Worker};
use tagmatch_device::contents::Contents;
use tagmatch_ofi_provider::{
    AtomicForm, AtomicLimits, Constants, Description, Hints, Offers, Pattern, Provider, UNTAGGED,
    description,
};
use tagmatch_ofi_sys as sys;
use tagmatch_os::notice;
use tagmatch_trace::Recorder;

use crate::absent::{ATOMIC, COLLECTIVE, RMA};
use crate::address::Name;
use crate::elements;
use crate::errno::{Errno, Reason, Result};
use crate::info;
use crate::library;
use crate::report;
use crate::settings::{self, Settings};
use crate::state::Endpoint;

/// The version to claim if libfabric can't be asked for its own. libfabric passes over providers
/// that are older than what a program asks for.
const VERSION: u32 = sys::FI_VERSION(2, 6);

/// The oldest libfabric whose structures are as large as those that this provider reads.
const OLDEST: u32 = sys::FI_VERSION(1, 17);

static PROVIDER: OnceLock<Box<Description>> = OnceLock::new();

/// What libfabric calls when it has loaded the provider. Gives the provider's description.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut sys::fi_provider {
    let core = || description::<Tagmatch>(version_of_core().unwrap_or(VERSION));
    PROVIDER.get_or_init(core).as_ptr()
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
        let version = numbers(version);
        let oldest = numbers(OLDEST);
        format!("libfabric {version} is too old; {oldest} or a later one is needed")
    })
}

/// Whether libfabric is new enough. If it isn't, that is said on standard error once.
fn check_core() -> Result<()> {
    static CHECKED: OnceLock<bool> = OnceLock::new();
    let check = || {
        let version = PROVIDER.get().map_or(VERSION, |provider| provider.core());
        let fault = fault_of_core(version);
        if let Some(fault) = &fault {
            notice::tell(&format!("tagmatch: {fault}"));
        }
        fault.is_none()
    };
    if *CHECKED.get_or_init(check) { Ok(()) } else { Err(Errno::NO_DATA) }
}

/// tagmatch as a provider.
struct Tagmatch;

impl Provider for Tagmatch {
    const NAME: &'static CStr = c"tagmatch";
    const CONSTANTS: Constants = info::CONSTANTS;
    const IS_TAGGED_ALONE: bool = false;
    const READS_ALONE_PROGRESS: bool = false;
    const READS_GIVE_WAY: bool = true;
    const SEND_FLAGS: u64 = info::SEND_FLAGS;
    const RECEIVE_FLAGS: u64 = info::RECEIVE_FLAGS;
    const CALL_SEND_FLAGS: u64 =
        info::SEND_FLAGS | sys::FI_MORE | sys::FI_REMOTE_CQ_DATA | sys::FI_FENCE;
    const CALL_RECEIVE_FLAGS: u64 =
        sys::FI_MORE | sys::FI_COMPLETION | sys::FI_PEEK | sys::FI_CLAIM | sys::FI_DISCARD;
    const RMA: Option<&'static sys::fi_ops_rma> = Some(&RMA);
    const ATOMIC: Option<&'static sys::fi_ops_atomic> = Some(&ATOMIC);
    const COLLECTIVE: Option<&'static sys::fi_ops_collective> = Some(&COLLECTIVE);

    type Settings = Settings;
    type Domain = ();
    type Address = Address;
    type Endpoint = Endpoint;

    fn settings() -> Result<Arc<Settings>> {
        check_core()?;
        settings::of_environment().ok_or(Errno::NO_DATA)
    }

    fn negotiate(settings: &Settings, hints: &Hints) -> Offers {
        info::negotiate(&info::Profile::of(settings), hints).map(|offer| vec![offer])
    }

    fn destination(node: &str) -> Result<Vec<u8>> {
        // An answer without the destination that was asked for would make the program connect to
        // nothing, and wait.
        let name = node.parse::<Name>().map_err(|()| no_host(node))?;
        Ok(name.as_bytes().to_vec())
    }

    fn domain(_settings: &Settings) {}

    fn endpoint(settings: &Settings, _domain: &(), asked: &Hints) -> Result<Endpoint> {
        let caps = info::caps_of(settings.has_one_sided());
        info::check_opened(caps, asked).map_err(|_| Errno::INVALID)?;
        let opened = asked.opened();
        let worker = new_worker(settings, opened.directed).map_err(|error| {
            // The caller gets a number only; the words are for the person who runs the program.
            notice::tell(&format!("tagmatch: fi_endpoint: {error}"));
            Errno::IO
        })?;
        let mut endpoint = Endpoint::new(worker, opened);
        if let Some(path) = settings.report() {
            endpoint.depths.watches = true;
            report::begin(path);
        }
        Ok(endpoint)
    }

    fn address(name: &[u8]) -> Option<Address> {
        let address = Name::from_bytes(name.try_into().ok()?).address()?;
        Contents::of(&address).is_ok().then_some(address)
    }

    fn name(address: &Address) -> Option<Vec<u8>> {
        Name::of(address).map(|name| name.as_bytes().to_vec())
    }

    fn text(name: &[u8]) -> Option<String> {
        name.try_into().ok().map(|name| Name::from_bytes(name).to_string())
    }

    /// A caller's tag has 63 bits (`mem_tag_format`).
    #[inline]
    fn tag(tag: u64) -> Result<u64> {
        if tag & UNTAGGED == 0 { Ok(tag) } else { Err(Errno::INVALID) }
    }

    #[inline]
    fn pattern(source: u64, tag: u64, ignore: u64) -> Result<Pattern> {
        let tag = Self::tag(tag & !(ignore & UNTAGGED))?;
        Ok(Pattern { tag, mask: !ignore | UNTAGGED, source })
    }

    fn has_one_sided(settings: &Settings) -> bool {
        settings.has_one_sided()
    }

    fn atomic(
        datatype: sys::fi_datatype,
        op: sys::fi_op,
        form: AtomicForm,
    ) -> Option<AtomicLimits> {
        let size = elements::of(datatype, op, form)?.1.size();
        Some(AtomicLimits { size, count: info::ATOMIC_BYTES_MAX / size })
    }

    fn words(reason: c_int) -> &'static CStr {
        Reason::words(reason)
    }

    fn cleanup() {
        let settings = settings::of_environment();
        if let Some(path) = settings.as_ref().and_then(|settings| settings.report()) {
            report::write(path);
        }
    }
}

/// A worker, which records a trace if the settings say so.
fn new_worker(
    settings: &Settings,
    is_directed: bool,
) -> std::result::Result<Worker, Box<dyn std::error::Error>> {
    let worker = Worker::new(settings.config(is_directed))?;
    if let Some(folder) = settings.trace() {
        let recorder = Recorder::in_folder(folder, Recorder::BYTES_MAX);
        let (recorder, _) =
            recorder.map_err(|error| format!("TAGMATCH_FI_TRACE={}: {error}", folder.display()))?;
        worker.observe(Box::new(recorder))?;
    }
    Ok(worker)
}

/// The answer to a program that wants to reach a host. The words are for people whose program uses
/// this provider only, or who look for the reason.
fn no_host(node: &str) -> Errno {
    let is = |name: &str, values: &[&str]| {
        env::var(name)
            .is_ok_and(|value| values.iter().any(|other| value.eq_ignore_ascii_case(other)))
    };
    if is("FI_PROVIDER", &["tagmatch"]) || is("FI_LOG_LEVEL", &["info", "debug"]) {
        notice::tell(&format!(
            "tagmatch: fi_getinfo: no endpoint is found by the name of its host ({}): programs must \
             exchange what fi_getname gives (fabtests do with -E)",
            node.escape_debug()
        ));
    }
    Errno::NO_DATA
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
