//! What both ends of a connection say before anything else: see the [crate](crate).
//!
//! | step | from | bytes |
//! |---|---|---|
//! | opening | caller | `TMtp`, version, nonce (16), length of the address (1), address (64, with zeros behind it) |
//! | opening | listener | the same |
//! | question | caller | proof (32), longest message that it receives (4) |
//! | answer | listener | 0 or the reason of a refusal (1), proof (32), longest message that it receives (4) |
//!
//! Only the refusal of a wrong proof has no proof itself. It decides nothing: the caller goes on to
//! the next host. A caller believes no other refusal without a proof, since anyone may listen at a
//! host.
//!
//! All steps have a fixed length, so neither end receives more than it expects. The caller doesn't
//! prove itself to a listener with another address than it wanted to reach, nor the listener to a
//! caller that has not proved itself.

use tagmatch_device::Address;
use tagmatch_device::bytes::{array_at, u32_at};
use tagmatch_secret::{Greeting, NONCE_BYTES, Nonce, PROOF_BYTES, Proof, ProofEnd, Role, Secret};

use super::address::{MAGIC, VERSION};

/// Bytes of an opening.
pub(crate) const OPENING_BYTES: usize = 5 + NONCE_BYTES + 1 + Address::MAX;
/// Bytes of a question.
pub(crate) const QUESTION_BYTES: usize = PROOF_BYTES + 4;
/// Bytes of an answer.
pub(crate) const ANSWER_BYTES: usize = 1 + QUESTION_BYTES;
/// Names this protocol and its version in proofs.
const PROTOCOL: &[u8] = b"tagmatch tcp 2";

/// The first thing that an end says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) nonce: Nonce,
    pub(crate) address: Address,
}

/// Why a listener doesn't take a caller that has proved itself, or that has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallRefusal {
    /// The proof is wrong: the caller has another secret.
    Proof = 1,
    /// Both ends connected at once, and the other connection is the one that counts.
    Crossed,
    /// A worker with this address is connected already, or was and went down.
    Known,
    /// There is no room for another peer.
    Full,
    /// The worker lacks descriptors for another connection now. Try again.
    Busy,
    /// The worker has lacked descriptors for as long as connecting may take.
    Lacking,
}

/// The answer of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Accepted {
        proof: Proof,
        message_max: u32,
    },
    /// The proof is of zeros if the reason is [`CallRefusal::Proof`].
    Refused {
        why: CallRefusal,
        proof: Proof,
    },
}

impl Opening {
    pub(crate) fn emit(&self) -> [u8; OPENING_BYTES] {
        let mut out = [0; OPENING_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5..21].copy_from_slice(&self.nonce);
        let address = self.address.as_bytes();
        out[21] = u8::try_from(address.len()).unwrap_or(0);
        out[22..22 + address.len()].copy_from_slice(address);
        out
    }

    pub(crate) fn parse(bytes: &[u8; OPENING_BYTES]) -> Result<Self, &'static str> {
        if bytes[..4] != MAGIC {
            return Err("it is not a worker of tagmatch over TCP");
        }
        if bytes[4] != VERSION {
            return Err("it speaks another version of the protocol");
        }
        let (address, rest) = bytes[22..]
            .split_at_checked(bytes[21].into())
            .ok_or("an opening with an address that is too long")?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err("an opening with bytes behind its address");
        }
        let address = Address::from_bytes(address).map_err(|_| "an opening without an address")?;
        Ok(Opening { nonce: array_at(bytes, 5), address })
    }
}

/// The openings of both ends, from which the proofs are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Openings {
    pub(crate) caller: Opening,
    pub(crate) listener: Opening,
}

impl Openings {
    fn with<R>(&self, compute: impl FnOnce(Greeting<'_>) -> R) -> R {
        compute(Greeting {
            protocol: PROTOCOL,
            caller: ProofEnd { nonce: &self.caller.nonce, address: self.caller.address.as_bytes() },
            listener: ProofEnd {
                nonce: &self.listener.nonce,
                address: self.listener.address.as_bytes(),
            },
        })
    }

    pub(crate) fn proof(&self, secret: &Secret, role: Role) -> Proof {
        self.with(|greeting| greeting.proof(secret, role))
    }

    pub(crate) fn is_proof(&self, secret: &Secret, role: Role, proof: &Proof) -> bool {
        self.with(|greeting| greeting.is_proof(secret, role, proof))
    }
}

/// The bytes of a caller's question.
pub(crate) fn question(proof: &Proof, message_max: u32) -> [u8; QUESTION_BYTES] {
    let mut out = [0; QUESTION_BYTES];
    out[..PROOF_BYTES].copy_from_slice(proof);
    out[PROOF_BYTES..].copy_from_slice(&message_max.to_le_bytes());
    out
}

/// The proof, and the longest message that the caller receives.
pub(crate) fn parse_question(bytes: &[u8; QUESTION_BYTES]) -> (Proof, u32) {
    (array_at(bytes, 0), u32_at(bytes, PROOF_BYTES))
}

impl Admission {
    pub(crate) fn emit(self) -> [u8; ANSWER_BYTES] {
        let mut out = [0; ANSWER_BYTES];
        match self {
            Admission::Accepted { proof, message_max } => {
                out[1..].copy_from_slice(&question(&proof, message_max));
            }
            Admission::Refused { why, proof } => {
                out[0] = why as u8;
                out[1..1 + PROOF_BYTES].copy_from_slice(&proof);
            }
        }
        out
    }

    pub(crate) fn parse(bytes: &[u8; ANSWER_BYTES]) -> Result<Self, &'static str> {
        let (proof, message_max) = parse_question(&array_at(bytes, 1));
        let why = match bytes[0] {
            0 => return Ok(Admission::Accepted { proof, message_max }),
            1 => CallRefusal::Proof,
            2 => CallRefusal::Crossed,
            3 => CallRefusal::Known,
            4 => CallRefusal::Full,
            5 => CallRefusal::Busy,
            6 => CallRefusal::Lacking,
            _ => return Err("an answer for no known reason"),
        };
        Ok(Admission::Refused { why, proof })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_step_round_trips() {
        for length in [1, 64] {
            let address = Address::from_bytes(&vec![7; length]).unwrap();
            let opening = Opening { nonce: [9; NONCE_BYTES], address };
            assert_eq!(Opening::parse(&opening.emit()), Ok(opening));
        }
        assert_eq!(parse_question(&question(&[3; PROOF_BYTES], 77)), ([3; PROOF_BYTES], 77));
        let mut answers = vec![Admission::Accepted { proof: [4; PROOF_BYTES], message_max: 5 }];
        use CallRefusal::{Busy, Crossed, Full, Known, Lacking, Proof};
        answers.extend(
            [Proof, Crossed, Known, Full, Busy, Lacking]
                .map(|why| Admission::Refused { why, proof: [6; PROOF_BYTES] }),
        );
        for answer in answers {
            assert_eq!(Admission::parse(&answer.emit()), Ok(answer));
        }
    }

    #[test]
    fn openings_of_others_are_refused() {
        let opening =
            Opening { nonce: [9; NONCE_BYTES], address: Address::from_bytes(&[7; 15]).unwrap() }
                .emit();
        for (at, byte) in [(0, b'G'), (4, VERSION + 1), (21, 0), (21, 65), (21, 14), (80, 1)] {
            let mut bytes = opening;
            bytes[at] = byte;
            assert!(Opening::parse(&bytes).is_err(), "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_opening_or_refused(bytes in prop::collection::vec(any::<u8>(), OPENING_BYTES)) {
            let mut bytes: [u8; OPENING_BYTES] = bytes.try_into().unwrap();
            let _ = Opening::parse(&bytes);
            bytes[..5].copy_from_slice(b"TMtp\x02");
            bytes[21] &= 63;
            let _ = Opening::parse(&bytes);
        }
    }
}
