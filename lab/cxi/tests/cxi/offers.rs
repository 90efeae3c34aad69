//! What `fi_getinfo` offers, and what it refuses.

use tagmatch_ofi_sys as sys;

use crate::client::{Hints, Node, info};
use crate::process::alone;

#[test]
fn the_offer_has_the_limits_of_cxi() {
    alone("offers::the_offer_has_the_limits_of_cxi", &[], |_| {
        let first = info(&Hints::default()).expect("an offer");
        // SAFETY: fi_getinfo(3) gave all parts.
        unsafe {
            let transmit = &*(*first).tx_attr;
            let receive = &*(*first).rx_attr;
            let endpoint = &*(*first).ep_attr;
            let domain = &*(*first).domain_attr;
            assert_eq!(endpoint.mem_tag_format.leading_zeros(), 64 - 48);
            assert_eq!(endpoint.max_msg_size, (1 << 32) - 1);
            assert_eq!(endpoint.protocol, sys::FI_PROTO_CXI);
            assert_eq!((transmit.inject_size, transmit.iov_limit), (192, 1));
            assert_eq!((receive.iov_limit, receive.size), (1, 1024));
            assert_eq!((domain.cq_data_size, domain.av_type), (8, sys::FI_AV_TABLE));
            assert_eq!(domain.data_progress, sys::FI_PROGRESS_MANUAL);
            let modes = sys::FI_MR_ENDPOINT | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;
            assert_eq!(((*first).mode, domain.mr_mode), (0, modes));
            // Programs that ask for order aren't offered the other protocol.
            assert!((*first).next.is_null());
        }
    });
}

/// The other protocol is a trap: a program that doesn't ask for order is offered it as well.
#[test]
fn the_protocol_without_unexpected_messages_is_offered_second_and_cannot_be_opened() {
    let test =
        "offers::the_protocol_without_unexpected_messages_is_offered_second_and_cannot_be_opened";
    alone(test, &[], |_| {
        let mut hints = Hints::default();
        (hints.transmit.msg_order, hints.receive.msg_order) = (0, 0);
        let first = info(&hints).expect("offers");
        // SAFETY: fi_getinfo(3) gave all parts.
        unsafe {
            assert_eq!((*(*first).ep_attr).protocol, sys::FI_PROTO_CXI);
            let second = &*(*first).next;
            assert_eq!((*second.ep_attr).protocol, sys::FI_PROTO_CXI_RNR);
            assert_eq!((*second.ep_attr).mem_tag_format.leading_zeros(), 64 - 40);
            assert_eq!((*second.tx_attr).inject_size, 0);
            assert!(second.next.is_null());
        }
        hints.endpoint.protocol = sys::FI_PROTO_CXI_RNR;
        let opened = std::panic::catch_unwind(|| Node::disabled(&hints));
        let words = opened.err().expect("no endpoint").downcast::<String>().expect("words");
        assert_eq!(*words, format!("an endpoint: {}", sys::FI_ENOSYS));
    });
}

#[test]
fn what_cxi_lacks_is_not_offered() {
    alone("offers::what_cxi_lacks_is_not_offered", &[], |_| {
        type Change = fn(&mut Hints);
        let changes: [(&str, Change); 13] = [
            ("a capability", |hints| hints.caps |= sys::FI_MULTICAST),
            ("messages without tags", |hints| hints.caps |= sys::FI_MSG),
            ("a tag of 49 bits", |hints| hints.endpoint.mem_tag_format = 1 << 48),
            ("long messages", |hints| hints.endpoint.max_msg_size = 1 << 32),
            ("connections", |hints| hints.endpoint.r#type = sys::FI_EP_MSG),
            ("long injected messages", |hints| hints.transmit.inject_size = 193),
            ("two parts sent", |hints| hints.transmit.iov_limit = 2),
            ("two parts received", |hints| hints.receive.iov_limit = 2),
            ("many receives", |hints| hints.receive.size = 15361),
            ("a map of addresses", |hints| hints.domain.av_type = sys::FI_AV_MAP),
            ("progress by itself", |hints| hints.domain.data_progress = sys::FI_PROGRESS_AUTO),
            ("unregistered memory", |hints| hints.domain.mr_mode = sys::FI_MR_ENDPOINT),
            ("9 bytes of data", |hints| hints.domain.cq_data_size = 9),
        ];
        for (what, change) in changes {
            let mut hints = Hints::default();
            change(&mut hints);
            assert_eq!(info(&hints).err(), Some(sys::FI_ENODATA), "{what}");
        }
    });
}

#[test]
fn match_completion_can_be_the_default_of_sends() {
    alone("offers::match_completion_can_be_the_default_of_sends", &[], |_| {
        let mut hints = Hints::default();
        hints.transmit.op_flags = sys::FI_MATCH_COMPLETE;
        let found = info(&hints).expect("an offer");
        // SAFETY: fi_getinfo(3) gave all parts.
        assert_eq!(unsafe { (*(*found).tx_attr).op_flags }, sys::FI_MATCH_COMPLETE);
        hints.transmit.op_flags = sys::FI_FENCE;
        assert_eq!(info(&hints).err(), Some(sys::FI_ENODATA));
    });
}

#[test]
fn a_wrong_knob_leaves_the_machine_without_a_nic() {
    let test = "offers::a_wrong_knob_leaves_the_machine_without_a_nic";
    alone(test, &[("TAGMATCH_CXI_NIC", "mlx5_0")], |_| {
        assert_eq!(info(&Hints::default()).err(), Some(sys::FI_ENODATA));
    });
}
