//! `fi_getinfo`: what a program asks for, and what it gets: fi_getinfo(3).
//!
//! 1. `read` makes plain values of the program's structures.
//! 2. `offer` compares them with `profile`, what this provider has.
//! 3. `write` allocates the answer as libfabric expects it.

mod offer;
mod profile;
mod read;
mod write;

use std::env;
use std::ffi::c_char;

use tagmatch_ofi_sys as sys;
use tagmatch_os::notice;

use crate::address::Name;
use crate::errno::{Errno, Result};
use crate::settings::Settings;
use crate::state::Opened;
use profile::Profile;
pub(crate) use profile::{INJECT_MAX, PARTS_MAX, RECEIVE_FLAGS, SEND_FLAGS, VERSION};

/// Flags of fi_getinfo(3). None of them changes the answer: attributes don't depend on a search,
/// and names of hosts aren't resolved.
const FLAGS: u64 = sys::FI_SOURCE | sys::FI_NUMERICHOST | sys::FI_PROV_ATTR_ONLY | sys::FI_RESCAN;

/// The body of `fi_getinfo`. `node` may be the text of an endpoint's name (fi_av_straddr(3)).
/// Without `FI_SOURCE`, other names are refused: names of endpoints travel by the program's own
/// means.
///
/// # Safety
/// As fi_getinfo(3) asks.
pub(crate) unsafe fn getinfo(
    settings: &Settings,
    version: u32,
    node: *const c_char,
    flags: u64,
    hints: *const sys::fi_info,
    found: *mut *mut sys::fi_info,
) -> Result<()> {
    if found.is_null() {
        return Err(Errno::INVALID);
    }
    // libfabric's own flags, by which utility providers look for others, are above these.
    if flags & !FLAGS != 0 {
        return Err(Errno::NO_DATA);
    }
    // With this flag, hints don't count.
    let hints = if flags & sys::FI_PROV_ATTR_ONLY == 0 { hints } else { std::ptr::null() };
    // SAFETY: the caller gives hints or null, and a name or null.
    let (hints, given, node) =
        unsafe { (read::hints(hints), read::destination(hints), read::text(node)) };
    let offer = offer::negotiate(&Profile::of(settings), &hints).map_err(|why| {
        if env::var("FI_LOG_LEVEL").is_ok_and(|level| ["info", "debug"].contains(&&*level)) {
            notice::tell(&format!("tagmatch: fi_getinfo: {why}"));
        }
        Errno::NO_DATA
    })?;
    let destination = match node {
        Some(node) if flags & sys::FI_SOURCE == 0 => match node.parse::<Name>() {
            Ok(name) => Some(name),
            // An answer without the destination that was asked for would make the program connect
            // to nothing, and wait.
            Err(_) => return Err(no_host(&node)),
        },
        _ => given,
    };
    // SAFETY: the caller gives a place for the answer.
    unsafe { *found = write::info(&offer, version, destination.as_ref())? };
    Ok(())
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

/// What an endpoint is opened with.
///
/// # Errors
/// A capability, a flag or the type of endpoint is not offered.
///
/// # Safety
/// `info` and its parts are what fi_getinfo(3) gave, maybe changed.
pub(crate) unsafe fn opened(info: *const sys::fi_info) -> Result<Opened> {
    if info.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let asked = unsafe { read::hints(info) };
    offer::check_opened(&asked).map_err(|_| Errno::INVALID)?;
    Ok(Opened {
        caps: offer::with_implied(asked.caps),
        directed: asked.caps & sys::FI_DIRECTED_RECV != 0,
        source: asked.caps & sys::FI_SOURCE != 0,
        send_flags: asked.transmit.map_or(0, |transmit| transmit.op_flags),
        receive_flags: asked.receive.map_or(0, |receive| receive.op_flags),
    })
}

/// Whether several threads may call at the same time.
///
/// # Safety
/// As for [`opened`].
pub(crate) unsafe fn is_shared(info: *const sys::fi_info) -> bool {
    // SAFETY: the caller's promise.
    let domain = unsafe { read::hints(info) }.domain;
    domain.is_none_or(|domain| domain.threading != sys::FI_THREAD_DOMAIN)
}
