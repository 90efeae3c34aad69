//! UCX's context, and memory of the caller's own that is registered with it.
//!
//! UCX's context serves one thread at a time, but the last buffer of registered memory may be
//! dropped on any thread. So ended registrations wait in a list until the worker's thread takes
//! them. Once the worker is gone, the list's lock is enough.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use tagmatch_os::process::Pid;
use tagmatch_ucx_sys as sys;

/// The handle of registered memory.
struct MemoryHandle(sys::ucp_mem_h);

// SAFETY: UCX's handles aren't tied to a thread.
unsafe impl Send for MemoryHandle {}
// SAFETY: the handle is a number for all but UCX.
unsafe impl Sync for MemoryHandle {}

/// UCX's context. It lives as long as the worker and all registrations.
pub(super) struct Context {
    ucp: &'static sys::Ucp,
    raw: sys::ucp_context_h,
    made_by: Pid,
    /// Registrations that have ended and are to be unmapped. `None` once the worker is gone.
    ended: Mutex<Option<Vec<MemoryHandle>>>,
}

// SAFETY: UCX's context isn't tied to a thread.
unsafe impl Send for Context {}
// SAFETY: the context is used by the thread that has the worker, and once that is gone, by the
// thread that has the lock.
unsafe impl Sync for Context {}

impl Context {
    /// Takes over a context that was just made.
    pub(super) fn new(ucp: &'static sys::Ucp, raw: sys::ucp_context_h) -> Arc<Self> {
        Arc::new(Context { ucp, raw, made_by: Pid::own(), ended: Mutex::new(Some(Vec::new())) })
    }

    pub(super) fn raw(&self) -> sys::ucp_context_h {
        self.raw
    }

    /// Whether this process made the context, rather than a parent that has forked.
    pub(super) fn is_own_process(&self) -> bool {
        self.made_by == Pid::own()
    }

    /// Registers memory.
    ///
    /// # Safety
    /// Called by the thread that has the worker. The memory stays allocated until the registration
    /// is dropped.
    ///
    /// # Errors
    /// UCX's status.
    pub(super) unsafe fn register(
        self: &Arc<Self>,
        start: *mut u8,
        length: usize,
    ) -> Result<Registration, sys::ucs_status_t> {
        self.unmap_ended();
        let mut params = sys::ucp_mem_map_params_t::zeroed();
        params.field_mask = sys::UCP_MEM_MAP_PARAM_FIELD_ADDRESS
            | sys::UCP_MEM_MAP_PARAM_FIELD_LENGTH
            | sys::UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        params.address = start.cast::<c_void>();
        params.length = length;
        params.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        let mut handle = ptr::null_mut();
        // SAFETY: a context, fields as the mask says, a place for the result. The memory is the
        // caller's promise.
        let status =
            unsafe { (self.ucp.ucp_mem_map)(self.raw, &raw const params, &raw mut handle) };
        if status != sys::UCS_OK {
            return Err(status);
        }
        Ok(Registration { handle: MemoryHandle(handle), context: Arc::clone(self) })
    }

    /// Unmaps registrations that have ended. Called by the thread that has the worker.
    pub(super) fn unmap_ended(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter_mut().flat_map(|list| list.drain(..)).for_each(|handle| self.unmap(&handle));
    }

    /// Unmaps registrations that have ended. From now on, each is unmapped at its end.
    pub(super) fn worker_is_gone(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.take().into_iter().flatten().for_each(|handle| self.unmap(&handle));
    }

    fn end(&self, handle: MemoryHandle) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *ended {
            Some(list) => list.push(handle),
            None => self.unmap(&handle),
        }
    }

    fn unmap(&self, handle: &MemoryHandle) {
        // SAFETY: a handle of this context that no operation uses any more, unmapped once.
        unsafe { (self.ucp.ucp_mem_unmap)(self.raw, handle.0) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_own_process() {
            // SAFETY: the context was made, and worker and registrations are gone.
            unsafe { (self.ucp.ucp_cleanup)(self.raw) };
        }
    }
}

/// Registered memory of the caller's own.
pub(super) struct Registration {
    handle: MemoryHandle,
    context: Arc<Context>,
}

impl Registration {
    /// The handle, if the memory is registered with this context.
    pub(super) fn handle_in(&self, context: &Arc<Context>) -> Option<sys::ucp_mem_h> {
        Arc::ptr_eq(&self.context, context).then_some(self.handle.0)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A forked child must not touch its copy of UCX's memory, nor a lock that another thread
        // may have had.
        if self.context.is_own_process() {
            self.context.end(MemoryHandle(self.handle.0));
        }
    }
}
