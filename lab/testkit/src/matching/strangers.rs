//! Strangers, impostors, other users, and peers that break the rules of the handshake.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use rustix::process::geteuid;
use rustix::thread::{Uid, set_thread_uid};
use tagmatch_device::matching::MatchingDevice;
use tagmatch_device::{Address, DownReason, PeerId};

use super::fixture::{Fixture, Settings};
use super::raw::{self, Raw, Role};
use super::support::*;
use crate::device::{Other, hear_line, role, say};

/// Bytes that UCX takes for no worker's address: it ends the process if it is given them.
const NO_WORKER: [u8; 64] = [0xee; 64];
const READY: &[u8] = &[2];
const BYE: &[u8] = &[4];

/// Both devices exchange a message, and `b` can still be connected to.
fn are_unharmed<F: Fixture>(a: &mut F::Device, b: &mut F::Device, to_b: PeerId, way: &str) {
    a.send(send_of(to_b, 1, b"unharmed")).unwrap();
    receive(b, exactly(1), 8, 1);
    assert_eq!(expect(a, b, 1).1, b"unharmed");
    connect(&mut up::<F>(way), b);
}

/// Strangers harm nobody.
pub fn strangers_harm_nobody<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        let address = b.address();
        let opening = [&raw::opening::<F>()[..], b"sixteen bytes 16"].concat();
        let attacks: Vec<Vec<u8>> = vec![
            vec![],
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            [&raw::opening_of_another_release::<F>()[..], b"sixteen bytes 16"].concat(),
            opening.clone(),
            [&opening[..], &[0; 16], &raw::hello(&a.address(), 1, &NO_WORKER)].concat(),
            (0..100_000u32).map(|n| (n * 7) as u8).collect(),
        ];
        for attack in &attacks {
            let mut open = raw::both::<F>(&address);
            for stream in &mut open {
                // It may have hung up already.
                let _ = stream.write_all(attack);
            }
            poll_for(&mut b, Duration::from_millis(2));
        }
        // What everybody can read instead of the secret: the name, twice as long.
        for guess in [[0; 16], [&address.as_bytes()[5..13]; 2].concat().try_into().unwrap()] {
            for stream in raw::both::<F>(&address) {
                let mut raw = Raw::meet::<F>(stream, &mut b, Role::Caller, guess);
                raw.say(&raw::hello(&a.address(), 1, &NO_WORKER));
                assert_eq!(raw.hear(&mut b), None);
            }
        }
        // More strangers than are listened to.
        let crowd: Vec<_> = (0..80).flat_map(|_| raw::both::<F>(&address)).collect();
        for _ in 0..3000 {
            assert!(b.poll().is_none());
        }
        drop(crowd);
        are_unharmed::<F>(&mut a, &mut b, to_b, &way);
    }
}

/// Callers that know the address and break the rules are hung up on.
pub fn callers_that_know_the_address_and_break_the_rules_are_hung_up_on<F: Fixture>() {
    for way in F::ways() {
        let (mut a, mut b, to_b, _) = pair::<F>(&way);
        let address = b.address();
        let other = raw::address::<F>([3; 16], 1);
        let good = raw::hello(&other, 1, &NO_WORKER);
        let packets: Vec<Vec<u8>> = vec![
            vec![],
            READY.to_vec(),
            BYE.to_vec(),
            vec![3, 99],
            vec![9],
            raw::hello(&other, u64::MAX, &NO_WORKER),
            raw::hello(&other, 1, &[0xee; 2]),
            raw::hello(&other, 1, &vec![0xee; 1 << 17]),
            good[..70].to_vec(),
        ];
        let attempts =
            packets.iter().flat_map(|packet| raw::both::<F>(&address).map(|way| (packet, way)));
        for (packet, stream) in attempts {
            let mut raw = Raw::meet::<F>(stream, &mut b, Role::Caller, raw::secret(&address));
            raw.say(packet);
            // At most it is told that it is refused.
            let answer = raw.hear(&mut b);
            assert!(answer.as_ref().is_none_or(|answer| answer[0] == 3), "{answer:?}");
        }
        // A greeting that was changed on its way.
        for at in [0, 20, good.len() + 5] {
            let stream = Box::new(raw::by_tcp(&address));
            let mut raw = Raw::meet::<F>(stream, &mut b, Role::Caller, raw::secret(&address));
            let mut sealed = raw.seal(&good);
            sealed[4 + at] ^= 1;
            raw.stream.write_all(&sealed).unwrap();
            assert_eq!(raw.hear(&mut b), None);
        }
        are_unharmed::<F>(&mut a, &mut b, to_b, &way);
    }
}

/// A device that has connected to a raw end over TCP, which borrows the device's own worker for its
/// answer.
fn connected_to_raw<F: Fixture>(way: &str) -> (F::Device, PeerId, Raw, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = raw::address::<F>([3; 16], listener.local_addr().unwrap().port());
    let mut a = up::<F>(way);
    let peer = a.connect(&address).unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut raw = Raw::meet::<F>(Box::new(stream), &mut a, Role::Listener, [3; 16]);
    let greeting = raw.hear(&mut a).unwrap();
    let worker = raw::worker_of(&greeting);
    raw.say(&raw::hello(&address, 0, &worker));
    assert_eq!(raw.hear(&mut a).as_deref(), Some(READY));
    (a, peer, raw, worker)
}

/// A peer that goes on to talk after the handshake goes down.
pub fn a_peer_that_goes_on_to_talk_after_the_handshake_goes_down<F: Fixture>() {
    for packet in [READY, &[3, 0], &[1]] {
        let (mut a, peer, mut raw, _) = connected_to_raw::<F>(&F::ways()[0]);
        raw.say(packet);
        let reason = down(&mut [&mut a], 0, peer);
        assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
    }
}

/// A peer says goodbye once.
pub fn a_peer_says_goodbye_once<F: Fixture>() {
    let (mut a, peer, mut raw, _) = connected_to_raw::<F>(&F::ways()[0]);
    raw.say(BYE);
    raw.say(BYE);
    let reason = down(&mut [&mut a], 0, peer);
    assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
}

/// A caller that is ready again and again goes down.
pub fn a_caller_that_is_ready_again_and_again_goes_down<F: Fixture>() {
    for way in F::ways() {
        let (_a, _, _raw, worker) = connected_to_raw::<F>(&way);
        let mut b = up::<F>(&way);
        let address = b.address();
        let stream = Box::new(raw::by_tcp(&address));
        let mut raw = Raw::meet::<F>(stream, &mut b, Role::Caller, raw::secret(&address));
        raw.say(&raw::hello(&raw::address::<F>([4; 16], 1), 0, &worker));
        let answer = raw.hear(&mut b).unwrap();
        assert_eq!(answer[0], 1, "{answer:?}");
        raw.say(READY);
        raw.say(READY);
        let reason = down(&mut [&mut b], 0, PeerId(1));
        assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
    }
}

/// A stranger who says nothing is sent away.
pub fn a_stranger_who_says_nothing_is_sent_away<F: Fixture>() {
    let way = &F::ways()[0];
    let connect_timeout = Duration::from_millis(20);
    let mut a = up_with::<F>(way, Settings { connect_timeout, ..Settings::default() });
    for stream in &mut raw::both::<F>(&a.address()) {
        let opening = raw::receive(&mut **stream, &mut a, 64);
        assert_eq!(opening.len(), 21);
    }
}

/// A listener in the place of a device that has gone.
pub fn an_impostor_is_not_believed<F: Fixture>() {
    let way = &F::ways()[0];
    let address = up::<F>(way).address();
    let listener = UnixListener::bind_addr(&raw::socket_name::<F>(&address)).unwrap();
    let wrong = [&raw::opening::<F>()[..], b"sixteen bytes 16a proof of 16 by."].concat();
    let old = raw::opening_of_another_release::<F>();
    for answer in [&wrong[..], &old, b"nonsense, and long"] {
        let mut a = up::<F>(way);
        let peer = a.connect(&address).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(answer).unwrap();
        drop(stream);
        // It isn't the peer, which is looked for elsewhere.
        let reason = down(&mut [&mut a], 0, peer);
        assert_eq!(reason, DownReason::Unreachable { errno: REFUSED });
    }
}

/// Needs root, to become another user.
pub fn no_byte_is_exchanged_with_another_user_on_this_machine<F: Fixture>() {
    let test = format!("{}no_byte_is_exchanged_with_another_user_on_this_machine", F::MODULE);
    if role().is_some() {
        // The other user of this thread, which makes the sockets.
        set_thread_uid(Uid::from_raw(65534)).unwrap();
        // Called by one who has the address: nothing, not even a challenge.
        let victim: Address = hear_line().parse().unwrap();
        let mut stream = raw::by_name::<F>(&victim);
        stream.set_nonblocking(false).unwrap();
        let _ = stream.write_all(&[&raw::opening::<F>()[..], b"sixteen bytes 16"].concat());
        assert!(matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)));
        // In the place of a device that has gone.
        let gone: Address = hear_line().parse().unwrap();
        let listener = UnixListener::bind_addr(&raw::socket_name::<F>(&gone)).unwrap();
        say("listening");
        let (mut stream, _) = listener.accept().unwrap();
        assert!(matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)));
        say("nothing came");
        return;
    }
    if !geteuid().is_root() {
        println!("SKIPPED: needs root, to become another user");
        return;
    }
    let way = &F::ways()[0];
    let (mut a, mut b, to_b, _) = pair::<F>(way);
    let gone = up::<F>(way).address();
    let mut other = Other::spawn(&test, "stranger");
    other.say(&b.address().to_string());
    other.say(&gone.to_string());
    let listener = std::thread::spawn(move || {
        assert_eq!(other.hear(), "listening");
        other
    });
    while !listener.is_finished() {
        assert!(b.poll().is_none());
    }
    let mut other = listener.join().unwrap();
    let peer = a.connect(&gone).unwrap();
    let reason = down(&mut [&mut a], 0, peer);
    assert_eq!(reason, DownReason::Unreachable { errno: REFUSED });
    assert_eq!(other.hear(), "nothing came");
    other.wait();
    are_unharmed::<F>(&mut a, &mut b, to_b, way);
}
