//! Loads libucp while the program runs, so that it starts also where there is none.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use tagmatch_sys::load;

use crate::signals::Signals;
use crate::status::{ucs_status_ptr_t, ucs_status_t};
use crate::types::{
    ucp_address_t, ucp_config_t, ucp_context_h, ucp_ep_h, ucp_ep_params_t, ucp_params_t,
    ucp_request_param_t, ucp_tag_message_h, ucp_tag_recv_info_t, ucp_tag_t, ucp_worker_h,
    ucp_worker_params_t, ucs_log_func_t,
};

/// The environment variable that names another library to load. Ignored, as the loader does with
/// its own, in programs that run with more rights than their caller.
pub const LIBRARY_VARIABLE: &str = "TAGMATCH_LIBUCP";

/// What is loaded otherwise.
const LIBRARY: &CStr = c"libucp.so.0";

/// The oldest version that these declarations fit.
pub const VERSION_MIN: (u32, u32) = (1, 13);

/// What to type where there is no UCX, or one too old.
pub const INSTALL: &str = "apt-get install libucx0  (Fedora, RHEL: dnf install ucx)";

/// Why libucp can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It wasn't found, or couldn't be loaded; the reason names the path.
    #[error("libucp can't be loaded: {reason}; try: {INSTALL}")]
    NotLoaded {
        /// What the loader said.
        reason: String,
    },
    /// What was loaded isn't libucp, or one too old.
    #[error("{path} lacks {symbol}: {reason}; UCX 1.13 or later has it; try: {INSTALL}")]
    NoSymbol {
        /// What was loaded.
        path: String,
        /// The function that wasn't found.
        symbol: &'static str,
        /// What the loader said.
        reason: String,
    },
    /// It is older than these declarations, or of another interface.
    #[error("{path} is UCX {major}.{minor}; 1.13 or a later 1.x is needed; try: {INSTALL}")]
    Version {
        /// What was loaded.
        path: String,
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The environment variable names no path.
    #[error("{LIBRARY_VARIABLE} holds a zero byte")]
    BadPath,
}

/// Declares [`Ucp`] and how its functions are found.
macro_rules! functions {
    (
        required { $($name:ident: fn($($type:ty),*) $(-> $result:ty)?,)* }
        optional { $($extra:ident: fn($($extra_type:ty),*) $(-> $extra_result:ty)?,)* }
    ) => {
        /// The functions of a loaded libucp, and of the libucs that it brings; each has its words
        /// in the header, which are what its safety asks for. It is never unloaded.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        pub struct Ucp {
            path: String,
            was_loaded_before: bool,
            $(pub $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            $(pub $extra: Option<unsafe extern "C" fn($($extra_type),*) $(-> $extra_result)?>,)*
        }

        impl Ucp {
            /// # Safety
            /// `library` is a handle of a loaded library; its functions of these names are UCX's.
            unsafe fn resolve(library: *mut c_void, path: String) -> Result<Self, LoadError> {
                // SAFETY: the handle is one; UCX's functions of these names have these types.
                unsafe {
                    $(let $name = match load::symbol(library, stringify!($name), None) {
                        Ok(found) => std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($type),*) $(-> $result)?,
                        >(found),
                        Err(reason) => {
                            let symbol = stringify!($name);
                            return Err(LoadError::NoSymbol { path, symbol, reason });
                        }
                    };)*
                    $(let $extra = load::symbol(library, stringify!($extra), None).ok().map(|found| {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($extra_type),*) $(-> $extra_result)?,
                        >(found)
                    });)*
                    Ok(Ucp { path, was_loaded_before: false, $($name,)* $($extra,)* })
                }
            }
        }
    };
}

functions! {
    required {
        ucp_get_version: fn(*mut c_uint, *mut c_uint, *mut c_uint),
        ucp_get_version_string: fn() -> *const c_char,
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
    /// The library of this process, loaded at the first call: the one that [`LIBRARY_VARIABLE`]
    /// names, else `libucp.so.0`. What the first call found holds for good.
    ///
    /// # Errors
    /// It isn't there, or isn't what it should be. That is a normal state of a machine without UCX.
    pub fn get() -> Result<&'static Ucp, &'static LoadError> {
        static LOADED: OnceLock<Result<Ucp, LoadError>> = OnceLock::new();
        let load = || {
            let path = load::path(LIBRARY_VARIABLE, LIBRARY).ok_or(LoadError::BadPath)?;
            // SAFETY: the environment is trusted with this variable as with the loader's own.
            unsafe { Ucp::load(&path) }
        };
        LOADED.get_or_init(load).as_ref()
    }

    /// Loads the library at `path`; a name without a slash is searched for as dlopen(3) does. The
    /// signal handlers of this process stay as they are ([`signals`](crate::signals)).
    ///
    /// # Safety
    /// Loading it must be harmless, and if it has UCX's functions, they must be those.
    ///
    /// # Errors
    /// It isn't there, isn't libucp, or is older than 1.13.
    pub unsafe fn load(path: &CStr) -> Result<Ucp, LoadError> {
        let signals = Signals::now();
        // SAFETY: the caller guarantees that loading is harmless; the first call loads nothing.
        let (was_loaded_before, library) = unsafe {
            let before = load::open(path, libc::RTLD_NOW | libc::RTLD_NOLOAD);
            (before.is_ok(), load::open(path, libc::RTLD_NOW))
        };
        let library = library.map_err(|reason| LoadError::NotLoaded { reason })?;
        let path = path.to_string_lossy().into_owned();
        // SAFETY: just loaded, and never unloaded: its functions are handed out for good.
        let ucp = unsafe { Ucp::resolve(library, path) };
        if !was_loaded_before {
            if let Ok(Ucp { ucs_debug_disable_signals: Some(disable), .. }) = &ucp {
                // SAFETY: it takes nothing. It makes UCX forget handlers, so that it won't put them
                // back when the process ends.
                unsafe { disable() };
            }
            signals.restore();
        }
        let mut ucp = ucp?;
        ucp.was_loaded_before = was_loaded_before;
        if let Some(file) = load::file_of(ucp.ucp_init_version as *const c_void) {
            ucp.path = file;
        }
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

    /// Whether someone else in this process had loaded it before: its log and its signals are
    /// theirs.
    pub fn was_loaded_before(&self) -> bool {
        self.was_loaded_before
    }

    /// Its version: major, minor, release.
    pub fn version(&self) -> (u32, u32, u32) {
        let (mut major, mut minor, mut release) = (0, 0, 0);
        // SAFETY: three integers to be filled.
        unsafe { (self.ucp_get_version)(&raw mut major, &raw mut minor, &raw mut release) };
        (major, minor, release)
    }

    /// What a status means.
    pub fn status_text(&self, status: ucs_status_t) -> String {
        // SAFETY: UCX gives a string for any status, which lives for good or until its next call by
        // this thread.
        unsafe {
            let text = (self.ucs_status_string)(status);
            if text.is_null() {
                return format!("status {status}");
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
