//! How soon a thread of the device gets a processor.

use std::mem::size_of;

/// `struct sched_attr` of sched_setattr(2), in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// How long this thread runs at a time. A program that polls its queues in a loop never gives its
/// processor up: a thread that asks for little at a time gets it as soon as it wakes (Linux 6.12;
/// older ones ignore the wish). Its sleeps are as short as it says.
pub(crate) fn ask_for_short_turns() {
    const SLICE_NS: u64 = 100_000;
    let size = size_of::<SchedulingAttributes>() as u32;
    let attributes = SchedulingAttributes { size, runtime: SLICE_NS, ..Default::default() };
    // SAFETY: the structure lives through the call, and says its size; the second call takes no
    // pointer.
    unsafe {
        let none = 0_u32;
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, none);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
    }
}
