//! Sets of descriptors, timers and time.

use std::collections::BTreeMap;
use std::time::Duration;

use libc::{c_int, c_uint};

use super::answers::{answer, failure, open_file, result};
use crate::faults::Call;
use crate::kernel::{File, Kernel, Watch};
use crate::scope::{ask, run_others};

/// A sleep without a limit ends after this time, and then the caller sees that nothing is ready.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

#[unsafe(no_mangle)]
extern "C" fn epoll_create1(flags: c_int) -> c_int {
    match open_file(Call::EpollCreate, || File::Epoll(BTreeMap::new())) {
        Some(answer) => result(answer),
        None => real!(epoll_create1 as fn(flags: c_int) -> c_int),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    set: c_int,
    what: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    let world = ask(|kernel| {
        let mut watch = Watch { events: 0, number: 0 };
        if !event.is_null() {
            // SAFETY: the caller gives an event.
            let event = unsafe { event.read_unaligned() };
            watch = Watch { events: event.events, number: event.u64 };
        }
        kernel.control(set, what, fd, watch)
    });
    let world =
        if what == libc::EPOLL_CTL_ADD { answer(world, Call::EpollAdd) } else { world.flatten() };
    match world {
        Some(answer) => result(answer.map(|()| 0)),
        None => real!(
            epoll_ctl
                as fn(set: c_int, what: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int
        ),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    set: c_int,
    to: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let world = ask(|kernel| {
        kernel.files.get(&set)?;
        kernel.tick();
        kernel.ready(set, usize::try_from(most).unwrap_or(0))
    });
    match answer(world, Call::EpollWait) {
        Some(answer) => result(answer.map(|found| {
            for (at, ready) in found.iter().enumerate() {
                let event = libc::epoll_event { events: ready.events, u64: ready.number };
                // SAFETY: the caller has room for `most` events.
                unsafe { to.add(at).write_unaligned(event) };
            }
            c_int::try_from(found.len()).unwrap_or(0)
        })),
        None => real!(
            epoll_wait
                as fn(set: c_int, to: *mut libc::epoll_event, most: c_int, timeout: c_int) -> c_int
        ),
    }
}

#[unsafe(no_mangle)]
extern "C" fn eventfd(value: c_uint, flags: c_int) -> c_int {
    match failure(Call::EventFd) {
        Some(errno) => result(Err(errno)),
        None => real!(eventfd as fn(value: c_uint, flags: c_int) -> c_int),
    }
}

#[unsafe(no_mangle)]
extern "C" fn timerfd_create(clock: libc::clockid_t, flags: c_int) -> c_int {
    match open_file(Call::TimerCreate, || File::Timer(None)) {
        Some(answer) => result(answer),
        None => real!(timerfd_create as fn(clock: libc::clockid_t, flags: c_int) -> c_int),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const libc::itimerspec,
    old: *mut libc::itimerspec,
) -> c_int {
    let world = ask(|kernel| {
        kernel.files.get(&fd)?;
        // SAFETY: the caller gives a setting.
        let value = unsafe { (*new).it_value };
        let seconds = u64::try_from(value.tv_sec).unwrap_or(0);
        let delay = Duration::new(seconds, u32::try_from(value.tv_nsec).unwrap_or(0));
        kernel.set_timer(fd, (!delay.is_zero()).then_some(delay))
    });
    match world.flatten() {
        Some(answer) => result(answer.map(|()| 0)),
        None => real!(
            timerfd_settime
                as fn(
                    fd: c_int,
                    flags: c_int,
                    new: *const libc::itimerspec,
                    old: *mut libc::itimerspec,
                ) -> c_int
        ),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    length: libc::nfds_t,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    let polled = match usize::try_from(length).unwrap_or(0) {
        0 => &[][..],
        // SAFETY: the caller gives so many.
        length => unsafe { std::slice::from_raw_parts(fds, length) },
    };
    let watched: Vec<c_int> = polled.iter().map(|poll| poll.fd).collect();
    let is_of_world = |kernel: &Kernel| watched.iter().any(|fd| kernel.files.contains_key(fd));
    if ask(|kernel| is_of_world(kernel)) != Some(true) {
        return real!(
            ppoll
                as fn(
                    fds: *mut libc::pollfd,
                    length: libc::nfds_t,
                    time: *const libc::timespec,
                    mask: *const libc::sigset_t,
                ) -> c_int
        );
    }
    run_others();
    // SAFETY: the caller gives a time, or null for none.
    let time = unsafe { time.as_ref() }.map(|time| {
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
    });
    let ready = ask(|kernel| {
        let until = kernel.now + time.unwrap_or(FOREVER);
        kernel.sleep(&watched, until)
    });
    c_int::from(ready.unwrap_or(false))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, to: *mut libc::timespec) -> c_int {
    let is_asked = clock == libc::CLOCK_MONOTONIC;
    let now = ask(|kernel| (is_asked && kernel.has_network).then_some(kernel.now)).flatten();
    match now {
        Some(now) => {
            let seconds = libc::time_t::try_from(now.as_secs()).unwrap_or(0);
            let time = libc::timespec { tv_sec: seconds, tv_nsec: now.subsec_nanos().into() };
            // SAFETY: the caller gives a place for it.
            unsafe { to.write(time) };
            0
        }
        None => {
            real!(clock_gettime as fn(clock: libc::clockid_t, to: *mut libc::timespec) -> c_int)
        }
    }
}

/// A function of this file, which keeps all of them.
pub(super) fn names() -> *const () {
    epoll_wait as *const ()
}
