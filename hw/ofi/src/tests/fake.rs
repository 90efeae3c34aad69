//! A provider's objects and functions, in front of a [`Nic`]. No libfabric is needed.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, OnceLock};

use tagmatch_ofi_sys as sys;

use super::super::objects::{Endpoint, Opening};
use super::super::rma::CAPS;
use super::nic::{Asked, Gone, Nic, of};

/// The objects of one endpoint, and their functions. The context of each names them all.
pub struct Objects {
    fabric: sys::fid_fabric,
    domain: sys::fid_domain,
    av: sys::fid_av,
    cq: sys::fid_cq,
    ep: sys::fid_ep,
    fid_ops: sys::fi_ops,
    fabric_ops: sys::fi_ops_fabric,
    domain_ops: sys::fi_ops_domain,
    av_ops: sys::fi_ops_av,
    cq_ops: sys::fi_ops_cq,
    ep_ops: sys::fi_ops_ep,
    cm: sys::fi_ops_cm,
    tagged: sys::fi_ops_tagged,
    mr: sys::fi_ops_mr,
    rma: sys::fi_ops_rma,
    pub nic: RefCell<Nic>,
}

thread_local! {
    /// The objects that `fi_fabric` gives next.
    static NEXT: RefCell<Option<NonNull<Objects>>> = const { RefCell::new(None) };
}

/// The addresses of all objects: with these, they are no leak to a sanitizer.
static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Opens an endpoint, with writes of peers or without. Its objects have to outlive it, and are
/// never freed.
pub fn open(writes: bool) -> (Endpoint, &'static Objects) {
    static LIBFABRIC: OnceLock<sys::Libfabric> = OnceLock::new();
    let libfabric = LIBFABRIC.get_or_init(|| {
        let mut libfabric = sys::Libfabric::without_providers();
        libfabric.fi_fabric = fabric;
        libfabric
    });
    let objects = NonNull::from(Box::leak(Box::new(Objects::new())));
    KEPT.lock().unwrap().push(objects.as_ptr().expose_provenance());
    // SAFETY: allocated just now; nobody else has it yet.
    unsafe { Objects::link(objects.as_ptr()) };
    NEXT.set(Some(objects));
    let mut tx = sys::fi_tx_attr::zeroed();
    let mut rx = sys::fi_rx_attr::zeroed();
    (tx.msg_order, rx.msg_order) = (sys::FI_ORDER_SAW, sys::FI_ORDER_SAW);
    let mut domain = sys::fi_domain_attr::zeroed();
    domain.mr_key_size = 8;
    let mut info = sys::fi_info::zeroed();
    info.caps = if writes { CAPS } else { 0 };
    (info.tx_attr, info.rx_attr) = (&raw mut tx, &raw mut rx);
    info.domain_attr = &raw mut domain;
    let info = NonNull::from(&mut info);
    let endpoint = Endpoint::open(libfabric, &Opening { info, cxi_mode: None, has_side: false });
    // SAFETY: never freed, and from now on only its `nic` is changed.
    (endpoint.unwrap(), unsafe { objects.as_ref() })
}

impl Objects {
    fn new() -> Self {
        Objects {
            fabric: sys::fid_fabric::zeroed(),
            domain: sys::fid_domain::zeroed(),
            av: sys::fid_av::zeroed(),
            cq: sys::fid_cq::zeroed(),
            ep: sys::fid_ep::zeroed(),
            fid_ops: sys::fi_ops {
                close: Some(close),
                bind: Some(bind),
                control: Some(control),
                ..sys::fi_ops::zeroed()
            },
            fabric_ops: sys::fi_ops_fabric { domain: Some(domain), ..sys::fi_ops_fabric::zeroed() },
            domain_ops: sys::fi_ops_domain {
                av_open: Some(av_open),
                cq_open: Some(cq_open),
                endpoint: Some(endpoint),
                ..sys::fi_ops_domain::zeroed()
            },
            av_ops: sys::fi_ops_av { insert: Some(insert), ..sys::fi_ops_av::zeroed() },
            cq_ops: sys::fi_ops_cq {
                read: Some(read),
                readerr: Some(readerr),
                ..sys::fi_ops_cq::zeroed()
            },
            ep_ops: sys::fi_ops_ep { cancel: Some(cancel), ..sys::fi_ops_ep::zeroed() },
            cm: sys::fi_ops_cm { getname: Some(getname), ..sys::fi_ops_cm::zeroed() },
            tagged: sys::fi_ops_tagged {
                recv: Some(recv),
                recvmsg: Some(recvmsg),
                senddata: Some(senddata),
                sendmsg: Some(sendmsg),
                injectdata: Some(injectdata),
                ..sys::fi_ops_tagged::zeroed()
            },
            mr: sys::fi_ops_mr { reg: Some(reg), ..sys::fi_ops_mr::zeroed() },
            rma: sys::fi_ops_rma { write: Some(write), ..sys::fi_ops_rma::zeroed() },
            nic: RefCell::default(),
        }
    }

    /// # Safety
    /// Nobody else has it.
    unsafe fn link(all: *mut Objects) {
        // SAFETY: by the caller.
        unsafe {
            let all = &mut *all;
            let context = (&raw mut *all).cast();
            let ops = &raw mut all.fid_ops;
            let fids = [&mut all.fabric.fid, &mut all.domain.fid, &mut all.av.fid];
            for fid in fids.into_iter().chain([&mut all.cq.fid, &mut all.ep.fid]) {
                (fid.context, fid.ops) = (context, ops);
            }
            all.fabric.ops = &raw mut all.fabric_ops;
            all.domain.ops = &raw mut all.domain_ops;
            all.av.ops = &raw mut all.av_ops;
            all.cq.ops = &raw mut all.cq_ops;
            (all.ep.ops, all.ep.cm) = (&raw mut all.ep_ops, &raw mut all.cm);
            all.ep.tagged = &raw mut all.tagged;
            (all.domain.mr, all.ep.rma) = (&raw mut all.mr, &raw mut all.rma);
        }
    }
}

/// The objects that one of them belongs to.
///
/// # Safety
/// An object of [`Objects`].
unsafe fn all<T>(object: *mut T) -> *mut Objects {
    // SAFETY: by the caller; each begins with a `fid`, whose context `Objects::link` has set.
    unsafe { (*object.cast::<sys::fid>()).context.cast() }
}

/// The same, for what is asked of the endpoint.
///
/// # Safety
/// An object of [`Objects`].
unsafe fn nic<T, R>(object: *mut T, act: impl FnOnce(&mut Nic) -> R) -> R {
    // SAFETY: by the caller; never freed.
    act(&mut unsafe { &(*all(object)).nic }.borrow_mut())
}

unsafe extern "C" fn fabric(
    _: *mut sys::fi_fabric_attr,
    place: *mut *mut sys::fid_fabric,
    _: *mut c_void,
) -> c_int {
    let objects = NEXT.take().expect("opened by `open`");
    // SAFETY: by libfabric's contract, as in all functions here: a place for the object.
    unsafe { *place = &raw mut (*objects.as_ptr()).fabric };
    0
}

unsafe extern "C" fn domain(
    fabric: *mut sys::fid_fabric,
    _: *mut sys::fi_info,
    place: *mut *mut sys::fid_domain,
    _: *mut c_void,
) -> c_int {
    // SAFETY: as in `fabric`.
    unsafe { *place = &raw mut (*all(fabric)).domain };
    0
}

unsafe extern "C" fn av_open(
    domain: *mut sys::fid_domain,
    _: *mut sys::fi_av_attr,
    place: *mut *mut sys::fid_av,
    _: *mut c_void,
) -> c_int {
    // SAFETY: as in `fabric`.
    unsafe { *place = &raw mut (*all(domain)).av };
    0
}

unsafe extern "C" fn cq_open(
    domain: *mut sys::fid_domain,
    _: *mut sys::fi_cq_attr,
    place: *mut *mut sys::fid_cq,
    _: *mut c_void,
) -> c_int {
    // SAFETY: as in `fabric`.
    unsafe { *place = &raw mut (*all(domain)).cq };
    0
}

unsafe extern "C" fn endpoint(
    domain: *mut sys::fid_domain,
    _: *mut sys::fi_info,
    place: *mut *mut sys::fid_ep,
    _: *mut c_void,
) -> c_int {
    // SAFETY: as in `fabric`.
    unsafe { *place = &raw mut (*all(domain)).ep };
    0
}

unsafe extern "C" fn close(_: *mut sys::fid) -> c_int {
    0
}

unsafe extern "C" fn reg(
    domain: *mut sys::fid,
    start: *const c_void,
    length: usize,
    access: u64,
    offset: u64,
    key: u64,
    _: u64,
    place: *mut *mut sys::fid_mr,
    _: *mut c_void,
) -> c_int {
    assert_eq!((access, offset), (sys::FI_REMOTE_WRITE, 0));
    let mut mr = Box::new(sys::fid_mr::zeroed());
    // SAFETY: as in `fabric`; a registration has functions of its own.
    unsafe {
        (mr.key, mr.fid) = (key, *domain);
        mr.fid.ops =
            Box::leak(Box::new(sys::fi_ops { close: Some(close_mr), ..sys::fi_ops::zeroed() }));
        nic(domain, |nic| nic.registered.push((key, start.cast_mut().cast(), length)));
        *place = Box::into_raw(mr);
    }
    0
}

unsafe extern "C" fn close_mr(mr: *mut sys::fid) -> c_int {
    // SAFETY: made by `reg`, closed once.
    unsafe {
        let key = (*mr.cast::<sys::fid_mr>()).key;
        nic(mr, |nic| nic.registered.retain(|known| known.0 != key));
        drop(Box::from_raw((*mr).ops));
        drop(Box::from_raw(mr.cast::<sys::fid_mr>()));
    }
    0
}

/// The address is in the place of the data, the key in that of the tag.
unsafe extern "C" fn write(
    ep: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    none: *mut c_void,
    to: sys::fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `senddata`.
    unsafe { senddata(ep, start, length, none, address, to, key, context) }
}

unsafe extern "C" fn bind(_: *mut sys::fid, _: *mut sys::fid, _: u64) -> c_int {
    0
}

/// Enables the endpoint; the queue has no descriptor.
unsafe extern "C" fn control(_: *mut sys::fid, command: c_int, _: *mut c_void) -> c_int {
    if command == sys::FI_ENABLE { 0 } else { -sys::FI_ENOSYS }
}

unsafe extern "C" fn getname(_: *mut sys::fid, name: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: as in `fabric`; there is room for a name.
    unsafe {
        name.cast::<[u8; 4]>().write(*b"fake");
        *length = 4;
    }
    0
}

unsafe extern "C" fn insert(
    _: *mut sys::fid_av,
    _: *const c_void,
    _: usize,
    address: *mut sys::fi_addr_t,
    _: u64,
    _: *mut c_void,
) -> c_int {
    // SAFETY: as in `fabric`.
    unsafe { *address = 0 };
    1
}

/// One at a time, in order.
unsafe extern "C" fn read(cq: *mut sys::fid_cq, place: *mut c_void, _: usize) -> isize {
    // SAFETY: as in `fabric`; room for at least one entry.
    unsafe {
        nic(cq, |nic| match nic.ended.front() {
            None => -(sys::FI_EAGAIN as isize),
            Some(entry) if entry.err != 0 => -(sys::FI_EAVAIL as isize),
            Some(_) => {
                let Some(entry) = nic.ended.pop_front() else { return 0 };
                place.cast::<sys::fi_cq_tagged_entry>().write(sys::fi_cq_tagged_entry {
                    op_context: entry.op_context,
                    flags: 0,
                    len: entry.len,
                    buf: null_mut(),
                    data: entry.data,
                    tag: entry.tag,
                });
                1
            }
        })
    }
}

unsafe extern "C" fn readerr(
    cq: *mut sys::fid_cq,
    place: *mut sys::fi_cq_err_entry,
    _: u64,
) -> isize {
    // SAFETY: as in `fabric`.
    unsafe {
        if let Some(entry) = nic(cq, |nic| nic.ended.pop_front()) {
            place.write(entry);
        }
    }
    1
}

unsafe extern "C" fn cancel(ep: *mut sys::fid, context: *mut c_void) -> isize {
    let end = |nic: &mut Nic| {
        let place = nic.receives.iter().position(|asked| asked.context == context);
        if let Some(place) = place.filter(|_| !nic.keeps_cancelled) {
            nic.receives.remove(place);
            nic.end(sys::fi_cq_err_entry { err: sys::FI_ECANCELED, ..of(context) });
        }
        0
    };
    // SAFETY: as in `fabric`.
    unsafe { nic(ep, end) }
}

unsafe extern "C" fn recv(
    ep: *mut sys::fid_ep,
    start: *mut c_void,
    length: usize,
    _: *mut c_void,
    from: sys::fi_addr_t,
    tag: u64,
    ignored: u64,
    context: *mut c_void,
) -> isize {
    let memory = (start.cast(), length);
    // SAFETY: as in `fabric`.
    unsafe { nic(ep, |nic| nic.receive(Asked { context, memory, from, tag, ignored, flags: 0 })) }
}

unsafe extern "C" fn recvmsg(
    ep: *mut sys::fid_ep,
    message: *const sys::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: as in `fabric`; a message with one buffer, or none.
    unsafe {
        let message = *message;
        let memory = match message.msg_iov.as_ref() {
            Some(iov) => (iov.iov_base.cast(), iov.iov_len),
            None => (null_mut(), 0),
        };
        let context = message.context;
        let from = message.addr;
        let tag = message.tag;
        let ignored = message.ignore;
        nic(ep, |nic| nic.receive(Asked { context, memory, from, tag, ignored, flags }))
    }
}

unsafe extern "C" fn senddata(
    ep: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    to: sys::fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `fabric`; so many bytes.
    unsafe {
        let bytes = std::slice::from_raw_parts(start.cast(), length).to_vec();
        nic(ep, |nic| {
            nic.send(Gone { context, to, tag, data, bytes, start: start.cast(), flags: 0 })
        })
    }
}

unsafe extern "C" fn sendmsg(
    ep: *mut sys::fid_ep,
    message: *const sys::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: as in `fabric`; a message with one buffer.
    unsafe {
        let iov = *(*message).msg_iov;
        let message = *message;
        let bytes = std::slice::from_raw_parts(iov.iov_base.cast(), iov.iov_len).to_vec();
        let context = message.context;
        let to = message.addr;
        let tag = message.tag;
        let data = message.data;
        nic(ep, |nic| {
            nic.send(Gone { context, to, tag, data, bytes, start: iov.iov_base.cast(), flags })
        })
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut sys::fid_ep,
    start: *const c_void,
    length: usize,
    data: u64,
    to: sys::fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: as in `senddata`; nothing ends.
    unsafe { senddata(ep, start, length, null_mut(), data, to, tag, null_mut()) }
}
