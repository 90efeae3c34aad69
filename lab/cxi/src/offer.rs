//! The program's hints and the offers that answer them: fi_getinfo(3), fi_cxi(7). The values are
//! those of `prov/cxi/src/cxip_info.c`.

use tagmatch_ofi_provider::{Hints, Offer, Offers, Refusal, require, with_directions};
use tagmatch_ofi_sys as sys;

use crate::endpoint::{INJECT_MAX, MESSAGE_MAX};
use crate::settings::Settings;

/// cxi's version, and that of its protocol.
pub(crate) const VERSION: u32 = sys::FI_VERSION(0, 2);
const PROTOCOL_VERSION: u32 = 1;
pub(crate) const FABRIC: &str = "cxi";

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
    require!(
        [sys::FI_FORMAT_UNSPEC, sys::FI_ADDR_CXI].contains(&hints.address_format),
        "addresses have cxi's format"
    );
    require!(hints.names(FABRIC, &settings.nic), "the fabric or the NIC has another name");
    if let Some(domain) = &hints.domain {
        check_domain(domain)?;
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

fn check_domain(asked: &sys::fi_domain_attr) -> Result<(), Refusal> {
    require!(asked.data_progress != sys::FI_PROGRESS_AUTO, "progress is manual");
    require!(asked.control_progress != sys::FI_PROGRESS_AUTO, "progress is manual");
    require!(asked.av_type != sys::FI_AV_MAP, "address vectors are tables");
    require!(asked.mr_mode & MR_MODE == MR_MODE, "memory is registered as cxi does (mr_mode)");
    require!(asked.cq_data_size <= DATA_BYTES, "completions have eight bytes of data");
    Ok(())
}

fn offer(settings: &Settings, protocol: &Protocol, hints: &Hints) -> Result<Offer, Refusal> {
    // Finding a source costs a search, so only programs that ask for it pay (fi_cxi(7)).
    let caps = match hints.caps {
        0 => CAPS & !sys::FI_SOURCE,
        asked => with_directions(asked) | DOMAIN_CAPS,
    };
    let (mut sends, mut receives) = (USUAL_MAX, USUAL_MAX);
    let (mut send_flags, mut receive_flags) = (0, 0);
    if let Some(asked) = &hints.endpoint {
        require!(asked.r#type <= sys::FI_EP_RDM && asked.r#type != sys::FI_EP_MSG, "not FI_EP_RDM");
        require!([0, protocol.number].contains(&asked.protocol), "another protocol");
        require!(asked.max_msg_size <= MESSAGE_MAX, "messages have at most 2^32 - 1 bytes");
        let bits = u64::BITS - asked.mem_tag_format.leading_zeros();
        require!(bits <= protocol.tag_bits, "tags have 48 bits");
    }
    if let Some(asked) = &hints.transmit {
        require!(asked.op_flags & !SEND_FLAGS == 0, "a flag of sends that there is not");
        require!(asked.inject_size <= protocol.inject_max, "192 bytes can be injected");
        require!(asked.iov_limit <= 1, "a message has one part");
        require!(asked.size <= SENDS_MAX, "too many sends at a time");
        require!(asked.msg_order & !protocol.orders == 0, "an order that isn't kept");
        (sends, send_flags) = (some_or(asked.size, sends), asked.op_flags);
    }
    if let Some(asked) = &hints.receive {
        require!(asked.op_flags & !RECEIVE_FLAGS == 0, "a flag of receives that there is not");
        require!(asked.iov_limit <= 1, "a message has one part");
        require!(asked.size <= RECEIVES_MAX, "too many receives at a time");
        require!(asked.msg_order & !protocol.orders == 0, "an order that isn't kept");
        (receives, receive_flags) = (some_or(asked.size, receives), asked.op_flags);
    }
    Ok(Offer {
        caps,
        domain_name: settings.nic.clone(),
        transmit: sys::fi_tx_attr {
            caps: caps & !(sys::FI_RECV | sys::FI_DIRECTED_RECV | sys::FI_SOURCE),
            op_flags: send_flags,
            msg_order: protocol.orders,
            inject_size: protocol.inject_max,
            size: sends,
            iov_limit: 1,
            ..sys::fi_tx_attr::zeroed()
        },
        receive: sys::fi_rx_attr {
            caps: caps & !sys::FI_SEND,
            op_flags: receive_flags,
            msg_order: protocol.orders,
            size: receives,
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
    })
}

/// What is asked for, or what is usual.
fn some_or(asked: usize, usual: usize) -> usize {
    if asked == 0 { usual } else { asked }
}
