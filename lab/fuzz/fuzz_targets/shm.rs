//! The parsers of everything that a peer can write into the memory and the sockets of the
//! shared-memory device.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_device::Address;
use tagmatch_shm::fuzzing::{
    Bounds, DoorbellBit, HandshakePacket, Meta, ReadMessage, ShmName, checked_progress,
    parse_read_message, parse_slot,
};

fuzz_target!(|data: &[u8]| {
    // A handshake packet that was parsed is written as it was read, up to the padding.
    if let Ok(greeting) = HandshakePacket::parse(data) {
        let again = match greeting.clone() {
            HandshakePacket::Hello(hello) => hello.emit(),
            HandshakePacket::Refusal(refusal) => refusal.emit(),
        };
        assert_eq!(HandshakePacket::parse(&again), Ok(greeting));
    }
    if let Ok(address) = Address::from_bytes(data) {
        let _ = ShmName::parse(&address);
    }
    if let Ok(internal) = parse_read_message(data) {
        // A fragment carries bytes behind its header, and an offer an address.
        let mut again = internal.emit().to_vec();
        match internal {
            ReadMessage::Fragment { .. } => again.push(0),
            ReadMessage::Offer { .. } => again.extend([0; 8]),
            _ => {}
        }
        assert_eq!(parse_read_message(&again), Ok(internal));
    }
    let word = |at: usize| {
        let bytes = data.get(at * 4..at * 4 + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    // A slot that was accepted is within bounds.
    if let (Some(meta), Some(message), Some(internal)) = (word(0), word(1), word(2)) {
        let bounds = Bounds {
            message_bytes_max: message % (1 << 27),
            internal_bytes_max: internal % (1 << 27),
        };
        if let Ok(shape) = parse_slot(Meta(meta), bounds) {
            let most =
                if shape.internal { bounds.internal_bytes_max } else { bounds.message_bytes_max };
            assert!(shape.length <= most && shape.outside() <= shape.length);
        }
    }
    if let (Some(a), Some(b), Some(c)) = (word(0), word(1), word(2)) {
        // A claim that is believed lies between the claim before it and what was produced.
        let produced = a.wrapping_add(b % (1 << 28));
        if let Ok(believed) = checked_progress(a, c, produced) {
            assert!(believed.wrapping_sub(a) <= produced.wrapping_sub(a));
        }
        let _ = DoorbellBit::new(a);
    }
});
