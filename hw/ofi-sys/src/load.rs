//! Loads libfabric at run time, for programs that use a provider. A provider needs none of this.

use std::ffi::{CStr, c_char, c_int, c_void};

use tagmatch_sys::signals::Signals;
use tagmatch_sys::{Missing, functions, load};

use crate::domain::{fi_fabric_attr, fi_info, fid_fabric};
use crate::errno::FI_ENODATA;
use crate::version::{FI_MAJOR, FI_MINOR, FI_VERSION};

/// The environment variable that names another library to load. Programs that run with more rights
/// than their caller ignore it, as the loader ignores its own variables there.
pub const LIBRARY_VARIABLE: &str = "TAGMATCH_LIBFABRIC";

/// The library that is loaded if the variable isn't set. Versions 1 and 2 have the same name.
const LIBRARY: &CStr = c"libfabric.so.1";

/// The oldest version that these declarations fit, and the version to ask for in `fi_getinfo(3)`.
pub const VERSION_MIN: u32 = FI_VERSION(1, 17);

/// The command to install libfabric, for a machine that has none, or one that is too old.
pub const INSTALL: &str = "apt-get install libfabric1";

/// Why libfabric can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library wasn't found, or couldn't be loaded. The reason names its path.
    #[error("libfabric can't be loaded: {reason}; try: {INSTALL}")]
    NotLoaded {
        /// The loader's reason.
        reason: String,
    },
    /// The loaded library isn't libfabric.
    #[error("{path} lacks {symbol}: {reason}; try: {INSTALL}")]
    NoSymbol {
        /// The file that was loaded.
        path: String,
        /// The function that wasn't found.
        symbol: &'static str,
        /// The loader's reason.
        reason: String,
    },
    /// The library is older than these declarations.
    #[error(
        "{path} is libfabric {}.{}; 1.17 or later is needed; try: {INSTALL}",
        FI_MAJOR(*version), FI_MINOR(*version)
    )]
    Version {
        /// The file that was loaded.
        path: String,
        /// The library's version.
        version: u32,
    },
    /// The environment variable holds no path.
    #[error("{LIBRARY_VARIABLE} holds a zero byte")]
    BadPath,
}

functions! {
    /// The library is libfabric. The manual page of each function says what its safety asks for.
    /// `fi_dupinfo` of null returns an empty `fi_info`, as `fi_allocinfo` of the headers does. All
    /// other calls of libfabric go through the tables of its objects.
    #[allow(missing_docs)]
    Libfabric { path: String, }
    version None;
    required {
        fi_version: fn() -> u32,
        fi_getinfo: fn(
            u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info
        ) -> c_int,
        fi_freeinfo: fn(*mut fi_info),
        fi_dupinfo: fn(*const fi_info) -> *mut fi_info,
        fi_fabric: fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
        fi_strerror: fn(c_int) -> *const c_char,
    }
    optional {}
}

impl Libfabric {
    /// Loads the library that [`LIBRARY_VARIABLE`] names, or else `libfabric.so.1`.
    ///
    /// # Errors
    /// The library isn't there, or isn't libfabric. This is normal on a machine without it.
    pub fn from_environment() -> Result<Libfabric, LoadError> {
        let path = load::path(LIBRARY_VARIABLE, LIBRARY).ok_or(LoadError::BadPath)?;
        // SAFETY: this variable is trusted as much as the loader's own variables.
        unsafe { Libfabric::load(&path) }
    }

    /// Loads the library at `path`. A name without a slash is searched for as dlopen(3) does. The
    /// signal handlers of this process stay as they are ([`Signals`]).
    ///
    /// # Safety
    /// Loading the library is harmless. Functions with the names of libfabric's functions are
    /// these.
    ///
    /// # Errors
    /// The library isn't there, isn't libfabric, or is older than 1.17.
    pub unsafe fn load(path: &CStr) -> Result<Libfabric, LoadError> {
        let signals = Signals::now();
        // SAFETY: the caller guarantees that loading is harmless.
        let library = unsafe { load::open(path, libc::RTLD_NOW) };
        signals.restore();
        let library = library.map_err(|reason| LoadError::NotLoaded { reason })?;
        let path = path.to_string_lossy().into_owned();
        // SAFETY: a library that was just loaded and is never unloaded, so its functions stay
        // valid.
        let mut libfabric = match unsafe { Libfabric::resolve(library) } {
            Err(Missing { symbol, reason, .. }) => {
                return Err(LoadError::NoSymbol { path, symbol, reason });
            }
            Ok(libfabric) => libfabric,
        };
        libfabric.path = load::file_of(libfabric.fi_getinfo as *const c_void).unwrap_or(path);
        // SAFETY: a function without arguments.
        let version = unsafe { (libfabric.fi_version)() };
        if version < VERSION_MIN {
            return Err(LoadError::Version { path: libfabric.path, version });
        }
        Ok(libfabric)
    }

    /// No libfabric at all: it has no providers. A test puts functions of its own into the fields.
    #[doc(hidden)]
    pub fn without_providers() -> Libfabric {
        unsafe extern "C" fn version() -> u32 {
            VERSION_MIN
        }
        unsafe extern "C" fn getinfo(
            _: u32,
            _: *const c_char,
            _: *const c_char,
            _: u64,
            _: *const fi_info,
            _: *mut *mut fi_info,
        ) -> c_int {
            -FI_ENODATA
        }
        unsafe extern "C" fn freeinfo(_: *mut fi_info) {}
        unsafe extern "C" fn dupinfo(_: *const fi_info) -> *mut fi_info {
            std::ptr::null_mut()
        }
        unsafe extern "C" fn fabric(
            _: *mut fi_fabric_attr,
            _: *mut *mut fid_fabric,
            _: *mut c_void,
        ) -> c_int {
            -FI_ENODATA
        }
        unsafe extern "C" fn strerror(_: c_int) -> *const c_char {
            std::ptr::null()
        }
        Libfabric {
            path: String::new(),
            fi_version: version,
            fi_getinfo: getinfo,
            fi_freeinfo: freeinfo,
            fi_dupinfo: dupinfo,
            fi_fabric: fabric,
            fi_strerror: strerror,
        }
    }

    /// The file that was loaded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// libfabric's text for an error of [`fi_errno`](crate::fi_errno), with any sign.
    pub fn error_text(&self, error: c_int) -> String {
        // SAFETY: libfabric returns a string for every number, which is valid at least until this
        // thread's next call.
        unsafe {
            let text = (self.fi_strerror)(error.saturating_abs());
            if text.is_null() {
                return format!("error {error}");
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
