//! Attributes: values that a program, or a library in it, keeps with a communicator (MPI-4.1 section 7.7).
//!
//! A key says what becomes of its value when the communicator is duplicated, and when the value goes. MPI
//! leaves the order of these calls open, but for the end of a process, where the last value that was set goes
//! first; here that holds always, and values are copied in the order in which they were set.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::error::Error;
use crate::net::Net;

use super::{Comm, CommInfo};

type Copy<T> = dyn Fn(&CommInfo, &T) -> Result<Option<T>, Error> + Send + Sync;
type Delete<T> = dyn Fn(&CommInfo, &T) + Send + Sync;

struct Callbacks<T> {
    copy: Box<Copy<T>>,
    delete: Box<Delete<T>>,
}

/// A key of attributes, MPI's keyval. Each that is made differs from all others; clones are the same. It lives as
/// long as there are values of it.
///
/// ```
/// use tagmatch_comm::Keyval;
/// use tagmatch_comm::net::sim::{Sim, SimConfig};
/// # let sim = Sim::new(SimConfig { processes: 1, ..SimConfig::default() });
/// # let runtime = tagmatch_comm::Runtime::new(sim.net(0), Default::default())?;
/// // How many duplicates there were on the way to this communicator.
/// let depth = Keyval::new(|_, depth: &u32| Ok(Some(depth + 1)), |_, _| ());
/// let comm = runtime.oneself();
/// comm.set_attribute(&depth, 0);
/// let copy = comm.dup()?.dup()?;
/// assert_eq!(copy.attribute(&depth).as_deref(), Some(&2));
/// # Ok::<(), tagmatch_comm::Error>(())
/// ```
pub struct Keyval<T>(Arc<Callbacks<T>>);

impl<T: Send + Sync + 'static> Keyval<T> {
    /// A key whose values are copied to a duplicate if `copy` gives one, and handed to `delete` when they go: when
    /// they are deleted or replaced, or their communicator is freed. Both are given the communicator that
    /// has the value.
    ///
    /// An error of `copy` is the duplication's in this process; what was copied before is deleted.
    pub fn new(
        copy: impl Fn(&CommInfo, &T) -> Result<Option<T>, Error> + Send + Sync + 'static,
        delete: impl Fn(&CommInfo, &T) + Send + Sync + 'static,
    ) -> Self {
        Keyval(Arc::new(Callbacks { copy: Box::new(copy), delete: Box::new(delete) }))
    }

    /// One whose values stay with their communicator (`MPI_COMM_NULL_COPY_FN`).
    pub fn own() -> Self {
        Keyval::new(|_, _| Ok(None), |_, _| ())
    }

    /// One whose values go to duplicates as they are (`MPI_COMM_DUP_FN`).
    pub fn inherited() -> Self
    where
        T: Clone,
    {
        Keyval::new(|_, value: &T| Ok(Some(value.clone())), |_, _| ())
    }

    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl<T> Clone for Keyval<T> {
    fn clone(&self) -> Self {
        Keyval(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Keyval<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyval({:p})", self.0)
    }
}

/// A value and its key, whatever their type.
trait Attribute: Send + Sync {
    fn key(&self) -> usize;
    fn value(&self) -> Arc<dyn Any + Send + Sync>;
    fn copy(&self, info: &CommInfo) -> Result<Option<Box<dyn Attribute>>, Error>;
    fn delete(&self, info: &CommInfo);
}

struct Entry<T> {
    /// Keeps the key, so that its address is no other's.
    key: Keyval<T>,
    value: Arc<T>,
}

impl<T: Send + Sync + 'static> Attribute for Entry<T> {
    fn key(&self) -> usize {
        self.key.id()
    }

    fn value(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.value) as _
    }

    fn copy(&self, info: &CommInfo) -> Result<Option<Box<dyn Attribute>>, Error> {
        let copy = (self.key.0.copy)(info, &self.value)?;
        let entry = |value| Entry { key: self.key.clone(), value: Arc::new(value) };
        Ok(copy.map(|value| Box::new(entry(value)) as _))
    }

    fn delete(&self, info: &CommInfo) {
        (self.key.0.delete)(info, &self.value);
    }
}

/// A communicator's attributes, in the order in which they were set.
pub(crate) struct Attributes {
    info: CommInfo,
    entries: Vec<Arc<dyn Attribute>>,
}

impl Attributes {
    pub(super) fn new(info: CommInfo) -> Self {
        Attributes { info, entries: Vec::new() }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        while let Some(entry) = self.entries.pop() {
            entry.delete(&self.info);
        }
    }
}

impl<N: Net> Comm<N> {
    /// Sets an attribute, in this process. The value that it replaces is deleted first.
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>, value: T) {
        self.delete_attribute(key);
        let entry = Entry { key: key.clone(), value: Arc::new(value) };
        self.with_attributes(|attributes| attributes.entries.push(Arc::new(entry)));
    }

    /// An attribute's value.
    pub fn attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> Option<Arc<T>> {
        let value = self.with_attributes(|attributes| {
            let entry = attributes.entries.iter().find(|entry| entry.key() == key.id())?;
            Some(entry.value())
        })?;
        value.downcast().ok()
    }

    /// Deletes an attribute; whether there was one.
    pub fn delete_attribute<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> bool {
        let removed = self.with_attributes(|attributes| {
            let at = attributes.entries.iter().position(|entry| entry.key() == key.id())?;
            Some(attributes.entries.remove(at))
        });
        // Without the lock, as the communicator is the callback's to use.
        removed.is_some_and(|entry| {
            entry.delete(self.info());
            true
        })
    }

    /// Those that a duplicate is to have, for as long as it isn't there this communicator's.
    pub(crate) fn copy_attributes(&self) -> Result<Attributes, Error> {
        let entries = self.with_attributes(|attributes| attributes.entries.clone());
        let mut copies = Attributes::new(self.info().clone());
        for entry in entries {
            let copy = entry.copy(self.info())?;
            copies.entries.extend(copy.map(Arc::from));
        }
        Ok(copies)
    }

    /// Gives a new communicator those that were copied for it.
    pub(crate) fn take_attributes(&self, mut copies: Attributes) {
        let entries = std::mem::take(&mut copies.entries);
        self.with_attributes(|attributes| attributes.entries = entries);
    }

    fn with_attributes<R>(&self, f: impl FnOnce(&mut Attributes) -> R) -> R {
        f(&mut self.inner.attributes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
