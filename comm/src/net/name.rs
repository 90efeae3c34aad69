//! What processes of different jobs know each other by.

use std::fmt;
use std::str::FromStr;

use tagmatch::Address;

use super::values::NetError;

/// Most processes of other jobs that one process comes to know. They are never forgotten: what is down stays
/// down.
pub const FOREIGN_MAX: u32 = 1 << 16;

/// A process's name: a few opaque bytes, the same wherever it is known, that only its transport reads. No two
/// processes that can meet have the same. Its text is lower-case hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessName(Address);

impl ProcessName {
    /// Most bytes that a name has.
    pub const BYTES_MAX: usize = Address::MAX;

    /// A name out of bytes from elsewhere. Whose it can be is checked when it is
    /// [admitted](super::Net::admit).
    ///
    /// # Errors
    /// It is empty or longer than [`BYTES_MAX`](Self::BYTES_MAX).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NetError> {
        let address = Address::from_bytes(bytes);
        address.map(ProcessName).map_err(|error| NetError::Other(error.to_string()))
    }

    /// The bytes to hand to others.
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

/// A worker's address is its process's name.
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
