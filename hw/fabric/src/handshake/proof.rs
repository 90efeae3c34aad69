//! Proofs that both ends of a connection know the secret of the address that was connected to.
//!
//! The caller has the secret from the address; the listener made it. Neither end sends it. Each end
//! sends a random *challenge*. From the secret and both challenges each end computes the key of the
//! *session*, and with that key:
//! 1. a proof, which tells the other end that this end has the secret;
//! 2. a tag on each packet of the handshake, so that an attacker can't change, repeat or add a
//!    packet;
//! 3. a stream of bytes that encrypts each packet, since a hello contains the secret of its
//!    sender's own address.
//!
//! All three are one keyed hash: SipHash-2-4, computed twice for 128 bits. It is made for short
//! inputs under a secret key of 128 bits, and the standard library has it.
//!
//! Where the workers of a job share a secret, a key of it is mixed into the address' secret before
//! that is used ([`with_jobs`]): a proof shows then that its sender has both.
//!
//! **Proofs before the handshake's packets.** UCX ends the process when it is given an invalid
//! worker address, and libfabric's providers aren't made for one either, so nothing from an unknown
//! process may get that far. Our address holds a secret. Each end answers the other's challenge
//! with a keyed hash of it, and packets are encrypted and signed by keyed hashes, too. Sending the
//! secret itself would be simpler, but the host at an address (a bridge's, say) may belong to
//! somebody else, who would then have it. The hash is the standard library's SipHash-2-4, so there
//! is no dependency.

use std::hash::Hasher;
// Deprecated as the hasher of maps, in favour of one that takes no key.
#[allow(deprecated)]
use std::hash::SipHasher;
use std::hint::black_box;

/// The 128 random bits of an address. Knowing them proves that an end has the address.
pub(crate) type Secret = [u8; 16];

/// The address' secret, mixed with the key of the job's secret if there is one.
pub(crate) fn with_jobs(address: &Secret, job: Option<&tagmatch_secret::Proof>) -> Secret {
    let mut both = *address;
    for (byte, jobs) in both.iter_mut().zip(job.into_iter().flatten()) {
        *byte ^= jobs;
    }
    both
}

/// 128 random bits, new for each connection.
pub(crate) type Challenge = [u8; 16];
/// A keyed hash, which only an end with the key can compute.
pub(crate) type Tag = [u8; 16];

/// Which end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Caller,
    Listener,
}

impl Role {
    fn other(self) -> Self {
        match self {
            Role::Caller => Role::Listener,
            Role::Listener => Role::Caller,
        }
    }
}

/// The purpose of a hash. Hashes for different purposes never have the same input.
#[derive(Clone, Copy)]
enum Use {
    Key = 1,
    Proof,
    Tag,
    Cover,
}

/// One end of a connection whose challenges have been exchanged.
pub(crate) struct Session {
    key: [u8; 16],
    role: Role,
    /// How many packets this end has sealed.
    sealed: u64,
    /// How many packets of the other end this end has opened.
    opened: u64,
}

impl Session {
    /// `own` is the challenge that this end has sent.
    pub(crate) fn new(secret: &Secret, role: Role, own: &Challenge, others: &Challenge) -> Self {
        let (callers, listeners) = match role {
            Role::Caller => (own, others),
            Role::Listener => (others, own),
        };
        let key = hash_128(secret, Use::Key, Role::Caller, 0, &[*callers, *listeners].concat());
        Session { key, role, sealed: 0, opened: 0 }
    }

    /// The proof that this end has the secret.
    pub(crate) fn proof(&self) -> Tag {
        hash_128(&self.key, Use::Proof, self.role, 0, &[])
    }

    /// Whether this is the other end's proof. Takes the same time whatever the bytes are.
    pub(crate) fn is_proof(&self, proof: &[u8]) -> bool {
        is_same(proof, &hash_128(&self.key, Use::Proof, self.role.other(), 0, &[]))
    }

    /// Encrypts a packet in place, and returns its tag.
    pub(crate) fn seal(&mut self, packet: &mut [u8]) -> Tag {
        let number = self.sealed;
        self.sealed += 1;
        self.cover(self.role, number, packet);
        hash_128(&self.key, Use::Tag, self.role, number, packet)
    }

    /// Decrypts the other end's next packet in place if the tag is right; only the other end can
    /// have made it then.
    pub(crate) fn open(&mut self, packet: &mut [u8], tag: &[u8]) -> bool {
        let number = self.opened;
        let other = self.role.other();
        if !is_same(tag, &hash_128(&self.key, Use::Tag, other, number, packet)) {
            return false;
        }
        self.opened += 1;
        self.cover(other, number, packet);
        true
    }

    /// Encrypts a packet, or decrypts an encrypted one.
    fn cover(&self, role: Role, number: u64, packet: &mut [u8]) {
        for (at, bytes) in (0u64..).zip(packet.chunks_mut(16)) {
            let stream = hash_128(&self.key, Use::Cover, role, number, &at.to_le_bytes());
            bytes.iter_mut().zip(stream).for_each(|(byte, other)| *byte ^= other);
        }
    }
}

/// 128 bits of a keyed hash. The input is unambiguous: all but `bytes` has a fixed length.
fn hash_128(key: &[u8; 16], purpose: Use, role: Role, number: u64, bytes: &[u8]) -> [u8; 16] {
    let mut hash = [0; 16];
    for (half, out) in (0u8..).zip(hash.chunks_exact_mut(8)) {
        let mut head = [half, purpose as u8, role as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        head[4..].copy_from_slice(&number.to_le_bytes());
        out.copy_from_slice(&hash_64(key, &[&head, bytes]).to_le_bytes());
    }
    hash
}

/// SipHash-2-4 of the parts, one after the other.
#[allow(deprecated)]
fn hash_64(key: &[u8; 16], parts: &[&[u8]]) -> u64 {
    let (low, high) = key.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let mut hasher = SipHasher::new_with_keys(word(low), word(high));
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// Whether both are equal, in a time that doesn't depend on where they differ.
fn is_same(one: &[u8], other: &Tag) -> bool {
    let difference = one.iter().zip(other).fold(0, |found, (a, b)| black_box(found | (a ^ b)));
    one.len() == other.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(callers: &Secret, listeners: &Secret) -> (Session, Session) {
        let one = [1; 16];
        let two = [2; 16];
        let caller = Session::new(callers, Role::Caller, &one, &two);
        (caller, Session::new(listeners, Role::Listener, &two, &one))
    }

    #[test]
    fn the_hash_is_siphash_as_published() {
        let key: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let input: [u8; 15] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        // Aumasson and Bernstein, "SipHash: a fast short-input PRF", appendix A.
        assert_eq!(hash_64(&key, &[&input]), 0xa129_ca61_49be_45e5);
        assert_eq!(hash_64(&key, &[&input[..4], &input[4..]]), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn a_job_with_a_secret_and_one_without_never_prove_themselves_to_each_other() {
        let own = [7; 16];
        let mixed = with_jobs(&own, Some(&[3; 32]));
        assert_eq!(with_jobs(&own, None), own);
        for (callers, listeners, is_one_job) in [
            (mixed, mixed, true),
            (mixed, own, false),
            (own, mixed, false),
            (mixed, with_jobs(&own, Some(&[4; 32])), false),
        ] {
            let (caller, listener) = pair(&callers, &listeners);
            assert_eq!(listener.is_proof(&caller.proof()), is_one_job);
            assert_eq!(caller.is_proof(&listener.proof()), is_one_job);
        }
    }

    #[test]
    fn both_ends_prove_themselves_and_neither_proof_can_be_reflected() {
        let (caller, listener) = pair(&[7; 16], &[7; 16]);
        assert!(listener.is_proof(&caller.proof()) && caller.is_proof(&listener.proof()));
        assert!(!listener.is_proof(&listener.proof()) && !caller.is_proof(&caller.proof()));
        assert!(!listener.is_proof(&caller.proof()[..15]) && !listener.is_proof(&[]));
    }

    #[test]
    fn a_packet_of_another_session_another_end_or_another_place_is_not_opened() {
        let (mut caller, mut listener) = pair(&[7; 16], &[7; 16]);
        let mut first = *b"a packet, longer than the stream's pieces";
        let tag = caller.seal(&mut first);
        let opens = |session: &mut Session| session.open(&mut first.clone(), &tag);
        assert!(!opens(&mut caller));
        assert!(!opens(&mut pair(&[7; 16], &[8; 16]).1));
        let mut later = pair(&[7; 16], &[7; 16]);
        assert!(later.1.open(&mut [], &later.0.seal(&mut [])));
        assert!(!opens(&mut later.1));
        assert!(opens(&mut listener));
        assert!(!opens(&mut listener), "the same packet twice");
    }

    proptest! {
        #[test]
        fn packets_are_opened_as_they_were_sealed_and_not_once_changed(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 1..4),
            at: prop::sample::Index, flip in 1u8..,
        ) {
            let (mut caller, mut listener) = pair(&[7; 16], &[7; 16]);
            for packet in packets {
                let mut sent = packet.clone();
                let tag = caller.seal(&mut sent);
                let mut changed: Vec<u8> = sent.iter().chain(&tag).copied().collect();
                *at.get_mut(&mut changed) ^= flip;
                let (bytes, changed_tag) = changed.split_at_mut(packet.len());
                prop_assert!(!listener.open(bytes, changed_tag));
                prop_assert!(listener.open(&mut sent, &tag) && sent == packet);
            }
        }
    }
}
