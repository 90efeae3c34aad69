//! The world of a thread. Calls of other threads, and of a thread without a world, go to the real
//! kernel.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::kernel::Kernel;

/// The work of other processes while the thread sleeps.
pub(crate) type Others = Box<dyn FnMut()>;

/// The payload of a panic.
type Panic = Box<dyn Any + Send>;

thread_local! {
    /// Whether the thread has a world. Apart, so that a call of a thread without one touches
    /// nothing that has to be dropped.
    static HAS_WORLD: Cell<bool> = const { Cell::new(false) };
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
    static OTHERS: RefCell<Option<Others>> = const { RefCell::new(None) };
    static PANIC: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// Gives the thread a world, or takes it.
pub(crate) fn enter(kernel: Option<Kernel>) -> Option<Kernel> {
    HAS_WORLD.set(kernel.is_some());
    OTHERS.take();
    KERNEL.replace(kernel)
}

/// Says what runs while the thread sleeps. Goes on with the panic that ended what ran before.
pub(crate) fn set_others(others: Option<Others>) {
    OTHERS.replace(others);
    if let Some(panic) = PANIC.take() {
        resume_unwind(panic);
    }
}

/// Lets the others run, if the world has them and they don't run already.
pub(crate) fn run_others() {
    if let Some(mut others) = OTHERS.take() {
        // A function of C can't be unwound.
        match catch_unwind(AssertUnwindSafe(&mut others)) {
            Ok(()) => drop(OTHERS.replace(Some(others))),
            Err(panic) => drop(PANIC.replace(Some(panic))),
        }
    }
}

/// Asks the world. `None` if the thread has none, or if the world itself makes the call.
pub(crate) fn ask<T>(act: impl FnOnce(&mut Kernel) -> T) -> Option<T> {
    if !HAS_WORLD.try_with(Cell::get).unwrap_or(false) {
        return None;
    }
    KERNEL.with(|kernel| kernel.try_borrow_mut().ok()?.as_mut().map(act))
}
