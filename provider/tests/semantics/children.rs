//! Forked children that call exit(3), as `system` of some languages does when the program isn't
//! found: libfabric calls the provider's `cleanup` in them, too.

use std::path::Path;

use crate::client::{
    Memory, World, alone_with, call, ends_in_a_forked_child, payload, sys, within_limit,
};

/// The numbers of the rows of a report: process, and received messages.
fn rows(text: &str) -> Vec<(u32, u64)> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.first()?.parse::<u64>().ok()?;
        Some((words.get(2)?.parse().ok()?, words.get(3)?.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

fn exchange(world: &World, tag: u64) {
    for length in [8, 5000, 200_000] {
        let room = Memory::new(length);
        let bytes = payload(tag, length);
        world.endpoint(1).trecv(room, tag, 0, 1).unwrap();
        world.endpoint(0).tsend(Memory::of(&bytes), world.address(1), tag, 2).unwrap();
        world.success(1, 1);
        world.success(0, 2);
        assert_eq!(room.bytes(), bytes);
    }
}

fn report(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("tagmatch-{name}.{}", std::process::id()))
}

#[test]
fn a_forked_child_that_exits_writes_no_report_and_takes_nothing_from_its_parent() {
    let path = report("children");
    let variables = [
        ("TAGMATCH_FI_REPORT", path.as_os_str()),
        ("PMI_RANK", "0".as_ref()),
        ("PMI_SIZE", "1".as_ref()),
    ];
    alone_with(
        "children::a_forked_child_that_exits_writes_no_report_and_takes_nothing_from_its_parent",
        &variables,
        || {
            let path = std::env::var_os("TAGMATCH_FI_REPORT").unwrap();
            let path = Path::new(&path);
            let closed = World::new(2);
            let world = World::new(2);
            exchange(&closed, 1);
            drop(closed);
            exchange(&world, 2);
            assert!(ends_in_a_forked_child(|| ()));
            assert!(!path.exists(), "{}", std::fs::read_to_string(path).unwrap());
            exchange(&world, 3);
            // A child that closes what its parent has opened adds nothing either.
            assert!(ends_in_a_forked_child(|| {
                for node in 0..2 {
                    world.endpoint(node).close().unwrap();
                }
            }));
            assert!(!path.exists(), "{}", std::fs::read_to_string(path).unwrap());
            exchange(&world, 4);
            drop(world);
            call!(tagmatch_fi::fi_prov_ini(), cleanup());
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(rows(&text), [(std::process::id(), 12)], "{text}");
            std::fs::remove_file(path).unwrap();
        },
    );
}

#[test]
fn a_forked_child_that_exits_adds_no_row_in_shared_memory() {
    let variables = [
        ("TAGMATCH_FI_REPORT", "-".as_ref()),
        ("PMIX_RANK", "0".as_ref()),
        ("PMIX_NAMESPACE", "children-of-a-test".as_ref()),
        ("OMPI_COMM_WORLD_SIZE", "2".as_ref()),
    ];
    let words = alone_with(
        "children::a_forked_child_that_exits_adds_no_row_in_shared_memory",
        &variables,
        || {
            // SAFETY: the call has no pointers.
            let user = unsafe { libc::geteuid() };
            let path = format!("/dev/shm/tagmatch-report.{user}.children.of.a.test");
            let world = World::new(2);
            exchange(&world, 1);
            assert!(ends_in_a_forked_child(|| ()));
            // The second rank has not come, so the file has its name.
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("report"), "{text}");
            drop(world);
            call!(tagmatch_fi::fi_prov_ini(), cleanup());
            assert!(!Path::new(&path).exists());
        },
    );
    if let Some(words) = words {
        assert_eq!(words.matches("ended so far: 1 of 2").count(), 1, "{words}");
    }
}

#[test]
fn a_queue_still_wakes_for_an_endpoint_that_a_forked_child_has_closed() {
    alone_with(
        "children::a_queue_still_wakes_for_an_endpoint_that_a_forked_child_has_closed",
        &[],
        || {
            let world = World::waiting(2, sys::FI_WAIT_FD);
            exchange(&world, 1);
            assert!(ends_in_a_forked_child(|| world.endpoint(1).close().map(drop).unwrap()));
            let room = Memory::new(8);
            world.endpoint(1).trecv(room, 2, 0, 1).unwrap();
            let domain = world.node(1).domain;
            let queue = world.queue(1);
            within_limit("leave to sleep", || domain.trywait(&mut [queue.queue.cast()]).ok());
            world.endpoint(0).tinject(b"12345678", world.address(1), 2).unwrap();
            let descriptor = queue.descriptor().unwrap();
            let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
            // SAFETY: the call has one element.
            let count = unsafe { libc::poll(&raw mut poll, 1, 30_000) };
            assert_eq!(count, 1, "nothing woke this thread");
            world.success(1, 1);
            drop(world);
        },
    );
}
