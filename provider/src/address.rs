//! The name of an endpoint as libfabric's callers exchange it.

use std::fmt;
use std::str::FromStr;

use tagmatch::Address;

/// The name of an endpoint: 64 bytes (`FI_NAME_MAX`), whatever the length of the worker's address,
/// since callers keep names in arrays whose elements have the length of their own name.
///
/// The worker's address is followed by a byte 0x80 and by zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name([u8; Name::BYTES]);

/// Ends the address.
const END: u8 = 0x80;
/// The beginning of a name's text form, which is a URI as those of fi_av_straddr(3).
const SCHEME: &str = "fi_tagmatch://";

impl Name {
    /// The length in bytes.
    pub(crate) const BYTES: usize = 64;

    /// The name of a worker. `None`: its address is too long; no device has such addresses.
    pub(crate) fn of(address: &Address) -> Option<Self> {
        let address = address.as_bytes();
        let mut bytes = [0; Self::BYTES];
        bytes.get_mut(..address.len())?.copy_from_slice(address);
        *bytes.get_mut(address.len())? = END;
        Some(Name(bytes))
    }

    /// Bytes that a caller gives as a name.
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Name(bytes)
    }

    /// The bytes of the name.
    pub(crate) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The worker's address, if these bytes are a name. Whether it is an address of a network that
    /// this process has is found out when it is connected.
    pub(crate) fn address(&self) -> Option<Address> {
        let end = self.0.iter().rposition(|byte| *byte != 0)?;
        if self.0[end] != END {
            return None;
        }
        Address::from_bytes(&self.0[..end]).ok()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => write!(f, "{SCHEME}{address}"),
            None => f.write_str("no address of tagmatch"),
        }
    }
}

impl FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let address = text.strip_prefix(SCHEME).ok_or(())?;
        Name::of(&address.parse().map_err(|_| ())?).ok_or(())
    }
}
