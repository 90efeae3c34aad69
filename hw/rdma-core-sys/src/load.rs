//! Loads libibverbs while the program runs, so that it starts also where there is none.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use tagmatch_sys::load;

use crate::attributes::{ibv_ah_attr, ibv_device_attr, ibv_gid, ibv_gid_entry, ibv_port_attr};
use crate::completions::{ibv_async_event, ibv_comp_channel, ibv_cq};
use crate::context::{ibv_context, ibv_device};
use crate::queues::{
    ibv_ah, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr,
};

/// The environment variable that names another library to load. Ignored, as the loader does with
/// its own, in programs that run with more rights than their caller.
pub const LIBRARY_VARIABLE: &str = "TAGMATCH_LIBIBVERBS";

/// What is loaded otherwise.
const LIBRARY: &CStr = c"libibverbs.so.1";

/// Why libibverbs can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It wasn't found, or couldn't be loaded; the reason names the path.
    #[error("libibverbs can't be loaded: {reason}")]
    NotLoaded {
        /// What the loader said.
        reason: String,
    },
    /// What was loaded isn't libibverbs, or one too old.
    #[error("{path} lacks {symbol}, version {version}: {reason}")]
    NoSymbol {
        /// What was loaded.
        path: String,
        /// The function that wasn't found.
        symbol: &'static str,
        /// In which version of the interface.
        version: &'static str,
        /// What the loader said.
        reason: String,
    },
    /// The environment variable names no path.
    #[error("{LIBRARY_VARIABLE} holds a zero byte")]
    BadPath,
}

/// Declares [`Verbs`] and how its functions are found.
macro_rules! functions {
    (
        required { $($(#[$version:literal])? $name:ident: fn($($type:ty),*) $(-> $result:ty)?,)* }
        optional { $($late:literal $extra:ident: fn($($extra_type:ty),*) $(-> $extra_result:ty)?,)* }
    ) => {
        /// The functions of a loaded libibverbs; each has its manual page. It is never unloaded.
        ///
        /// A function's safety is what its page asks for. Who wants other functions in some places
        /// of the table, to stand before the library's, clones it and puts them there.
        #[derive(Clone, Debug)]
        pub struct Verbs {
            /// The file that was loaded.
            path: String,
            $(pub $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            $(pub $extra: Option<unsafe extern "C" fn($($extra_type),*) $(-> $extra_result)?>,)*
        }

        impl Verbs {
            /// # Safety
            /// `library` is a handle of a loaded libibverbs.
            unsafe fn resolve(library: *mut c_void, path: String) -> Result<Self, LoadError> {
                // SAFETY: the handle is one; libibverbs' functions of these names and versions have
                // these types.
                unsafe {
                    $(let $name = {
                        let version: &str = [$($version,)? "IBVERBS_1.1"][0];
                        match load::symbol(library, stringify!($name), Some(version)) {
                            Ok(found) => std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) $(-> $result)?,
                            >(found),
                            Err(reason) => {
                                let symbol = stringify!($name);
                                return Err(LoadError::NoSymbol { path, symbol, version, reason });
                            }
                        }
                    };)*
                    $(let $extra = load::symbol(library, stringify!($extra), Some($late)).ok().map(|found| {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($extra_type),*) $(-> $extra_result)?,
                        >(found)
                    });)*
                    Ok(Verbs { path, $($name,)* $($extra,)* })
                }
            }
        }
    };
}

functions! {
    required {
        ibv_get_device_list: fn(*mut i32) -> *mut *mut ibv_device,
        ibv_free_device_list: fn(*mut *mut ibv_device),
        ibv_get_device_name: fn(*mut ibv_device) -> *const c_char,
        ibv_get_device_guid: fn(*mut ibv_device) -> u64,
        ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context,
        ibv_close_device: fn(*mut ibv_context) -> i32,
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> i32,
        ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> i32,
        ibv_query_gid: fn(*mut ibv_context, u8, i32, *mut ibv_gid) -> i32,
        ibv_query_pkey: fn(*mut ibv_context, u8, i32, *mut u16) -> i32,
        ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> i32,
        ibv_ack_async_event: fn(*mut ibv_async_event),
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd,
        ibv_dealloc_pd: fn(*mut ibv_pd) -> i32,
        ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, i32) -> *mut ibv_mr,
        ibv_dereg_mr: fn(*mut ibv_mr) -> i32,
        #["IBVERBS_1.0"] ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel,
        #["IBVERBS_1.0"] ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> i32,
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
        ibv_query_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, i32, *mut ibv_qp_init_attr) -> i32,
        ibv_destroy_qp: fn(*mut ibv_qp) -> i32,
        ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah,
        ibv_destroy_ah: fn(*mut ibv_ah) -> i32,
        ibv_wc_status_str: fn(u32) -> *const c_char,
        ibv_event_type_str: fn(u32) -> *const c_char,
        ibv_port_state_str: fn(u32) -> *const c_char,
    }
    optional {
        "IBVERBS_1.1" ibv_rereg_mr: fn(
            *mut ibv_mr, i32, *mut ibv_pd, *mut c_void, usize, i32
        ) -> i32,
        "IBVERBS_1.7" ibv_reg_mr_iova: fn(
            *mut ibv_pd, *mut c_void, usize, u64, i32
        ) -> *mut ibv_mr,
        "IBVERBS_1.8" ibv_reg_mr_iova2: fn(
            *mut ibv_pd, *mut c_void, usize, u64, u32
        ) -> *mut ibv_mr,
        "IBVERBS_1.10" ibv_import_device: fn(i32) -> *mut ibv_context,
        "IBVERBS_1.11" _ibv_query_gid_ex: fn(
            *mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize
        ) -> i32,
    }
}

impl Verbs {
    /// The library of this process, loaded at the first call: the one that [`LIBRARY_VARIABLE`]
    /// names, else `libibverbs.so.1`. What the first call found holds for good.
    ///
    /// # Errors
    /// It isn't there, or isn't what it should be. That is a normal state of a machine without
    /// RDMA.
    pub fn get() -> Result<&'static Verbs, &'static LoadError> {
        static LOADED: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
        let load = || {
            let path = load::path(LIBRARY_VARIABLE, LIBRARY).ok_or(LoadError::BadPath)?;
            // SAFETY: the environment is trusted with this variable as with the loader's own.
            unsafe { Verbs::load(&path) }
        };
        LOADED.get_or_init(load).as_ref()
    }

    /// Loads the library at `path`; a name without a slash is searched for as dlopen(3) does.
    ///
    /// # Safety
    /// Loading it must be harmless, and if it has libibverbs' functions, they must be those.
    ///
    /// # Errors
    /// It isn't there, or isn't libibverbs.
    pub unsafe fn load(path: &CStr) -> Result<Verbs, LoadError> {
        // SAFETY: the caller guarantees that loading is harmless.
        let library = unsafe { load::open(path, libc::RTLD_NOW) }
            .map_err(|reason| LoadError::NotLoaded { reason })?;
        let path = path.to_string_lossy().into_owned();
        // SAFETY: just loaded, and never unloaded: its functions are handed out for good.
        let mut verbs = unsafe { Verbs::resolve(library, path) }?;
        if let Some(file) = load::file_of(verbs.ibv_open_device as *const c_void) {
            verbs.path = file;
        }
        Ok(verbs)
    }

    /// The file that was loaded.
    pub fn path(&self) -> &str {
        &self.path
    }
}
