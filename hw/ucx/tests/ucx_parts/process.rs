//! What a device does to its process: threads, sleep, signals, output.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use tagmatch_device::matching::MatchingDevice;
use tagmatch_device::{DeviceError, EventDescriptor, PeerId};
use tagmatch_os::sleep::sleep_until_readable;
use tagmatch_ucx::{Ucx, UcxConfig};

use super::support::{
    config, connect, drain, exactly, message_of, pair, receive, send_of, transports, ucx,
};
use crate::common::{PATIENCE, ROLE, role};

#[test]
fn a_device_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Ucx>();
}

/// Sleeps until the device has a message for this token.
fn sleep_for(device: &mut Ucx, token: u64) {
    let start = std::time::Instant::now();
    loop {
        while let Some(event) = device.poll() {
            if message_of(event, token).is_some() {
                return device.disarm();
            }
        }
        assert!(start.elapsed() < PATIENCE, "slept in vain");
        if device.arm() && !device.has_work() {
            let descriptor = device.event_descriptor();
            assert!(sleep_until_readable(&[descriptor.as_fd()], PATIENCE).unwrap());
        }
        device.disarm();
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_sleeper_is_woken_by_a_message() {
    for tls in transports() {
        let (mut a, mut b, to_b, _) = pair(&tls);
        for length in [8, 200_000] {
            receive(&mut b, exactly(1), length, 1);
            let sender = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                let _ = a.send(send_of(to_b, 1, &vec![1; length])).unwrap();
                for _ in 0..200 {
                    while a.poll().is_some() {}
                    std::thread::sleep(Duration::from_millis(1));
                }
                a
            });
            sleep_for(&mut b, 1);
            a = sender.join().unwrap();
        }
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_sleeper_is_woken_by_a_connection_and_by_its_end() {
    for tls in transports() {
        let mut b = ucx(&tls);
        let address = b.address();
        let other = tls.clone();
        let connecting = std::thread::spawn(move || {
            let mut a = ucx(&other);
            std::thread::sleep(Duration::from_millis(30));
            a.connect(&address).unwrap();
            for _ in 0..100 {
                a.poll();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut events = 0;
        let start = std::time::Instant::now();
        while events < 2 {
            while b.poll().is_some() {
                events += 1;
            }
            assert!(start.elapsed() < PATIENCE, "{tls}: {events}");
            if events < 2 && b.arm() {
                sleep_until_readable(&[b.event_descriptor()], PATIENCE).unwrap();
            }
            b.disarm();
        }
        connecting.join().unwrap();
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn an_armed_device_knows_of_work_that_was_begun() {
    for tls in transports().into_iter().chain(["self".into()]) {
        let mut a = ucx(&tls);
        while !a.arm() {
            a.poll();
        }
        assert!(!a.has_work());
        receive(&mut a, exactly(1), 8, 1);
        a.send(send_of(PeerId::ONESELF, 1, b"x")).unwrap();
        assert!(a.has_work(), "{tls}");
        sleep_for(&mut a, 1);
    }
}

fn signals() -> Vec<(usize, i32)> {
    // SAFETY: structures that the calls fill.
    unsafe {
        let action = |signal| {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            // The C library adds SA_RESTORER to whatever it sets.
            (action.sa_sigaction, action.sa_flags & !0x0400_0000)
        };
        (1..32).map(action).collect()
    }
}

/// What UCX would print by itself: of a device that can't be made, of one whose peer dies, of one
/// that is dropped with messages in it.
#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn signals_stay_as_they_are_and_nothing_is_printed() {
    if role().is_some() {
        let before = signals();
        let unknown = UcxConfig { transports: Some("nonsense".into()), ..config("tcp") };
        assert!(matches!(Ucx::new(unknown), Err(DeviceError::System { .. })));
        for tls in transports() {
            let (mut a, mut b, to_b, _) = pair(&tls);
            a.send(send_of(to_b, 1, &[0; 50_000])).unwrap();
            a.send(send_of(to_b, 1, b"unexpected")).unwrap();
            drain(&mut b);
            drop(a);
            drain(&mut b);
        }
        assert!(signals() == before, "a signal's handler has changed");
        return;
    }
    let name = "ucx_parts::process::signals_stay_as_they_are_and_nothing_is_printed";
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--include-ignored", "-q"])
        .env(ROLE, "child")
        .env("UCX_LOG_LEVEL", "info")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("UCX"), "{text}");
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn the_probe_tells_what_there_is() {
    let info = Ucx::probe(&config("posix,tcp,self"));
    assert!(info.library.is_available && info.device.is_available, "{info}");
    assert!(info.wakeup.is_available && info.version.as_deref() >= Some("1.13"));
    assert!(info.transports.iter().any(|name| name == "posix/memory"), "{info}");
    let alone = Ucx::probe(&config("self"));
    assert!(alone.device.is_available && !alone.wakeup.is_available, "{alone}");
    let none = Ucx::probe(&config("nonsense"));
    assert!(!none.device.is_available && none.to_string().contains("try:"), "{none}");
    for tls in transports() {
        let (mut a, mut b) = (ucx(&tls), ucx(&tls));
        let (to_b, _) = connect(&mut a, &mut b);
        let used = a.transports(to_b);
        let name = tls.split(',').next().unwrap();
        assert!(used.iter().any(|used| used.starts_with(name)), "{tls}: {used:?}");
    }
}
