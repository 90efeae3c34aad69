//! What a network brings to the ConnectX in software: packets of RoCE behind UDP.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_hca::fuzzing::read_packet;

/// The operations of packets that the device knows.
const OPCODES: u8 = 26;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    read_packet(rest, first & 1 != 0);
    // A packet of a known operation, whole words long.
    let opcode = match first % OPCODES {
        24 => 0x64,
        25 => 0x65,
        opcode => opcode,
    };
    let mut packet = vec![opcode, *first & 0xf0];
    packet.extend(rest);
    packet.resize(packet.len().next_multiple_of(4), 0);
    read_packet(&packet, first & 1 != 0);
});
