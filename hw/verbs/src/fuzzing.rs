//! The parsers of everything that a peer's device can send, for fuzzing. Not part of the public
//! interface.

use super::address::VerbsAddress;
use super::wire::{Datagram, Signal};

/// Parses `bytes` in every way that a device does, and emits the result again.
///
/// # Panics
/// If parsing what was emitted gives another result.
pub fn read(bytes: &[u8]) {
    if let Some(datagram) = Datagram::parse(bytes) {
        assert_eq!(Datagram::parse(&datagram.emit(None)), Some(datagram));
        let _ = VerbsAddress::parse(&datagram.from);
    }
    let immediate = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    for code in [immediate, Signal::code_of(bytes)].into_iter().flatten() {
        if let Some(signal) = Signal::parse(code) {
            assert_eq!(signal.emit(), code);
            assert_eq!(Signal::code_of(&signal.message()), Some(code));
        }
    }
}
