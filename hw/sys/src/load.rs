//! Finding a library and its functions at run time, so that the program also starts on a machine
//! without the library.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStringExt;

/// The path that the environment variable holds, or else `default`. Programs that run with more
/// rights than their caller ignore the variable, as the loader ignores its own variables there.
/// `None` if the path holds a zero byte.
pub fn path(variable: &str, default: &CStr) -> Option<CString> {
    // SAFETY: the call has no pointers.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    match std::env::var_os(variable).filter(|_| !is_privileged) {
        Some(path) => CString::new(path.into_vec()).ok(),
        None => Some(default.to_owned()),
    }
}

/// Loads a library with these `flags` of dlopen(3), and `RTLD_LOCAL`. A name without a slash is
/// searched for as dlopen(3) does.
///
/// # Safety
/// Loading the library is harmless.
///
/// # Errors
/// The reason of the loader.
pub unsafe fn open(path: &CStr, flags: i32) -> Result<*mut c_void, String> {
    // SAFETY: a terminated string; the caller guarantees that loading is harmless.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LOCAL | flags) };
    if library.is_null() { Err(last_error()) } else { Ok(library) }
}

/// The function with this name, in the library or in a library that it needs. If a version is
/// given, the function has this version.
///
/// # Safety
/// `library` is a handle of a loaded library.
///
/// # Errors
/// The reason of the loader.
pub unsafe fn symbol(
    library: *mut c_void,
    name: &str,
    version: Option<&str>,
) -> Result<*mut c_void, String> {
    let c_string = |text: &str| CString::new(text).map_err(|error| error.to_string());
    let name = c_string(name)?;
    let version = version.map(c_string).transpose()?;
    // SAFETY: the caller gives a handle; both strings are terminated.
    let found = unsafe {
        match &version {
            Some(version) => libc::dlvsym(library, name.as_ptr(), version.as_ptr()),
            None => libc::dlsym(library, name.as_ptr()),
        }
    };
    if found.is_null() { Err(last_error()) } else { Ok(found) }
}

/// The file in which a function lies.
#[allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "dladdr looks the address up, and reads nothing there"
)]
pub fn file_of(function: *const c_void) -> Option<String> {
    // SAFETY: a structure to be filled; the name in it lives as long as the library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned())
    }
}

fn last_error() -> String {
    // SAFETY: dlerror returns null, or a string that is valid until this thread's next call of the
    // loader.
    unsafe {
        let reason = libc::dlerror();
        if reason.is_null() {
            return "the loader gives no reason".into();
        }
        CStr::from_ptr(reason).to_string_lossy().into_owned()
    }
}
