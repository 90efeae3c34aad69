//! What goes wrong on request.

use crate::{both, program, run, script, tagperf, with};

/// Each of these ends connections. The program says what has failed, and doesn't hang.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn a_failure_that_ends_connections_is_named() {
    let own = "this worker's end of the connection failed: ";
    // The sender of a message that its receiver's queue pair has refused is told of it, too: either
    // of them is the first to end.
    let refused = "Input/output error";
    for (fault, names) in [
        ("event QP_FATAL", [own, "(IBV_EVENT_QP_FATAL)"]),
        ("event CQ_ERR", [own, "(IBV_EVENT_CQ_ERR)"]),
        ("event SRQ_ERR", [own, "(IBV_EVENT_SRQ_ERR)"]),
        ("overrun", [own, "(IBV_EVENT_CQ_ERR)"]),
        ("match before", [refused, "(IBV_EVENT_QP_FATAL)"]),
        ("match after", [own, "(IBV_EVENT_QP_FATAL)"]),
        ("fatal 100ms", [own, "(IBV_EVENT_DEVICE_FATAL)"]),
        ("fatal 100ms requests 100", [own, "(IBV_EVENT_DEVICE_FATAL)"]),
    ] {
        let lat = "lat --device verbs --hw-tags auto --duration 60s --sizes 4K";
        let failed = run("", &during(fault, &with(&tagperf(), lat))).failed();
        let is_named = |name: &&str| failed.text.contains(*name);
        let has_both = names.iter().all(is_named);
        let is_either = names[0] == refused && names.iter().any(is_named);
        assert!(has_both || is_either, "{fault}: {}", failed.text);
    }
}

/// A card that its driver resets: the job that had it open ends, and the next one runs.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn a_device_that_was_lost_serves_the_next_job() {
    let jobs = script(
        r#""$@" --duration 60s & program=$!
        while sleep 1; kill -0 $program 2> /dev/null; do
            echo "fatal 100ms" > /sys/class/tagmatch-hca/control
        done
        wait $program && exit 9
        until ibv_devinfo -d mlx5_0 > /dev/null 2>&1; do sleep 0.05; done
        exec "$@" --iters 100"#,
        &[&tagperf(), "lat", "--device", "verbs", "--sizes", "4K"],
    );
    run("", &jobs).succeeded();
}

/// Tables change in rows that no connection uses, and the subnet has another manager.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn the_public_api_survives_tables_that_change() {
    let api = script(
        r#"TAGMATCH_TEST_DEVICE=verbs+nic "$@" & program=$!
        for fault in "pkey 9 0x8001" "gid 5 fe80::9" "event SM_CHANGE" "event CLIENT_REREGISTER" \
            "event PORT_ACTIVE" "pkey 9 0x0" "gid 5 -"; do
            sleep 0.3; echo "$fault" > /sys/class/tagmatch-hca/control
        done
        wait $program"#,
        &[&*program("api"), "--test-threads=2", "messages::", "matching::", "--skip=many_workers"],
    );
    run("", &api).succeeded().passed(18);
}

/// What becomes of long messages then: `long_messages_get_along_with_little_locked_memory`.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn a_worker_that_can_register_no_memory_says_so() {
    let options = [["--fault", "0s:registrations 100%"], ["--report", "-"]];
    let lat = "lat --device verbs --iters 10 --sizes 8";
    let mut ended = faulty(&options, &with(&tagperf(), lat)).failed();
    ended = ended.tells("Cannot allocate memory");
    ended.report = ended.text.clone();
    assert!(ended.count("fault_registrations") > 0, "{}", ended.text);
}

/// The words of a measurement of tagperf that a fault meets once it has begun. The fault is
/// repeated, since one that comes before there are workers meets nothing.
fn during(fault: &str, tagperf: &[String]) -> Vec<String> {
    let words: Vec<&str> = [fault].into_iter().chain(tagperf.iter().map(String::as_str)).collect();
    script(
        r#"fault=$1; shift
        out=$(mktemp); trap 'rm "$out"' EXIT
        "$@" > "$out" 2>&1 & program=$!
        for try in $(seq 400); do grep -q "  size  " "$out" && break; sleep 0.05; done
        while sleep 1; kill -0 $program 2> /dev/null; do
            echo "$fault" > /sys/class/tagmatch-hca/control
        done
        wait $program; status=$?; cat "$out"; exit $status"#,
        &words,
    )
}

/// Runs a command inside, with options whose values have spaces.
fn faulty(options: &[[&str; 2]], command: &[String]) -> crate::Ended {
    let options = options.iter().flatten().map(|word| (*word).to_owned()).collect();
    let words = [vec![crate::HCA.to_owned()], options, vec!["--".into()], command.to_vec()];
    crate::Ended::of(&crate::limited(60, &words.concat()).output().unwrap())
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn programs_hear_of_events() {
    let watch = script(
        r#"stdbuf -oL ibv_asyncwatch &
        watch=$!; sleep 0.5
        echo "event CLIENT_REREGISTER" > /sys/class/tagmatch-hca/control
        echo "down 200ms mlx5_0" > /sys/class/tagmatch-hca/control
        sleep 2; kill $watch"#,
        &[],
    );
    let mut events = faulty(&[["--fault", "1s:event GID_CHANGE"]], &watch);
    for event in ["GID_CHANGE", "CLIENT_REREGISTER", "PORT_ERR", "PORT_ACTIVE"] {
        events = events.tells(&format!("IBV_EVENT_{event}"));
    }
}

/// An outage within 7 retries of 0.5 s, and one beyond 7 of 0.1 s.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn an_outage_ends_connections_that_are_out_of_retries() {
    let short = [["--fault", "1s:outage 500ms"], ["--knob", "loss=1%"]];
    faulty(&short, &both("ib_send_lat -u 17 -D 2")).succeeded();
    let long = faulty(&[["--fault", "1s:outage 30s"]], &both("ib_write_bw -u 10 -n 50000000"));
    assert!(long.text.to_lowercase().contains("completion with error"), "{}", long.text);
}

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn workers_go_on_after_an_outage() {
    run("", &with(&program("outage"), "--ignored --test-threads=1")).succeeded().passed(3);
}

/// From outside and from inside; another user and a number that no device has are refused.
#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn faults_are_asked_for_while_a_device_runs() {
    let folder = crate::reachable("ctl", &[crate::HCA]);
    let asks = script(
        r#"cd "$1"; hca=./tagmatch-hca
        until_there() { for try in $(seq 400); do grep -qs "$1" "$2" && break; sleep 0.05; done; }
        $hca --report - -- sh -c '
            stdbuf -oL ibv_asyncwatch > events &
            for try in $(seq 400); do [ -e go ] && break; sleep 0.05; done
            ./tagmatch-hca ctl gid 2 fe80::77
            for try in $(seq 400); do grep -q GID_CHANGE events && break; sleep 0.05; done
            kill $!; cat events
            cd /sys/class/infiniband/mlx5_0/ports/1; cat pkeys/3 gids/2 state' &
        process=$!
        until_there "event FD" events
        $hca ctl --process $process pkey 3 0x8001
        $hca ctl --process $process down 100s mlx5_0
        $hca ctl --process $process down 1s mlx5_9 || echo refused: $?
        $hca ctl fire || echo wrong: $?
        [ $(id -u) != 0 ] || setpriv --reuid 65534 --regid 65534 --clear-groups \
            $hca ctl --process $process down 1s || echo denied
        touch go; wait $process"#,
        &[&folder.path(".")],
    );
    let ended = crate::Ended::of(&crate::limited(60, &asks).output().unwrap()).succeeded();
    for told in [
        "IBV_EVENT_PKEY_CHANGE",
        "IBV_EVENT_PORT_ERR",
        "IBV_EVENT_GID_CHANGE",
        "0x8001",
        "fe80:0000:0000:0000:0000:0000:0000:0077",
        "1: DOWN",
        "there is no such device",
        "refused: 1",
        "no such fault: expected `outage TIME`",
        "wrong: 1",
        "\"fault_pkey\": 1",
        "\"fault_down\": 1",
        "\"fault_gid\": 1",
    ] {
        assert!(ended.text.contains(told), "lacks `{told}`: {}", ended.text);
    }
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(ended.text.contains("denied"), is_root, "{}", ended.text);
}
