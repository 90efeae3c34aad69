//! The headers of RoCE packets behind UDP, from the BTH to the last byte before the ICRC.

use super::aeth::{Aeth, AethVerdict};
use crate::wqe::{Atomic, RemoteAddress};

/// Bytes of the base transport header.
const BTH: usize = 12;
/// The most bytes of headers that a packet has: BTH and AtomicETH.
#[cfg(test)]
const HEADERS_MAX: usize = BTH + 28;
/// The longest path MTU.
pub(crate) const MTU_MAX: usize = 4096;

/// Bits of packet sequence numbers, message sequence numbers and queue pair numbers.
const BITS_24: u32 = 0xff_ffff;
/// Bits of the second byte of a BTH: solicited event, migration state, padding, version.
const SOLICITED: u8 = 0x80;
/// A queue pair without an alternate path is in the state *migrated*.
const MIGRATED: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
const VERSION: u8 = 0x0f;
/// The first byte before a packet sequence number: the sender asks for an acknowledgement.
const ASKS_ACKNOWLEDGE: u8 = 0x80;

/// Operations of reliable connections (table 38).
mod rc {
    pub(super) const SEND_FIRST: u8 = 0x00;
    pub(super) const SEND_MIDDLE: u8 = 0x01;
    pub(super) const SEND_LAST: u8 = 0x02;
    pub(super) const SEND_LAST_IMMEDIATE: u8 = 0x03;
    pub(super) const SEND_ONLY: u8 = 0x04;
    pub(super) const SEND_ONLY_IMMEDIATE: u8 = 0x05;
    pub(super) const WRITE_FIRST: u8 = 0x06;
    pub(super) const WRITE_MIDDLE: u8 = 0x07;
    pub(super) const WRITE_LAST: u8 = 0x08;
    pub(super) const WRITE_LAST_IMMEDIATE: u8 = 0x09;
    pub(super) const WRITE_ONLY: u8 = 0x0a;
    pub(super) const WRITE_ONLY_IMMEDIATE: u8 = 0x0b;
    pub(super) const READ_REQUEST: u8 = 0x0c;
    pub(super) const READ_RESPONSE_FIRST: u8 = 0x0d;
    pub(super) const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    pub(super) const READ_RESPONSE_LAST: u8 = 0x0f;
    pub(super) const READ_RESPONSE_ONLY: u8 = 0x10;
    pub(super) const ACKNOWLEDGE: u8 = 0x11;
    pub(super) const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub(super) const COMPARE_SWAP: u8 = 0x13;
    pub(super) const FETCH_ADD: u8 = 0x14;
    pub(super) const SEND_LAST_INVALIDATE: u8 = 0x16;
    pub(super) const SEND_ONLY_INVALIDATE: u8 = 0x17;
}

/// Operations of datagrams.
mod ud {
    pub(super) const SEND_ONLY: u8 = 0x64;
    pub(super) const SEND_ONLY_IMMEDIATE: u8 = 0x65;
}

/// Which part of its message a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketPart {
    First,
    Middle,
    Last,
    Only,
}

impl PacketPart {
    pub(crate) fn new(is_first: bool, is_last: bool) -> Self {
        match (is_first, is_last) {
            (true, true) => PacketPart::Only,
            (true, false) => PacketPart::First,
            (false, false) => PacketPart::Middle,
            (false, true) => PacketPart::Last,
        }
    }

    pub(crate) fn is_first(self) -> bool {
        matches!(self, PacketPart::First | PacketPart::Only)
    }

    pub(crate) fn is_last(self) -> bool {
        matches!(self, PacketPart::Last | PacketPart::Only)
    }

    /// Whether a packet with so many bytes can be this part (InfiniBand 9.7.4.1.6).
    pub(crate) fn takes(self, bytes: usize, mtu: usize) -> bool {
        match self {
            PacketPart::First | PacketPart::Middle => bytes == mtu,
            PacketPart::Last => (1..=mtu).contains(&bytes),
            PacketPart::Only => bytes <= mtu,
        }
    }
}

/// What a SEND carries beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    Nothing,
    /// ImmDt.
    Immediate(u32),
    /// IETH: the key that the receiver is to invalidate.
    Invalidate(u32),
}

/// RETH: the memory that a READ or a WRITE is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reth {
    pub(crate) at: RemoteAddress,
    pub(crate) length: u32,
}

/// What a packet is, with the headers of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoceOperation {
    Send { part: PacketPart, extra: Extra },
    Write { part: PacketPart, reth: Option<Reth>, immediate: Option<u32> },
    ReadRequest(Reth),
    ReadResponse { part: PacketPart, aeth: Option<Aeth> },
    Acknowledge(Aeth),
    AtomicAcknowledge { aeth: Aeth, old: u64 },
    Atomic { at: RemoteAddress, atomic: Atomic },
    Datagram { qkey: u32, from: u32, immediate: Option<u32> },
}

impl RoceOperation {
    /// Whether it is an answer of the receiver.
    pub(crate) fn is_answer(&self) -> bool {
        use RoceOperation::*;
        matches!(self, ReadResponse { .. } | Acknowledge(_) | AtomicAcknowledge { .. })
    }

    /// Whether a receive is needed for it now.
    pub(crate) fn needs_receive(&self) -> bool {
        match self {
            RoceOperation::Send { part, .. } => part.is_first(),
            RoceOperation::Write { immediate, .. } => immediate.is_some(),
            RoceOperation::Datagram { .. } => true,
            _ => false,
        }
    }

    fn opcode(&self) -> u8 {
        use PacketPart::*;
        use RoceOperation::*;
        match self {
            Send { part, extra } => match (part, extra) {
                (First, _) => rc::SEND_FIRST,
                (Middle, _) => rc::SEND_MIDDLE,
                (Last, Extra::Nothing) => rc::SEND_LAST,
                (Last, Extra::Immediate(_)) => rc::SEND_LAST_IMMEDIATE,
                (Last, Extra::Invalidate(_)) => rc::SEND_LAST_INVALIDATE,
                (Only, Extra::Nothing) => rc::SEND_ONLY,
                (Only, Extra::Immediate(_)) => rc::SEND_ONLY_IMMEDIATE,
                (Only, Extra::Invalidate(_)) => rc::SEND_ONLY_INVALIDATE,
            },
            Write { part, immediate, .. } => match (part, immediate) {
                (First, _) => rc::WRITE_FIRST,
                (Middle, _) => rc::WRITE_MIDDLE,
                (Last, None) => rc::WRITE_LAST,
                (Last, Some(_)) => rc::WRITE_LAST_IMMEDIATE,
                (Only, None) => rc::WRITE_ONLY,
                (Only, Some(_)) => rc::WRITE_ONLY_IMMEDIATE,
            },
            ReadRequest(_) => rc::READ_REQUEST,
            ReadResponse { part, .. } => match part {
                First => rc::READ_RESPONSE_FIRST,
                Middle => rc::READ_RESPONSE_MIDDLE,
                Last => rc::READ_RESPONSE_LAST,
                Only => rc::READ_RESPONSE_ONLY,
            },
            Acknowledge(_) => rc::ACKNOWLEDGE,
            AtomicAcknowledge { .. } => rc::ATOMIC_ACKNOWLEDGE,
            Atomic { atomic: crate::wqe::Atomic::CompareAndSwap { .. }, .. } => rc::COMPARE_SWAP,
            Atomic { atomic: crate::wqe::Atomic::FetchAndAdd { .. }, .. } => rc::FETCH_ADD,
            Datagram { immediate: None, .. } => ud::SEND_ONLY,
            Datagram { immediate: Some(_), .. } => ud::SEND_ONLY_IMMEDIATE,
        }
    }
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RocePacket {
    pub(crate) is_solicited: bool,
    pub(crate) asks_acknowledge: bool,
    pub(crate) pkey: u16,
    /// The queue pair that receives it.
    pub(crate) to: u32,
    pub(crate) psn: u32,
    pub(crate) operation: RoceOperation,
    pub(crate) data: Vec<u8>,
}

/// The bytes are no packet that this device knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedPacket;

/// Headers that are read one after the other.
struct Headers<'a>(&'a [u8]);

impl Headers<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], MalformedPacket> {
        let (head, rest) = self.0.split_first_chunk().ok_or(MalformedPacket)?;
        self.0 = rest;
        Ok(*head)
    }

    fn word(&mut self) -> Result<u32, MalformedPacket> {
        self.take().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, MalformedPacket> {
        self.take().map(u64::from_be_bytes)
    }

    fn address(&mut self) -> Result<RemoteAddress, MalformedPacket> {
        let at = self.long()?;
        let rkey = self.word()?;
        Ok(RemoteAddress { at, rkey })
    }

    fn reth(&mut self) -> Result<Reth, MalformedPacket> {
        let at = self.address()?;
        let length = self.word()?;
        Ok(Reth { at, length })
    }

    fn aeth(&mut self) -> Result<Aeth, MalformedPacket> {
        let [syndrome, msn @ ..] = self.take::<4>()?;
        let verdict = AethVerdict::parse(syndrome).ok_or(MalformedPacket)?;
        let [high, middle, low] = msn;
        Ok(Aeth { verdict, msn: u32::from_be_bytes([0, high, middle, low]) })
    }

    /// The headers of an operation behind the BTH.
    fn operation(&mut self, opcode: u8) -> Result<RoceOperation, MalformedPacket> {
        use PacketPart::*;
        use RoceOperation::*;
        let send = |part, extra| Ok(Send { part, extra });
        match opcode {
            rc::SEND_FIRST => send(First, Extra::Nothing),
            rc::SEND_MIDDLE => send(Middle, Extra::Nothing),
            rc::SEND_LAST => send(Last, Extra::Nothing),
            rc::SEND_LAST_IMMEDIATE => send(Last, Extra::Immediate(self.word()?)),
            rc::SEND_LAST_INVALIDATE => send(Last, Extra::Invalidate(self.word()?)),
            rc::SEND_ONLY => send(Only, Extra::Nothing),
            rc::SEND_ONLY_IMMEDIATE => send(Only, Extra::Immediate(self.word()?)),
            rc::SEND_ONLY_INVALIDATE => send(Only, Extra::Invalidate(self.word()?)),
            rc::WRITE_FIRST => self.write(First, false),
            rc::WRITE_MIDDLE => self.write(Middle, false),
            rc::WRITE_LAST => self.write(Last, false),
            rc::WRITE_LAST_IMMEDIATE => self.write(Last, true),
            rc::WRITE_ONLY => self.write(Only, false),
            rc::WRITE_ONLY_IMMEDIATE => self.write(Only, true),
            rc::READ_REQUEST => Ok(ReadRequest(self.reth()?)),
            rc::READ_RESPONSE_FIRST => self.read_response(First),
            rc::READ_RESPONSE_MIDDLE => self.read_response(Middle),
            rc::READ_RESPONSE_LAST => self.read_response(Last),
            rc::READ_RESPONSE_ONLY => self.read_response(Only),
            rc::ACKNOWLEDGE => Ok(Acknowledge(self.aeth()?)),
            rc::ATOMIC_ACKNOWLEDGE => {
                let aeth = self.aeth()?;
                let old = self.long()?;
                Ok(AtomicAcknowledge { aeth, old })
            }
            rc::COMPARE_SWAP => {
                let at = self.address()?;
                let swap = self.long()?;
                let compare = self.long()?;
                Ok(Atomic { at, atomic: crate::wqe::Atomic::CompareAndSwap { compare, swap } })
            }
            rc::FETCH_ADD => {
                let at = self.address()?;
                let add = self.long()?;
                let _compare = self.long()?;
                Ok(Atomic { at, atomic: crate::wqe::Atomic::FetchAndAdd { add } })
            }
            ud::SEND_ONLY | ud::SEND_ONLY_IMMEDIATE => {
                let qkey = self.word()?;
                let from = self.word()? & BITS_24;
                let has_immediate = opcode == ud::SEND_ONLY_IMMEDIATE;
                let immediate = if has_immediate { Some(self.word()?) } else { None };
                Ok(Datagram { qkey, from, immediate })
            }
            _ => Err(MalformedPacket),
        }
    }

    fn write(
        &mut self,
        part: PacketPart,
        has_immediate: bool,
    ) -> Result<RoceOperation, MalformedPacket> {
        let reth = if part.is_first() { Some(self.reth()?) } else { None };
        let immediate = if has_immediate { Some(self.word()?) } else { None };
        Ok(RoceOperation::Write { part, reth, immediate })
    }

    /// The packets in the middle of an answer have no AETH.
    fn read_response(&mut self, part: PacketPart) -> Result<RoceOperation, MalformedPacket> {
        let aeth = if part == PacketPart::Middle { None } else { Some(self.aeth()?) };
        Ok(RoceOperation::ReadResponse { part, aeth })
    }
}

impl RocePacket {
    /// The bytes of the packet from the BTH on, without the ICRC.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let pad = self.data.len().wrapping_neg() % 4;
        let mut bytes = Vec::with_capacity(BTH + 28 + self.data.len() + pad + 4);
        let solicited = if self.is_solicited { SOLICITED } else { 0 };
        bytes.extend([self.operation.opcode(), solicited | MIGRATED | (pad as u8) << PAD_SHIFT]);
        bytes.extend(self.pkey.to_be_bytes());
        bytes.extend((self.to & BITS_24).to_be_bytes());
        let asks = if self.asks_acknowledge { u32::from(ASKS_ACKNOWLEDGE) << 24 } else { 0 };
        bytes.extend((self.psn & BITS_24 | asks).to_be_bytes());
        self.put_headers(&mut bytes);
        bytes.extend(&self.data);
        bytes.extend([0; 3].iter().take(pad));
        bytes
    }

    fn put_headers(&self, bytes: &mut Vec<u8>) {
        let put_address = |bytes: &mut Vec<u8>, at: &RemoteAddress| {
            bytes.extend(at.at.to_be_bytes());
            bytes.extend(at.rkey.to_be_bytes());
        };
        let put_aeth = |bytes: &mut Vec<u8>, aeth: &Aeth| {
            let syndrome = u32::from(aeth.verdict.syndrome()) << 24;
            bytes.extend((syndrome | aeth.msn & BITS_24).to_be_bytes());
        };
        match &self.operation {
            RoceOperation::Send { part, extra } => match extra {
                Extra::Immediate(word) | Extra::Invalidate(word) if part.is_last() => {
                    bytes.extend(word.to_be_bytes());
                }
                _ => {}
            },
            RoceOperation::Write { part, reth, immediate } => {
                if let Some(reth) = reth.filter(|_| part.is_first()) {
                    put_address(bytes, &reth.at);
                    bytes.extend(reth.length.to_be_bytes());
                }
                if let Some(immediate) = immediate.filter(|_| part.is_last()) {
                    bytes.extend(immediate.to_be_bytes());
                }
            }
            RoceOperation::ReadRequest(reth) => {
                put_address(bytes, &reth.at);
                bytes.extend(reth.length.to_be_bytes());
            }
            RoceOperation::ReadResponse { part, aeth } => {
                if let Some(aeth) = aeth.filter(|_| *part != PacketPart::Middle) {
                    put_aeth(bytes, &aeth);
                }
            }
            RoceOperation::Acknowledge(aeth) => put_aeth(bytes, aeth),
            RoceOperation::AtomicAcknowledge { aeth, old } => {
                put_aeth(bytes, aeth);
                bytes.extend(old.to_be_bytes());
            }
            RoceOperation::Atomic { at, atomic } => {
                put_address(bytes, at);
                let (first, second) = match *atomic {
                    Atomic::CompareAndSwap { compare, swap } => (swap, compare),
                    Atomic::FetchAndAdd { add } => (add, 0),
                };
                bytes.extend(first.to_be_bytes());
                bytes.extend(second.to_be_bytes());
            }
            RoceOperation::Datagram { qkey, from, immediate } => {
                bytes.extend(qkey.to_be_bytes());
                bytes.extend((from & BITS_24).to_be_bytes());
                if let Some(immediate) = immediate {
                    bytes.extend(immediate.to_be_bytes());
                }
            }
        }
    }

    /// Reads a packet without its ICRC.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MalformedPacket> {
        let mut headers = Headers(bytes);
        let [opcode, flags, high, low] = headers.take::<4>()?;
        let to = headers.word()? & BITS_24;
        let [asks, psn @ ..] = headers.take::<4>()?;
        if flags & VERSION != 0 {
            return Err(MalformedPacket);
        }
        let operation = headers.operation(opcode)?;
        let pad = usize::from(flags >> PAD_SHIFT & 3);
        let Headers(rest) = headers;
        let length = rest.len().checked_sub(pad).ok_or(MalformedPacket)?;
        if !rest.len().is_multiple_of(4) || length > MTU_MAX {
            return Err(MalformedPacket);
        }
        Ok(RocePacket {
            is_solicited: flags & SOLICITED != 0,
            asks_acknowledge: asks & ASKS_ACKNOWLEDGE != 0,
            pkey: u16::from_be_bytes([high, low]),
            to,
            psn: u32::from_be_bytes([0, psn[0], psn[1], psn[2]]),
            operation,
            data: rest[..length].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::aeth::{NO_CREDITS, NakCode};
    use super::*;

    pub(super) fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    }

    fn packet(operation: RoceOperation) -> RocePacket {
        RocePacket {
            is_solicited: false,
            asks_acknowledge: true,
            pkey: 0xffff,
            to: 0x11,
            psn: 1,
            operation,
            data: Vec::new(),
        }
    }

    const AT: RemoteAddress = RemoteAddress { at: 0x0102_0304_0506_0708, rkey: 0x0a0b_0c0d };

    /// Each header stands where the specification's figures 9.2 to 9.6 have it.
    #[test]
    fn each_operation_has_its_headers_and_is_read_as_it_was_written() {
        let done = Aeth { verdict: AethVerdict::Done { credits: NO_CREDITS }, msn: 5 };
        let nak = AethVerdict::Refused(NakCode::RemoteAccess);
        let refused = Aeth { verdict: nak, msn: 0xff_ffff };
        let not_ready = Aeth { verdict: AethVerdict::NotReady { timer: 12 }, msn: 0 };
        let reth = Reth { at: AT, length: 0x1_0203 };
        let write = |part, reth, immediate| RoceOperation::Write { part, reth, immediate };
        let send = |part, extra| RoceOperation::Send { part, extra };
        let swap = Atomic::CompareAndSwap { compare: 3, swap: 4 };
        let response = |part, aeth| RoceOperation::ReadResponse { part, aeth };
        let address = "01020304050607080a0b0c0d";
        let both = format!("{address}00010203");
        let imm = Extra::Immediate(0xdead_beef);
        let invalidate = Extra::Invalidate(7);
        for (opcode, operation, headers) in [
            (0x00, send(PacketPart::First, Extra::Nothing), ""),
            (0x01, send(PacketPart::Middle, Extra::Nothing), ""),
            (0x02, send(PacketPart::Last, Extra::Nothing), ""),
            (0x03, send(PacketPart::Last, imm), "deadbeef"),
            (0x04, send(PacketPart::Only, Extra::Nothing), ""),
            (0x05, send(PacketPart::Only, imm), "deadbeef"),
            (0x06, write(PacketPart::First, Some(reth), None), both.as_str()),
            (0x07, write(PacketPart::Middle, None, None), ""),
            (0x08, write(PacketPart::Last, None, None), ""),
            (0x09, write(PacketPart::Last, None, Some(9)), "00000009"),
            (0x0a, write(PacketPart::Only, Some(reth), None), &both),
            (0x0b, write(PacketPart::Only, Some(reth), Some(9)), &format!("{both}00000009")),
            (0x0c, RoceOperation::ReadRequest(reth), &both),
            (0x0d, response(PacketPart::First, Some(done)), "1f000005"),
            (0x0e, response(PacketPart::Middle, None), ""),
            (0x0f, response(PacketPart::Last, Some(done)), "1f000005"),
            (0x10, response(PacketPart::Only, Some(done)), "1f000005"),
            (0x11, RoceOperation::Acknowledge(refused), "62ffffff"),
            (0x11, RoceOperation::Acknowledge(not_ready), "2c000000"),
            (
                0x12,
                RoceOperation::AtomicAcknowledge { aeth: done, old: 0x0908 },
                "1f0000050000000000000908",
            ),
            (
                0x13,
                RoceOperation::Atomic { at: AT, atomic: swap },
                &format!("{address}00000000000000040000000000000003"),
            ),
            (
                0x14,
                RoceOperation::Atomic { at: AT, atomic: Atomic::FetchAndAdd { add: 2 } },
                &format!("{address}00000000000000020000000000000000"),
            ),
            (0x16, send(PacketPart::Last, invalidate), "00000007"),
            (0x17, send(PacketPart::Only, invalidate), "00000007"),
            (
                0x64,
                RoceOperation::Datagram { qkey: 7, from: 0x99, immediate: None },
                "0000000700000099",
            ),
            (
                0x65,
                RoceOperation::Datagram { qkey: 7, from: 0x99, immediate: Some(1) },
                "000000070000009900000001",
            ),
        ] {
            for length in 0..6 {
                let packet = RocePacket { data: vec![0xda; length], ..packet(operation) };
                let written = packet.to_bytes();
                let pad = length.wrapping_neg() % 4;
                let bth = format!("{opcode:02x}{:02x}ffff0000001180000001", 0x40 | pad << 4);
                let data = "da".repeat(length) + &"00".repeat(pad);
                assert_eq!(written, bytes(&format!("{bth}{headers}{data}")), "{operation:?}");
                assert_eq!(RocePacket::parse(&written), Ok(packet), "{operation:?}");
                let end = BTH + headers.len() / 2;
                assert!(end <= HEADERS_MAX);
                assert_eq!(RocePacket::parse(&written[..end - 1]), Err(MalformedPacket));
            }
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let good = packet(RoceOperation::Send { part: PacketPart::Only, extra: Extra::Nothing })
            .to_bytes();
        assert!(RocePacket::parse(&good).is_ok());
        let wrong = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            RocePacket::parse(&bytes)
        };
        // Unknown operations, one of them of unreliable connections; a version; padding alone.
        for (at, byte) in [(0, 0x15), (0, 0x24), (0, 0x81), (1, 0x41), (1, 0x50)] {
            assert_eq!(wrong(at, byte), Err(MalformedPacket), "{at} {byte:#x}");
        }
        let long = [good.clone(), vec![0; MTU_MAX + 4]].concat();
        assert_eq!(RocePacket::parse(&long), Err(MalformedPacket));
        assert!(RocePacket::parse(&long[..good.len() + MTU_MAX]).is_ok());
        assert_eq!(RocePacket::parse(&long[..good.len() + 2]), Err(MalformedPacket));
    }

    #[test]
    fn each_part_has_its_lengths() {
        let lengths = [0, 1, 255, 256, 257];
        let taken = |part: PacketPart| lengths.map(|length| part.takes(length, 256));
        assert_eq!(taken(PacketPart::First), [false, false, false, true, false]);
        assert_eq!(taken(PacketPart::Middle), [false, false, false, true, false]);
        assert_eq!(taken(PacketPart::Last), [false, true, true, true, false]);
        assert_eq!(taken(PacketPart::Only), [true, true, true, true, false]);
    }
}
