//! A program that has more rights than its caller.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::client::{Node, call};

const ROLE: &str = "TAGMATCH_TEST_PRIVILEGED";
/// A user without rights.
const NOBODY: u32 = 65534;

/// Opens and closes an endpoint, if it is asked for.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    // SAFETY: the call has no pointers.
    println!("@secure {}", unsafe { libc::getauxval(libc::AT_SECURE) });
    Node::new().close();
    call!(tagmatch_fi::fi_prov_ini(), cleanup());
}

/// As secure_getenv(3) asks.
#[test]
fn a_setuid_program_writes_neither_report_nor_trace_for_its_caller() {
    // SAFETY: the call has no pointers.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED setuid: only root can give a program to another user");
        return;
    }
    let folder = std::env::temp_dir().join(format!("tagmatch-setuid.{}", std::process::id()));
    let program = folder.join("test");
    let report = folder.join("report");
    let trace = folder.join("trace");
    let set_mode = |path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o777);
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for user in [None, Some(NOBODY)] {
        chown(&program, user, None).unwrap();
        set_mode(&program, 0o4755);
        let output = Command::new(&program)
            .args(["--exact", "privileges::role", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .env("TAGMATCH_FI_REPORT", &report)
            .env("TAGMATCH_FI_TRACE", &trace)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        let is_privileged = user.is_some();
        if text.contains("@secure 1") != is_privileged {
            println!("SKIPPED setuid: the folder of temporary files takes no such programs");
            break;
        }
        assert_eq!((report.exists(), trace.exists()), (!is_privileged, !is_privileged), "{text}");
        let _ = std::fs::remove_file(&report);
        let _ = std::fs::remove_dir_all(&trace);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
