//! What this provider offers.

use tagmatch_ofi_provider::{Constants, REMOTE_PARTS_MAX};
use tagmatch_ofi_sys as sys;

use crate::address::Name;
use crate::settings::Settings;

/// The longest message that is injected, in bytes.
pub(crate) const INJECT_MAX: usize = 4096;
/// Most pieces of memory of one message. libfabric's tcp has as many, and MPI libraries are tried
/// with it: MPICH packs a datatype of 5 to 16 pieces in another way than it unpacks it.
pub(crate) const PARTS_MAX: usize = 4;
const _: () = assert!(PARTS_MAX == REMOTE_PARTS_MAX);
/// Marks formats and protocols of a provider's own: `FI_PROV_SPECIFIC`.
const PROVIDER_SPECIFIC: u32 = 1 << 31;
/// The protocol: one of our own.
pub(crate) const PROTOCOL: u32 = PROVIDER_SPECIFIC | 0x746d;
/// The version of the protocol.
pub(crate) const PROTOCOL_VERSION: u32 = 1;
/// Callers' tags have 63 bits: alternating bits, the highest of a tag's 64 left out.
pub(crate) const TAG_FORMAT: u64 = u64::MAX / 3;
/// Objects and operations that there may be of one kind. There is no bound but memory; programs
/// want a number.
pub(crate) const MANY: usize = 1 << 16;
/// Capabilities that a program has to ask for, unless it asks for none at all.
pub(crate) const PRIMARY: u64 =
    sys::FI_MSG | sys::FI_TAGGED | sys::FI_SEND | sys::FI_RECV | sys::FI_DIRECTED_RECV;
/// Capabilities that cost nothing, and are always there.
pub(crate) const ALWAYS: u64 = sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM | sys::FI_MULTI_RECV;
/// Capabilities of one-sided operations.
pub(crate) const ONE_SIDED: u64 = sys::FI_RMA
    | sys::FI_ATOMIC
    | sys::FI_READ
    | sys::FI_WRITE
    | sys::FI_REMOTE_READ
    | sys::FI_REMOTE_WRITE
    | sys::FI_RMA_EVENT
    | sys::FI_FENCE;
/// The orders that are kept between one-sided operations, as the table of `tagmatch::Remote` says.
pub(crate) const ONE_SIDED_ORDER: u64 = sys::FI_ORDER_RMA_RAW
    | sys::FI_ORDER_RMA_WAW
    | sys::FI_ORDER_ATOMIC_RAR
    | sys::FI_ORDER_ATOMIC_RAW
    | sys::FI_ORDER_ATOMIC_WAR
    | sys::FI_ORDER_ATOMIC_WAW;
/// Most elements of one atomic operation have so many bytes.
pub(crate) const ATOMIC_BYTES_MAX: usize = 65536;
/// Capabilities of a domain.
pub(crate) const DOMAIN_CAPS: u64 = sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
/// Capabilities that apply to sends.
pub(crate) const TRANSMIT_CAPS: u64 = sys::FI_MSG
    | sys::FI_TAGGED
    | sys::FI_SEND
    | sys::FI_RMA
    | sys::FI_ATOMIC
    | sys::FI_READ
    | sys::FI_WRITE
    | sys::FI_FENCE;
/// Capabilities that apply to receives.
pub(crate) const RECEIVE_CAPS: u64 = sys::FI_MSG
    | sys::FI_TAGGED
    | sys::FI_RECV
    | sys::FI_DIRECTED_RECV
    | sys::FI_MULTI_RECV
    | sys::FI_SOURCE
    | sys::FI_RMA
    | sys::FI_ATOMIC
    | sys::FI_REMOTE_READ
    | sys::FI_REMOTE_WRITE
    | sys::FI_RMA_EVENT;
/// Default flags of sends.
pub(crate) const SEND_FLAGS: u64 = sys::FI_COMPLETION
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_MATCH_COMPLETE;
/// Default flags of receives.
pub(crate) const RECEIVE_FLAGS: u64 = sys::FI_COMPLETION | sys::FI_MULTI_RECV;

/// All capabilities without one-sided operations.
pub(crate) const CAPS: u64 = PRIMARY | ALWAYS | sys::FI_SOURCE;
/// Bytes of immediate data.
pub(crate) const DATA_BYTES: usize = 4;
/// The provider's version, and its names.
pub(crate) const CONSTANTS: Constants = Constants {
    provider_version: sys::FI_VERSION(0, 1),
    fabric: "tagmatch",
    address_format: PROVIDER_SPECIFIC | 0x746d,
    name_bytes: Name::BYTES,
    has_auto_progress: true,
};

/// All capabilities of an endpoint that may have one-sided operations, or that has none.
pub(crate) fn caps_of(has_one_sided: bool) -> u64 {
    if has_one_sided { CAPS | ONE_SIDED } else { CAPS }
}

/// What depends on the settings.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// All capabilities.
    pub(crate) caps: u64,
    /// The capabilities of a program that asks for none.
    pub(crate) unasked: u64,
    /// The domain's name.
    pub(crate) domain: String,
}

impl Profile {
    /// What these settings leave.
    pub(crate) fn of(settings: &Settings) -> Self {
        let is_hidden = settings.tag_modes().hides_directed();
        let hidden = if is_hidden { sys::FI_DIRECTED_RECV } else { 0 };
        let caps = caps_of(settings.has_one_sided());
        Profile { caps, unasked: caps & !hidden, domain: settings.device_name().to_owned() }
    }
}
