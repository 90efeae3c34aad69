//! The program's hints and the offers that answer them: fi_getinfo(3), fi_cxi(7). The values are
//! those of `prov/cxi/src/cxip_info.c`.

use tagmatch_ofi_provider::{Constants, Hints, Offer, Offers, Refusal, require, with_directions};
use tagmatch_ofi_sys as sys;

use crate::endpoint::{INJECT_MAX, MESSAGE_MAX};
use crate::settings::Settings;
use crate::wire::Name;

/// cxi's version, and its names.
pub(crate) const CONSTANTS: Constants = Constants {
    provider_version: sys::FI_VERSION(0, 2),
    fabric: "cxi",
    address_format: sys::FI_ADDR_CXI,
    name_bytes: Name::BYTES,
    has_auto_progress: false,
};
const PROTOCOL_VERSION: u32 = 1;

/// Of cxi's capabilities those that there are here: tagged messages alone.
const CAPS: u64 = sys::FI_TAGGED
    | sys::FI_SEND
    | sys::FI_RECV
    | sys::FI_DIRECTED_RECV
    | sys::FI_SOURCE
    | DOMAIN_CAPS;
const DOMAIN_CAPS: u64 = sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
/// Flags of sends that are given none.
pub(crate) const SEND_FLAGS: u64 = sys::FI_INJECT
    | sys::FI_COMPLETION
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE
    | sys::FI_MATCH_COMPLETE
    | sys::FI_REMOTE_CQ_DATA
    | sys::FI_MORE;
/// Flags of receives that are given none.
pub(crate) const RECEIVE_FLAGS: u64 = sys::FI_COMPLETION | sys::FI_MORE;
/// The modes of memory registration that cxi demands. A program offers all three in its hints.
const MR_MODE: i32 = sys::FI_MR_ENDPOINT | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;
const DATA_BYTES: usize = 8;
const SENDS_MAX: usize = 16384;
const RECEIVES_MAX: usize = 15360;
/// Sends, and receives, at a time if the program doesn't say.
pub(crate) const USUAL_MAX: usize = 1024;

/// `ofi_tag_format` of so many bits: alternating ones.
const fn tag_format(bits: u32) -> u64 {
    0xaaaa_aaaa_aaaa_aaaa >> (64 - bits)
}

/// A protocol of cxi.
struct Protocol {
    number: u32,
    tag_bits: u32,
    orders: u64,
    inject_max: usize,
}

const PROTOCOLS: [Protocol; 2] = [
    Protocol {
        number: sys::FI_PROTO_CXI,
        tag_bits: 48,
        orders: sys::FI_ORDER_SAS,
        inject_max: INJECT_MAX,
    },
    // For clients and servers: no order, no unexpected messages. Offered, as cxi does, and not
    // there: a program that takes it for the other one finds out.
    Protocol { number: sys::FI_PROTO_CXI_RNR, tag_bits: 40, orders: 0, inject_max: 0 },
];

/// The offers for a program, the best one first.
///
/// # Errors
/// There is none; the words say why.
pub(crate) fn negotiate(settings: &Settings, hints: &Hints) -> Offers {
    require!(hints.caps & !CAPS == 0, "there are tagged messages alone");
    if let Some(asked) = &hints.domain {
        require!(asked.control_progress != sys::FI_PROGRESS_AUTO, "progress is manual");
        require!(asked.av_type != sys::FI_AV_MAP, "address vectors are tables");
    }
    let mut offers = Vec::new();
    let mut why = "";
    for protocol in &PROTOCOLS {
        match offer(settings, protocol, hints) {
            Ok(offer) => offers.push(offer),
            Err(reason) if why.is_empty() => why = reason,
            Err(_) => {}
        }
    }
    if offers.is_empty() { Err(why) } else { Ok(offers) }
}

fn offer(settings: &Settings, protocol: &Protocol, hints: &Hints) -> Result<Offer, Refusal> {
    // Finding a source costs a search, so only programs that ask for it pay (fi_cxi(7)).
    let caps = match hints.caps {
        0 => CAPS & !sys::FI_SOURCE,
        asked => with_directions(asked) | DOMAIN_CAPS,
    };
    let all = Offer {
        caps,
        domain_name: settings.nic.clone(),
        transmit: sys::fi_tx_attr {
            caps: caps & !(sys::FI_RECV | sys::FI_DIRECTED_RECV | sys::FI_SOURCE),
            op_flags: SEND_FLAGS,
            msg_order: protocol.orders,
            inject_size: protocol.inject_max,
            size: SENDS_MAX,
            iov_limit: 1,
            ..sys::fi_tx_attr::zeroed()
        },
        receive: sys::fi_rx_attr {
            caps: caps & !sys::FI_SEND,
            op_flags: RECEIVE_FLAGS,
            msg_order: protocol.orders,
            size: RECEIVES_MAX,
            iov_limit: 1,
            ..sys::fi_rx_attr::zeroed()
        },
        endpoint: sys::fi_ep_attr {
            r#type: sys::FI_EP_RDM,
            protocol: protocol.number,
            protocol_version: PROTOCOL_VERSION,
            max_msg_size: MESSAGE_MAX,
            mem_tag_format: tag_format(protocol.tag_bits),
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            ..sys::fi_ep_attr::zeroed()
        },
        domain: sys::fi_domain_attr {
            threading: sys::FI_THREAD_SAFE,
            control_progress: sys::FI_PROGRESS_MANUAL,
            data_progress: sys::FI_PROGRESS_MANUAL,
            resource_mgmt: sys::FI_RM_ENABLED,
            av_type: sys::FI_AV_TABLE,
            mr_mode: MR_MODE,
            mr_key_size: 8,
            cq_data_size: DATA_BYTES,
            cq_cnt: 32,
            ep_cnt: 128,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            mr_iov_limit: 1,
            mr_cnt: 100,
            caps: DOMAIN_CAPS,
            ..sys::fi_domain_attr::zeroed()
        },
    };
    let mut offer = all.answer(&CONSTANTS, hints)?;
    let size = |asked: Option<usize>| asked.filter(|size| *size > 0).unwrap_or(USUAL_MAX);
    offer.transmit.size = size(hints.transmit.map(|asked| asked.size));
    offer.receive.size = size(hints.receive.map(|asked| asked.size));
    Ok(offer)
}
