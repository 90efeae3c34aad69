//! Memory regions that peers use: fi_mr(3).

use std::ffi::c_int;

use crate::client::{
    Domain, Elements, Hints, Memory, Node, Place, QueueSettings, Region, World, alone_one_sided,
    alone_with, sys, within_limit,
};

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;
const ACCESS: u64 = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

fn hints(mr_mode: c_int) -> Hints {
    let caps = sys::FI_MSG | sys::FI_TAGGED | sys::FI_RMA | sys::FI_ATOMIC;
    Hints { caps, mr_mode, ..Hints::default() }
}

fn world(mr_mode: c_int) -> World {
    World::of(2, &hints(mr_mode), BOTH)
}

fn mode_of(hints: &Hints) -> c_int {
    let domain = Domain::of(hints);
    // SAFETY: `fi_getinfo` gave all parts.
    let mode = unsafe { (*(*domain.info).domain_attr).mr_mode };
    domain.close();
    mode
}

#[test]
fn memory_is_registered_as_versions_before_1_5_ask_and_otherwise_in_the_plain_way() {
    alone_one_sided(
        "regions::memory_is_registered_as_versions_before_1_5_ask_and_otherwise_in_the_plain_way",
        || {
            let virtual_keys = sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;
            for mode in [0, sys::FI_MR_LOCAL, virtual_keys, virtual_keys | sys::FI_MR_ENDPOINT] {
                assert_eq!(mode_of(&hints(mode)), 0);
            }
            assert_eq!(mode_of(&hints(sys::FI_MR_BASIC)), sys::FI_MR_BASIC);
            assert_eq!(mode_of(&hints(sys::FI_MR_SCALABLE)), sys::FI_MR_SCALABLE);
            let old = Hints { version: sys::FI_VERSION(1, 4), ..hints(0) };
            assert_eq!(mode_of(&old), sys::FI_MR_SCALABLE);
            let mixed = hints(sys::FI_MR_BASIC | sys::FI_MR_VIRT_ADDR);
            assert_eq!(crate::client::info_for(&mixed, None, 0).err(), Some(sys::FI_ENODATA));
        },
    );
}

/// A domain whose program has set these ways to register memory.
fn domain_with(mr_mode: c_int) -> Domain {
    let info = crate::client::info_for(&hints(0), None, 0).unwrap();
    // SAFETY: `fi_getinfo` gave all parts, and nothing else uses them now.
    unsafe { (*(*info).domain_attr).mr_mode = mr_mode };
    Domain::opened(info)
}

#[test]
fn keys_and_addresses_are_those_of_the_mode() {
    alone_one_sided("regions::keys_and_addresses_are_those_of_the_mode", || {
        let modes = [sys::FI_MR_VIRT_ADDR, sys::FI_MR_ALLOCATED, sys::FI_MR_PROV_KEY];
        let subsets =
            (0..8).map(|set| (0..3).filter(|at| set >> at & 1 != 0).map(|at| modes[at]).sum());
        let all: Vec<c_int> = subsets.chain([sys::FI_MR_BASIC, sys::FI_MR_SCALABLE]).collect();
        for mode in all {
            let domain = domain_with(mode);
            let node = Node::in_domain(domain, QueueSettings::default(), BOTH);
            let peer = node.vector.add(node.name);
            let memory = Memory::of(b"0123456789");
            let region = node.domain.region(memory, 77);
            let is_basic = mode == sys::FI_MR_BASIC;
            let chooses = mode & sys::FI_MR_PROV_KEY != 0 || is_basic;
            assert_eq!(region.key() == 77, !chooses, "{mode:x}");
            let is_virtual = mode & sys::FI_MR_VIRT_ADDR != 0 || is_basic;
            let start = if is_virtual { memory.start() as u64 } else { 0 };
            let place = Place { peer, key: region.key(), address: start + 3 };
            let to = Memory::new(4);
            node.endpoint.read(to, place, 1).unwrap();
            let entry = within_limit("an entry", || node.queue.poll());
            assert_eq!((entry.failure, to.bytes()), (0, b"3456".to_vec()), "{mode:x}");
            // Before the region's beginning there is nothing.
            let before = Place { address: start.wrapping_sub(1), ..place };
            node.endpoint.read(to, before, 2).unwrap();
            let entry = within_limit("an entry", || node.queue.poll());
            assert_eq!(entry.failure, sys::FI_EACCES, "{mode:x}");
            region.close().unwrap();
            node.close();
        }
    });
}

#[test]
fn a_key_names_one_region_at_a_time() {
    alone_one_sided("regions::a_key_names_one_region_at_a_time", || {
        let domain = Domain::of(&hints(0));
        let memory = Memory::new(8);
        for key in [0, 5, u64::MAX] {
            let region = domain.region(memory, key);
            assert_eq!(region.key(), key);
            let again = Region::open(domain, memory, sys::FI_REMOTE_READ, key);
            assert_eq!(again.err(), Some(sys::FI_ENOKEY));
            // A region that no peer uses may have any key.
            Region::open(domain, memory, sys::FI_SEND, key).unwrap().close().unwrap();
            assert_eq!(domain.close_domain(), Err(sys::FI_EBUSY));
            region.close().unwrap();
            domain.region(memory, key).close().unwrap();
        }
        domain.close();
        let domain = domain_with(sys::FI_MR_PROV_KEY);
        let regions = [0; 20].map(|key| domain.region(memory, key));
        let mut keys = regions.map(|region| region.key()).to_vec();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 20, "the provider's keys differ");
        regions.iter().for_each(|region| region.close().map(|_| ()).unwrap());
        domain.close();
    });
}

#[test]
fn each_call_that_registers_memory_gives_the_same_region() {
    alone_one_sided("regions::each_call_that_registers_memory_gives_the_same_region", || {
        let world = world(0);
        let owner = world.node(1).domain;
        let memory = Memory::of(b"abc");
        let part = memory.part_of_call();
        let attributes = sys::fi_mr_attr {
            mr_iov: &raw const part,
            iov_count: 1,
            access: ACCESS,
            requested_key: 3,
            ..sys::fi_mr_attr::zeroed()
        };
        let regions = [
            Region::open(owner, memory, ACCESS, 1),
            Region::open_several(owner, &[memory], ACCESS, 2),
            Region::open_as(owner, &attributes, 0),
        ];
        for (index, region) in regions.into_iter().enumerate() {
            let region = region.unwrap();
            let place = Place { peer: world.address(1), key: region.key(), address: 0 };
            let to = Memory::new(3);
            world.endpoint(0).read(to, place, index).unwrap();
            world.success(0, index);
            assert_eq!(to.bytes(), b"abc");
            // A region is enabled, and serves all endpoints of its domain.
            region.bind(world.endpoint(1).endpoint.cast(), 0).unwrap();
            region.enable().unwrap();
            assert_eq!(region.bind(world.endpoint(0).endpoint.cast(), 0), Err(sys::FI_EDOMAIN));
            assert_eq!(region.bind(std::ptr::null_mut(), 0), Err(sys::FI_EINVAL));
            region.close().unwrap();
            assert_eq!(region.close(), Err(sys::FI_EBADF));
            assert_eq!(region.enable(), Err(sys::FI_EBADF));
        }
    });
}

#[test]
fn a_region_of_an_endpoint_serves_that_endpoint_alone_once_it_is_enabled() {
    let name = "regions::a_region_of_an_endpoint_serves_that_endpoint_alone_once_it_is_enabled";
    alone_one_sided(name, || {
        let domain = domain_with(sys::FI_MR_ENDPOINT);
        let world = World::with(vec![
            Node::in_domain(domain, QueueSettings::default(), BOTH),
            Node::of(&hints(0), QueueSettings::default(), BOTH),
        ]);
        let other = Node::in_domain(domain, QueueSettings::default(), BOTH);
        let to_other = world.node(1).vector.add(other.name);
        let region = domain.region(Memory::of(b"abc"), 5);
        let of = |node: usize| world.endpoint(node).endpoint.cast();
        let read = |peer| {
            let place = Place { peer, key: 5, address: 0 };
            world.endpoint(1).read(Memory::new(3), place, 1).unwrap();
            let entry = world.until("an entry", || {
                other.queue.progress();
                world.queue(1).poll()
            });
            entry.failure
        };
        assert_eq!(region.enable(), Err(sys::FI_EOPBADSTATE));
        assert_eq!(region.bind(of(1), 0), Err(sys::FI_EDOMAIN));
        region.bind(of(0), 0).unwrap();
        assert_eq!(region.bind(of(0), 0), Err(sys::FI_EOPBADSTATE));
        assert_eq!(read(world.address(0)), sys::FI_ENOKEY);
        region.enable().unwrap();
        region.enable().unwrap();
        assert_eq!([read(world.address(0)), read(to_other)], [0, sys::FI_ENOKEY]);
        region.close().unwrap();
        assert_eq!(read(world.address(0)), sys::FI_ENOKEY);
        // The endpoint of a region is closed before the region is enabled.
        let gone = Node::in_domain(domain, QueueSettings::default(), BOTH);
        let region = domain.region(Memory::of(b"abc"), 5);
        region.bind(gone.endpoint.endpoint.cast(), 0).unwrap();
        gone.close_in_domain();
        // A region that could not be enabled does not count as enabled.
        for _ in 0..2 {
            assert_eq!(region.enable(), Err(sys::FI_EBADF));
        }
        region.close().unwrap();
        other.close_in_domain();
    });
}

#[test]
fn a_region_that_tells_of_peers_is_enabled_after_its_counter_where_the_mode_says_so() {
    let name =
        "regions::a_region_that_tells_of_peers_is_enabled_after_its_counter_where_the_mode_says_so";
    alone_one_sided(name, || {
        let domain = domain_with(sys::FI_MR_RMA_EVENT);
        let node = Node::in_domain(domain, QueueSettings::default(), BOTH);
        let peer = node.vector.add(node.name);
        let memory = Memory::of(b"abc");
        let part = memory.part_of_call();
        let attributes = |key| sys::fi_mr_attr {
            mr_iov: &raw const part,
            iov_count: 1,
            access: ACCESS,
            requested_key: key,
            ..sys::fi_mr_attr::zeroed()
        };
        let plain = Region::open_as(domain, &attributes(1), 0).unwrap();
        let telling = Region::open_as(domain, &attributes(2), sys::FI_RMA_EVENT).unwrap();
        let read = |key| {
            node.endpoint.read(Memory::new(3), Place { peer, key, address: 0 }, 1).unwrap();
            within_limit("an entry", || node.queue.poll()).failure
        };
        assert_eq!([read(1), read(2)], [0, sys::FI_ENOKEY]);
        telling.enable().unwrap();
        assert_eq!(read(2), 0);
        plain.close().unwrap();
        telling.close().unwrap();
        node.close();
    });
}

#[test]
fn memory_that_cannot_be_a_region_is_refused() {
    alone_one_sided("regions::memory_that_cannot_be_a_region_is_refused", || {
        let domain = Domain::of(&hints(0));
        let memory = Memory::new(8);
        let open = |memory| Region::open(domain, memory, ACCESS, 1).err();
        let null = std::ptr::null_mut();
        // All of the address space, as programs register it that register nothing else.
        assert_eq!(open(Memory::claimed(null, usize::MAX)), Some(sys::FI_EINVAL));
        assert_eq!(open(Memory::claimed(null, 1)), Some(sys::FI_EINVAL));
        assert_eq!(open(Memory::claimed(memory.start(), usize::MAX)), Some(sys::FI_EINVAL));
        assert_eq!(open(Memory::claimed(memory.start(), 1 << 63)), Some(sys::FI_EINVAL));
        assert_eq!(Region::open(domain, memory, 1, 1).err(), Some(sys::FI_EINVAL));
        let several = Region::open_several(domain, &[memory, memory], ACCESS, 1);
        assert_eq!(several.err(), Some(sys::FI_EINVAL));
        let attributes = |offset| sys::fi_mr_attr {
            offset,
            iov_count: 1,
            access: ACCESS,
            ..sys::fi_mr_attr::zeroed()
        };
        assert_eq!(Region::open_as(domain, &attributes(0), 0).err(), Some(sys::FI_EINVAL));
        assert_eq!(Region::open_as(domain, &attributes(1), 0).err(), Some(sys::FI_EINVAL));
        let flagged = Region::open_as(domain, &attributes(0), sys::FI_PEEK);
        assert_eq!(flagged.err(), Some(sys::FI_EBADFLAGS));
        domain.close();
    });
}

#[test]
fn no_peer_reaches_memory_whose_region_is_closed() {
    alone_one_sided("regions::no_peer_reaches_memory_whose_region_is_closed", || {
        // Over shared memory, each poll moves 1 MiB without the region's owner: the put doesn't end
        // before the region is closed.
        const LENGTH: usize = 32 << 20;
        let world = world(0);
        let memory = Memory::new(LENGTH);
        let from = Memory::of(&vec![1; LENGTH]);
        let place = Place { peer: world.address(1), key: 9, address: 0 };
        for round in 0..3 {
            let region = world.node(1).domain.region(memory, 9);
            memory.write(&vec![0; LENGTH]);
            world.endpoint(0).write(from, place, 1).unwrap();
            world.endpoint(0).read(Memory::new(LENGTH), place, 2).unwrap();
            (0..round * 3 + 1).for_each(|_| world.progress());
            region.close().unwrap();
            let after = memory.bytes();
            let entries = [world.entry(0), world.entry(0)];
            assert_eq!(entries.map(|entry| entry.context), [1, 2]);
            assert_eq!(entries[1].failure, sys::FI_ENOKEY, "{entries:?}");
            assert!(memory.bytes() == after, "nothing is written after the region is closed");
        }
        // An endpoint that is opened later serves the regions that there are.
        let region = world.node(1).domain.region(memory, 9);
        let late = Node::in_domain(world.node(1).domain, QueueSettings::default(), BOTH);
        let peer = world.node(0).vector.add(late.name);
        world.endpoint(0).write(from, Place { peer, ..place }, 3).unwrap();
        let entry = world.until("an entry", || {
            late.queue.progress();
            world.queue(0).poll()
        });
        assert_eq!((entry.context, entry.failure), (3, 0));
        assert!(memory.bytes() == from.bytes());
        late.close_in_domain();
        region.close().unwrap();
    });
}

#[test]
fn a_counter_counts_what_peers_change_in_a_region() {
    alone_one_sided("regions::a_counter_counts_what_peers_change_in_a_region", || {
        let caps = sys::FI_RMA | sys::FI_ATOMIC | sys::FI_RMA_EVENT;
        let world = World::of(2, &Hints { caps, ..hints(0) }, BOTH);
        let domain = world.node(1).domain;
        let memory = Memory::new(100_000);
        let regions = [1, 2].map(|key| domain.region(memory, key));
        let counters = [1, 2].map(|_| domain.counter());
        let bind = |index: usize, flags| regions[index].bind(counters[index].counter.cast(), flags);
        assert_eq!(bind(0, sys::FI_REMOTE_READ), Err(sys::FI_EINVAL));
        assert_eq!(bind(0, 0), Err(sys::FI_EINVAL));
        let foreign = world.node(0).domain.counter();
        let bound = regions[0].bind(foreign.counter.cast(), sys::FI_REMOTE_WRITE);
        assert_eq!(bound, Err(sys::FI_EDOMAIN));
        foreign.close().unwrap();
        for index in [0, 1] {
            bind(index, sys::FI_REMOTE_WRITE).unwrap();
        }
        let endpoint = world.endpoint(0);
        let place = |key| Place { peer: world.address(1), key, address: 0 };
        let one = Memory::of(&1u64.to_ne_bytes());
        let sum = Elements { op: sys::FI_SUM, datatype: sys::FI_UINT64, size: 8 };
        let read = Elements { op: sys::FI_ATOMIC_READ, ..sum };
        endpoint.write(Memory::of(&[0; 100_000]), place(1), 1).unwrap();
        endpoint.atomic(one, place(1), sum, 2).unwrap();
        endpoint.fetch_atomic([one, Memory::new(8)], place(1), sum, 3).unwrap();
        endpoint.fetch_atomic([one, Memory::new(8)], place(1), read, 4).unwrap();
        endpoint.read(Memory::new(10), place(1), 5).unwrap();
        (1..=5).for_each(|context| assert_eq!(world.success(0, context).failure, 0));
        endpoint.write(Memory::new(100_001), place(1), 6).unwrap();
        world.failure(0, 6, sys::FI_EACCES);
        endpoint.write(one, place(2), 7).unwrap();
        world.success(0, 7);
        assert_eq!(counters.map(|counter| counter.wait(1, 20_000)), [Ok(0), Ok(0)]);
        world.settle();
        assert_eq!(counters.map(|counter| counter.value()), [3, 1]);
        assert_eq!(counters.map(|counter| counter.errors()), [0, 0]);
        assert_eq!(counters[0].close(), Err(sys::FI_EBUSY));
        for (region, counter) in regions.iter().zip(&counters) {
            region.close().unwrap();
            counter.close().unwrap();
        }
    });
}

#[test]
fn a_counter_of_an_endpoint_counts_what_peers_do_there() {
    alone_one_sided("regions::a_counter_of_an_endpoint_counts_what_peers_do_there", || {
        let counted = |caps| {
            let domain = Domain::of(&Hints { caps, ..hints(0) });
            let vector = domain.vector(sys::FI_AV_TABLE);
            let queue = domain.queue(QueueSettings::default());
            let endpoint = domain.endpoint();
            let counters = [sys::FI_REMOTE_READ, sys::FI_REMOTE_WRITE].map(|flag| {
                let counter = domain.counter();
                endpoint.bind_counter(counter, flag).unwrap();
                counter
            });
            endpoint.bind_vector(vector).unwrap();
            endpoint.bind_queue(queue, BOTH).unwrap();
            endpoint.enable().unwrap();
            let peer = vector.add(endpoint.name());
            let region = domain.region(Memory::of(&[0; 100_000]), 0);
            let place = Place { peer, key: 0, address: 0 };
            let long = Memory::new(100_000);
            let one = Memory::of(&1u64.to_ne_bytes());
            let sum = Elements { op: sys::FI_SUM, datatype: sys::FI_UINT64, size: 8 };
            endpoint.write(long, place, 1).unwrap();
            endpoint.writedata(one, 5, place, 1).unwrap();
            endpoint.atomic(one, place, sum, 1).unwrap();
            endpoint.read(long, place, 1).unwrap();
            endpoint.fetch_atomic([one, Memory::new(8)], place, sum, 1).unwrap();
            endpoint.read(long, Place { key: 1, ..place }, 1).unwrap();
            // Six operations, and the data of a write.
            (0..7).for_each(|_| assert!(within_limit("an entry", || queue.poll()).context < 2));
            let values = counters.map(|counter| counter.value());
            region.close().unwrap();
            endpoint.close().unwrap();
            counters.iter().for_each(|counter| counter.close().map(|_| ()).unwrap());
            queue.close().unwrap();
            vector.close().unwrap();
            domain.close();
            values
        };
        let caps = sys::FI_RMA | sys::FI_ATOMIC;
        assert_eq!(counted(caps | sys::FI_RMA_EVENT), [2, 3]);
        assert_eq!(counted(caps), [0, 0]);
    });
}

#[test]
fn without_one_sided_operations_a_region_means_nothing() {
    let variables = [("TAGMATCH_FI_ONE_SIDED", "off".as_ref())];
    alone_with("regions::without_one_sided_operations_a_region_means_nothing", &variables, || {
        let domain = Domain::new();
        let memory = Memory::new(8);
        let first = domain.region(memory, 5);
        let second = domain.region(memory, 5);
        assert_ne!(first.key(), second.key());
        let hints = Hints { caps: sys::FI_RMA, ..Hints::default() };
        assert_eq!(crate::client::info_for(&hints, None, 0).err(), Some(sys::FI_ENODATA));
        first.close().unwrap();
        second.close().unwrap();
        domain.close();
    });
}
