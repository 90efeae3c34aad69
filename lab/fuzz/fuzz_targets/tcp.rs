//! Everything that a peer or a stranger can send to a TCP device: addresses, greetings, frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_device::Network;
use tagmatch_device::contents::Contents;

fuzz_target!(|data: &[u8]| {
    tagmatch_tcp::fuzzing::read(data);
    // Addresses and openings begin with a mark, which random bytes seldom do.
    let address = Contents::new([0; 7]).with(Network::Tcp, &[]).address().unwrap();
    for mark in [&address.as_bytes()[..2], b"TMtp\x02"] {
        let mut marked = data.to_vec();
        if let Some(place) = marked.get_mut(..mark.len()) {
            place.copy_from_slice(mark);
            tagmatch_tcp::fuzzing::read(&marked);
        }
    }
    // Frames one after the other, each with a good header: its kind and length come from one byte.
    let mut frames = Vec::new();
    for part in data.chunks(24) {
        let kind = 1 + part[0] % 8;
        let length = match kind {
            3 => 20,
            1 | 2 | 4 => part[0] / 7,
            _ => 0,
        };
        frames.extend([length, 0, 0, 0, kind, 0, 0, 0, part[0] % 5, 0, 0, 0]);
        frames.extend(part.iter().copied().chain(std::iter::repeat(0)).take(length.into()));
    }
    tagmatch_tcp::fuzzing::read(&frames);
});
