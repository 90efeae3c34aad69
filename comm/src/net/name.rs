//! Names by which processes of different jobs know each other.

use std::fmt;
use std::str::FromStr;

use tagmatch::Address;

use super::values::NetError;

/// The largest number of processes of other jobs that one process can know. It never forgets one,
/// since a process that is down stays down.
pub const FOREIGN_MAX: u32 = 1 << 16;

/// A process's name: a few opaque bytes that only the transport interprets. A process has the same
/// name everywhere, and two processes that can meet have different names. The text form is
/// lower-case hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessName(Address);

impl ProcessName {
    /// The largest length of a name in bytes.
    pub const BYTES_MAX: usize = Address::MAX;

    /// A name from bytes that another process sent. Whether such a process exists is checked when
    /// the name is [admitted](super::Directory::admit).
    ///
    /// # Errors
    /// The name is empty or longer than [`BYTES_MAX`](Self::BYTES_MAX).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NetError> {
        let address = Address::from_bytes(bytes);
        address.map(ProcessName).map_err(|error| NetError::Other(error.to_string()))
    }

    /// The bytes to send to other processes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ProcessName {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        text.parse()
            .map(ProcessName)
            .map_err(|error: <Address as FromStr>::Err| NetError::Other(error.to_string()))
    }
}

/// The address of a process's worker is the process's name.
impl From<Address> for ProcessName {
    fn from(address: Address) -> Self {
        ProcessName(address)
    }
}

impl From<ProcessName> for Address {
    fn from(name: ProcessName) -> Self {
        name.0
    }
}
