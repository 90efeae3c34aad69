//! UCX's context and worker behind safe calls.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use tagmatch_device::{Buffer, DeviceError, RawMemory, Registered};
use tagmatch_fabric::Canceller;
use tagmatch_ucx_sys as sys;

use super::carrier::TagCodec;
use super::config::UcxConfig;
use super::operations::{Fault, UcxContext, UcxOperation, failed, received, sent};
use super::registration::{Context, Registration};

/// An unexpected message in UCX, found or taken by a probe.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub(super) message: sys::ucp_tag_message_h,
    pub(super) is_taken: bool,
    pub(super) tag: u64,
    pub(super) length: usize,
}

/// An endpoint, not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerEndpoint(sys::ucp_ep_h);

/// UCX's worker with its context. Dropping it ends operations without calling back, so its user has
/// to end them first.
pub(super) struct Worker {
    pub(super) ucp: &'static sys::Ucp,
    // Dropped after the worker.
    context: Arc<Context>,
    worker: sys::ucp_worker_h,
    wakeup: Option<c_int>,
    address: Vec<u8>,
    handles_errors: bool,
    /// The arguments of callbacks, which have to live as long as UCX's worker.
    faults: RefCell<Vec<Rc<Fault>>>,
    /// UCX's requests that were not freed.
    requests: Cell<usize>,
}

// SAFETY: UCX's worker is made for one caller at a time, from whatever thread
// (`UCS_THREAD_MODE_SERIALIZED`), and nobody else has its pointers.
unsafe impl Send for Worker {}

/// The settings of a context.
struct ContextSettings<'a> {
    ucp: &'a sys::Ucp,
    config: *mut sys::ucp_config_t,
}

impl<'a> ContextSettings<'a> {
    fn read(ucp: &'a sys::Ucp, wanted: &UcxConfig) -> Result<Self, DeviceError> {
        let mut config = ptr::null_mut();
        // SAFETY: no prefix beyond UCX's own, no file; a place for the result.
        let status = unsafe { (ucp.ucp_config_read)(ptr::null(), ptr::null(), &raw mut config) };
        check(ucp, "ucp_config_read", status, "; see the UCX_ variables of the environment")?;
        let settings = ContextSettings { ucp, config };
        let environment = |name: &str| {
            std::env::var_os(format!("UCX_{name}"))
                .map(|value| value.to_string_lossy().into_owned())
        };
        for (name, value) in wanted.variables(environment) {
            let text = |text: &str| {
                let bad = DeviceError::Unsupported {
                    what: "a UCX setting with a zero byte",
                    why: "UCX's settings are C strings",
                };
                CString::new(text).map_err(|_| bad)
            };
            let name = text(&name)?;
            let value = text(&value)?;
            // SAFETY: settings that were read above and terminated strings.
            let status = unsafe { (ucp.ucp_config_modify)(config, name.as_ptr(), value.as_ptr()) };
            check(ucp, "ucp_config_modify", status, "; see UcxConfig::settings")?;
        }
        Ok(settings)
    }
}

impl Drop for ContextSettings<'_> {
    fn drop(&mut self) {
        // SAFETY: settings that were read.
        unsafe { (self.ucp.ucp_config_release)(self.config) };
    }
}

/// An error status as an error of the device.
fn check(
    ucp: &sys::Ucp,
    call: &'static str,
    status: sys::ucs_status_t,
    hint: &'static str,
) -> Result<(), DeviceError> {
    if status == sys::UCS_OK {
        return Ok(());
    }
    Err(DeviceError::System { call, source: io::Error::other(ucp.status_text(status)), hint })
}

impl Worker {
    /// A worker. If `wakes`, a thread can sleep on its descriptor.
    pub(super) fn new(
        ucp: &'static sys::Ucp,
        config: &UcxConfig,
        carrier: &TagCodec,
        wakes: bool,
        handles_errors: bool,
    ) -> Result<Self, DeviceError> {
        let settings = ContextSettings::read(ucp, config)?;
        let mut params = sys::ucp_params_t::zeroed();
        params.field_mask = sys::UCP_PARAM_FIELD_FEATURES | sys::UCP_PARAM_FIELD_TAG_SENDER_MASK;
        params.features = sys::UCP_FEATURE_TAG;
        if wakes {
            params.features |= sys::UCP_FEATURE_WAKEUP;
        }
        params.tag_sender_mask = carrier.source;
        let (major, minor) = sys::load::VERSION_MIN;
        let mut context = ptr::null_mut();
        // SAFETY: fields as the mask says; settings that were read; a place for the result.
        let status = unsafe {
            let init = ucp.ucp_init_version;
            init(major, minor, &raw const params, settings.config, &raw mut context)
        };
        check(ucp, "ucp_init", status, "; does UCX_TLS name a transport of this machine?")?;
        let mut worker = Worker {
            ucp,
            context: Context::new(ucp, context),
            worker: ptr::null_mut(),
            wakeup: None,
            address: Vec::new(),
            handles_errors,
            faults: RefCell::default(),
            requests: Cell::new(0),
        };
        worker.open(wakes)?;
        Ok(worker)
    }

    fn open(&mut self, wakes: bool) -> Result<(), DeviceError> {
        let ucp = self.ucp;
        let mut params = sys::ucp_worker_params_t::zeroed();
        params.field_mask = sys::UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        params.thread_mode = sys::UCS_THREAD_MODE_SERIALIZED;
        // SAFETY: a context, fields as the mask says, a place for the result.
        let status = unsafe {
            (ucp.ucp_worker_create)(self.context.raw(), &raw const params, &raw mut self.worker)
        };
        check(ucp, "ucp_worker_create", status, "")?;
        let mut address = ptr::null_mut();
        let mut length = 0;
        // SAFETY: a worker; UCX gives an address of so many bytes, which is copied and given back.
        unsafe {
            let get = ucp.ucp_worker_get_address;
            let status = get(self.worker, &raw mut address, &raw mut length);
            check(ucp, "ucp_worker_get_address", status, "")?;
            self.address = std::slice::from_raw_parts(address.cast::<u8>(), length).to_vec();
            (ucp.ucp_worker_release_address)(self.worker, address);
        }
        if wakes {
            let mut descriptor = -1;
            // SAFETY: a worker, and a place for the result.
            let status = unsafe { (ucp.ucp_worker_get_efd)(self.worker, &raw mut descriptor) };
            check(ucp, "ucp_worker_get_efd", status, "")?;
            self.wakeup = Some(descriptor);
        }
        Ok(())
    }

    /// The worker's address in UCX's form.
    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }

    /// Readable when an armed worker has something to do.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: UCX's descriptor, which lives as long as the worker.
        self.wakeup.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Asks that the descriptor become readable at the next event; `false` if there is an event
    /// already.
    pub(super) fn arm(&self) -> bool {
        // SAFETY: a worker.
        unsafe { (self.ucp.ucp_worker_arm)(self.worker) == sys::UCS_OK }
    }

    /// `true` if something was done.
    #[inline]
    pub(super) fn progress(&self) -> bool {
        // SAFETY: a worker. Callbacks that it calls do as `operations` says.
        unsafe { (self.ucp.ucp_worker_progress)(self.worker) != 0 }
    }

    /// An endpoint to the worker at `address`. With a `fault`, the endpoint has error handling, and
    /// failures are reported there.
    pub(super) fn connect(
        &self,
        address: &[u8],
        fault: Option<&Rc<Fault>>,
    ) -> Result<PeerEndpoint, sys::ucs_status_t> {
        let mut params = sys::ucp_ep_params_t::zeroed();
        params.field_mask = sys::UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
            | sys::UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
            | sys::UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = address.as_ptr().cast();
        if let Some(fault) = fault {
            if self.handles_errors {
                params.err_mode = sys::UCP_ERR_HANDLING_MODE_PEER;
            }
            self.faults.borrow_mut().push(Rc::clone(fault));
            let arg = Rc::as_ptr(fault).cast_mut().cast();
            params.err_handler = sys::ucp_err_handler_t { cb: Some(failed), arg };
        }
        let mut endpoint = ptr::null_mut();
        // SAFETY: fields as the mask says; the address' bytes live through the call; `fault` lives
        // as long as the worker, in `faults`.
        let status =
            unsafe { (self.ucp.ucp_ep_create)(self.worker, &raw const params, &raw mut endpoint) };
        if status == sys::UCS_OK { Ok(PeerEndpoint(endpoint)) } else { Err(status) }
    }

    /// Closes an endpoint by force, which ends the operations on it. Returns the request of the
    /// closing, if there is one.
    pub(super) fn disconnect(&self, endpoint: PeerEndpoint) -> Option<*mut c_void> {
        if !self.handles_errors {
            // UCX refuses to close it by force; it ends with the worker.
            return None;
        }
        let mut param = sys::ucp_request_param_t::zeroed();
        param.op_attr_mask = sys::UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = sys::UCP_EP_CLOSE_FLAG_FORCE;
        // SAFETY: an endpoint that is closed once.
        let started = unsafe { (self.ucp.ucp_ep_close_nbx)(endpoint.0, &raw const param) };
        match self.started(started) {
            sys::Started::Request(request) => Some(request),
            _ => None,
        }
    }

    /// Flushes an endpoint: complete once all messages have left this process.
    pub(super) fn flush(&self, endpoint: PeerEndpoint) -> sys::Started {
        let param = sys::ucp_request_param_t::zeroed();
        // SAFETY: an endpoint that isn't closed, and fields as the mask says.
        self.started(unsafe { (self.ucp.ucp_ep_flush_nbx)(endpoint.0, &raw const param) })
    }

    /// Frees a request that has no callback, if it has ended.
    pub(super) fn has_ended(&self, request: *mut c_void) -> bool {
        // SAFETY: a request that `disconnect` or `flush` gave and that wasn't freed.
        unsafe {
            if (self.ucp.ucp_request_check_status)(request) == sys::UCS_INPROGRESS {
                return false;
            }
            (self.ucp.ucp_request_free)(request);
        }
        self.requests.update(|count| count.wrapping_sub(1));
        true
    }

    /// UCX's requests that were not freed.
    pub(super) fn requests(&self) -> usize {
        self.requests.get()
    }

    /// The start of an operation.
    #[inline]
    fn started(&self, started: *mut c_void) -> sys::Started {
        let started = sys::Started::of(started);
        let is_request = matches!(started, sys::Started::Request(_));
        self.requests.update(|count| count + usize::from(is_request));
        started
    }

    /// The start of an operation, whose request its context keeps.
    #[inline]
    fn started_in(&self, started: *mut c_void, context: &UcxContext) -> sys::Started {
        let started = self.started(started);
        if let sys::Started::Request(request) = started {
            context.request.set(request);
        }
        started
    }

    /// Frees the request of an operation that has ended.
    #[inline]
    pub(super) fn free(&self, context: &UcxContext) {
        let request = context.request.replace(ptr::null_mut());
        if !request.is_null() {
            // SAFETY: the operation's request, freed once.
            unsafe { (self.ucp.ucp_request_free)(request) };
            self.requests.update(|count| count.wrapping_sub(1));
        }
    }

    /// Registers memory of the caller's own.
    ///
    /// # Errors
    /// UCX can't register it.
    pub(super) fn register(&self, memory: RawMemory) -> Result<Registered, DeviceError> {
        let start = memory.start().as_ptr();
        let length = memory.len();
        // SAFETY: the caller has the worker. The memory stays allocated as long as the registration
        // lives, by the promise of `RawMemory::new`.
        match unsafe { self.context.register(start, length) } {
            Ok(registration) => Ok(memory.registered(Box::new(registration))),
            Err(status) => {
                let hint = "; is all of it there, and does `ulimit -l` allow to lock it?";
                let source = io::Error::other(self.ucp.status_text(status));
                Err(DeviceError::System { call: "ucp_mem_map", source, hint })
            }
        }
    }

    /// Unmaps memory whose registration has ended.
    pub(super) fn unmap_ended(&self) {
        self.context.unmap_ended();
    }

    /// The parameters of an operation, but for its callback.
    #[inline]
    fn param(
        &self,
        buffer: &Buffer,
        context: &UcxContext,
        flags: sys::ucp_op_attr_t,
    ) -> sys::ucp_request_param_t {
        let mut param = sys::ucp_request_param_t::zeroed();
        param.op_attr_mask = sys::UCP_OP_ATTR_FIELD_CALLBACK
            | sys::UCP_OP_ATTR_FIELD_USER_DATA
            | sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE
            | flags;
        param.user_data = context.user_data();
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        let registration = buffer.lent_memory().and_then(<dyn Any>::downcast_ref::<Registration>);
        if let Some(handle) = registration.and_then(|memory| memory.handle_in(&self.context)) {
            param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMH;
            param.memh = handle;
        }
        param
    }

    /// Begins the send of an operation.
    #[inline]
    pub(super) fn send(
        &self,
        endpoint: PeerEndpoint,
        tag: u64,
        operation: &UcxOperation,
        context: &UcxContext,
    ) -> sys::Started {
        // A synchronous send is copied, or a rendezvous: UCX 1.13 ends the process (`ucs_fatal`) if
        // the peer of a zero-copy synchronous send dies between two fragments.
        let (send, flags) = if operation.is_synchronous {
            (self.ucp.ucp_tag_send_sync_nbx, sys::UCP_OP_ATTR_FLAG_FAST_CMPL)
        } else {
            (self.ucp.ucp_tag_send_nbx, 0)
        };
        let mut param = self.param(&operation.buffer, context, flags);
        param.cb.send = Some(sent);
        let start = operation.buffer.as_ptr().cast();
        let length = operation.buffer.len();
        // SAFETY: an endpoint; fields as the mask says; the operation keeps the bytes until its
        // end.
        let started = unsafe { send(endpoint.0, start, length, tag, &raw const param) };
        self.started_in(started, context)
    }

    /// Sends a copy of the bytes at once, or refuses.
    pub(super) fn inject(&self, endpoint: PeerEndpoint, tag: u64, bytes: &[u8]) -> bool {
        let mut param = sys::ucp_request_param_t::zeroed();
        param.op_attr_mask =
            sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE | sys::UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
        param.memory_type = sys::UCS_MEMORY_TYPE_HOST;
        // SAFETY: an endpoint; fields as the mask says; the bytes live through the call, and with
        // this flag UCX keeps nothing of them.
        let started = unsafe {
            let send = self.ucp.ucp_tag_send_nbx;
            send(endpoint.0, bytes.as_ptr().cast(), bytes.len(), tag, &raw const param)
        };
        sys::Started::of(started) == sys::Started::Complete
    }

    #[inline]
    fn receive_param(&self, buffer: &Buffer, context: &UcxContext) -> sys::ucp_request_param_t {
        // A receive always ends by callback: UCX 1.13 doesn't set the envelope of a receive that is
        // complete at once.
        let mut param = self.param(buffer, context, sys::UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        param.cb.recv = Some(received);
        param
    }

    /// Posts the receive of an operation.
    #[inline]
    pub(super) fn receive(
        &self,
        operation: &UcxOperation,
        context: &UcxContext,
        (tag, mask): (u64, u64),
    ) -> sys::Started {
        let param = self.receive_param(&operation.buffer, context);
        let (start, length) = place_of(&operation.buffer);
        // SAFETY: a worker; fields as the mask says; the operation keeps its buffer until its end.
        let started = unsafe {
            let receive = self.ucp.ucp_tag_recv_nbx;
            receive(self.worker, start, length, tag, mask, &raw const param)
        };
        self.started_in(started, context)
    }

    /// Receives a message that a probe took. UCX frees the message.
    pub(super) fn receive_taken(
        &self,
        operation: &UcxOperation,
        context: &UcxContext,
        message: sys::ucp_tag_message_h,
    ) -> sys::Started {
        let param = self.receive_param(&operation.buffer, context);
        let (start, length) = place_of(&operation.buffer);
        // SAFETY: a worker; fields as the mask says; a message that a probe took and that wasn't
        // received; the operation keeps its buffer until its end.
        let started = unsafe {
            let receive = self.ucp.ucp_tag_msg_recv_nbx;
            receive(self.worker, start, length, message, &raw const param)
        };
        self.started_in(started, context)
    }

    /// The oldest unexpected message that matches. If it is taken, no other probe or receive finds
    /// it.
    #[inline]
    pub(super) fn probe(&self, (tag, mask): (u64, u64), takes: bool) -> Option<Found> {
        let mut info = sys::ucp_tag_recv_info_t::zeroed();
        // SAFETY: a worker, and a place for the facts, which are set if there is a message.
        let message = unsafe {
            let probe = self.ucp.ucp_tag_probe_nb;
            probe(self.worker, tag, mask, takes.into(), &raw mut info)
        };
        let found = Found { message, is_taken: takes, tag: info.sender_tag, length: info.length };
        (!message.is_null()).then_some(found)
    }

    /// Asks to cancel a receive. Its end tells the outcome; a receive that has matched goes on.
    pub(super) fn cancel(&self, operation: &mut UcxOperation, context: &UcxContext, by: Canceller) {
        let request = context.request.get();
        if context.has_ended.get() || request.is_null() {
            return;
        }
        operation.canceller = by;
        // SAFETY: the request of a receive that wasn't freed.
        unsafe { (self.ucp.ucp_request_cancel)(self.worker, request) };
        // The receive has matched, so its end will not be due to this cancel, unless a NIC holds it
        // and still gives it up.
        if !context.has_ended.get() && self.handles_errors {
            operation.canceller = Canceller::Nobody;
        }
    }

    /// UCX's description of its transports, one a line.
    pub(super) fn context_text(&self) -> String {
        // SAFETY: a context, and a stream that lives through the call.
        text(|stream| unsafe { (self.ucp.ucp_context_print_info)(self.context.raw(), stream) })
    }

    /// UCX's description of an endpoint: its transports (`lane`) and protocols.
    pub(super) fn endpoint_text(&self, endpoint: PeerEndpoint) -> String {
        // SAFETY: an endpoint, and a stream that lives through the call.
        text(|stream| unsafe { (self.ucp.ucp_ep_print_info)(endpoint.0, stream) })
    }

    /// Whether this process made the worker, rather than a parent that has forked.
    pub(super) fn is_own_process(&self) -> bool {
        self.context.is_own_process()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.is_own_process() {
            return;
        }
        if !self.worker.is_null() {
            // SAFETY: the worker was made, and nobody has it any more.
            unsafe { (self.ucp.ucp_worker_destroy)(self.worker) };
        }
        self.context.worker_is_gone();
    }
}

/// The first byte and the length of a buffer that UCX writes to.
#[inline]
fn place_of(buffer: &Buffer) -> (*mut c_void, usize) {
    (buffer.as_ptr().cast_mut().cast(), buffer.len())
}

/// The text that a function writes into a stream.
fn text(write: impl Fn(*mut libc::FILE)) -> String {
    let mut start = ptr::null_mut();
    let mut length = 0;
    // SAFETY: the stream's places live until it is closed; then they name memory of `length` bytes,
    // which is copied and freed.
    unsafe {
        let stream = libc::open_memstream(&raw mut start, &raw mut length);
        if stream.is_null() {
            return String::new();
        }
        write(stream);
        libc::fclose(stream);
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), length).to_vec();
        libc::free(start.cast());
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
