//! What the address of a worker on shared memory says.
//!
//! **The process in the address** keeps 22 bits of its number and 10 of its pid namespace's; where
//! two namespaces have the same ten bits, the kernel is asked which namespace the process at the
//! other end of the socket has.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use tagmatch_device::bytes::{array_at, u32_at};
use tagmatch_device::contents::{Contents, Name, Place};
use tagmatch_device::{Address, DeviceError, Network};
use tagmatch_os::process::{Pid, is_own_user, own_uid};

/// The worker's name, which is that of its socket, and the part of its [`Address`] about shared
/// memory:
///
/// | bytes | contents |
/// |---|---|
/// | 0..7 | [`Place`]: the machine since its last start, the network namespace, the user; 0 if unknown |
/// | 7..11 | process: 22 bits of its number in its own pid namespace, 10 bits of that namespace's |
///
/// Numbers are little-endian. This part means nothing on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmName {
    socket: Name,
    place: Place,
    process: u32,
}

/// Version of the handshake and the rings. Every change to either increments it.
pub(crate) const VERSION: u32 = 7;

/// No process has a larger number (PID_MAX_LIMIT in the kernel's threads.h).
const PID_MASK: u32 = (1 << 22) - 1;

impl ShmName {
    /// A new name for a worker of this process.
    pub(crate) fn create() -> io::Result<Self> {
        let namespace = namespace("/proc/self/ns/pid").unwrap_or(0);
        Ok(ShmName {
            socket: tagmatch_os::random()?,
            // Peers couldn't tell a user without a number from others, so no other place is equal.
            place: if is_own_user(own_uid()) {
                place().unwrap_or(Place([0; Place::BYTES]))
            } else {
                Place(tagmatch_os::random()?)
            },
            process: process_of(Pid::own(), namespace),
        })
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`DeviceError::BadAddress`] if it is not of this version, or says nothing about shared
    /// memory.
    pub fn parse(address: &Address) -> Result<Self, DeviceError> {
        let contents = Contents::of(address)?;
        let why = "its worker is not on shared memory";
        let bytes: &[u8; Network::SHM_BYTES] =
            contents.section_of(Network::Shm).ok_or(DeviceError::BadAddress { why })?;
        Ok(ShmName {
            socket: contents.name,
            place: Place(array_at(bytes, 0)),
            process: u32_at(bytes, Place::BYTES),
        })
    }

    /// The part of an address about shared memory.
    pub(crate) fn section(&self) -> [u8; Network::SHM_BYTES] {
        let mut bytes = [0; Network::SHM_BYTES];
        bytes[..Place::BYTES].copy_from_slice(&self.place.0);
        bytes[Place::BYTES..].copy_from_slice(&self.process.to_le_bytes());
        bytes
    }

    /// The address of a worker that is on no other network.
    pub(crate) fn address(&self) -> Result<Address, DeviceError> {
        Contents::new(self.socket).with(Network::Shm, &self.section()).address()
    }

    /// Name of the worker's socket in the abstract namespace.
    pub(crate) fn socket_name(&self) -> String {
        let name = String::from("tagmatch-");
        self.socket.iter().fold(name, |name, byte| format!("{name}{byte:02x}"))
    }

    /// Name of the socket that wakes the worker, in the abstract namespace.
    pub fn waker_name(&self) -> String {
        self.socket_name() + "-wake"
    }

    /// Whether this process has made the name; `false` in a forked child.
    pub(crate) fn is_own_process(&self) -> bool {
        self.process & PID_MASK == Pid::own().0.cast_unsigned()
    }

    /// Whether `pid`, the process at the other end by the word of the kernel, can be the process of
    /// this address. Process numbers of different pid namespaces can't be compared.
    pub(crate) fn is_process(&self, own: &ShmName, pid: Pid) -> bool {
        let is_comparable = (self.process ^ own.process) & !PID_MASK == 0;
        if !is_comparable || self.process & PID_MASK == pid.0.cast_unsigned() {
            return true;
        }
        // Two namespaces may have the same ten bits.
        let theirs = namespace(&format!("/proc/{}/ns/pid", pid.0));
        theirs.is_some() && theirs != namespace("/proc/self/ns/pid")
    }
}

/// The number of a process, with ten bits of the number of its pid namespace.
fn process_of(pid: Pid, namespace: u64) -> u32 {
    let [b0, b1, b2, ..] = (namespace ^ namespace >> 10).to_le_bytes();
    let bits = u32::from_le_bytes([b0, b1, b2, 0]) << 22;
    pid.0.cast_unsigned() & PID_MASK | bits
}

/// Where this process' shared memory reaches, if /proc tells.
fn place() -> Option<Place> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // A socket belongs to the namespace of the thread that makes it.
    let namespace = namespace("/proc/thread-self/ns/net")?;
    // Two containers may give one number to different users.
    let user = user_outside(own_uid(), &fs::read_to_string("/proc/self/uid_map").ok()?)?;
    let text = format!("{} {namespace} {user}", boot.trim());
    // FNV-1a: of any build of this crate, since both ends must find the same.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Some(Place(array_at(&hash.to_le_bytes(), 0)))
}

/// The number that a user of this user namespace has in the parent namespace, by the text of
/// `/proc/self/uid_map`: lines of a first number, the number that it has outside, and how many
/// numbers follow in the same way, see user_namespaces(7).
fn user_outside(user: u32, map: &str) -> Option<u64> {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map_while(|number| number.parse::<u64>().ok());
        Some((numbers.next()?, numbers.next()?, numbers.next()?))
    });
    let user = u64::from(user);
    ranges
        .filter(|(first, _, count)| (*first..first.saturating_add(*count)).contains(&user))
        .find_map(|(first, outside, _)| outside.checked_add(user - first))
}

/// The number of a namespace, if /proc tells.
fn namespace(path: &str) -> Option<u64> {
    fs::metadata(path).ok().map(|about| about.ino())
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
        assert_eq!(name.place, ShmName::create().unwrap().place);
        assert!(name.is_own_process());
        assert_eq!(name.socket_name().len(), "tagmatch-".len() + 14);
    }

    #[test]
    fn a_process_is_known_by_its_number_in_its_namespace() {
        let own = ShmName::create().unwrap();
        assert!(own.is_process(&own, Pid::own()));
        let other = ShmName { process: own.process ^ 1, ..own };
        assert!(!other.is_process(&own, Pid::own()) && !other.is_own_process());
        let elsewhere = ShmName { process: other.process ^ 1 << 22, ..own };
        assert!(elsewhere.is_process(&own, Pid::own()));
    }

    #[test]
    fn ten_bits_tell_namespaces_apart_that_differ_in_twenty() {
        assert_eq!(process_of(Pid(77), 0x303), 77 | 0x303 << 22);
        assert_eq!(process_of(Pid(77), 1 << 10), 77 | 1 << 22);
        assert_eq!(process_of(Pid(77), 1 << 10 | 1), 77);
    }

    #[test]
    fn users_with_one_number_in_two_containers_are_two() {
        let whole = "         0          0 4294967295\n";
        assert_eq!(user_outside(0, whole), Some(0));
        assert_eq!(user_outside(1000, whole), Some(1000));
        let one = "0 100000 65536\n";
        let other = "0 1000 1\n1 200000 65535";
        assert_eq!(user_outside(0, one), Some(100_000));
        assert_eq!(user_outside(0, other), Some(1000));
        assert_eq!(user_outside(7, other), Some(200_006));
        assert_eq!(user_outside(65536, one), None);
        for wrong in ["", "0", "a b c", "0 18446744073709551615 9\n"] {
            assert_eq!(user_outside(1, wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 1..=64)) {
            let _ = ShmName::parse(&Address::from_bytes(&bytes).unwrap());
        }
    }
}
