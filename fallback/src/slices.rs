//! Messages of several slices ([`Buffer::from_slices`]): the code that the short ways don't need.
//!
//! A buffer of several slices shows no bytes. So its send looks like an empty message, and every
//! message is too long for its receive. Both lead here.
//!
//! | message | send | receive |
//! |---|---|---|
//! | eager | gathered in [`Scratch`], for each attempt | scattered out of the device's message, or out of the store |
//! | rendezvous | packed into memory of the device when it is exposed | read into memory of the device, then scattered |
//!
//! Packed memory is in the buffer itself ([`Buffer::pack`]), which shows it until the operation
//! ends.

use tagmatch_device::{Buffer, Bytes, Device};

use crate::error::Fault;
use crate::requests::request::Refused;

/// Memory in which eager messages are gathered. It grows to the longest of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch(Vec<u8>);

impl Scratch {
    /// The bytes of a message in one run.
    #[inline]
    pub(crate) fn bytes<'a>(&'a mut self, buffer: &'a Buffer) -> &'a [u8] {
        if buffer.is_empty() { self.gather(buffer) } else { buffer }
    }

    #[cold]
    fn gather(&mut self, buffer: &Buffer) -> &[u8] {
        self.0.clear();
        for slice in buffer.slices().unwrap_or_default() {
            self.0.extend_from_slice(slice);
        }
        &self.0
    }
}

/// Copies a message that has waited to the slices, if there are any.
#[cold]
#[inline(never)]
pub(crate) fn scatter(buffer: &mut Buffer, payload: &[u8]) {
    buffer.scatter(&Bytes::from_slice(payload), 0);
}

/// Whether a message that is longer than the bytes that the buffer shows is too long for its slices
/// as well.
#[cold]
#[inline(never)]
pub(crate) fn is_too_long(buffer: &Buffer, length: u64) -> bool {
    length > buffer.total_len() as u64
}

/// Whether the slices have to be packed before a device can use their bytes.
fn needs_memory(buffer: &Buffer) -> bool {
    buffer.is_empty() && buffer.run_len().is_none()
}

/// A buffer that the device can expose: several slices are packed into its memory.
///
/// # Errors
/// The buffer; there is no memory for its bytes.
pub(crate) fn to_expose<D: Device>(device: &mut D, buffer: Buffer) -> Result<Buffer, Buffer> {
    pack_into(buffer, |length| device.allocate(length))
}

/// A buffer that a device which matches by itself can send: several slices are packed.
///
/// # Errors
/// As for [`to_expose`].
pub(crate) fn packed(buffer: Buffer) -> Result<Buffer, Buffer> {
    pack_into(buffer, Buffer::try_zeroed)
}

fn pack_into(
    mut buffer: Buffer,
    allocate: impl FnOnce(usize) -> Option<Buffer>,
) -> Result<Buffer, Buffer> {
    if needs_memory(&buffer) {
        let Some(mut memory) = allocate(buffer.total_len()) else { return Err(buffer) };
        buffer.gather(memory.as_mut_slice().unwrap_or_default());
        buffer.pack(memory);
    }
    Ok(buffer)
}

/// The fault of an operation whose slices can't be packed.
pub(crate) fn no_memory(buffer: &Buffer) -> Fault {
    Fault::NoMemory { bytes: buffer.total_len() }
}

/// A buffer into which the device can read `length` bytes, at most as many as it has in total.
///
/// # Errors
/// The buffer; there is no memory for the bytes.
pub(crate) fn to_read_into<D: Device>(
    device: &mut D,
    mut buffer: Buffer,
    length: u64,
) -> Result<Buffer, Buffer> {
    if needs_memory(&buffer) {
        let memory = usize::try_from(length).ok().and_then(|length| device.allocate(length));
        let Some(memory) = memory else { return Err(buffer) };
        buffer.pack(memory);
    }
    Ok(buffer)
}

/// A buffer into which a device that matches by itself can receive: for several slices, with memory
/// for all their bytes.
///
/// # Errors
/// There is no memory for them.
pub(crate) fn room(mut buffer: Buffer) -> Result<Buffer, Box<Refused>> {
    if needs_memory(&buffer) && buffer.is_writable() {
        let Some(memory) = Buffer::try_zeroed(buffer.total_len()) else {
            return Err(Box::new(Refused { fault: no_memory(&buffer), buffer }));
        };
        buffer.pack(memory);
    }
    Ok(buffer)
}

/// The buffer of an operation that has ended, as its owner gave it.
pub(crate) fn of_owner(mut buffer: Buffer) -> Buffer {
    buffer.unpack(0);
    buffer
}
