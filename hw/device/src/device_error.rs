//! Errors of a device, and how they tell what to do.

use std::io;

use crate::network::{Network, Networks};
use crate::slab::Key;
use crate::{OtherRelease, Shortage};

/// Errors of a device, as opposed to those of one peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A system call failed.
    #[error("{call}: {source}{}{hint}", limit_of(source))]
    System {
        /// The system call.
        call: &'static str,
        /// The error that it returned.
        source: io::Error,
        /// Advice to the user; may be empty.
        hint: &'static str,
    },
    /// The address can't be used with this kind of device.
    #[error("the address can't be used here: {why}")]
    BadAddress {
        /// The rule that the address breaks.
        why: &'static str,
    },
    /// The other worker is of another minor version of tagmatch.
    #[error(transparent)]
    OtherRelease(#[from] OtherRelease),
    /// The two workers have no network in common. Shared memory is one for workers of one machine,
    /// user and network namespace.
    #[error("there is no way to it: this worker is on {own}, that one on {peer}{}", not_by_shm(*own, *peer))]
    NoRoute {
        /// The networks of this worker.
        own: Networks,
        /// The networks of the other worker.
        peer: Networks,
    },
    /// The only network that both workers are on is InfiniBand or RoCE, and their ports don't reach
    /// each other.
    #[error("there is no way to it: {why}")]
    PortsApart {
        /// Why the ports don't.
        why: &'static str,
    },
    /// A setting is out of its range.
    #[error("{setting} = {value} is out of range: {range}")]
    BadSetting {
        /// Name of the setting.
        setting: &'static str,
        /// The value that was given.
        value: u64,
        /// The values that are allowed.
        range: &'static str,
    },
    /// A setting was given as text that is none of its values.
    #[error("invalid {setting} `{}`: expected {expected}", value.escape_debug())]
    InvalidValue {
        /// Name of the setting, or of the environment variable that gave it.
        setting: &'static str,
        /// The text.
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// The two workers are in different partitions of their network, between which nothing travels.
    #[error(
        "there is no way to it: this worker's partition key is {own:#06x}, that one's {peer:#06x}{}; \
         set {setting} at both to one that both ports have",
        both_limited(*own, *peer)
    )]
    OtherPartition {
        /// The partition key of this worker.
        own: u16,
        /// The partition key of the other worker.
        peer: u16,
        /// The setting that chooses the key.
        setting: &'static str,
    },
    /// This machine, or this kind of device, can't do what was asked for.
    #[error("{what} is not available: {why}")]
    Unsupported {
        /// The feature or setting that was asked for.
        what: &'static str,
        /// Why, and what to ask for instead.
        why: &'static str,
    },
    /// The buffer can't be exposed or read into.
    #[error("the buffer can't be used: {why}")]
    BadBuffer {
        /// The reason.
        why: &'static str,
    },
    /// The device has as many peers, exposed buffers or reads as it can hold.
    #[error("no room for another {what}: the limit is {limit}")]
    Exhausted {
        /// The kind of thing.
        what: &'static str,
        /// How many there can be.
        limit: usize,
    },
}

/// Which limit was reached, after a colon; empty unless that is why a system call failed.
pub fn limit_of(error: &io::Error) -> String {
    let shortage = error.raw_os_error().and_then(Shortage::of_errno);
    shortage.map_or_else(String::new, |shortage| format!(": {shortage}"))
}

/// Why two workers in one partition don't reach each other.
fn both_limited(own: u16, peer: u16) -> &'static str {
    if (own | peer) & 0x8000 == 0 {
        ", and nothing travels between two limited members"
    } else {
        ""
    }
}

/// Why shared memory doesn't help two workers that are both on it.
fn not_by_shm(own: Networks, peer: Networks) -> &'static str {
    if own.has(Network::Shm) && peer.has(Network::Shm) {
        ", and it is another machine, network namespace or user (or a user without a number in its \
         user namespace), or the machine was restarted"
    } else {
        ""
    }
}

impl DeviceError {
    /// Whether a setting is wrong, which the user has to change.
    pub fn is_wrong_setting(&self) -> bool {
        matches!(self, DeviceError::BadSetting { .. } | DeviceError::InvalidValue { .. })
    }

    /// Makes an error from the error of a system call, with a hint what to do about it.
    pub fn system(call: &'static str, hint: &'static str) -> impl Fn(io::Error) -> DeviceError {
        move |source| DeviceError::System { call, source, hint }
    }

    /// The error of a device that holds `Key::SHORT_MAX` exposed buffers.
    pub fn too_many_exposed() -> DeviceError {
        DeviceError::Exhausted { what: "exposed buffer", limit: Key::SHORT_MAX as usize }
    }
}

/// Names the call in the error of a system call.
pub trait InCall<T> {
    /// The result of a system call; an error names the call.
    ///
    /// # Errors
    /// [`DeviceError::System`] without a hint.
    fn in_call(self, call: &'static str) -> Result<T, DeviceError>;
}

impl<T> InCall<T> for io::Result<T> {
    fn in_call(self, call: &'static str) -> Result<T, DeviceError> {
        self.map_err(DeviceError::system(call, ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DownReason;

    #[test]
    fn a_call_that_failed_is_a_shortage_or_tells_of_the_peer() {
        let too_many_open = 24;
        let refused = 111;
        let of = DownReason::of_failed_call;
        assert_eq!(of(too_many_open), DownReason::Shortage(Shortage::Descriptors));
        assert_eq!(of(refused), DownReason::Unreachable { errno: refused });
    }

    #[test]
    fn errors_name_the_call_and_the_limit() {
        let failed = Err::<(), _>(io::Error::other("why")).in_call("mmap");
        assert_eq!(failed.unwrap_err().to_string(), "mmap: why");
        assert_eq!(Ok(7).in_call("mmap").unwrap(), 7);
        let hinted = DeviceError::system("bind", "; another port?")(io::Error::other("why"));
        assert_eq!(hinted.to_string(), "bind: why; another port?");
        let full = DeviceError::system("socket", "")(io::Error::from_raw_os_error(24)).to_string();
        assert!(full.starts_with("socket: ") && full.ends_with(", ulimit -n)"), "{full}");
        let text = DeviceError::too_many_exposed().to_string();
        assert_eq!(text, "no room for another exposed buffer: the limit is 1048576");
    }

    /// Only then do both announce shared memory, and it doesn't help.
    #[test]
    fn two_workers_on_shared_memory_without_a_way_are_at_two_places() {
        let [none, shm, tcp] = [0, Network::Shm.bit(), Network::Tcp.bit()].map(Networks);
        let says_it =
            |own, peer| DeviceError::NoRoute { own, peer }.to_string().contains("another machine");
        assert!(says_it(shm, shm));
        assert!(!says_it(shm, tcp) && !says_it(tcp, shm) && !says_it(none, tcp));
        let text = DeviceError::NoRoute { own: shm, peer: tcp }.to_string();
        assert_eq!(text, "there is no way to it: this worker is on shm, that one on tcp");
    }
}
