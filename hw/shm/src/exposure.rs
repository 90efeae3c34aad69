//! The buffers that peers may read.

use tagmatch_device::{Buffer, DeviceError, Exposure, ExposureId, RemoteSpan};

/// Most buffers exposed at a time.
const EXPOSURES_MAX: usize = 1 << INDEX_BITS;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const INDEX_BITS: u32 = 20;

struct Entry {
    /// Counts the uses of the entry. A key contains 12 bits of it, so a key of an earlier use is
    /// recognised.
    generation: u32,
    buffer: Option<Buffer>,
}

/// A table of exposed buffers. A key is the index of the entry and its generation.
#[derive(Default)]
pub(crate) struct Exposures {
    entries: Vec<Entry>,
    free: Vec<usize>,
}

fn pack(index: usize, generation: u32) -> u32 {
    // Indices are below EXPOSURES_MAX.
    (u32::try_from(index).unwrap_or(0) & INDEX_MASK) | generation << INDEX_BITS
}

fn index(key: u32) -> usize {
    (key & INDEX_MASK) as usize
}

impl Exposures {
    /// Enters a buffer into the table.
    pub(crate) fn expose(&mut self, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.entries.len() < EXPOSURES_MAX => {
                self.entries.push(Entry { generation: 0, buffer: None });
                self.entries.len() - 1
            }
            None => {
                let limit = EXPOSURES_MAX;
                let what = "exposed buffer";
                return Err((buffer, DeviceError::Exhausted { what, limit }));
            }
        };
        let entry = &mut self.entries[at];
        let key = pack(at, entry.generation);
        let span = RemoteSpan {
            address: buffer.as_ptr().expose_provenance() as u64,
            key,
            length: buffer.len() as u64,
        };
        entry.buffer = Some(buffer);
        Ok(Exposure { id: ExposureId(key), span })
    }

    /// Takes a buffer out of the table.
    pub(crate) fn withdraw(&mut self, id: ExposureId) -> Option<Buffer> {
        let at = index(id.0);
        let entry = self.entries.get_mut(at)?;
        if pack(at, entry.generation) != id.0 {
            return None;
        }
        let buffer = entry.buffer.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(at);
        Some(buffer)
    }

    /// The bytes of a span; `None` unless all of them are exposed.
    pub(crate) fn bytes(&self, span: RemoteSpan) -> Option<&[u8]> {
        let at = index(span.key);
        let entry = self.entries.get(at)?;
        if pack(at, entry.generation) != span.key {
            return None;
        }
        let buffer = entry.buffer.as_ref()?;
        let offset = span.address.checked_sub(buffer.as_ptr().addr() as u64)?;
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(span.length).ok()?)?;
        buffer.get(start..end)
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
