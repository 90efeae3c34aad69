use tagmatch::{Config, Worker};

use super::{Net, ProcessId, WorkerNet, count};

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
        assert!(own.is_down(process));
    }
    assert!(!own.is_down(oneself));
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

#[test]
fn processors_are_counted_as_the_kernel_lists_them() {
    assert_eq!(count("0\n"), Some(1));
    assert_eq!(count("0-1\n"), Some(2));
    assert_eq!(count("0-3,8,10-11"), Some(7));
    for nonsense in ["", "x", "3-1", "0-", "0-18446744073709551615"] {
        assert_eq!(count(nonsense), None, "{nonsense}");
    }
}
