//! What a container may forbid, and limits of ordinary users.

use tagmatch_testkit::scratch::Scratch;

use crate::{Ended, HCA, built, inside, limited, ordinary, reachable, run, tagperf, with, words};

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn what_a_container_forbids_is_told() {
    for (call, why) in [
        ("seccomp", "a container must allow seccomp(2)"),
        ("unshare", "this system allows no user namespace"),
        ("process_vm_readv", "a container must allow process_vm_readv(2)"),
        ("process_vm_writev", "a container must allow process_vm_readv(2)"),
    ] {
        let denied = with(&built("examples/deny"), &format!("{call}=EPERM"));
        let denied = [denied, inside("", &words("ibv_devinfo"))].concat();
        Ended::of(&limited(60, &denied).output().unwrap()).failed().tells(why);
    }
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn a_program_may_have_a_filter_of_its_own_and_need_no_library() {
    run("", &with(&built("examples/deny"), "999=EPERM ibv_devinfo")).succeeded();
    let scratch = Scratch::new("alone");
    let source = scratch.file("alone.c", "int main(void) { return 3; }\n");
    let alone = scratch.path("alone");
    let compile = format!("cc -static -o {alone} {source}");
    Ended::of(&limited(60, &words(&compile)).output().unwrap()).succeeded();
    assert_eq!(run("", &[alone]).status, Some(3));
}

/// The 8 MiB of memory that systemd lets a service lock: long messages go through the device's own
/// buffers, and are counted. A NIC that reads by itself can't do that, and the run ends with the
/// limit. Root may lock as much as it likes.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn long_messages_get_along_with_little_locked_memory() {
    let copies = reachable("locked", &[HCA, &tagperf()]);
    let locked = |args: &str| {
        let args = format!("{args} --device verbs --iters 20");
        let tagperf = with(&copies.path("tagperf"), &args);
        let limit = ["sh", "-c", "ulimit -l 8192 && exec \"$@\"", "sh"].map(str::to_owned);
        let hca = vec![copies.path("tagmatch-hca"), "--".into()];
        let words = [limit.to_vec(), ordinary(), hca, tagperf].concat();
        Ended::of(&limited(120, &words).output().unwrap())
    };
    for args in ["lat --sizes 8M", "bw --sizes 8M,1M --window 8", "bibw --sizes 2M --window 8"] {
        locked(args).succeeded().tells("long messages went through the device's own buffers");
    }
    let refused = locked("lat --sizes 8M --hw-tags auto").failed();
    let is_told = |line: &str| line.starts_with("tagperf: ") && line.contains("ulimit");
    assert!(refused.text.lines().any(is_told), "{}", refused.text);
}
