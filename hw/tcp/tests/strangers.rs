//! Connections of processes that don't know the secret, or that are no workers at all: none of them
//! gets in, keeps peers out, or makes a worker hold much.

mod common;

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tagmatch_device::{Address, Device, DownReason};
use tagmatch_secret::Role;
use tagmatch_tcp::{Tcp, TcpConfig};

use common::raw::{ANSWER, OPENING, QUESTION, Raw, address_of, invented, opening, proof, question};
use common::{
    Other, Owned, config, connect, exchange, hear_line, moved, next_up, place, poll, role, say,
    secret, tcp, wait_down, wait_for, wait_up,
};

fn quick() -> TcpConfig {
    config().connect_timeout(Duration::from_millis(300))
}

#[test]
fn garbage_is_closed_unanswered_and_no_peer_notices() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    let own = invented(1);
    let mut other_version = opening(&[1; 16], &own);
    other_version[4] += 1;
    let mut trailing = opening(&[1; 16], &own);
    trailing[80] = 1;
    let lines = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: a long name of a program, which fills it\r\n\r\n";
    for garbage in [&[0; OPENING][..], &[255; 4096], &lines.repeat(2), &other_version, &trailing] {
        let raw = Raw::connect(&a.address());
        // The device may close the connection before all is written.
        let _ = (&raw.0).write_all(garbage);
        assert!(raw.is_closed_by(&mut a));
        exchange(&mut a, to_b, &mut b);
    }
}

#[test]
fn a_caller_of_an_older_release_is_refused_although_it_knows_the_secret() {
    let mut a = tcp(config());
    let mut older = invented(1).as_bytes().to_vec();
    older[1] -= 1;
    let older = Address::from_bytes(&older).unwrap();
    let raw = Raw::greet(&mut a, &secret(7), &older);
    assert_ne!(raw.hear(&mut a, ANSWER).unwrap()[0], 0, "accepted");
    let refused = a.connect(&older).unwrap_err().to_string();
    assert!(refused.contains("tagmatch 0.0") && refused.contains("tagmatch 0.1"), "{refused}");
}

#[test]
fn another_secret_is_told_to_the_one_that_connects_and_to_nobody_else() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    let mut other = tcp(config().secret(Some(secret(8))));
    let to_a = other.connect(&a.address()).unwrap();
    let reason = wait_for(&mut [&mut other, &mut a], "the refusal", |index, event| match event {
        Owned::Down(peer, reason) if (index, peer) == (0, to_a) => Some(reason),
        other => panic!("{other:?}"),
    });
    assert!(
        matches!(reason, DownReason::Misbehaved { what } if what.contains("another secret")),
        "{reason:?}"
    );
    exchange(&mut a, to_b, &mut b);
}

/// Connections that end, or end their sending half, at each byte of a greeting.
#[test]
fn a_greeting_that_ends_early_costs_nothing() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    let whole = [opening(&[1; 16], &invented(1)), question(&[0; 32], 1 << 16)].concat();
    for length in 0..whole.len() {
        let raw = Raw::connect(&a.address());
        raw.say(&whole[..length]);
        raw.0.shutdown(Shutdown::Write).unwrap();
        if length >= OPENING {
            raw.hear(&mut a, OPENING).unwrap();
        }
        assert!(raw.is_closed_by(&mut a), "{length}");
    }
    exchange(&mut a, to_b, &mut b);
}

/// The bytes of a good greeting that a worker made by hand has sent, are good once.
#[test]
fn a_greeting_that_was_recorded_is_refused_by_every_worker() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let own = invented(1);
    let raw = Raw::connect(&a.address());
    let caller = opening(&[9; 16], &own);
    raw.say(&caller);
    let listener = raw.hear(&mut a, OPENING).unwrap();
    let asked = question(&proof(&secret(7), Role::Caller, &caller, &listener), 1 << 16);
    for to in [&mut a, &mut b] {
        let late = Raw::connect(&to.address());
        late.say(&[&caller[..], &asked].concat());
        let answer = late.hear(to, OPENING + ANSWER).unwrap();
        assert_eq!(answer[OPENING], 1, "refused for its proof");
        assert!(answer[OPENING + 1..].iter().all(|byte| *byte == 0), "and nothing is proved to it");
        assert!(late.is_closed_by(to));
    }
    // A proof for another role, another address, or with another secret.
    for wrong in 0..3u8 {
        let raw = Raw::connect(&a.address());
        raw.say(&caller);
        let listener = raw.hear(&mut a, OPENING).unwrap();
        let wrong = match wrong {
            0 => proof(&secret(7), Role::Listener, &caller, &listener),
            1 => proof(&secret(7), Role::Caller, &opening(&[9; 16], &invented(2)), &listener),
            _ => proof(&secret(8), Role::Caller, &caller, &listener),
        };
        raw.say(&question(&wrong, 1 << 16));
        assert_eq!(raw.hear(&mut a, ANSWER).unwrap()[0], 1, "refused for its proof");
    }
    // The connection that the greeting was made for is good all the same.
    raw.say(&asked);
    let up = next_up(&mut a);
    assert_eq!(a.peer_address(up), Some(own));
}

/// A listener that doesn't know the secret sends the caller's own proof back, or none.
#[test]
fn a_proof_that_is_sent_back_to_its_maker_is_wrong() {
    for (what, answer) in [("proof", true), ("no known reason", false)] {
        let impostor = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let wanted = moved(&invented(1), impostor.local_addr().unwrap());
        let mut a = tcp(config());
        let peer = a.connect(&wanted).unwrap();
        let raw = Raw(impostor.accept().unwrap().0);
        raw.0.set_nonblocking(true).unwrap();
        raw.hear(&mut a, OPENING).unwrap();
        raw.say(&opening(&[5; 16], &wanted));
        let asked = raw.hear(&mut a, QUESTION).unwrap();
        raw.say(&[&[if answer { 0 } else { 77 }][..], &asked].concat());
        let reason = wait_down(&mut a, peer);
        assert!(
            matches!(reason, DownReason::Misbehaved { what: found } if found.contains(what)),
            "{reason:?}"
        );
    }
}

/// Nothing is proved to a worker that isn't the wanted one, or to another program.
#[test]
fn a_port_of_another_worker_or_program_is_an_error_with_the_reason() {
    let mut a = tcp(config());
    let mut b = tcp(config());
    let gone = moved(&invented(9), place(&b.address()));
    let peer = a.connect(&gone).unwrap();
    let reason = wait_for(&mut [&mut a, &mut b], "the end", |index, event| match event {
        Owned::Down(down, reason) if (index, down) == (0, peer) => Some(reason),
        other => panic!("{other:?}"),
    });
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ECONNREFUSED });
    let program = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = a.connect(&moved(&invented(1), program.local_addr().unwrap())).unwrap();
    let (mut socket, _) = program.accept().unwrap();
    let page = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n";
    socket.write_all(&page.repeat(2)).unwrap();
    let reason = wait_down(&mut a, peer);
    assert!(
        matches!(reason, DownReason::Misbehaved { what } if what.contains("not a worker")),
        "{reason:?}"
    );
    // Nobody listens there, and an address of a family without a route.
    let vacant = program.local_addr().unwrap();
    drop(program);
    let peer = a.connect(&moved(&invented(2), vacant)).unwrap();
    let reason = wait_down(&mut a, peer);
    assert_eq!(reason, DownReason::Unreachable { errno: libc::ECONNREFUSED });
    // 2001:db8::/32 is for documentation. No machine has an address of it.
    let far = [&b"\x01\x01\x06\x20\x01\x0d\xb8"[..], &[0; 11], &[1]].concat();
    let mut a = tcp(quick());
    let peer = a.connect(&address_of(*b"nobody?", &far)).unwrap();
    assert!(matches!(wait_down(&mut a, peer), DownReason::Unreachable { .. }));
}

#[test]
fn a_stranger_that_says_too_little_is_closed_in_time() {
    let mut a = tcp(quick());
    let bytes = opening(&[1; 16], &invented(1));
    // Silence; a byte now and then; an opening without a proof; half a proof.
    let strangers: Vec<Raw> = (0..4).map(|_| Raw::connect(&a.address())).collect();
    strangers[2].say(&bytes);
    strangers[3].say(&[&bytes[..], &[7; 20]].concat());
    let start = Instant::now();
    let mut said = 0;
    while start.elapsed() < Duration::from_millis(900) {
        assert!(poll(&mut a).is_none());
        let _ = (&strangers[1].0).write(&bytes[said..=said]);
        said += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(said < OPENING, "the slow stranger has not said all");
    for (index, stranger) in strangers.iter().enumerate() {
        let rest = if index < 2 { Ok(()) } else { stranger.hear(&mut a, OPENING).map(drop) };
        assert!(rest.is_ok() && stranger.is_closed_by(&mut a), "{index}");
    }
}

/// Time in which the listening worker doesn't poll doesn't count against those that connect.
#[test]
fn a_listener_that_computes_loses_no_caller() {
    let mut a = tcp(quick());
    let mut b = tcp(quick());
    let to_a = b.connect(&a.address()).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1000) {
        assert!(poll(&mut b).is_none(), "a machine that has answered is waited for");
    }
    wait_for(&mut [&mut a, &mut b], "the connection", |index, event| match event {
        Owned::Up(peer, _) if index == 1 => (peer == to_a).then_some(()),
        Owned::Up(..) => None,
        other => panic!("{other:?}"),
    });
    // Nor does time count in which the caller computes.
    let mut c = tcp(quick());
    let to_a = c.connect(&a.address()).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..1000 {
        assert!(poll(&mut a).is_none());
    }
    std::thread::sleep(Duration::from_millis(500));
    wait_for(&mut [&mut a, &mut c], "the connection", |index, event| match event {
        Owned::Up(peer, _) if index == 1 => (peer == to_a).then_some(()),
        Owned::Up(..) => None,
        other => panic!("{other:?}"),
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Another process makes ten thousand connections and says nothing. The worker holds few of them,
/// and a peer connects meanwhile.
#[test]
fn ten_thousand_strangers_are_not_held_and_keep_no_peer_out() {
    let test = "ten_thousand_strangers_are_not_held_and_keep_no_peer_out";
    match role().as_deref() {
        Some("strangers") => return make_strangers(),
        Some(_) => {}
        // Other tests open descriptors as well.
        None => return Other::spawn(test, "alone").wait(),
    }
    let mut strangers = Other::spawn(test, "strangers");
    let mut a = tcp(config());
    let held_before = descriptors();
    let start = Instant::now();
    strangers.say(&a.address().to_string());
    let hears = std::thread::spawn(move || {
        let answers = [strangers.hear(), strangers.hear()];
        (strangers, answers)
    });
    let mut held_max = 0;
    let mut peer = None;
    let mut b = None;
    while peer.is_none() || !hears.is_finished() {
        assert!(start.elapsed() < common::PATIENCE);
        for _ in 0..100 {
            if let Some(event) = poll(&mut a) {
                let Owned::Up(up, _) = event else { panic!("{event:?}") };
                peer = Some(up);
            }
            if let Some(b) = &mut b {
                poll(b);
            }
        }
        held_max = held_max.max(descriptors() - held_before);
        if b.is_none() && start.elapsed() > Duration::from_millis(300) {
            let mut peer = tcp(config().connect_timeout(common::PATIENCE));
            peer.connect(&a.address()).unwrap();
            b = Some(peer);
        }
    }
    let (mut strangers, answers) = hears.join().unwrap();
    assert_eq!(answers[1], "10000");
    strangers.kill();
    assert!((100..300).contains(&held_max), "{held_max}");
    exchange(&mut a, peer.unwrap(), &mut b.unwrap());
}

fn make_strangers() {
    let place = place(&hear_line().parse().unwrap());
    // SAFETY: the structure lives through the calls.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    let mut held = Vec::new();
    for number in 1..=10_000u32 {
        // Connections beyond the limit of this process replace earlier ones.
        match Raw::connect_at(place) {
            Ok(raw) => held.push(raw),
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::EADDRNOTAVAIL)) =>
            {
                held.truncate(held.len() / 2);
            }
            Err(error) => panic!("{error}"),
        }
        if number == 5000 || number == 10_000 {
            say(number);
        }
    }
    hear_line();
}

/// A worker without descriptors keeps its peers, and takes others when there are descriptors again.
#[test]
fn a_worker_without_descriptors_serves_its_peers_and_recovers() {
    if role().is_none() {
        let test = "a_worker_without_descriptors_serves_its_peers_and_recovers";
        return Other::spawn(test, "alone").wait();
    }
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, _) = connect(&mut a, &mut b);
    let mut c = tcp(config());
    let to_a = c.connect(&a.address()).unwrap();
    // SAFETY: the structure lives through the call.
    unsafe {
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    let error = Tcp::new(config()).unwrap_err().to_string();
    assert!(error.contains("os error 24"), "{error}");
    for _ in 0..2000 {
        assert!(poll(&mut a).is_none() && poll(&mut c).is_none());
    }
    exchange(&mut a, to_b, &mut b);
    drop(taken);
    wait_for(&mut [&mut c, &mut a], "the connection", |index, event| match event {
        Owned::Up(peer, _) if index == 0 => (peer == to_a).then_some(()),
        Owned::Up(..) => None,
        other => panic!("{other:?}"),
    });
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[test]
fn refusals_are_logged_once_for_each_machine() {
    if role().is_none() {
        return Other::spawn("refusals_are_logged_once_for_each_machine", "alone").wait();
    }
    log::set_logger(&Lines).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let mut a = tcp(config());
    let mut b = tcp(config());
    for to in [&mut a, &mut b] {
        for garbage in [&[0; OPENING], &[1; OPENING], &[2; OPENING]] {
            let raw = Raw::connect(&to.address());
            raw.say(garbage);
            assert!(raw.is_closed_by(to));
        }
    }
    // A connection that ends without a byte is no refusal: monitors do that.
    drop(Raw::connect(&a.address()));
    let lines = LINES.lock().unwrap();
    assert_eq!(lines.len(), 2, "one for each worker: {lines:?}");
    assert!(lines[0].contains("127.0.0.1") && lines[0].contains("not a worker of tagmatch"));
}

#[test]
fn a_worker_without_a_secret_neither_listens_nor_connects() {
    if role().is_none() {
        return Other::spawn("a_worker_without_a_secret_neither_listens_nor_connects", "alone")
            .wait();
    }
    // SAFETY: this process has one thread beside the test's, which reads no variable.
    unsafe {
        std::env::remove_var(tagmatch_secret::SECRET);
        std::env::remove_var(tagmatch_secret::SECRET_FILE);
    }
    let error = Tcp::new(config().secret(None)).unwrap_err().to_string();
    assert!(error.contains("TAGMATCH_SECRET_FILE"), "{error}");
    // SAFETY: as above.
    unsafe { std::env::set_var(tagmatch_secret::SECRET, "0123456789abcdef") };
    let mut a = tcp(config().secret(None));
    let secret = tagmatch_tcp::Secret::from_bytes(b"0123456789abcdef").ok();
    let mut b = tcp(config().secret(secret));
    let to_a = b.connect(&a.address()).unwrap();
    let other = std::thread::spawn(move || {
        next_up(&mut a);
        a
    });
    wait_up(&mut b, to_a);
    other.join().unwrap();
}
