//! Datagrams of the handshake and signals, as a hostile process changes them.

use tagmatch_device::Address;
use tagmatch_secret::{PROOF_BYTES, Secret};
use tagmatch_testkit::hostile::{Legality, Meaning, Message, Room, try_all};

use super::address::BITS_24;
use super::config::MESSAGE_MAX;
use super::local_processes::ProcessName;
use super::wire::{DATAGRAM, Datagram, Handshake, LinkEnd, Refusal, Signal};

/// What of a datagram is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatagramLook {
    Contents,
    /// Its code, by a worker whose job has a secret.
    Code,
}

struct DatagramRoom {
    look: DatagramLook,
}

fn secret() -> Secret {
    Secret::from_bytes(b"a secret of this job alone").unwrap()
}

impl Room for DatagramRoom {
    type Situation = DatagramLook;
    type Sender = ();

    fn enter(look: DatagramLook) -> Self {
        DatagramRoom { look }
    }

    fn takes(_: DatagramLook, (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        if self.look == DatagramLook::Code {
            return Datagram::is_proven(bytes, Some(&secret()));
        }
        Datagram::parse(bytes).is_some_and(|datagram| {
            assert_eq!(Datagram::parse(&datagram.emit(None)), Some(datagram));
            true
        })
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

fn datagrams() -> [Datagram; 3] {
    let end = LinkEnd {
        qp_num: 9,
        receive_qp_num: 10,
        psn: 11,
        message_max: 4096,
        reads_max: 4,
        mtu: 3,
        process: ProcessName { realm: 12, pid: 13 },
    };
    let of = |handshake| Datagram {
        to: *b"0123456",
        from: Address::from_bytes(&[7; 40]).unwrap(),
        handshake,
    };
    [
        of(Handshake::Request(end)),
        of(Handshake::Accept { end, to_qp: 14 }),
        of(Handshake::Refuse { why: Refusal::Full, to_qp: 14 }),
    ]
}

fn described(datagram: &Datagram) -> Message {
    let is_refusal = matches!(datagram.handshake, Handshake::Refuse { .. });
    // A refusal has no end.
    let of_end = |meaning| if is_refusal { Meaning::Free } else { meaning };
    let number = || of_end(Meaning::Within(0..=BITS_24.into()));
    let lengths = (*MESSAGE_MAX.start()).into()..=(*MESSAGE_MAX.end()).into();
    let reasons = if is_refusal { Meaning::Within(1..=4) } else { Meaning::Free };
    let message = Message::new("datagram", datagram.emit(None)).le(4, "mark", Meaning::Fixed);
    let message = message.le(1, "version", Meaning::Fixed);
    let message = message.le(1, "kind", Meaning::OneOf(vec![1, 2, 3])).le(1, "reason", reasons);
    let message = message.le(1, "length", Meaning::Within(1..=Address::MAX as u64));
    let message = message.le(8, "receiver", Meaning::Free);
    let message = message.bytes_of(Address::MAX, "sender", &Meaning::Free);
    let message = message.le(4, "queue pair", number()).le(4, "sequence number", number());
    let message = message.le(4, "longest message", of_end(Meaning::Within(lengths)));
    let message = message.le(1, "reads", of_end(Meaning::Within(1..=u8::MAX.into())));
    let message = message.le(1, "MTU", of_end(Meaning::Within(1..=5)));
    let message = message.le(2, "ignored", Meaning::Free);
    let message = message.le(4, "the receiver's queue pair", Meaning::Free);
    let message = message.le(4, "receiving queue pair", number());
    let message = message.bytes_of(12, "process", &Meaning::Free);
    message.bytes_of(PROOF_BYTES, "code", &Meaning::Free)
}

#[test]
fn no_datagram_is_taken_for_another() {
    let all = datagrams();
    try_all::<DatagramRoom>(&[DatagramLook::Contents], &[()], &all.each_ref().map(described));
    // No bit of a datagram may change without its code.
    let proven = all.map(|datagram| {
        let message = Message::new("proven", datagram.emit(Some(&secret())));
        message.bytes_of(DATAGRAM, "byte", &Meaning::Fixed)
    });
    try_all::<DatagramRoom>(&[DatagramLook::Code], &[()], &proven);
}

/// The code of a signal.
struct SignalRoom;

impl Room for SignalRoom {
    type Situation = ();
    type Sender = ();

    fn enter((): ()) -> Self {
        SignalRoom
    }

    fn takes((): (), (): (), _: &Message) -> Legality {
        Legality::Legal
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let Ok(code) = bytes.try_into().map(u32::from_le_bytes) else { return false };
        Signal::parse(code).is_some_and(|signal| {
            assert_eq!((signal.emit(), Signal::code_of(&signal.message())), (code, Some(code)));
            true
        })
    }

    fn state(&self) -> String {
        String::new()
    }

    fn audit(self) {}
}

#[test]
fn no_signal_is_taken_for_another() {
    let announced = u64::from(Signal::Announce(0).emit());
    let announced = announced..=announced + (1 << 28) - 1;
    let signals = [Signal::Ready, Signal::Release, Signal::Leave];
    let codes = signals.map(|signal| u64::from(signal.emit()));
    let of = |signal: Signal, legal: Vec<u64>| {
        Message::new("signal", signal.emit().to_le_bytes()).le(4, "code", Meaning::OneOf(legal))
    };
    let ends = [*announced.start(), announced.start() + 1, announced.end() - 1, *announced.end()];
    let legal = [&codes[..], &ends].concat();
    let all = [Signal::Ready, Signal::Announce(0), Signal::Release, Signal::Leave];
    try_all::<SignalRoom>(&[()], &[()], &all.map(|signal| of(signal, legal.clone())));
}
