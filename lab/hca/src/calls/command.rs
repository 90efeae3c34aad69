//! A command: its attributes, and what it answers.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::abi::{self, ATTRIBUTES_MAX, Attribute, Header};
use crate::boundary::{Call, Errno};
use crate::memory::{Memory, MemoryError};

const HEADER_BYTES: u64 = size_of::<Header>() as u64;
const ATTRIBUTE_BYTES: u64 = size_of::<Attribute>() as u64;

/// A command that the device has read.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) call: u64,
    /// The descriptor: it names the context.
    pub(crate) context: i32,
    pub(crate) device: usize,
    pub(crate) method: u32,
    at: u64,
    attributes: Vec<Attribute>,
    /// Data of attributes, read once: the program may change its memory at any time.
    writes: Vec<(u64, Vec<u8>)>,
}

impl Command {
    pub(crate) fn read(memory: &impl Memory, call: &Call) -> Result<Self, Errno> {
        let mut header = Header::new_zeroed();
        memory.read(call.at, header.as_mut_bytes()).map_err(|_| libc::EFAULT)?;
        let count = usize::from(header.attributes);
        let length = HEADER_BYTES + count as u64 * ATTRIBUTE_BYTES;
        if count > ATTRIBUTES_MAX || u64::from(header.length) != length {
            return Err(libc::EINVAL);
        }
        let mut attributes = vec![Attribute::new_zeroed(); count];
        let from = call.at.wrapping_add(HEADER_BYTES);
        memory.read(from, attributes.as_mut_bytes()).map_err(|_| libc::EFAULT)?;
        Ok(Command {
            call: call.id,
            context: call.fd,
            device: call.device,
            method: abi::method(header.object, header.method),
            at: call.at,
            attributes,
            writes: Vec::new(),
        })
    }

    /// All that the program's memory holds of this command, and of what it has answered.
    pub(super) fn image(&self, memory: &impl Memory) -> Option<Vec<u8>> {
        let mut image = vec![0; size_of_val(&self.attributes[..])];
        memory.read(self.at.wrapping_add(HEADER_BYTES), &mut image).ok()?;
        for attribute in self.attributes.iter().filter(|attribute| attribute.length > 8) {
            let mut data = vec![0; attribute.length.into()];
            memory.read(attribute.data, &mut data).ok()?;
            image.extend(data);
        }
        Some(image)
    }

    fn find(&self, id: u16) -> Option<(u64, &Attribute)> {
        let at = self.attributes.iter().position(|attribute| attribute.id == id)?;
        let place = self.at + HEADER_BYTES + at as u64 * ATTRIBUTE_BYTES;
        Some((place, &self.attributes[at]))
    }

    pub(crate) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Bytes that the program has room for.
    pub(crate) fn length(&self, id: u16) -> usize {
        self.find(id).map_or(0, |(_, attribute)| attribute.length.into())
    }

    /// A number that the program gives.
    pub(crate) fn value(&self, id: u16) -> Option<u64> {
        let (_, attribute) = self.find(id)?;
        Some(match attribute.length {
            1 => attribute.data & 0xff,
            2 => attribute.data & 0xffff,
            4 => attribute.data & 0xffff_ffff,
            _ => attribute.data,
        })
    }

    /// A number that the program gives, of 32 bits.
    pub(crate) fn word(&self, id: u16) -> Option<u32> {
        u32::try_from(self.value(id)?).ok()
    }

    /// A handle.
    pub(crate) fn handle(&self, id: u16) -> Option<u32> {
        u32::try_from(self.find(id)?.1.data).ok()
    }

    /// A structure. What a shorter one leaves out is zero.
    pub(crate) fn structure<T: FromBytes + IntoBytes>(
        &self,
        id: u16,
        memory: &impl Memory,
    ) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        let Some((_, attribute)) = self.find(id) else { return Ok(value) };
        let bytes = value.as_mut_bytes();
        let length = usize::from(attribute.length).min(bytes.len());
        if attribute.length <= 8 {
            bytes[..length].copy_from_slice(&attribute.data.to_ne_bytes()[..length]);
        } else {
            memory.read(attribute.data, &mut bytes[..length]).map_err(|_| libc::EFAULT)?;
        }
        Ok(value)
    }

    /// The structure of a command of `INVOKE_WRITE`. The kernel refuses a shorter one
    /// (`UVERBS_METHOD_INVOKE_WRITE` in `uverbs_std_types_device.c`).
    pub(crate) fn core<T: FromBytes + IntoBytes>(&self, memory: &impl Memory) -> Result<T, Errno> {
        if self.length(abi::device::CORE_IN) < size_of::<T>() {
            return Err(libc::ENOSPC);
        }
        self.structure(abi::device::CORE_IN, memory)
    }

    /// Answers a structure. The room that the program has beyond it is filled with zeros.
    pub(crate) fn answer<T: IntoBytes + Immutable + ?Sized>(&mut self, id: u16, value: &T) {
        let Some((place, attribute)) = self.find(id) else { return };
        let Attribute { length, flags, data, .. } = *attribute;
        let mut bytes = value.as_bytes().to_vec();
        bytes.resize(length.into(), 0);
        let flags = flags | Attribute::VALID_OUTPUT;
        self.writes.push((data, bytes));
        self.writes.push((place + Attribute::FLAGS_AT, flags.to_ne_bytes().to_vec()));
    }

    /// Answers a handle or a descriptor, in the attribute itself.
    pub(crate) fn answer_handle(&mut self, id: u16, value: u64) {
        if let Some((place, _)) = self.find(id) {
            self.writes.push((place + Attribute::DATA_AT, value.to_ne_bytes().to_vec()));
        }
    }

    /// Writes bytes into the program's memory along with the answers.
    pub(crate) fn write_also(&mut self, at: u64, bytes: &[u8]) {
        self.writes.push((at, bytes.to_vec()));
    }

    pub(super) fn write(&self, memory: &impl Memory) -> Result<(), MemoryError> {
        let pieces: Vec<(u64, &[u8])> =
            self.writes.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        memory.write(&pieces)
    }
}
