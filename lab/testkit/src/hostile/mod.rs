//! A hostile peer, made from the description of the messages that it sends.
//!
//! 1. A test describes each [`Message`] of a protocol: a good example, and the meaning of each of
//!    its fields. A byte without a description fails the test.
//! 2. [`Message::variants`] changes the good message in all ways that its description names: every
//!    field at, below and above its limits, counts whose products wrap, every prefix, and further
//!    bytes. Each [`Variant`] knows whether a receiver may take it.
//! 3. A [`Room`] is a receiver with what surrounds it. [`try_all`] gives each variant of each
//!    message to a new room in each situation of the protocol, by each sender: so the right message
//!    comes at the wrong time, by the wrong peer, and twice. A message that has to be refused
//!    changes nothing, a legal one is taken, nothing panics, and the room's audit follows.
//! 4. [`flood`] sends one message with ever new numbers: what a receiver keeps of them is bounded.

mod message;
mod trials;
mod variants;

pub use message::{Legality, Meaning, Message, Rest};
pub use trials::{Room, flood, try_all};
pub use variants::Variant;
