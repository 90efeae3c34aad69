//! `--device verbs`: every test over RDMA, and the errors where it is missing.
//!
//! Tests that need an RDMA device run in `ci/rxe`, with `--ignored`. Between two machines host 2
//! serves and host 1 measures; `ci/rxe --hosts 2` sets an environment that tells them apart.

mod common;

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use common::{OVER_EACH_DEVICE, Server, command, refused, tagperf, text};

/// A few iterations: the device may be soft-RoCE on an emulated machine.
const FEW: &str = "--iters 20 --warmup 2 --device verbs --json -";

/// The device's full name in results.
fn device() -> String {
    let name = std::env::var("RXE_DEVICE").ok().or_else(|| {
        let mut names = std::fs::read_dir("/sys/class/infiniband").ok()?.flatten();
        Some(names.next()?.file_name().into_string().unwrap())
    });
    format!("verbs:{}", name.expect("this test needs an RDMA device"))
}

/// Runs a test with few iterations, and checks what holds for all tests.
fn measured(args: &str) -> Value {
    let start = Instant::now();
    let document = common::measured(&format!("{args} {FEW}"), &device(), 20);
    println!("{:>6} ms  {args}", start.elapsed().as_millis());
    document
}

fn count(document: &Value, how: &str) -> u64 {
    document["matching"][how].as_u64().unwrap()
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn every_test() {
    // Empty, inline in the work request, eager, and read; the last is more than one page.
    let sizes = ["lat --sizes 0,8,1K,64K", "lat --sizes 64K --single-buffer"];
    for args in OVER_EACH_DEVICE.into_iter().chain(sizes) {
        let document = measured(args);
        assert_eq!(count(&document, "hardware"), 0, "{args}");
        assert!(document["config"]["large_messages"].as_str().unwrap().contains("RDMA"), "{args}");
    }
    let paced = measured("lat --sizes 8 --rate 100");
    assert!(paced["results"][0]["samples"].as_u64() >= Some(20));
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn the_model_matches() {
    for args in [
        "lat --sizes 4K,64K",
        "bw --sizes 4K",
        "depth --drain --queue posted --depths 64 --sizes 4K",
    ] {
        let document = measured(&format!("{args} --hw-tags model"));
        assert!(count(&document, "hardware") > 0, "{args}: {}", document["matching"]);
    }
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn what_people_read_names_the_device() {
    let device = device();
    let table = tagperf(&format!("lat --sizes 8 --iters 20 --device {device}"));
    let stdout = text(&table.stdout);
    assert!(stdout.contains(&format!("# device      {device}: port ")), "{stdout}");
    let csv = tagperf(&format!("lat --sizes 8 --iters 20 --device {device} --csv"));
    assert!(text(&csv.stdout).lines().nth(1).unwrap().starts_with(&format!("lat,{device},8,")));
    let info = tagperf("info --verbs ack_timeout=16");
    let name = device.strip_prefix("verbs:").unwrap();
    let shown = text(&info.stdout);
    assert!(shown.contains(&format!("verbs   yes  {name}, port ")), "{shown}");
    assert!(shown.contains("  ack_timeout   16 by --verbs\n"), "{shown}");
    assert!(shown.contains("  traffic_class 0\n"), "{shown}");
}

/// The emulated NIC, driven like real hardware, on both sides. Each needs two queue pairs.
#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn an_emulated_nic_matches() {
    for args in [
        "lat --sizes 4K,64K",
        "bw --sizes 2K,64K",
        "bibw --sizes 2K",
        "depth --sizes 2K --depths 0,64",
    ] {
        let document = measured(&format!("{args} --hw-tags emu"));
        assert!(count(&document, "hardware") > 0, "{args}: {}", document["matching"]);
        assert_eq!(document["matching"].get("list_faults"), None, "{args}");
    }
    // No receive goes to a NIC that isn't there.
    let document = measured("lat --sizes 4K --hw-tags auto");
    assert_eq!(count(&document, "hardware"), 0);
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn through_a_server() {
    let device = device();
    let mut server = Server::start(&format!("--device {device}"));
    // Each side has a name of its own for its device.
    let output = server.client("lat --sizes 8,64K --iters 20 --device verbs --json -");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["device"], device);
    assert!(server.logged().contains("served, "));
    let output = server.client("lat --sizes 8");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&format!("use --device {device}")));
}

/// The one table of settings: by options and by variables, here and on the other side.
#[test]
fn a_wrong_setting_is_refused_in_words() {
    let wrong = refused("lat --device verbs --verbs gid_index=256");
    assert!(wrong.contains("invalid gid_index `256`: expected a number from 0 to 255"), "{wrong}");
    let unknown = refused("lat --device verbs --verbs gid=3");
    assert!(unknown.contains("expected NAME=VALUE, NAME one of device, port, gid_index"));
    let useless = refused("run -n 1 --verbs mtu=512 -- true");
    assert!(useless.contains("TAGMATCH_VERBS_GID_INDEX=3"), "{useless}");
    let mut by_variable = command("lat --device auto --sizes 8 --iters 1");
    let output = by_variable.env("TAGMATCH_VERBS_ACK_TIMEOUT", "1s").output().unwrap();
    let expected = "invalid TAGMATCH_VERBS_ACK_TIMEOUT `1s`: expected a number from 1 to 31";
    assert!(text(&output.stderr).contains(expected), "{output:?}");
}

#[test]
#[ignore = "needs an RDMA device: ci/test roce"]
fn settings_that_the_port_allows_work_and_others_are_named() {
    measured("lat --sizes 8,8K --verbs ack_timeout=16,mtu=256,traffic_class=8");
    // The keys of the port are those that it says there are.
    let output = tagperf("lat --sizes 8 --device verbs --verbs partition_key=0x1234");
    let error = text(&output.stderr);
    assert!(
        error.contains("partition_key `0x1234`: expected a key of the port's table"),
        "{error}"
    );
}

/// Ports; each server serves one client.
const PORTS: [u16; 3] = [13338, 13339, 13340];

/// The part of host 2.
fn serve_once(port: u16, address: &str) {
    let serve = format!("serve --once --port {port} --bind {address} --device verbs");
    let mut child = command(&serve).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let all_lines: Vec<_> = out.lines().map(Result::unwrap).collect();
    assert!(
        all_lines[0].contains("clients need the secret of TAGMATCH_SECRET here"),
        "{all_lines:?}"
    );
    assert_eq!(all_lines[1], format!("next: tagperf lat {address}:{port} --device verbs"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Host 2 was started at the same time, and may not be ready yet.
fn await_server(address: &str) {
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody listens at {address}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs two machines: ci/test roce"]
fn between_two_machines() {
    let variable = |name| std::env::var(name).expect("this test needs ci/rxe --hosts 2");
    if variable("RXE_HOST") == "2" {
        PORTS.iter().for_each(|&port| serve_once(port, &variable("RXE_ADDRESS")));
        return;
    }
    let [first, second, third] = PORTS.map(|port| format!("{}:{port}", variable("RXE_PEER")));
    let far = refused(&format!("lat {first} --sizes 8"));
    assert!(far.contains("another machine") && far.contains("--device verbs"), "{far}");
    await_server(&first);
    let lat = measured(&format!("lat {first} --sizes 0,8,4K,64K --hw-tags model"));
    assert!(lat["config"]["other_side"].as_str().unwrap().contains(&first));
    assert!(count(&lat, "hardware") > 0, "{}", lat["matching"]);
    await_server(&second);
    let lat = measured(&format!("lat {second} --sizes 4K,64K --hw-tags emu"));
    assert!(count(&lat, "hardware") > 0, "{}", lat["matching"]);
    // Planned times need one clock.
    await_server(&third);
    let paced = refused(&format!("lat {third} --rate 100 --device verbs"));
    assert!(paced.contains("another clock"), "{paced}");
}

#[test]
fn a_device_that_is_not_there() {
    for args in ["lat --sizes 8 --device verbs:nosuch", "--device verbs:nosuch"] {
        let message = refused(args);
        assert!(message.starts_with("tagperf: --device verbs:nosuch: "), "{message}");
        // It depends on the machine which of them is missing.
        assert!(message.contains("libibverbs: ") || message.contains("RDMA device: "), "{message}");
    }
    // The other side says so, too.
    let server = Server::start("--device shm");
    let output = server.client("lat --sizes 8 --device verbs:nosuch");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn verbs_are_refused_where_no_message_would_pass_them() {
    assert!(refused("rate --self --device verbs").contains("pass no device"));
}

#[test]
fn a_machine_without_libibverbs_is_told_what_to_install() {
    let without = |args: &str| {
        command(args).env("TAGMATCH_LIBIBVERBS", "/nonexistent/libibverbs.so.1").output().unwrap()
    };
    let info = without("info");
    assert_eq!(info.status.code(), Some(0));
    let stdout = text(&info.stdout);
    assert!(stdout.contains("verbs   no   libibverbs: "), "{stdout}");
    let next = stdout.lines().skip_while(|line| !line.starts_with("verbs ")).nth(1).unwrap();
    assert!(next.contains("next: ") && next.contains("install rdma-core"), "{stdout}");
    assert!(stdout.contains("locked memory: "), "{stdout}");
    let lat = without("lat --sizes 8 --device verbs");
    assert_eq!(lat.status.code(), Some(2));
    assert!(text(&lat.stderr).contains("install rdma-core"), "{}", text(&lat.stderr));
}
