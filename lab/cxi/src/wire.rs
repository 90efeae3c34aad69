//! Names of endpoints, and what endpoints send each other.

use tagmatch_os::process::Pid;

/// An endpoint's name: the process, and the endpoint's number in it. cxi has a NIC and a number on
/// it, in eight bytes, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(pub(crate) u64);

impl Name {
    /// Bytes of a name.
    pub(crate) const BYTES: usize = 8;

    /// The name of this process's endpoint with this number.
    pub(crate) fn own(number: u32) -> Self {
        Name(u64::from(std::process::id()) << 32 | u64::from(number))
    }

    /// The process.
    pub(crate) fn process(self) -> Pid {
        Pid((self.0 >> 32) as i32)
    }
}

/// A packet from one endpoint to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// A message.
    Put(Put),
    /// The receiver has matched the message, and has its bytes.
    Matched {
        /// The sender's number of the message.
        id: u64,
    },
    /// The receiver is in flow control, and has put a message of the sender's aside.
    Pause,
    /// The flow control is over.
    Resume,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) source: Name,
    pub(crate) tag: u64,
    /// `FI_REMOTE_CQ_DATA`
    pub(crate) data: Option<u64>,
    /// Bytes of the message.
    pub(crate) length: usize,
    /// The number by which the sender wants to know that the message was matched; 0: it doesn't.
    pub(crate) id: u64,
    /// Where the bytes are in the sender's memory; 0: in `payload`.
    pub(crate) address: u64,
    pub(crate) payload: Vec<u8>,
}

const MAGIC: u64 = u64::from_le_bytes(*b"tm-cxi-1");
/// Eight numbers of eight bytes.
const HEADER: usize = 64;

const PUT: u64 = 0;
const PUT_DATA: u64 = 1;
const MATCHED: u64 = 2;
const PAUSE: u64 = 3;
const RESUME: u64 = 4;

/// Most bytes of a message that travel with it. A longer one is read by its receiver.
pub(crate) const EAGER_MAX: usize = 16384;
/// Most bytes of a packet.
pub(crate) const PACKET_MAX: usize = HEADER + EAGER_MAX;

impl Packet {
    /// The bytes of the packet.
    pub(crate) fn bytes(&self, source: Name) -> Vec<u8> {
        let none = [0; 5];
        let (kind, [tag, data, length, id, address]) = match self {
            Packet::Put(put) => {
                let kind = if put.data.is_some() { PUT_DATA } else { PUT };
                let data = put.data.unwrap_or(0);
                (kind, [put.tag, data, put.length as u64, put.id, put.address])
            }
            Packet::Matched { id } => (MATCHED, [0, 0, 0, *id, 0]),
            Packet::Pause => (PAUSE, none),
            Packet::Resume => (RESUME, none),
        };
        let words = [MAGIC, kind, source.0, tag, data, length, id, address];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        if let Packet::Put(put) = self {
            bytes.extend_from_slice(&put.payload);
        }
        bytes
    }

    /// The packet with these bytes, and its sender; `None` if they are no packet.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Name, Packet)> {
        let (header, payload) = bytes.split_first_chunk::<HEADER>()?;
        let mut words = header.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
        let mut next = || words.next()?.ok();
        let magic = next()?;
        let kind = next()?;
        let source = Name(next()?);
        let tag = next()?;
        let data = next()?;
        let length = next()?;
        let id = next()?;
        let address = next()?;
        if magic != MAGIC {
            return None;
        }
        let packet = match kind {
            PUT | PUT_DATA => {
                let length = usize::try_from(length).ok()?;
                let is_whole = if address == 0 { payload.len() == length } else { id != 0 };
                if !is_whole {
                    return None;
                }
                let data = (kind == PUT_DATA).then_some(data);
                Packet::Put(Put { source, tag, data, length, id, address, payload: payload.into() })
            }
            MATCHED => Packet::Matched { id },
            PAUSE => Packet::Pause,
            RESUME => Packet::Resume,
            _ => return None,
        };
        Some((source, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_parsed_as_it_was_made() {
        let source = Name(0x1234_0000_0007);
        let put = |data, address, payload: &[u8]| {
            let length = if address == 0 { payload.len() } else { 99 };
            let payload = payload.into();
            Packet::Put(Put { source, tag: 5, data, length, id: 9, address, payload })
        };
        for packet in [
            put(None, 0, b"bytes"),
            put(Some(u64::MAX), 0, b""),
            put(Some(0), 0x7000, b""),
            Packet::Matched { id: 3 },
            Packet::Pause,
            Packet::Resume,
        ] {
            assert_eq!(Packet::parse(&packet.bytes(source)), Some((source, packet)));
        }
    }

    #[test]
    fn bytes_that_are_no_packet_are_dropped() {
        let bytes = Packet::Matched { id: 3 }.bytes(Name(1));
        assert_eq!(Packet::parse(&bytes[..HEADER - 1]), None);
        for (at, value) in [(0, 0), (8, 99)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(Packet::parse(&wrong), None);
        }
        // A message of five bytes that comes with none.
        let mut wrong = bytes;
        wrong[8] = 0;
        wrong[40] = 5;
        assert_eq!(Packet::parse(&wrong), None);
    }
}
