//! Loads libucp at run time, so that the program also starts on a machine without it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use tagmatch_sys::signals::Signals;
use tagmatch_sys::{Missing, functions, load};

use crate::status::{ucs_status_ptr_t, ucs_status_t};
use crate::types::{
    ucp_address_t, ucp_config_t, ucp_context_h, ucp_ep_h, ucp_ep_params_t, ucp_mem_h,
    ucp_mem_map_params_t, ucp_params_t, ucp_request_param_t, ucp_tag_message_h,
    ucp_tag_recv_info_t, ucp_tag_t, ucp_worker_h, ucp_worker_params_t, ucs_log_func_t,
};

/// The environment variable that names another library to load. Programs that run with more rights
/// than their caller ignore it, as the loader ignores its own variables there.
pub const LIBRARY_VARIABLE: &str = "TAGMATCH_LIBUCP";

/// The library that is loaded if the variable isn't set.
const LIBRARY: &CStr = c"libucp.so.0";

/// The oldest version that these declarations fit.
pub const VERSION_MIN: (u32, u32) = (1, 13);

/// The command to install UCX, for a machine that has none, or one that is too old.
pub const INSTALL: &str = "apt-get install libucx0";

/// Why libucp can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library wasn't found, or couldn't be loaded. The reason names its path.
    #[error("libucp can't be loaded: {reason}; try: {INSTALL}")]
    NotLoaded {
        /// The loader's reason.
        reason: String,
    },
    /// The loaded library isn't libucp, or is too old.
    #[error("{path} lacks {symbol}: {reason}; UCX 1.13 or later has it; try: {INSTALL}")]
    NoSymbol {
        /// The file that was loaded.
        path: String,
        /// The function that wasn't found.
        symbol: &'static str,
        /// The loader's reason.
        reason: String,
    },
    /// The library is older than these declarations, or has another interface.
    #[error("{path} is UCX {major}.{minor}; 1.13 or a later 1.x is needed; try: {INSTALL}")]
    Version {
        /// The file that was loaded.
        path: String,
        /// The library's major version.
        major: u32,
        /// The library's minor version.
        minor: u32,
    },
    /// The environment variable holds no path.
    #[error("{LIBRARY_VARIABLE} holds a zero byte")]
    BadPath,
}

functions! {
    /// The library is libucp, with the libucs that comes with it. The header says of each function
    /// what its safety asks for.
    #[allow(missing_docs)]
    Ucp { path: String, was_loaded_before: bool, }
    version None;
    required {
        ucp_get_version: fn(*mut c_uint, *mut c_uint, *mut c_uint),
        ucp_config_read: fn(*const c_char, *const c_char, *mut *mut ucp_config_t) -> ucs_status_t,
        ucp_config_modify: fn(*mut ucp_config_t, *const c_char, *const c_char) -> ucs_status_t,
        ucp_config_release: fn(*mut ucp_config_t),
        ucp_init_version: fn(
            c_uint, c_uint, *const ucp_params_t, *const ucp_config_t, *mut ucp_context_h
        ) -> ucs_status_t,
        ucp_cleanup: fn(ucp_context_h),
        ucp_context_print_info: fn(ucp_context_h, *mut libc::FILE),
        ucp_worker_create: fn(
            ucp_context_h, *const ucp_worker_params_t, *mut ucp_worker_h
        ) -> ucs_status_t,
        ucp_worker_destroy: fn(ucp_worker_h),
        ucp_worker_get_address: fn(
            ucp_worker_h, *mut *mut ucp_address_t, *mut usize
        ) -> ucs_status_t,
        ucp_worker_release_address: fn(ucp_worker_h, *mut ucp_address_t),
        ucp_worker_progress: fn(ucp_worker_h) -> c_uint,
        ucp_worker_get_efd: fn(ucp_worker_h, *mut c_int) -> ucs_status_t,
        ucp_worker_arm: fn(ucp_worker_h) -> ucs_status_t,
        ucp_ep_create: fn(ucp_worker_h, *const ucp_ep_params_t, *mut ucp_ep_h) -> ucs_status_t,
        ucp_ep_close_nbx: fn(ucp_ep_h, *const ucp_request_param_t) -> ucs_status_ptr_t,
        ucp_ep_flush_nbx: fn(ucp_ep_h, *const ucp_request_param_t) -> ucs_status_ptr_t,
        ucp_ep_print_info: fn(ucp_ep_h, *mut libc::FILE),
        ucp_tag_send_nbx: fn(
            ucp_ep_h, *const c_void, usize, ucp_tag_t, *const ucp_request_param_t
        ) -> ucs_status_ptr_t,
        ucp_tag_send_sync_nbx: fn(
            ucp_ep_h, *const c_void, usize, ucp_tag_t, *const ucp_request_param_t
        ) -> ucs_status_ptr_t,
        ucp_tag_recv_nbx: fn(
            ucp_worker_h, *mut c_void, usize, ucp_tag_t, ucp_tag_t, *const ucp_request_param_t
        ) -> ucs_status_ptr_t,
        ucp_tag_probe_nb: fn(
            ucp_worker_h, ucp_tag_t, ucp_tag_t, c_int, *mut ucp_tag_recv_info_t
        ) -> ucp_tag_message_h,
        ucp_tag_msg_recv_nbx: fn(
            ucp_worker_h, *mut c_void, usize, ucp_tag_message_h, *const ucp_request_param_t
        ) -> ucs_status_ptr_t,
        ucp_mem_map: fn(
            ucp_context_h, *const ucp_mem_map_params_t, *mut ucp_mem_h
        ) -> ucs_status_t,
        ucp_mem_unmap: fn(ucp_context_h, ucp_mem_h) -> ucs_status_t,
        ucp_request_check_status: fn(*mut c_void) -> ucs_status_t,
        ucp_request_cancel: fn(ucp_worker_h, *mut c_void),
        ucp_request_free: fn(*mut c_void),
        ucs_status_string: fn(ucs_status_t) -> *const c_char,
    }
    optional {
        ucs_log_push_handler: fn(ucs_log_func_t),
        ucs_debug_disable_signals: fn(),
    }
}

impl Ucp {
    /// The library of this process: the library that [`LIBRARY_VARIABLE`] names, or else
    /// `libucp.so.0`. The first call loads it. Later calls return the same result.
    ///
    /// # Errors
    /// The library isn't there, or isn't UCX. This is normal on a machine without UCX.
    pub fn get() -> Result<&'static Ucp, &'static LoadError> {
        static LOADED: OnceLock<Result<Ucp, LoadError>> = OnceLock::new();
        let load = || {
            let path = load::path(LIBRARY_VARIABLE, LIBRARY).ok_or(LoadError::BadPath)?;
            // SAFETY: this variable is trusted as much as the loader's own variables.
            unsafe { Ucp::load(&path) }
        };
        LOADED.get_or_init(load).as_ref()
    }

    /// Loads the library at `path`. A name without a slash is searched for as dlopen(3) does. The
    /// signal handlers of this process stay as they are ([`Signals`]).
    ///
    /// # Safety
    /// Loading the library is harmless. Functions with the names of UCX's functions are these.
    ///
    /// # Errors
    /// The library isn't there, isn't libucp, or is older than 1.13.
    pub unsafe fn load(path: &CStr) -> Result<Ucp, LoadError> {
        let signals = Signals::now();
        // SAFETY: the caller guarantees that loading is harmless; the first call loads nothing.
        let (was_loaded_before, library) = unsafe {
            let before = load::open(path, libc::RTLD_NOW | libc::RTLD_NOLOAD);
            (before.is_ok(), load::open(path, libc::RTLD_NOW))
        };
        let library = library.map_err(|reason| LoadError::NotLoaded { reason })?;
        let path = path.to_string_lossy().into_owned();
        // SAFETY: a library that was just loaded and is never unloaded, so its functions stay
        // valid.
        let ucp = unsafe { Ucp::resolve(library) };
        if !was_loaded_before {
            if let Ok(Ucp { ucs_debug_disable_signals: Some(disable), .. }) = &ucp {
                // SAFETY: a function without arguments. UCX forgets its handlers, so that it
                // doesn't put them back when the process ends.
                unsafe { disable() };
            }
            signals.restore();
        }
        let mut ucp = match ucp {
            Err(Missing { symbol, reason, .. }) => {
                return Err(LoadError::NoSymbol { path, symbol, reason });
            }
            Ok(ucp) => ucp,
        };
        ucp.was_loaded_before = was_loaded_before;
        ucp.path = load::file_of(ucp.ucp_init_version as *const c_void).unwrap_or(path);
        let (major, minor, _) = ucp.version();
        if major != VERSION_MIN.0 || minor < VERSION_MIN.1 {
            return Err(LoadError::Version { path: ucp.path, major, minor });
        }
        Ok(ucp)
    }

    /// The file that was loaded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether another part of this process had loaded the library before. Its log and its signal
    /// handlers then belong to that part.
    pub fn was_loaded_before(&self) -> bool {
        self.was_loaded_before
    }

    /// The library's version: major, minor, release.
    pub fn version(&self) -> (u32, u32, u32) {
        let mut major = 0;
        let mut minor = 0;
        let mut release = 0;
        // SAFETY: three integers to be filled.
        unsafe { (self.ucp_get_version)(&raw mut major, &raw mut minor, &raw mut release) };
        (major, minor, release)
    }

    /// UCX's text for a status.
    pub fn status_text(&self, status: ucs_status_t) -> String {
        // SAFETY: UCX returns a string for every status. It is valid at least until this thread's
        // next call.
        unsafe {
            let text = (self.ucs_status_string)(status);
            if text.is_null() {
                return format!("status {status}");
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
