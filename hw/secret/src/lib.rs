//! The secret that all workers of a job share.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! | module | contents |
//! |---|---|
//! | `secret`, `error` | the type [`Secret`], and its errors |
//! | `source` | where a program finds the secret: the environment, or a file |
//! | `proof` | how both ends of a connection show that they know the secret, without sending it |
//!
//! Whoever knows the secret can connect to the job's workers, and read and write their messages. A
//! proof protects the moment at which a connection is made. It doesn't encrypt or sign what is sent
//! afterwards.
//!
//! # Decisions
//! - **One setting, `Config::secret`.** A job has one secret, whichever devices its workers use, so
//!   the setting is the worker's. The worker hands it to a device that needs one. The environment
//!   is read only where a device needs a secret and there is no setting.
//! - **The control port of `tagperf serve` asks for the proof, too** (`cli/src/secret.rs`), in the
//!   process that serves one client. The server itself still reads no byte of a client. The proof
//!   has other first bytes than a message, so that an end without a secret and an end with one can
//!   tell each other what is missing. The end that checks a proof looks at nothing else before.
//! - **A secret that `serve` makes is printed, and one of the environment is not.** The printed
//!   line has it as a variable in front of the command, since arguments are visible to other users.

#![forbid(unsafe_code)]

mod error;
mod proof;
mod secret;
mod source;

pub use error::SecretError;
pub use proof::{Greeting, NONCE_BYTES, Nonce, PROOF_BYTES, Proof, ProofEnd, Role};
pub use secret::Secret;
pub use source::{SECRET, SECRET_FILE};
