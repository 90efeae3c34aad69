//! The end of each process of the command.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tagmatch_testkit::process::{Signal, send_signal};

use crate::{inside, limited, program, run, tagperf, with};

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Processes that run this program.
fn running(program: &str) -> usize {
    let begins = [program.as_bytes(), b"\0"].concat();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(&begins)).count()
}

fn eventually(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn a_worker_whose_device_is_lost_is_told() {
    run("", &with(&program("lost"), "--ignored")).succeeded().passed(1);
}

/// The device dies: programs end by the event. The guardian dies: nothing is left.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn programs_end_with_the_device_and_with_the_guardian() {
    // A copy, so that only programs of this test have the name.
    let copies = crate::reachable("deaths", &[&tagperf()]);
    let tagperf = copies.path("tagperf");
    for is_device in [true, false] {
        for tags in ["off", "auto"] {
            let lat = format!("lat --device verbs --hw-tags {tags} --duration 60s --sizes 4K");
            let mut command = limited(60, &inside("", &with(&tagperf, &lat)));
            let mut timed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            assert!(eventually(Duration::from_secs(30), || running(&tagperf) >= 2));
            std::thread::sleep(Duration::from_secs(1));
            let guardian = children(timed.id())[0];
            let device = children(guardian)[0];
            send_signal(if is_device { device } else { guardian }, Signal::KILL);
            let mut status = None;
            let has_ended = || {
                status = timed.try_wait().unwrap();
                status.is_some()
            };
            assert!(eventually(Duration::from_secs(20), has_ended), "device: {is_device}");
            assert!(
                !status.unwrap().success(),
                "the death of the device ({is_device}) is a failure"
            );
            assert!(eventually(Duration::from_secs(5), || running(&tagperf) == 0), "{is_device}");
        }
    }
}
