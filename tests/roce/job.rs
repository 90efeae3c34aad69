//! A job of two processes on each host, each of which exchanges messages with all others. Messages
//! within a host pass through shared memory, all others over the network.

use tagmatch::{Match, Peer, Worker};

use super::devices::{HASTY, Over};
use super::hosts::{Host, LIMIT, Limit, Process, say};
use super::traffic::{Kind, RECEIVES, Stream, meet};

/// The tag of the addresses that rank 0 sends to all.
const ADDRESSES: u64 = 3000;
/// Messages from each rank to each other one in one phase.
const TOTAL: u64 = 40;
const ROOM: usize = 1 << 10;
/// Messages of the protocol, credits for example, that may pass over the network while ranks say
/// nothing to the other host.
const IDLE: u64 = 10;
/// The host of each rank.
const HOSTS: [Host; 4] = [Host::Near, Host::Near, Host::Far, Host::Far];

/// The part of a rank other than 0, in a process of its own.
pub fn member(worker: &Worker, rank: usize, parent: Peer) {
    let received = worker.recv(Match::tag(ADDRESSES), vec![0; ROOM]).wait().unwrap();
    let text = String::from_utf8(received.data().to_vec()).unwrap();
    let others = text.split(' ').map(|address| worker.connect(&address.parse().unwrap()).unwrap());
    talk(worker, rank, &[parent].into_iter().chain(others).collect::<Vec<_>>());
    say("hardware", worker.counters().hardware);
}

/// Messages with every other rank, in three phases. The peers are in the order of their ranks; the
/// rank itself is one of them.
fn talk(worker: &Worker, rank: usize, peers: &[Peer]) {
    let others: Vec<usize> = (0..peers.len()).filter(|other| *other != rank).collect();
    let (near, far): (Vec<_>, Vec<_>) =
        others.iter().partition(|other| HOSTS[**other] == HOSTS[rank]);
    let streams = |with: &[usize], kind: Kind, total: u64| -> Vec<Stream> {
        let stream = |other: &usize| {
            let ranks = [rank, *other].map(|rank| rank as u64);
            Stream::of_ranks(kind, peers[*other], total, ranks)
        };
        with.iter().map(stream).collect()
    };
    let meet_all = || others.iter().for_each(|other| meet(worker, peers[*other]).unwrap());
    let sent_beyond = || worker.counters().sent_beyond;

    meet_all();
    let before = sent_beyond();
    run(worker, streams(&near, Kind::Mixed, TOTAL));
    let within = sent_beyond() - before;
    assert!(within < IDLE, "rank {rank}: {within} messages to a neighbour left the host");

    meet_all();
    let before = sent_beyond();
    run(worker, streams(&others, Kind::Mixed, TOTAL));
    let beyond = sent_beyond() - before;
    assert!(beyond >= 2 * TOTAL, "rank {rank}: only {beyond} messages left the host");

    // All receives are posted before the other host sends, so a NIC can match all messages.
    let mut streams = streams(&far, Kind::Eager, RECEIVES as u64);
    streams.iter_mut().for_each(|stream| stream.post(worker));
    meet_all();
    run(worker, streams);

    let counters = worker.counters();
    assert_eq!((counters.lost_messages, counters.lost_rendezvous), (0, 0));
    assert_eq!((counters.list_faults, counters.peer_faults, counters.bugs), (0, 0, 0));
}

/// All streams at the same time.
fn run(worker: &Worker, mut streams: Vec<Stream>) {
    while !streams.iter().all(Stream::is_over) {
        streams.iter_mut().for_each(|stream| stream.step(worker).unwrap());
    }
    for stream in streams {
        stream.finish(worker).unwrap();
    }
}

/// Runs the job. Returns how many receives a NIC has matched, for each rank.
fn job(over: Over) -> Vec<u64> {
    let _limit = Limit::new(&format!("a job over {over:?}"), LIMIT);
    let setup = HASTY.over(over);
    let worker = setup.worker();
    let start = |rank: usize| {
        Process::start(HOSTS[rank], &format!("{setup} job {rank}"), &worker.address())
    };
    let processes: Vec<_> = (1..HOSTS.len()).map(start).collect();
    let addresses: Vec<_> = processes.iter().map(Process::address).collect();
    let connect = |address| worker.connect(address).unwrap();
    let peers: Vec<_> =
        [worker.oneself()].into_iter().chain(addresses.iter().map(connect)).collect();
    let text = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    for peer in &peers[1..] {
        worker.inject(*peer, ADDRESSES, text.as_bytes()).unwrap();
    }
    talk(&worker, 0, &peers);
    let of_others = processes.iter().map(|process| process.hear("hardware").parse().unwrap());
    let hardware = [worker.counters().hardware].into_iter().chain(of_others).collect();
    println!("matched by the NIC of each rank: {hardware:?}");
    processes.iter().for_each(|process| drop(process.hear("done")));
    hardware
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn ranks_use_shared_memory_within_a_host_and_verbs_between() {
    assert_eq!(job(Over::ShmAndVerbs), [0; HOSTS.len()]);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn ranks_use_shared_memory_within_a_host_and_tcp_between() {
    assert_eq!(job(Over::ShmAndTcp), [0; HOSTS.len()]);
}

#[test]
#[ignore = "needs two hosts with an RDMA device: ci/test failures"]
fn a_nic_matches_what_comes_from_other_hosts_and_nothing_from_this_one() {
    for hardware in job(Over::ShmAndEmu) {
        let most = 2 * (TOTAL + RECEIVES as u64);
        assert!((1..=most).contains(&hardware), "{hardware} receives matched by the NIC");
    }
}
