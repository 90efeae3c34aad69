//! Several devices: which of them a worker takes, and their subnets and partitions.

use crate::{inside, limited, run, script, tagperf};

/// Four devices on two nodes: a worker takes one that is near, ranks of one machine take turns, and
/// all ranks are in one subnet.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn ranks_take_turns_at_the_nearest_devices() {
    let mut last = String::new();
    for (processor, rank, subnets, expected) in [
        ("0", "0", 1, "mlx5_0"),
        ("0", "1", 1, "mlx5_1"),
        ("0", "2", 1, "mlx5_0"),
        ("1", "0", 1, "mlx5_2"),
        ("1", "1", 1, "mlx5_3"),
        ("0", "1", 2, "mlx5_0"),
        ("1", "1", 2, "mlx5_2"),
    ] {
        let options = format!(
            "--devices 4 --place 0:0 --place 0:0 --place 1:1 --place 1:1 --subnets {subnets}"
        );
        let info = ["taskset", "-c", processor, &tagperf(), "info"].map(str::to_owned);
        let mut command = limited(60, &inside(&options, &info));
        let output = command.env("MPI_LOCALRANKID", rank).output().unwrap();
        last = String::from_utf8(output.stdout).unwrap();
        let verbs = last.lines().find(|line| line.starts_with("verbs ")).unwrap();
        let chosen = verbs.split_whitespace().nth(2).unwrap();
        assert_eq!(
            (chosen, verbs.split_whitespace().nth(1)),
            (&*format!("{expected},"), Some("yes")),
            "processor {processor}, rank {rank}, {subnets} subnets: {last}"
        );
    }
    let why = "chosen: in the first of several networks, 0xfe80000000000000; the nearest to this";
    assert!(last.contains(why), "{last}");
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn nothing_gets_from_one_subnet_to_the_other() {
    let apart = script(
        "ibv_rc_pingpong -n 10 -d mlx5_0 > /dev/null 2>&1 &
        sleep 0.3; ibv_rc_pingpong -n 10 -d mlx5_1 localhost
        status=$?; kill $! 2> /dev/null; exit $status",
        &[],
    );
    run("--devices 2 --subnets 2", &apart).failed();
    run("--devices 2", &apart).succeeded();
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn workers_in_different_partitions_are_told_so_and_meet_in_a_third() {
    let apart = |more: &str| {
        let tagperf = tagperf();
        let script = script(
            r#"tagperf=$1; shift
            "$tagperf" serve --once --device verbs:mlx5_1 "$@" & sleep 0.5
            "$tagperf" lat 127.0.0.1 --device verbs:mlx5_0 --sizes 8 --iters 100 "$@"
            status=$?; kill $! 2> /dev/null; exit $status"#,
            &[&[&*tagperf], &*more.split_whitespace().collect::<Vec<_>>()].concat(),
        );
        let options = "--devices 2 --knob pkeys=0x8001,0xffff/0x8002,0xffff";
        let mut command = limited(60, &inside(options, &script));
        crate::Ended::of(
            &command.env("TAGMATCH_SECRET", "the-secret-of-these-tests").output().unwrap(),
        )
    };
    let refused = apart("").failed();
    let is_told = |own: &str, theirs: &str| {
        let keys = format!("partition key is {own}, that one's {theirs}; ");
        refused.text.contains(&format!("{keys}set TAGMATCH_VERBS_PARTITION_KEY"))
    };
    assert!(is_told("0x8001", "0x8002") || is_told("0x8002", "0x8001"), "{}", refused.text);
    apart("--verbs partition_key=0xffff").succeeded();
}
