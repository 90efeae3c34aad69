//! Loading: errors say what is wrong and what to install, the installed library has all functions,
//! and signal handlers stay as they are.

use std::ffi::CString;

use tagmatch_testkit::device::{again, role};
use tagmatch_ucx_sys::signals::Signals;
use tagmatch_ucx_sys::{LoadError, UCS_ERR_MESSAGE_TRUNCATED, Ucp, load};

fn load(path: &str) -> Result<Ucp, LoadError> {
    // SAFETY: these tests load only libraries of the system.
    unsafe { Ucp::load(&CString::new(path).unwrap()) }
}

#[test]
fn a_missing_library_is_named_with_its_package() {
    let error = load("/nowhere/libucp.so.0").unwrap_err();
    assert!(matches!(error, LoadError::NotLoaded { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("/nowhere/libucp.so.0") && text.contains("libucx0"), "{text}");
}

#[test]
fn another_library_is_named_with_what_it_lacks() {
    let error = load("libc.so.6").unwrap_err();
    assert!(matches!(error, LoadError::NoSymbol { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("libc.so.6") && text.contains("ucp_get_version"), "{text}");
}

#[test]
fn an_old_version_is_named() {
    let path = String::from("/old/libucp.so.0");
    let text = LoadError::Version { path, major: 1, minor: 9 }.to_string();
    assert!(text.contains("1.9") && text.contains("1.13") && text.contains("libucx0"), "{text}");
}

/// Runs in a process of its own, because a process loads a library once.
#[test]
fn the_installed_library_has_all_functions_and_leaves_signals_alone() {
    if role().is_some() {
        let before = Signals::now();
        match Ucp::get() {
            Ok(ucp) => {
                assert!(before.are_unchanged(), "a signal's handler has changed");
                assert!(ucp.version() >= (1, 13, 0) && !ucp.was_loaded_before());
                assert!(ucp.ucs_log_push_handler.is_some());
                let text = ucp.status_text(UCS_ERR_MESSAGE_TRUNCATED);
                println!("child: {} {text}", ucp.path());
            }
            Err(error @ LoadError::NotLoaded { .. }) => println!("SKIPPED: {error}"),
            Err(error) => panic!("{error}"),
        }
        return;
    }
    let test = "the_installed_library_has_all_functions_and_leaves_signals_alone";
    let text = again(test, &[]);
    let is_fine = text.contains("libucp.so") && text.contains("truncated");
    assert!(is_fine || text.contains("SKIPPED"), "{text}");
    println!("{text}");
}

#[test]
fn the_environment_names_the_library() {
    if role().is_some() {
        println!("child: {:?}", Ucp::get().map_err(ToString::to_string));
        return;
    }
    let text = again(
        "the_environment_names_the_library",
        &[(load::LIBRARY_VARIABLE, "/nowhere/another.so")],
    );
    assert!(text.contains("child: Err(") && text.contains("/nowhere/another.so"), "{text}");
}
