//! What goes wrong on request.

use crate::{both, program, run, script, tagperf, with};

#[test]
#[ignore = "needs Debian's clients: ci/test hca"]
fn a_queue_that_fails_is_named() {
    for event in ["QP_FATAL", "CQ_ERR", "SRQ_ERR"] {
        let lat = "lat --device verbs --hw-tags auto --duration 60s --sizes 4K";
        let fault = format!("1s:event {event}");
        let failed = faulty(&[["--fault", &fault]], &with(&tagperf(), lat)).failed();
        let (_, why) =
            failed.text.split_once("this worker's end of the connection failed: ").unwrap();
        assert!(why.contains(&format!("IBV_EVENT_{event}")), "{}", failed.text);
    }
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
    run("", &with(&program("outage"), "--ignored --test-threads=1")).succeeded().passed(2);
}
