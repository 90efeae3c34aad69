//! What a program asks for, and what it gets.

use std::ffi::c_int;

use tagmatch_ofi_provider::{Hints, Offer, Refusal, require, with_directions};
use tagmatch_ofi_sys as sys;

use super::profile::{
    ALWAYS, CONSTANTS, DATA_BYTES, DOMAIN_CAPS, INJECT_MAX, MANY, ONE_SIDED, ONE_SIDED_ORDER,
    PARTS_MAX, PRIMARY, PROTOCOL, PROTOCOL_VERSION, Profile, RECEIVE_CAPS, RECEIVE_FLAGS,
    SEND_FLAGS, TAG_FORMAT, TRANSMIT_CAPS,
};

/// Compares what a program asks for with what there is.
pub(crate) fn negotiate(profile: &Profile, hints: &Hints) -> Result<Offer, Refusal> {
    require!(
        hints.caps & !profile.caps & ONE_SIDED == 0,
        "one-sided operations are off here: TAGMATCH_FI_ONE_SIDED=on offers them"
    );
    require!(hints.caps & !profile.caps == 0, "a capability is not offered");
    let mut offer = all(profile.domain.clone(), caps(profile, hints.caps));
    if profile.caps & ONE_SIDED == 0 {
        return offer.answer(&CONSTANTS, hints);
    }
    // A region that peers use is one run of bytes.
    offer.domain.mr_iov_limit = 1;
    let mode = registration(hints.api_version, hints.domain.map_or(0, |domain| domain.mr_mode))?;
    let mut answer = offer.answer(&CONSTANTS, hints)?;
    answer.domain.mr_mode = mode;
    Ok(answer)
}

/// The way in which memory is registered (fi_mr(3)), for a program that can do it in these ways:
/// the one that asks for nothing, unless the program has the names of versions before 1.5 for it.
fn registration(api_version: u32, mode: c_int) -> Result<c_int, Refusal> {
    const OLD: c_int = sys::FI_MR_BASIC | sys::FI_MR_SCALABLE;
    let is_old = api_version != 0 && api_version < sys::FI_VERSION(1, 5);
    match mode & OLD {
        0 if is_old => Ok(sys::FI_MR_SCALABLE),
        0 => Ok(0),
        one @ (sys::FI_MR_BASIC | sys::FI_MR_SCALABLE) if mode == one => Ok(one),
        _ => Err("`mr_mode` has several ways of versions before 1.5"),
    }
}

/// The capabilities that a program gets: all, if it asks for none; otherwise those that it asks
/// for, both directions if it names none, and what costs nothing.
fn caps(profile: &Profile, asked: u64) -> u64 {
    if asked == 0 {
        return profile.unasked;
    }
    with_implied(asked)
}

/// Capabilities with those that they imply, and with those that cost nothing.
pub(crate) fn with_implied(asked: u64) -> u64 {
    let caps = with_directions(asked) | ALWAYS;
    if caps & sys::FI_RECV == 0 { caps & !sys::FI_MULTI_RECV } else { caps }
}

/// The bytes of messages that wait for their receive: the default of `Config::unexpected_bytes`.
const BUFFERED_MAX: usize = 64 << 20;

/// The longest message, in bytes.
const MESSAGE_MAX: usize = isize::MAX as usize;

/// All that there is, for a program with these capabilities.
fn all(domain_name: String, caps: u64) -> Offer {
    let is_one_sided = caps & (sys::FI_RMA | sys::FI_ATOMIC) != 0;
    let order = if is_one_sided { sys::FI_ORDER_SAS | ONE_SIDED_ORDER } else { sys::FI_ORDER_SAS };
    let ordered_bytes = if is_one_sided { MESSAGE_MAX } else { 0 };
    Offer {
        caps,
        transmit: sys::fi_tx_attr {
            caps: caps & TRANSMIT_CAPS,
            op_flags: SEND_FLAGS,
            msg_order: order,
            inject_size: INJECT_MAX,
            size: MANY,
            iov_limit: PARTS_MAX,
            rma_iov_limit: if is_one_sided { PARTS_MAX } else { 0 },
            ..sys::fi_tx_attr::zeroed()
        },
        receive: sys::fi_rx_attr {
            caps: caps & RECEIVE_CAPS,
            op_flags: RECEIVE_FLAGS,
            msg_order: order,
            total_buffered_recv: BUFFERED_MAX,
            size: MANY,
            iov_limit: PARTS_MAX,
            ..sys::fi_rx_attr::zeroed()
        },
        endpoint: sys::fi_ep_attr {
            r#type: sys::FI_EP_RDM,
            protocol: PROTOCOL,
            protocol_version: PROTOCOL_VERSION,
            max_msg_size: MESSAGE_MAX,
            max_order_raw_size: ordered_bytes,
            max_order_war_size: ordered_bytes,
            max_order_waw_size: ordered_bytes,
            mem_tag_format: TAG_FORMAT,
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
            mr_key_size: size_of::<u64>(),
            cq_data_size: DATA_BYTES,
            cq_cnt: MANY,
            ep_cnt: MANY,
            tx_ctx_cnt: MANY,
            rx_ctx_cnt: MANY,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            cntr_cnt: MANY,
            mr_iov_limit: PARTS_MAX,
            caps: DOMAIN_CAPS,
            mr_cnt: MANY,
            ..sys::fi_domain_attr::zeroed()
        },
        domain_name,
    }
}

/// Checks what an endpoint is to be opened with: what a program was given, maybe changed.
pub(crate) fn check_opened(all_caps: u64, asked: &Hints) -> Result<(), Refusal> {
    require!(asked.caps & !all_caps == 0, "a capability is not offered");
    require!(
        asked.caps & (PRIMARY | ONE_SIDED) != 0,
        "an endpoint without capabilities has no use"
    );
    all(String::new(), all_caps).check_opened(asked)
}

#[cfg(test)]
mod tests {
    use super::super::profile::{CAPS, caps_of};
    use super::*;

    fn profile() -> Profile {
        Profile { caps: CAPS, unasked: CAPS, domain: "auto".into() }
    }

    /// Hints as fi_allocinfo(3) makes them, changed by `change`.
    fn hints(change: impl FnOnce(&mut Hints)) -> Hints {
        let mut hints = Hints {
            transmit: Some(sys::fi_tx_attr::zeroed()),
            receive: Some(sys::fi_rx_attr::zeroed()),
            endpoint: Some(sys::fi_ep_attr::zeroed()),
            domain: Some(sys::fi_domain_attr::zeroed()),
            ..Hints::default()
        };
        change(&mut hints);
        hints
    }

    fn ask(change: impl FnOnce(&mut Hints)) -> Result<Offer, Refusal> {
        negotiate(&profile(), &hints(change))
    }

    fn domain_of(hints: &mut Hints) -> &mut sys::fi_domain_attr {
        hints.domain.as_mut().unwrap()
    }

    fn transmit_of(hints: &mut Hints) -> &mut sys::fi_tx_attr {
        hints.transmit.as_mut().unwrap()
    }

    fn receive_of(hints: &mut Hints) -> &mut sys::fi_rx_attr {
        hints.receive.as_mut().unwrap()
    }

    fn endpoint_of(hints: &mut Hints) -> &mut sys::fi_ep_attr {
        hints.endpoint.as_mut().unwrap()
    }

    #[test]
    fn a_program_that_asks_for_nothing_gets_all() {
        for hints in [Hints::default(), hints(|_| {})] {
            let offer = negotiate(&profile(), &hints).unwrap();
            assert_eq!(offer.caps, CAPS);
            assert_eq!(offer.domain.threading, sys::FI_THREAD_SAFE);
            assert_eq!(offer.domain.av_type, sys::FI_AV_TABLE);
            assert_eq!(offer.endpoint.mem_tag_format.leading_zeros(), 1);
            assert_eq!(offer.transmit.mode | offer.receive.mode | offer.domain.mode, 0);
            assert_eq!(offer.domain.mr_mode, 0);
        }
    }

    #[test]
    fn where_tags_name_their_source_directed_receives_are_for_those_who_ask() {
        let profile = Profile { unasked: CAPS & !sys::FI_DIRECTED_RECV, ..profile() };
        let caps = |asked| {
            let hints = hints(|hints| hints.caps = asked);
            negotiate(&profile, &hints).unwrap().caps
        };
        assert_eq!(caps(0) & sys::FI_DIRECTED_RECV, 0);
        assert_ne!(caps(sys::FI_TAGGED | sys::FI_DIRECTED_RECV) & sys::FI_DIRECTED_RECV, 0);
    }

    #[test]
    fn capabilities_are_those_that_were_asked_for_and_what_is_implied() {
        let tagged = ask(|hints| hints.caps = sys::FI_TAGGED).unwrap().caps;
        assert_eq!(tagged, sys::FI_TAGGED | sys::FI_SEND | sys::FI_RECV | ALWAYS);
        let sends = ask(|hints| hints.caps = sys::FI_MSG | sys::FI_SEND).unwrap().caps;
        assert_eq!(sends, sys::FI_MSG | sys::FI_SEND | DOMAIN_CAPS);
    }

    #[test]
    fn a_direction_has_the_capabilities_that_apply_to_it() {
        // As fi_endpoint(3) lists them for each direction.
        let both = sys::FI_MSG | sys::FI_TAGGED;
        let receive = sys::FI_RECV | sys::FI_DIRECTED_RECV | sys::FI_MULTI_RECV | sys::FI_SOURCE;
        let offer = ask(|_| {}).unwrap();
        assert_eq!(offer.transmit.caps, both | sys::FI_SEND);
        assert_eq!(offer.receive.caps, both | receive);
        let offer = ask(|hints| hints.caps = sys::FI_TAGGED | sys::FI_SEND).unwrap();
        assert_eq!(offer.transmit.caps, sys::FI_TAGGED | sys::FI_SEND);
        assert_eq!(offer.receive.caps & receive, 0);
    }

    #[test]
    fn what_each_mpi_library_asks_for_is_there() {
        let open_mpi_4 = ask(|hints| {
            let local = sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
            hints.caps = sys::FI_TAGGED | local | sys::FI_DIRECTED_RECV;
            transmit_of(hints).op_flags = sys::FI_COMPLETION;
            receive_of(hints).op_flags = sys::FI_COMPLETION;
            transmit_of(hints).msg_order = sys::FI_ORDER_SAS;
            receive_of(hints).msg_order = sys::FI_ORDER_SAS;
            domain_of(hints).threading = sys::FI_THREAD_DOMAIN;
            domain_of(hints).cq_data_size = 4;
            domain_of(hints).av_type = sys::FI_AV_MAP;
            domain_of(hints).resource_mgmt = sys::FI_RM_ENABLED;
            endpoint_of(hints).r#type = sys::FI_EP_RDM;
        })
        .unwrap();
        assert_eq!(open_mpi_4.domain.threading, sys::FI_THREAD_DOMAIN);
        assert_eq!(open_mpi_4.domain.av_type, sys::FI_AV_MAP);
        assert_eq!(open_mpi_4.transmit.op_flags, sys::FI_COMPLETION);
        let mpich = |order: u64| {
            ask(|hints| {
                hints.caps = CAPS;
                let flags = sys::FI_COMPLETION | sys::FI_DELIVERY_COMPLETE;
                transmit_of(hints).op_flags = flags;
                transmit_of(hints).msg_order = order;
                domain_of(hints).threading = sys::FI_THREAD_DOMAIN;
                domain_of(hints).data_progress = sys::FI_PROGRESS_MANUAL;
                domain_of(hints).control_progress = sys::FI_PROGRESS_MANUAL;
                domain_of(hints).cq_data_size = 4;
            })
        };
        // It asks again, without the order of atomic operations.
        assert!(mpich(sys::FI_ORDER_SAS | sys::FI_ORDER_ATOMIC_RAW).is_err());
        assert_eq!(mpich(sys::FI_ORDER_SAS).unwrap().caps, CAPS);
    }

    #[test]
    fn each_attribute_beyond_what_there_is_is_refused() {
        type Change = (&'static str, fn(&mut Hints));
        let changes: [Change; 41] = [
            ("remote memory access", |h| h.caps = sys::FI_TAGGED | sys::FI_RMA),
            ("atomic operations", |h| h.caps = sys::FI_ATOMIC),
            ("scalable endpoints", |h| h.caps = sys::FI_TAGGED | sys::FI_NAMED_RX_CTX),
            ("an address format", |h| h.address_format = sys::FI_SOCKADDR_IN),
            ("a connection request", |h| h.has_handle = true),
            ("another fabric", |h| h.fabric_name = Some("IB".into())),
            ("another domain", |h| h.domain_name = Some("mlx5_0".into())),
            ("message endpoints", |h| endpoint_of(h).r#type = sys::FI_EP_MSG),
            ("datagrams", |h| endpoint_of(h).r#type = sys::FI_EP_DGRAM),
            ("another protocol", |h| endpoint_of(h).protocol = 11),
            ("a newer protocol", |h| endpoint_of(h).protocol_version = 2),
            ("endless messages", |h| endpoint_of(h).max_msg_size = usize::MAX),
            ("reads in order", |h| endpoint_of(h).max_order_raw_size = 1),
            ("writes behind reads", |h| endpoint_of(h).max_order_war_size = 1),
            ("writes in order", |h| endpoint_of(h).max_order_waw_size = usize::MAX),
            ("two sending contexts", |h| endpoint_of(h).tx_ctx_cnt = 2),
            ("a shared context", |h| endpoint_of(h).rx_ctx_cnt = sys::FI_SHARED_CONTEXT),
            ("a key", |h| endpoint_of(h).auth_key_size = 8),
            ("tags of 64 bits", |h| {
                h.caps = sys::FI_TAGGED;
                endpoint_of(h).mem_tag_format = 1 << 63;
            }),
            ("a later provider", |h| h.provider_version = sys::FI_VERSION(9, 0)),
            ("progress of no model", |h| domain_of(h).data_progress = 4),
            ("data of errors", |h| domain_of(h).max_err_data = 1),
            ("endless buffers", |h| receive_of(h).total_buffered_recv = usize::MAX),
            ("a threading model", |h| domain_of(h).threading = 6),
            ("a type of vector", |h| domain_of(h).av_type = 3),
            ("long keys", |h| domain_of(h).mr_key_size = 9),
            ("more immediate data", |h| domain_of(h).cq_data_size = 8),
            ("too many queues", |h| domain_of(h).cq_cnt = MANY + 1),
            ("scalable endpoints", |h| domain_of(h).max_ep_tx_ctx = 2),
            ("shared contexts", |h| domain_of(h).max_ep_srx_ctx = 1),
            ("shared vectors", |h| domain_of(h).caps = sys::FI_SHARED_AV),
            ("a capability of sends", |h| transmit_of(h).caps = sys::FI_RMA),
            ("durable completion", |h| transmit_of(h).op_flags = sys::FI_COMMIT_COMPLETE),
            ("order of reads", |h| transmit_of(h).msg_order = sys::FI_ORDER_RAR),
            ("ordered completions", |h| transmit_of(h).comp_order = sys::FI_ORDER_STRICT),
            ("long injected messages", |h| transmit_of(h).inject_size = INJECT_MAX + 1),
            ("many pieces", |h| transmit_of(h).iov_limit = PARTS_MAX + 1),
            ("remote pieces", |h| transmit_of(h).rma_iov_limit = 1),
            ("a flag of receives", |h| receive_of(h).op_flags = sys::FI_INJECT),
            ("many receives", |h| receive_of(h).size = MANY + 1),
            ("many pieces", |h| receive_of(h).iov_limit = PARTS_MAX + 1),
        ];
        for (what, change) in changes {
            assert!(ask(change).is_err(), "{what}");
        }
    }

    #[test]
    fn one_sided_operations_are_offered_where_the_settings_say_so() {
        let profile = Profile { caps: caps_of(true), ..profile() };
        let ask = |caps| negotiate(&profile, &hints(|hints| hints.caps = caps)).unwrap();
        let offer = ask(sys::FI_RMA);
        let directions = sys::FI_READ | sys::FI_WRITE | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
        assert_eq!(offer.caps, sys::FI_RMA | directions | DOMAIN_CAPS);
        assert_eq!(offer.transmit.caps, sys::FI_RMA | sys::FI_READ | sys::FI_WRITE);
        let of_owner = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
        assert_eq!(offer.receive.caps, sys::FI_RMA | of_owner);
        assert_eq!((offer.transmit.rma_iov_limit, offer.domain.mr_iov_limit), (4, 1));
        let endpoint = offer.endpoint;
        let sizes =
            [endpoint.max_order_raw_size, endpoint.max_order_war_size, endpoint.max_order_waw_size];
        assert_eq!(sizes, [isize::MAX as usize; 3]);
        // As `tagmatch::Remote` keeps it: a get may see what a later put writes.
        assert_eq!(offer.transmit.msg_order, sys::FI_ORDER_SAS | 0xfa << 32);
        assert_eq!(offer.transmit.msg_order & sys::FI_ORDER_RMA_WAR, 0);
        let write = ask(sys::FI_TAGGED | sys::FI_ATOMIC | sys::FI_WRITE);
        let caps = sys::FI_TAGGED | sys::FI_ATOMIC | sys::FI_WRITE;
        assert_eq!(write.caps, caps | sys::FI_SEND | sys::FI_RECV | ALWAYS);
        let refused = self::ask(|hints| hints.caps = sys::FI_RMA).map(drop).unwrap_err();
        assert!(refused.contains("TAGMATCH_FI_ONE_SIDED=on"), "{refused}");
        let other = negotiate(&profile, &hints(|hints| hints.caps = sys::FI_MULTICAST));
        assert!(!other.map(drop).unwrap_err().contains("TAGMATCH_FI_ONE_SIDED"));
        // A program that asks for messages alone has what it always had.
        let messages = ask(sys::FI_TAGGED);
        assert_eq!(messages.transmit.msg_order, sys::FI_ORDER_SAS);
        assert_eq!((messages.transmit.rma_iov_limit, messages.endpoint.max_order_raw_size), (0, 0));
    }

    #[test]
    fn what_a_program_has_chosen_comes_back() {
        for threading in 1..=5 {
            let offer = ask(|hints| domain_of(hints).threading = threading).unwrap();
            assert_eq!(offer.domain.threading, threading);
        }
        for progress in 1..=3 {
            let offer = ask(|hints| domain_of(hints).data_progress = progress).unwrap();
            assert_eq!(offer.domain.data_progress, progress);
        }
        let offer = ask(|hints| receive_of(hints).total_buffered_recv = 64 << 20).unwrap();
        assert_eq!(offer.receive.total_buffered_recv, 64 << 20);
        let offer = ask(|hints| receive_of(hints).op_flags = sys::FI_MULTI_RECV).unwrap();
        assert_eq!(offer.receive.op_flags, sys::FI_MULTI_RECV);
    }

    /// The numbers are written out, so that none changes unnoticed: programs size tables with them.
    #[test]
    fn each_attribute_of_the_manual_has_an_answer() {
        let offer = ask(|_| {}).unwrap();
        let domain = offer.domain;
        let endpoint = offer.endpoint;
        assert_eq!((offer.transmit.msg_order, offer.receive.msg_order), (1 << 8, 1 << 8));
        assert_eq!((offer.transmit.size, offer.receive.size), (65536, 65536));
        assert_eq!((offer.transmit.inject_size, domain.cq_data_size), (4096, 4));
        assert_eq!((endpoint.r#type, endpoint.protocol), (sys::FI_EP_RDM, 0x8000_746d));
        assert_eq!((CONSTANTS.address_format, endpoint.protocol_version), (0x8000_746d, 1));
        assert_eq!(endpoint.mem_tag_format, 0x5555_5555_5555_5555);
        assert_eq!(endpoint.max_msg_size, isize::MAX as usize);
        assert_eq!((endpoint.tx_ctx_cnt, endpoint.rx_ctx_cnt), (1, 1));
        assert_eq!((domain.max_ep_tx_ctx, domain.max_ep_rx_ctx), (1, 1));
        assert_eq!(domain.control_progress, sys::FI_PROGRESS_MANUAL);
        assert_eq!((domain.resource_mgmt, domain.mr_key_size), (sys::FI_RM_ENABLED, 8));
        assert_eq!((domain.caps, domain.mr_iov_limit), (DOMAIN_CAPS, 4));
        let counts = [domain.cq_cnt, domain.ep_cnt, domain.tx_ctx_cnt, domain.rx_ctx_cnt];
        assert_eq!(counts, [65536; 4]);
        assert_eq!((domain.cntr_cnt, domain.mr_cnt), (65536, 65536));
    }

    #[test]
    fn each_default_flag_that_the_manual_allows_is_taken_alone() {
        let sends = [
            sys::FI_COMPLETION,
            sys::FI_INJECT,
            sys::FI_INJECT_COMPLETE,
            sys::FI_DELIVERY_COMPLETE,
            sys::FI_TRANSMIT_COMPLETE,
            sys::FI_MATCH_COMPLETE,
        ];
        for flag in sends {
            assert_eq!(
                ask(|hints| transmit_of(hints).op_flags = flag).unwrap().transmit.op_flags,
                flag
            );
        }
        for flag in [sys::FI_COMPLETION, sys::FI_MULTI_RECV] {
            assert_eq!(
                ask(|hints| receive_of(hints).op_flags = flag).unwrap().receive.op_flags,
                flag
            );
        }
    }

    #[test]
    fn the_format_of_tags_matters_to_those_who_use_tags() {
        let ask_with = |caps| {
            ask(|hints| {
                hints.caps = caps;
                endpoint_of(hints).mem_tag_format = 1 << 63;
            })
        };
        assert!(ask_with(sys::FI_MSG).is_ok());
        assert!(ask_with(sys::FI_MSG | sys::FI_TAGGED).is_err());
    }

    #[test]
    fn everything_up_to_what_there_is_is_taken() {
        let most = ask(|_| {}).unwrap();
        assert_eq!(
            (most.transmit.iov_limit, most.receive.iov_limit),
            (4, 4),
            "as MPICH copes with"
        );
        let again = ask(|hints| {
            hints.caps = most.caps;
            hints.address_format = CONSTANTS.address_format;
            hints.transmit = Some(sys::fi_tx_attr { op_flags: SEND_FLAGS, ..most.transmit });
            hints.receive = Some(sys::fi_rx_attr { op_flags: RECEIVE_FLAGS, ..most.receive });
            (hints.endpoint, hints.domain) = (Some(most.endpoint), Some(most.domain));
            hints.fabric_name = Some("Tagmatch".into());
            hints.domain_name = Some("AUTO".into());
            hints.provider_version = CONSTANTS.provider_version;
        });
        assert_eq!(again.unwrap().caps, CAPS);
    }

    #[test]
    fn an_endpoint_is_opened_with_what_is_offered_only() {
        let check = |change: fn(&mut Hints)| {
            let hints = hints(|hints| {
                hints.caps = CAPS;
                change(hints);
            });
            check_opened(CAPS, &hints)
        };
        assert_eq!(check(|_| {}), Ok(()));
        let none = Hints { caps: sys::FI_TAGGED, ..Hints::default() };
        assert_eq!(check_opened(CAPS, &none), Ok(()));
        assert_eq!(with_implied(sys::FI_MSG) & !ALWAYS, sys::FI_MSG | sys::FI_SEND | sys::FI_RECV);
        assert!(check(|h| h.caps = sys::FI_SOURCE).is_err());
        assert!(check(|h| h.caps |= sys::FI_RMA).is_err());
        assert!(check(|h| endpoint_of(h).r#type = sys::FI_EP_MSG).is_err());
        assert!(check(|h| endpoint_of(h).tx_ctx_cnt = sys::FI_SHARED_CONTEXT).is_err());
        assert!(check(|h| transmit_of(h).op_flags = sys::FI_COMMIT_COMPLETE).is_err());
        assert!(check(|h| receive_of(h).op_flags = sys::FI_INJECT).is_err());
    }
}
