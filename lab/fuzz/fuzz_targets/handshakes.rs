//! The parsers of the handshakes: the datagrams and signals by which verbs devices connect and
//! leave, and the packets by which UCX devices meet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_device::Release;

/// The bytes with a mark written over them at `at`. Handshakes begin with marks and versions, which
/// random bytes seldom have.
fn marked(data: &[u8], mark: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if let Some(place) = bytes.get_mut(at..at + mark.len()) {
        place.copy_from_slice(mark);
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    tagmatch_verbs::fuzzing::read(data);
    tagmatch_verbs::fuzzing::read(&marked(&marked(data, b"TMvh\x02", 0), b"TMvb\x01", 24));
    tagmatch_ucx::fuzzing::read(data);
    tagmatch_ucx::fuzzing::read(&marked(data, &[1], 0));
    let magic = [&b"TMux"[..], &[Release::OWN.byte()]].concat();
    tagmatch_ucx::fuzzing::read(&marked(&marked(data, &[1], 0), &magic, 35));
});
