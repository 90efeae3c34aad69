//! The NIC's counters.

use std::fs;
use std::path::Path;

use tagmatch_ofi_sys as sys;
use tagmatch_testkit::scratch::Scratch;

use crate::client::{Context, Hints, Memory, Node, exactly};
use crate::messages::{pair, send};
use crate::process::{alone, start};

const ANY: u64 = sys::FI_ADDR_UNSPEC;

/// The sum of a list's counters over the NIC's engines.
fn count(sysfs: &Path, list: &str) -> u64 {
    let folder = sysfs.join("cxi0/device/telemetry");
    (0..4)
        .map(|engine| {
            let file = folder.join(format!("lpe_net_match_{list}_{engine}"));
            let text = fs::read_to_string(file).expect("a counter");
            let (value, time) = text.split_once('@').expect("a value and a time");
            assert!(time.split_once('.').is_some_and(|(_, nanos)| nanos.len() == 9), "{text}");
            value.parse::<u64>().expect("a number")
        })
        .sum()
}

fn counts(sysfs: &Path) -> [u64; 3] {
    ["priority", "overflow", "request"].map(|list| count(sysfs, list))
}

/// Runs `body` with a folder that stands for `/sys/class/cxi`.
fn with_sysfs(test: &str, knobs: &[(&str, &str)], body: impl FnOnce(&str, &Path)) {
    const FOLDER: &str = "TAGMATCH_CXI_SYSFS";
    let scratch = Scratch::new(&format!("sysfs-{}", test.replace("::", "-")));
    let folder = scratch.path("");
    let mut knobs = knobs.to_vec();
    knobs.push((FOLDER, &folder));
    alone(test, &knobs, |role| {
        body(role, std::env::var_os(FOLDER).expect("a folder").as_ref());
    });
}

/// Receives one message that was expected, and one that was not.
fn exchange(receiver: &Node, from: u64, sender: &Node, to: u64) {
    let into = Memory::new(1);
    let context = Context::new();
    receiver.recv(into, exactly(from, 1), context).expect("posted");
    send(sender, to, 1, b"x");
    receiver.expect(context, 0);
    send(sender, to, 1, b"x");
    receiver.expect_silence(3);
    receiver.recv(into, exactly(from, 1), context).expect("posted");
    receiver.expect(context, 0);
}

#[test]
fn each_message_counts_for_the_list_that_it_has_matched() {
    with_sysfs(
        "telemetry::each_message_counts_for_the_list_that_it_has_matched",
        &[],
        |_, sysfs| {
            let (sender, to, receiver, from) = pair(&Hints::default());
            assert_eq!(counts(sysfs), [0; 3]);
            exchange(&receiver, from, &sender, to);
            assert_eq!(counts(sysfs), [1, 1, 0]);
            let hints = Hints { mode: Some(c"software"), ..Hints::default() };
            let (sender, to, receiver, from) = pair(&hints);
            exchange(&receiver, from, &sender, to);
            assert_eq!(counts(sysfs), [1, 1, 2]);
        },
    );
}

#[test]
fn after_the_end_of_entries_in_hybrid_mode_software_matches_for_ever() {
    let test = "telemetry::after_the_end_of_entries_in_hybrid_mode_software_matches_for_ever";
    let knobs = [("TAGMATCH_CXI_ENTRIES", "2"), ("FI_CXI_RX_MATCH_MODE", "hybrid")];
    with_sysfs(test, &knobs, |_, sysfs| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        for _ in 0..3 {
            send(&sender, to, 1, b"x");
        }
        receiver.expect_silence(60);
        assert_eq!(counts(sysfs), [0, 2, 1]);
        for _ in 0..3 {
            let context = Context::new();
            receiver.recv(Memory::new(1), exactly(from, 1), context).expect("posted");
            receiver.expect(context, 0);
        }
        exchange(&receiver, from, &sender, to);
        assert_eq!(counts(sysfs), [0, 2, 3]);
    });
}

#[test]
fn in_flow_control_nothing_moves_to_software_for_ever() {
    let knobs = [("TAGMATCH_CXI_ENTRIES", "2")];
    let test = "telemetry::in_flow_control_nothing_moves_to_software_for_ever";
    with_sysfs(test, &knobs, |_, sysfs| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        for _ in 0..3 {
            send(&sender, to, 1, b"x");
        }
        receiver.expect_silence(60);
        for _ in 0..3 {
            let context = Context::new();
            receiver.recv(Memory::new(1), exactly(from, 1), context).expect("posted");
            receiver.expect(context, 0);
        }
        exchange(&receiver, from, &sender, to);
        assert_eq!(counts(sysfs), [1, 4, 0]);
    });
}

#[test]
fn the_counters_are_those_of_all_processes_on_the_nic() {
    let test = "telemetry::the_counters_are_those_of_all_processes_on_the_nic";
    with_sysfs(test, &[], |role, sysfs| {
        let node = Node::new();
        if role == "peer" {
            let own = node.insert(&node.name());
            let into = Memory::new(1);
            let context = Context::new();
            for _ in 0..300 {
                node.recv(into, exactly(ANY, 1), context).expect("posted");
                node.inject(into, own, 1).expect("accepted");
                node.expect(context, 0);
            }
            return;
        }
        let children = [start(test, "peer"), start(test, "peer")];
        for mut child in children {
            assert!(child.wait().expect("it is ours").success());
        }
        assert_eq!(counts(sysfs), [600, 0, 0]);
    });
}

#[test]
fn counts_can_be_lost() {
    let knobs = [("TAGMATCH_CXI_TELEMETRY_LOST", "1000"), ("TAGMATCH_CXI_SEED", "1")];
    with_sysfs("telemetry::counts_can_be_lost", &knobs, |_, sysfs| {
        let (sender, to, receiver, from) = pair(&Hints::default());
        exchange(&receiver, from, &sender, to);
        assert_eq!(counts(sysfs), [0; 3]);
    });
}
