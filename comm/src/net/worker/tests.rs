use std::fmt::Error;

use tagmatch::{Address, Config, Tag, TagMask, WaitPolicy, Worker};

use super::place::{self, Place};
use super::{Mode, Net, Pattern, ProcessId, WAIT, WAIT_CROWDED, WorkerNet};
use crate::Runtime;

/// Makes progress until a death is told, and for some turns more; gives all that are told.
fn deaths(net: &mut WorkerNet) -> Vec<ProcessId> {
    let mut deaths = Vec::new();
    for _ in 0..1_000_000 {
        net.progress();
        deaths.extend(net.take_down());
        if !deaths.is_empty() {
            break;
        }
    }
    for _ in 0..100 {
        net.progress();
        deaths.extend(net.take_down());
    }
    deaths
}

#[test]
fn a_death_is_told_once_also_of_a_process_that_was_not_needed() {
    let workers = [(); 3].map(|()| Worker::new(Config::default()).unwrap());
    let addresses = workers.each_ref().map(Worker::address).to_vec();
    let mut nets = workers
        .into_iter()
        .zip(0..)
        .map(|(worker, rank)| WorkerNet::new(worker, addresses.clone(), rank).unwrap());
    let [mut own, mut needed, mut other] = [(); 3].map(|()| nets.next().unwrap());
    let oneself = ProcessId(0);
    own.watch(ProcessId(1));
    other.watch(oneself);
    for _ in 0..1000 {
        for net in [&mut own, &mut needed, &mut other] {
            net.progress();
        }
    }
    for (net, process) in [(other, ProcessId(2)), (needed, ProcessId(1))] {
        drop(net);
        assert_eq!(deaths(&mut own), [process]);
        assert!(own.is_down(process) && own.has_left(process));
    }
    assert!(!own.is_down(oneself) && !own.has_left(oneself));
}

#[test]
fn a_death_is_told_that_the_worker_knew_before_the_transport() {
    let [own, other] = [(); 2].map(|()| Worker::new(Config::default()).unwrap());
    let addresses = vec![own.address(), other.address()];
    let peer = own.connect(&addresses[1]).unwrap();
    for _ in 0..1000 {
        own.progress();
        other.progress();
    }
    drop(other);
    while own.peer_fault(peer).unwrap().is_none() {
        own.progress();
    }
    let mut net = WorkerNet::new(own, addresses, 0).unwrap();
    assert_eq!(net.take_down(), []);
    net.watch(ProcessId(1));
    assert_eq!(deaths(&mut net), [ProcessId(1)]);
}

/// A process of a job of two. The other one's worker says that it is on another machine, and both
/// are on shared memory alone.
fn beside_another_machine() -> WorkerNet {
    let [own, other] = [(); 2].map(|()| Worker::new(Config::default()).unwrap());
    let mut bytes = other.address().as_bytes().to_vec();
    // Version and name have 9 bytes; then comes the place.
    bytes[9] ^= 1;
    let addresses = vec![own.address(), Address::from_bytes(&bytes).unwrap()];
    WorkerNet::new(own, addresses, 0).unwrap()
}

#[test]
fn a_process_that_has_no_way_to_another_one_says_why_it_can_take_no_part() {
    let from = Some(ProcessId(1));
    let pattern = Pattern { tag: Tag(0), mask: TagMask::EXACT, from };
    let needs: [fn(&mut WorkerNet, Pattern); 7] = [
        |net, _| net.watch(ProcessId(1)),
        |net, _| drop(net.send(ProcessId(1), Tag(0), vec![1].into(), Mode::Standard)),
        |net, _| assert!(net.inject(ProcessId(1), Tag(0), &[1]).is_err()),
        |net, pattern| drop(net.receive(pattern, vec![0].into())),
        |net, pattern| drop(net.receive_by_tag(pattern, vec![0].into())),
        |net, pattern| assert!(net.probe(pattern).is_none()),
        |net, pattern| assert!(net.matched_probe(pattern).is_none()),
    ];
    for need in needs {
        let mut net = beside_another_machine();
        assert_eq!(net.failure(), None, "nothing was needed yet");
        need(&mut net, pattern);
        let why = net.failure().unwrap();
        assert!(why.starts_with("no connection to process 1: there is no way to it"), "{why}");
        assert!(!net.is_down(ProcessId(1)));
    }
}

#[test]
fn an_operation_with_a_process_of_an_unreachable_machine_ends() {
    let world = Runtime::new(beside_another_machine(), crate::Config::default()).unwrap().world();
    for ended in
        [world.barrier().wait(), world.recv(1, 7, vec![0]).wait().map(drop).map_err(Into::into)]
    {
        let error = ended.unwrap_err();
        assert!(matches!(&error, crate::Error::CountedOut { .. }), "{error}");
        assert!(error.to_string().contains("another machine, network namespace"), "{error}");
    }
}

/// The wait policy of a process whose job has other processes too, of which each gives one of these
/// bytes after a made-up address.
fn policy_beside(others: &[Vec<u8>]) -> WaitPolicy {
    let worker = Worker::new(Config::default()).unwrap();
    let exchange = |own: &[u8]| {
        let other = |(at, place): (usize, &Vec<u8>)| {
            let address = (at as u64 + 1).to_le_bytes();
            [&[8], &address[..], place].concat()
        };
        Ok::<_, Error>(
            [own.to_vec()].into_iter().chain(others.iter().enumerate().map(other)).collect(),
        )
    };
    WorkerNet::meet(worker, 0, exchange).unwrap().wait_policy()
}

#[test]
fn a_process_gives_way_at_once_if_more_share_its_processors_than_there_are() {
    let own = Place::of_thread().unwrap().to_string();
    let elsewhere = format!("x{own}");
    let count = place::own_processors();
    let beside = |here: usize, there: usize| {
        let places = [vec![own.clone(); here], vec![elsewhere.clone(); there]].concat();
        policy_beside(&places.into_iter().map(String::into_bytes).collect::<Vec<_>>())
    };
    assert_eq!(beside(0, 0), WAIT);
    assert_eq!(beside(count - 1, 0), WAIT, "a processor for each");
    assert_eq!(beside(count, 0), WAIT_CROWDED, "one process more");
    assert_eq!(beside(count - 1, 9), WAIT, "the others are on another machine");
    assert_eq!(policy_beside(&vec![b"nonsense".to_vec(); count]), WAIT, "they may be anywhere");
}

#[test]
fn a_process_that_gives_no_address_is_refused() {
    for bytes in [&[][..], &[1], &[9, 1, 2], &[0], &[255]] {
        let worker = Worker::new(Config::default()).unwrap();
        let exchange = |own: &[u8]| Ok::<_, Error>(vec![own.to_vec(), bytes.to_vec()]);
        assert!(WorkerNet::meet(worker, 0, exchange).is_err(), "{bytes:?}");
    }
}
