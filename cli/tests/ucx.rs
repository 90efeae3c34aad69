//! `--device ucx`: every test over UCX, and the errors where UCX is missing.
//!
//! Tests that need libucp run in `ci/test ucx`, with `--ignored`. There two network namespaces
//! stand for two machines, which needs root.

mod common;
#[path = "common/machines.rs"]
mod machines;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use common::{
    OVER_EACH_DEVICE, Server, WHERE_THE_DEVICE_MATCHES, command, json, printed, refused, tagperf,
    text,
};
use machines::{ADDRESSES, Machines, ip};

const SECRET: &str = "the secret of this test";
const FEW: &str = "--iters 50 --warmup 5 --json -";

/// The transports that UCX is tested on.
const DEVICES: [&str; 2] = ["ucx:posix,self", "ucx:tcp,self"];

/// Runs a test with few iterations, and checks what holds for all tests.
fn measured(args: &str, device: &str) -> Value {
    let document = common::measured(&format!("{args} {FEW} --device {device}"), device, 50);
    let matching = &document["matching"];
    assert!(matching["by_device"].as_u64() > Some(0), "{args}: {matching}");
    assert_eq!((&matching["hardware"], &matching["posted"]), (&0.into(), &0.into()), "{args}");
    document
}

#[test]
#[ignore = "needs libucp: ci/test ucx"]
fn every_test() {
    for device in DEVICES {
        for args in OVER_EACH_DEVICE.into_iter().chain(WHERE_THE_DEVICE_MATCHES) {
            let document = measured(args, device);
            let transport = device.split([':', ',']).nth(1).unwrap();
            let large = document["config"]["large_messages"].as_str().unwrap();
            assert!(args.contains("--self") || large.contains(transport), "{args}: {large}");
        }
        for args in ["allreduce -n 3 --sizes 8,64K --iters 50 --warmup 5", "shrink -n 3"] {
            let document = json(&format!("{args} --device {device} --json -"));
            assert_eq!(document["results"].as_array().unwrap().len(), 2, "{args}");
        }
        // Planned times travel as immediate data, which leaves fewer bits for the tag.
        let paced = measured("lat --sizes 0,8 --rate 1k", device);
        assert!(paced["results"][0]["samples"].as_u64() >= Some(50));
    }
}

#[test]
#[ignore = "needs libucp: ci/test ucx"]
fn what_people_read_names_the_library_and_the_transports() {
    let table = tagperf("lat --sizes 8 --iters 20 --device ucx:posix,self");
    let stdout = text(&table.stdout);
    assert!(stdout.contains("# device      ucx:posix,self: UCX 1."), "{stdout}");
    assert!(stdout.contains("its transports are posix/memory"), "{stdout}");
    assert!(stdout.contains("by the device, which doesn't tell how"), "{stdout}");
    let info = tagperf("info");
    let output_text = text(&info.stdout);
    let ucx: Vec<_> = output_text.lines().skip_while(|line| !line.starts_with("ucx ")).collect();
    assert!(ucx[0].starts_with("ucx     yes  UCX 1."), "{output_text}");
    for what in ["transports here: ", "matching by the NIC: ", "large messages: as UCX sees fit"] {
        assert!(
            ucx.iter().any(|line| line.trim_start().starts_with(what)),
            "{what}: {output_text}"
        );
    }
}

#[test]
#[ignore = "needs libucp: ci/test ucx"]
fn what_ucx_has_to_say_stays_out_of_the_json() {
    let args = format!("lat --sizes 8 {FEW} --device ucx");
    let output = command(&args).env("UCX_LOG_LEVEL", "info").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["device"], "ucx");
}

#[test]
#[ignore = "needs libucp: ci/test ucx"]
fn through_a_server() {
    let mut server = Server::start("--device ucx:tcp,self");
    let output = server.client("lat --sizes 8,64K --iters 20 --device ucx:tcp,self --json -");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(server.logged().contains("served, "));
    let output = server.client("lat --sizes 8");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("use --device ucx:tcp,self"));
    // A client can't choose UCX: only the user who starts the server can.
    let output = Server::start("").client("lat --sizes 8 --device ucx:tcp,self");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("start `tagperf serve --device ucx` there"));
}

#[test]
#[ignore = "needs libucp: ci/test ucx"]
fn a_transport_that_is_not_there() {
    let message = refused("lat --sizes 8 --device ucx:nosuch");
    assert!(message.starts_with("tagperf: --device ucx:nosuch: "), "{message}");
}

#[test]
#[ignore = "needs libucp and root: ci/test ucx"]
fn between_two_machines() {
    let machines = Machines::new();
    let [here, there] = ADDRESSES;
    // Both have this hostname, but shared memory does not reach across the wire.
    for (size, device) in [("0,8,4K,64K,1M", "ucx:tcp,self"), ("8,64K", "ucx:tcp")] {
        let serve = format!("serve --once --bind {there} --device ucx");
        let with_secret = |at, args: &str| {
            let mut command = machines.on(at, args);
            command.env("TAGMATCH_SECRET", SECRET);
            command
        };
        let mut server = with_secret(1, &serve).stdout(Stdio::piped()).spawn().unwrap();
        let mut all_lines =
            BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
        let next = all_lines.find(|line| line.starts_with("next: ")).unwrap();
        assert_eq!(next, format!("next: tagperf lat {there}:13338 --device ucx"));
        let lat = format!("lat {there} --sizes {size} {FEW} --device {device}");
        let measured = printed(&with_secret(0, &lat).output().unwrap());
        let large = measured["config"]["large_messages"].as_str().unwrap();
        assert!(large.contains("tcp/wire"), "{large}");
        assert!(measured["config"]["other_side"].as_str().unwrap().contains(there));
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
    // The messages travel over the wire.
    ip(&format!("-n {} link set wire1 down", machines.0[0]));
    let lat = format!("lat {there} --sizes 8 {FEW} --device ucx:tcp");
    let output = machines.on(0, &lat).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{here}: {}", text(&output.stderr));
}

#[test]
fn ucx_is_refused_what_it_does_by_itself() {
    for who in ["emu", "model"] {
        let error_text = refused(&format!("lat --sizes 8 --device ucx --hw-tags {who}"));
        assert!(error_text.contains("UCX matches by itself"), "{error_text}");
    }
    assert!(refused("lat --device ucx:a/b").contains("UCX_TLS"));
}

#[test]
fn a_machine_without_libucp_is_told_what_to_install() {
    let without =
        |args: &str| command(args).env("TAGMATCH_LIBUCP", "/nonexistent").output().unwrap();
    let info = without("info");
    assert_eq!(info.status.code(), Some(0));
    let stdout = text(&info.stdout);
    assert!(stdout.contains("ucx     no   UCX: "), "{stdout}");
    let next = stdout.lines().skip_while(|line| !line.starts_with("ucx ")).nth(1).unwrap();
    assert!(next.contains("next: ") && next.contains("install libucx0"), "{stdout}");
    let lat = without("lat --sizes 8 --device ucx");
    assert_eq!(lat.status.code(), Some(2));
    assert!(text(&lat.stderr).contains("install libucx0"), "{}", text(&lat.stderr));
    assert_eq!(without("lat --sizes 8 --iters 20 --json -").status.code(), Some(0));
}
