//! Commands: what is refused, what is given back, and what a signal interrupts.

use std::sync::Arc;

use super::programs::{Given, Program, TestCq, remote, segment, settings, word};
use super::{ALL, RELIABLE, REQUEST, completions, connected, two};
use crate::abi::{self, ModifyQp, qp_mask};
use crate::nic::Fabric;
use crate::wqe::opcode;

#[test]
fn what_the_kernel_refuses_is_refused_with_its_error() {
    let [mut p, _] = two();
    let cq = p.create_cq(64, None).unwrap();
    let at = p.allocate(4096);
    let refusal = |done: Result<(u32, u32), i32>| done.unwrap_err();
    assert_eq!(refusal(p.register(8, 4096, ALL)), libc::EFAULT);
    assert_eq!(refusal(p.register(at, 0, ALL)), libc::EINVAL);
    assert_eq!(refusal(p.register(at, u64::MAX, ALL)), libc::EINVAL);
    assert_eq!(refusal(p.register(at, 4096, 2)), libc::EINVAL, "remote write without local");
    assert_eq!(refusal(p.register(at, 4096, 1 << 6)), libc::EOPNOTSUPP, "on demand");
    assert_eq!(p.create_srq(8, &cq).err(), Some(libc::EINVAL), "more tags than there are");
    assert_eq!(p.create_qp(&cq, None, 3).err(), Some(libc::EOPNOTSUPP), "unreliable");
    let unknown = TestCq { handle: 77, ..cq };
    assert_eq!(p.create_qp(&unknown, None, RELIABLE).err(), Some(libc::EINVAL));
    assert_eq!(p.create_cq(64, Some(5)).err(), Some(libc::EBADF), "no channel");
    let mut port = |number| {
        let given = [
            Given::In(abi::device::PORT_NUM, vec![number]),
            Given::Out(abi::device::PORT_RESP, 48),
        ];
        p.command(abi::device::QUERY_PORT, &given).err()
    };
    assert_eq!((port(1), port(2)), (None, Some(libc::EINVAL)));
    assert_eq!(p.command(abi::method(9, 9), &[]).err(), Some(libc::EPROTONOSUPPORT));
    let rereg = p.write_command(11, &[0; 48], 8);
    assert_eq!(rereg.err(), Some(libc::EOPNOTSUPP));
    let no_room = [word(abi::device::WRITE_CMD, abi::write_command::QUERY_DEVICE)];
    assert_eq!(p.command(abi::device::INVOKE_WRITE, &no_room).err(), Some(libc::ENOSPC));
}

#[test]
fn objects_in_use_are_busy() {
    let (mut p, [a, _]) = connected(7);
    let busy = |p: &mut Program, method, id, handle: u32| {
        p.command(method, &[Given::Number(id, handle.into())]).err()
    };
    let cq = (abi::cq::DESTROY, abi::cq::DESTROY_HANDLE, a.cq.handle);
    assert_eq!(busy(&mut p[0], cq.0, cq.1, cq.2), Some(libc::EBUSY));
    assert_eq!(busy(&mut p[0], abi::pd::DESTROY, abi::pd::HANDLE, 1), Some(libc::EBUSY));
    let qp = (abi::qp::DESTROY, abi::qp::DESTROY_HANDLE, a.qp.handle);
    assert_eq!(busy(&mut p[0], qp.0, qp.1, qp.2), None);
    assert_eq!(busy(&mut p[0], qp.0, qp.1, qp.2), Some(libc::EINVAL), "it is gone");
    assert_eq!(busy(&mut p[0], cq.0, cq.1, cq.2), None);
    assert_eq!(busy(&mut p[0], abi::mr::DESTROY, abi::mr::HANDLE, a.handle), None);
    assert_eq!(busy(&mut p[0], abi::pd::DESTROY, abi::pd::HANDLE, 1), None);
}

#[test]
fn states_follow_each_other_as_the_kernel_allows() {
    use qp_mask::*;
    let [mut p, _] = two();
    let cq = p.create_cq(64, None).unwrap();
    let qp = p.create_qp(&cq, None, RELIABLE).unwrap();
    let to = |qp_state, attr_mask| ModifyQp {
        qp_state,
        attr_mask: STATE | attr_mask,
        port_num: 1,
        path_mtu: 3,
        ..ModifyQp::default()
    };
    let init = PKEY_INDEX | PORT | ACCESS_FLAGS;
    let refused = [
        to(3, 0),
        to(1, PKEY_INDEX | PORT),
        to(1, init | QKEY),
        to(7, 0),
        ModifyQp { port_num: 2, ..to(1, init) },
        to(2, AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER),
    ];
    for change in refused {
        assert_eq!(p.modify(&qp, change), Err(libc::EINVAL), "{change:?}");
    }
    p.modify(&qp, to(1, init)).unwrap();
    p.modify(&qp, to(1, PORT)).unwrap();
    p.modify(&qp, to(6, 0)).unwrap();
    p.modify(&qp, to(0, 0)).unwrap();
    p.connect(&qp, qp.number, 7);
}

#[test]
fn memory_is_locked_up_to_the_limit_and_given_back() {
    let fabric = Arc::new(Fabric::default());
    let mut p = Program::new(&fabric, &settings(), 3 * 4096);
    let at = p.allocate(4 * 4096);
    assert_eq!(p.register(at, 4 * 4096, ALL), Err(libc::ENOMEM));
    let (handle, _) = p.register(at, 2 * 4096, ALL).unwrap();
    assert_eq!(p.register(at, 2 * 4096, ALL), Err(libc::ENOMEM));
    let given = [Given::Number(abi::mr::HANDLE, handle.into())];
    p.command(abi::mr::DESTROY, &given).unwrap();
    p.register(at, 3 * 4096, ALL).unwrap();
}

/// A signal interrupts a call that was carried out: the library repeats it.
#[test]
fn an_interrupted_command_is_as_if_it_had_not_been_given() {
    let fabric = Arc::new(Fabric::default());
    let mut p = Program::new(&fabric, &settings(), 40 * 4096);
    let at = p.allocate(4096);
    p.caller.is_interrupted.set(true);
    for _ in 0..100 {
        p.register(at, 4096, ALL).unwrap();
    }
    assert_eq!(p.function.objects.locked, 0);
    p.caller.is_interrupted.set(false);
    let (handle, key) = p.register(at, 4096, ALL).unwrap();
    let cq = p.create_cq(64, None).unwrap();
    let mut qp = p.create_qp(&cq, None, RELIABLE).unwrap();
    let destroy = |p: &mut Program, method, id, handle: u32| {
        p.command(method, &[Given::Number(id, handle.into())])
    };
    let init = ModifyQp {
        attr_mask: qp_mask::STATE | qp_mask::PKEY_INDEX | qp_mask::PORT | qp_mask::ACCESS_FLAGS,
        qp_state: 1,
        port_num: 1,
        ..ModifyQp::default()
    };
    p.caller.is_interrupted.set(true);
    for _ in 0..3 {
        destroy(&mut p, abi::mr::DESTROY, abi::mr::HANDLE, handle).unwrap();
        destroy(&mut p, abi::qp::DESTROY, abi::qp::DESTROY_HANDLE, qp.handle).unwrap();
        p.modify(&qp, init).unwrap();
    }
    p.caller.is_interrupted.set(false);
    // The queue pair is where it was, and works; so does the memory.
    p.connect(&qp, qp.number, 7);
    let write = [remote(at, key), segment(at, 8, key)].concat();
    p.post(&mut qp, opcode::WRITE, 0, &write);
    let mut all = [p];
    let mut cq = cq;
    assert_eq!(completions(&mut all, 0, &mut cq, 1)[0].opcode(), REQUEST);
}

/// What `ibv_devinfo(1)` shows of a port, and what libmlx5 makes its registers of.
#[test]
fn a_device_says_what_it_is() {
    let [mut p, _] = two();
    let port = [word(abi::device::PORT_NUM, 1), Given::Out(abi::device::PORT_RESP, 48)];
    let port = p.command(abi::device::QUERY_PORT, &port).unwrap().remove(1);
    let half = |at: usize| u16::from_ne_bytes(port[at..at + 2].try_into().unwrap());
    let longest = u32::from_ne_bytes(port[4..8].try_into().unwrap());
    assert_eq!((longest, half(22), port[26], port[37]), (1 << 30, 1, 4, 1));
    let mut entry = |number, index| {
        let given = [
            word(abi::device::ENTRY_PORT, number),
            word(abi::device::ENTRY_INDEX, index),
            Given::Out(abi::device::ENTRY_RESP, 32),
        ];
        p.command(abi::device::QUERY_GID_ENTRY, &given).map(|mut answers| answers.remove(2))
    };
    let name = entry(1, 0).unwrap();
    assert_eq!(
        (&name[..2], &name[8..16]),
        (&[0xfe, 0x80][..], &[0x0c, 0x42, 0xa1, 3, 0, 0, 0, 0x33][..])
    );
    assert_eq!((entry(1, 1), entry(1, 7)), (Err(libc::ENODATA), Err(libc::ENODATA)));
    assert_eq!((entry(1, 8), entry(2, 0)), (Err(libc::EINVAL), Err(libc::EINVAL)));
    let mut table = |size: u64, room| {
        let given = [
            Given::In(abi::device::TABLE_ENTRY_SIZE, size.to_ne_bytes().to_vec()),
            Given::Out(abi::device::TABLE_ENTRIES, room),
            Given::Out(abi::device::TABLE_COUNT, 8),
        ];
        p.command(abi::device::QUERY_GID_TABLE, &given)
    };
    let known = table(32, 32).unwrap();
    assert_eq!((&known[1], known[2][0]), (&name, 1));
    assert_eq!(table(31, 32).err(), Some(libc::EINVAL));
    assert_eq!(table(32, 31).err(), Some(libc::EINVAL));
    let number = abi::write_command::QUERY_DEVICE | abi::write_command::EXTENDED;
    let device = p.write_command(number, &[0; 8], 304).unwrap();
    let at = std::mem::offset_of!(abi::ExtendedDeviceAttributes, tm_caps);
    let list: Vec<u32> = device[at..at + 20]
        .chunks(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(list, [64, 7, 1, 32768, 1]);
    let uar = |p: &mut Program| {
        let given = [
            Given::Number(abi::uar::HANDLE, 0),
            Given::Out(abi::uar::MMAP_OFFSET, 8),
            Given::Out(abi::uar::MMAP_LENGTH, 4),
            Given::Out(abi::uar::PAGE_ID, 4),
        ];
        p.command(abi::uar::ALLOC, &given).unwrap()
    };
    let first = uar(&mut p);
    let second = uar(&mut p);
    let offset = |answers: &[Vec<u8>]| u64::from_ne_bytes(answers[1][..].try_into().unwrap());
    assert_eq!((offset(&first), offset(&second)), (0, 4096));
    let handle = u64::from_ne_bytes(first[0][..].try_into().unwrap());
    p.command(abi::uar::DESTROY, &[Given::Number(abi::uar::DESTROY_HANDLE, handle)]).unwrap();
    assert_eq!(offset(&uar(&mut p)), 0, "a page is given again");
}
