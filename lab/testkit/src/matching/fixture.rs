//! How the tests make devices.

use std::time::Duration;

use tagmatch_device::matching::MatchingDevice;
use tagmatch_device::{Buffer, EventDescriptor};

/// How a test makes devices of one kind.
pub trait Fixture {
    /// The kind of device. It can be moved to another thread.
    type Device: MatchingDevice + EventDescriptor + Send + 'static;
    /// The module that makes tests of the promises, with `::`; empty at the top of a test program.
    const MODULE: &'static str;
    /// The first bytes of addresses and of connections.
    const MAGIC: &'static [u8; 4];
    /// The name of a device's socket, but for its random end.
    const SOCKET: &'static str;
    /// A receive that is too short has the first bytes of its message, and a send may wait for
    /// delivery.
    const HAS_FIRST_BYTES: bool;
    /// A peer may die while a message to it waits for the library's connection.
    const SENDS_TO_THE_DYING: bool = true;
    /// How often a sender goes in the middle of a message.
    const ENDS: u32 = 10;

    /// The ways by which two devices of this process can reach each other.
    fn ways() -> Vec<String>;

    /// The ways by which devices of two processes can reach each other.
    fn ways_across() -> Vec<String> {
        Self::ways()
    }

    /// The ways by which a device reaches itself.
    fn alone() -> Vec<String> {
        Self::ways()
    }

    /// Most bytes of a message that can be received when its sender is dead; `None`: none can.
    fn kept_of_the_dead(_way: &str) -> Option<usize> {
        Some(usize::MAX)
    }

    /// Whether a receive from any source that fails because its sender died names the sender.
    fn names_the_dead(_way: &str) -> bool {
        true
    }

    /// A new device.
    fn make(way: &str, settings: Settings) -> Self::Device;

    /// A buffer that is only lent to the device. The memory lives longer than the device has it.
    fn lend(memory: &mut [u8]) -> Buffer;
}

/// Settings of a device that a test chooses.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The bits of a tag, and those of its source field: 31 bits leave room for immediate data.
    pub layout: [u64; 2],
    /// Each byte of the job's secret, if there is one.
    pub secret: Option<u8>,
    /// How long a handshake may take.
    pub connect_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let connect_timeout = Duration::from_secs(10);
        Settings { layout: [0x7fff_ffff, 0x7fff_0000], secret: None, connect_timeout }
    }
}
