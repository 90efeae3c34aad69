//! Which addresses a worker listens on and announces, and which of a peer's addresses is taken.

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::time::{Duration, Instant};

use tagmatch_device::{Address, Device};
use tagmatch_tcp::{Tcp, TcpConfig};
use tagmatch_testkit::process::may_have_descriptors;

use common::raw::{ANSWER, Raw, frame, invented};
use common::{
    Owned, PATIENCE, config, connect, exchange, message, next_up, place, poll, secret, send, sleep,
    tcp, wait_for,
};

fn talk(a: TcpConfig, b: TcpConfig) {
    let mut a = tcp(a);
    let mut b = tcp(b);
    let (to_b, to_a) = connect(&mut a, &mut b);
    exchange(&mut a, to_b, &mut b);
    exchange(&mut b, to_a, &mut a);
}

fn has_v6() -> bool {
    let has = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !has {
        println!("SKIPPED: this machine has no IPv6; try: sysctl net.ipv6.conf.lo.disable_ipv6=0");
    }
    has
}

#[test]
fn workers_of_either_family_or_both_reach_each_other() {
    if !has_v6() {
        return;
    }
    let of = |hosts: &[IpAddr]| config().listen(hosts.to_vec());
    let (v4, v6): (IpAddr, IpAddr) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    talk(of(&[v6]), of(&[v6]));
    talk(of(&[v4]), of(&[v6]));
    talk(of(&[v4, v6]), of(&[v6, v4]));
    // All addresses of the machine.
    talk(of(&[]), of(&[v4]));
    talk(of(&[v6]), of(&[]));
}

#[test]
fn an_interface_is_named_and_what_is_announced_is_a_setting() {
    let lo = config().listen(Vec::new()).interfaces(vec!["lo".into()]);
    talk(lo.clone(), lo.clone());
    let none = lo.interfaces(vec!["no such".into()]);
    assert!(Tcp::new(none).unwrap_err().to_string().contains("interfaces"));
    let two = Ipv4Addr::new(127, 0, 0, 2);
    let behind = config().announce(vec![Ipv4Addr::LOCALHOST.into()]);
    talk(config(), behind.clone().listen(vec![Ipv4Addr::UNSPECIFIED.into()]));
    let a = tcp(behind.announce(vec![two.into()]));
    assert_eq!(place(&a.address()).ip(), IpAddr::V4(two));
}

#[test]
fn a_port_that_is_taken_is_an_error_and_is_free_after_its_worker() {
    let a = tcp(config());
    let port = place(&a.address()).port();
    let error = Tcp::new(config().port(port)).unwrap_err().to_string();
    assert!(error.contains("TcpConfig::listen, interfaces and port"), "{error}");
    drop(a);
    assert_eq!(place(&tcp(config().port(port)).address()).port(), port);
}

/// The hosts of an address are tried one after the other: nobody listens at the first, and another
/// worker at the second.
#[test]
fn a_host_that_is_another_worker_or_none_is_passed_over() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let port = place(&b.address()).port();
    let two = config().listen(vec![Ipv4Addr::new(127, 0, 0, 2).into()]).port(port);
    let mut other = tcp(two);
    let mut bytes = b.address().as_bytes().to_vec();
    bytes.truncate(11);
    bytes.extend(b"\x04\x7f\0\0\x03\x04\x7f\0\0\x02\x04\x7f\0\0\x01");
    let wanted = Address::from_bytes(&bytes).unwrap();
    // The address that the second worker has announced differs, so it isn't the wanted one, either.
    let peer = a.connect(&wanted).unwrap();
    let reason = wait_for(&mut [&mut a, &mut other, &mut b], "the end", |index, event| {
        match (index, event) {
            (0, Owned::Down(down, reason)) if down == peer => Some(reason),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(reason, tagmatch_device::DownReason::Unreachable { errno: libc::ECONNREFUSED });
    let hosts = vec![
        Ipv4Addr::new(127, 0, 0, 3).into(),
        Ipv4Addr::new(127, 0, 0, 2).into(),
        Ipv4Addr::LOCALHOST.into(),
    ];
    drop(b);
    let mut b = tcp(config().announce(hosts).port(port));
    let peer = a.connect(&b.address()).unwrap();
    wait_for(&mut [&mut a, &mut other, &mut b], "the connection", |index, event| match event {
        Owned::Up(up, _) if index == 0 => (up == peer).then_some(()),
        Owned::Up(..) if index == 2 => None,
        other => panic!("{other:?}"),
    });
}

#[test]
fn a_thousand_peers_are_served_and_cost_an_idle_worker_nothing() {
    const COUNT: u16 = 1000;
    if !may_have_descriptors(4096) {
        return;
    }
    let mut a = tcp(config());
    let mut peers = Vec::new();
    for number in 0..COUNT {
        let mut bytes = invented(0).as_bytes().to_vec();
        bytes[2..4].copy_from_slice(&number.to_le_bytes());
        let raw = Raw::greet(&mut a, &secret(7), &Address::from_bytes(&bytes).unwrap());
        let peer = next_up(&mut a);
        raw.hear(&mut a, ANSWER).unwrap();
        peers.push((raw, peer));
    }
    for (raw, peer) in &peers {
        raw.say(&frame(2, peer.0, b"hello"));
    }
    let mut left = peers.len();
    wait_for(&mut [&mut a], "all messages", |_, event| match event {
        Owned::Message(from, Some(number), bytes) => {
            assert!(from.0 == number && bytes == b"hello");
            left -= 1;
            (left == 0).then_some(())
        }
        other => panic!("{other:?}"),
    });
    for (raw, peer) in &peers {
        send(&mut a, *peer, message(b"back"), || {});
        assert_eq!(raw.hear(&mut a, 16).unwrap(), frame(1, 0, b"back"));
    }
    // The last look at acknowledgements is over within a second.
    let start = Instant::now();
    let mut wakes = 0;
    while start.elapsed() < Duration::from_secs(2) {
        assert!(poll(&mut a).is_none());
        if a.arm(&[]) {
            wakes += usize::from(sleep(&a, Duration::from_millis(500)));
            a.disarm();
        }
    }
    assert!(wakes < 5, "{wakes}");
}

/// Of two workers that call each other, only one is reachable: the other one's call gets as far as
/// a program that says nothing.
#[test]
fn workers_that_call_each_other_meet_although_one_is_not_reached() {
    let silent = Ipv4Addr::new(127, 0, 0, 5);
    let mut b = tcp(config().announce(vec![silent.into()]));
    let listener = TcpListener::bind((silent, place(&b.address()).port())).unwrap();
    listener.set_nonblocking(true).unwrap();
    // The worker of the smaller address would have the connection that counts.
    let mut a = loop {
        let a = tcp(config());
        if a.address() < b.address() {
            break a;
        }
    };
    let to_b = a.connect(&b.address()).unwrap();
    let start = Instant::now();
    let _taken = loop {
        assert!(poll(&mut a).is_none() && start.elapsed() < PATIENCE);
        if let Ok(taken) = listener.accept() {
            break taken;
        }
    };
    let to_a = b.connect(&a.address()).unwrap();
    let mut ups = Vec::new();
    wait_for(&mut [&mut a, &mut b], "both ends", |index, event| match event {
        Owned::Up(peer, _) => {
            ups.push((index, peer));
            (ups.len() == 2).then_some(())
        }
        other => panic!("{other:?}"),
    });
    assert!(ups.contains(&(0, to_b)) && ups.contains(&(1, to_a)), "{ups:?}");
    exchange(&mut a, to_b, &mut b);
}
