//! Deaths of processes that have forked.

mod common;

use tagmatch_device::{Device, DownReason};
use tagmatch_shm::ShmConfig;

use common::{Other, connect, message, next_down, next_message, poll, role, say, shm, wait_up};

/// A child that was made by clone(2) holds the sockets open, so only the pidfd reports the death.
#[test]
fn a_death_is_noticed_while_a_forked_child_lives() {
    if role().is_some() {
        let mut shm = shm(ShmConfig::default());
        say(shm.address());
        say(common::waiting_child());
        loop {
            poll(&mut shm);
        }
    }
    let mut other = Other::spawn("a_death_is_noticed_while_a_forked_child_lives", "parent");
    let mut shm = shm(ShmConfig::default());
    let peer = shm.connect(&other.hear_address()).unwrap();
    let child: i32 = other.hear().parse().unwrap();
    wait_up(&mut shm, peer);
    // The worker dies, and its child lives on.
    other.kill();
    assert_eq!(next_down(&mut shm), (peer, DownReason::Gone));
    // SAFETY: no pointers. The child is a child of this process, and nothing has waited for it.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

#[test]
fn a_forked_child_that_drops_a_device_disturbs_no_parent() {
    let mut a = shm(ShmConfig::default());
    let mut b = shm(ShmConfig::default());
    let (to_b, _) = connect(&mut a, &mut b);
    let mut devices = Some((a, b));
    // SAFETY: the child has this thread only. It drops its copies and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        drop(devices.take());
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    let (mut a, mut b) = devices.unwrap();
    a.send(to_b, message(b"still there")).unwrap();
    assert_eq!(next_message(&mut [&mut b]), b"still there");
    // Other workers can still connect, and the end of a peer is still noticed.
    let mut c = shm(ShmConfig::default());
    connect(&mut c, &mut a);
    drop(b);
    assert_eq!(next_down(&mut a), (to_b, DownReason::Left));
}
