//! Fabrics and domains: from `fi_getinfo` to the objects of a domain.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use super::{Code, Counter, Endpoint, Queue, QueueSettings, Vector, call, code, sys};

/// What a program asks for.
#[derive(Clone, Copy)]
pub(crate) struct Hints {
    pub(crate) version: u32,
    pub(crate) caps: u64,
    /// The flags of sends that are given none.
    pub(crate) send_flags: u64,
    /// The flags of receives that are given none.
    pub(crate) receive_flags: u64,
    pub(crate) av_type: sys::fi_av_type,
    pub(crate) threading: sys::fi_threading,
    /// Who makes progress.
    pub(crate) progress: sys::fi_progress,
    /// The ways in which the program can register memory.
    pub(crate) mr_mode: c_int,
}

impl Default for Hints {
    fn default() -> Self {
        Hints {
            version: sys::FI_VERSION(1, 20),
            caps: sys::FI_TAGGED
                | sys::FI_MSG
                | sys::FI_MULTI_RECV
                | sys::FI_DIRECTED_RECV
                | sys::FI_SOURCE,
            send_flags: 0,
            receive_flags: 0,
            av_type: sys::FI_AV_TABLE,
            threading: sys::FI_THREAD_SAFE,
            progress: sys::FI_PROGRESS_MANUAL,
            mr_mode: 0,
        }
    }
}

/// A domain, with a fabric of its own.
#[derive(Clone, Copy)]
pub(crate) struct Domain {
    pub(crate) fabric: *mut sys::fid_fabric,
    pub(crate) domain: *mut sys::fid_domain,
    /// What `fi_getinfo` gave. It is never freed.
    pub(crate) info: *mut sys::fi_info,
}

// SAFETY: a domain may be used by several threads (`FI_THREAD_SAFE`).
unsafe impl Send for Domain {}
// SAFETY: as for `Send`.
unsafe impl Sync for Domain {}

/// What the provider offers for these hints.
pub(crate) fn info(hints: &Hints) -> Result<*mut sys::fi_info, i32> {
    info_for(hints, None, 0)
}

/// What the provider offers for these hints, a node and flags.
pub(crate) fn info_for(
    hints: &Hints,
    node: Option<&CStr>,
    flags: u64,
) -> Result<*mut sys::fi_info, i32> {
    let mut sends = sys::fi_tx_attr { op_flags: hints.send_flags, ..sys::fi_tx_attr::zeroed() };
    let mut receives =
        sys::fi_rx_attr { op_flags: hints.receive_flags, ..sys::fi_rx_attr::zeroed() };
    let mut endpoint = sys::fi_ep_attr { r#type: sys::FI_EP_RDM, ..sys::fi_ep_attr::zeroed() };
    let mut domain = sys::fi_domain_attr {
        threading: hints.threading,
        data_progress: hints.progress,
        av_type: hints.av_type,
        mr_mode: hints.mr_mode,
        ..sys::fi_domain_attr::zeroed()
    };
    let wanted = sys::fi_info {
        caps: hints.caps,
        tx_attr: &raw mut sends,
        rx_attr: &raw mut receives,
        ep_attr: &raw mut endpoint,
        domain_attr: &raw mut domain,
        ..sys::fi_info::zeroed()
    };
    let mut found = ptr::null_mut();
    let node = node.map_or(ptr::null(), CStr::as_ptr);
    let service = ptr::null();
    code(call!(
        tagmatch_fi::fi_prov_ini(),
        getinfo(hints.version, node, service, flags, &raw const wanted, &raw mut found)
    ))?;
    Ok(found)
}

impl Domain {
    /// A domain for the usual hints.
    pub(crate) fn new() -> Self {
        Domain::of(&Hints::default())
    }

    /// A domain for these hints.
    pub(crate) fn of(hints: &Hints) -> Self {
        Domain::opened(info(hints).expect("the provider has what is asked for"))
    }

    /// A domain for what `fi_getinfo` gave, maybe changed.
    pub(crate) fn opened(info: *mut sys::fi_info) -> Self {
        let mut fabric = ptr::null_mut();
        let mut domain = ptr::null_mut();
        // SAFETY: `fi_getinfo` gave all parts.
        let attributes = unsafe { (*info).fabric_attr };
        code(call!(
            tagmatch_fi::fi_prov_ini(),
            fabric(attributes, &raw mut fabric, ptr::null_mut())
        ))
        .expect("a fabric opens");
        // SAFETY: `fi_fabric` gave the fabric.
        let functions = unsafe { (*fabric).ops };
        code(call!(functions, domain(fabric, info, &raw mut domain, ptr::null_mut())))
            .expect("a domain opens");
        Domain { fabric, domain, info }
    }

    pub(crate) fn functions(&self) -> *mut sys::fi_ops_domain {
        // SAFETY: the provider gave the domain.
        unsafe { (*self.domain).ops }
    }

    pub(crate) fn fabric_functions(&self) -> *mut sys::fi_ops_fabric {
        // SAFETY: the provider gave the fabric.
        unsafe { (*self.fabric).ops }
    }

    pub(crate) fn queue(&self, settings: QueueSettings) -> Queue {
        Queue::open(*self, settings).expect("a completion queue opens")
    }

    pub(crate) fn vector(&self, av_type: sys::fi_av_type) -> Vector {
        Vector::open(*self, av_type).expect("an address vector opens")
    }

    pub(crate) fn counter(&self) -> Counter {
        Counter::open(*self).expect("a counter opens")
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::open(*self).expect("an endpoint opens")
    }

    /// An event queue of the fabric.
    pub(crate) fn events(&self) -> *mut sys::fid_eq {
        self.events_of(sys::fi_eq_attr::zeroed()).expect("an event queue opens")
    }

    /// An event queue of the fabric with these attributes.
    pub(crate) fn events_of(&self, attributes: sys::fi_eq_attr) -> Result<*mut sys::fid_eq, i32> {
        let mut attributes = attributes;
        let functions = self.fabric_functions();
        let mut queue = ptr::null_mut();
        let from = &raw mut attributes;
        let to = &raw mut queue;
        code(call!(functions, eq_open(self.fabric, from, to, ptr::null_mut())))?;
        Ok(queue)
    }

    /// Closes the domain alone.
    pub(crate) fn close_domain(&self) -> Code {
        close(self.domain.cast())
    }

    /// Closes the fabric alone.
    pub(crate) fn close_fabric(&self) -> Code {
        close(self.fabric.cast())
    }

    /// Closes the domain and its fabric.
    pub(crate) fn close(&self) {
        self.close_domain().expect("a domain without objects closes");
        self.close_fabric().expect("a fabric without domains closes");
    }

    /// `fi_trywait` for these objects.
    pub(crate) fn trywait(&self, objects: &mut [*mut sys::fid]) -> Code {
        let count = i32::try_from(objects.len()).expect("few objects");
        code(call!(self.fabric_functions(), trywait(self.fabric, objects.as_mut_ptr(), count)))
    }
}

/// `fi_close`.
pub(crate) fn close(object: *mut sys::fid) -> Code {
    code(call!(head(object), close(object)))
}

/// `fi_ep_bind` and others.
pub(crate) fn bind(object: *mut sys::fid, other: *mut sys::fid, flags: u64) -> Code {
    code(call!(head(object), bind(object, other, flags)))
}

/// `fi_control`.
pub(crate) fn control<T>(object: *mut sys::fid, command: i32, argument: *mut T) -> Code {
    code(call!(head(object), control(object, command, argument.cast::<c_void>())))
}

fn head(object: *mut sys::fid) -> *mut sys::fi_ops {
    // SAFETY: the provider gave the object.
    unsafe { (*object).ops }
}
