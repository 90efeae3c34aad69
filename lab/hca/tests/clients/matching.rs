//! Our device, the public API, communicators, tagperf and UCX, with matching in software and in the
//! NIC.

use crate::{Ended, both, program, reported, tagperf, with, words};

/// Each behaviour that hardware may have: matching must not depend on them.
const GUESSES: &str = "--knob needs_doorbell=true --knob wake=never --knob eager_in_two=always \
    --knob matches_without_buffers=true --knob data_before_fin=true --knob counts_at_answer=true \
    --knob reads_nothing=true --knob incomplete_in_two=100% --knob fin=100%:5 \
    --knob short_fin=100%";

/// A test program over this device.
#[track_caller]
fn over(device: &str, options: &str, command: &[String]) -> Ended {
    let env = words(&format!("env TAGMATCH_TEST_DEVICE={device}"));
    reported(options, &[env, command.to_vec()].concat())
}

/// The NIC has matched more messages than this, and nobody has broken its rules.
#[track_caller]
fn matched(ended: &Ended, more_than: u64) {
    let count = ended.count("matched");
    assert!(count > more_than, "{count} messages, not more than {more_than}, in the NIC");
    assert_eq!(ended.count("faults"), 0, "rules of the NIC were broken: {}", ended.report);
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_contract_of_the_verbs_device_is_kept() {
    reported("", &with(&program("verbs"), "--ignored --test-threads=1")).passed(37);
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_public_api_keeps_its_promises() {
    for device in ["verbs", "verbs+nic", "auto+nic"] {
        let api = over(device, "", &with(&program("api"), "--test-threads=2")).passed(79);
        over(device, "", &with(&program("closing"), "--test-threads=1")).passed(9);
        if device.ends_with("+nic") {
            matched(&api, 3000);
        }
    }
}

/// Between processes, with deaths. `segments` asks that each rank notices a death by itself: over a
/// network only those do that the dead rank was connected to.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn communicators_are_matched_by_the_nic() {
    let skip = "--test-threads=6 --skip leak_nothing deaths:: survivors_of two_to_eight";
    matched(&over("verbs+nic", "", &with(&program("processes"), skip)).passed(6), 2000);
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_public_api_depends_on_no_behaviour_that_hardware_may_have() {
    for options in [GUESSES, "--knob random --seed 1"] {
        let api = with(&program("api"), "--test-threads=2 --skip a_nic_matches_them");
        matched(&over("verbs+nic", options, &api).passed(78), 800);
    }
}

/// `an_emulated_nic_matches` expects a device without a list.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_tests_of_tagperf_pass() {
    let skip = "--ignored --test-threads=1 --skip between --skip an_emulated_nic";
    reported("", &with(&program("tagperf_verbs"), skip)).passed(4);
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_nic_matches_what_tagperf_measures() {
    let lat = "lat --device verbs --hw-tags auto --iters 200 --sizes 8,4K,1M";
    let lat = reported("", &with(&tagperf(), lat));
    assert!(lat.count("matched") >= 800 && lat.count("rendezvous") >= 400, "{}", lat.report);
    for (args, is_matched) in [
        ("bw --sizes 4K --iters 300", true),
        ("bibw --sizes 4K --iters 300", true),
        ("rate --sizes 4K --iters 300", true),
        ("depth --iters 20", false),
        ("barrier --by-messages --duration 50ms", false),
        ("bcast --by-messages --duration 50ms --sizes 4K", true),
        ("dup --duration 50ms", false),
        ("allreduce --by-messages --duration 50ms --sizes 4K", true),
        ("alltoall --by-messages --duration 50ms --sizes 4K", true),
        ("agree --duration 50ms", false),
        ("shrink", false),
    ] {
        let args = format!("{args} --device verbs --hw-tags auto");
        let ended = reported("", &with(&tagperf(), &args));
        assert!(!is_matched || ended.count("matched") > 0, "{args}: {}", ended.report);
    }
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_nic_matches_for_ucx() {
    for (size, field) in [("4096", "matched"), ("100000", "rendezvous")] {
        let perftest = both(&format!("ucx_perftest -t tag_lat -s {size} -n 200 -w 10"));
        let by_nic = words("env UCX_TLS=rc_x UCX_RC_TM_ENABLE=y");
        let ended = reported("", &[by_nic, perftest].concat());
        assert!(ended.count(field) >= 300, "{size} bytes: {}", ended.report);
    }
    // In `rate` messages go one way; UCX wants the NIC's matching on both sides.
    for args in ["lat --iters 200 --sizes 4K,64K", "rate --iters 500 --sizes 4K"] {
        let args = format!("{args} --device ucx:rc_x --hw-tags auto");
        let ended = reported("", &with(&tagperf(), &args));
        assert!(ended.count("matched") >= 400, "{args}: {}", ended.report);
    }
}
