//! RoCE version 2: packets as they are on the wire, and the sockets that carry them.
//!
//! InfiniBand's specification, volume 1: chapter 9 describes the headers, annex A17 their place
//! behind UDP. `packet`, `aeth` and `icrc` compute alone; `port` asks the system for interfaces,
//! and `socket` sends and receives what `link` describes.

pub(crate) mod aeth;
pub(crate) mod icrc;
pub(crate) mod link;
pub(crate) mod packet;
pub(crate) mod port;
pub(crate) mod socket;
