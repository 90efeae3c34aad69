//! The buffers that peers may read.

use tagmatch_device::slab::{Key, Slab};
use tagmatch_device::{Buffer, DeviceError, Exposure, ExposureId, RemoteSpan};

/// A table of exposed buffers. A peer names a buffer by its short key, in which the generation tells
/// the key of an earlier buffer.
#[derive(Default)]
pub(crate) struct Exposures {
    buffers: Slab<Buffer>,
}

impl Exposures {
    /// Enters a buffer into the table.
    pub(crate) fn expose(&mut self, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        let Some(key) = self.buffers.vacant(Key::SHORT_MAX) else {
            return Err((buffer, DeviceError::too_many_exposed()));
        };
        let span = RemoteSpan::of(&buffer, key.to_short());
        self.buffers.fill(key, buffer);
        Ok(Exposure { id: ExposureId(span.key), span })
    }

    /// Takes a buffer out of the table.
    pub(crate) fn withdraw(&mut self, id: ExposureId) -> Option<Buffer> {
        self.buffers.remove(self.buffers.key_of_short(id.0)?)
    }

    /// The bytes of a span; `None` unless all of them are exposed.
    pub(crate) fn bytes(&self, span: RemoteSpan) -> Option<&[u8]> {
        span.bytes_in(self.buffers.get(self.buffers.key_of_short(span.key)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_while_they_are_exposed() {
        let mut exposures = Exposures::default();
        let first = exposures.expose(Buffer::from(vec![1, 2, 3, 4])).unwrap();
        let part = RemoteSpan { address: first.span.address + 1, length: 2, ..first.span };
        assert_eq!(exposures.bytes(part), Some(&[2, 3][..]));
        let long = RemoteSpan { length: 5, ..first.span };
        assert_eq!(exposures.bytes(long), None);
        let buffer = exposures.withdraw(first.id).unwrap();
        let again = exposures.expose(buffer).unwrap();
        assert_eq!(exposures.bytes(again.span), Some(&[1, 2, 3, 4][..]));
        assert_eq!(exposures.bytes(first.span), None, "the key of an earlier use");
        assert!(exposures.withdraw(first.id).is_none());
    }
}
