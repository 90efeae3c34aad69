//! Buffers of several slices.

use std::any::Any;
use std::ptr::NonNull;

use crate::buffer::{Buffer, LentMemory};
use crate::bytes::Bytes;

/// The slices, and the memory into which they are packed for a device that needs their bytes in one
/// run.
struct Slices {
    slices: Vec<Buffer>,
    packed: Option<Buffer>,
}

// SAFETY: the memory is none, or that of a buffer which lives as long as it is packed. `packed`
// changes only in `Buffer::change_lender`, which asks for the memory again.
unsafe impl LentMemory for Slices {
    fn memory(&self) -> (NonNull<u8>, usize) {
        // Not by a slice: the device may write through the pointer.
        let packed = self.packed.as_ref();
        let start = packed.and_then(|packed| NonNull::new(packed.as_ptr().cast_mut()));
        (start.unwrap_or(NonNull::dangling()), packed.map_or(0, Buffer::len))
    }

    /// Packed slices lie in memory of the device, so the device is given the type of that memory.
    fn as_any(&self) -> &dyn Any {
        self.packed.as_ref().and_then(Buffer::lent_memory).unwrap_or(self)
    }

    fn is_writable(&self) -> bool {
        self.slices.iter().all(Buffer::is_writable)
    }

    fn slices(&self) -> Option<&[Buffer]> {
        Some(&self.slices)
    }

    fn copy_slices(&self) -> Option<Buffer> {
        let Slices { slices, packed } = self;
        let copy = Slices { slices: slices.clone(), packed: packed.clone() };
        Some(Buffer::lent(Box::new(copy)))
    }
}

/// Several slices: a message is gathered from them, or scattered to them, one behind the other.
impl Buffer {
    /// A buffer of several slices, for one send or receive. A send sends their bytes as one
    /// message; a receive fills the first slice, then the second, and so on. [`into_slices`]
    /// gives them back. There may be any number of slices, of any length each; the slices of a
    /// slice that is a buffer of several slices take its place.
    ///
    /// The buffer has no run of bytes that it could show: as a `[u8]` it is empty.
    /// [`total_len`](Self::total_len) is the number of bytes in all slices,
    /// [`slices`](Self::slices) shows them. A receive needs slices that can all be written.
    ///
    /// An eager message is gathered into memory that the worker keeps, and scattered out of the
    /// memory in which it came. For a longer one, memory is allocated until the operation ends, and
    /// the bytes are copied once more. If there is no memory, the operation fails. A receive of
    /// several slices is not offered to a NIC that matches. Over UCX and libfabric, each
    /// receive of several slices allocates memory for all their bytes when it is posted.
    ///
    /// ```
    /// # use tagmatch_device as tagmatch;
    /// use tagmatch::Buffer;
    /// let buffer = Buffer::from_slices([Buffer::from(vec![1, 2]), Buffer::from(vec![3])]);
    /// assert_eq!((buffer.total_len(), buffer.len()), (3, 0));
    /// assert_eq!(buffer.slices().unwrap()[0][..], [1, 2]);
    /// let slices = buffer.into_slices().unwrap();
    /// assert_eq!(slices[1][..], [3]);
    /// ```
    ///
    /// [`into_slices`]: Self::into_slices
    pub fn from_slices<B: Into<Buffer>>(slices: impl IntoIterator<Item = B>) -> Self {
        let mut flat = Vec::new();
        for slice in slices {
            match slice.into().into_slices() {
                Ok(inner) => flat.extend(inner),
                Err(slice) => flat.push(slice),
            }
        }
        Buffer::lent(Box::new(Slices { slices: flat, packed: None }))
    }

    /// The slices that [`Buffer::from_slices`] was given, each with its memory.
    ///
    /// # Errors
    /// The buffer was made from something else, which is returned.
    pub fn into_slices(mut self) -> Result<Vec<Buffer>, Buffer> {
        self.change_lender(|slices: &mut Slices| std::mem::take(&mut slices.slices)).ok_or(self)
    }

    /// The slices of a buffer of several slices; `None` if it is a buffer of another kind.
    pub fn slices(&self) -> Option<&[Buffer]> {
        self.lender()?.slices()
    }

    /// The bytes of one slice for writing; `None` if there is no such slice, or if it can only be
    /// read.
    pub fn slice_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        let slice = self.change_lender(|slices: &mut Slices| {
            slices.slices.get_mut(index)?.as_mut_slice().map(std::ptr::from_mut)
        });
        // SAFETY: the bytes are those of a slice which `self` owns, and which is borrowed with it.
        slice.flatten().map(|slice| unsafe { &mut *slice })
    }

    /// The number of bytes that the buffer has for a message: those of all its slices, or
    /// `self.len()` if it is not one of several slices.
    pub fn total_len(&self) -> usize {
        let total =
            |slices: &[Buffer]| slices.iter().map(|s| s.len()).fold(0, usize::saturating_add);
        self.slices().map_or(self.len(), total)
    }
}

/// The calls of engines that have a buffer of several slices.
#[doc(hidden)]
impl Buffer {
    /// The number of bytes, if they are one run: `None` for several slices.
    pub fn run_len(&self) -> Option<usize> {
        self.slices().is_none().then_some(self.len())
    }

    /// Copies the bytes of all slices to `out`, as many as fit.
    pub fn gather(&self, mut out: &mut [u8]) {
        for slice in self.slices().unwrap_or_default() {
            let (to, rest) = out.split_at_mut(slice.len().min(out.len()));
            to.copy_from_slice(&slice[..to.len()]);
            out = rest;
        }
    }

    /// Copies a message's bytes from `offset` on to the slices, as many as fit.
    pub fn scatter(&mut self, bytes: &Bytes<'_>, offset: usize) {
        self.change_lender(|slices: &mut Slices| slices.scatter(bytes, offset));
    }

    /// Shows `memory` as the bytes of several slices, until [`unpack`](Self::unpack).
    pub fn pack(&mut self, memory: Buffer) {
        self.change_lender(|slices: &mut Slices| slices.packed = Some(memory));
    }

    /// Ends what [`pack`](Self::pack) began. `filled`: so many bytes of the memory are copied to
    /// the slices first. Nothing happens if the slices are not packed.
    pub fn unpack(&mut self, filled: usize) {
        self.change_lender(|slices: &mut Slices| {
            let packed = slices.packed.take().unwrap_or_default();
            slices.scatter(&Bytes::from_slice(&packed[..filled.min(packed.len())]), 0);
        });
    }
}

impl Slices {
    fn scatter(&mut self, bytes: &Bytes<'_>, mut offset: usize) {
        for slice in &mut self.slices {
            if offset >= bytes.len() {
                return;
            }
            offset += bytes.copy_to_room(offset, slice.room().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn of_lengths(lengths: &[usize]) -> Buffer {
        Buffer::from_slices(lengths.iter().map(|&length| vec![0; length]))
    }

    fn contents(buffer: &Buffer) -> Vec<Vec<u8>> {
        buffer.slices().unwrap().iter().map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn slices_come_back_with_their_memory() {
        let given = [vec![1, 2], vec![], vec![3]];
        let starts = given.each_ref().map(|slice| slice.as_ptr());
        let buffer = Buffer::from_slices(given);
        assert_eq!((buffer.len(), buffer.total_len(), buffer.run_len()), (0, 3, None));
        assert!(buffer.is_writable() && buffer.lent_memory().is_some());
        assert_eq!(format!("{buffer:?}"), "Buffer(3 bytes in 3 slices)");
        let back = buffer.into_slices().unwrap();
        assert_eq!(back.iter().map(|slice| slice.as_ptr()).collect::<Vec<_>>(), starts);
        let plain = Buffer::from(vec![7; 5]);
        assert_eq!(
            (plain.total_len(), plain.run_len(), plain.slices().is_none()),
            (5, Some(5), true)
        );
        assert_eq!(plain.into_slices().unwrap_err().into_vec(), [7; 5]);
    }

    #[test]
    fn copies_have_all_bytes() {
        let mut buffer = Buffer::from_slices([vec![1, 2], vec![3]]);
        let copy = buffer.clone();
        buffer.slice_mut(1).unwrap()[0] = 9;
        assert!(buffer.slice_mut(2).is_none() && Buffer::zeroed(3).slice_mut(0).is_none());
        assert_eq!(
            (buffer.into_vec(), contents(&copy)),
            (vec![1, 2, 9], vec![vec![1, 2], vec![3]])
        );
    }

    #[test]
    fn slices_of_slices_take_their_place() {
        let inner = Buffer::from_slices([vec![2], vec![3]]);
        let none = Buffer::from_slices(Vec::<Buffer>::new());
        let outer = Buffer::from_slices([vec![1].into(), inner, none, vec![4].into()]);
        assert_eq!(contents(&outer), [[1], [2], [3], [4]]);
        assert_eq!(of_lengths(&[]).into_slices().unwrap().len(), 0);
    }

    #[test]
    fn one_slice_that_can_only_be_read_makes_all_read_only() {
        let shared: Arc<[u8]> = Arc::from(&b"ab"[..]);
        let buffer = Buffer::from_slices([vec![0; 4].into(), Buffer::from(Arc::clone(&shared))]);
        assert!(!buffer.is_writable() && buffer.total_len() == 6);
        drop((buffer.clone(), buffer));
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn bytes_are_scattered_in_order_as_many_as_fit() {
        let message: Vec<u8> = (0..100).collect();
        for lengths in [&[3usize, 0, 60, 4][..], &[200], &[0, 0], &[], &[96, 1], &[1; 120]] {
            let mut buffer = of_lengths(lengths);
            buffer.scatter(&Bytes::from_slice(&message), 4);
            let fits = buffer.total_len().min(96);
            let mut expected = message[4..4 + fits].to_vec();
            expected.resize(buffer.total_len(), 0);
            let mut gathered = vec![1; buffer.total_len()];
            buffer.gather(&mut gathered);
            assert_eq!((gathered, buffer.into_vec()), (expected.clone(), expected), "{lengths:?}");
        }
    }

    #[test]
    fn packed_slices_show_the_memory_until_they_are_unpacked() {
        let mut buffer = of_lengths(&[2, 0, 3]);
        buffer.pack(Buffer::from(vec![1, 2, 3, 4]));
        assert_eq!((&buffer[..], buffer.total_len()), (&[1, 2, 3, 4][..], 5));
        buffer.as_mut_slice().unwrap()[0] = 7;
        assert_eq!(buffer.clone()[..], [7, 2, 3, 4]);
        buffer.unpack(3);
        assert!(buffer.is_empty());
        buffer.unpack(9);
        assert_eq!(contents(&buffer), [vec![7, 2], vec![], vec![3, 0, 0]]);
        buffer.pack(Buffer::from_elements(vec![1u16]));
        assert!(buffer.lent_memory().is_some_and(|any| !any.is::<Slices>()));
        buffer.pack(Buffer::default());
        assert!(buffer.is_empty() && buffer.lent_memory().is_some_and(|any| any.is::<Slices>()));
        drop(buffer);
    }
}
