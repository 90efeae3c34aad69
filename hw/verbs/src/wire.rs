//! The wire formats of the devices: handshake datagrams until a connection is up, then signals of
//! 32 bits.

use tagmatch_device::bytes::{array_at, u32_at};
use tagmatch_device::contents::Name;
use tagmatch_device::tm::{Opcode, TMH_BYTES, Tmh, be32};
use tagmatch_device::{Address, ReadMessage};
use tagmatch_secret::{PROOF_BYTES, Proof, Secret};

use super::address::{BITS_24, VERSION};
use super::config::MESSAGE_MAX;
use super::local_processes::ProcessName;

/// One end of a connection, as it describes itself to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkEnd {
    /// The number of its sending queue pair.
    pub(super) qp_num: u32,
    /// The number of its receiving queue pair if that is a second one, else 0.
    pub(super) receive_qp_num: u32,
    /// Its first packet sequence number.
    pub(super) psn: u32,
    /// The longest message that it receives, in bytes.
    pub(super) message_max: u32,
    /// READs that it serves at a time.
    pub(super) reads_max: u8,
    /// Its path MTU, as `enum ibv_mtu`.
    pub(super) mtu: u8,
    /// Its process.
    pub(super) process: ProcessName,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Refusal {
    /// The worker accepts no more connections.
    Closed = 1,
    /// The worker has as many peers as it can have.
    Full = 2,
    /// The worker has or had a connection with this peer, and two workers never connect twice.
    Known = 3,
    /// The request doesn't prove that its sender knows the job's secret, or knows of none.
    Unproven = 4,
}

/// The content of a handshake datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// Asks for a connection with this end.
    Request(LinkEnd),
    /// Accepts the request of the queue pair `to_qp`, with this end, which receives already.
    Accept { end: LinkEnd, to_qp: u32 },
    /// Refuses the request of the queue pair `to_qp`.
    Refuse { why: Refusal, to_qp: u32 },
}

/// A handshake datagram with its receiver and sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    /// The name of the worker that must receive it: another worker may have had the same queue pair
    /// number before.
    pub(super) to: Name,
    /// The address of the sender, which may be on other networks as well.
    pub(super) from: Address,
    pub(super) handshake: Handshake,
}

const MAGIC: [u8; 4] = *b"TMvh";
/// The length of every datagram, in bytes.
pub(super) const DATAGRAM: usize = CODE + PROOF_BYTES;
const FROM: usize = 16;
const END: usize = FROM + Address::MAX;
const PROCESS: usize = END + 24;
const CODE: usize = PROCESS + 12;
/// The protocol's name, for the job's secret.
const PROTOCOL: &[u8] = b"tagmatch verbs 3";

impl Datagram {
    /// The datagram's bytes, of a worker whose job has this secret or none. Numbers are
    /// little-endian.
    ///
    /// | bytes | content |
    /// |---|---|
    /// | 0..4 | `TMvh` |
    /// | 4, 5, 6 | version, kind, reason of a refusal |
    /// | 7 | length of the sender's address |
    /// | 8..15 | name of the receiver |
    /// | 16..80 | address of the sender |
    /// | 80..92 | the sender's queue pair, first packet sequence number, longest message |
    /// | 92, 93 | READs that the sender serves, its path MTU |
    /// | 96..100 | the receiver's queue pair, in an answer |
    /// | 100..104 | the sender's receiving queue pair, if it has two |
    /// | 104..116 | the realm and the number of the sender's process |
    /// | 116..148 | authentication code of all bytes before, or zeros if the job has no secret |
    ///
    /// A datagram names both workers and both queue pairs, so a recorded one is of no use to
    /// anybody else, and no random number is needed against repetition.
    pub(super) fn emit(&self, secret: Option<&Secret>) -> [u8; DATAGRAM] {
        let mut bytes = [0; DATAGRAM];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        let from = self.from.as_bytes();
        // An address has at most 64 bytes.
        bytes[7] = u8::try_from(from.len()).unwrap_or(0);
        bytes[8..8 + self.to.len()].copy_from_slice(&self.to);
        bytes[FROM..FROM + from.len()].copy_from_slice(from);
        let (kind, why, end, to_qp) = match self.handshake {
            Handshake::Request(end) => (1, 0, Some(end), 0),
            Handshake::Accept { end, to_qp } => (2, 0, Some(end), to_qp),
            Handshake::Refuse { why, to_qp } => (3, why as u8, None, to_qp),
        };
        (bytes[5], bytes[6]) = (kind, why);
        if let Some(end) = end {
            bytes[END..END + 4].copy_from_slice(&end.qp_num.to_le_bytes());
            bytes[END + 4..END + 8].copy_from_slice(&end.psn.to_le_bytes());
            bytes[END + 8..END + 12].copy_from_slice(&end.message_max.to_le_bytes());
            (bytes[END + 12], bytes[END + 13]) = (end.reads_max, end.mtu);
            bytes[END + 20..END + 24].copy_from_slice(&end.receive_qp_num.to_le_bytes());
            bytes[PROCESS..PROCESS + 8].copy_from_slice(&end.process.realm.to_le_bytes());
            bytes[PROCESS + 8..CODE].copy_from_slice(&end.process.pid.to_le_bytes());
        }
        bytes[END + 16..END + 20].copy_from_slice(&to_qp.to_le_bytes());
        if let Some(secret) = secret {
            let code = secret.code(PROTOCOL, &bytes[..CODE]);
            bytes[CODE..].copy_from_slice(&code);
        }
        bytes
    }

    /// Whether a datagram was sent by a worker of a job with this secret, or of one without.
    pub(super) fn is_proven(bytes: &[u8], secret: Option<&Secret>) -> bool {
        let Some((content, code)) = bytes.split_at_checked(CODE) else { return false };
        match secret {
            Some(secret) => secret.is_code(PROTOCOL, content, code),
            None => code == Proof::default(),
        }
    }

    /// Parses a datagram, whoever has sent it. `None` if it isn't one of this protocol, or has
    /// values that no worker sends.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = <&[u8; DATAGRAM]>::try_from(bytes).ok()?;
        if bytes[0..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let number = |at| u32_at(bytes, at);
        let end = || {
            let end = LinkEnd {
                qp_num: number(END),
                receive_qp_num: number(END + 20),
                psn: number(END + 4),
                message_max: number(END + 8),
                reads_max: bytes[END + 12],
                mtu: bytes[END + 13],
                process: ProcessName {
                    realm: u64::from_le_bytes(array_at(bytes, PROCESS)),
                    pid: number(PROCESS + 8),
                },
            };
            let numbers = [end.qp_num, end.receive_qp_num, end.psn];
            let is_possible = numbers.iter().all(|number| *number <= BITS_24)
                && MESSAGE_MAX.contains(&end.message_max);
            (is_possible && end.reads_max > 0 && (1..=5).contains(&end.mtu)).then_some(end)
        };
        let to_qp = number(END + 16);
        let handshake = match bytes[5] {
            1 => Handshake::Request(end()?),
            2 => Handshake::Accept { end: end()?, to_qp },
            3 => {
                let why = match bytes[6] {
                    1 => Refusal::Closed,
                    2 => Refusal::Full,
                    3 => Refusal::Known,
                    4 => Refusal::Unproven,
                    _ => return None,
                };
                Handshake::Refuse { why, to_qp }
            }
            _ => return None,
        };
        let from = bytes[FROM..END].get(..bytes[7].into())?;
        let from = Address::from_bytes(from).ok()?;
        Some(Datagram { to: array_at(bytes, 8), from, handshake })
    }
}

/// What one connected device tells the other beside the engine's messages. A signal is the
/// immediate data of an RDMA write of zero bytes, which no message is. If either NIC matches tags,
/// a signal is a message without a tag instead, since it isn't known what a tag-matching queue does
/// with such a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The ready signal, the first on a connection: a peer that gets it knows that this side
    /// receives.
    Ready,
    /// This many more messages may be sent.
    Announce(u32),
    /// Gives back all credits but one.
    Release,
    /// The leave signal, the last on a connection.
    Leave,
}

const VALUE: u32 = (1 << 28) - 1;
/// Marks a message that carries a signal.
const SIGNAL_MARK: u8 = 0xd5;
/// Marks a message of copied reads.
const COPY_MARK: u8 = 0xd6;

/// Bytes before the bytes of a fragment, in a message of copied reads.
pub(super) const COPY_HEADER_BYTES: usize = TMH_BYTES + ReadMessage::HEADER_BYTES;

/// The header of a message of copied reads: a message without a tag, which differs from those of
/// the engine as [`Signal::message`] does, with a header of [`ReadMessage`].
pub(super) fn copy_header(message: &[u8]) -> [u8; COPY_HEADER_BYTES] {
    let mut bytes = [0; COPY_HEADER_BYTES];
    bytes[..TMH_BYTES].copy_from_slice(&Tmh { opcode: Opcode::NoTag, app_ctx: 0, tag: 0 }.emit());
    bytes[1] = COPY_MARK;
    let count = message.len().min(ReadMessage::HEADER_BYTES);
    bytes[TMH_BYTES..TMH_BYTES + count].copy_from_slice(&message[..count]);
    bytes
}

/// Whether a message that begins like this is one of copied reads. The [`ReadMessage`] is behind
/// the first `TMH_BYTES`.
#[inline]
pub(super) fn is_copy(head: &[u8]) -> bool {
    head.len() >= TMH_BYTES && head[0] == Opcode::NoTag as u8 && head[1] == COPY_MARK
}

impl Signal {
    pub(super) fn emit(self) -> u32 {
        match self {
            Signal::Ready => 1 << 28,
            Signal::Announce(more) => 2 << 28 | more & VALUE,
            Signal::Release => 3 << 28,
            Signal::Leave => 4 << 28,
        }
    }

    /// The signal as a message without a tag. It differs from the engine's messages by a byte of
    /// the header that the engine leaves zero and no NIC reads.
    pub(super) fn message(self) -> [u8; TMH_BYTES] {
        let mut bytes = Tmh { opcode: Opcode::NoTag, app_ctx: self.emit(), tag: 0 }.emit();
        bytes[1] = SIGNAL_MARK;
        bytes
    }

    /// The code of the signal in a message; `None` if it is one of the engine's messages.
    pub(super) fn code_of(bytes: &[u8]) -> Option<u32> {
        let bytes = <&[u8; TMH_BYTES]>::try_from(bytes).ok()?;
        (bytes[0] == Opcode::NoTag as u8 && bytes[1] == SIGNAL_MARK).then(|| be32(bytes, 4))
    }

    pub(super) fn parse(code: u32) -> Option<Self> {
        match (code >> 28, code & VALUE) {
            (1, 0) => Some(Signal::Ready),
            (2, more) => Some(Signal::Announce(more)),
            (3, 0) => Some(Signal::Release),
            (4, 0) => Some(Signal::Leave),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tagmatch_device::Bytes;

    use super::*;

    fn example(handshake: Handshake) -> Datagram {
        let from = Address::from_bytes(&[9; 40]).unwrap();
        Datagram { to: [4; 7], from, handshake }
    }

    const EXAMPLE_END: LinkEnd = LinkEnd {
        qp_num: 1,
        receive_qp_num: 6,
        psn: 2,
        message_max: 64,
        reads_max: 4,
        mtu: 5,
        process: ProcessName { realm: 1 << 40, pid: 77 },
    };

    #[test]
    fn handshakes_round_trip() {
        for handshake in [
            Handshake::Request(EXAMPLE_END),
            Handshake::Accept { end: EXAMPLE_END, to_qp: 99 },
            Handshake::Refuse { why: Refusal::Closed, to_qp: 7 },
            Handshake::Refuse { why: Refusal::Full, to_qp: 7 },
            Handshake::Refuse { why: Refusal::Known, to_qp: 7 },
            Handshake::Refuse { why: Refusal::Unproven, to_qp: 7 },
        ] {
            let datagram = example(handshake);
            assert_eq!(Datagram::parse(&datagram.emit(None)), Some(datagram));
            assert_eq!(Datagram::parse(&datagram.emit(Some(&secret(1)))), Some(datagram));
        }
    }

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes(&[byte; 16]).unwrap()
    }

    #[test]
    fn a_datagram_is_proven_to_workers_of_its_job_alone() {
        let jobs = [None, Some(secret(1)), Some(secret(2))];
        for (at, sender) in jobs.iter().enumerate() {
            let bytes = example(Handshake::Request(EXAMPLE_END)).emit(sender.as_ref());
            for (other, receiver) in jobs.iter().enumerate() {
                assert_eq!(Datagram::is_proven(&bytes, receiver.as_ref()), at == other);
            }
            for changed in 0..DATAGRAM {
                let mut bytes = bytes;
                bytes[changed] ^= 1;
                // Without a secret, anybody can say anything.
                let is_proven = sender.is_none() && changed < CODE;
                assert_eq!(Datagram::is_proven(&bytes, sender.as_ref()), is_proven, "{changed}");
            }
        }
        assert!(!Datagram::is_proven(&[], None));
    }

    #[test]
    fn impossible_datagrams_are_none() {
        let good = example(Handshake::Request(EXAMPLE_END)).emit(None);
        assert_eq!(Datagram::parse(&good[1..]), None);
        assert_eq!(Datagram::parse(&[]), None);
        for (at, value) in [
            (0, 0),
            (4, 9),
            (5, 0),
            (5, 4),
            (7, 0),
            (7, 65),
            (END + 3, 1),
            (END + 7, 1),
            (END + 13, 6),
            (END + 23, 1),
        ] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Datagram::parse(&bytes), None, "{value} at {at}");
        }
        let mut no_reads = good;
        no_reads[END + 12] = 0;
        assert_eq!(Datagram::parse(&no_reads), None);
        let mut refusal = example(Handshake::Refuse { why: Refusal::Full, to_qp: 0 }).emit(None);
        refusal[6] = 5;
        assert_eq!(Datagram::parse(&refusal), None);
    }

    #[test]
    fn an_end_that_takes_no_useful_message_is_none() {
        for (message_max, is_taken) in [
            (0, false),
            (1, false),
            (63, false),
            (64, true),
            (1 << 20, true),
            ((1 << 20) + 1, false),
            (u32::MAX, false),
        ] {
            let end = LinkEnd { message_max, ..EXAMPLE_END };
            for handshake in [Handshake::Request(end), Handshake::Accept { end, to_qp: 9 }] {
                let parsed = Datagram::parse(&example(handshake).emit(None));
                assert_eq!(parsed.is_some(), is_taken, "{message_max}");
            }
        }
    }

    #[test]
    fn a_message_of_a_copied_read_is_no_signal_and_none_of_the_engine() {
        let message = ReadMessage::End { id: 3, is_good: true };
        let bytes = copy_header(&message.emit());
        assert!(is_copy(&bytes) && Signal::code_of(&bytes[..TMH_BYTES]).is_none());
        let behind = Bytes::from_slice(&bytes[TMH_BYTES..]);
        assert_eq!(ReadMessage::parse(&behind), Ok(message));
        let of_engine = Tmh { opcode: Opcode::NoTag, app_ctx: 0, tag: 0 }.emit();
        assert!(!is_copy(&of_engine) && !is_copy(&Signal::Leave.message()));
        assert!(!is_copy(&bytes[..TMH_BYTES - 1]) && !is_copy(&[]));
        let eager = [&[Opcode::Eager as u8], &bytes[1..]].concat();
        assert!(!is_copy(&eager));
    }

    #[test]
    fn signals_round_trip() {
        for signal in [Signal::Ready, Signal::Announce(1), Signal::Release, Signal::Leave] {
            assert_eq!(Signal::parse(signal.emit()), Some(signal));
            assert_eq!(Signal::code_of(&signal.message()), Some(signal.emit()));
        }
        let engine_message =
            Tmh { opcode: Opcode::NoTag, app_ctx: Signal::Leave.emit(), tag: 0 }.emit();
        assert_eq!(Signal::code_of(&engine_message), None);
        assert_eq!(Signal::code_of(&Signal::Leave.message()[..15]), None);
        for code in [0, 1, u32::MAX, 5 << 28, (1 << 28) + 1] {
            assert_eq!(Signal::parse(code), None, "{code:#x}");
        }
    }
}
