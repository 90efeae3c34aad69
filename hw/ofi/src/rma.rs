//! Writes to memory of peers (`fi_rma(3)`): how memory is registered for writes (`fi_mr(3)`), and
//! how a peer names a place in it.

use std::ffi::c_void;
use std::ptr::NonNull;

use tagmatch_ofi_sys as sys;

/// The capabilities of an endpoint that writes to memory of peers, and that peers write to.
pub(super) const CAPS: u64 = sys::FI_RMA | sys::FI_WRITE | sys::FI_REMOTE_WRITE;

/// Most bytes that are written at a time. Soft-RoCE carries 8 MiB, most others more; a provider
/// that carries fewer writes nothing.
pub(super) const WRITE_MAX: u32 = 4 << 20;

/// The function of an endpoint that writes.
pub(super) type WriteCall = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    sys::fi_addr_t,
    u64,
    u64,
    *mut c_void,
) -> isize;

/// Memory that a peer may write to.
pub(super) struct WritableRegion(pub(super) NonNull<sys::fid_mr>);

/// Where a peer may write, as it names the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) key: u64,
    /// Of the first byte of the message.
    pub(super) address: u64,
}

impl Target {
    /// The place of this byte of the message.
    pub(super) fn at(self, start: usize) -> Self {
        Target { address: self.address.wrapping_add(start as u64), ..self }
    }
}

/// How an endpoint registers memory.
#[derive(Clone, Copy)]
pub(super) struct Registering {
    pub(super) write: WriteCall,
    /// The provider chooses the keys.
    pub(super) chooses: bool,
    /// The bits of a key.
    pub(super) key_mask: u64,
    /// Memory is named by its address.
    pub(super) is_virtual: bool,
}

impl Registering {
    /// `None`: the endpoint can't do it.
    ///
    /// # Safety
    /// An open endpoint, and the description that it was opened with.
    pub(super) unsafe fn of(info: *const sys::fi_info, ep: *const sys::fid_ep) -> Option<Self> {
        // SAFETY: by the caller; all parts of a description are there.
        let (caps, order, domain, rma) = unsafe {
            let order = (*(*info).tx_attr).msg_order & (*(*info).rx_attr).msg_order;
            ((*info).caps, order, &*(*info).domain_attr, (*ep).rma.as_ref()?)
        };
        let needs = |bit| domain.mr_mode & bit != 0;
        if caps & CAPS != CAPS
            || order & sys::FI_ORDER_SAW == 0
            || needs(sys::FI_MR_LOCAL)
            || needs(sys::FI_MR_ENDPOINT)
        {
            return None;
        }
        let key_bits = u32::try_from(domain.mr_key_size).unwrap_or(u32::MAX).saturating_mul(8);
        Some(Registering {
            write: rma.write?,
            chooses: needs(sys::FI_MR_PROV_KEY),
            key_mask: u64::MAX.checked_shr(64u32.saturating_sub(key_bits)).unwrap_or(0),
            is_virtual: needs(sys::FI_MR_VIRT_ADDR),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn write(
        _: *mut sys::fid_ep,
        _: *const c_void,
        _: usize,
        _: *mut c_void,
        _: sys::fi_addr_t,
        _: u64,
        _: u64,
        _: *mut c_void,
    ) -> isize {
        0
    }

    /// How an endpoint registers memory that has these capabilities, orders, modes and bytes of a
    /// key.
    fn registering(
        caps: u64,
        [tx_order, rx_order]: [u64; 2],
        mr_mode: i32,
        key_bytes: usize,
    ) -> Option<Registering> {
        let mut tx = sys::fi_tx_attr::zeroed();
        let mut rx = sys::fi_rx_attr::zeroed();
        (tx.msg_order, rx.msg_order) = (tx_order, rx_order);
        let mut domain = sys::fi_domain_attr::zeroed();
        (domain.mr_mode, domain.mr_key_size) = (mr_mode, key_bytes);
        let mut info = sys::fi_info::zeroed();
        info.caps = caps;
        (info.tx_attr, info.rx_attr) = (&raw mut tx, &raw mut rx);
        info.domain_attr = &raw mut domain;
        let mut rma = sys::fi_ops_rma { write: Some(write), ..sys::fi_ops_rma::zeroed() };
        let mut ep = sys::fid_ep::zeroed();
        ep.rma = &raw mut rma;
        // SAFETY: a description with the parts that are read, and an endpoint with its functions.
        unsafe { Registering::of(&raw const info, &raw const ep) }
    }

    #[test]
    fn memory_is_registered_as_the_provider_wants_it() {
        let ordered = [sys::FI_ORDER_SAW; 2];
        let plain = registering(CAPS, ordered, 0, 8).unwrap();
        assert!(!plain.chooses && !plain.is_virtual && plain.key_mask == u64::MAX);
        let mode = sys::FI_MR_PROV_KEY | sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED;
        let verbs = registering(CAPS, ordered, mode, 4).unwrap();
        assert!(verbs.chooses && verbs.is_virtual && verbs.key_mask == 0xffff_ffff);
    }

    #[test]
    fn nothing_is_written_that_the_word_of_its_end_may_overtake_or_that_needs_more() {
        let ordered = [sys::FI_ORDER_SAW; 2];
        for (caps, order, mode) in [
            (CAPS & !sys::FI_REMOTE_WRITE, ordered, 0),
            (CAPS & !sys::FI_WRITE, ordered, 0),
            (CAPS, [sys::FI_ORDER_SAW, 0], 0),
            (CAPS, [0, sys::FI_ORDER_SAW], 0),
            (CAPS, ordered, sys::FI_MR_LOCAL),
            (CAPS, ordered, sys::FI_MR_ENDPOINT),
        ] {
            assert!(registering(caps, order, mode, 8).is_none(), "{caps:x} {order:?} {mode}");
        }
    }

    #[test]
    fn places_of_a_message_are_counted_from_its_first_byte() {
        let target = Target { key: 3, address: u64::MAX - 1 };
        assert_eq!(target.at(5), Target { key: 3, address: 3 });
    }
}
