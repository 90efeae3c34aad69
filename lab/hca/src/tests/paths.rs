//! Paths to peers: which addresses are refused, and ports on Ethernet.

use zerocopy::{FromBytes, IntoBytes};

use super::knobs::programs;
use super::programs::{Given, Program, segment, turns, word};
use super::{ALL, RELIABLE, REQUEST, completions, datagrams};
use crate::abi::{self, CreateAh, CreatedAh, Destination, GidEntry, ModifyQp};
use crate::gid::of_ipv4;
use crate::wqe::opcode;

/// A queue pair in INIT, and the errors of its way to RTR by each path.
fn errors(knobs: &[(&str, &str)], paths: &[Destination]) -> Vec<Result<(), i32>> {
    use abi::qp_mask::*;
    let [mut p, _] = programs(knobs);
    let cq = p.create_cq(64, None).unwrap();
    let qp = p.create_qp(&cq, None, RELIABLE).unwrap();
    let init = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
    let ready = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    let to = |qp_state, attr_mask, dest| ModifyQp {
        qp_state,
        attr_mask,
        dest,
        port_num: 1,
        path_mtu: 3,
        ..ModifyQp::default()
    };
    let mut one = |path: &Destination| {
        p.modify(&qp, to(0, STATE, *path)).unwrap();
        p.modify(&qp, to(1, init, *path)).unwrap();
        p.modify(&qp, to(2, ready, *path))
    };
    paths.iter().map(&mut one).collect()
}

/// A path with a GRH.
fn global(sgid_index: u8, dgid: [u8; 16]) -> Destination {
    Destination { dgid, sgid_index, is_global: 1, port_num: 1, dlid: 1, ..Default::default() }
}

/// `rdma_get_gid_attr`: ENODATA for an empty row, EINVAL beyond the table.
#[test]
fn a_path_from_a_row_of_the_table_that_has_no_gid_is_refused() {
    let local = Destination { port_num: 1, dlid: 1, sgid_index: 77, ..Default::default() };
    let paths = [
        global(0, [0; 16]),
        global(1, [0; 16]),
        global(77, [0; 16]),
        // Without a GRH, nothing looks at the row.
        local,
        Destination { port_num: 0, ..local },
        Destination { port_num: 2, ..local },
    ];
    let no_data = Err(libc::ENODATA);
    let invalid = Err(libc::EINVAL);
    assert_eq!(errors(&[], &paths), [Ok(()), no_data, invalid, Ok(()), invalid, invalid]);
}

#[test]
fn a_path_on_ethernet_needs_gids_of_both_ports() {
    let ethernet = ("link_layer", "ethernet");
    let peer = of_ipv4([10, 0, 0, 1]);
    let paths = [
        global(2, peer),
        global(3, peer),
        global(4, peer),
        global(77, peer),
        Destination { is_global: 0, ..global(2, peer) },
        global(2, of_ipv4([10, 0, 0, 2])),
    ];
    let no_data = Err(libc::ENODATA);
    let invalid = Err(libc::EINVAL);
    let timed_out = Err(libc::ETIMEDOUT);
    let expected = [Ok(()), Ok(()), no_data, invalid, invalid, timed_out];
    assert_eq!(errors(&[ethernet], &paths), expected);
    // Of one version there are two rows.
    let expected = [no_data, no_data, no_data, invalid, invalid, no_data];
    assert_eq!(errors(&[ethernet, ("roce", "1")], &paths), expected);
    assert_eq!(errors(&[("link_layer", "iwarp")], &paths[..1]), [invalid]);
}

#[test]
fn an_iwarp_device_has_no_datagrams() {
    let [mut p, _] = programs(&[("link_layer", "iwarp")]);
    let cq = p.create_cq(64, None).unwrap();
    assert_eq!(p.create_qp(&cq, None, 4).err(), Some(libc::EOPNOTSUPP));
}

#[test]
fn an_ethernet_port_says_its_gids_and_no_lid() {
    let [mut p, _] = programs(&[("link_layer", "ethernet")]);
    let given = [word(abi::device::PORT_NUM, 1), Given::Out(abi::device::PORT_RESP, 48)];
    let port = p.command(abi::device::QUERY_PORT, &given).unwrap().remove(1);
    let port = abi::PortAttributes::read_from_bytes(&port).unwrap();
    assert_eq!((port.lid, port.link_layer, port.active_mtu, port.max_mtu), (0, 2, 3, 5));
    let mut table = |rows: u16| {
        let given = [
            Given::In(abi::device::TABLE_ENTRY_SIZE, 32_u64.to_ne_bytes().to_vec()),
            Given::Out(abi::device::TABLE_ENTRIES, 32 * rows),
            Given::Out(abi::device::TABLE_COUNT, 8),
        ];
        p.command(abi::device::QUERY_GID_TABLE, &given)
    };
    let known = table(5).unwrap();
    assert_eq!((known[2][0], known[1][128..].to_vec()), (4, vec![0; 32]));
    let rows = known[1].chunks(32).map(|row| GidEntry::read_from_bytes(row).unwrap());
    let rows: Vec<_> = rows.take(4).map(|row| (row.gid_index, row.gid_type, row.gid)).collect();
    let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x0e, 0x42, 0xa1, 0xff, 0xfe, 0, 0, 0x33];
    let ipv4 = of_ipv4([10, 0, 0, 1]);
    assert_eq!(rows, [(0, 1, local), (1, 2, local), (2, 1, ipv4), (3, 2, ipv4)]);
    assert_eq!(table(3).err(), Some(libc::EINVAL));
}

/// An address handle to a GID: its handle, and the Ethernet address of the peer.
fn address(p: &mut Program, sgid_index: u8, dgid: [u8; 16]) -> Result<(u32, [u8; 6]), i32> {
    let request = CreateAh {
        pd_handle: 1,
        dgid,
        sgid_index,
        is_global: 1,
        port_num: 1,
        ..Default::default()
    };
    let given = [
        word(abi::device::WRITE_CMD, abi::write_command::CREATE_AH),
        Given::In(abi::device::CORE_IN, request.as_bytes().to_vec()),
        Given::Out(abi::device::CORE_OUT, 4),
        Given::Out(abi::UHW_OUT, 16),
    ];
    let answers = p.command(abi::device::INVOKE_WRITE, &given)?;
    let created = CreatedAh::read_from_bytes(&answers[3]).unwrap();
    Ok((u32::from_ne_bytes(answers[2][..4].try_into().unwrap()), created.dmac))
}

#[test]
fn an_address_handle_finds_its_peer_and_is_destroyed_once() {
    let [mut p, _] = programs(&[("link_layer", "ethernet")]);
    let peer = of_ipv4([10, 0, 0, 1]);
    let (handle, mac) = address(&mut p, 2, peer).unwrap();
    assert_eq!(mac, [0x0c, 0x42, 0xa1, 0, 0, 0x33]);
    let (other, _) = address(&mut p, 2, peer).unwrap();
    assert_eq!(address(&mut p, 5, peer), Err(libc::ENODATA));
    assert_eq!(address(&mut p, 2, [7; 16]), Err(libc::ETIMEDOUT));
    let destroy = |p: &mut Program, handle: u32| {
        let number = abi::write_command::DESTROY_AH;
        p.write_command(number, &handle.to_ne_bytes(), 0).map(drop)
    };
    let by_ioctl = [Given::Number(abi::ah::HANDLE, other.into())];
    assert!(p.command(abi::ah::DESTROY, &by_ioctl).is_ok());
    assert_eq!(destroy(&mut p, handle), Ok(()));
    for gone in [handle, other, 1] {
        assert_eq!(destroy(&mut p, gone), Err(libc::EINVAL));
    }
}

/// What a datagram says of its way: RoCE version 1 has a GRH, whatever its GIDs are.
#[test]
fn a_datagram_on_ethernet_goes_by_its_gid_and_has_the_header_of_its_version() {
    // The row of the sender; the knob; the version of IPv6, and the protocol of IPv4.
    for (row, roce, halves) in [
        (2, "both", Some((0x60, 0))),
        (3, "both", Some((0, 17))),
        (1, "1", Some((0x60, 0))),
        (1, "2", Some((0, 17))),
        (5, "both", None),
    ] {
        let mut p = programs(&[("link_layer", "ethernet"), ("roce", roce)]);
        let cqs = p.each_mut().map(|program| program.create_cq(64, None).unwrap());
        let [mut from, mut to] = [0, 1].map(|at| datagrams(&mut p[at], &cqs[at]));
        let at = p.each_mut().map(|program| program.allocate(4096));
        let keys = [0, 1].map(|n| p[n].register(at[n], 4096, ALL).unwrap().1);
        p[1].post_receive(&mut to, at[1], 256, keys[1]);
        let gid = of_ipv4([10, 0, 0, 1]);
        let number = to.number | 1 << 31;
        let place: u32 = row << 20;
        let address = [
            &7_u32.to_be_bytes()[..],
            &[0; 4],
            &number.to_be_bytes(),
            &[0; 16],
            &place.to_be_bytes(),
            &gid,
        ]
        .concat();
        p[0].post(&mut from, opcode::SEND, 0, &[address, segment(at[0], 8, keys[0])].concat());
        assert_eq!(completions(&mut p, 0, &mut { cqs[0] }, 1)[0].opcode(), REQUEST);
        turns(&mut p, 3);
        let received = p[1].poll(&mut { cqs[1] });
        let header = p[1].get(at[1], 40);
        if let (Some(received), Some((_, protocol))) = (received.first(), halves) {
            let packet = if protocol == 17 { 8 | 2 } else { 0 };
            assert_eq!(received.0[24], 1 << 4 | packet, "a header, and of which packet");
        }
        let found = received.first().map(|_| (header[0], header[29]));
        assert_eq!(found, halves, "row {row} of {roce}");
    }
}
