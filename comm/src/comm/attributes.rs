//! Attributes: values that a program, or a library in it, keeps with a communicator (MPI-4.1
//! section 7.7).
//!
//! A key has functions that copy its value when the communicator is duplicated, and delete it. MPI
//! leaves the order of these calls open, except at the end of a process, where the value that was
//! set last is deleted first. Here that order holds always, and values are copied in the order in
//! which they were set.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::info::CommInfo;
use crate::error::Error;

type Value = Arc<dyn Any + Send + Sync>;
type Copy = dyn Fn(&CommInfo, &Value) -> Result<Option<Value>, Error> + Send + Sync;
type Delete = dyn Fn(&CommInfo, &Value) + Send + Sync;

/// The functions of a key. They are called with values of the key's type only.
struct Callbacks {
    copy: Box<Copy>,
    delete: Box<Delete>,
}

/// A key of attributes (MPI's keyval). Each key that is made differs from all others; clones are
/// the same key. It lives as long as there are values of it.
///
/// ```
/// use tagmatch_comm::Keyval;
/// # use tagmatch_comm::net::worker::WorkerNet;
/// # let worker = tagmatch::Worker::new(tagmatch::Config::default())?;
/// # let addresses = vec![worker.address()];
/// # let net = WorkerNet::new(worker, addresses, 0)?;
/// # let runtime = tagmatch_comm::Runtime::new(net, Default::default())?;
/// // How many duplicates there were on the way to this communicator.
/// let depth = Keyval::new(|_, depth: &u32| Ok(Some(depth + 1)), |_, _| ());
/// let comm = runtime.oneself();
/// comm.set_attribute(&depth, 0);
/// let copy = comm.dup().wait()?.dup().wait()?;
/// assert_eq!(copy.attribute(&depth).as_deref(), Some(&2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keyval<T> {
    callbacks: Arc<Callbacks>,
    values: PhantomData<fn(T) -> T>,
}

impl<T: Send + Sync + 'static> Keyval<T> {
    /// A key with two functions, which are both given the communicator that has the value. `copy`
    /// gives the value of a duplicate, or none. `delete` is called when a value is deleted or
    /// replaced, or its communicator is freed.
    ///
    /// If `copy` fails, the duplication fails with that error in this process, and the values that
    /// were copied before are deleted.
    pub fn new(
        copy: impl Fn(&CommInfo, &T) -> Result<Option<T>, Error> + Send + Sync + 'static,
        delete: impl Fn(&CommInfo, &T) + Send + Sync + 'static,
    ) -> Self {
        let copy = Box::new(move |info: &CommInfo, value: &Value| {
            let copied = value.downcast_ref().map(|value| copy(info, value)).transpose()?;
            Ok(copied.flatten().map(|copied| Arc::new(copied) as Value))
        });
        let delete = Box::new(move |info: &CommInfo, value: &Value| {
            if let Some(value) = value.downcast_ref() {
                delete(info, value);
            }
        });
        Keyval { callbacks: Arc::new(Callbacks { copy, delete }), values: PhantomData }
    }

    /// A key whose values stay with their communicator (`MPI_COMM_NULL_COPY_FN`).
    pub fn own() -> Self {
        Keyval::new(|_, _| Ok(None), |_, _| ())
    }

    /// A key whose values go to duplicates as they are (`MPI_COMM_DUP_FN`).
    pub fn inherited() -> Self
    where
        T: Clone,
    {
        Keyval::new(|_, value: &T| Ok(Some(value.clone())), |_, _| ())
    }
}

impl<T> Clone for Keyval<T> {
    fn clone(&self) -> Self {
        Keyval { callbacks: Arc::clone(&self.callbacks), values: PhantomData }
    }
}

impl<T> fmt::Debug for Keyval<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyval({:p})", self.callbacks)
    }
}

/// A value and its key.
#[derive(Clone)]
pub(super) struct Attribute {
    /// Kept here so that no other key gets its address.
    key: Arc<Callbacks>,
    value: Value,
}

impl Attribute {
    pub(super) fn delete(&self, info: &CommInfo) {
        (self.key.delete)(info, &self.value);
    }
}

/// A communicator's attributes, in the order in which they were set.
pub(crate) struct Attributes {
    info: CommInfo,
    entries: Vec<Attribute>,
}

impl Attributes {
    pub(super) fn new(info: CommInfo) -> Self {
        Attributes { info, entries: Vec::new() }
    }

    pub(super) fn entries(&self) -> Vec<Attribute> {
        self.entries.clone()
    }

    /// The copies of these values that a duplicate gets.
    pub(super) fn copied(info: CommInfo, entries: Vec<Attribute>) -> Result<Self, Error> {
        let mut copies = Attributes::new(info);
        for Attribute { key, value } in entries {
            let copy = (key.copy)(&copies.info, &value)?;
            copies.entries.extend(copy.map(|value| Attribute { key, value }));
        }
        Ok(copies)
    }

    /// Takes the values of others. This communicator is the one that they are deleted with.
    pub(super) fn replace_by(&mut self, mut others: Attributes) {
        self.entries = std::mem::take(&mut others.entries);
    }

    pub(super) fn set<T: Send + Sync + 'static>(&mut self, key: &Keyval<T>, value: T) {
        let key = Arc::clone(&key.callbacks);
        self.entries.push(Attribute { key, value: Arc::new(value) });
    }

    pub(super) fn value<T: Send + Sync + 'static>(&self, key: &Keyval<T>) -> Option<Arc<T>> {
        Arc::clone(&self.entries[self.position(key)?].value).downcast().ok()
    }

    pub(super) fn remove<T>(&mut self, key: &Keyval<T>) -> Option<Attribute> {
        let at = self.position(key)?;
        Some(self.entries.remove(at))
    }

    fn position<T>(&self, key: &Keyval<T>) -> Option<usize> {
        self.entries.iter().position(|entry| Arc::ptr_eq(&entry.key, &key.callbacks))
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        while let Some(entry) = self.entries.pop() {
            entry.delete(&self.info);
        }
    }
}
