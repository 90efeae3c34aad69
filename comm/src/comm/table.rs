//! The table of a communicator's collective operations. Layers override its entries.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tagmatch::Buffer;

use super::communicator::{Comm, Running};
use super::info::CommInfo;
use crate::driver::Request;
use crate::error::Error;
use crate::net::Net;
use crate::plans::{COLLS, Call, Coll};

/// A collective operation under way. Its result is this member's bytes, or a `T`.
pub type CollRequest<N, T = Buffer> = Request<N, Running<N, T>>;

/// An entry that begins an operation.
pub type Start<N> = Arc<dyn Fn(&Comm<N>, Call) -> CollRequest<N> + Send + Sync>;

/// An entry that carries an operation out, and blocks.
pub type Run<N> = Arc<dyn Fn(&Comm<N>, Call) -> Result<Buffer, Error> + Send + Sync>;

/// The functions that carry out a communicator's collective operations. A table never changes, and
/// many communicators may share it.
///
/// Every entry is set, so a call is one indirect jump. An entry that a layer has not overridden is
/// the entry of the table beneath it.
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
    /// A member is down, or an argument is wrong.
    pub fn run(&self, comm: &Comm<N>, call: Call) -> Result<Buffer, Error> {
        self.run[call.coll as usize](comm, call)
    }

    /// The table that this one was made from.
    pub fn beneath(&self) -> Option<&Arc<CollTable<N>>> {
        self.beneath.as_ref()
    }

    /// The name of the layer that made this table; empty for the table at the bottom.
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

    /// The table beneath. A function that overrides an entry may call it.
    pub fn beneath(&self) -> &Arc<CollTable<N>> {
        &self.beneath
    }

    /// Overrides an operation. Its blocking form then calls `start` and waits.
    pub fn start(
        &mut self,
        coll: Coll,
        start: impl Fn(&Comm<N>, Call) -> CollRequest<N> + Send + Sync + 'static,
    ) {
        let start: Start<N> = Arc::new(start);
        self.table.start[coll as usize] = Arc::clone(&start);
        self.table.run[coll as usize] = Arc::new(move |comm, call| start(comm, call).wait());
    }

    /// Overrides the blocking form of an operation, and leaves the other one as it is.
    pub fn run(
        &mut self,
        coll: Coll,
        run: impl Fn(&Comm<N>, Call) -> Result<Buffer, Error> + Send + Sync + 'static,
    ) {
        self.table.run[coll as usize] = Arc::new(run);
    }
}

/// A value that a layer keeps for one communicator. It is dropped when the communicator is freed.
pub type Attached = Box<dyn Any + Send + Sync>;

/// A layer over the collective operations of some or all communicators.
///
/// A new communicator goes through the layers from the lowest level to the highest. When it is
/// freed, the values that the layers have attached are dropped from the highest level to the
/// lowest. If a layer fails, the values of the layers beneath it are dropped, and the communicator
/// is not made.
pub trait CollLayer<N: Net>: Send + Sync {
    /// The layer's name, for people.
    fn name(&self) -> &str;

    /// The layer's level: higher levels lie over lower ones. Two layers must not have the same
    /// level.
    fn level(&self) -> u32;

    /// The variant of the table that this communicator gets; `None`: the layer leaves the table as
    /// it is. Communicators with the same table beneath and the same variant share the patched
    /// table.
    fn variant(&self, comm: &CommInfo) -> Option<u64>;

    /// Patches a table, as [`variant`](Self::variant) has said.
    ///
    /// # Errors
    /// After an error the communicator is not made.
    fn patch(&self, variant: u64, table: &mut TableBuilder<N>) -> Result<(), Error>;

    /// Makes the value that the layer keeps for a communicator whose table it patches.
    ///
    /// # Errors
    /// After an error the communicator is not made.
    fn attach(&self, comm: &CommInfo) -> Result<Attached, Error> {
        let _ = comm;
        Ok(Box::new(()))
    }
}

/// A communicator's table, and the values that layers keep for it.
pub(crate) struct Bound<N: Net> {
    pub(crate) table: Arc<CollTable<N>>,
    /// The tables of communicators that are made of this one.
    pub(crate) tables: Arc<Tables<N>>,
    attached: Vec<Attached>,
}

impl<N: Net> Bound<N> {
    /// The value of this type that the lowest layer with such a value keeps.
    pub(crate) fn attached<T: Any>(&self) -> Option<&T> {
        self.attached.iter().find_map(|value| value.downcast_ref())
    }
}

impl<N: Net> Drop for Bound<N> {
    fn drop(&mut self) {
        while self.attached.pop().is_some() {}
    }
}

/// The key of a patched table: the layer's index, the address of the table beneath, and the
/// variant.
type Patch = (usize, usize, u64);

/// The layers of a process, and the tables that they have made.
pub(crate) struct Tables<N: Net> {
    layers: Vec<Arc<dyn CollLayer<N>>>,
    bottom: Arc<CollTable<N>>,
    patched: Mutex<HashMap<Patch, Weak<CollTable<N>>>>,
}

impl<N: Net> Tables<N> {
    /// `lowest`: a layer beneath all of `layers`, whatever their levels.
    pub(crate) fn new(
        lowest: Option<Arc<dyn CollLayer<N>>>,
        mut layers: Vec<Arc<dyn CollLayer<N>>>,
        start: Start<N>,
        run: Run<N>,
    ) -> Result<Self, Error> {
        layers.sort_by_key(|layer| layer.level());
        let same = layers.windows(2).find(|pair| pair[0].level() == pair[1].level());
        if let Some(pair) = same {
            return Err(Error::SameLevel { level: pair[0].level() });
        }
        layers.splice(0..0, lowest);
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

    /// The table at the bottom, without layers.
    pub(crate) fn unpatched(self: &Arc<Self>) -> Bound<N> {
        Bound { table: Arc::clone(&self.bottom), tables: Arc::clone(self), attached: Vec::new() }
    }

    /// The table that layer `at` makes of the table beneath it. Equal arguments give the same
    /// table.
    fn patched(
        &self,
        at: usize,
        beneath: &Arc<CollTable<N>>,
        variant: u64,
    ) -> Result<Arc<CollTable<N>>, Error> {
        // A patched table keeps the table beneath it alive. So no other table has that address
        // while the patched one lives.
        let address = Arc::as_ptr(beneath).addr();
        let key = (at, address, variant);
        if let Some(table) = self.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(table);
        }
        let layer = &self.layers[at];
        let mut builder = TableBuilder::new(beneath, layer.name());
        layer.patch(variant, &mut builder)?;
        let mut patched = self.lock();
        // Another thread may have made the table meanwhile.
        if let Some(table) = patched.get(&key).and_then(Weak::upgrade) {
            return Ok(table);
        }
        let table = Arc::new(builder.table);
        patched.retain(|_, table| table.strong_count() > 0);
        patched.insert(key, Arc::downgrade(&table));
        Ok(table)
    }

    /// The number of tables in use that layers have made.
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
