//! The networks that a worker can be on.

use std::fmt;

/// A network that carries messages between workers. A worker may be on several.
///
/// The first that two workers can use together is the one that they use; see `contents::route`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// The shared memory of one machine.
    Shm,
    /// InfiniBand or RoCE.
    Verbs,
    /// TCP.
    Tcp,
}

impl Network {
    /// All of them, in the order of preference.
    pub const ALL: [Network; 3] = [Network::Shm, Network::Verbs, Network::Tcp];
    /// The number of bytes that describe the worker's place in shared memory.
    pub const SHM_BYTES: usize = 7 + 4;
    /// The number of bytes that describe the worker's port on InfiniBand or RoCE.
    pub const VERBS_BYTES: usize = 25;

    /// The bytes that this network needs in an address. TCP gets the rest of the address.
    pub(crate) fn bytes(self) -> Option<usize> {
        match self {
            Network::Shm => Some(Self::SHM_BYTES),
            Network::Verbs => Some(Self::VERBS_BYTES),
            Network::Tcp => None,
        }
    }

    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Network::Shm => "shm",
            Network::Verbs => "verbs",
            Network::Tcp => "tcp",
        })
    }
}

/// A set of networks. Its text form is `shm+verbs`, for example.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Networks(pub(crate) u8);

impl Networks {
    /// Whether `network` is among them.
    pub fn has(self, network: Network) -> bool {
        self.0 & network.bit() != 0
    }

    /// Its networks, in the order of preference.
    pub fn iter(self) -> impl Iterator<Item = Network> {
        Network::ALL.into_iter().filter(move |network| self.has(*network))
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, network) in self.iter().enumerate() {
            write!(f, "{}{network}", if at == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

/// A program that returns an error from `main` shows its users this form.
impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Networks({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_networks_and_names_them_in_the_order_of_preference() {
        use Network::{Shm, Tcp, Verbs};
        let sets: [(&[Network], &str); 5] = [
            (&[], ""),
            (&[Tcp], "tcp"),
            (&[Tcp, Shm], "shm+tcp"),
            (&[Verbs], "verbs"),
            (&[Tcp, Verbs, Shm], "shm+verbs+tcp"),
        ];
        for (networks, text) in sets {
            let set = Networks(networks.iter().map(|network| network.bit()).sum());
            assert_eq!(set.to_string(), text);
            assert_eq!(format!("{set:?}"), format!("Networks({text})"));
            for network in Network::ALL {
                assert_eq!(set.has(network), networks.contains(&network), "{text}, {network}");
            }
            let in_order = Network::ALL.into_iter().filter(|network| networks.contains(network));
            assert!(set.iter().eq(in_order), "{text}");
        }
    }
}
