//! The parsers of everything that a peer of the libfabric device can send: the hello of the
//! handshake, tags and data, trailers, packets, and the pieces that a packet asks for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_device::Release;
use tagmatch_ofi::fuzzing::{choose_pieces, read_handshake, read_packet, read_way, read_wire};

fuzz_target!(|data: &[u8]| {
    read_handshake(data);
    // The version and the kind, and the magic of its address.
    let mut hello = data.to_vec();
    if let Some(place) = hello.get_mut(35..40) {
        place.copy_from_slice(&[b'T', b'M', b'o', b'f', Release::OWN.byte()]);
        hello[0] = 1;
    }
    read_handshake(&hello);
    read_way(data);
    read_packet(data);
    let word = |at: usize| {
        let bytes = data.get(at * 8..at * 8 + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    if let (Some(tag), Some(beside), Some(used), Some(source)) =
        (word(0), word(1), word(2), word(3))
    {
        read_wire(tag, beside, u64::MAX, 0xff_ffff << 24);
        read_wire(tag, beside, used, source);
    }
    if let (Some(packet), Some(sizes)) = (data.get(..24), word(3)) {
        let [head, length, piece_max] = [sizes % 8192, sizes >> 13 & 0xff_ffff, sizes >> 37];
        let mut go = packet.to_vec();
        go[..4].copy_from_slice(&2u32.to_le_bytes());
        choose_pieces(&go, head as usize, length as usize, piece_max as u32);
    }
});
