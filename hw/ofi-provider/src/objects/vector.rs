//! An address vector.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};

/// An address vector (fi_av(3)). Its addresses are numbers, for `FI_AV_MAP` as for `FI_AV_TABLE`.
/// An address gets the lowest number that stands for none, so numbers count from 0 in the order of
/// insertion until an address is removed. The same address may be in the vector more than once.
pub struct Vector<A> {
    addresses: Vec<Option<A>>,
    /// The numbers of addresses that were removed.
    free: BinaryHeap<Reverse<usize>>,
    /// The first number of each address.
    numbers: HashMap<A, u64>,
    /// How many endpoints are bound to it.
    pub(crate) endpoints: usize,
}

impl<A> Default for Vector<A> {
    fn default() -> Self {
        let addresses = Vec::new();
        let free = BinaryHeap::new();
        let numbers = HashMap::new();
        Vector { addresses, free, numbers, endpoints: 0 }
    }
}

impl<A: Copy + Eq + Hash> Vector<A> {
    /// Adds an address, and gives its number.
    pub(crate) fn insert(&mut self, address: A) -> u64 {
        let index = match self.free.pop() {
            Some(Reverse(free)) => free,
            None => {
                self.addresses.push(None);
                self.addresses.len() - 1
            }
        };
        self.addresses[index] = Some(address);
        let number = index as u64;
        self.numbers.entry(address).or_insert(number);
        number
    }

    /// The address with this number.
    pub fn address(&self, number: u64) -> Result<A> {
        let index = usize::try_from(number).map_err(|_| Errno::INVALID)?;
        self.addresses.get(index).copied().flatten().ok_or(Errno::INVALID)
    }

    /// The number of an address; `FI_ADDR_NOTAVAIL` if the vector doesn't have it.
    pub fn number(&self, address: &A) -> u64 {
        self.numbers.get(address).copied().unwrap_or(sys::FI_ADDR_NOTAVAIL)
    }

    /// Takes an address out.
    pub(crate) fn remove(&mut self, number: u64) -> Result<()> {
        let index = usize::try_from(number).map_err(|_| Errno::INVALID)?;
        let address = self.addresses.get_mut(index).and_then(Option::take).ok_or(Errno::INVALID)?;
        self.free.push(Reverse(index));
        if self.numbers.get(&address) == Some(&number) {
            self.numbers.remove(&address);
            let other = self.addresses.iter().position(|other| *other == Some(address));
            if let Some(other) = other {
                self.numbers.insert(address, other as u64);
            }
        }
        Ok(())
    }
}
