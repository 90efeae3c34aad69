//! `--device ofi`: every test over the provider of libfabric that `TAGMATCH_TEST_OFI` names.

mod common;

use common::{OVER_EACH_DEVICE, WHERE_THE_DEVICE_MATCHES, command, json, printed};

const FEW: &str = "--iters 50 --warmup 5 --json -";

fn device() -> String {
    let provider = std::env::var("TAGMATCH_TEST_OFI").unwrap_or_else(|_| "tcp;ofi_rxm".to_owned());
    format!("ofi:{provider}")
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn every_test() {
    let device = device();
    for args in OVER_EACH_DEVICE.into_iter().chain(WHERE_THE_DEVICE_MATCHES) {
        let line = format!("{args} {FEW} --device {device}");
        let document = common::measured(&line, &device, 50);
        let matching = &document["matching"];
        assert!(matching["by_device"].as_u64() > Some(0), "{args}: {matching}");
        assert_eq!((&matching["hardware"], &matching["posted"]), (&0.into(), &0.into()), "{args}");
    }
    for args in ["allreduce -n 3 --by-messages --sizes 8,64K --iters 50 --warmup 5", "shrink -n 3"]
    {
        let document = json(&format!("{args} --device {device} --json -"));
        assert_eq!(document["results"].as_array().unwrap().len(), 2, "{args}");
    }
    // Planned times travel as immediate data.
    let line = format!("lat --sizes 0,8 --rate 1k {FEW} --device {device}");
    let paced = common::measured(&line, &device, 50);
    assert!(paced["results"][0]["samples"].as_u64() >= Some(50));
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn launched_ranks_measure() {
    let mut run = command("run -n 2 --");
    let line = format!("lat --sizes 8,64K {FEW} --device {}", device());
    run.arg(env!("CARGO_BIN_EXE_tagperf")).args(line.split(' '));
    let document = printed(&run.output().unwrap());
    assert_eq!(document["device"], device());
    assert!(document["matching"]["by_device"].as_u64() > Some(0));
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn rows_of_more_receives_than_there_is_room_for_are_left_out() {
    let line = format!("depth --queue posted --depths 8,60000 --iters 5 --device {}", device());
    let output = command(&line).output().unwrap();
    let stdout = common::text(&output.stdout);
    assert!(output.status.success() && stdout.contains("\n      8  "), "{stdout}");
    assert!(stdout.contains("# left out    rows of more than "), "{stdout}");
}
