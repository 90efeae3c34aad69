//! The contents of the address of a shared-memory worker.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use tagmatch_device::bytes::{array_at, u32_at, u64_at};
use tagmatch_device::{Address, DeviceError};
use tagmatch_os::process::{Pid, own_uid};

/// The contents of an [`Address`] of this device.
///
/// | bytes | contents |
/// |---|---|
/// | 0..4 | `TMsh` |
/// | 4..8 | version of the handshake |
/// | 8..24 | random: the name of the worker's socket |
/// | 24..28 | user |
/// | 28..32 | process, by its number in its own pid namespace |
/// | 32..40 | pid namespace, 0 if unknown |
/// | 40..48 | first bytes of the boot id of the machine, 0 if unknown |
///
/// Numbers are little-endian. The address means nothing on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmName {
    socket: [u8; 16],
    uid: u32,
    pid: i32,
    pid_namespace: u64,
    machine: u64,
}

const MAGIC: [u8; 4] = *b"TMsh";
const LENGTH: usize = 48;

/// Version of the handshake and the rings. Every change to either increments it.
pub(crate) const VERSION: u32 = 1;

impl ShmName {
    /// A new name for a worker of this process.
    pub(crate) fn create() -> io::Result<Self> {
        Ok(ShmName {
            socket: tagmatch_os::random()?,
            uid: own_uid(),
            pid: Pid::own().0,
            pid_namespace: pid_namespace(),
            machine: machine(),
        })
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`DeviceError::BadAddress`] if it is not of this device or not of this version.
    pub fn parse(address: &Address) -> Result<Self, DeviceError> {
        let bad = |why| DeviceError::BadAddress { why };
        let bytes = address.as_bytes();
        let Ok(bytes) = <&[u8; LENGTH]>::try_from(bytes) else {
            return Err(bad("it does not have the length of a shared-memory address"));
        };
        if bytes[..4] != MAGIC {
            return Err(bad("it is not a shared-memory address"));
        }
        if u32_at(bytes, 4) != VERSION {
            return Err(bad("its worker uses another version of the protocol"));
        }
        Ok(ShmName {
            socket: array_at(bytes, 8),
            uid: u32_at(bytes, 24),
            pid: u32_at(bytes, 28).cast_signed(),
            pid_namespace: u64_at(bytes, 32),
            machine: u64_at(bytes, 40),
        })
    }

    /// The address with these contents.
    pub(crate) fn address(&self) -> Result<Address, DeviceError> {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.socket);
        bytes[24..28].copy_from_slice(&self.uid.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.pid.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.pid_namespace.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.machine.to_le_bytes());
        Address::from_bytes(&bytes)
            .map_err(|_| DeviceError::BadAddress { why: "it has a wrong length" })
    }

    /// Name of the worker's socket in the abstract namespace.
    pub(crate) fn socket_name(&self) -> String {
        let name = String::from("tagmatch-");
        self.socket.iter().fold(name, |name, byte| format!("{name}{byte:02x}"))
    }

    /// Checks that a worker named `own` may be able to reach this one.
    pub(crate) fn check_reachable(&self, own: &ShmName) -> Result<(), DeviceError> {
        let bad = |why| Err(DeviceError::BadAddress { why });
        if self.machine != own.machine && self.machine != 0 && own.machine != 0 {
            return bad("its worker is on another machine, or was started before a reboot");
        }
        if self.uid != own.uid {
            return bad("its worker belongs to another user");
        }
        Ok(())
    }

    /// Whether this process has made the name; `false` in a forked child.
    pub(crate) fn is_own_process(&self) -> bool {
        self.pid == Pid::own().0
    }

    /// Whether `pid`, the process at the other end by the word of the kernel, can be the process of
    /// this address. Process numbers of different pid namespaces can't be compared.
    pub(crate) fn is_process(&self, own: &ShmName, pid: Pid) -> bool {
        let comparable = self.pid_namespace == own.pid_namespace && self.pid_namespace != 0;
        !comparable || self.pid == pid.0
    }
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

fn machine() -> u64 {
    let Ok(text) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return 0 };
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn address_round_trips() {
        let name = ShmName::create().unwrap();
        let address = name.address().unwrap();
        assert_eq!(ShmName::parse(&address).unwrap(), name);
        assert!(name.check_reachable(&name).is_ok());
        assert!(name.is_process(&name, Pid::own()));
        assert_eq!(name.socket_name().len(), "tagmatch-".len() + 32);
    }

    #[test]
    fn other_machines_and_users_are_out_of_reach() {
        let own = ShmName::create().unwrap();
        let elsewhere = ShmName { machine: own.machine ^ 1, ..own };
        assert!(own.machine == 0 || elsewhere.check_reachable(&own).is_err());
        assert!(ShmName { uid: own.uid ^ 1, ..own }.check_reachable(&own).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 1..=64)) {
            let _ = ShmName::parse(&Address::from_bytes(&bytes).unwrap());
        }
    }
}
