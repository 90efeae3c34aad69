//! Processes that are killed, and processes that leave, at different stages of a connection.

use std::process::exit;

use rustix::io::Errno;
use tagmatch_device::{
    Buffer, Device, DownReason, Flush, PeerId, ReadError, ReadRequest, Refused, RemoteSpan,
};

use super::Fixture;
use crate::device::{Other, Owned, hear_line, message, pattern, poll, role, say, wait_for};

const EXPOSED: usize = 64 << 20;
const READS: u64 = 16;
/// Messages of a peer that sends all that it has. They don't fit into what the system keeps.
const COUNT: usize = 2000;
/// Messages that fit.
const FEW: usize = 50;

fn numbered(number: usize) -> Vec<u8> {
    pattern(number, number * 37 % 3000)
}

/// Where something is exposed, as the bytes of a message.
fn bytes_of(span: RemoteSpan) -> Vec<u8> {
    [&span.address.to_le_bytes()[..], &span.key.to_le_bytes()].concat()
}

fn span_of(bytes: &[u8]) -> RemoteSpan {
    let (address, key) = bytes.split_at(8);
    let address = u64::from_le_bytes(address.try_into().unwrap());
    let key = u32::from_le_bytes(key.try_into().unwrap());
    RemoteSpan { address, key, length: EXPOSED as u64 }
}

/// The program of the other process. It does what its role says once a message has come, and is
/// killed if it doesn't end.
fn play<F: Fixture>(role: &str) -> ! {
    let mut device = F::usual();
    say(device.address());
    if role == "mute" {
        hear_line();
        exit(0);
    }
    let (peer, first) = loop {
        if let Some(Owned::Message(peer, _, bytes)) = poll(&mut device) {
            break (peer, bytes);
        }
    };
    let send_all = |device: &mut F::Device, count| {
        for number in 0..count {
            while device.send(peer, message(&numbered(number))) == Err(Refused::Full) {
                assert!(poll(device).is_none());
            }
        }
    };
    match role {
        "flush" => {
            send_all(&mut device, FEW);
            let mut mark = None;
            while device.flush(peer, &mut mark) != Flush::Done {
                assert!(poll(&mut device).is_none());
            }
            say("flushed");
            hear_line();
        }
        "leave" => {
            send_all(&mut device, COUNT);
            drop(device);
            exit(0);
        }
        "owner" => {
            let span = device.expose(peer, Buffer::zeroed(EXPOSED)).unwrap().span;
            device.send(peer, message(&bytes_of(span))).unwrap();
        }
        "reader" => {
            let remote = span_of(&first);
            let into = Buffer::zeroed(EXPOSED);
            device.read(ReadRequest { peer, remote, into, token: 1 }).unwrap();
        }
        _ => {}
    }
    let mut number = 0;
    loop {
        poll(&mut device);
        if role == "flood" && device.send(peer, message(&numbered(number))).is_ok() {
            number += 1;
        }
    }
}

/// A worker, and a peer of another process.
struct Served<F: Fixture> {
    other: Other,
    device: F::Device,
    peer: PeerId,
}

/// Starts the other process, connects to it, and tells it to begin.
fn serve<F: Fixture>(test: &str, part: &str) -> Served<F> {
    let mut other = Other::spawn(&format!("{}{test}", F::MODULE), part);
    let mut device = F::usual();
    let address = other.hear_address();
    let peer = device.connect(&address).unwrap();
    if part != "mute" {
        wait_for(&mut [&mut device], "the connection", |_, event| match event {
            Owned::Up(up, _) if up == peer => Some(()),
            other => panic!("{other:?}"),
        });
    }
    if part != "mute" && part != "reader" {
        device.send(peer, message(b"begin")).unwrap();
    }
    Served { other, device, peer }
}

impl<F: Fixture> Served<F> {
    /// Receives the peer's messages and the report of its end, and gives the number of messages.
    fn receive_to_the_end(&mut self, reason: &DownReason) -> usize {
        let mut next = 0;
        wait_for(&mut [&mut self.device], "the peer's end", |_, event| match event {
            Owned::Message(_, _, bytes) => {
                assert!(bytes == numbered(next));
                next += 1;
                None
            }
            Owned::Down(down, why) => {
                assert_eq!((down, &why), (self.peer, reason));
                Some(())
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(self.device.send(self.peer, message(b"late")), Err(Refused::Down));
        next
    }
}

/// A process that is killed before it answers is like one that isn't there.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_peer_that_dies_before_it_answers_is_unreachable<F: Fixture>() {
    if role().is_some() {
        play::<F>("mute");
    }
    let mut served = serve::<F>("a_peer_that_dies_before_it_answers_is_unreachable", "mute");
    for _ in 0..10_000 {
        assert!(served.device.poll().is_none());
    }
    served.other.kill();
    let errno = Errno::CONNREFUSED.raw_os_error();
    served.receive_to_the_end(&DownReason::Unreachable { errno });
}

/// A process is killed while it sends: what comes is in order and whole, and the death is told.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_death_in_the_middle_of_a_stream_is_noticed<F: Fixture>() {
    if role().is_some() {
        play::<F>("flood");
    }
    let Served { mut other, mut device, peer } =
        serve::<F>("a_death_in_the_middle_of_a_stream_is_noticed", "flood");
    let mut next = 0;
    let reason = wait_for(&mut [&mut device], "the peer's death", |_, event| match event {
        Owned::Message(_, _, bytes) => {
            assert!(bytes == numbered(next));
            next += 1;
            if next == F::MESSAGES / 20 {
                other.kill();
            }
            None
        }
        Owned::Down(down, reason) => {
            assert_eq!(down, peer);
            Some(reason)
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(reason, F::KILLED);
}

/// Messages that a process has flushed arrive before the report of its death, although the receiver
/// is busy until the process is dead.
///
/// # Panics
/// If the device breaks this promise.
pub fn flushed_messages_arrive_before_the_death<F: Fixture>() {
    if role().is_some() {
        play::<F>("flush");
    }
    let mut served = serve::<F>("flushed_messages_arrive_before_the_death", "flush");
    assert_eq!(served.other.hear(), "flushed");
    served.other.kill();
    assert_eq!(served.receive_to_the_end(&F::KILLED), FEW);
}

/// A process drops its device, and exits at once: everything that it has sent arrives first.
///
/// # Panics
/// If the device breaks this promise.
pub fn nothing_is_lost_when_a_process_drops_its_device_and_exits<F: Fixture>() {
    if role().is_some() {
        play::<F>("leave");
    }
    let test = "nothing_is_lost_when_a_process_drops_its_device_and_exits";
    let mut served = serve::<F>(test, "leave");
    assert_eq!(served.receive_to_the_end(&DownReason::Left), COUNT);
    let Served { other, mut device, peer } = served;
    let remote = RemoteSpan { address: 0, key: 0, length: EXPOSED as u64 };
    let request = ReadRequest { peer, remote, into: Buffer::zeroed(EXPOSED), token: 0 };
    assert!(matches!(device.read(request), Err((into, _)) if into.len() == EXPOSED));
    other.wait();
}

/// Reads of a process that is killed give their buffers back, before the report of its death.
///
/// # Panics
/// If the device breaks this promise.
pub fn reads_of_a_peer_that_is_killed_come_back<F: Fixture>() {
    if role().is_some() {
        play::<F>("owner");
    }
    let Served { mut other, mut device, peer } =
        serve::<F>("reads_of_a_peer_that_is_killed_come_back", "owner");
    let remote = wait_for(&mut [&mut device], "what is exposed", |_, event| match event {
        Owned::Message(_, _, bytes) => Some(span_of(&bytes)),
        other => panic!("{other:?}"),
    });
    for token in 0..READS {
        let into = Buffer::zeroed(EXPOSED);
        device.read(ReadRequest { peer, remote, into, token }).unwrap();
    }
    // The first ones are under way, or have ended.
    let mut tokens = Vec::new();
    let mut failed = 0;
    let mut back = |event| match event {
        Owned::ReadDone(token, into, result) => {
            assert_eq!(into.len(), EXPOSED);
            assert!(matches!(result, Ok(()) | Err(ReadError::PeerDown)), "{result:?}");
            failed += usize::from(result.is_err());
            tokens.push(token);
        }
        other => panic!("{other:?}"),
    };
    (0..10).filter_map(|_| poll(&mut device)).for_each(&mut back);
    other.kill();
    wait_for(&mut [&mut device], "the peer's death", |_, event| match event {
        Owned::Down(down, reason) => {
            assert_eq!((down, reason), (peer, F::KILLED));
            Some(())
        }
        other => {
            back(other);
            None
        }
    });
    assert!(failed > 0, "all reads had ended before the death");
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..READS));
}

/// A process that is killed while it reads leaves the buffer to its owner.
///
/// # Panics
/// If the device breaks this promise.
pub fn a_reader_that_is_killed_leaves_the_buffer_to_its_owner<F: Fixture>() {
    if role().is_some() {
        play::<F>("reader");
    }
    let mut served = serve::<F>("a_reader_that_is_killed_leaves_the_buffer_to_its_owner", "reader");
    let exposure = served.device.expose(served.peer, Buffer::zeroed(EXPOSED)).unwrap();
    served.device.send(served.peer, message(&bytes_of(exposure.span))).unwrap();
    for _ in 0..2000 {
        assert!(poll(&mut served.device).is_none());
    }
    served.other.kill();
    assert_eq!(served.receive_to_the_end(&F::KILLED), 0);
    assert_eq!(served.device.withdraw(served.peer, exposure.id).unwrap().len(), EXPOSED);
}
