//! Long messages that receiver and sender copy together: who copies what, and what a sender that
//! lies or breaks rules can do.

mod common;
#[allow(dead_code, reason = "a part of it")]
mod hostile_peer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tagmatch_device::{Buffer, Device, DownReason, PeerId, ReadError, ReadRequest, RemoteSpan};
use tagmatch_os::process::{self, Pid};
use tagmatch_shm::fuzzing::{Hello, Nonce, ReadMessage};
use tagmatch_shm::{ReadPolicy, SenderWrites, Shm, ShmConfig};

use common::{
    Owned, READER, connect, crowd, fall_asleep, pattern, poll, read_end, shm, sleep, wait_for,
};
use hostile_peer::{Bystanders, HostilePeer, RawSocket, hello, invented};

/// A message of 24 pieces, of which one poll of the receiver reads the first 8.
const LENGTH: usize = 3 << 20;
const PIECE: usize = 128 << 10;
/// The flag of a message between devices.
const INTERNAL: u32 = 1 << 28;

/// Two workers, and a buffer of the second one that the first may read.
struct Pair {
    reader: Shm,
    sender: Shm,
    to_sender: PeerId,
    remote: RemoteSpan,
}

impl Pair {
    fn new(reader: ShmConfig, sender: ShmConfig) -> Self {
        let mut reader = shm(reader);
        let mut sender = shm(sender);
        let (to_sender, to_reader) = connect(&mut reader, &mut sender);
        let remote = sender.expose(to_reader, Buffer::from(pattern(1, LENGTH))).unwrap().span;
        Pair { reader, sender, to_sender, remote }
    }

    /// Begins to read, and polls the sender until it has nothing left to do. Returns the bytes that
    /// lie at the end of the buffer then, which the receiver has not come to.
    fn begin(&mut self, into: Buffer) -> Vec<u8> {
        let end = into.as_ptr().addr() + LENGTH - PIECE;
        let peer = self.to_sender;
        let remote = self.remote;
        self.reader.read(ReadRequest { peer, remote, into, token: 1 }).unwrap();
        assert!(self.reader.poll().is_none());
        for _ in 0..100 {
            assert!(self.sender.poll().is_none());
        }
        let mut bytes = vec![0; PIECE];
        // By the kernel, since the buffer is the device's.
        assert_eq!(process::read_memory(Pid::own(), end as u64, &mut bytes).unwrap(), PIECE);
        bytes
    }

    fn end(&mut self) -> (Buffer, Result<(), ReadError>) {
        read_end(&mut [&mut self.reader])
    }
}

#[test]
fn a_sender_that_polls_copies_from_the_end() {
    let mut pair = Pair::new(ShmConfig::default(), ShmConfig::default());
    assert_eq!(pair.begin(Buffer::zeroed(LENGTH)), pattern(1, LENGTH)[LENGTH - PIECE..]);
    let (into, result) = pair.end();
    assert_eq!(result, Ok(()));
    assert_eq!(into[..], pattern(1, LENGTH));
    // Also the next one, into memory of the device.
    let buffer = pair.reader.allocate(LENGTH).unwrap();
    assert_eq!(pair.begin(buffer), pattern(1, LENGTH)[LENGTH - PIECE..]);
    assert_eq!(pair.end().0[..], pattern(1, LENGTH));
}

#[test]
fn a_sender_that_does_not_poll_costs_nothing() {
    let mut pair = Pair::new(ShmConfig::default(), ShmConfig::default());
    let peer = pair.to_sender;
    let remote = pair.remote;
    for length in [0, 1, 65_535, 65_536, 65_537, 100_000, 262_144, LENGTH] {
        let remote = RemoteSpan { length: length as u64, ..remote };
        let into = Buffer::zeroed(length);
        pair.reader.read(ReadRequest { peer, remote, into, token: 1 }).unwrap();
        let (into, result) = pair.end();
        assert_eq!(result, Ok(()));
        assert_eq!(into[..], pattern(1, LENGTH)[..length]);
    }
}

#[test]
fn reads_of_all_lengths_are_whole_while_both_copy() {
    let mut pair = Pair::new(ShmConfig::default(), ShmConfig::default());
    let peer = pair.to_sender;
    let whole = pair.remote;
    // Several at a time: one of them is offered.
    for lengths in [[65_536, 65_537, 1 << 20], [LENGTH, 3, 200_000], [131_071, LENGTH, LENGTH]] {
        for (token, length) in (0..).zip(lengths) {
            let remote = RemoteSpan { length: length as u64, ..whole };
            let into = Buffer::zeroed(length);
            pair.reader.read(ReadRequest { peer, remote, into, token }).unwrap();
        }
        let mut left = lengths.len();
        let Pair { reader, sender, .. } = &mut pair;
        wait_for(&mut [reader, sender], "all bytes", |_, event| match event {
            Owned::ReadDone(_, into, result) => {
                assert_eq!(result, Ok(()));
                assert_eq!(into[..], pattern(1, LENGTH)[..into.len()]);
                left -= 1;
                (left == 0).then_some(())
            }
            other => panic!("{other:?}"),
        });
    }
}

#[test]
fn each_side_can_refuse() {
    let good = ShmConfig::default;
    let untouched = vec![0; PIECE];
    for (reader, sender) in [
        (good(), good().sender_copies(false)),
        (good(), good().read(ReadPolicy::Copied)),
        (good().sender_writes(SenderWrites::Nowhere), good()),
    ] {
        let mut pair = Pair::new(reader, sender);
        assert_eq!(pair.begin(Buffer::zeroed(LENGTH)), untouched);
        let (into, result) = pair.end();
        assert_eq!((into[..] == pattern(1, LENGTH), result), (true, Ok(())));
    }
}

#[test]
fn memory_of_a_caller_is_written_only_where_that_is_allowed() {
    for (sender_writes, is_written) in
        [(SenderWrites::OwnedBuffers, false), (SenderWrites::AllBuffers, true)]
    {
        let reader = ShmConfig::default().sender_writes(sender_writes);
        let mut pair = Pair::new(reader, ShmConfig::default());
        let mut memory = vec![0u8; LENGTH];
        let start = std::ptr::NonNull::from(&mut memory[..]).cast();
        // SAFETY: `memory` lives until the buffer is back, and nothing else uses it meanwhile.
        let buffer = unsafe { Buffer::from_raw(start, LENGTH, true) };
        let end = pair.begin(buffer);
        assert_eq!(end == pattern(1, LENGTH)[LENGTH - PIECE..], is_written);
        let (into, result) = pair.end();
        assert_eq!(result, Ok(()));
        drop(into);
        assert_eq!(memory, pattern(1, LENGTH));
    }
}

#[test]
fn memory_of_the_device_is_read_by_the_receiver_alone() {
    let mut pair = Pair::new(ShmConfig::default(), ShmConfig::default());
    let mut buffer = pair.sender.allocate(LENGTH).unwrap();
    buffer.as_mut_slice().unwrap().fill(4);
    pair.remote = pair.sender.expose(READER, buffer).unwrap().span;
    assert_eq!(pair.begin(Buffer::zeroed(LENGTH)), vec![0; PIECE]);
    assert_eq!(pair.end().0[..], vec![4; LENGTH]);
}

/// The sender's memory stays, as that of another process with its pid might.
#[test]
fn a_read_fails_if_the_sender_has_hung_up() {
    let mut memory = vec![6u8; LENGTH];
    let start = std::ptr::NonNull::from(&mut memory[..]).cast();
    let mut reader = shm(ShmConfig::default());
    let mut sender = shm(ShmConfig::default());
    let (peer, to_reader) = connect(&mut reader, &mut sender);
    // SAFETY: `memory` outlives the sender, and nothing else uses it.
    let buffer = unsafe { Buffer::from_raw(start, LENGTH, false) };
    let remote = sender.expose(to_reader, buffer).unwrap().span;
    let into = Buffer::zeroed(LENGTH);
    reader.read(ReadRequest { peer, remote, into, token: 1 }).unwrap();
    assert!(reader.poll().is_none());
    drop(sender);
    let result = read_end(&mut [&mut reader]).1;
    assert_eq!(result, Err(ReadError::PeerDown));
}

/// Its owner takes the buffer back after the reader has sent its offer.
#[test]
fn a_sender_copies_nothing_that_is_no_longer_exposed() {
    let mut pair = Pair::new(ShmConfig::default(), ShmConfig::default());
    let reader = READER;
    let other = pattern(2, LENGTH);
    let peer = pair.to_sender;
    let remote = pair.remote;
    let into = Buffer::zeroed(LENGTH);
    let end = into.as_ptr().addr() + LENGTH - PIECE;
    pair.reader.read(ReadRequest { peer, remote, into, token: 1 }).unwrap();
    assert!(pair.reader.poll().is_none());
    // The offer is in the ring. The buffer goes, and another one comes to its place.
    let id = tagmatch_device::ExposureId(remote.key);
    let mut buffer = pair.sender.withdraw(reader, id).unwrap();
    buffer.as_mut_slice().unwrap().copy_from_slice(&other);
    let again = pair.sender.expose(reader, buffer).unwrap();
    assert_ne!(again.span.key, remote.key);
    for _ in 0..100 {
        assert!(pair.sender.poll().is_none());
    }
    let mut bytes = vec![1; PIECE];
    process::read_memory(Pid::own(), end as u64, &mut bytes).unwrap();
    assert_eq!(bytes, vec![0; PIECE]);
}

/// A sender made by hand, which the victim reads from.
struct HostileSender {
    bystanders: Bystanders,
    peer: HostilePeer,
    memory: Vec<u8>,
    /// The victim reads it once, in the handshake.
    _nonce: Box<[u8; 16]>,
}

/// The victim's number of the hostile sender.
const SENDER: PeerId = PeerId(2);
/// Where the words of the claims are in a ring.
const CLAIMED: usize = 384;
const RELEASED: usize = CLAIMED + 8;
const NUMBER: u64 = 1 << 48;

impl HostileSender {
    fn new(seed: u8) -> Self {
        Self::of(ShmConfig::default(), seed)
    }

    fn of(config: ShmConfig, seed: u8) -> Self {
        let mut bystanders = Bystanders::new(config);
        let nonce = Box::new([seed; 16]);
        let greeting = hello(invented(&bystanders.victim.address(), seed));
        let nonce_address = nonce.as_ptr().expose_provenance() as u64;
        let greeting = Hello { nonce_address, nonce: Nonce(*nonce), ..greeting };
        let peer = HostilePeer::greet(&mut bystanders.victim, &greeting);
        HostileSender { bystanders, peer, memory: pattern(3, LENGTH), _nonce: nonce }
    }

    /// Has the victim begin to read. It offers pieces from 8 on.
    fn begin(&mut self) {
        self.begin_into(Buffer::from(vec![7; LENGTH]));
    }

    fn begin_into(&mut self, into: Buffer) {
        let address = self.memory.as_ptr().expose_provenance() as u64;
        let remote = RemoteSpan { address, key: 1, length: LENGTH as u64 };
        let victim = &mut self.bystanders.victim;
        victim.read(ReadRequest { peer: SENDER, remote, into, token: 1 }).unwrap();
        assert!(victim.poll().is_none());
        assert_eq!(self.claimed(), NUMBER | 8 << 24);
    }

    /// Has the victim begin to read, and claims the last piece.
    fn begin_and_claim(&mut self) {
        self.begin();
        self.set(CLAIMED, self.claimed() + 1);
    }

    fn claimed(&self) -> u64 {
        HostilePeer::word(&self.peer.memory, self.peer.outgoing.header + CLAIMED)
            .load(Ordering::SeqCst)
    }

    fn set(&self, at: usize, word: u64) {
        HostilePeer::word(&self.peer.memory, self.peer.outgoing.header + at)
            .store(word, Ordering::SeqCst);
    }

    /// The end of the read, if it comes in a thousand polls.
    fn end(&mut self) -> Option<(Buffer, Result<(), ReadError>)> {
        (0..1000).find_map(|_| match poll(&mut self.bystanders.victim)? {
            Owned::ReadDone(1, into, result) => Some((into, result)),
            other => panic!("{other:?}"),
        })
    }
}

#[test]
fn a_claimed_piece_is_waited_for_and_holds_up_nothing_else() {
    let mut sender = HostileSender::new(1);
    sender.begin_and_claim();
    assert!(sender.end().is_none());
    assert!(sender.bystanders.exchange().is_empty());
    // Nothing is left to claim.
    assert_eq!(sender.claimed(), NUMBER | 23 << 24 | 1);
    // The worker can sleep.
    fall_asleep(&mut sender.bystanders.victim);
    assert!(!sleep(&sender.bystanders.victim, Duration::from_millis(20)));
    sender.bystanders.victim.disarm();
    sender.set(RELEASED, NUMBER | 1);
    let (into, result) = sender.end().unwrap();
    assert_eq!(result, Ok(()));
    // It has lied: there are the bytes of the buffer.
    assert_eq!(into[..LENGTH - PIECE], pattern(3, LENGTH)[..LENGTH - PIECE]);
    assert_eq!(into[LENGTH - PIECE..], vec![7; PIECE]);
}

#[test]
fn a_piece_that_the_sender_gives_back_is_read() {
    let mut sender = HostileSender::new(2);
    sender.begin_and_claim();
    assert!(sender.end().is_none());
    const FAILED: u64 = 1 << 47;
    sender.set(RELEASED, NUMBER | FAILED | 1);
    let (into, result) = sender.end().unwrap();
    assert_eq!((into[..] == pattern(3, LENGTH), result), (true, Ok(())));
}

#[test]
fn claims_that_cannot_be_end_the_connection() {
    let good = NUMBER | 8 << 24;
    for (seed, (claimed, released)) in (10..).zip([
        (good + 17, NUMBER),
        (good - NUMBER, NUMBER),
        (good + (1 << 24), NUMBER),
        (u64::MAX, NUMBER),
        (good + 1, NUMBER | 2),
        (good + 1, 1),
        (good, u64::MAX),
    ]) {
        let mut sender = HostileSender::new(seed);
        sender.begin();
        sender.set(CLAIMED, claimed);
        sender.set(RELEASED, released);
        let mut is_back = false;
        wait_for(&mut [&mut sender.bystanders.victim], "the end", |_, event| match event {
            Owned::ReadDone(1, into, result) => {
                assert_eq!((into.len(), result), (LENGTH, Err(ReadError::PeerDown)));
                is_back = true;
                None
            }
            Owned::Down(SENDER, DownReason::Misbehaved { .. }) => is_back.then_some(()),
            other => panic!("{other:?}"),
        });
        assert!(sender.bystanders.exchange().is_empty());
    }
}

#[test]
fn a_disconnected_peer_keeps_the_buffer_until_its_piece_is_back() {
    let mut sender = HostileSender::new(30);
    sender.begin_and_claim();
    let nonce_of_the_victim = |sender: &HostileSender| {
        let mut nonce = Nonce([1; 16]);
        let address = sender.peer.theirs.nonce_address;
        process::read_memory(Pid::own(), address, &mut nonce.0).unwrap();
        nonce
    };
    assert_eq!(nonce_of_the_victim(&sender), sender.peer.theirs.nonce);
    sender.bystanders.victim.disconnect(SENDER);
    // It may read nothing more, claim nothing more, and disturbs nobody.
    assert_eq!(nonce_of_the_victim(&sender), Nonce([0; 16]));
    assert!(sender.bystanders.exchange().is_empty());
    assert!(sender.end().is_none());
    assert_eq!(sender.claimed(), NUMBER | 23 << 24 | 1);
    sender.set(RELEASED, NUMBER | 1);
    let (into, result) = sender.end().unwrap();
    assert_eq!((into.len(), result), (LENGTH, Err(ReadError::PeerDown)));
    let down = poll(&mut sender.bystanders.victim);
    assert!(matches!(down, Some(Owned::Down(SENDER, DownReason::Disconnected))), "{down:?}");
    assert!(sender.bystanders.exchange().is_empty());
}

/// Also if a thread watches the sender's lifeline.
#[test]
fn a_disconnected_peer_that_hangs_up_gives_the_buffer_back() {
    for has_crowd in [false, true] {
        let mut sender = HostileSender::new(31);
        let victim = &mut sender.bystanders.victim;
        let _crowd = has_crowd.then(|| crowd(victim));
        sender.begin_and_claim();
        sender.bystanders.victim.disconnect(SENDER);
        assert!(sender.end().is_none());
        sender.peer.socket = RawSocket(RawSocket::socket());
        let victim = &mut sender.bystanders.victim;
        let result = read_end(&mut [victim]).1;
        assert_eq!(result, Err(ReadError::PeerDown));
    }
}

#[test]
fn a_worker_that_is_dropped_leaves_the_buffer_to_the_sender() {
    let mut sender = HostileSender::new(31);
    let into = {
        sender.begin();
        let mut offer = [0; 8];
        // The address in the offer, behind its header.
        let slot = sender.peer.incoming.short + 8 + 32;
        let word = HostilePeer::word(&sender.peer.memory, slot).load(Ordering::SeqCst);
        offer.copy_from_slice(&word.to_le_bytes());
        u64::from_le_bytes(offer)
    };
    sender.set(CLAIMED, sender.claimed() + 1);
    let HostileSender { bystanders, .. } = sender;
    drop(bystanders);
    // The memory is there, with what it had.
    let mut bytes = [0; 8];
    let last = into + LENGTH as u64 - 8;
    assert_eq!(process::read_memory(Pid::own(), last, &mut bytes).unwrap(), 8);
    assert_eq!(bytes, [7; 8]);
    assert!(process::write_memory(Pid::own(), last, &[9; 8]).is_ok());
    let start = std::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(into).unwrap());
    // SAFETY: the vector of `HostileSender::begin`, which the device has leaked. Its capacity is
    // its length.
    drop(unsafe { Vec::from_raw_parts(start, LENGTH, LENGTH) });
}

#[test]
fn a_worker_that_is_dropped_waits_for_the_sender_in_memory_of_a_caller() {
    let config = ShmConfig::default().sender_writes(SenderWrites::AllBuffers);
    let mut sender = HostileSender::of(config, 32);
    let mut memory = vec![7u8; LENGTH];
    let start = std::ptr::NonNull::from(&mut memory[..]).cast();
    // SAFETY: `memory` lives until the worker is dropped, and nothing else uses it meanwhile.
    sender.begin_into(unsafe { Buffer::from_raw(start, LENGTH, true) });
    sender.set(CLAIMED, sender.claimed() + 1);
    let HostileSender { bystanders, peer, .. } = sender;
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| drop(bystanders));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!dropping.is_finished());
        HostilePeer::word(&peer.memory, peer.outgoing.header + RELEASED)
            .store(NUMBER | 1, Ordering::SeqCst);
        dropping.join().unwrap();
    });
}

/// A receiver made by hand, before a worker looks at its offer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiver {
    IsThere,
    HasHungUp,
    /// Its process' number means another process, or its worker has let go of the buffer.
    HasNoNonce,
    /// It has the worker write beyond the end of all addresses.
    HasNoRoom,
}

/// Whether a worker writes where a receiver has it write. In a crowd, a thread watches the
/// receiver's lifeline.
fn writes_for_a_receiver(sender_copies: bool, receiver: Receiver, has_crowd: bool) -> bool {
    let mut bystanders = Bystanders::new(ShmConfig::default().sender_copies(sender_copies));
    let nonce = [5, 5].map(AtomicU64::new);
    let nonce_address = nonce.as_ptr().expose_provenance() as u64;
    let greeting = hello(invented(&bystanders.victim.address(), 40));
    let contents = Nonce((5u128 | 5 << 64).to_ne_bytes());
    let greeting = Hello { nonce_address, nonce: contents, ..greeting };
    let mut peer = HostilePeer::greet(&mut bystanders.victim, &greeting);
    let _crowd = has_crowd.then(|| crowd(&mut bystanders.victim));
    let span = bystanders.victim.expose(SENDER, Buffer::from(vec![9; LENGTH])).unwrap().span;
    let target = vec![0u8; LENGTH];
    let target_address = target.as_ptr().expose_provenance() as u64;
    HostilePeer::word(&peer.memory, peer.incoming.header + CLAIMED).store(NUMBER, Ordering::SeqCst);
    let offer = ReadMessage::Offer { number: 1, span }.emit();
    let has_room = receiver != Receiver::HasNoRoom;
    let offered = if has_room { target_address } else { u64::MAX - PIECE as u64 };
    let offer = [&offer[..], &offered.to_le_bytes()].concat();
    peer.write_slot(INTERNAL | 40, &offer);
    match receiver {
        Receiver::IsThere | Receiver::HasNoRoom => {}
        Receiver::HasHungUp => drop(peer.socket),
        Receiver::HasNoNonce => nonce[1].store(0, Ordering::SeqCst),
    }
    for _ in 0..100 {
        bystanders.victim.poll();
    }
    let mut bytes = vec![0; LENGTH];
    process::read_memory(Pid::own(), target_address, &mut bytes).unwrap();
    bytes.contains(&9)
}

#[test]
fn a_worker_writes_for_a_receiver_that_is_there_if_it_may() {
    for has_crowd in [false, true] {
        assert!(writes_for_a_receiver(true, Receiver::IsThere, has_crowd));
        assert!(!writes_for_a_receiver(false, Receiver::IsThere, has_crowd));
    }
    assert!(!writes_for_a_receiver(true, Receiver::HasHungUp, false));
    // The thread may not have seen the end yet, so the worker asks for the nonce.
    assert!(!writes_for_a_receiver(true, Receiver::HasNoNonce, true));
    assert!(!writes_for_a_receiver(true, Receiver::HasNoRoom, false));
}
