//! A provider's objects: fabric, domain, address vector, completion queue and endpoints. They are
//! opened, and closed again.

use std::collections::HashSet;
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::{fmt, io};

use tagmatch_device::DeviceError;
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::signals::Signals;
use tagmatch_os::process::Pid;

use super::rma::Registering;

/// Room for the name of an endpoint. The longest that is known has 256 bytes (`lnx`).
pub(super) const NAME_MAX: usize = 512;
/// The call that a `cxi` before 2.4 refuses.
pub(super) const MATCH_MODE: &str = "fi_control(FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE)";

/// The endpoints of a provider, and the objects that they need. Dropping it closes them, and ends
/// all operations without a word, so their memory has to outlive it.
pub(super) struct Endpoint {
    pub(super) libfabric: &'static sys::Libfabric,
    pub(super) fabric: *mut sys::fid_fabric,
    pub(super) domain: *mut sys::fid_domain,
    pub(super) av: *mut sys::fid_av,
    pub(super) cq: *mut sys::fid_cq,
    /// For messages; and for this device's own packets, where these would be stuck behind messages.
    pub(super) eps: [*mut sys::fid_ep; 2],
    pub(super) tagged: sys::fi_ops_tagged,
    pub(super) read: ReadCall,
    /// How memory is registered for writes of peers, if it can be.
    pub(super) registering: Option<Registering>,
    pub(super) registered: HashSet<NonNull<sys::fid_mr>>,
    pub(super) names: [Vec<u8>; 2],
    pub(super) is_text: bool,
    pub(super) wakeup: Option<RawFd>,
    pub(super) made_by: Pid,
}

// SAFETY: `FI_THREAD_DOMAIN` allows one caller at a time, from whatever thread, and nobody else has
// these objects.
unsafe impl Send for Endpoint {}

/// A mode of matching of `cxi` that doesn't end the process where the NIC has no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchMode {
    Software,
    /// The NIC, and software where the NIC has no room.
    Hybrid,
}

impl MatchMode {
    /// As the provider spells it.
    pub(super) fn name(self) -> &'static CStr {
        match self {
            MatchMode::Software => c"software",
            MatchMode::Hybrid => c"hybrid",
        }
    }
}

impl fmt::Display for MatchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_string_lossy())
    }
}

/// The arguments of [`Endpoint::open`].
pub(super) struct Opening {
    /// An element of a list of libfabric's.
    pub(super) info: NonNull<sys::fi_info>,
    /// The mode of matching to ask of `cxi`, by `fi_control(3)` before there is an endpoint.
    pub(super) cxi_mode: Option<MatchMode>,
    /// Whether this device's own packets need an endpoint of their own.
    pub(super) has_side: bool,
}

/// The function of a queue that every poll calls.
pub(super) type ReadCall = unsafe extern "C" fn(*mut sys::fid_cq, *mut c_void, usize) -> isize;

/// A function of a table, which a provider fills.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),*)) => {
        match (*$table).$function {
            Some(function) => function($($argument),*),
            None => -sys::FI_ENOSYS as _,
        }
    };
}
pub(super) use call;

impl Endpoint {
    /// Opens the objects.
    ///
    /// The signal handlers of this process stay as they are: `shm` has its own.
    pub(super) fn open(
        libfabric: &'static sys::Libfabric,
        opening: &Opening,
    ) -> Result<Self, DeviceError> {
        let signals = Signals::now();
        let opened = Self::open_objects(libfabric, opening);
        signals.restore();
        opened
    }

    fn open_objects(
        libfabric: &'static sys::Libfabric,
        opening: &Opening,
    ) -> Result<Self, DeviceError> {
        let info = opening.info.as_ptr();
        let check = |call, answer: c_int| failed(libfabric, call, answer);
        let mut objects = Endpoint {
            libfabric,
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            av: ptr::null_mut(),
            cq: ptr::null_mut(),
            eps: [ptr::null_mut(); 2],
            tagged: sys::fi_ops_tagged::zeroed(),
            read: no_read,
            registering: None,
            registered: HashSet::new(),
            names: [Vec::new(), Vec::new()],
            is_text: false,
            wakeup: None,
            made_by: Pid::own(),
        };
        // SAFETY: a description that libfabric has made, with all its parts; each call gets a place
        // for its object, and a later call gets objects that earlier ones have made.
        unsafe {
            let this = &mut objects;
            let null = ptr::null_mut();
            let answer = (libfabric.fi_fabric)((*info).fabric_attr, &raw mut this.fabric, null);
            check("fi_fabric", answer)?;
            let fabric = this.fabric;
            let answer = call!((*fabric).ops, domain(fabric, info, &raw mut this.domain, null));
            check("fi_domain", answer)?;
            let domain = this.domain;
            if let Some(mode) = opening.cxi_mode {
                let command = sys::FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE;
                let fid = &raw mut (*domain).fid;
                let name = mode.name().as_ptr().cast_mut().cast();
                let answer = call!((*fid).ops, control(fid, command, name));
                check(MATCH_MODE, answer)?;
            }
            let mut attributes = sys::fi_av_attr::zeroed();
            attributes.r#type = sys::FI_AV_TABLE;
            let ops = (*domain).ops;
            let answer = call!(ops, av_open(domain, &raw mut attributes, &raw mut this.av, null));
            check("fi_av_open", answer)?;
            this.open_queue()?;
            for lane in 0..1 + usize::from(opening.has_side) {
                this.open_lane(info, lane)?;
            }
            this.tagged = *(*this.eps[0]).tagged;
            this.registering = Registering::of(info, this.eps[0]);
            this.is_text = (*info).addr_format == sys::FI_ADDR_STR;
        }
        Ok(objects)
    }

    /// Opens an endpoint.
    ///
    /// # Safety
    /// A description that libfabric has made; all but endpoints is open.
    unsafe fn open_lane(
        &mut self,
        info: *mut sys::fi_info,
        lane: usize,
    ) -> Result<(), DeviceError> {
        let libfabric = self.libfabric;
        let check = |call, answer: c_int| failed(libfabric, call, answer);
        let null = ptr::null_mut();
        // SAFETY: by the caller; a place for the object, and for its name.
        unsafe {
            let place = &raw mut self.eps[lane];
            let answer = call!((*self.domain).ops, endpoint(self.domain, info, place, null));
            check("fi_endpoint", answer)?;
            let ep = &raw mut (*self.eps[lane]).fid;
            check("fi_ep_bind", call!((*ep).ops, bind(ep, &raw mut (*self.av).fid, 0)))?;
            let flags = sys::FI_TRANSMIT | sys::FI_RECV;
            check("fi_ep_bind", call!((*ep).ops, bind(ep, &raw mut (*self.cq).fid, flags)))?;
            check("fi_enable", call!((*ep).ops, control(ep, sys::FI_ENABLE, null)))?;
            let mut name = vec![0u8; NAME_MAX];
            let mut length = NAME_MAX;
            let cm = (*self.eps[lane]).cm;
            let answer = call!(cm, getname(ep, name.as_mut_ptr().cast(), &raw mut length));
            check("fi_getname", answer)?;
            name.truncate(length);
            self.names[lane] = name;
        }
        Ok(())
    }

    /// Opens the queue, with a descriptor if the provider has one.
    ///
    /// # Safety
    /// The domain is open.
    unsafe fn open_queue(&mut self) -> Result<(), DeviceError> {
        let mut attributes = sys::fi_cq_attr::zeroed();
        attributes.format = sys::FI_CQ_FORMAT_TAGGED;
        // SAFETY: by the caller; each call gets a place for its result.
        unsafe {
            let ops = (*self.domain).ops;
            for wait in [sys::FI_WAIT_FD, sys::FI_WAIT_NONE] {
                attributes.wait_obj = wait;
                let cq = &raw mut self.cq;
                let null = ptr::null_mut();
                let answer = call!(ops, cq_open(self.domain, &raw mut attributes, cq, null));
                if answer == 0 {
                    if let Some(read) = (*(*self.cq).ops).read {
                        self.read = read;
                    }
                    let mut descriptor: c_int = -1;
                    let fid = &raw mut (*self.cq).fid;
                    let argument = (&raw mut descriptor).cast();
                    let is_there = wait == sys::FI_WAIT_FD
                        && call!((*fid).ops, control(fid, sys::FI_GETWAIT, argument)) == 0;
                    self.wakeup = is_there.then_some(descriptor).filter(|fd| *fd >= 0);
                    return Ok(());
                }
                if wait == sys::FI_WAIT_NONE {
                    return failed(self.libfabric, "fi_cq_open", answer);
                }
            }
        }
        Ok(())
    }

    /// Whether this process made the objects, rather than a parent that has forked.
    pub(super) fn is_own_process(&self) -> bool {
        self.made_by == Pid::own()
    }

    /// Closes the endpoint, and then the rest. Returns whether libfabric has let go of all memory.
    pub(super) fn close(&mut self) -> bool {
        if !self.is_own_process() {
            return false;
        }
        // Those first that need others. Each begins with a `fid`.
        let [ep, side] = std::mem::replace(&mut self.eps, [ptr::null_mut(); 2]);
        let lanes: [*mut sys::fid; 2] = [ep.cast(), side.cast()];
        let registered = std::mem::take(&mut self.registered);
        let rest: [*mut sys::fid; 4] = [
            std::mem::replace(&mut self.av, ptr::null_mut()).cast(),
            std::mem::replace(&mut self.cq, ptr::null_mut()).cast(),
            std::mem::replace(&mut self.domain, ptr::null_mut()).cast(),
            std::mem::replace(&mut self.fabric, ptr::null_mut()).cast(),
        ];
        let registered = registered.into_iter().map(|mr| mr.as_ptr().cast());
        let objects = lanes.into_iter().chain(registered).chain(rest);
        // If one can't be closed, those that it needs aren't.
        objects.filter(|object| !object.is_null()).all(|object| self.close_one(object))
    }

    /// Closes one of the objects, which are all closed once. Returns whether it could be.
    pub(super) fn close_one(&self, object: *mut sys::fid) -> bool {
        // SAFETY: an open object of this endpoint, taken from its place just now.
        unsafe { call!((*object).ops, close(object)) == 0 }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

unsafe extern "C" fn no_read(_: *mut sys::fid_cq, _: *mut c_void, _: usize) -> isize {
    -(sys::FI_ENOSYS as isize)
}

/// A negative answer as an error of the device.
fn failed(
    libfabric: &sys::Libfabric,
    call: &'static str,
    answer: c_int,
) -> Result<(), DeviceError> {
    if answer >= 0 {
        return Ok(());
    }
    let source = io::Error::other(libfabric.error_text(answer));
    let hint = "; FI_LOG_LEVEL=warn says more";
    Err(DeviceError::System { call, source, hint })
}
