//! The handshake: from an address, or a pending connection, to an established connection.
//!
//! No call blocks. A socket is connected at once or tried again later, and a packet is read when
//! the kernel reports that it is there.
//!
//! Both sides may connect to each other at the same time. The connection that the worker with the
//! smaller address began counts: this worker refuses the other's hello as `Crossed`, and the other
//! worker accepts the hello and withdraws its own. No message is sent before that is settled, so
//! none can be lost. A worker that has accepted a hello begins no connection to the same peer, so
//! no connection is accepted and withdrawn afterwards.

pub(crate) mod accept;
pub(crate) mod connect;
pub(crate) mod establish;
pub(crate) mod local;
pub(crate) mod step;
