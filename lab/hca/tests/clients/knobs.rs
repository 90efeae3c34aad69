//! Devices unlike a ConnectX on InfiniBand.

use crate::{both, reported, run, script, tagperf, with, words};

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn ports_that_cannot_work_are_named() {
    for (knob, why) in [
        ("max_srq=0", "no shared receive queues"),
        ("link_layer=iwarp", "iWARP"),
        ("link_layer=unspecified", "neither InfiniBand nor Ethernet"),
    ] {
        let info = run(&format!("--knob {knob}"), &with(&tagperf(), "info"));
        let named = info.text.lines().find(|line| line.starts_with("verbs ")).unwrap_or_default();
        let is_no = named.split_whitespace().nth(1) == Some("no");
        let port = named.split_once("mlx5_0, port 1: ").is_some_and(|(_, rest)| rest.contains(why));
        assert!(is_no && port, "{knob}: {}", info.text);
    }
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn both_versions_of_roce_carry_messages() {
    for version in [1, 2] {
        let options = format!("--knob link_layer=ethernet --knob roce={version}");
        let lat = with(&tagperf(), "lat --device verbs --iters 100 --sizes 8,64K");
        run(&options, &lat).succeeded().tells(&format!("RoCE v{version}"));
    }
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn roce_carries_messages_by_each_row_of_addresses_and_of_ucx() {
    let roce = "--knob link_layer=ethernet";
    for row in 0..4 {
        for command in ["ibv_rc_pingpong", "ibv_ud_pingpong"] {
            run(roce, &both(&format!("{command} -n 50 -g {row}"))).succeeded();
        }
    }
    for tags in ["off", "auto"] {
        let lat = format!("lat --device verbs --hw-tags {tags} --sizes 8,64K --iters 50");
        run(roce, &with(&tagperf(), &lat)).succeeded();
    }
    let ucx = both("ucx_perftest -t tag_lat -s 8000 -n 50");
    run(roce, &[words("env UCX_TLS=rc_v,ud_v"), ucx].concat()).succeeded();
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn clients_notice_each_knob() {
    for (knob, words_of_client, command) in [
        ("max_inline=101", "Unable to create QP", both("ib_send_lat -I 188")),
        ("max_srq=0", "Couldn't create SRQ", words("ibv_srq_pingpong")),
        ("link_layer=iwarp", "Couldn't create QP", words("ibv_ud_pingpong")),
        ("link_layer=unspecified", "Unspecified", words("ibv_devinfo")),
        ("pkeys=0x7fff", "0x7fff", words("cat /sys/class/infiniband/mlx5_0/ports/1/pkeys/0")),
    ] {
        run(&format!("--knob {knob}"), &command).tells(words_of_client);
    }
    let help = script("\"$1\" --knob help", &[crate::HCA]);
    let help = crate::Ended::of(&crate::limited(60, &help).output().unwrap()).succeeded();
    assert!(help.text.lines().any(|line| line == "needs_doorbell: true or false"), "{}", help.text);
}

/// Few inline bytes or none, a limited partition key in row 0.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn ports_and_cards_of_other_kinds_carry_messages() {
    for knob in ["max_inline=101", "max_inline=0", "pkeys=0x7fff,0x8001"] {
        let lat = with(&tagperf(), "lat --device verbs --sizes 0,60,61,101,4K --iters 100");
        run(&format!("--knob {knob}"), &lat).succeeded();
    }
}

/// Twenty workers with a peer each, and two that are busy: queues have the lengths that suit
/// libmlx5.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn a_worker_locks_little_memory() {
    let lat = "lat --device verbs --hw-tags auto --sizes 8 --iters 100 --idle-peers 20";
    let locked = reported("", &with(&tagperf(), lat)).count("locked_max");
    assert!(locked < 2 * 22 * 1_153_434, "{locked} bytes, not 1.1 MiB a worker");
}
