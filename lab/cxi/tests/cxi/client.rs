//! A plain client of libfabric, which loads the library at run time and finds the provider in it.

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::Libfabric;

/// The longest time that a test waits for something. Much more than it takes.
const LIMIT: Duration = Duration::from_secs(30);

/// A count, or libfabric's positive error number.
pub(crate) type Code = Result<usize, i32>;

fn code(answer: impl TryInto<i64>) -> Code {
    let answer = answer.try_into().ok().expect("an answer of 64 bits");
    usize::try_from(answer).map_err(|_| i32::try_from(-answer).expect("an error number"))
}

/// Calls a function of a table.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let table = $table;
        // SAFETY: the tables live as long as the process, and have the function. The arguments are
        // objects that libfabric has given, and memory that is never freed.
        code(unsafe { ((*table).$function.expect("a function"))($($argument),*) })
    }};
}

/// libfabric, which is loaded once. Without it, that is said.
pub(crate) fn installed() -> Option<&'static Libfabric> {
    static LIBRARY: OnceLock<Option<Libfabric>> = OnceLock::new();
    let load = || match Libfabric::from_environment() {
        Ok(libfabric) => Some(libfabric),
        Err(error) => {
            println!("SKIPPED: {error}");
            None
        }
    };
    LIBRARY.get_or_init(load).as_ref()
}

fn libfabric() -> &'static Libfabric {
    installed().expect("the test's first process has found it")
}

/// The hints of a client to fi_getinfo(3).
#[derive(Clone)]
pub(crate) struct Hints {
    pub(crate) caps: u64,
    pub(crate) domain: sys::fi_domain_attr,
    pub(crate) endpoint: sys::fi_ep_attr,
    pub(crate) transmit: sys::fi_tx_attr,
    pub(crate) receive: sys::fi_rx_attr,
    pub(crate) wait: sys::fi_wait_obj,
    pub(crate) bind_flags: u64,
    /// The mode that fi_control(3) sets.
    pub(crate) mode: Option<&'static CStr>,
}

impl Default for Hints {
    fn default() -> Self {
        Hints {
            caps: sys::FI_TAGGED | sys::FI_DIRECTED_RECV | sys::FI_SOURCE,
            domain: sys::fi_domain_attr {
                mr_mode: sys::FI_MR_ENDPOINT | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY,
                ..sys::fi_domain_attr::zeroed()
            },
            endpoint: sys::fi_ep_attr::zeroed(),
            transmit: sys::fi_tx_attr { msg_order: sys::FI_ORDER_SAS, ..sys::fi_tx_attr::zeroed() },
            receive: sys::fi_rx_attr { msg_order: sys::FI_ORDER_SAS, ..sys::fi_rx_attr::zeroed() },
            wait: sys::FI_WAIT_NONE,
            bind_flags: sys::FI_TRANSMIT | sys::FI_RECV,
            mode: None,
        }
    }
}

/// What `fi_getinfo` gives for these hints and this provider. It is never freed.
pub(crate) fn info(hints: &Hints) -> Result<*mut sys::fi_info, i32> {
    let mut hints = hints.clone();
    let name = CString::new("cxi").expect("a name");
    let mut fabric = sys::fi_fabric_attr::zeroed();
    fabric.prov_name = name.as_ptr().cast_mut();
    let wanted = sys::fi_info {
        caps: hints.caps,
        tx_attr: &raw mut hints.transmit,
        rx_attr: &raw mut hints.receive,
        ep_attr: &raw mut hints.endpoint,
        domain_attr: &raw mut hints.domain,
        fabric_attr: &raw mut fabric,
        ..sys::fi_info::zeroed()
    };
    let mut found = ptr::null_mut();
    let none = ptr::null();
    let version = sys::FI_VERSION(1, 17);
    // SAFETY: all parts live through the call.
    let answer = unsafe {
        (libfabric().fi_getinfo)(version, none, none, 0, &raw const wanted, &raw mut found)
    };
    code(answer).map(|_| found)
}

/// A `fi_context2` that is never freed. An entry tells its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(pub(crate) *mut sys::fi_context2);

impl Context {
    pub(crate) fn new() -> Self {
        Context(Box::leak(Box::new(sys::fi_context2::zeroed())))
    }
}

/// Memory that is never freed, so no operation can outlive it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    start: *mut u8,
    length: usize,
}

impl Memory {
    /// So many bytes, each 0xee.
    pub(crate) fn new(length: usize) -> Self {
        Memory::of(&vec![0xee; length])
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let start = Box::leak(Box::<[u8]>::from(bytes)).as_mut_ptr();
        Memory { start, length: bytes.len() }
    }

    /// The same memory with another length, for calls that refuse it.
    pub(crate) fn claimed(self, length: usize) -> Self {
        Memory { length, ..self }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        // SAFETY: the memory lives for ever, and no operation is under way in it.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }.to_vec()
    }

    fn part(&self) -> libc::iovec {
        libc::iovec { iov_base: self.start.cast(), iov_len: self.length }
    }
}

/// What an entry of a completion queue tells. `error` is 0 for a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) context: Option<Context>,
    pub(crate) flags: u64,
    pub(crate) length: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) source: u64,
    pub(crate) error: i32,
    pub(crate) overflow: usize,
}

/// The messages that a receive matches.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) from: u64,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
}

/// Those of a source with a tag.
pub(crate) fn exactly(from: u64, tag: u64) -> Wanted {
    Wanted { from, tag, ignore: 0 }
}

/// A message for the calls with flags.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) parts: &'a [Memory],
    pub(crate) address: u64,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) data: u64,
    pub(crate) context: Context,
}

impl<'a> Message<'a> {
    pub(crate) fn new(parts: &'a [Memory], address: u64, tag: u64, context: Context) -> Self {
        Message { parts, address, tag, ignore: 0, data: 0, context }
    }
}

/// An endpoint with all objects that it needs.
pub(crate) struct Node {
    fabric: *mut sys::fid_fabric,
    domain: *mut sys::fid_domain,
    vector: *mut sys::fid_av,
    queue: *mut sys::fid_cq,
    endpoint: *mut sys::fid_ep,
}

impl Node {
    pub(crate) fn new() -> Self {
        Node::of(&Hints::default())
    }

    /// An endpoint that is enabled.
    pub(crate) fn of(hints: &Hints) -> Self {
        let node = Node::disabled(hints);
        control(node.endpoint.cast(), sys::FI_ENABLE, ptr::null_mut()).expect("it is enabled");
        node
    }

    pub(crate) fn disabled(hints: &Hints) -> Self {
        let info = info(hints).expect("the provider has what is asked for");
        let mut fabric = ptr::null_mut();
        let mut domain = ptr::null_mut();
        let context = ptr::null_mut::<c_void>();
        // SAFETY: fi_getinfo(3) gave all parts, and the place lives through the call.
        code(unsafe { (libfabric().fi_fabric)((*info).fabric_attr, &raw mut fabric, context) })
            .expect("a fabric");
        // SAFETY: libfabric gave the objects, here and below.
        let ops = unsafe { (*fabric).ops };
        call!(ops, domain(fabric, info, &raw mut domain, context)).expect("a domain");
        if let Some(mode) = hints.mode {
            set_mode(domain, mode).expect("the mode is set");
        }
        // SAFETY: as above.
        let ops = unsafe { (*domain).ops };
        let mut vector = ptr::null_mut();
        let mut attributes =
            sys::fi_av_attr { r#type: sys::FI_AV_TABLE, ..sys::fi_av_attr::zeroed() };
        call!(ops, av_open(domain, &raw mut attributes, &raw mut vector, context)).expect("an av");
        let mut queue = ptr::null_mut();
        let mut attributes = sys::fi_cq_attr {
            format: sys::FI_CQ_FORMAT_TAGGED,
            wait_obj: hints.wait,
            ..sys::fi_cq_attr::zeroed()
        };
        call!(ops, cq_open(domain, &raw mut attributes, &raw mut queue, context)).expect("a cq");
        let mut endpoint = ptr::null_mut();
        call!(ops, endpoint(domain, info, &raw mut endpoint, context)).expect("an endpoint");
        let node = Node { fabric, domain, vector, queue, endpoint };
        node.bind(vector.cast(), 0);
        node.bind(queue.cast(), hints.bind_flags);
        node
    }

    fn bind(&self, other: *mut sys::fid, flags: u64) {
        let head = self.endpoint.cast::<sys::fid>();
        // SAFETY: as above.
        call!(unsafe { (*head).ops }, bind(head, other, flags)).expect("it is bound");
    }

    pub(crate) fn set_mode(&self, mode: &CStr) -> Code {
        set_mode(self.domain, mode)
    }

    /// The mode that fi_control(3) tells.
    pub(crate) fn mode(&self) -> String {
        let mut room = [0u8; 32];
        control(self.domain.cast(), GET_MATCH_MODE, room.as_mut_ptr().cast()).expect("a mode");
        CStr::from_bytes_until_nul(&room).expect("a name").to_string_lossy().into_owned()
    }

    pub(crate) fn name(&self) -> Vec<u8> {
        let mut name = vec![0; 64];
        let mut length = 64;
        let to = name.as_mut_ptr().cast();
        // SAFETY: as above.
        let cm = unsafe { (*self.endpoint).cm };
        call!(cm, getname(self.endpoint.cast(), to, &raw mut length)).expect("a name");
        name.truncate(length);
        name
    }

    pub(crate) fn insert(&self, name: &[u8]) -> u64 {
        let mut address = 0;
        let context = ptr::null_mut();
        // SAFETY: as above.
        let ops = unsafe { (*self.vector).ops };
        let from = name.as_ptr().cast();
        call!(ops, insert(self.vector, from, 1, &raw mut address, 0, context)).expect("inserted");
        address
    }

    fn tagged(&self) -> *mut sys::fi_ops_tagged {
        // SAFETY: as above.
        unsafe { (*self.endpoint).tagged }
    }

    pub(crate) fn send(&self, from: Memory, to: u64, tag: u64, context: Context) -> Code {
        let Memory { start, length } = from;
        let start = start.cast_const().cast();
        let none = ptr::null_mut();
        let context = context.0.cast();
        call!(self.tagged(), send(self.endpoint, start, length, none, to, tag, context))
    }

    pub(crate) fn inject(&self, from: Memory, to: u64, tag: u64) -> Code {
        let start = from.start.cast_const().cast();
        call!(self.tagged(), inject(self.endpoint, start, from.length, to, tag))
    }

    pub(crate) fn sendmsg(&self, message: Message<'_>, flags: u64) -> Code {
        with(message, |message| call!(self.tagged(), sendmsg(self.endpoint, message, flags)))
    }

    pub(crate) fn recv(&self, into: Memory, wanted: Wanted, context: Context) -> Code {
        let Wanted { from, tag, ignore } = wanted;
        let Memory { start, length } = into;
        let start = start.cast();
        let none = ptr::null_mut();
        let context = context.0.cast();
        call!(self.tagged(), recv(self.endpoint, start, length, none, from, tag, ignore, context))
    }

    pub(crate) fn recvmsg(&self, message: Message<'_>, flags: u64) -> Code {
        with(message, |message| call!(self.tagged(), recvmsg(self.endpoint, message, flags)))
    }

    pub(crate) fn cancel(&self, context: Context) -> Code {
        // SAFETY: as above.
        let ops = unsafe { (*self.endpoint).ops };
        call!(ops, cancel(self.endpoint.cast(), context.0.cast()))
    }

    /// Reads an entry, a success or a failure. This is one round of progress.
    pub(crate) fn poll(&self) -> Option<Entry> {
        let mut entry = sys::fi_cq_tagged_entry::zeroed();
        let to = (&raw mut entry).cast();
        let mut source = 0x5555;
        // SAFETY: as above.
        let ops = unsafe { (*self.queue).ops };
        match call!(ops, readfrom(self.queue, to, 1, &raw mut source)) {
            Ok(1) => Some(Entry {
                context: context_of(entry.op_context),
                flags: entry.flags,
                length: entry.len,
                data: entry.data,
                tag: entry.tag,
                source,
                error: 0,
                overflow: 0,
            }),
            Err(sys::FI_EAGAIN) => None,
            Err(sys::FI_EAVAIL) => Some(self.failure()),
            other => panic!("fi_cq_readfrom: {other:?}"),
        }
    }

    fn failure(&self) -> Entry {
        let mut entry = sys::fi_cq_err_entry_2::zeroed();
        // SAFETY: as above.
        let ops = unsafe { (*self.queue).ops };
        call!(ops, readerr(self.queue, (&raw mut entry).cast(), 0)).expect("a failure");
        let error = entry.common;
        Entry {
            context: context_of(error.op_context),
            flags: error.flags,
            length: error.len,
            data: error.data,
            tag: error.tag,
            source: 0,
            error: error.err,
            overflow: error.olen,
        }
    }

    /// The next entry.
    pub(crate) fn entry(&self) -> Entry {
        within_limit("an entry", || self.poll())
    }

    /// The next entry, which tells of the operation with this context and this error number.
    pub(crate) fn expect(&self, context: Context, error: i32) -> Entry {
        let entry = self.entry();
        assert_eq!((entry.context, entry.error), (Some(context), error), "{entry:x?}");
        entry
    }

    /// So many rounds of progress, without an entry.
    pub(crate) fn expect_silence(&self, rounds: usize) {
        for _ in 0..rounds {
            assert_eq!(self.poll(), None);
        }
    }

    /// Whether fi_trywait(3) allows to sleep.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut objects = [self.queue.cast::<sys::fid>()];
        // SAFETY: as above.
        let ops = unsafe { (*self.fabric).ops };
        call!(ops, trywait(self.fabric, objects.as_mut_ptr(), 1)).is_ok()
    }

    /// Whether the queue's descriptor is readable within a time.
    pub(crate) fn is_woken(&self, limit_ms: i32) -> bool {
        let mut fd = -1;
        control(self.queue.cast(), sys::FI_GETWAIT, (&raw mut fd).cast()).expect("a descriptor");
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives through the call.
        unsafe { libc::poll(&raw mut poll, 1, limit_ms) == 1 }
    }

    /// Tries to close what other objects use.
    pub(crate) fn close_used(&self) -> [Code; 4] {
        [self.vector.cast(), self.queue.cast(), self.domain.cast(), self.fabric.cast()].map(close)
    }

    /// Closes all objects.
    pub(crate) fn close(self) {
        close(self.endpoint.cast()).expect("the endpoint closes");
        close(self.vector.cast()).expect("the vector closes");
        close(self.queue.cast()).expect("the queue closes");
        close(self.domain.cast()).expect("the domain closes");
        close(self.fabric.cast()).expect("the fabric closes");
    }
}

/// From `rdma/fi_cxi_ext.h`.
const SET_MATCH_MODE: i32 = -0x0ccc_0000 + 10;
const GET_MATCH_MODE: i32 = SET_MATCH_MODE + 1;

fn set_mode(domain: *mut sys::fid_domain, mode: &CStr) -> Code {
    control(domain.cast(), SET_MATCH_MODE, mode.as_ptr().cast_mut().cast())
}

fn control(object: *mut sys::fid, command: i32, argument: *mut c_void) -> Code {
    // SAFETY: libfabric gave the object.
    call!(unsafe { (*object).ops }, control(object, command, argument))
}

fn close(object: *mut sys::fid) -> Code {
    // SAFETY: libfabric gave the object.
    call!(unsafe { (*object).ops }, close(object))
}

fn context_of(context: *mut c_void) -> Option<Context> {
    (!context.is_null()).then_some(Context(context.cast()))
}

/// Calls with a message as a C structure, whose memory is gone when the call has returned.
fn with(message: Message<'_>, run: impl FnOnce(*const sys::fi_msg_tagged) -> Code) -> Code {
    let parts: Vec<_> = message.parts.iter().map(Memory::part).collect();
    let message = sys::fi_msg_tagged {
        msg_iov: parts.as_ptr(),
        desc: ptr::null_mut(),
        iov_count: parts.len(),
        addr: message.address,
        tag: message.tag,
        ignore: message.ignore,
        context: message.context.0.cast(),
        data: message.data,
    };
    run(&raw const message)
}

/// Looks again and again until something is found.
pub(crate) fn within_limit<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "there was not {what} for {LIMIT:?}");
        std::thread::yield_now();
    }
}
