//! rdma-core's tests, as Debian packs them. What they ask for and the device doesn't have is
//! skipped; `shared_pd` imports what another context has made, and `mlx5_timestamp` asks for the
//! clock: neither is there.

use std::process::{Command, Stdio};

use tagmatch_testkit::scratch::Scratch;

use crate::{Ended, HCA, limited, with, words};

const PACKED: &str = "/usr/share/doc/rdma-core/tests";
/// Each call is interrupted by a timer, as where the kernel has no killable wait: it is undone, and
/// repeated.
const INTERRUPTED: &str = r#"
import os, runpy, signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
try:
    runpy.run_path(os.path.abspath("run_tests.py"), run_name="__main__")
finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
"#;

/// A copy of the tests, unpacked.
fn unpacked(test: &str) -> Scratch {
    let scratch = Scratch::new(test);
    let unpack = "cp -r \"$0\"/. \"$1\" && find \"$1\" -name '*.gz' -exec gunzip {} +";
    let status = Command::new("sh").args(["-c", unpack, PACKED]).arg(&*scratch).status();
    assert!(status.unwrap().success());
    scratch
}

/// At least so many tests with this name pass.
#[track_caller]
fn pass(tests: &Scratch, [options, runner, name]: [&str; 3], least: usize) {
    let python = format!("-- /usr/bin/python3 {runner} -v -k {name} --dev mlx5_0 --port 1 --gid 0");
    let words = [with(HCA, options), words(&python)].concat();
    let output = limited(120, &words).current_dir(&**tests).stdin(Stdio::null()).output().unwrap();
    let ended = Ended::of(&output).succeeded();
    let passed = ended.text.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(passed >= least, "{name}: {passed} tests, not {least}: {}", ended.text);
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_tests_of_rdma_core_pass() {
    let tests = unpacked("rdma-core");
    for (name, least) in [
        ("test_tag_matching", 4),
        ("test_qp.", 16),
        ("test_qpex", 16),
        ("test_cq.", 4),
        ("test_cq_events", 2),
        ("test_cqex", 4),
        ("test_mr", 5),
        ("test_pd", 4),
        ("test_atomic", 7),
        ("test_addr", 2),
        ("test_device", 13),
        ("test_mlx5_huge_page", 2),
        ("test_parent_domain", 5),
        ("test_relaxed_ordering", 2),
        ("test_mlx5_cq", 5),
        ("test_mlx5_uar", 1),
        ("test_mlx5_raw_wqe", 1),
    ] {
        pass(&tests, ["", "run_tests.py", name], least);
    }
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn they_pass_when_each_call_is_interrupted() {
    let tests = unpacked("interrupted");
    tests.file("interrupted.py", INTERRUPTED);
    for (name, least) in [("test_qp.", 16), ("test_tag_matching", 4)] {
        pass(&tests, ["--interruptible", "interrupted.py", name], least);
    }
}
