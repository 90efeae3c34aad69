//! The buffers that peers may read, for devices whose software finds the bytes of a read.

use super::buffer::Buffer;
use super::device::{DeviceError, Exposure, ExposureId, RemoteSpan};
use super::slab::{Key, Slab};

/// A table of exposed buffers. A peer names a buffer by its short key, in which the generation
/// tells the key of an earlier buffer.
#[derive(Debug, Default)]
pub struct Exposures {
    buffers: Slab<Buffer>,
}

impl Exposures {
    /// Enters a buffer into the table.
    ///
    /// # Errors
    /// Returns the buffer if too many are exposed.
    pub fn expose(&mut self, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        let Some(key) = self.buffers.vacant(Key::SHORT_MAX) else {
            return Err((buffer, DeviceError::too_many_exposed()));
        };
        let span = RemoteSpan::of(&buffer, key.to_short());
        self.buffers.fill(key, buffer);
        Ok(Exposure { id: ExposureId(span.key), span })
    }

    /// Takes a buffer out of the table.
    pub fn withdraw(&mut self, id: ExposureId) -> Option<Buffer> {
        self.buffers.remove(self.buffers.key_of_short(id.0)?)
    }

    /// The bytes of a span; `None` unless all of them are exposed.
    pub fn bytes(&self, span: RemoteSpan) -> Option<&[u8]> {
        span.bytes_in(self.buffers.get(self.buffers.key_of_short(span.key)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_exposed_bytes_only() {
        let mut exposures = Exposures::default();
        let exposure = exposures.expose(Buffer::from(vec![1, 2, 3, 4])).unwrap();
        let span = exposure.span;
        assert_eq!(exposures.bytes(span), Some(&[1, 2, 3, 4][..]));
        let part = RemoteSpan { address: span.address + 1, length: 2, ..span };
        assert_eq!(exposures.bytes(part), Some(&[2, 3][..]));
        for bad in [
            RemoteSpan { length: 5, ..span },
            RemoteSpan { length: u64::MAX, ..span },
            RemoteSpan { address: span.address - 1, length: 1, ..span },
            RemoteSpan { address: span.address + 5, length: 0, ..span },
            RemoteSpan { address: u64::MAX, ..span },
            RemoteSpan { key: span.key ^ 1, ..span },
            RemoteSpan { key: u32::MAX, ..span },
        ] {
            assert_eq!(exposures.bytes(bad), None, "{bad:?}");
        }
        assert_eq!(exposures.withdraw(exposure.id).unwrap().len(), 4);
        assert!(exposures.bytes(span).is_none() && exposures.withdraw(exposure.id).is_none());
        let next = exposures.expose(Buffer::from(vec![5])).unwrap();
        assert_ne!(next.span.key, span.key);
        assert!(exposures.bytes(span).is_none());
    }

    #[test]
    fn an_old_key_is_invalid_after_the_same_bytes_are_exposed_again() {
        let mut exposures = Exposures::default();
        let first = exposures.expose(Buffer::from(vec![1, 2, 3])).unwrap();
        let buffer = exposures.withdraw(first.id).unwrap();
        let again = exposures.expose(buffer).unwrap();
        assert_eq!((again.span.address, again.span.length), (first.span.address, 3));
        assert_eq!(exposures.bytes(again.span), Some(&[1, 2, 3][..]));
        assert_eq!(exposures.bytes(first.span), None);
    }

    #[test]
    fn keys_differ_over_many_uses_of_an_entry() {
        let mut exposures = Exposures::default();
        let first = exposures.expose(Buffer::zeroed(1)).unwrap();
        assert!(exposures.withdraw(first.id).is_some());
        for _ in 0..4000 {
            let next = exposures.expose(Buffer::zeroed(1)).unwrap();
            assert_ne!(next.id, first.id);
            assert!(exposures.withdraw(next.id).is_some());
        }
    }
}
