//! Remote memory access: fi_rma(3).

use crate::client::{
    Call, Domain, Hints, Memory, Node, Place, QueueSettings, Region, RemoteCall, World,
    alone_one_sided, payload, sys, within_limit,
};

const BOTH: u64 = sys::FI_TRANSMIT | sys::FI_RECV;
const WRITTEN: u64 = sys::FI_RMA | sys::FI_WRITE;
const READ: u64 = sys::FI_RMA | sys::FI_READ;
const LENGTHS: [usize; 7] = [0, 1, 8, 4096, 4097, 70_000, 1 << 20];

fn hints() -> Hints {
    let messages = sys::FI_MSG | sys::FI_TAGGED | sys::FI_SOURCE;
    let caps = messages | sys::FI_RMA | sys::FI_ATOMIC | sys::FI_FENCE;
    Hints { caps, ..Hints::default() }
}

/// Two endpoints, and memory of the second one that both reach by the place.
fn world(length: usize) -> (World, Memory, Region, Place) {
    let world = World::of(2, &hints(), BOTH);
    let memory = Memory::new(length);
    let region = world.node(1).domain.region(memory, 1 << 63 | 7);
    let place = Place { peer: world.address(1), key: region.key(), address: 0 };
    (world, memory, region, place)
}

fn message<'a>(parts: &'a [Memory], place: Place, context: usize) -> RemoteCall<'a> {
    let length = parts.iter().map(Memory::len).sum();
    RemoteCall { parts, place, length, more: &[], context, data: 0 }
}

#[test]
fn what_is_written_is_there_when_its_entry_is() {
    alone_one_sided("remote_memory::what_is_written_is_there_when_its_entry_is", || {
        let (world, memory, region, place) = world(2 << 20);
        let endpoint = world.endpoint(0);
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            let bytes = payload(seed as u64, length);
            let from = Memory::of(&bytes);
            let first = from.part(0, length / 3);
            let rest = from.part(length / 3, length - length / 3);
            let at = |address| Place { address, ..place };
            for way in 0..4 {
                memory.write(&vec![0xee; 10 + length]);
                match way {
                    0 => endpoint.write(from, at(5), 1),
                    1 => endpoint.writev(&[first, rest], at(5), 1),
                    2 => endpoint.writemsg(message(&[first, rest], at(5), 1), sys::FI_COMPLETION),
                    _ => endpoint.writemsg(message(&[from], at(5), 1), sys::FI_FENCE),
                }
                .unwrap();
                let entry = world.success(0, 1);
                assert_eq!((entry.flags, entry.length), (WRITTEN, 0));
                assert_eq!(memory.part(5, length).bytes(), bytes);
                let around = [memory.part(0, 5).bytes(), memory.part(5 + length, 5).bytes()];
                assert_eq!(around, [[0xee; 5], [0xee; 5]]);
            }
        }
        world.expect_silence();
        region.close().unwrap();
    });
}

#[test]
fn what_is_read_is_there_when_its_entry_is() {
    alone_one_sided("remote_memory::what_is_read_is_there_when_its_entry_is", || {
        let (world, memory, region, place) = world(2 << 20);
        let endpoint = world.endpoint(0);
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            let bytes = payload(seed as u64, length);
            memory.part(9, length).write(&bytes);
            let from = Place { address: 9, ..place };
            for way in 0..3 {
                let to = Memory::new(length + 2);
                let first = to.part(1, length / 2);
                let rest = to.part(1 + length / 2, length - length / 2);
                match way {
                    0 => endpoint.read(to.part(1, length), from, 2),
                    1 => endpoint.readv(&[first, rest], from, 2),
                    _ => endpoint.readmsg(message(&[first, rest], from, 2), 0),
                }
                .unwrap();
                assert_eq!(world.success(0, 2).flags, READ);
                assert_eq!(to.part(1, length).bytes(), bytes);
                assert_eq!((to.bytes()[0], to.bytes()[length + 1]), (0xee, 0xee));
            }
        }
        world.expect_silence();
        region.close().unwrap();
    });
}

#[test]
fn an_operation_on_several_places_has_one_entry_when_all_are_done() {
    let name = "remote_memory::an_operation_on_several_places_has_one_entry_when_all_are_done";
    alone_one_sided(name, || {
        let (world, memory, region, place) = world(100_000);
        let endpoint = world.endpoint(0);
        let domain = world.node(1).domain;
        let other = Memory::new(100_000);
        let second = domain.region(other, 8);
        let at = |key, address| Place { key, address, ..place };
        let bytes = payload(1, 150_010);
        let from = Memory::of(&bytes);
        let parts = [from.part(0, 7), from.part(7, 120_000), from.part(120_007, 30_003)];
        let more = [(at(8, 0), 100_000), (at(8, 5), 0), (at(place.key, 50_005), 49_995)];
        let call = RemoteCall {
            parts: &parts,
            place: at(place.key, 3),
            length: 15,
            more: &more,
            context: 1,
            data: 9,
        };
        for flags in [0, sys::FI_REMOTE_CQ_DATA, sys::FI_FENCE] {
            memory.write(&[0; 100_000]);
            other.write(&[0; 100_000]);
            endpoint.writemsg(call, flags).unwrap();
            if flags == sys::FI_REMOTE_CQ_DATA {
                assert_eq!(world.entry(1).data, 9);
            }
            let entry = world.success(0, 1);
            assert_eq!(entry.flags, WRITTEN);
            assert_eq!(memory.part(3, 15).bytes(), bytes[..15]);
            assert_eq!(other.bytes(), bytes[15..100_015]);
            assert_eq!(memory.part(50_005, 49_995).bytes(), bytes[100_015..]);
            assert_eq!([memory.bytes()[2], memory.bytes()[18], memory.bytes()[50_004]], [0; 3]);
            let to = Memory::new(150_010);
            let parts = [to.part(0, 100_000), to.part(100_000, 50_010)];
            endpoint.readmsg(RemoteCall { parts: &parts, context: 2, ..call }, 0).unwrap();
            assert_eq!(world.success(0, 2).flags, READ);
            assert_eq!(to.bytes(), bytes);
            world.expect_silence();
        }
        // One wrong place is an error of the whole.
        let wrong = [(at(8, 99_999), 2), (at(place.key, 0), 3), (at(77, 0), 1)];
        let call = RemoteCall { parts: &[from.part(0, 9)], length: 3, more: &wrong, ..call };
        endpoint.writemsg(call, 0).unwrap();
        world.failure(0, 1, sys::FI_EACCES);
        world.expect_silence();
        let call = RemoteCall { parts: &[from.part(0, 8)], ..call };
        assert_eq!(endpoint.writemsg(call, 0), Err(sys::FI_EINVAL));
        let five = [wrong[0], wrong[0], wrong[0], wrong[0]];
        let call = RemoteCall { parts: &[from.part(0, 11)], more: &five, ..call };
        assert_eq!(endpoint.writemsg(call, 0), Err(sys::FI_EINVAL));
        let endless = [(at(8, 0), usize::MAX), (at(8, 0), 9)];
        let call = RemoteCall { parts: &[from.part(0, 11)], more: &endless, ..call };
        assert_eq!(endpoint.readmsg(call, 0), Err(sys::FI_EINVAL));
        // What is injected has a bound, however many places it goes to.
        let halves = [(at(8, 0), 2049)];
        let long = [from.part(0, 4097)];
        let call = RemoteCall { parts: &long, length: 2048, more: &halves, ..call };
        assert_eq!(endpoint.writemsg(call, sys::FI_INJECT), Err(sys::FI_EMSGSIZE));
        world.expect_silence();
        region.close().unwrap();
        second.close().unwrap();
    });
}

#[test]
fn each_level_of_completion_means_that_the_bytes_are_there() {
    alone_one_sided(
        "remote_memory::each_level_of_completion_means_that_the_bytes_are_there",
        || {
            let levels = [
                0,
                sys::FI_INJECT_COMPLETE,
                sys::FI_TRANSMIT_COMPLETE,
                sys::FI_DELIVERY_COMPLETE,
                sys::FI_COMPLETION | sys::FI_MORE,
            ];
            for (seed, level) in levels.into_iter().enumerate() {
                let send_flags = level & !sys::FI_MORE;
                let world = World::of(2, &Hints { send_flags, ..hints() }, BOTH);
                let memory = Memory::new(70_000);
                let region = world.node(1).domain.region(memory, 7);
                let place = Place { peer: world.address(1), key: 7, address: 0 };
                let endpoint = world.endpoint(0);
                for length in [8, 70_000] {
                    let bytes = payload(seed as u64, length);
                    let from = Memory::of(&bytes);
                    for is_default in [true, false] {
                        memory.write(&vec![0; length]);
                        if is_default {
                            endpoint.write(from, place, 1).unwrap();
                        } else {
                            endpoint.writemsg(message(&[from], place, 1), level).unwrap();
                        }
                        world.success(0, 1);
                        assert_eq!(memory.part(0, length).bytes(), bytes);
                        let to = Memory::new(length);
                        endpoint.readmsg(message(&[to], place, 2), level).unwrap();
                        world.success(0, 2);
                        assert_eq!(to.bytes(), bytes);
                    }
                }
                region.close().unwrap();
            }
        },
    );
}

#[test]
fn injected_writes_have_no_entry_and_their_memory_is_free_at_once() {
    let name = "remote_memory::injected_writes_have_no_entry_and_their_memory_is_free_at_once";
    alone_one_sided(name, || {
        let (world, memory, region, place) = world(4096);
        let endpoint = world.endpoint(0);
        let mut bytes = payload(1, 4096);
        endpoint.inject_write(&bytes, place).unwrap();
        let sent = bytes.clone();
        bytes.fill(0);
        let read = Memory::new(4096);
        endpoint.read(read, place, 1).unwrap();
        world.success(0, 1);
        assert!(read.bytes() == sent && memory.bytes() == sent);
        // By a flag, there is an entry.
        let from = Memory::of(b"flag");
        endpoint.writemsg(message(&[from], place, 2), sys::FI_INJECT | sys::FI_COMPLETION).unwrap();
        from.write(b"____");
        world.success(0, 2);
        assert_eq!(memory.part(0, 4).bytes(), b"flag");
        assert_eq!(endpoint.inject_write(&[0; 4097], place), Err(sys::FI_EMSGSIZE));
        let long = [Memory::new(4097)];
        let long = message(&long, place, 3);
        assert_eq!(endpoint.writemsg(long, sys::FI_INJECT), Err(sys::FI_EMSGSIZE));
        world.expect_silence();
        // A failure is an entry all the same.
        endpoint.inject_write(b"x", Place { key: 1, ..place }).unwrap();
        world.failure(0, 0, sys::FI_ENOKEY);
        region.close().unwrap();
    });
}

#[test]
fn the_data_of_a_write_comes_in_the_queue_of_receives_once_its_bytes_are_there() {
    let name = "remote_memory::the_data_of_a_write_comes_in_the_queue_of_receives_once_its_bytes_are_there";
    alone_one_sided(name, || {
        let (world, memory, region, place) = world(100_000);
        let endpoint = world.endpoint(0);
        for (round, length) in [3, 100_000, 0].into_iter().enumerate() {
            let bytes = payload(round as u64, length);
            let data = 0x1234_0000_0000 + round as u64;
            let from = Memory::of(&bytes);
            let parts = [from];
            let call = RemoteCall { data, ..message(&parts, place, 1) };
            let told = |source| {
                let entry = world.entry(1);
                let flags = sys::FI_RMA | sys::FI_REMOTE_WRITE | sys::FI_REMOTE_CQ_DATA;
                assert_eq!((entry.flags, entry.failure), (flags, 0));
                assert_eq!((entry.data, entry.source), (round as u64, source));
                assert_eq!(entry.length, length);
                assert_eq!(memory.part(0, length).bytes(), bytes);
            };
            endpoint.writedata(from, data, place, 1).unwrap();
            told(world.address(0));
            world.success(0, 1);
            endpoint.writemsg(call, sys::FI_REMOTE_CQ_DATA).unwrap();
            told(world.address(0));
            world.success(0, 1);
            if length <= 4096 {
                endpoint.inject_writedata(&bytes, data, place).unwrap();
                told(world.address(0));
            }
            // Without the flag, the structure's data mean nothing.
            endpoint.writemsg(call, 0).unwrap();
            world.success(0, 1);
            world.expect_silence();
        }
        region.close().unwrap();
    });
}

#[test]
fn what_a_peer_may_not_do_fails_and_changes_nothing() {
    alone_one_sided("remote_memory::what_a_peer_may_not_do_fails_and_changes_nothing", || {
        let world = World::of(2, &hints(), BOTH);
        let domain = world.node(1).domain;
        let memory = Memory::of(&payload(1, 64));
        let before = memory.bytes();
        let readable = Region::open(domain, memory, sys::FI_REMOTE_READ, 1).unwrap();
        let writable = Region::open(domain, memory, sys::FI_REMOTE_WRITE, 2).unwrap();
        let place = |key, address| Place { peer: world.address(1), key, address };
        let endpoint = world.endpoint(0);
        let room = Memory::new(64);
        let cases = [
            (endpoint.write(room, place(1, 0), 1), sys::FI_EACCES),
            (endpoint.read(room, place(2, 0), 1), sys::FI_EACCES),
            (endpoint.read(room, place(3, 0), 1), sys::FI_ENOKEY),
            (endpoint.write(room, place(0, 0), 1), sys::FI_ENOKEY),
            (endpoint.read(room, place(1, 1), 1), sys::FI_EACCES),
            (endpoint.write(room, place(2, 1), 1), sys::FI_EACCES),
            (endpoint.write(room, place(2, u64::MAX), 1), sys::FI_EACCES),
            (endpoint.read(room, place(1, u64::MAX - 63), 1), sys::FI_EACCES),
            (endpoint.read(room.part(0, 0), place(1, 65), 1), sys::FI_EACCES),
        ];
        for (begun, errno) in cases {
            assert_eq!(begun, Ok(0));
            let entry = world.failure(0, 1, errno);
            assert_ne!(entry.flags & sys::FI_RMA, 0);
        }
        assert_eq!(memory.bytes(), before);
        assert_eq!(room.bytes(), [0xee; 64]);
        // The right ones work beside them.
        endpoint.read(room, place(1, 0), 2).unwrap();
        world.success(0, 2);
        assert_eq!(room.bytes(), before);
        endpoint.write(room, place(2, 0), 3).unwrap();
        world.success(0, 3);
        readable.close().unwrap();
        writable.close().unwrap();
    });
}

#[test]
fn a_call_with_wrong_arguments_is_refused() {
    alone_one_sided("remote_memory::a_call_with_wrong_arguments_is_refused", || {
        let (world, _, region, place) = world(64);
        let endpoint = world.endpoint(0);
        let null = Memory::claimed(std::ptr::null_mut(), 1);
        let memory = Memory::new(8);
        let five = [memory; 5];
        let parts = [memory];
        let good = message(&parts, place, 1);
        let wrong_length = RemoteCall { length: 7, ..good };
        for answer in [
            endpoint.read(null, place, 1),
            endpoint.write(null, place, 1),
            endpoint.readv(&five, place, 1),
            endpoint.writev(&five, place, 1),
            endpoint.readmsg(wrong_length, 0),
            endpoint.writemsg(wrong_length, 0),
            endpoint.write(memory, Place { peer: 99, ..place }, 1),
            endpoint.read(memory, Place { peer: u64::MAX, ..place }, 1),
        ] {
            assert_eq!(answer, Err(sys::FI_EINVAL));
        }
        for flags in [sys::FI_PEEK, sys::FI_MATCH_COMPLETE, 1] {
            assert_eq!(endpoint.writemsg(good, flags), Err(sys::FI_EBADFLAGS));
            assert_eq!(endpoint.readmsg(good, flags), Err(sys::FI_EBADFLAGS));
        }
        assert_eq!(endpoint.readmsg(good, sys::FI_INJECT), Err(sys::FI_EBADFLAGS));
        // SAFETY: the endpoint is open; a message that is null is refused.
        let answers = unsafe {
            let rma = &*(*endpoint.endpoint).rma;
            let nothing = std::ptr::null();
            let endpoint = endpoint.endpoint;
            [
                rma.readmsg.unwrap()(endpoint, nothing, 0),
                rma.writemsg.unwrap()(endpoint, nothing, 0),
            ]
        };
        assert_eq!(answers, [-i64::from(sys::FI_EINVAL) as isize; 2]);
        world.expect_silence();
        region.close().unwrap();
    });
}

#[test]
fn an_endpoint_does_what_it_was_opened_for() {
    alone_one_sided("remote_memory::an_endpoint_does_what_it_was_opened_for", || {
        for (caps, may_write, may_read) in [
            (sys::FI_RMA | sys::FI_WRITE | sys::FI_REMOTE_WRITE, true, false),
            (sys::FI_RMA | sys::FI_READ | sys::FI_REMOTE_READ, false, true),
            (sys::FI_RMA, true, true),
        ] {
            let world = World::of(1, &Hints { caps, ..hints() }, BOTH);
            let memory = Memory::new(8);
            let region = world.node(0).domain.region(memory, 1);
            let place = Place { peer: world.address(0), key: 1, address: 0 };
            let endpoint = world.endpoint(0);
            let answer = |may| if may { Ok(0) } else { Err(sys::FI_EOPBADSTATE) };
            assert_eq!(endpoint.write(memory, place, 1), answer(may_write));
            assert_eq!(endpoint.tinject(b"x", world.address(0), 1), Err(sys::FI_EOPBADSTATE));
            if may_write {
                world.success(0, 1);
            }
            assert_eq!(endpoint.read(Memory::new(8), place, 2), answer(may_read));
            if may_read {
                world.success(0, 2);
            }
            region.close().unwrap();
        }
        // What a peer may do depends on the endpoint that it names, too.
        let deaf = Hints { caps: sys::FI_RMA | sys::FI_WRITE | sys::FI_REMOTE_READ, ..hints() };
        let world = World::of(1, &deaf, BOTH);
        let region = world.node(0).domain.region(Memory::new(8), 1);
        let place = Place { peer: world.address(0), key: 1, address: 0 };
        world.endpoint(0).write(Memory::new(8), place, 1).unwrap();
        world.failure(0, 1, sys::FI_EACCES);
        region.close().unwrap();
    });
}

#[test]
fn operations_without_a_completion_flag_are_counted_and_not_told() {
    let name = "remote_memory::operations_without_a_completion_flag_are_counted_and_not_told";
    alone_one_sided(name, || {
        let domain = Domain::of(&hints());
        let vector = domain.vector(sys::FI_AV_TABLE);
        let queue = domain.queue(QueueSettings::default());
        let endpoint = domain.endpoint();
        let reads = domain.counter();
        let writes = domain.counter();
        let sends = domain.counter();
        endpoint.bind_vector(vector).unwrap();
        endpoint.bind_queue(queue, BOTH | sys::FI_SELECTIVE_COMPLETION).unwrap();
        endpoint.bind_counter(reads, sys::FI_READ).unwrap();
        endpoint.bind_counter(writes, sys::FI_WRITE).unwrap();
        endpoint.bind_counter(sends, sys::FI_SEND).unwrap();
        endpoint.enable().unwrap();
        let peer = vector.add(endpoint.name());
        let memory = Memory::new(8);
        let region = domain.region(memory, 1);
        let place = Place { peer, key: 1, address: 0 };
        let room = Memory::new(8);
        endpoint.write(room, place, 1).unwrap();
        endpoint.inject_write(b"x", place).unwrap();
        endpoint.read(room, place, 2).unwrap();
        assert_eq!((writes.wait(2, 20_000), reads.wait(1, 20_000)), (Ok(0), Ok(0)));
        assert!(queue.poll().is_none());
        endpoint.readmsg(message(&[room], place, 3), sys::FI_COMPLETION).unwrap();
        let entry = within_limit("an entry", || queue.poll());
        assert_eq!((entry.context, entry.flags), (3, READ));
        endpoint.inject_write(b"x", Place { key: 2, ..place }).unwrap();
        endpoint.read(room, Place { key: 2, ..place }, 4).unwrap();
        within_limit("two failures", || {
            (writes.errors() == 1 && reads.errors() == 1).then_some(())
        });
        assert_eq!((writes.value(), reads.value(), sends.value()), (2, 2, 0));
        region.close().unwrap();
        endpoint.close().unwrap();
        [reads, writes, sends].iter().for_each(|counter| counter.close().map(|_| ()).unwrap());
        queue.close().unwrap();
        vector.close().unwrap();
        domain.close();
    });
}

#[test]
fn a_fenced_operation_waits_for_what_began_before_it() {
    let name = "remote_memory::a_fenced_operation_waits_for_what_began_before_it";
    alone_one_sided(name, || {
        let (world, memory, region, place) = world(1 << 20);
        let endpoint = world.endpoint(0);
        let old = payload(1, 1 << 20);
        memory.write(&old);
        let to = Memory::new(1 << 20);
        let from = Memory::of(&vec![0; 1 << 20]);
        endpoint.read(to, place, 1).unwrap();
        endpoint.writemsg(message(&[from], place, 2), sys::FI_FENCE).unwrap();
        world.success(0, 1);
        world.success(0, 2);
        assert!(to.bytes() == old, "the read saw nothing of the write");
        // A send that waits for its receive.
        endpoint.tsend(from, world.address(1), 5, 3).unwrap();
        let fenced = || endpoint.writemsg(message(&[from], place, 4), sys::FI_FENCE);
        world.settle();
        assert_eq!(fenced(), Err(sys::FI_EAGAIN));
        world.endpoint(1).trecv(to, 5, 0, 6).unwrap();
        world.success(1, 6);
        world.success(0, 3);
        fenced().unwrap();
        world.success(0, 4);
        // A fenced message waits for one-sided operations, and for messages.
        let parts = [Memory::of(b"behind")];
        let call = Call { parts: &parts, address: world.address(1), tag: 7, ..Call::default() };
        let send = || endpoint.tsendmsg(Call { context: 8, ..call }, sys::FI_FENCE);
        endpoint.write(from, place, 9).unwrap();
        assert_eq!(send(), Err(sys::FI_EAGAIN));
        world.success(0, 9);
        endpoint.tsend(from, world.address(1), 5, 3).unwrap();
        world.settle();
        assert_eq!(send(), Err(sys::FI_EAGAIN));
        world.endpoint(1).trecv(to, 5, 0, 6).unwrap();
        world.success(1, 6);
        world.success(0, 3);
        send().unwrap();
        world.success(0, 8);
        world.endpoint(1).trecv(to, 7, 0, 10).unwrap();
        assert_eq!(world.success(1, 10).length, 6);
        region.close().unwrap();
    });
}

#[test]
fn a_thread_that_sleeps_is_woken_by_one_sided_operations() {
    let name = "remote_memory::a_thread_that_sleeps_is_woken_by_one_sided_operations";
    alone_one_sided(name, || {
        let settings = QueueSettings { wait: sys::FI_WAIT_UNSPEC, ..QueueSettings::default() };
        let node = |_| Node::of(&hints(), settings, BOTH);
        let world = World::with((0..2).map(node).collect());
        let memory = Memory::new(100_000);
        let region = world.node(1).domain.region(memory, 1);
        let place = Place { peer: world.address(1), key: 1, address: 0 };
        let from = Memory::of(&payload(1, 100_000));
        std::thread::scope(|scope| {
            let owner = world.queue(1);
            let told = scope.spawn(move || owner.sread(20_000));
            for round in 0..20 {
                world.endpoint(0).write(from, place, round).unwrap();
                let entry = world.queue(0).sread(20_000).unwrap();
                assert_eq!(entry.context, round);
            }
            world.endpoint(0).writedata(from, 8, place, 30).unwrap();
            assert_eq!(world.queue(0).sread(20_000).unwrap().context, 30);
            assert_eq!(told.join().unwrap().unwrap().data, 8);
        });
        region.close().unwrap();
    });
}

#[test]
fn operations_on_a_peer_that_has_left_fail() {
    alone_one_sided("remote_memory::operations_on_a_peer_that_has_left_fail", || {
        let world = World::of(1, &hints(), BOTH);
        let owner = Node::of(&hints(), QueueSettings::default(), BOTH);
        let region = owner.domain.region(Memory::new(4 << 20), 1);
        let peer = world.node(0).vector.add(owner.name);
        let place = Place { peer, key: 1, address: 0 };
        let endpoint = world.endpoint(0);
        let long = Memory::new(4 << 20);
        endpoint.read(long.part(0, 8), place, 0).unwrap();
        let entry = within_limit("an entry", || {
            owner.queue.progress();
            world.queue(0).poll()
        });
        assert_eq!((entry.context, entry.failure), (0, 0));
        endpoint.write(long, place, 1).unwrap();
        endpoint.read(long, place, 2).unwrap();
        endpoint.inject_write(b"x", place).unwrap();
        region.close().unwrap();
        owner.close();
        world.failure(0, 1, sys::FI_ENOTCONN);
        world.failure(0, 2, sys::FI_ENOTCONN);
        world.failure(0, 0, sys::FI_ENOTCONN);
        // It is known now that the peer is gone.
        endpoint.write(long, place, 3).unwrap();
        world.failure(0, 3, sys::FI_ENOTCONN);
        assert_eq!(endpoint.inject_write(b"x", place), Err(sys::FI_ENOTCONN));
        world.expect_silence();
    });
}

#[test]
fn as_many_operations_as_are_told_are_under_way_and_no_more() {
    let name = "remote_memory::as_many_operations_as_are_told_are_under_way_and_no_more";
    alone_one_sided(name, || {
        let (world, memory, region, place) = world(8);
        let endpoint = world.endpoint(0);
        // SAFETY: `fi_getinfo` gave all parts.
        let size = unsafe { (*(*world.node(0).domain.info).tx_attr).size };
        (0..size).for_each(|_| assert_eq!(endpoint.inject_write(b"injected", place), Ok(0)));
        assert_eq!(endpoint.inject_write(b"too many", place), Err(sys::FI_EAGAIN));
        let room = Memory::new(8);
        world.until("room", || endpoint.read(room, place, 1).ok());
        world.success(0, 1);
        assert_eq!((memory.bytes(), room.bytes()), (b"injected".to_vec(), b"injected".to_vec()));
        region.close().unwrap();
    });
}
