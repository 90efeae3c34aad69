//! A receive that names its source takes messages of that source alone, whatever the environment
//! says of the program's tags: fi_tagged(3).

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use crate::client::{Call, Memory, World, alone_with, at, payload, sys};

/// More than the bound below which software is faster.
const LENGTH: usize = 4096;
/// A tag without its sender, as Open MPI makes it if immediate data tells the sender.
const TAG: u64 = 5 << 34 | 9;
/// Open MPI ignores the bits of its protocol.
const IGNORED: u64 = 3 << 32;

/// What endpoint 1 or 2 sends to endpoint 0.
fn message(sender: usize) -> Vec<u8> {
    payload(sender as u64, LENGTH)
}

/// Endpoint 0 receives from 2, then from 1, while 1 sends before 2.
fn receive_in_the_other_order(world: &World, is_unexpected: bool) {
    let receiver = world.endpoint(0);
    let rooms = [1, 2].map(|_| (Memory::new(LENGTH), Memory::new(LENGTH)));
    let post = || {
        for source in [2, 1] {
            let (tagged, plain) = rooms[source - 1];
            let from = world.address(source);
            receiver.trecv_from(tagged, Call { ignore: IGNORED, ..at(from, TAG) }, source).unwrap();
            receiver.recv_from(plain, from, 10 + source).unwrap();
            world.settle();
        }
    };
    let send = || {
        for sender in [1, 2] {
            let from = Memory::of(&message(sender));
            let to = world.address(0);
            world.endpoint(sender).tsend(from, to, TAG, 20).unwrap();
            world.endpoint(sender).send(from, to, 21).unwrap();
            world.settle();
        }
    };
    world.meet(is_unexpected, post, send);
    let mut entries = [(); 4].map(|()| world.entry(0));
    entries.sort_unstable_by_key(|entry| entry.context);
    for (entry, context) in entries.iter().zip([1, 2, 11, 12]) {
        let source = context % 10;
        let (tagged, plain) = rooms[source - 1];
        let room = if context < 10 { tagged } else { plain };
        assert_eq!((entry.context, entry.failure), (context, 0), "{entry:x?}");
        assert_eq!(entry.source, world.address(source), "receive {context}");
        assert_eq!(room.bytes(), message(source), "receive {context}");
    }
    for sender in [1, 2] {
        for context in [20, 21] {
            world.success(sender, context);
        }
    }
}

/// A probe, and a probe that claims, find the messages of the source that they name.
fn probe_in_the_other_order(world: &World) {
    let receiver = world.endpoint(0);
    let probe = |source, flags, context| {
        let address = world.address(source);
        let tag = TAG;
        let call = Call { address, tag, ignore: IGNORED, context, ..Call::default() };
        receiver.trecvmsg(call, sys::FI_PEEK | flags).unwrap();
    };
    let send = |sender: usize| {
        let from = Memory::of(&message(sender));
        world.endpoint(sender).tsend(from, world.address(0), TAG, 20).unwrap();
        world.settle();
    };
    send(1);
    for flags in [0, sys::FI_CLAIM, sys::FI_DISCARD] {
        probe(2, flags, 1);
        world.failure(0, 1, sys::FI_ENOMSG);
    }
    send(2);
    for source in [2, 1] {
        probe(source, 0, 2);
        assert_eq!(world.success(0, 2).source, world.address(source));
        probe(source, sys::FI_CLAIM, 3);
        assert_eq!(world.success(0, 3).source, world.address(source));
        let parts = [Memory::new(LENGTH)];
        let claim = Call { parts: &parts, context: 3, ..Call::default() };
        receiver.trecvmsg(claim, sys::FI_CLAIM).unwrap();
        assert_eq!(world.success(0, 3).source, world.address(source));
        assert_eq!(parts[0].bytes(), message(source));
        world.success(source, 20);
    }
}

#[test]
fn no_variable_gives_a_receive_the_message_of_another_source_than_it_names() {
    let test = "senders::\
                no_variable_gives_a_receive_the_message_of_another_source_than_it_names";
    for (variable, value) in [
        ("OMPI_MCA_mtl_ofi_tag_mode", "ofi_tag_1"),
        ("OMPI_MCA_mtl_ofi_tag_mode", "ofi_tag_2"),
        ("MPIR_CVAR_CH4_OFI_ENABLE_DATA", "0"),
    ] {
        let variables = [
            ("TAGMATCH_FI_DEVICE", OsStr::new("shm")),
            ("TAGMATCH_FI_HW_TAGS", OsStr::new("model")),
            (variable, OsStr::new(value)),
        ];
        let run = || {
            let world = World::new(3);
            for is_unexpected in [false, true, false] {
                receive_in_the_other_order(&world, is_unexpected);
                probe_in_the_other_order(&world);
            }
            drop(world);
        };
        if alone_with(test, &variables, run).is_none() {
            return;
        }
    }
}

/// Loads a library that has the name of Open MPI's.
fn load_open_mpi() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.contains("/libgcc_s.so").then_some(path)
    });
    let folder = std::env::temp_dir().join(format!("tagmatch-senders-{}", std::process::id()));
    let path = folder.join("libopen-pal.so.40");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(library.expect("every program has it"), &path).unwrap();
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a string; the library begins nothing when it is loaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(!handle.is_null());
}

#[test]
fn an_acknowledgement_for_open_mpi_comes_from_the_peer_that_it_sends_to() {
    let test = "senders::an_acknowledgement_for_open_mpi_comes_from_the_peer_that_it_sends_to";
    alone_with(test, &[], || {
        load_open_mpi();
        let world = World::new(3);
        let sender = world.endpoint(1);
        let nothing = Memory::new(0);
        // As MPI_Ssend of endpoint 1 to endpoint 2 in each mode of tags.
        for shift in [32, 20] {
            let wanted = TAG | 1 << shift;
            let acknowledged = TAG | 2 << shift;
            // It is not the acknowledgement.
            world.endpoint(0).tinject(b"", world.address(1), acknowledged).unwrap();
            world.settle();
            sender.trecv_from(nothing, at(world.address(0), acknowledged), 1).unwrap();
            sender.tinject(b"message", world.address(2), wanted).unwrap();
            world.expect_silence();
            world.endpoint(2).tinject(b"", world.address(1), acknowledged).unwrap();
            assert_eq!(world.success(1, 1).source, world.address(2));
            // Any other receive has the source that it names, whatever follows.
            sender.trecv_from(nothing, at(world.address(0), acknowledged), 2).unwrap();
            sender.tinject(b"message", world.address(2), wanted ^ 1).unwrap();
            assert_eq!(world.success(1, 2).source, world.address(0));
            let room = Memory::new(7);
            for tag in [wanted, wanted ^ 1] {
                world.endpoint(2).trecv(room, tag, 0, 3).unwrap();
                world.success(2, 3);
            }
        }
    });
}
