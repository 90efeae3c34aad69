//! The parsers of all that a peer's device can say, for fuzzing. No part of the interface.

use super::wire::{Datagram, Signal};

/// Reads `bytes` in every way that a device does, and writes what was understood again.
///
/// # Panics
/// It is understood otherwise then.
pub fn read(bytes: &[u8]) {
    if let Some(datagram) = Datagram::parse(bytes) {
        assert_eq!(Datagram::parse(&datagram.emit()), Some(datagram));
        let address = datagram.from.address().expect("an address that was read can be written");
        assert_eq!(address.as_bytes(), datagram.from.emit());
    }
    let word = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    for word in [word, Signal::word_of(bytes)].into_iter().flatten() {
        if let Some(signal) = Signal::parse(word) {
            assert_eq!(signal.emit(), word);
            assert_eq!(Signal::word_of(&signal.message()), Some(word));
        }
    }
}
