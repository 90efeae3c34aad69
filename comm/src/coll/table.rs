//! The table of collective operations that layers override.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::comm::{Comm, CommInfo, Running};
use crate::driver::Request;
use crate::error::Error;
use crate::net::Net;

use super::call::{COLLS, Call, Coll};

/// A collective operation under way. It ends with the bytes that it gives this member.
pub type CollRequest<N> = Request<N, Running<N, Vec<u8>>>;

/// Begins an operation.
pub type Start<N> = Arc<dyn Fn(&Comm<N>, Call) -> CollRequest<N> + Send + Sync>;

/// Carries an operation out, and blocks.
pub type Run<N> = Arc<dyn Fn(&Comm<N>, Call) -> Result<Vec<u8>, Error> + Send + Sync>;

/// How a communicator carries out its collective operations. It never changes; many communicators share it.
///
/// No entry is ever missing, so that a call is one indirect jump. What a layer has not overridden is what
/// was beneath it.
pub struct CollTable<N: Net> {
    start: [Start<N>; COLLS],
    run: [Run<N>; COLLS],
    beneath: Option<Arc<CollTable<N>>>,
    layer: String,
}

impl<N: Net> CollTable<N> {
    /// Begins an operation.
    pub fn start(&self, comm: &Comm<N>, call: Call) -> CollRequest<N> {
        self.start[call.coll as usize](comm, call)
    }

    /// Carries an operation out. Blocks.
    ///
    /// # Errors
    /// A member is down, or an argument can't be.
    pub fn run(&self, comm: &Comm<N>, call: Call) -> Result<Vec<u8>, Error> {
        self.run[call.coll as usize](comm, call)
    }

    /// The table that this one was made from.
    pub fn beneath(&self) -> Option<&Arc<CollTable<N>>> {
        self.beneath.as_ref()
    }

    /// The layer that patched it; empty for the one at the bottom.
    pub fn layer(&self) -> &str {
        &self.layer
    }
}

/// A table while a layer patches it.
pub struct TableBuilder<N: Net> {
    table: CollTable<N>,
    beneath: Arc<CollTable<N>>,
}

impl<N: Net> TableBuilder<N> {
    fn new(beneath: &Arc<CollTable<N>>, layer: &str) -> Self {
        let table = CollTable {
            start: beneath.start.clone(),
            run: beneath.run.clone(),
            beneath: Some(Arc::clone(beneath)),
            layer: layer.to_owned(),
        };
        TableBuilder { table, beneath: Arc::clone(beneath) }
    }

    /// The table beneath, to be called by what overrides it.
    pub fn beneath(&self) -> &Arc<CollTable<N>> {
        &self.beneath
    }

    /// Overrides an operation. Its blocking form now begins this and waits.
    pub fn start(
        &mut self,
        coll: Coll,
        start: impl Fn(&Comm<N>, Call) -> CollRequest<N> + Send + Sync + 'static,
    ) {
        let start: Start<N> = Arc::new(start);
        self.table.start[coll as usize] = Arc::clone(&start);
        self.table.run[coll as usize] = Arc::new(move |comm, call| start(comm, call).wait());
    }

    /// Overrides the blocking form alone.
    pub fn run(
        &mut self,
        coll: Coll,
        run: impl Fn(&Comm<N>, Call) -> Result<Vec<u8>, Error> + Send + Sync + 'static,
    ) {
        self.table.run[coll as usize] = Arc::new(run);
    }
}

/// Whatever a layer keeps for one communicator, until that is freed.
pub type Attached = Box<dyn Any + Send + Sync>;

/// What stands over the collective operations of some or all communicators.
///
/// A communicator that is made goes through the layers from the lowest level to the highest; when it is
/// freed, what they have attached is dropped from the highest to the lowest. An error of one undoes what
/// those beneath it have done.
pub trait CollLayer<N: Net>: Send + Sync {
    /// Its name, for people.
    fn name(&self) -> &str;

    /// Its place: higher levels lie over lower ones. Each layer has a level of its own.
    fn level(&self) -> u32;

    /// How it patches this communicator; `None`: not at all. Communicators with the same table beneath for
    /// which this is the same share the patched one.
    fn variant(&self, comm: &CommInfo) -> Option<u64>;

    /// Patches a table in the way `variant`.
    ///
    /// # Errors
    /// The communicator is not made then.
    fn patch(&self, variant: u64, table: &mut TableBuilder<N>) -> Result<(), Error>;

    /// What it keeps for a communicator that it patches.
    ///
    /// # Errors
    /// The communicator is not made then.
    fn attach(&self, comm: &CommInfo) -> Result<Attached, Error> {
        let _ = comm;
        Ok(Box::new(()))
    }
}

/// A communicator's table, and what the layers keep for it.
pub(crate) struct Bound<N: Net> {
    pub(crate) table: Arc<CollTable<N>>,
    /// Where the tables of communicators that are made of this one come from.
    pub(crate) tables: Arc<Tables<N>>,
    attached: Vec<Attached>,
}

impl<N: Net> Drop for Bound<N> {
    fn drop(&mut self) {
        while self.attached.pop().is_some() {}
    }
}

/// Which layer patched which table in which way.
type Patch = (usize, usize, u64);

/// The layers, and the tables that they have made.
pub(crate) struct Tables<N: Net> {
    layers: Vec<Arc<dyn CollLayer<N>>>,
    bottom: Arc<CollTable<N>>,
    patched: Mutex<HashMap<Patch, Weak<CollTable<N>>>>,
}

impl<N: Net> Tables<N> {
    pub(crate) fn new(
        mut layers: Vec<Arc<dyn CollLayer<N>>>,
        start: Start<N>,
        run: Run<N>,
    ) -> Result<Self, Error> {
        layers.sort_by_key(|layer| layer.level());
        let same = layers.windows(2).find(|pair| pair[0].level() == pair[1].level());
        if let Some(pair) = same {
            return Err(Error::SameLevel { level: pair[0].level() });
        }
        let bottom = Arc::new(CollTable {
            start: std::array::from_fn(|_| Arc::clone(&start)),
            run: std::array::from_fn(|_| Arc::clone(&run)),
            beneath: None,
            layer: String::new(),
        });
        Ok(Tables { layers, bottom, patched: Mutex::default() })
    }

    /// The table of a new communicator.
    pub(crate) fn bind(self: &Arc<Self>, info: &CommInfo) -> Result<Bound<N>, Error> {
        let mut bound = self.unpatched();
        for (at, layer) in self.layers.iter().enumerate() {
            if let Some(variant) = layer.variant(info) {
                bound.attached.push(layer.attach(info)?);
                bound.table = self.patched(at, &bound.table, variant)?;
            }
        }
        Ok(bound)
    }

    /// The bottom, on which no layer lies.
    pub(crate) fn unpatched(self: &Arc<Self>) -> Bound<N> {
        let (table, tables) = (Arc::clone(&self.bottom), Arc::clone(self));
        Bound { table, tables, attached: Vec::new() }
    }

    /// The table that layer `at` makes out of another; the same one for all who ask for it.
    fn patched(
        &self,
        at: usize,
        beneath: &Arc<CollTable<N>>,
        variant: u64,
    ) -> Result<Arc<CollTable<N>>, Error> {
        // A table keeps the one beneath it alive, so that its address is no other's as long as it lives.
        let address = Arc::as_ptr(beneath).addr();
        let key = (at, address, variant);
        if let Some(table) = self.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(table);
        }
        let layer = &self.layers[at];
        let mut builder = TableBuilder::new(beneath, layer.name());
        layer.patch(variant, &mut builder)?;
        let mut patched = self.lock();
        // Another thread may have been faster.
        if let Some(table) = patched.get(&key).and_then(Weak::upgrade) {
            return Ok(table);
        }
        let table = Arc::new(builder.table);
        patched.retain(|_, table| table.strong_count() > 0);
        patched.insert(key, Arc::downgrade(&table));
        Ok(table)
    }

    /// Tables in use that layers have made.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().filter(|table| table.strong_count() > 0).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Patch, Weak<CollTable<N>>>> {
        self.patched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<N: Net> fmt::Debug for CollTable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollTable")
            .field("layer", &self.layer)
            .field("beneath", &self.beneath)
            .finish()
    }
}
