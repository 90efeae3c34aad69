//! Packets that netem loses, delays, repeats and reorders on their way between the hosts.

use super::bystander::Bystander;
use super::devices::{HASTY, Over};
use super::hosts::{Fault, Host, LIMIT, Limit, Process};
use super::traffic::{Kind, exchange};

/// Messages each way while packets are lost, delayed or repeated.
const TOTAL: u64 = 60;
const REORDER: &str = "limit 10000 delay 2ms reorder 95%";
/// The devices whose packets netem changes.
const DEVICES: [Over; 3] = [Over::Verbs, Over::Tcp, Over::ShmAndTcp];

/// Traffic both ways, and connecting, survive what netem does to packets. If it `is_noticed` by
/// devices, they must have found packets to be repeated, missing or out of order.
fn survive(what: &str, kinds: &[Kind], is_noticed: bool) {
    for over in DEVICES {
        let irregular = survive_over(over, what, kinds);
        assert!(irregular > 0 || !is_noticed, "netem did nothing to packets over {over:?}");
    }
}

/// Returns how many packets the devices found to be repeated, missing or out of order.
fn survive_over(over: Over, what: &str, kinds: &[Kind]) -> u64 {
    let _limit = Limit::new(&format!("{what}, over {over:?}"), LIMIT);
    let hosts = [Host::Near, Host::Far];
    let irregular = |host: Host| {
        if over.has_verbs() { host.irregular_packets() } else { host.irregular_segments() }
    };
    let irregular_packets = || hosts.into_iter().map(irregular).sum::<u64>();
    let before = irregular_packets();
    let faults = hosts.map(|host| Fault::netem(host, what));
    let setup = HASTY.over(over);
    let worker = setup.worker();
    let names: Vec<_> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
    // TCP puts many messages into a packet.
    let total = if over.has_verbs() { TOTAL } else { 2 * TOTAL };
    let role = format!("{setup} exchange {} {total}", names.join("+"));
    let process = Process::start(Host::Far, &role, &worker.address());
    let peer = worker.connect(&process.address()).unwrap();
    let neighbour = over.has_shm().then_some(Host::Near);
    let mut bystander = Bystander::new(neighbour, &worker, setup);
    for kind in kinds {
        exchange(&worker, peer, *kind, total).unwrap();
        bystander.ask(&worker);
    }
    process.hear("done");
    bystander.finish(&worker);
    let irregular = irregular_packets() - before;
    for fault in faults {
        let packets = fault.packets();
        assert!(packets > TOTAL, "only {packets} packets of {:?} came by", fault.host);
    }
    let counters = worker.counters();
    assert_eq!((counters.unexpected_now, counters.posted_now, counters.lost_rendezvous), (0, 0, 0));
    assert_eq!(counters.sent_beyond > 0, over.has_shm());
    println!("{what}: {irregular} irregular packets");
    irregular
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn lost_packets_lose_no_message() {
    survive("loss 3%", &Kind::ALL, true);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn late_packets_lose_no_message() {
    // With a rate, netem keeps packets in order.
    survive("delay 4ms 3ms rate 1gbit", &Kind::ALL, false);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn repeated_packets_repeat_no_message() {
    survive("duplicate 5%", &Kind::ALL, true);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn reordered_packets_reorder_no_eager_message() {
    survive(REORDER, &[Kind::Eager], true);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn reordered_packets_reorder_no_rendezvous() {
    survive(REORDER, &[Kind::Rendezvous, Kind::Mixed], true);
}
