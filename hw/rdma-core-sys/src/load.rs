//! Loads libibverbs at run time, so that the program also starts on a machine without it.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use tagmatch_sys::{Missing, functions, load};

use crate::attributes::{ibv_ah_attr, ibv_device_attr, ibv_gid, ibv_gid_entry, ibv_port_attr};
use crate::completions::{ibv_async_event, ibv_comp_channel, ibv_cq};
use crate::context::{ibv_context, ibv_device};
use crate::queues::{
    ibv_ah, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr,
};

/// The environment variable that names another library to load. Programs that run with more rights
/// than their caller ignore it, as the loader ignores its own variables there.
pub const LIBRARY_VARIABLE: &str = "TAGMATCH_LIBIBVERBS";

/// The library that is loaded if the variable isn't set.
const LIBRARY: &CStr = c"libibverbs.so.1";

/// Why libibverbs can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library wasn't found, or couldn't be loaded. The reason names its path.
    #[error("libibverbs can't be loaded: {reason}")]
    NotLoaded {
        /// The loader's reason.
        reason: String,
    },
    /// The loaded library isn't libibverbs, or is too old.
    #[error("{path} lacks {symbol}, version {version}: {reason}")]
    NoSymbol {
        /// The file that was loaded.
        path: String,
        /// The function that wasn't found.
        symbol: &'static str,
        /// The version of the interface in which it was looked for.
        version: &'static str,
        /// The loader's reason.
        reason: String,
    },
    /// The environment variable holds no path.
    #[error("{LIBRARY_VARIABLE} holds a zero byte")]
    BadPath,
}

functions! {
    /// The library is libibverbs. Each function has its manual page, which says what its safety
    /// asks for.
    ///
    /// To put other functions before the library's, clone this table and change its fields.
    Verbs { path: String, }
    version Some("IBVERBS_1.1");
    required {
        ibv_get_device_list: fn(*mut i32) -> *mut *mut ibv_device,
        ibv_free_device_list: fn(*mut *mut ibv_device),
        ibv_get_device_name: fn(*mut ibv_device) -> *const c_char,
        ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context,
        ibv_close_device: fn(*mut ibv_context) -> i32,
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> i32,
        ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> i32,
        ibv_query_gid: fn(*mut ibv_context, u8, i32, *mut ibv_gid) -> i32,
        // The key is big-endian.
        ibv_query_pkey: fn(*mut ibv_context, u8, i32, *mut u16) -> i32,
        ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> i32,
        ibv_ack_async_event: fn(*mut ibv_async_event),
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd,
        ibv_dealloc_pd: fn(*mut ibv_pd) -> i32,
        ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, i32) -> *mut ibv_mr,
        ibv_dereg_mr: fn(*mut ibv_mr) -> i32,
        #[Some("IBVERBS_1.0")]
        ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel,
        #[Some("IBVERBS_1.0")]
        ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> i32,
        ibv_create_cq: fn(
            *mut ibv_context, i32, *mut c_void, *mut ibv_comp_channel, i32
        ) -> *mut ibv_cq,
        ibv_destroy_cq: fn(*mut ibv_cq) -> i32,
        ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> i32,
        ibv_ack_cq_events: fn(*mut ibv_cq, u32),
        ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq,
        ibv_modify_srq: fn(*mut ibv_srq, *mut ibv_srq_attr, i32) -> i32,
        ibv_query_srq: fn(*mut ibv_srq, *mut ibv_srq_attr) -> i32,
        ibv_destroy_srq: fn(*mut ibv_srq) -> i32,
        ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
        ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, i32) -> i32,
        ibv_destroy_qp: fn(*mut ibv_qp) -> i32,
        ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah,
        ibv_destroy_ah: fn(*mut ibv_ah) -> i32,
        ibv_wc_status_str: fn(u32) -> *const c_char,
    }
    optional {
        #[Some("IBVERBS_1.8")] ibv_reg_mr_iova2: fn(
            *mut ibv_pd, *mut c_void, usize, u64, u32
        ) -> *mut ibv_mr,
        #[Some("IBVERBS_1.11")] _ibv_query_gid_ex: fn(
            *mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize
        ) -> i32,
    }
}

/// Where the functions come from: the installed library, or a table that wraps it.
///
/// The fields of [`Verbs`] are public, so safe code can make a table of any functions. This type
/// keeps such tables out of safe code that calls them.
#[derive(Clone, Copy, Debug)]
pub struct Library(fn() -> Result<&'static Verbs, &'static LoadError>);

impl Library {
    /// [`Verbs::get`].
    pub const INSTALLED: Library = Library(Verbs::get);

    /// A table of the caller's.
    ///
    /// # Safety
    /// The functions of the table that `verbs` returns do what the manual pages of libibverbs say
    /// of the functions of these names.
    pub const unsafe fn new(verbs: fn() -> Result<&'static Verbs, &'static LoadError>) -> Self {
        Library(verbs)
    }

    /// The functions.
    ///
    /// # Errors
    /// They can't be loaded.
    pub fn verbs(self) -> Result<&'static Verbs, &'static LoadError> {
        (self.0)()
    }
}

impl Verbs {
    /// The library of this process: the library that [`LIBRARY_VARIABLE`] names, or else
    /// `libibverbs.so.1`. The first call loads it. Later calls return the same result.
    ///
    /// # Errors
    /// The library isn't there, or isn't libibverbs. This is normal on a machine without RDMA.
    pub fn get() -> Result<&'static Verbs, &'static LoadError> {
        static LOADED: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
        let load = || {
            let path = load::path(LIBRARY_VARIABLE, LIBRARY).ok_or(LoadError::BadPath)?;
            // SAFETY: this variable is trusted as much as the loader's own variables.
            unsafe { Verbs::load(&path) }
        };
        LOADED.get_or_init(load).as_ref()
    }

    /// Loads the library at `path`. A name without a slash is searched for as dlopen(3) does.
    ///
    /// # Safety
    /// Loading the library is harmless. Functions with the names of libibverbs' functions are
    /// these.
    ///
    /// # Errors
    /// The library isn't there, or isn't libibverbs.
    pub unsafe fn load(path: &CStr) -> Result<Verbs, LoadError> {
        // SAFETY: the caller guarantees that loading is harmless.
        let library = unsafe { load::open(path, libc::RTLD_NOW) }
            .map_err(|reason| LoadError::NotLoaded { reason })?;
        let path = path.to_string_lossy().into_owned();
        // SAFETY: a library that was just loaded and is never unloaded, so its functions stay
        // valid.
        match unsafe { Verbs::resolve(library) } {
            Err(Missing { symbol, version, reason }) => {
                let version = version.unwrap_or_default();
                Err(LoadError::NoSymbol { path, symbol, version, reason })
            }
            Ok(mut verbs) => {
                let file = load::file_of(verbs.ibv_open_device as *const c_void);
                verbs.path = file.unwrap_or(path);
                Ok(verbs)
            }
        }
    }

    /// The file that was loaded.
    pub fn path(&self) -> &str {
        &self.path
    }
}
