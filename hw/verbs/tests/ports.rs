//! Which ports are used, and which of them reach each other.

mod scripted;

use tagmatch_device::Device;
use tagmatch_rdma_core_sys as sys;
use tagmatch_testkit::device::{again, connect};
use tagmatch_verbs::{Verbs, VerbsInfo};

use scripted::{Card, IWARP, calls, config, install, is_old, up};

const V1: sys::ibv_gid_type = sys::IBV_GID_TYPE_ROCE_V1;
const V2: sys::ibv_gid_type = sys::IBV_GID_TYPE_ROCE_V2;

/// What a worker on the first card says of one on the second.
fn refusal(one: Card, other: Card) -> Option<String> {
    let names = [one.name, other.name];
    install(&[one, other]);
    let mut a = up(names[0]);
    let b = up(names[1]);
    a.connect(&b.address()).err().map(|error| error.to_string())
}

/// A packet of version 1 has a header of IPv6's form, whatever the GIDs are.
#[test]
fn workers_connect_over_each_version_of_roce_and_each_kind_of_address() {
    for kind in [V1, V2] {
        for [one, other] in [["::ffff:10.0.0.1", "::ffff:10.0.0.2"], ["fe80::1", "fe80::2"]] {
            install(&[Card::roce("a", one, kind), Card::roce("b", other, kind)]);
            let mut a = up("a");
            let mut b = up("b");
            connect(&mut a, &mut b);
        }
    }
}

#[test]
fn ports_that_do_not_reach_each_other_are_named_at_once() {
    let roce = |address, kind| Card::roce("a", address, kind);
    let other = |address, kind| Card::roce("b", address, kind);
    let cases = [
        (Card::infiniband("a", 1, 0), Card::infiniband("b", 2, 7), "subnet"),
        (Card::infiniband("a", 1, 0), other("::ffff:10.0.0.2", V2), "Ethernet"),
        (roce("::ffff:10.0.0.1", V1), other("::ffff:10.0.0.2", V2), "version 1"),
        (roce("::ffff:10.0.0.1", V2), other("2001:db8::2", V2), "IPv6"),
        (roce("2001:db8::1", V2), other("fe80::2", V2), "link-local"),
    ];
    for (one, other, why) in cases {
        for (one, other) in [(one.clone(), other.clone()), (other, one)] {
            let text = refusal(one, other).expect("they don't reach each other");
            assert!(text.contains(why), "{text}");
        }
    }
    // Nothing is known of the networks behind these addresses.
    assert_eq!(refusal(roce("::ffff:10.0.0.1", V2), other("::ffff:10.9.0.2", V2)), None);
}

/// Cards that can't work, with what is said of each.
fn useless() -> Vec<(Card, &'static str)> {
    let good = |name| Card::roce(name, "::ffff:10.0.0.9", V2);
    let mut iwarp = good("cxgb4_0");
    iwarp.transport = IWARP;
    let mut unspecified = Card::infiniband("efa_0", 1, 0);
    (unspecified.port.link_layer, unspecified.srqs_max) = (sys::IBV_LINK_LAYER_UNSPECIFIED, 0);
    let mut without_queues = good("mana_0");
    without_queues.srqs_max = 0;
    let mut odd = Card::infiniband("odd_0", 1, 0);
    odd.port.link_layer = sys::IBV_LINK_LAYER_UNSPECIFIED;
    let mut down = good("mlx5_7");
    down.port.state = sys::IBV_PORT_DOWN;
    let mut unnamed = good("mlx5_8");
    unnamed.gids.clear();
    vec![
        (iwarp, "iWARP"),
        (unspecified, "shared receive queues"),
        (without_queues, "shared receive queues"),
        (odd, "link layer"),
        (down, "not active"),
        (unnamed, "no address"),
    ]
}

#[test]
fn ports_that_can_not_work_are_left_out_and_it_is_said_why() {
    let mut cards: Vec<Card> = useless().into_iter().map(|(card, _)| card).collect();
    cards.push(Card::roce("mlx5_9", "::ffff:10.0.0.1", V2));
    install(&cards);
    let info = Verbs::probe(&config(""));
    assert!(info.device.is_available && info.device.reason == "mlx5_9", "{info}");
    for (card, why) in useless() {
        let is_said = |line: &String| line.starts_with(card.name) && line.contains(why);
        assert!(info.left_out.iter().any(is_said), "{}: {:?}", card.name, info.left_out);
        assert!(info.to_string().contains(why), "{info}");
    }
    up("");
}

/// If nothing else is there, or if the settings ask for it.
#[test]
fn a_port_that_can_not_work_is_refused_with_its_reason() {
    let cards: Vec<Card> = useless().into_iter().map(|(card, _)| card).collect();
    install(&cards);
    for (card, why) in useless() {
        let error = Verbs::new(config(card.name)).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(card.name), "{error}");
        let error = Verbs::new(config("")).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(card.name), "{error}");
        let info: VerbsInfo = Verbs::probe(&config(card.name));
        assert!(!info.device.is_available && info.to_string().contains(why), "{info}");
    }
}

/// All ranks end up in one network.
#[test]
fn ranks_take_turns_at_ports_of_one_network_alone() {
    let cards = [
        Card::infiniband("a", 1, 4),
        Card::infiniband("b", 1, 2),
        Card::roce("c", "::ffff:10.0.0.1", V2),
    ];
    for order in [[0, 1, 2], [2, 1, 0]] {
        install(&order.map(|at| cards[at].clone()));
        let info = Verbs::probe(&config(""));
        assert_eq!(info.device.reason, "b", "{info}");
    }
    let cards = [
        Card::roce("a", "::ffff:10.0.0.1", V1),
        Card::roce("b", "fe80::1", V2),
        Card::roce("c", "2001:db8::1", V2),
        Card::roce("d", "::ffff:10.0.0.1", V2),
    ];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        install(&order.map(|at| cards[at].clone()));
        let info = Verbs::probe(&config(""));
        assert_eq!(info.device.reason, "d", "{info}");
    }
}

#[test]
fn a_library_without_the_newer_query_works_on_infiniband_and_is_named_on_ethernet() {
    is_old();
    install(&[Card::infiniband("a", 1, 0), Card::infiniband("b", 2, 0)]);
    let mut a = up("a");
    let mut b = up("b");
    connect(&mut a, &mut b);
    drop((a, b));
    install(&[Card::roce("c", "::ffff:10.0.0.1", V2)]);
    let error = Verbs::new(config("c")).unwrap_err().to_string();
    assert!(error.contains("rdma-core 32"), "{error}");
}

/// Memory that only payloads are written to. The order of two writes to a message that the driver
/// polls for would matter; it polls for none.
#[test]
fn payloads_may_be_written_in_any_order_and_nothing_else() {
    const RELAXED: u32 = 1 << 20;
    install(&[Card::infiniband("a", 1, 0)]);
    let mut a = up("a");
    let before = calls(|calls| calls.accesses.clone());
    assert!(!before.is_empty() && before.iter().all(|access| access & RELAXED == 0));
    let buffer = a.allocate(1 << 20).unwrap();
    let after = calls(|calls| calls.accesses.clone());
    // Beside the buffer, memory of the device's own may have been registered.
    let (payload, others) = after.split_last().unwrap();
    assert_ne!(payload & RELAXED, 0);
    assert!(others.iter().all(|access| access & RELAXED == 0), "{after:?}");
    drop((buffer, a));
    // An older library knows no such access.
    is_old();
    let mut a = up("a");
    drop(a.allocate(1 << 20).unwrap());
    let accesses = calls(|calls| calls.accesses.clone());
    assert_eq!(accesses.last().unwrap() & RELAXED, 0);
}

/// As the launcher numbers them. Each of these processes runs this test, too.
#[test]
fn each_rank_of_a_machine_takes_another_interrupt() {
    const RANK: &str = "MPI_LOCALRANKID";
    let Ok(rank) = std::env::var(RANK) else {
        for rank in 0..6 {
            let test = "each_rank_of_a_machine_takes_another_interrupt";
            again(test, &[(RANK, &rank.to_string())]);
        }
        return;
    };
    let card = Card { vectors: 4, ..Card::infiniband("a", 1, 0) };
    install(&[card]);
    let _a = up("a");
    assert_eq!(calls(|calls| calls.vectors.clone()), [rank.parse::<i32>().unwrap() % 4]);
}
