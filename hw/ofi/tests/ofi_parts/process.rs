//! What a device does to its process, and what is said where there is none. Each in a process of
//! its own, which loads libfabric anew.

use std::process::Command;

use tagmatch_device::matching::{CompleteWhen, MatchingDevice, MatchingEvent, TagSend};
use tagmatch_device::{Buffer, DeviceError};
use tagmatch_ofi::{Ofi, OfiConfig};
use tagmatch_testkit::device::{ROLE, role};
use tagmatch_testkit::scratch::Scratch;

use super::support::{config, exactly, ofi, pair, providers, received, send_of, synchronous, wait};

/// Runs a test once more with these variables; what it prints.
fn child(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("ofi_parts::process::{test}"), "--exact", "--nocapture", "-q"]);
    command.arg("--include-ignored").env(ROLE, "child").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
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

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn signals_stay_as_they_are() {
    if role().is_some() {
        let before = signals();
        for provider in providers() {
            drop(ofi(&provider));
            assert!(signals() == before, "{provider} has changed a signal's handler");
        }
        return;
    }
    child("signals_stay_as_they_are", &[]);
}

/// The error of a device without a libfabric, without a provider, or with one that is none.
#[test]
fn what_is_missing_is_one_line_with_what_to_type() {
    if role().is_some() {
        let provider = std::env::var("WANTED").ok();
        let error = Ofi::new(OfiConfig { provider, ..OfiConfig::default() }).map(drop).unwrap_err();
        println!("child: {error}");
        return;
    }
    let missing = ("TAGMATCH_LIBFABRIC", "/nowhere/libfabric.so.1");
    let cases: [(&[(&str, &str)], &str); 2] = [
        (&[missing], "try: apt-get install libfabric1"),
        (&[("TAGMATCH_LIBFABRIC", "libc.so.6")], "lacks fi_version"),
    ];
    for (variables, wanted) in cases {
        let text = child("what_is_missing_is_one_line_with_what_to_type", variables);
        let line = text.lines().find(|line| line.contains("child: ")).unwrap();
        assert!(line.contains(wanted), "{line}");
    }
}

/// A library with libfabric's names, and of this version. Nothing but the version is asked of it.
fn library(folder: &Scratch, version: &str) -> String {
    let names = ["getinfo", "freeinfo", "dupinfo", "fabric", "strerror"];
    let others: String =
        names.iter().map(|name| format!("void fi_{name}(void) {{ abort(); }}\n")).collect();
    let (source, file) = (folder.join("stub.c"), folder.join(format!("libfabric-{version}.so")));
    let text =
        format!("#include <stdlib.h>\nunsigned fi_version(void) {{ return {version}; }}\n{others}");
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let made = compiler.args(["-shared", "-fPIC", "-o"]).arg(&file).arg(&source).status();
    assert!(made.unwrap().success());
    file.to_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs a C compiler: ci/test ofi"]
fn a_libfabric_that_is_too_old_or_too_new_is_named_with_its_version() {
    let folder = Scratch::new("ofi-versions");
    for (version, wanted) in [
        (
            "1 << 16 | 16",
            "is libfabric 1.16; 1.17 or later is needed; try: apt-get install libfabric1",
        ),
        (
            "3 << 16",
            "is libfabric 3.0, and this version is known up to 2.x; try: TAGMATCH_LIBFABRIC=",
        ),
    ] {
        let stub = library(&folder, version);
        let variables = [("TAGMATCH_LIBFABRIC", &*stub)];
        let text = child("what_is_missing_is_one_line_with_what_to_type", &variables);
        let line = text.lines().find(|line| line.contains("child: ")).unwrap();
        assert!(line.contains(wanted), "{line}");
    }
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn a_provider_that_cannot_be_used_is_named_with_the_reason() {
    for (name, wanted) in
        [("nonsense", "fi_info -l"), ("sockets", "cancelled"), ("udp;ofi_rxd", "truncated")]
    {
        let error = Ofi::new(config(name)).map(drop).unwrap_err();
        assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(wanted), "{name}: {error}");
    }
    let narrow = OfiConfig { used: !0, source: 1, ..config(&providers()[0]) };
    assert!(matches!(Ofi::new(narrow), Err(DeviceError::BadSetting { .. })));
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn the_probe_tells_what_was_taken_and_why_not_the_others() {
    for provider in providers() {
        let info = Ofi::probe(&config(&provider));
        assert!(info.library.is_available && info.device.is_available, "{info}");
        assert!(info.taken.as_ref().unwrap().starts_with(&provider), "{info}");
    }
    let info = Ofi::probe(&OfiConfig::default());
    for (name, reason) in &info.others {
        assert!(!reason.is_empty(), "{name}");
    }
    assert!(info.others.iter().any(|(name, _)| name == "sockets" || name == "shm"), "{info}");
    let none = Ofi::probe(&config("nonsense"));
    assert!(!none.device.is_available && none.to_string().contains("fi_info -l"), "{none}");
}

/// What providers do wrong with a receive that is too short, and with completions of a match: each
/// size on its own, expected and unexpected.
#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn a_truncated_receive_keeps_its_facts_and_a_match_is_told_when_it_is_one() {
    for provider in providers().into_iter().filter(|provider| provider != "shm") {
        let (mut a, mut b, to_b, to_a) = pair(&provider);
        for length in [1, 9, 4000, 8176, 8192, 8193, 30_000, 200_000] {
            for (room, is_expected) in [(0, true), (0, false), (length - 1, true), (8, false)] {
                let room = room.min(length - 1);
                let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
                let receive = |b: &mut Ofi| {
                    b.receive(exactly(7, Some(to_a)), Buffer::zeroed(room), 1).unwrap();
                };
                if is_expected {
                    receive(&mut b);
                }
                let message =
                    TagSend { immediate: Some(5), ..synchronous(to_b, 7, bytes.clone().into()) };
                assert!(a.send(message).unwrap().is_none());
                if !is_expected {
                    for _ in 0..2000 {
                        assert!(a.poll().is_none() && b.poll().is_none(), "{provider} {length}");
                    }
                    receive(&mut b);
                }
                let (mut is_sent, mut got) = (false, None);
                wait(&mut [&mut a, &mut b], "both ends", |index, event| {
                    match event {
                        MatchingEvent::Sent { result, .. } => {
                            assert!(index == 0 && result.is_ok());
                            is_sent = true;
                        }
                        MatchingEvent::Received { result, buffer, .. } => {
                            got = Some((result.unwrap(), buffer));
                        }
                        other => panic!("{other:?}"),
                    }
                    (is_sent && got.is_some()).then_some(())
                });
                let (envelope, buffer) = got.unwrap();
                assert_eq!((envelope.length, envelope.source), (length as u64, to_a), "{provider}");
                assert_eq!((envelope.tag, envelope.immediate), (7, Some(5)), "{provider}");
                assert!(buffer[..] == bytes[..room], "{provider} {length} {room}");
            }
        }
        // A send that waits for delivery ends after the bytes are there.
        let delivered = TagSend {
            complete_when: CompleteWhen::Delivered,
            ..send_of(to_b, 8, &vec![3; 100_000])
        };
        assert!(a.send(delivered).unwrap().is_none());
        b.receive(exactly(8, None), Buffer::zeroed(100_000), 2).unwrap();
        let mut order = Vec::new();
        wait(&mut [&mut a, &mut b], "delivery", |index, event| {
            order.push(index);
            drop(received(event, 2));
            (order.len() == 2).then_some(())
        });
        order.sort_unstable();
        assert_eq!(order, [0, 1], "{provider}");
    }
}
