//! The packets of the handshake.

use tagmatch_device::Address;

use super::address::MeetingAddress;
use super::kind::MeetingKind;

/// The longest transport address that is accepted. UCX's have a few dozen bytes for each network
/// device.
pub(crate) const WORKER_MAX: usize = 1 << 16;
/// The longest packet.
pub(crate) const PACKET_MAX: usize = WORKER_MAX + 256;

/// The hello packet: what a worker tells its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The address of the sender's device.
    pub address: Address,
    /// How the sender encodes tags: the bits of its layout.
    pub used: u64,
    /// The bits of the layout's source field.
    pub source: u64,
    /// The number that the sender's runtime puts into the source field of its tags, if it does.
    pub own_source: Option<u64>,
    /// The number that the receiver has to put into the source field, unless its runtime uses the
    /// field.
    pub number: u64,
    /// What the transport below needs to reach the sender, in the device's own form.
    pub worker: Vec<u8>,
}

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Both sides connected at once, and the other connection is the one that counts.
    Crossed,
    /// This address is connected already, or was and went down.
    Known,
    /// There is no room for another peer.
    Full,
    /// The two workers encode tags differently.
    Layout,
    /// Another peer's runtime has the same number.
    SameNumber,
    /// The transport below doesn't reach the other.
    NoTransport,
    /// The hello broke a rule.
    Invalid,
}

impl Refusal {
    const ALL: [Refusal; 7] = {
        use Refusal::*;
        [Crossed, Known, Full, Layout, SameNumber, NoTransport, Invalid]
    };
}

/// A packet of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A request to connect, or the answer that accepts it.
    Hello(Box<Hello>),
    /// The answer has come: the listener may send messages.
    Ready,
    /// The connection is refused.
    Refusal(Refusal),
    /// The sender leaves in order: the end of the connection, which follows, is no fault.
    Bye,
}

const HELLO: u8 = 1;
const READY: u8 = 2;
const REFUSAL: u8 = 3;
const BYE: u8 = 4;

impl Packet {
    /// The bytes of the packet.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Packet::Ready => out.push(READY),
            Packet::Bye => out.push(BYE),
            Packet::Refusal(refusal) => {
                let code = Refusal::ALL.iter().position(|other| other == refusal);
                out.extend_from_slice(&[REFUSAL, u8::try_from(code.unwrap_or(0)).unwrap_or(0)]);
            }
            Packet::Hello(hello) => {
                out.push(HELLO);
                for word in [hello.used, hello.source, hello.number] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
                out.push(hello.own_source.is_some().into());
                out.extend_from_slice(&hello.own_source.unwrap_or(0).to_le_bytes());
                let address = hello.address.as_bytes();
                out.push(u8::try_from(address.len()).unwrap_or(0));
                out.extend_from_slice(address);
                out.extend_from_slice(&hello.worker);
            }
        }
        out
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8], kind: &MeetingKind) -> Result<Packet, &'static str> {
        let mut reader = Reader(bytes);
        let packet = match reader.array::<1>()? {
            [READY] => Packet::Ready,
            [BYE] => Packet::Bye,
            [REFUSAL] => {
                let [code] = reader.array::<1>()?;
                let refusal = Refusal::ALL.get(usize::from(code));
                Packet::Refusal(*refusal.ok_or("a refusal for no known reason")?)
            }
            [HELLO] => return Self::parse_hello(reader, kind),
            _ => return Err("a handshake packet of unknown kind"),
        };
        if reader.0.is_empty() { Ok(packet) } else { Err("a handshake packet that is too long") }
    }

    fn parse_hello(mut reader: Reader<'_>, kind: &MeetingKind) -> Result<Packet, &'static str> {
        let used = reader.word()?;
        let source = reader.word()?;
        let number = reader.word()?;
        let own_source = match (reader.array::<1>()?, reader.word()?) {
            ([0], _) => None,
            ([1], own) => Some(own),
            _ => return Err("a hello with an unknown flag"),
        };
        let [length] = reader.array::<1>()?;
        let address = reader.slice(length.into())?;
        let address = Address::from_bytes(address).map_err(|_| "a hello without an address")?;
        MeetingAddress::parse(&address, kind).map_err(|_| "a hello with an unusable address")?;
        let worker = reader.0.to_vec();
        if worker.len() < kind.worker_min || worker.len() > WORKER_MAX {
            return Err("a hello with an impossible worker address");
        }
        let hello = Hello { address, used, source, own_source, number, worker };
        Ok(Packet::Hello(Box::new(hello)))
    }
}

/// The bytes that are still to be parsed.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn slice(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (slice, rest) =
            self.0.split_at_checked(length).ok_or("a handshake packet that is too short")?;
        self.0 = rest;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(N)?);
        Ok(array)
    }

    fn word(&mut self) -> Result<u64, &'static str> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::handshake::kind::KIND;

    fn sample(own_source: Option<u64>) -> Packet {
        let address = MeetingAddress { name: [6; 8], secret: [7; 16], port: 1, hosts: vec![] };
        Packet::Hello(Box::new(Hello {
            address: address.address(&KIND).unwrap(),
            used: 0xffff,
            source: 0xff,
            own_source,
            number: 3,
            worker: vec![5; 100],
        }))
    }

    #[test]
    fn packets_round_trip() {
        let mut packets = vec![sample(None), Packet::Ready, Packet::Bye, sample(Some(4))];
        packets.extend(Refusal::ALL.map(Packet::Refusal));
        for packet in packets {
            assert_eq!(Packet::parse(&packet.emit(), &KIND), Ok(packet));
        }
    }

    #[test]
    fn a_packet_that_is_cut_off_is_refused() {
        let whole = sample(None).emit();
        let least = whole.len() - 100 + 9;
        for length in 0..whole.len() {
            assert_eq!(Packet::parse(&whole[..length], &KIND).is_ok(), length >= least, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let _ = Packet::parse(&bytes, &KIND);
            bytes[0] = HELLO;
            let _ = Packet::parse(&bytes, &KIND);
        }

        #[test]
        fn a_damaged_hello_is_taken_or_refused(at: prop::sample::Index, byte: u8) {
            let mut bytes = sample(Some(1)).emit();
            *at.get_mut(&mut bytes) = byte;
            let _ = Packet::parse(&bytes, &KIND);
        }
    }
}
