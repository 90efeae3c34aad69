//! An open RDMA device: its attributes and its asynchronous events.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use tagmatch_device::DeviceError;
use tagmatch_rdma_core_sys::{self as sys, Verbs};

use super::calls::{check, made};
use super::config::VerbsConfig;

pub(super) struct Context {
    pub(super) verbs: &'static Verbs,
    raw: NonNull<sys::ibv_context>,
    pub(super) name: String,
    /// The port to use.
    pub(super) port: u8,
    /// Why this port, where there were several.
    pub(super) why: String,
    /// The most inline bytes that a queue pair may be asked for, as far as is known.
    pub(super) inline_max: AtomicU32,
    /// This process' number among those of its machine.
    pub(super) local_rank: u32,
    process: u32,
}

// SAFETY: a context isn't tied to a thread: libibverbs' calls may come from any thread.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

/// An asynchronous event, reduced to what matters here.
pub(super) enum AsyncEvent {
    /// A queue pair has failed. With `is_access_error`, because its peer's request was invalid or
    /// accessed memory without permission.
    QueuePair { number: u32, is_access_error: bool },
    /// A completion queue has failed.
    CompletionQueue,
    /// A shared receive queue has failed.
    ReceiveQueue(*mut sys::ibv_srq),
    /// The device is lost.
    DeviceLost,
    /// Something has happened to a port.
    Port { number: u8, event_type: sys::ibv_event_type },
    /// Anything else.
    Other,
}

/// Loads libibverbs.
pub(super) fn library(config: &VerbsConfig) -> Result<&'static Verbs, DeviceError> {
    config.library.verbs().map_err(|error| DeviceError::System {
        call: "dlopen",
        source: io::Error::other(error),
        hint: "; install rdma-core (Debian: libibverbs1 ibverbs-providers)",
    })
}

impl Context {
    /// Opens the device that the settings name, or all, sorted by name. They may be none.
    ///
    /// # Errors
    /// They can't be listed, or none can be opened.
    pub(super) fn open_all(config: &VerbsConfig) -> Result<Vec<Self>, DeviceError> {
        let verbs = library(config)?;
        let mut count = 0;
        // SAFETY: the list is freed below, after the devices were opened.
        let list = made(unsafe { (verbs.ibv_get_device_list)(&raw mut count) });
        let list = list.map_err(|source| {
            let hint = match source.raw_os_error() {
                Some(libc::ENOSYS) => "; this kernel has no RDMA (modprobe ib_uverbs)",
                _ => "",
            };
            DeviceError::System { call: "ibv_get_device_list", source, hint }
        })?;
        let opened = Self::open_listed(verbs, list, config.device.as_deref());
        // SAFETY: the list was created above and isn't used any more.
        unsafe { (verbs.ibv_free_device_list)(list.as_ptr()) };
        opened
    }

    fn open_listed(
        verbs: &'static Verbs,
        list: NonNull<*mut sys::ibv_device>,
        wanted: Option<&str>,
    ) -> Result<Vec<Self>, DeviceError> {
        let mut opened = Vec::new();
        let mut refused = None;
        for at in 0.. {
            // SAFETY: the list ends in null, where the loop stops.
            let device = unsafe { *list.as_ptr().add(at) };
            if device.is_null() {
                break;
            }
            // SAFETY: the device is listed, and its name is a C string.
            let name = unsafe { CStr::from_ptr((verbs.ibv_get_device_name)(device)) };
            let name = name.to_string_lossy().into_owned();
            if wanted.is_some_and(|wanted| wanted != name) {
                continue;
            }
            // SAFETY: the device is listed.
            match made(unsafe { (verbs.ibv_open_device)(device) }) {
                Ok(raw) => {
                    let process = std::process::id();
                    opened.push(Context {
                        verbs,
                        raw,
                        name,
                        port: 0,
                        why: String::new(),
                        inline_max: AtomicU32::new(u32::MAX),
                        local_rank: 0,
                        process,
                    });
                }
                Err(source) => {
                    let hint = match source.raw_os_error() {
                        Some(libc::EACCES) => {
                            "; /dev/infiniband/uverbs* must be readable and writable"
                        }
                        _ => "",
                    };
                    let error = DeviceError::System { call: "ibv_open_device", source, hint };
                    refused.get_or_insert(error);
                }
            }
        }
        // The list is in the order of a directory.
        opened.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        match refused {
            Some(error) if opened.is_empty() => Err(error),
            _ => Ok(opened),
        }
    }

    /// The context itself: the last step for objects, which find it through their parents.
    pub(super) fn context(&self) -> &Self {
        self
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_context {
        self.raw.as_ptr()
    }

    pub(super) fn is_own_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// The interrupt of a completion queue: the device has several, of which each rank of a machine
    /// takes another one, so that they don't all wake one processor.
    pub(super) fn completion_vector(&self) -> i32 {
        // SAFETY: the context is open.
        let count = unsafe { (*self.raw()).num_comp_vectors };
        let count = u32::try_from(count).unwrap_or(1).max(1);
        i32::try_from(self.local_rank % count).unwrap_or(0)
    }

    /// Whether the device speaks iWARP.
    pub(super) fn is_iwarp(&self) -> bool {
        // SAFETY: the context is open, and its device exists as long.
        unsafe { (*(*self.raw()).device).transport_type == sys::IBV_TRANSPORT_IWARP }
    }

    pub(super) fn attributes(&self) -> io::Result<sys::ibv_device_attr> {
        let mut attr = sys::ibv_device_attr::zeroed();
        // SAFETY: the context is open.
        check(unsafe { (self.verbs.ibv_query_device)(self.raw(), &raw mut attr) })?;
        Ok(attr)
    }

    /// The limits of the NIC's tag matching; all zero if it has none.
    pub(super) fn tag_matching(&self) -> io::Result<sys::ibv_tm_caps> {
        let mut attr = sys::ibv_device_attr_ex::zeroed();
        // SAFETY: the context is open.
        let answer = unsafe {
            sys::ibv_query_device_ex(self.verbs, self.raw(), std::ptr::null(), &raw mut attr)
        };
        check(answer).map(|()| attr.tm_caps)
    }

    pub(super) fn port(&self, port: u8) -> io::Result<sys::ibv_port_attr> {
        let mut attr = sys::ibv_port_attr::zeroed();
        // SAFETY: the context is open.
        check(unsafe { sys::ibv_query_port(self.verbs, self.raw(), port, &raw mut attr) })?;
        Ok(attr)
    }

    /// Whether libibverbs is older than rdma-core 32, and tells GIDs without their types.
    pub(super) fn has_old_library(&self) -> bool {
        self.verbs._ibv_query_gid_ex.is_none()
    }

    /// One row of a port's GID table; `None` if it is empty. An old library doesn't tell the type,
    /// and InfiniBand has but one.
    pub(super) fn gid_entry(&self, port: u8, index: u32) -> Option<sys::ibv_gid_entry> {
        let mut entry = sys::ibv_gid_entry::zeroed();
        if self.has_old_library() {
            let row = i32::try_from(index).ok()?;
            // SAFETY: the context is open.
            let answer =
                unsafe { (self.verbs.ibv_query_gid)(self.raw(), port, row, &raw mut entry.gid) };
            return (answer == 0).then_some(entry);
        }
        // SAFETY: the context is open.
        let answer = unsafe {
            sys::ibv_query_gid_ex(self.verbs, self.raw(), u32::from(port), index, &raw mut entry)
        };
        (answer == 0).then_some(entry)
    }

    /// One row of a port's table of partition keys; `None` if it can't be read.
    pub(super) fn partition_key(&self, port: u8, index: u16) -> Option<u16> {
        let mut key = 0;
        // SAFETY: the context is open.
        let answer =
            unsafe { (self.verbs.ibv_query_pkey)(self.raw(), port, index.into(), &raw mut key) };
        (answer == 0).then_some(u16::from_be(key))
    }

    pub(super) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context's descriptor is open as long as the context.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).async_fd) }
    }

    /// Returns the next asynchronous event, and acknowledges it. Must be called by the thread that
    /// destroys queue pairs, so that the queue pair that an event names exists.
    pub(super) fn next_async_event(&self) -> Option<AsyncEvent> {
        let mut event = sys::ibv_async_event::zeroed();
        // SAFETY: the context is open and its descriptor doesn't block. The queue pair that an
        // event names exists until the event is acknowledged.
        unsafe {
            if (self.verbs.ibv_get_async_event)(self.raw(), &raw mut event) != 0 {
                return None;
            }
            let happening = match event.event_type {
                sys::IBV_EVENT_QP_FATAL
                | sys::IBV_EVENT_QP_REQ_ERR
                | sys::IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::QueuePair {
                    number: (*event.element.qp).qp_num,
                    is_access_error: event.event_type != sys::IBV_EVENT_QP_FATAL,
                },
                sys::IBV_EVENT_CQ_ERR => AsyncEvent::CompletionQueue,
                sys::IBV_EVENT_SRQ_ERR => AsyncEvent::ReceiveQueue(event.element.srq),
                sys::IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceLost,
                event_type @ (sys::IBV_EVENT_PORT_ACTIVE
                | sys::IBV_EVENT_PORT_ERR
                | sys::IBV_EVENT_LID_CHANGE
                | sys::IBV_EVENT_GID_CHANGE
                | sys::IBV_EVENT_PKEY_CHANGE
                | sys::IBV_EVENT_CLIENT_REREGISTER) => AsyncEvent::Port {
                    number: u8::try_from(event.element.port_num).unwrap_or(0),
                    event_type,
                },
                _ => AsyncEvent::Other,
            };
            (self.verbs.ibv_ack_async_event)(&raw mut event);
            Some(happening)
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_own_process() {
            // SAFETY: this value has opened the context. Everything created from it is destroyed,
            // since all of it keeps the context.
            unsafe { (self.verbs.ibv_close_device)(self.raw()) };
        }
    }
}
