//! Passes UCX's log lines to the [`log`] crate. Without a logger in the program they are dropped.
//! UCX itself would write them to standard output.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Once;

use tagmatch_ucx_sys as sys;

/// The longest line in bytes; longer ones are cut off.
const LINE_MAX: usize = 1024;

unsafe extern "C" {
    // A `va_list` is passed as a pointer on x86-64, on aarch64 and on ppc64le, where UCX runs.
    fn vsnprintf(to: *mut c_char, room: usize, format: *const c_char, args: *mut c_void) -> c_int;
}

/// Takes UCX's log over, once a process. Leaves it alone if other code of the process has loaded
/// UCX before.
pub(super) fn take_over(ucp: &sys::Ucp) {
    static ONCE: Once = Once::new();
    if let Some(push) = ucp.ucs_log_push_handler.filter(|_| !ucp.was_loaded_before()) {
        // SAFETY: a handler as the header wants it, which lives for good. UCX's list of handlers is
        // changed once, before this process makes its first context.
        ONCE.call_once(|| unsafe { push(line) });
    }
}

/// Passes one line on. UCX has chosen it by its own level (`UCX_LOG_LEVEL`).
unsafe extern "C" fn line(
    file: *const c_char,
    number: c_uint,
    _function: *const c_char,
    level: sys::ucs_log_level_t,
    _settings: *const c_void,
    format: *const c_char,
    args: *mut c_void,
) -> c_uint {
    let level = match level {
        sys::UCS_LOG_LEVEL_FATAL | sys::UCS_LOG_LEVEL_ERROR => log::Level::Error,
        sys::UCS_LOG_LEVEL_WARN => log::Level::Warn,
        sys::UCS_LOG_LEVEL_DIAG | sys::UCS_LOG_LEVEL_INFO => log::Level::Info,
        sys::UCS_LOG_LEVEL_DEBUG => log::Level::Debug,
        _ => log::Level::Trace,
    };
    if log::log_enabled!(target: "ucx", level) {
        let mut text = [0; LINE_MAX];
        // SAFETY: UCX gives a format with the arguments that belong to it and the name of a source
        // file; `text` has the room that is said and stays terminated.
        let (text, file) = unsafe {
            vsnprintf(text.as_mut_ptr(), LINE_MAX - 1, format, args);
            let file = if file.is_null() { c"" } else { CStr::from_ptr(file) };
            (CStr::from_ptr(text.as_ptr()).to_string_lossy(), file.to_string_lossy())
        };
        let file = file.rsplit('/').next().unwrap_or_default();
        log::log!(target: "ucx", level, "{file}:{number}: {text}");
    }
    sys::UCS_LOG_FUNC_RC_STOP
}
