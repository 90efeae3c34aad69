//! Proofs that both ends of a connection know the secret.
//!
//! Each end sends a random *nonce* and its address, and then its proof: HMAC-SHA-256, with the
//! secret as the key, over the role of the end that proves itself, both nonces and both addresses.
//! - An end with another secret can't compute it.
//! - A proof that was recorded is of no use: the nonce of the end that checks it is new for each
//!   connection.
//! - A proof that is sent back to the end that made it is wrong, since the roles differ.
//! - A proof that was made for another worker is wrong, since the addresses differ.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::secret::Secret;

/// Bytes of a [`Nonce`].
pub const NONCE_BYTES: usize = 16;
/// Random bytes that an end makes anew for each connection.
pub type Nonce = [u8; NONCE_BYTES];
/// Bytes of a [`Proof`].
pub const PROOF_BYTES: usize = 32;
/// The proof that an end knows the secret.
pub type Proof = [u8; PROOF_BYTES];

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that has connected.
    Caller = 1,
    /// The end that has accepted the connection.
    Listener = 2,
}

/// What an end of a connection sends about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofEnd<'a> {
    /// Its random bytes.
    pub nonce: &'a Nonce,
    /// The address of its worker, with everything else that the end says before its proof.
    pub address: &'a [u8],
}

impl Secret {
    /// The authentication code of a message of the protocol with this name: HMAC-SHA-256. Only a
    /// process with the secret can compute it, and it is another one in every other protocol.
    ///
    /// ```
    /// use tagmatch_secret::Secret;
    /// let secret = Secret::from_bytes(b"at least sixteen bytes")?;
    /// let code = secret.code(b"example 1", b"a message");
    /// assert!(secret.is_code(b"example 1", b"a message", &code));
    /// assert!(!secret.is_code(b"example 2", b"a message", &code));
    /// # Ok::<(), tagmatch_secret::SecretError>(())
    /// ```
    pub fn code(&self, protocol: &[u8], message: &[u8]) -> Proof {
        self.authenticated(protocol, message).finalize().into_bytes().into()
    }

    /// Whether this is the authentication code of the message. The time that the comparison takes
    /// doesn't depend on the bytes.
    pub fn is_code(&self, protocol: &[u8], message: &[u8], code: &[u8]) -> bool {
        self.authenticated(protocol, message).verify_slice(code).is_ok()
    }

    fn authenticated(&self, protocol: &[u8], message: &[u8]) -> Hmac<Sha256> {
        // The input of a greeting's proof begins with a role, which is never 0.
        keyed(self)
            .chain_update([0])
            .chain_update((protocol.len() as u64).to_le_bytes())
            .chain_update(protocol)
            .chain_update(message)
    }
}

/// What both ends have said before they prove that they know the secret.
///
/// ```
/// use tagmatch_secret::{ProofEnd, Greeting, Role, Secret};
/// let secret = Secret::from_bytes(b"at least sixteen bytes")?;
/// let greeting = Greeting {
///     protocol: b"example 1",
///     caller: ProofEnd { nonce: &[1; 16], address: b"one" },
///     listener: ProofEnd { nonce: &[2; 16], address: b"two" },
/// };
/// let proof = greeting.proof(&secret, Role::Caller);
/// assert!(greeting.is_proof(&secret, Role::Caller, &proof));
/// assert!(!greeting.is_proof(&secret, Role::Listener, &proof));
/// # Ok::<(), tagmatch_secret::SecretError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// Names the protocol and its version, so that a proof of one protocol is wrong in another one.
    pub protocol: &'a [u8],
    /// The end that has connected.
    pub caller: ProofEnd<'a>,
    /// The end that has accepted the connection.
    pub listener: ProofEnd<'a>,
}

impl Greeting<'_> {
    /// The proof of the end with this role.
    pub fn proof(&self, secret: &Secret, role: Role) -> Proof {
        self.hash(secret, role).finalize().into_bytes().into()
    }

    /// Whether this is the proof of the end with this role. The time that the comparison takes
    /// doesn't depend on the bytes.
    pub fn is_proof(&self, secret: &Secret, role: Role, proof: &[u8]) -> bool {
        self.hash(secret, role).verify_slice(proof).is_ok()
    }

    fn hash(&self, secret: &Secret, role: Role) -> Hmac<Sha256> {
        let mut hash = keyed(secret);
        hash.update(&[role as u8]);
        // The length of each part comes before it, so no two greetings have the same input.
        for part in [
            self.protocol,
            self.caller.nonce,
            self.caller.address,
            self.listener.nonce,
            self.listener.address,
        ] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash
    }
}

/// HMAC-SHA-256 with the secret as the key.
fn keyed(secret: &Secret) -> Hmac<Sha256> {
    let Ok(hash) = Hmac::new_from_slice(secret.expose()) else {
        unreachable!("HMAC takes keys of every length");
    };
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes(&[byte; 16]).unwrap()
    }

    const ONE: ProofEnd<'_> = ProofEnd { nonce: &[1; 16], address: b"one" };
    const TWO: ProofEnd<'_> = ProofEnd { nonce: &[2; 16], address: b"two" };
    const GREETING: Greeting<'_> = Greeting { protocol: b"test", caller: ONE, listener: TWO };

    #[test]
    fn the_hash_is_hmac_sha_256() {
        // RFC 4231, test case 2.
        let Ok(mut hash) = Hmac::<Sha256>::new_from_slice(b"Jefe") else { panic!() };
        hash.update(b"what do ya want for nothing?");
        let bytes: Proof = hash.finalize().into_bytes().into();
        assert_eq!(bytes[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        assert_eq!(bytes[28..], [0x64, 0xec, 0x38, 0x43]);
    }

    #[test]
    fn both_ends_prove_themselves_and_neither_proof_can_be_reflected() {
        for (role, other) in [(Role::Caller, Role::Listener), (Role::Listener, Role::Caller)] {
            let proof = GREETING.proof(&secret(7), role);
            assert!(GREETING.is_proof(&secret(7), role, &proof));
            assert!(!GREETING.is_proof(&secret(7), other, &proof), "a reflected proof");
            assert!(!GREETING.is_proof(&secret(8), role, &proof), "another secret");
            assert!(!GREETING.is_proof(&secret(7), role, &proof[..31]));
            assert!(!GREETING.is_proof(&secret(7), role, &[]));
        }
    }

    #[test]
    fn a_code_belongs_to_one_secret_one_protocol_and_one_message() {
        let code = secret(7).code(b"test", b"message");
        assert!(secret(7).is_code(b"test", b"message", &code));
        for (byte, protocol, message) in [
            (8, &b"test"[..], &b"message"[..]),
            (7, b"tesu", b"message"),
            (7, b"test", b"messagf"),
            (7, b"testm", b"essage"),
        ] {
            assert!(!secret(byte).is_code(protocol, message, &code));
        }
        assert!(!secret(7).is_code(b"test", b"message", &code[..31]));
    }

    #[test]
    fn a_proof_holds_for_its_greeting_alone() {
        let proof = GREETING.proof(&secret(7), Role::Caller);
        let nonce = [3; 16];
        // The same bytes behind each other as in `GREETING`.
        let mut shifted = [2; 16];
        shifted[15] = b't';
        let moved = Greeting {
            caller: ProofEnd { address: b"one\x02", ..ONE },
            listener: ProofEnd { nonce: &shifted, address: b"wo" },
            ..GREETING
        };
        for (what, other) in [
            (
                "a later nonce of the listener",
                Greeting { listener: ProofEnd { nonce: &nonce, ..TWO }, ..GREETING },
            ),
            (
                "a later nonce of the caller",
                Greeting { caller: ProofEnd { nonce: &nonce, ..ONE }, ..GREETING },
            ),
            (
                "another listener",
                Greeting { listener: ProofEnd { address: b"tw2", ..TWO }, ..GREETING },
            ),
            (
                "another caller",
                Greeting { caller: ProofEnd { address: b"on2", ..ONE }, ..GREETING },
            ),
            ("another protocol", Greeting { protocol: b"tesu", ..GREETING }),
            ("bytes moved from one part to the next", moved),
            ("the ends exchanged", Greeting { caller: TWO, listener: ONE, ..GREETING }),
        ] {
            assert!(!other.is_proof(&secret(7), Role::Caller, &proof), "{what}");
        }
    }
}
