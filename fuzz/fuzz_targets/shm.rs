//! The parsers of everything that a peer can write into the memory and the sockets of the
//! shared-memory device.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_device::Address;
use tagmatch_shm::fuzzing::{
    Bounds, DoorbellBit, Geometry, HandshakePacket, Meta, Progress, ReadMessage, ShmName,
    check_progress, parse_read_message, parse_slot,
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
        // A fragment carries bytes behind its header.
        let mut again = internal.emit().to_vec();
        if matches!(internal, ReadMessage::Fragment { .. }) {
            again.push(0);
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
            assert!(shape.length <= most && shape.spilled() <= shape.length);
        }
    }
    // Progress that was accepted lies between the progress before and what was produced.
    if let (Some(a), Some(b), Some(c), Some(d)) = (word(0), word(1), word(2), word(3)) {
        let before = Progress { messages: a, spill_bytes: b };
        let produced = Progress {
            messages: a.wrapping_add(c % 65_536),
            spill_bytes: b.wrapping_add(d % (1 << 28)),
        };
        let told = Progress::unpack(u64::from(c) << 32 | u64::from(d));
        if let Ok(believed) = check_progress(before, told, produced) {
            assert!(believed.since(before).messages <= produced.since(before).messages);
            assert!(believed.since(before).spill_bytes <= produced.since(before).spill_bytes);
        }
        // A run of spilled bytes is inside the spill, and in one piece.
        if let Some(geometry) = Geometry::new(1 << (a % 20), 1 << (b % 30)) {
            let length = 1 + d % geometry.message_max();
            let (start, next) = geometry.place(c, length);
            assert!(start + length <= geometry.spill_bytes());
            assert!(next.wrapping_sub(c) <= geometry.spill_bytes());
        }
        let _ = DoorbellBit::new(a);
    }
});
