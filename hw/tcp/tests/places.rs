//! The places of peers: one machine takes its share, peers that connect leave descriptors for those
//! that this worker connects to, and places of peers that went down are given back.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tagmatch_device::{Address, Device, DownReason};
use tagmatch_secret::Role;
use tagmatch_tcp::Tcp;
use tagmatch_testkit::process::share_descriptors;

use common::raw::{ANSWER, OPENING, Raw, invented, nowhere, opening, proof, question};
use common::{
    Other, Owned, PATIENCE, config, exchange, hear_line, next_down, place, poll, role, say, secret,
    tcp, wait_for, wait_up,
};

const ACCEPTED: u8 = 0;
const FULL: u8 = 4;

/// A peer that connects to an address of the device; gives what it is answered.
fn call(to: &mut Tcp, at: SocketAddr, name: &Address) -> (Raw, u8) {
    let raw = Raw::connect_at(at).unwrap();
    let caller = opening(&[3; 16], name);
    raw.say(&caller);
    let listener = raw.hear(to, OPENING).unwrap();
    raw.say(&question(&proof(&secret(7), Role::Caller, &caller, &listener), 1 << 16));
    let mut answer = [0; ANSWER];
    let start = Instant::now();
    while std::io::Read::read_exact(&mut &raw.0, &mut answer).is_err() {
        let event = poll(to);
        assert!(matches!(event, None | Some(Owned::Up(..))), "{event:?}");
        assert!(start.elapsed() < PATIENCE);
    }
    (raw, answer[0])
}

#[test]
fn one_machine_takes_its_share_under_whatever_names_and_no_more() {
    let others = tagmatch_os::stream::own_addresses().unwrap();
    let other = others.into_iter().find(|address| address.is_ipv4() && !address.is_loopback());
    let listen = [Some(Ipv4Addr::LOCALHOST.into()), other].into_iter().flatten().collect();
    let announce = vec![Ipv4Addr::LOCALHOST.into()];
    let mut a = tcp(config().host_peers_max(3).listen(listen).announce(announce));
    let loopback = place(&a.address());
    let calls: Vec<_> = (0..10).map(|name| call(&mut a, loopback, &invented(name))).collect();
    let (taken, refused) = calls.split_at(3);
    assert!(taken.iter().all(|(_, answer)| *answer == ACCEPTED));
    assert!(refused.iter().all(|(_, answer)| *answer == FULL));
    // A worker that this one connects to doesn't count, nor does another machine.
    let mut b = tcp(config());
    let to_b = a.connect(&b.address()).unwrap();
    wait_for(&mut [&mut a, &mut b], "the connection", |index, event| {
        (index == 0 && matches!(event, Owned::Up(peer, _) if peer == to_b)).then_some(())
    });
    while poll(&mut b).is_some() {}
    exchange(&mut a, to_b, &mut b);
    let _far = other.map(|host| {
        let (raw, answer) = call(&mut a, SocketAddr::new(host, loopback.port()), &invented(50));
        assert_eq!(answer, ACCEPTED);
        raw
    });
    // A place is free again after its peer.
    let mut calls = calls.into_iter();
    drop(calls.next());
    assert_eq!(next_down(&mut a).1, DownReason::Gone);
    let (_again, answer) = call(&mut a, loopback, &invented(60));
    assert_eq!(answer, ACCEPTED);
    assert_eq!(call(&mut a, loopback, &invented(61)).1, FULL);
}

/// A node with many ranks, all of which connect over loopback.
#[test]
fn the_default_lets_three_hundred_peers_of_loopback_in() {
    let _alone = many_descriptors();
    let mut a = tcp(config());
    let at = place(&a.address());
    let mut held = Vec::new();
    for number in 0..300u16 {
        let mut name = *b"nobodyy";
        name[5..].copy_from_slice(&number.to_le_bytes());
        let (raw, answer) = call(&mut a, at, &nowhere(name));
        assert_eq!(answer, ACCEPTED, "{number}");
        held.push(raw);
    }
}

/// The tests of this program that take more than half of the 1024 descriptors that some processes
/// may have: one at a time.
fn many_descriptors() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set_limit(limit: u64) {
    // It raises the limit once, for all tests of the program.
    share_descriptors();
    // SAFETY: the structure lives through the call.
    unsafe {
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now);
        now.rlim_cur = limit.min(now.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const now), 0);
    }
}

/// A process has 128 descriptors, and more workers connect to it than that.
#[test]
fn peers_that_connect_leave_descriptors_for_those_that_this_worker_connects_to() {
    const LIMIT: u64 = 128;
    if role().is_some() {
        return serve_with_few(LIMIT);
    }
    let test = "peers_that_connect_leave_descriptors_for_those_that_this_worker_connects_to";
    let _alone = many_descriptors();
    set_limit(u64::MAX);
    let mut server = Other::spawn(test, "server");
    let address = server.hear_address();
    let mut b = tcp(config());
    let mut clients: Vec<_> = (0..LIMIT).map(|_| tcp(config())).collect();
    for client in &mut clients {
        client.connect(&address).unwrap();
    }
    server.say(&b.address().to_string());
    let done = std::thread::spawn(move || {
        let reply = server.hear();
        server.wait();
        reply
    });
    while !done.is_finished() {
        for client in clients.iter_mut().chain([&mut b]) {
            let _ = poll(client);
        }
    }
    assert_eq!(done.join().unwrap(), "connected");
}

fn serve_with_few(limit: u64) {
    set_limit(limit);
    let mut server = tcp(config());
    say(server.address());
    let b: Address = hear_line().parse().unwrap();
    // Two of 128 are left. The descriptor that lists the others is one of them.
    let is_below = |entry: std::io::Result<std::fs::DirEntry>| {
        let number: u64 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        number < limit - 2
    };
    let used = std::fs::read_dir("/proc/self/fd").unwrap().map(is_below);
    let expected = limit - 2 + 1 - used.filter(|is_below| *is_below).count() as u64;
    let mut up = 0;
    let start = Instant::now();
    let mut full_since = None;
    while full_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
        match poll(&mut server) {
            Some(Owned::Up(..)) => up += 1,
            None => {}
            other => panic!("{other:?}"),
        }
        if up == expected {
            full_since.get_or_insert_with(Instant::now);
        }
        assert!(up <= expected && start.elapsed() < PATIENCE, "{up} of {expected} are up");
    }
    let to_b = server.connect(&b).unwrap();
    wait_up(&mut server, to_b);
    say("connected");
}
