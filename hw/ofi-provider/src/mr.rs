//! Memory regions: fi_mr(3). Messages need none, and only regions that peers may use mean anything.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result, enter, head};
use tagmatch_ofi_sys::stub::{Stub, closable};

use crate::cntr::CounterHandle;
use crate::handle::{EndpointHandle, Object, domain_of};
use crate::messages::Pieces;
use crate::parent::{Domain, RegionKeys};
use crate::policy::Provider;
use crate::remote::SharedRegion;

struct MemoryRegion<P: Provider> {
    domain: Arc<Domain<P>>,
    /// The key by which peers use it, if they may.
    shared: Option<u64>,
    is_closed: AtomicBool,
}

type RegionObject<P> = Object<sys::fid_mr, MemoryRegion<P>>;

/// The functions that register memory.
pub(crate) const fn functions<P: Provider>() -> &'static sys::fi_ops_mr {
    const {
        let is_there = !P::IS_TAGGED_ALONE;
        &sys::fi_ops_mr {
            size: size_of::<sys::fi_ops_mr>(),
            reg: if is_there { Some(register::<P>) } else { Stub::STUB },
            regv: if is_there { Some(register_several::<P>) } else { Stub::STUB },
            regattr: if is_there { Some(register_attributes::<P>) } else { Stub::STUB },
        }
    }
}

const fn head_functions<P: Provider>() -> &'static sys::fi_ops {
    const { &sys::fi_ops { bind: Some(bind::<P>), control: Some(control::<P>), ..closable(close::<P>) } }
}

/// Keys of regions that no peer uses, where the program chooses none.
static KEYS: AtomicU64 = AtomicU64::new(1);

const REMOTE: u64 = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

/// What a program asks for.
struct RegionWish {
    pieces: Pieces,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

/// # Safety
/// As fi_mr_reg(3) asks.
unsafe fn open<P: Provider>(
    domain: *mut sys::fid,
    region: *mut *mut sys::fid_mr,
    wish: &RegionWish,
) -> Result<()> {
    const MESSAGES: u64 = sys::FI_SEND | sys::FI_RECV;
    const ACCESS: u64 = MESSAGES | sys::FI_READ | sys::FI_WRITE | REMOTE;
    if region.is_null() || domain.is_null() || wish.access & !ACCESS != 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller gives an object.
    if unsafe { (*domain).fclass } != sys::FI_CLASS_DOMAIN {
        return Err(Errno::INVALID);
    }
    // SAFETY: it is a domain.
    let domain = unsafe { domain_of::<P>(domain.cast())? };
    let shared = match &domain.keys {
        // SAFETY: the caller's promise.
        Some(keys) if wish.access & REMOTE != 0 => unsafe { Some(share(domain, keys, wish)?) },
        _ => None,
    };
    let key = match &domain.keys {
        Some(keys) if !keys.are_given => wish.key,
        _ => shared.unwrap_or_else(|| KEYS.fetch_add(1, Ordering::Relaxed)),
    };
    domain.regions.fetch_add(1, Ordering::Relaxed);
    let fid = head(sys::FI_CLASS_MR, wish.context, head_functions::<P>());
    let object = sys::fid_mr { fid, mem_desc: std::ptr::null_mut(), key };
    let inner = MemoryRegion { domain: domain.clone(), shared, is_closed: false.into() };
    // SAFETY: the caller gives a place for the region.
    unsafe { *region = RegionObject::into_raw(object, inner) };
    Ok(())
}

/// Lets peers use memory. Gives the key by which they do.
///
/// # Safety
/// As fi_mr_reg(3) asks.
unsafe fn share<P: Provider>(
    domain: &Domain<P>,
    keys: &RegionKeys,
    wish: &RegionWish,
) -> Result<u64> {
    if wish.offset != 0 {
        return Err(Errno::INVALID);
    }
    if wish.flags & !sys::FI_RMA_EVENT != 0 {
        return Err(Errno::BAD_FLAGS);
    }
    let access = wish.access & REMOTE;
    let writable = access & sys::FI_REMOTE_WRITE != 0;
    // SAFETY: the caller's promise, until the region is closed.
    let memory = unsafe { wish.pieces.only::<1>(writable)?.ok_or(Errno::INVALID)? };
    let base = if keys.by_address { memory.start() as u64 } else { 0 };
    let mut state = domain.lock();
    let mut key = if keys.are_given { keys.next() } else { wish.key };
    while keys.are_given && state.has_region(key) {
        key = keys.next();
    }
    let region = SharedRegion { memory, key, base, access };
    state.add_region(region, keys.servers(wish.flags))?;
    Ok(key)
}

/// `fi_mr_reg` and `fi_mr_regv`: each names the memory in its own way.
macro_rules! registrations {
    ($(fn $name:ident($memory:ident: $type:ty, $count:ident) $pieces:expr;)*) => {$(
        unsafe extern "C" fn $name<P: Provider>(
            domain: *mut sys::fid,
            $memory: $type,
            $count: usize,
            access: u64,
            offset: u64,
            key: u64,
            flags: u64,
            region: *mut *mut sys::fid_mr,
            context: *mut c_void,
        ) -> c_int {
            let wish = RegionWish { pieces: $pieces, access, offset, key, flags, context };
            // SAFETY: the caller keeps the promises of fi_mr(3).
            enter(|| unsafe { open::<P>(domain, region, &wish) })
        }
    )*};
}

registrations! {
    fn register(start: *const c_void, length) Pieces::One(start, length);
    fn register_several(parts: *const libc::iovec, count) Pieces::Several(parts, count);
}

unsafe extern "C" fn register_attributes<P: Provider>(
    domain: *mut sys::fid,
    attributes: *const sys::fi_mr_attr,
    flags: u64,
    region: *mut *mut sys::fid_mr,
) -> c_int {
    enter(|| {
        // SAFETY: the caller gives attributes, or null.
        let attributes = unsafe { attributes.as_ref() }.ok_or(Errno::INVALID)?;
        let wish = RegionWish {
            pieces: Pieces::Several(attributes.mr_iov, attributes.iov_count),
            access: attributes.access,
            offset: attributes.offset,
            key: attributes.requested_key,
            flags,
            context: attributes.context,
        };
        // SAFETY: the caller keeps the promises of fi_mr(3).
        unsafe { open::<P>(domain, region, &wish) }
    })
}

/// The region of a pointer.
///
/// # Errors
/// It was closed.
///
/// # Safety
/// `fid` is a region that fi_mr(3) gave.
unsafe fn region_of<'a, P: Provider>(fid: *mut sys::fid) -> Result<&'a MemoryRegion<P>> {
    // SAFETY: the caller's promise.
    let region = unsafe { RegionObject::<P>::of(fid.cast()) };
    if region.is_closed.load(Ordering::Relaxed) { Err(Errno::CLOSED) } else { Ok(region) }
}

/// `fi_mr_bind`: to a counter of changes by peers; or to an endpoint of the domain.
unsafe extern "C" fn bind<P: Provider>(
    fid: *mut sys::fid,
    other: *mut sys::fid,
    flags: u64,
) -> c_int {
    enter(|| {
        if other.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller gives a region and an object, whose class says what it is.
        let (region, class) = unsafe { (region_of::<P>(fid)?, (*other).fclass) };
        let own = |of: &Arc<_>| {
            let is_own = Arc::ptr_eq(of, &region.domain);
            is_own.then(|| region.domain.lock()).ok_or(Errno::DOMAIN)
        };
        match (class, region.shared) {
            (sys::FI_CLASS_EP, shared) if flags == 0 => {
                // SAFETY: it is an endpoint.
                let endpoint = unsafe { EndpointHandle::<P>::of(other.cast()) };
                let mut state = own(&endpoint.domain)?;
                shared.map_or(Ok(()), |key| state.bind_region_to_endpoint(key, endpoint.key))
            }
            (sys::FI_CLASS_CNTR, Some(key)) if flags == sys::FI_REMOTE_WRITE => {
                // SAFETY: it is a counter.
                let counter = unsafe { CounterHandle::<P>::of(other.cast()) };
                own(&counter.domain)?.bind_region(key, counter.key)
            }
            _ => Err(Errno::INVALID),
        }
    })
}

/// `fi_mr_enable`. Without `FI_MR_ENDPOINT` and `FI_MR_RMA_EVENT`, a region is enabled from the
/// beginning.
unsafe extern "C" fn control<P: Provider>(
    fid: *mut sys::fid,
    command: c_int,
    _argument: *mut c_void,
) -> c_int {
    enter(|| {
        // SAFETY: the caller gives a region.
        let region = unsafe { region_of::<P>(fid)? };
        if command != sys::FI_ENABLE {
            return Err(Errno::NO_SYSTEM_CALL);
        }
        region.shared.map_or(Ok(()), |key| region.domain.lock().enable_region(key))
    })
}

/// `fi_close`: no peer uses the memory when it has returned. Operations that are under way fail.
unsafe extern "C" fn close<P: Provider>(fid: *mut sys::fid) -> c_int {
    enter(|| {
        // SAFETY: the caller closes a region.
        let region = unsafe { RegionObject::<P>::of(fid.cast()) };
        if region.is_closed.swap(true, Ordering::Relaxed) {
            return Err(Errno::CLOSED);
        }
        if let Some(key) = region.shared {
            let removed = region.domain.lock().remove_region(key);
            removed.inspect_err(|_| region.is_closed.store(false, Ordering::Relaxed))?;
        }
        region.domain.regions.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it was not closed before.
        unsafe { RegionObject::<P>::close(fid) };
        Ok(())
    })
}
