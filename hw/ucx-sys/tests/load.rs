//! Loading: errors say what is wrong and what to install, the installed library has all functions,
//! and signal handlers stay as they are.

use std::ffi::CString;
use std::process::Command;

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

/// The variable that is set for the child processes of these tests.
const CHILD: &str = "LOAD_TEST_IS_CHILD";

fn child(test: &str, library: Option<&str>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(CHILD, "1");
    if let Some(library) = library {
        command.env(load::LIBRARY_VARIABLE, library);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Handler and flags of each signal, and the alternate signal stack.
fn signals() -> Vec<(usize, i32, usize)> {
    // SAFETY: the calls fill the structures.
    unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &raw mut stack);
        let action = |signal| {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            // The C library adds SA_RESTORER to each action that it sets.
            (action.sa_sigaction, action.sa_flags & !0x0400_0000, stack.ss_sp.addr())
        };
        (1..32).map(action).collect()
    }
}

/// Runs in a process of its own, because a process loads a library once.
#[test]
fn the_installed_library_has_all_functions_and_leaves_signals_alone() {
    if std::env::var_os(CHILD).is_some() {
        let before = signals();
        match Ucp::get() {
            Ok(ucp) => {
                assert!(signals() == before, "a signal's handler has changed");
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
    let text = child(test, None);
    let is_fine = text.contains("libucp.so") && text.contains("truncated");
    assert!(is_fine || text.contains("SKIPPED"), "{text}");
    println!("{text}");
}

#[test]
fn the_environment_names_the_library() {
    if std::env::var_os(CHILD).is_some() {
        println!("child: {:?}", Ucp::get().map_err(ToString::to_string));
        return;
    }
    let text = child("the_environment_names_the_library", Some("/nowhere/another.so"));
    assert!(text.contains("child: Err(") && text.contains("/nowhere/another.so"), "{text}");
}
