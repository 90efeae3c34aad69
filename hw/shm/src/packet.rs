//! The packets of the handshake, as bytes.

use tagmatch_device::Address;
use tagmatch_device::bytes::{array_at, u32_at, u64_at};
use tagmatch_os::process::NONCE_BYTES;
use tagmatch_os::wake_socket::WakeKey;

use super::arena::Arena;
use super::doorbell::DoorbellBit;
use super::name::VERSION;
use super::ring::Geometry;

/// Random bytes at a known address in the sender's memory, as long as the peer may read the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; NONCE_BYTES]);

/// The memory of the sender's device, which the receiver may map for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedMemory {
    /// Address of its first byte in the sender's address space.
    pub address: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The generation of the connection. The word at the index of the hello's doorbell bit has
    /// another number once the sender has ended the connection.
    pub generation: u64,
}

/// The packet with which one side offers a connection, or accepts it. Up to three descriptors are
/// sent with it: the memory of the pair, if the sender is the side that connects; the memory of the
/// sender's doorbell; and the memory of its device, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sender's address.
    pub address: Address,
    /// Longest message that the sender receives.
    pub message_max: u32,
    /// Whether the sender takes messages in fragments.
    pub takes_fragments: bool,
    /// Whether the sender copies a part of the long messages that it sends.
    pub takes_offers: bool,
    /// Long lines of each of the two rings: what the memory of the pair has room for, or, in an
    /// answer, what both sides use of that.
    pub geometry: Geometry,
    /// The bit of the sender's doorbell for this ring.
    pub doorbell_bit: DoorbellBit,
    /// Whether a barrier made by another process (membarrier(2)) reaches the sender.
    pub hears_barriers: bool,
    /// Whether the sender can put a barrier on other processes (membarrier(2)).
    pub makes_barriers: bool,
    /// Address of the nonce in the sender's memory.
    pub nonce_address: u64,
    /// The nonce.
    pub nonce: Nonce,
    /// The memory of the sender's device.
    pub memory: Option<OfferedMemory>,
    /// Wakes the sender of this hello: the contents of a packet to its waker socket.
    pub wake_key: WakeKey,
}

/// Why a worker refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloRefusal {
    /// Both sides have connected at the same time, and the other connection counts.
    Crossed,
    /// The worker can't make a connection now. Try again.
    Busy,
    /// A peer with this address is connected already, or is down.
    Known,
    /// The worker has no room for another peer.
    Full,
    /// The hello broke a rule.
    Invalid,
    /// The worker has lacked descriptors for as long as connecting may take.
    Lacking,
}

impl HelloRefusal {
    const ALL: [HelloRefusal; 6] = [
        HelloRefusal::Crossed,
        HelloRefusal::Busy,
        HelloRefusal::Known,
        HelloRefusal::Full,
        HelloRefusal::Invalid,
        HelloRefusal::Lacking,
    ];
}

/// A packet of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakePacket {
    /// Offers or accepts a connection.
    Hello(Hello),
    /// Refuses a connection.
    Refusal(HelloRefusal),
}

const MAGIC_HELLO: [u8; 8] = *b"TMshHELO";
const MAGIC_REFUSAL: [u8; 8] = *b"TMshNOPE";
const HELLO_LENGTH: usize = 160;
const MEMORY_AT: usize = 128;
const WAKE_KEY_AT: usize = 152;
const REFUSAL_LENGTH: usize = 16;
const HEARS_BARRIERS: u32 = 1;
const MAKES_BARRIERS: u32 = 2;
const TAKES_FRAGMENTS: u32 = 4;
const TAKES_OFFERS: u32 = 8;
const FLAGS: u32 = HEARS_BARRIERS | MAKES_BARRIERS | TAKES_FRAGMENTS | TAKES_OFFERS;

/// Length of a buffer for any valid packet, and one byte more, so that a longer packet is noticed.
pub(crate) const PACKET_MAX: usize = HELLO_LENGTH + 1;

impl Hello {
    /// The packet.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HELLO_LENGTH);
        let hears = if self.hears_barriers { HEARS_BARRIERS } else { 0 };
        let makes = if self.makes_barriers { MAKES_BARRIERS } else { 0 };
        let takes = if self.takes_fragments { TAKES_FRAGMENTS } else { 0 };
        let offers = if self.takes_offers { TAKES_OFFERS } else { 0 };
        let address = self.address.as_bytes();
        out.extend_from_slice(&MAGIC_HELLO);
        for word in [
            VERSION,
            hears | makes | takes | offers,
            self.message_max,
            self.geometry.bytes(),
            u32::try_from(self.doorbell_bit.index()).unwrap_or(u32::MAX),
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.nonce_address.to_le_bytes());
        out.extend_from_slice(&self.nonce.0);
        out.extend_from_slice(&(address.len() as u64).to_le_bytes());
        out.extend_from_slice(address);
        out.resize(MEMORY_AT, 0);
        let none = OfferedMemory { address: 0, length: 0, generation: 0 };
        let OfferedMemory { address, length, generation } = self.memory.unwrap_or(none);
        for word in [address, length, generation] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.wake_key);
        out
    }

    fn parse(bytes: &[u8; HELLO_LENGTH]) -> Result<Self, &'static str> {
        if u32_at(bytes, 8) != VERSION {
            return Err("a hello of another version");
        }
        let flags = u32_at(bytes, 12);
        if flags & !FLAGS != 0 {
            return Err("a hello with unknown flags");
        }
        let geometry =
            Geometry::new(u32_at(bytes, 20)).ok_or("a hello with an impossible ring size")?;
        let message_max = u32_at(bytes, 16);
        if !geometry.allows_messages_of(message_max) {
            return Err("a hello with an impossible message length");
        }
        let doorbell_bit =
            DoorbellBit::new(u32_at(bytes, 24)).ok_or("a hello with an impossible doorbell bit")?;
        let address = usize::try_from(u64_at(bytes, 52))
            .ok()
            .filter(|length| *length <= Address::MAX)
            .and_then(|length| Address::from_bytes(&bytes[60..60 + length]).ok())
            .ok_or("a hello without an address")?;
        let [start, length, generation] =
            [0, 8, 16].map(|offset| u64_at(bytes, MEMORY_AT + offset));
        let memory = match length {
            0 => None,
            Arena::BYTES_MIN..=Arena::BYTES_MAX => {
                Some(OfferedMemory { address: start, length, generation })
            }
            _ => return Err("a hello with an impossible length of the device's memory"),
        };
        Ok(Hello {
            address,
            message_max,
            takes_fragments: flags & TAKES_FRAGMENTS != 0,
            takes_offers: flags & TAKES_OFFERS != 0,
            geometry,
            doorbell_bit,
            hears_barriers: flags & HEARS_BARRIERS != 0,
            makes_barriers: flags & MAKES_BARRIERS != 0,
            nonce_address: u64_at(bytes, 28),
            nonce: Nonce(array_at(bytes, 36)),
            memory,
            wake_key: array_at(bytes, WAKE_KEY_AT),
        })
    }
}

impl HelloRefusal {
    /// The packet.
    pub fn emit(self) -> Vec<u8> {
        let code = Self::ALL.iter().position(|other| *other == self).unwrap_or(0);
        let mut out = MAGIC_REFUSAL.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&u32::try_from(code).unwrap_or(0).to_le_bytes());
        out
    }
}

impl HandshakePacket {
    /// Parses a packet. Its sender is not trusted.
    ///
    /// # Errors
    /// The rule that the packet breaks.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        if let Ok(hello) = <&[u8; HELLO_LENGTH]>::try_from(bytes)
            && hello.starts_with(&MAGIC_HELLO)
        {
            return Hello::parse(hello).map(HandshakePacket::Hello);
        }
        if bytes.len() == REFUSAL_LENGTH && bytes.starts_with(&MAGIC_REFUSAL) {
            // The version is ignored: the reasons of version 1 keep their numbers in all versions.
            let code = u32_at(bytes, 12) as usize;
            let refusal = HelloRefusal::ALL.get(code).copied().unwrap_or(HelloRefusal::Invalid);
            return Ok(HandshakePacket::Refusal(refusal));
        }
        Err("not a packet of the handshake")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            address: Address::from_bytes(&[7; 48]).unwrap(),
            message_max: 16448,
            takes_fragments: true,
            takes_offers: true,
            geometry: Geometry::new(1 << 18).unwrap(),
            doorbell_bit: DoorbellBit::new(17).unwrap(),
            hears_barriers: true,
            makes_barriers: false,
            nonce_address: 0x1234_5678_9abc,
            nonce: Nonce([9; 16]),
            memory: Some(OfferedMemory { address: 1 << 40, length: 1 << 28, generation: 3 }),
            wake_key: *b"wake key",
        }
    }

    #[test]
    fn round_trips() {
        assert_eq!(HandshakePacket::parse(&hello().emit()), Ok(HandshakePacket::Hello(hello())));
        let without = Hello { memory: None, ..hello() };
        assert_eq!(HandshakePacket::parse(&without.emit()), Ok(HandshakePacket::Hello(without)));
        for refusal in HelloRefusal::ALL {
            assert_eq!(
                HandshakePacket::parse(&refusal.emit()),
                Ok(HandshakePacket::Refusal(refusal))
            );
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        let packet = hello().emit();
        assert!(packet.len() < PACKET_MAX);
        assert!(HandshakePacket::parse(&packet[..packet.len() - 1]).is_err());
        assert!(HandshakePacket::parse(&[&packet[..], &[0]].concat()).is_err());
        assert!(HandshakePacket::parse(&[]).is_err());
    }

    proptest! {
        #[test]
        fn a_changed_packet_is_accepted_or_refused(at in 0usize..HELLO_LENGTH, value: u8) {
            let mut packet = hello().emit();
            packet[at] = value;
            if let Ok(HandshakePacket::Hello(hello)) = HandshakePacket::parse(&packet) {
                prop_assert!(hello.message_max <= hello.geometry.message_max());
                // A packet that was accepted can be written again.
                prop_assert_eq!(HandshakePacket::parse(&hello.emit()), Ok(HandshakePacket::Hello(hello)));
            }
        }

        #[test]
        fn any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = HandshakePacket::parse(&bytes);
        }
    }
}
