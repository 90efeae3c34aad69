//! What a peer can make this device parse: hellos, tags and data, trailers and packets. For
//! fuzzing, and no part of the interface.

use tagmatch_fabric::handshake::Packet as Handshake;

use super::carrier::{Carrier, CqData, Wire};
use super::config::KIND;
use super::control::{Packet, Trailer};
use super::operations::Long;
use super::provider::Way;

/// Parses `bytes` as a packet of the handshake, and the way in a hello of it.
///
/// # Panics
/// What is emitted again is parsed to something else.
pub fn read_handshake(bytes: &[u8]) {
    if let Ok(packet) = Handshake::parse(bytes, &KIND) {
        if let Handshake::Hello(hello) = &packet {
            read_way(&hello.worker);
        }
        assert_eq!(Handshake::parse(&packet.emit(), &KIND), Ok(packet));
    }
}

/// Parses `bytes` as the way to a peer.
///
/// # Panics
/// What is emitted again is parsed to something else.
pub fn read_way(bytes: &[u8]) {
    if let Some(way) = Way::parse(bytes) {
        assert_eq!(way.emit(), bytes);
    }
}

/// Takes `bytes` as what comes into a receive for packets, and as a head with a trailer.
///
/// # Panics
/// What is emitted again is parsed to something else, or a head loses bytes.
pub fn read_packet(bytes: &[u8]) {
    if let Some(packet) = Packet::parse(bytes) {
        assert_eq!(Packet::parse(&packet.emit()), Some(packet));
    }
    if let Some((head, trailer)) = Trailer::split(bytes) {
        let again = [head, &trailer.emit()].concat();
        assert_eq!(Trailer::split(&again), Some((head, trailer)));
    }
}

/// Reads the tag and the data of a message, as any kind of provider tells them.
///
/// # Panics
/// A message has a number or a tag that no peer can have.
pub fn read_wire(tag: u64, data: u64, used: u64, source: u64) {
    for (tag_bits, kind) in [(63, CqData::Both), (60, CqData::One), (48, CqData::Sender)] {
        let Ok(carrier) = Carrier::new(used, source, tag_bits, kind) else { continue };
        let wire = Wire { tag, data };
        let label = carrier.read(wire);
        let most = if kind == CqData::Sender { 0xff_ffff } else { carrier.number_max() };
        assert!(label.number <= most && carrier.control_number(wire) <= most);
        assert_eq!(label.tag & source, 0);
    }
}

/// Lets the answer of a receiver, in a packet, choose the pieces of a message of so many bytes.
///
/// # Panics
/// A piece lies outside of the message, behind its end, or not behind the piece before it.
pub fn choose_pieces(packet: &[u8], head: usize, length: usize, piece_max: u32) {
    let Some(go) = Packet::parse(packet) else { return };
    let mut long = Long::to_be_sent(head);
    if !long.follow(go, piece_max, length) {
        return;
    }
    let mut place = head;
    // Short pieces of a message of gigabytes are many.
    for _ in 0..4096 {
        let Some((start, bytes)) = long.take_next() else { break };
        assert_eq!(start, place);
        assert!(bytes > 0 && bytes <= piece_max as usize && start + bytes <= length);
        place = start + bytes;
        long.out -= 1;
    }
    assert!(long.out == 0 && (place == long.end || !long.is_over()));
    assert!(!long.follow(go, piece_max, length), "two answers to one message");
}
