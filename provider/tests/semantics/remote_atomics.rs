//! Atomic operations: fi_atomic(3).

use crate::client::{
    Elements, Hints, Memory, Place, Region, World, alone_one_sided, sys, within_limit,
};

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;
const BASE: u64 = sys::FI_ATOMIC | sys::FI_WRITE;
const FETCH: u64 = sys::FI_ATOMIC | sys::FI_READ;
const U64: u32 = sys::FI_UINT64;

fn world() -> (World, Memory, Region, Place) {
    let caps = sys::FI_RMA | sys::FI_ATOMIC | sys::FI_MSG;
    let world = World::of(2, &Hints { caps, ..Hints::default() }, BOTH);
    let memory = Memory::new(1 << 20);
    let region = world.node(1).domain.region(memory, 3);
    let place = Place { peer: world.address(1), key: 3, address: 0 };
    (world, memory, region, place)
}

fn u64s(op: u32) -> Elements {
    Elements { op, datatype: U64, size: 8 }
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn memory_of(values: &[u64]) -> Memory {
    Memory::of(&bytes(values))
}

#[test]
fn each_form_changes_the_elements_and_those_that_fetch_give_the_old_ones() {
    let name =
        "remote_atomics::each_form_changes_the_elements_and_those_that_fetch_give_the_old_ones";
    alone_one_sided(name, || {
        let (world, memory, region, place) = world();
        let endpoint = world.endpoint(0);
        let at = Place { address: 8, ..place };
        let operand = memory_of(&[10, 20, 30]);
        let parts = [operand.part(0, 8), operand.part(8, 16)];
        let target = memory.part(8, 24);
        let sum = u64s(sys::FI_SUM);
        for way in 0..4 {
            memory.write(&bytes(&[9, 1, 2, 3, 9]));
            match way {
                0 => endpoint.atomic(operand, at, sum, 1),
                1 => endpoint.atomicv(&parts, at, sum, 1),
                2 => endpoint.atomicmsg(&parts, at, sum, (1, 0)),
                _ => endpoint.atomicmsg(&[operand], at, sum, (1, sys::FI_INJECT)),
            }
            .unwrap();
            assert_eq!(world.success(0, 1).flags, BASE);
            assert_eq!(memory.part(0, 40).bytes(), bytes(&[9, 11, 22, 33, 9]));
        }
        for way in 0..3 {
            target.write(&bytes(&[1, 2, 3]));
            let old = Memory::new(24);
            let olds = [old.part(0, 16), old.part(16, 8)];
            match way {
                0 => endpoint.fetch_atomic([operand, old], at, sum, 2),
                1 => endpoint.fetch_atomicv([&parts, &olds], at, sum, 2),
                _ => endpoint.fetch_atomicmsg([&parts, &olds], at, sum, (2, sys::FI_COMPLETION)),
            }
            .unwrap();
            assert_eq!(world.success(0, 2).flags, FETCH);
            assert_eq!(old.bytes(), bytes(&[1, 2, 3]));
            assert_eq!(target.bytes(), bytes(&[11, 22, 33]));
        }
        let swap = u64s(sys::FI_CSWAP);
        for way in 0..3 {
            target.write(&bytes(&[1, 2, 3]));
            let compare = memory_of(&[1, 0, 3]);
            let compares = [compare.part(0, 8), compare.part(8, 8), compare.part(16, 8)];
            let old = Memory::new(24);
            match way {
                0 => endpoint.compare_atomic([operand, compare, old], at, swap, 3),
                1 => endpoint.compare_atomicv([&parts, &compares, &[old]], at, swap, 3),
                _ => endpoint.compare_atomicmsg([&parts, &compares, &[old]], at, swap, (3, 0)),
            }
            .unwrap();
            assert_eq!(world.success(0, 3).flags, FETCH);
            assert_eq!(old.bytes(), bytes(&[1, 2, 3]));
            assert_eq!(target.bytes(), bytes(&[10, 2, 30]));
        }
        // The operands of an injected operation may be changed at once. It has an entry.
        for compares in [false, true] {
            target.write(&bytes(&[1, 2, 3]));
            let values = memory_of(&[10, 20, 30, 1, 2, 3]);
            let [from, compare] = [values.part(0, 24), values.part(24, 24)];
            let old = [Memory::new(24)];
            let flags = (3, sys::FI_INJECT);
            if compares {
                endpoint.compare_atomicmsg([&[from], &[compare], &old], at, swap, flags).unwrap();
            } else {
                endpoint.fetch_atomicmsg([&[from], &old], at, sum, flags).unwrap();
            }
            values.write(&bytes(&[0; 6]));
            assert_eq!(world.success(0, 3).flags, FETCH);
            let new = if compares { [10, 20, 30] } else { [11, 22, 33] };
            assert_eq!((old[0].bytes(), target.bytes()), (bytes(&[1, 2, 3]), bytes(&new)));
        }
        target.write(&bytes(&[10, 2, 30]));
        // A read has no operands, wherever they would be.
        let old = Memory::new(24);
        let read = u64s(sys::FI_ATOMIC_READ);
        endpoint.fetch_atomic([Memory::NULL, old], at, read, 4).unwrap();
        world.success(0, 4);
        assert_eq!(old.bytes(), bytes(&[10, 2, 30]));
        // An injected operation has no entry.
        endpoint.inject_atomic(&bytes(&[5, 6, 7]), at, u64s(sys::FI_ATOMIC_WRITE)).unwrap();
        within_limit("the new values", || {
            world.progress();
            (target.bytes() == bytes(&[5, 6, 7])).then_some(())
        });
        world.expect_silence();
        region.close().unwrap();
    });
}

/// Sizes of the types by their numbers; 0 for those that there are not.
const SIZES: [usize; 18] = [1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, 0, 0, 16, 16, 0, 0];

#[test]
fn each_combination_that_is_valid_works_and_no_other_one_begins() {
    let name = "remote_atomics::each_combination_that_is_valid_works_and_no_other_one_begins";
    alone_one_sided(name, || {
        let (world, memory, region, place) = world();
        let endpoint = world.endpoint(0);
        let domain = world.node(0).domain;
        let mut valid_counts = [0; 3];
        for (datatype, op) in (0..18u32).flat_map(|datatype| (0..21).map(move |op| (datatype, op)))
        {
            let size = SIZES[datatype as usize];
            let what = Elements { op, datatype, size: size.max(1) };
            let operand = Memory::of(&vec![1; 2 * what.size]);
            let old = Memory::new(2 * what.size);
            memory.write(&[2; 40]);
            let valid = endpoint.atomic_valid(what);
            let flags = [0, sys::FI_FETCH_ATOMIC, sys::FI_COMPARE_ATOMIC];
            let queried = flags.map(|flag| domain.query_atomic(what, flag));
            let begun = [
                endpoint.atomic(operand, place, what, 1),
                endpoint.fetch_atomic([operand, old], place, what, 1),
                endpoint.compare_atomic([operand, operand, old], place, what, 1),
            ];
            for form in 0..3 {
                let count = valid[form];
                assert_eq!(queried[form].map(|(_, count)| count), count);
                assert_eq!(begun[form].err(), count.err(), "{datatype} {op} {form}");
                if count.is_ok() {
                    valid_counts[form] += 1;
                    assert_eq!(queried[form], Ok((size, 65536 / size)));
                    world.success(0, 1);
                } else {
                    assert_eq!(count, Err(sys::FI_EOPNOTSUPP));
                }
            }
        }
        // 10 integers, 2 floats, 2 complex types; with bits, order, and equality alone.
        assert_eq!(
            valid_counts,
            [10 * 11 + 2 * 8 + 2 * 6, 10 * 12 + 2 * 9 + 2 * 7, 10 * 7 + 2 * 6 + 2 * 2]
        );
        assert_eq!(domain.query_atomic(u64s(sys::FI_SUM), sys::FI_TAGGED), Err(sys::FI_EOPNOTSUPP));
        region.close().unwrap();
    });
}

#[test]
fn as_many_elements_as_are_told_are_taken_and_no_more() {
    let name = "remote_atomics::as_many_elements_as_are_told_are_taken_and_no_more";
    alone_one_sided(name, || {
        let (world, memory, region, place) = world();
        let endpoint = world.endpoint(0);
        let count = endpoint.atomic_valid(u64s(sys::FI_SUM))[1].unwrap();
        let ones = memory_of(&vec![1; count + 1]);
        let most = ones.part(0, 8 * count);
        memory.write(&vec![0; 8 * count]);
        let old = Memory::new(8 * count + 8);
        let sum = u64s(sys::FI_SUM);
        endpoint.fetch_atomic([most, old.part(0, 8 * count)], place, sum, 1).unwrap();
        world.success(0, 1);
        assert!(old.part(0, 8 * count).bytes() == vec![0; 8 * count]);
        assert!(memory.part(0, 8 * count).bytes() == most.bytes());
        assert_eq!(endpoint.fetch_atomic([ones, old], place, sum, 1), Err(sys::FI_EMSGSIZE));
        assert_eq!(endpoint.atomic(ones, place, sum, 1), Err(sys::FI_EMSGSIZE));
        assert_eq!(endpoint.inject_atomic(&vec![0; 4104], place, sum), Err(sys::FI_EMSGSIZE));
        // No elements, other numbers of them, and null.
        let none = Memory::NULL;
        let two = memory_of(&[1, 2]);
        let three = Memory::new(24);
        let null = Memory::claimed(std::ptr::null_mut(), 16);
        for answer in [
            endpoint.atomic(none, place, sum, 1),
            endpoint.fetch_atomicv([&[two], &[three]], place, sum, 1),
            endpoint.compare_atomicv([&[two], &[three], &[two]], place, u64s(sys::FI_CSWAP), 1),
            endpoint.compare_atomicv([&[two], &[two], &[three]], place, u64s(sys::FI_CSWAP), 1),
            endpoint.fetch_atomic([null, two], place, sum, 1),
            endpoint.fetch_atomic([two, null], place, sum, 1),
            endpoint.atomicv(&[two; 5], place, sum, 1),
        ] {
            assert_eq!(answer, Err(sys::FI_EINVAL));
        }
        let flagged = endpoint.atomicmsg(&[two], place, sum, (1, sys::FI_REMOTE_CQ_DATA));
        assert_eq!(flagged, Err(sys::FI_EBADFLAGS));
        world.expect_silence();
        region.close().unwrap();
    });
}

#[test]
fn an_atomic_operation_needs_the_rights_to_what_it_does() {
    let name = "remote_atomics::an_atomic_operation_needs_the_rights_to_what_it_does";
    alone_one_sided(name, || {
        let (world, memory, region, _) = world();
        let domain = world.node(1).domain;
        let readable = Region::open(domain, memory, sys::FI_REMOTE_READ, 4).unwrap();
        let writable = Region::open(domain, memory, sys::FI_REMOTE_WRITE, 5).unwrap();
        memory.write(&bytes(&[7]));
        let place = |key| Place { peer: world.address(1), key, address: 0 };
        let endpoint = world.endpoint(0);
        let one = memory_of(&[1]);
        let old = Memory::new(8);
        let sum = u64s(sys::FI_SUM);
        let read = u64s(sys::FI_ATOMIC_READ);
        endpoint.fetch_atomic([one, old], place(4), read, 1).unwrap();
        world.success(0, 1);
        assert_eq!(old.bytes(), bytes(&[7]));
        endpoint.atomic(one, place(4), sum, 2).unwrap();
        world.failure(0, 2, sys::FI_EACCES);
        endpoint.fetch_atomic([one, old], place(4), sum, 2).unwrap();
        world.failure(0, 2, sys::FI_EACCES);
        endpoint.fetch_atomic([one, old], place(5), sum, 2).unwrap();
        world.failure(0, 2, sys::FI_EACCES);
        endpoint.fetch_atomic([one, old], place(5), read, 2).unwrap();
        world.failure(0, 2, sys::FI_EACCES);
        assert_eq!(memory.part(0, 8).bytes(), bytes(&[7]));
        endpoint.atomic(one, place(5), sum, 3).unwrap();
        world.success(0, 3);
        endpoint.fetch_atomic([one, old], place(3), sum, 4).unwrap();
        world.success(0, 4);
        assert_eq!(memory.part(0, 8).bytes(), bytes(&[9]));
        [region, readable, writable].iter().for_each(|region| region.close().map(|_| ()).unwrap());
    });
}

#[test]
fn operations_of_several_peers_on_an_element_add_up() {
    let name = "remote_atomics::operations_of_several_peers_on_an_element_add_up";
    alone_one_sided(name, || {
        let caps = sys::FI_ATOMIC;
        let world = World::of(3, &Hints { caps, ..Hints::default() }, BOTH);
        let memory = memory_of(&[0]);
        let region = world.node(2).domain.region(memory, 0);
        let place = Place { peer: world.address(2), key: 0, address: 0 };
        let one = memory_of(&[1]);
        let mut seen = Vec::new();
        for _ in 0..100 {
            let olds = [0, 1, 2].map(|node| {
                let old = Memory::new(8);
                let sum = u64s(sys::FI_SUM);
                world.endpoint(node).fetch_atomic([one, old], place, sum, 1).unwrap();
                old
            });
            for (node, old) in olds.iter().enumerate() {
                world.success(node, 1);
                seen.push(u64::from_ne_bytes(old.bytes().try_into().unwrap()));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
        assert_eq!(memory.bytes(), bytes(&[300]));
        region.close().unwrap();
    });
}

#[test]
fn an_operation_on_elements_of_several_places_has_one_entry() {
    alone_one_sided(
        "remote_atomics::an_operation_on_elements_of_several_places_has_one_entry",
        || {
            let (world, memory, region, place) = world();
            let endpoint = world.endpoint(0);
            memory.part(0, 40).write(&bytes(&[1, 2, 3, 4, 5]));
            let at = |element: u64| Place { address: 8 * element, ..place };
            let from = [memory_of(&[10, 20]), memory_of(&[30])];
            let old = memory_of(&[0; 3]);
            let places = [(at(4), 1), (at(1), 2)];
            endpoint
                .fetch_atomicmsg_on([&from, &[old]], &places, u64s(sys::FI_SUM), (1, 0))
                .unwrap();
            assert_eq!(world.success(0, 1).flags, FETCH);
            assert_eq!(old.bytes(), bytes(&[5, 2, 3]));
            assert_eq!(memory.part(0, 40).bytes(), bytes(&[1, 22, 33, 4, 15]));
            for places in [&[(at(4), 3), (at(0), 0)][..], &[(at(4), 1), (at(0), 1)]] {
                let answer =
                    endpoint.fetch_atomicmsg_on([&from, &[old]], places, u64s(sys::FI_SUM), (1, 0));
                assert_eq!(answer, Err(sys::FI_EINVAL));
            }
            world.expect_silence();
            region.close().unwrap();
        },
    );
}
