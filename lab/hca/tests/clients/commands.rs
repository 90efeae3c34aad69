//! Commands of libibverbs and perftest, and how commands inside end.

use crate::{Ended, HCA, both, inside, limited, ordinary, reachable, reported, run, script, words};

fn lists(command: &[String]) -> Vec<String> {
    let output = limited(60, command).output().unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().filter(|name| *name != "infiniband").map(str::to_owned).collect()
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_devices_are_there_beside_all_that_was() {
    run("", &words("ibv_devices")).succeeded().tells("mlx5_0");
    let four = run("--devices 4", &words("ibv_devices")).succeeded();
    for name in ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"] {
        assert_eq!(four.text.matches(&format!("{name} ")).count(), 1, "{}", four.text);
    }
    run("", &words("ibv_devinfo -v")).succeeded().tells("PORT_ACTIVE");
    assert_eq!(lists(&inside("", &words("ls /dev"))), lists(&words("ls /dev")));
    // A command by write(2), as old libraries give them, is refused.
    run("", &script("echo command > /dev/infiniband/uverbs0", &[])).failed();
    let copies = reachable("user", &[HCA]);
    let hca = copies.path("tagmatch-hca");
    let user = [ordinary(), vec![hca], words("-- ibv_devinfo")].concat();
    Ended::of(&limited(60, &user).output().unwrap()).succeeded();
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_commands_of_libibverbs_and_perftest_run() {
    for command in [
        "ibv_rc_pingpong -c",
        "ibv_rc_pingpong -c -e",
        "ibv_ud_pingpong -c",
        "ibv_srq_pingpong -c",
        "ib_send_lat -n 100",
        "ib_send_lat -n 100 -e",
        "ib_send_bw -n 200 -c UD",
        "ib_read_bw -n 100",
        "ib_write_lat -n 100",
        "ib_atomic_bw -n 100",
    ] {
        reported("", &both(command));
    }
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn a_command_ends_with_its_own_status() {
    let status = |command: &[String]| run("", command).status;
    assert_eq!(status(&script("exit 7", &[])), Some(7));
    assert_eq!(status(&script("kill -9 $$", &[])), Some(137));
    assert_eq!(status(&words("/nonexistent")), Some(127));
    assert_eq!(status(&words("/tmp")), Some(126));
    let nested = run("", &inside("", &words("true")));
    assert_eq!(nested.status, Some(125));
    nested.tells("inside of another program");
}
