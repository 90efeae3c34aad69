//! Address vectors and counters.

use std::ffi::c_char;
use std::ptr;

use super::domain::close;
use super::{Code, Domain, Name, call, code, sys};

/// An address vector.
#[derive(Clone, Copy)]
pub(crate) struct Vector {
    pub(crate) vector: *mut sys::fid_av,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Vector {}
// SAFETY: as for `Send`.
unsafe impl Sync for Vector {}

impl Vector {
    pub(crate) fn open(domain: Domain, av_type: sys::fi_av_type) -> Result<Self, i32> {
        let attributes = sys::fi_av_attr { r#type: av_type, ..sys::fi_av_attr::zeroed() };
        Vector::open_as(domain, attributes)
    }

    pub(crate) fn open_as(domain: Domain, attributes: sys::fi_av_attr) -> Result<Self, i32> {
        let mut attributes = attributes;
        let mut vector = ptr::null_mut();
        let functions = domain.functions();
        let domain = domain.domain;
        let context = ptr::null_mut();
        code(call!(functions, av_open(domain, &raw mut attributes, &raw mut vector, context)))?;
        Ok(Vector { vector })
    }

    pub(crate) fn functions(&self) -> *mut sys::fi_ops_av {
        // SAFETY: the provider gave the vector.
        unsafe { (*self.vector).ops }
    }

    /// Inserts names. Gives the number of those that were inserted, and what stands for each.
    pub(crate) fn insert(&self, names: &[Name]) -> (Code, Vec<u64>) {
        let mut addresses = vec![0x1111; names.len()];
        let to = addresses.as_mut_ptr();
        (self.insert_as(names, to, 0, ptr::null_mut()), addresses)
    }

    /// Inserts names as `fi_av_insert` does.
    pub(crate) fn insert_as(
        &self,
        names: &[Name],
        to: *mut u64,
        flags: u64,
        errors: *mut i32,
    ) -> Code {
        let from = names.as_ptr().cast();
        let count = names.len();
        code(call!(self.functions(), insert(self.vector, from, count, to, flags, errors.cast())))
    }

    /// Inserts a name that is known to be right, and gives what stands for it.
    pub(crate) fn add(&self, name: Name) -> u64 {
        let (count, addresses) = self.insert(&[name]);
        assert_eq!(count, Ok(1));
        addresses[0]
    }

    pub(crate) fn remove(&self, addresses: &[u64]) -> Code {
        let mut addresses = addresses.to_vec();
        let from = addresses.as_mut_ptr();
        let count = addresses.len();
        code(call!(self.functions(), remove(self.vector, from, count, 0)))
    }

    /// The beginning of the name with this address, as much as there is room for, and the length of
    /// the whole.
    pub(crate) fn lookup(&self, address: u64, room: usize) -> Result<(Vec<u8>, usize), i32> {
        let mut name = vec![0xee; room];
        let mut length = room;
        let to = name.as_mut_ptr().cast();
        code(call!(self.functions(), lookup(self.vector, address, to, &raw mut length)))?;
        Ok((name, length))
    }

    /// The text of a name as far as there is room for it, and the length that it needs.
    pub(crate) fn text(&self, name: &Name, room: usize) -> (Vec<u8>, usize) {
        let mut text = vec![0xee; room];
        let mut length = room;
        let to = text.as_mut_ptr().cast::<c_char>();
        let from = name.as_ptr().cast();
        let given = call!(self.functions(), straddr(self.vector, from, to, &raw mut length));
        assert_eq!(given, to.cast_const(), "the text is where the caller wants it");
        (text, length)
    }

    pub(crate) fn close(&self) -> Code {
        close(self.vector.cast())
    }
}

/// A counter.
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    pub(crate) counter: *mut sys::fid_cntr,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Counter {}
// SAFETY: as for `Send`.
unsafe impl Sync for Counter {}

impl Counter {
    pub(crate) fn open(domain: Domain) -> Result<Self, i32> {
        let mut attributes = sys::fi_cntr_attr::zeroed();
        let mut counter = ptr::null_mut();
        let functions = domain.functions();
        let domain = domain.domain;
        let context = ptr::null_mut();
        code(call!(functions, cntr_open(domain, &raw mut attributes, &raw mut counter, context)))?;
        Ok(Counter { counter })
    }

    pub(crate) fn functions(&self) -> *mut sys::fi_ops_cntr {
        // SAFETY: the provider gave the counter.
        unsafe { (*self.counter).ops }
    }

    /// Operations that succeeded.
    pub(crate) fn value(&self) -> u64 {
        call!(self.functions(), read(self.counter))
    }

    /// Operations that failed.
    pub(crate) fn errors(&self) -> u64 {
        call!(self.functions(), readerr(self.counter))
    }

    pub(crate) fn add(&self, value: u64) -> Code {
        code(call!(self.functions(), add(self.counter, value)))
    }

    pub(crate) fn set(&self, value: u64) -> Code {
        code(call!(self.functions(), set(self.counter, value)))
    }

    pub(crate) fn add_errors(&self, value: u64) -> Code {
        code(call!(self.functions(), adderr(self.counter, value)))
    }

    pub(crate) fn set_errors(&self, value: u64) -> Code {
        code(call!(self.functions(), seterr(self.counter, value)))
    }

    pub(crate) fn wait(&self, threshold: u64, timeout_ms: i32) -> Code {
        code(call!(self.functions(), wait(self.counter, threshold, timeout_ms)))
    }

    pub(crate) fn close(&self) -> Code {
        close(self.counter.cast())
    }
}
