//! The buffers that peers may read, for devices whose software finds the bytes of a read.

use super::buffer::Buffer;
use super::device::{Exposure, ExposureId, RemoteSpan};
use super::peer::PeerId;
use super::slab::{Key, Slab};
use crate::DeviceError;

/// A table of exposed buffers, each of which one peer may read. A peer names a buffer by its short
/// key, in which the generation tells the key of an earlier buffer. Keys can be guessed, so a key
/// is of use to its reader alone.
#[derive(Debug, Default)]
pub struct Exposures {
    buffers: Slab<Exposed>,
}

#[derive(Debug)]
struct Exposed {
    reader: PeerId,
    buffer: Buffer,
}

/// The buffers of [`Exposures`] that one peer may read.
#[derive(Clone, Copy, Debug)]
pub struct Readable<'a> {
    exposures: &'a Exposures,
    reader: PeerId,
}

impl Exposures {
    /// Enters a buffer into the table, for `reader` to read.
    ///
    /// # Errors
    /// Returns the buffer if too many are exposed.
    pub fn expose(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        let Some(key) = self.buffers.vacant(Key::SHORT_MAX) else {
            return Err((buffer, DeviceError::too_many_exposed()));
        };
        let span = RemoteSpan::of(&buffer, key.to_short());
        self.buffers.fill(key, Exposed { reader, buffer });
        Ok(Exposure { id: ExposureId(span.key), span })
    }

    /// Takes a buffer out of the table; `None` if none is exposed to `reader` under this number.
    pub fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        let key = self.buffers.key_of_short(id.0)?;
        self.buffers.get(key).filter(|exposed| exposed.reader == reader)?;
        self.buffers.remove(key).map(|exposed| exposed.buffer)
    }

    /// The buffers that a peer may read.
    pub fn readable_by(&self, reader: PeerId) -> Readable<'_> {
        Readable { exposures: self, reader }
    }
}

impl<'a> Readable<'a> {
    /// The bytes of a span; `None` unless all of them are exposed to this peer.
    pub fn bytes(self, span: RemoteSpan) -> Option<&'a [u8]> {
        let exposed = self.named(span).filter(|exposed| exposed.reader == self.reader)?;
        span.bytes_in(&exposed.buffer)
    }

    /// Checks that the key in a request of this peer isn't that of another peer. No worker asks for
    /// that: it reads with the keys that it was sent.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub fn check(self, span: RemoteSpan) -> Result<(), &'static str> {
        match self.named(span) {
            Some(exposed) if exposed.reader != self.reader => {
                Err("a peer asks for memory that another peer may read")
            }
            _ => Ok(()),
        }
    }

    fn named(self, span: RemoteSpan) -> Option<&'a Exposed> {
        let Exposures { buffers } = self.exposures;
        buffers.get(buffers.key_of_short(span.key)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: PeerId = PeerId(1);

    #[test]
    fn finds_exposed_bytes_only() {
        let mut exposures = Exposures::default();
        let exposure = exposures.expose(READER, Buffer::from(vec![1, 2, 3, 4])).unwrap();
        let span = exposure.span;
        assert_eq!(exposures.readable_by(READER).bytes(span), Some(&[1, 2, 3, 4][..]));
        let part = RemoteSpan { address: span.address + 1, length: 2, ..span };
        assert_eq!(exposures.readable_by(READER).bytes(part), Some(&[2, 3][..]));
        for bad in [
            RemoteSpan { length: 5, ..span },
            RemoteSpan { length: u64::MAX, ..span },
            RemoteSpan { address: span.address - 1, length: 1, ..span },
            RemoteSpan { address: span.address + 5, length: 0, ..span },
            RemoteSpan { address: u64::MAX, ..span },
            RemoteSpan { key: span.key ^ 1, ..span },
            RemoteSpan { key: u32::MAX, ..span },
        ] {
            assert_eq!(exposures.readable_by(READER).bytes(bad), None, "{bad:?}");
        }
        assert_eq!(exposures.withdraw(READER, exposure.id).unwrap().len(), 4);
        assert!(
            exposures.readable_by(READER).bytes(span).is_none()
                && exposures.withdraw(READER, exposure.id).is_none()
        );
        let next = exposures.expose(READER, Buffer::from(vec![5])).unwrap();
        assert_ne!(next.span.key, span.key);
        assert!(exposures.readable_by(READER).bytes(span).is_none());
    }

    #[test]
    fn an_old_key_is_invalid_after_the_same_bytes_are_exposed_again() {
        let mut exposures = Exposures::default();
        let first = exposures.expose(READER, Buffer::from(vec![1, 2, 3])).unwrap();
        let buffer = exposures.withdraw(READER, first.id).unwrap();
        let again = exposures.expose(READER, buffer).unwrap();
        assert_eq!((again.span.address, again.span.length), (first.span.address, 3));
        assert_eq!(exposures.readable_by(READER).bytes(again.span), Some(&[1, 2, 3][..]));
        assert_eq!(exposures.readable_by(READER).bytes(first.span), None);
    }

    #[test]
    fn keys_differ_over_many_uses_of_an_entry() {
        let mut exposures = Exposures::default();
        let first = exposures.expose(READER, Buffer::zeroed(1)).unwrap();
        assert!(exposures.withdraw(READER, first.id).is_some());
        for _ in 0..4000 {
            let next = exposures.expose(READER, Buffer::zeroed(1)).unwrap();
            assert_ne!(next.id, first.id);
            assert!(exposures.withdraw(READER, next.id).is_some());
        }
    }

    #[test]
    fn a_key_is_valid_for_its_reader_alone() {
        let mut exposures = Exposures::default();
        let Exposure { id, span } = exposures.expose(READER, Buffer::from(vec![1, 2, 3])).unwrap();
        let other = PeerId(2);
        assert_eq!(exposures.readable_by(other).bytes(span), None);
        assert!(exposures.readable_by(other).check(span).is_err());
        assert!(exposures.withdraw(other, id).is_none());
        assert_eq!(exposures.readable_by(READER).bytes(span), Some(&[1, 2, 3][..]));
        assert_eq!(exposures.readable_by(READER).check(span), Ok(()));
        assert!(exposures.withdraw(READER, id).is_some());
        // A late request finds nothing, whoever asks.
        assert_eq!(exposures.readable_by(other).check(span), Ok(()));
    }
}
