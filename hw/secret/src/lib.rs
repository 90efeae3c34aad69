//! The secret that all workers of a job share.
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

mod error;
mod proof;
mod secret;
mod source;

pub use error::SecretError;
pub use proof::{End, Greeting, NONCE_BYTES, Nonce, PROOF_BYTES, Proof, Role};
pub use secret::Secret;
pub use source::{SECRET, SECRET_FILE};
