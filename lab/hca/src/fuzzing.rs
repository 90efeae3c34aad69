//! The parsers of everything that a program writes for the device, for fuzzing. No part of the
//! interface.

use crate::abi;
use crate::boundary::Call;
use crate::calls::command::Command;
use crate::memory::{Memory, MemoryError};
use crate::roce::icrc::{Checker, ICRC, PacketFlow};
use crate::roce::packet::RocePacket;
use crate::wqe::{Piece, Wqe, receive_segments};

/// Reads the bytes as a request of a send queue, and as the segments of a receive.
///
/// # Panics
/// A request has bytes that aren't in it.
pub fn read_requests(data: &[u8]) {
    for is_datagram in [false, true] {
        let Ok(wqe) = Wqe::parse(data, is_datagram) else { continue };
        for piece in &wqe.data {
            assert!(!matches!(piece, Piece::Inline(place) if data.get(place.clone()).is_none()));
        }
        assert_eq!(wqe.to.is_some(), is_datagram && wqe.opcode != 0 && wqe.opcode != 0x28);
    }
    assert!(receive_segments(data).len() <= data.len() / 16);
}

/// Reads a command at `at` in a program's memory, which has these bytes from `base` on.
pub fn read_command(memory: &[u8], base: u64, at: u64) {
    let memory = FuzzedMemory { bytes: memory.to_vec(), base };
    let call = Call { id: 1, thread: 1, fd: 3, device: 0, at };
    let Ok(command) = Command::read(&memory, &call) else { return };
    for id in [0, 1, 2, 3, abi::UHW_IN, abi::UHW_OUT] {
        // Whatever it is, it was read once and within its length.
        let numbers = (command.has(id), command.value(id), command.word(id), command.handle(id));
        assert!(numbers.0 || numbers == (false, None, None, None));
        assert!(command.structure::<[u64; 16]>(id, &memory).is_ok() || command.length(id) > 8);
    }
}

/// Reads the bytes as a packet of a network behind UDP, over IPv4 or IPv6, with its ICRC; and, as
/// few bytes have a right one, without it.
///
/// # Panics
/// A packet is written otherwise than it was read.
pub fn read_packet(data: &[u8], is_ipv6: bool) {
    let ends =
        if is_ipv6 { ["[fe80::1]:4791", "[fe80::2]:1"] } else { ["10.0.0.1:1", "10.0.0.2:4791"] };
    let [Ok(from), Ok(to)] = ends.map(str::parse) else { return };
    let flow = PacketFlow { from, to };
    let mut checker = Checker::default();
    if let Some(packet) = checker.checked(&flow, data) {
        assert_eq!(packet.len() + ICRC, data.len());
    }
    let Ok(packet) = RocePacket::parse(data) else { return };
    let mut written = packet.to_bytes();
    assert_eq!(RocePacket::parse(&written), Ok(packet));
    let Some(icrc) = flow.icrc(&written) else { return };
    written.extend(icrc.to_le_bytes());
    assert_eq!(checker.checked(&flow, &written), Some(&written[..written.len() - ICRC]));
}

/// The memory of a program.
struct FuzzedMemory {
    bytes: Vec<u8>,
    base: u64,
}

impl Memory for FuzzedMemory {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let start = at.checked_sub(self.base).and_then(|start| usize::try_from(start).ok());
        let rest = start.and_then(|start| self.bytes.get(start..)).ok_or(MemoryError::Fault)?;
        into.copy_from_slice(rest.get(..into.len()).ok_or(MemoryError::Fault)?);
        Ok(())
    }

    fn write(&self, _: &[(u64, &[u8])]) -> Result<(), MemoryError> {
        Err(MemoryError::Fault)
    }

    fn pairs(&self, _: &[u64], _: &mut Vec<Option<[u32; 2]>>) -> Result<(), MemoryError> {
        Err(MemoryError::Fault)
    }

    fn is_mapped(&self, _: u64, _: u64, _: bool) -> Result<bool, MemoryError> {
        Ok(false)
    }

    fn lockable(&self) -> u64 {
        0
    }
}
