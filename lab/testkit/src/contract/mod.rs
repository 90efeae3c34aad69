//! The contract of a [`Device`], written once: what its users may rely on, whatever carries the
//! bytes. Each function is a promise, and each device makes tests of them with
//! [`device_contract!`](crate::device_contract).
//!
//! A device may do its work between two polls, as a NIC does: whatever is expected is waited for.

mod connecting;
mod death;
mod messages;
mod promises;
mod reads;
mod regions;
mod sleep;

use tagmatch_device::{Device, DownReason, EventDescriptor, PeerId, ReadMode};

pub use self::connecting::*;
pub use self::death::*;
pub use self::messages::*;
pub use self::reads::*;
pub use self::regions::*;
pub use self::sleep::*;
use crate::device::{Owned, wait_for};

/// How a test makes devices of one kind.
pub trait Fixture {
    /// The kind of device. It can be moved to another thread.
    type Device: Device + EventDescriptor + Send + 'static;
    /// The module that makes tests of the promises, with `::`; empty at the top of a test program.
    const MODULE: &'static str = "";
    /// How its workers read each other's memory.
    const READ_MODE: ReadMode;
    /// How it reports that a peer's process was killed.
    const KILLED: DownReason = DownReason::Gone;
    /// Messages that two workers exchange in each direction in some seconds.
    const MESSAGES: usize;
    /// Connections that are made one after the other in some seconds.
    const CONNECTIONS: usize;
    /// Messages to oneself that wait, at least.
    const TO_ONESELF_MIN: usize;
    /// Messages of a peer that come before one of another peer, at most, where that is bounded.
    const BEFORE_ANOTHER_MAX: usize = usize::MAX;
    /// Whether regions in memory of the device are accessed in one call.
    const MAPS_REGIONS: bool = false;

    /// A device with the usual settings, which has reported that it is connected to itself.
    fn usual() -> Self::Device;

    /// A device whose longest message has so many bytes, and which has room for few messages.
    fn narrow(message_max: u32) -> Self::Device;
}

/// Asserts that no device of this process has met a state that can't be.
pub fn no_bugs() {
    assert_eq!(tagmatch_device::bugs(), 0, "bugs of tagmatch");
}

/// Polls the devices until the last one has this message, which must be the only event of all.
fn expect_message<D: Device>(
    devices: &mut [&mut D],
    from: PeerId,
    immediate: Option<u32>,
    bytes: &[u8],
) {
    let last = devices.len() - 1;
    wait_for(devices, "a message", |index, event| match event {
        Owned::Message(peer, got_immediate, got) => {
            assert_eq!(index, last);
            assert_eq!((peer, got_immediate, got.len()), (from, immediate, bytes.len()));
            assert!(got == bytes);
            Some(())
        }
        other => panic!("{other:?}"),
    });
}
