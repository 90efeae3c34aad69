//! Loading: errors say what is wrong and what to install, and the installed library talks to these
//! declarations.

use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};

use tagmatch_ofi_sys::load::{LIBRARY_VARIABLE, LoadError, VERSION_MIN};
use tagmatch_ofi_sys::signals::Signals;
use tagmatch_ofi_sys::{
    FI_CLASS_DOMAIN, FI_CLASS_FABRIC, FI_EP_RDM, FI_ETRUNC, FI_MAJOR, FI_MINOR, FI_TAGGED,
    FI_THREAD_SAFE, FI_VERSION, Libfabric, fi_info, fid, fid_domain, fid_fabric,
};
use tagmatch_testkit::device::{again, role};

fn load(path: &str) -> Result<Libfabric, LoadError> {
    // SAFETY: these tests load only libraries of the system.
    unsafe { Libfabric::load(&CString::new(path).unwrap()) }
}

#[test]
fn a_missing_library_is_named_with_its_package() {
    let error = load("/nowhere/libfabric.so.1").unwrap_err();
    assert!(matches!(error, LoadError::NotLoaded { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("/nowhere/libfabric.so.1") && text.contains("libfabric1"), "{text}");
}

#[test]
fn another_library_is_named_with_what_it_lacks() {
    let error = load("libc.so.6").unwrap_err();
    assert!(matches!(error, LoadError::NoSymbol { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("libc.so.6") && text.contains("fi_version"), "{text}");
}

#[test]
fn an_old_version_is_named() {
    let path = String::from("/old/libfabric.so.1");
    let text = LoadError::Version { path, version: FI_VERSION(1, 11) }.to_string();
    assert!(
        text.contains("1.11") && text.contains("1.17") && text.contains("libfabric1"),
        "{text}"
    );
}

#[test]
fn versions_are_one_number() {
    assert_eq!(FI_VERSION(1, 17), 0x1_0011);
    assert_eq!((FI_MAJOR(0x2_0006), FI_MINOR(0x2_0006)), (2, 6));
    assert!(FI_VERSION(2, 0) > FI_VERSION(1, 99));
}

/// The library of this machine, or `None` with a line that says why the test was skipped.
fn installed() -> Option<Libfabric> {
    match Libfabric::from_environment() {
        Ok(libfabric) => Some(libfabric),
        Err(error @ LoadError::NotLoaded { .. }) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_environment_names_the_library() {
    if role().is_some() {
        println!("child: {:?}", Libfabric::from_environment().map_err(|error| error.to_string()));
        return;
    }
    let text =
        again("the_environment_names_the_library", &[(LIBRARY_VARIABLE, "/nowhere/another.so")]);
    assert!(text.contains("child: Err(") && text.contains("/nowhere/another.so"), "{text}");
}

#[test]
fn loading_the_installed_library_leaves_signals_alone() {
    if role().is_some() {
        let before = Signals::now();
        if let Some(libfabric) = installed() {
            assert!(before.are_unchanged(), "a signal's handler has changed");
            println!("child: {} {}", libfabric.path(), libfabric.error_text(-FI_ETRUNC));
        }
        return;
    }
    let text = again("loading_the_installed_library_leaves_signals_alone", &[]);
    let is_fine = text.contains("libfabric.so") && text.contains("Truncation error");
    assert!(is_fine || text.contains("SKIPPED"), "{text}");
    println!("{text}");
}

/// Closes an object of libfabric.
///
/// # Safety
/// The object is open.
unsafe fn close(object: *mut fid) {
    // SAFETY: as above.
    assert_eq!(unsafe { (*(*object).ops).close.unwrap()(object) }, 0);
}

/// Asks for endpoints of TCP with tagged messages, on loopback.
fn tcp_on_loopback(libfabric: &Libfabric) -> (c_int, *mut fi_info) {
    let mut info = null_mut();
    // SAFETY: `fi_dupinfo` of null gives attributes to be filled. It and its parts come from C's
    // allocator, and `fi_freeinfo` frees them.
    let answer = unsafe {
        let hints = (libfabric.fi_dupinfo)(null());
        (*hints).caps = FI_TAGGED;
        (*(*hints).ep_attr).r#type = FI_EP_RDM;
        (*(*hints).domain_attr).threading = FI_THREAD_SAFE;
        (*(*hints).fabric_attr).prov_name = libc::strdup(c"tcp".as_ptr());
        let node = c"127.0.0.1".as_ptr();
        let answer = (libfabric.fi_getinfo)(VERSION_MIN, node, null(), 0, hints, &raw mut info);
        (libfabric.fi_freeinfo)(hints);
        answer
    };
    (answer, info)
}

/// A provider of the installed library reads and writes these structures as we do.
#[test]
fn the_installed_library_opens_a_domain() {
    if role().is_some() {
        let Some(libfabric) = installed() else { return };
        let (answer, info) = tcp_on_loopback(&libfabric);
        assert_eq!(answer, 0, "{}", libfabric.error_text(answer));
        // SAFETY: `fi_getinfo` has given the description of a provider, and each call an object.
        unsafe {
            assert_ne!((*info).caps & FI_TAGGED, 0);
            assert_eq!((*(*info).ep_attr).r#type, FI_EP_RDM);
            assert_eq!((*(*info).domain_attr).threading, FI_THREAD_SAFE);
            let name = CStr::from_ptr((*(*info).fabric_attr).prov_name).to_str().unwrap();
            println!("child: {name}");
            let mut fabric: *mut fid_fabric = null_mut();
            assert_eq!((libfabric.fi_fabric)((*info).fabric_attr, &raw mut fabric, null_mut()), 0);
            assert_eq!((*fabric).fid.fclass, FI_CLASS_FABRIC);
            assert_eq!((*fabric).api_version, VERSION_MIN);
            let mut domain: *mut fid_domain = null_mut();
            let open = (*(*fabric).ops).domain.unwrap();
            assert_eq!(open(fabric, info, &raw mut domain, fabric.cast()), 0);
            assert_eq!((*domain).fid.fclass, FI_CLASS_DOMAIN);
            assert_eq!((*domain).fid.context, fabric.cast());
            close(&raw mut (*domain).fid);
            close(&raw mut (*fabric).fid);
            (libfabric.fi_freeinfo)(info);
        }
        return;
    }
    let text = again("the_installed_library_opens_a_domain", &[]);
    assert!(text.contains("child: tcp") || text.contains("SKIPPED"), "{text}");
    println!("{text}");
}
