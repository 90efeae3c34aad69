//! The provider that behaves as `cxi` does (`lab/cxi`): its modes, a NIC without room, and what a
//! NIC counts.

use std::ops::Range;
use std::time::Instant;

use tagmatch_device::matching::{MatchingDevice, MatchingEvent};
use tagmatch_device::{Buffer, PeerId, TagMatching};
use tagmatch_ofi::{NicMatches, Ofi};
use tagmatch_testkit::device::{Other, PATIENCE, again, hear_line, role, say};
use tagmatch_testkit::matching::{message_of, pair, pattern_of, send_of, synchronous, wait};
use tagmatch_testkit::scratch::Scratch;

use crate::{Providers, config};

/// Runs a test once more, in a process of its own, with these knobs. Skipped where the provider
/// isn't there.
fn child(test: &str, knobs: &[(&str, &str)]) -> Option<String> {
    if !Ofi::probe(&config("cxi")).device.is_available {
        println!("SKIPPED: FI_PROVIDER_PATH names no provider cxi");
        return None;
    }
    Some(again(&format!("ofi_parts::cxi::{test}"), knobs))
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn the_mode_is_hybrid_or_software_and_never_hardware() {
    if role().is_some() {
        let hw_tags = match std::env::var("HW_TAGS").as_deref() {
            Ok("off") => TagMatching::Off,
            _ => TagMatching::Auto,
        };
        println!("child: {}", Ofi::probe(&config("cxi").hw_tags(hw_tags)));
        return;
    }
    let off = ("TAGMATCH_CXI_CONTROL", "off");
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[], "hybrid matching"),
        (&[("HW_TAGS", "off")], "software matching"),
        (&[off], "export FI_CXI_RX_MATCH_MODE=hybrid"),
        (&[off, ("FI_CXI_RX_MATCH_MODE", "hybrid")], "hybrid matching"),
        (&[off, ("FI_CXI_RX_MATCH_MODE", "hybrid"), ("HW_TAGS", "off")], "before 2.4"),
        (&[off, ("FI_CXI_RX_MATCH_MODE", "software"), ("HW_TAGS", "off")], "software matching"),
    ];
    for (knobs, wanted) in cases {
        let test = "the_mode_is_hybrid_or_software_and_never_hardware";
        let Some(text) = child(test, knobs) else { return };
        assert!(text.contains(wanted), "{knobs:?}: {text}");
    }
}

/// More messages than the NIC has entries: software goes on where the NIC can't, and nothing is
/// lost, doubled or out of order.
#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn a_nic_without_room_loses_nothing() {
    const COUNT: u64 = 600;
    let length = |number: u64| [8, 300, 5000, 40_000][number as usize % 4];
    if role().is_some() {
        let (mut a, mut b, to_b, to_a) = pair::<Providers>("cxi");
        for number in 0..COUNT {
            if number % 3 == 0 {
                let named = (number % 2 == 0).then_some(to_a);
                b.receive(pattern_of(number, !0, named), Buffer::zeroed(40_000), number).unwrap();
            }
        }
        let mut sent = 0;
        for number in 0..COUNT {
            let bytes = vec![number as u8; length(number)];
            let message = match number % 5 {
                0 => synchronous(to_b, number, &bytes),
                _ => send_of(to_b, number, &bytes),
            };
            sent += u64::from(a.send(message).unwrap().is_some());
            a.poll().inspect(|_| sent += 1);
            if let Some(event) = b.poll() {
                check(&event, length);
            }
        }
        for number in (0..COUNT).filter(|number| number % 3 != 0) {
            b.receive(pattern_of(number, !0, None), Buffer::zeroed(40_000), number).unwrap();
        }
        let mut ends = 0;
        wait(&mut [&mut a, &mut b], "all", |index, event| {
            match index {
                0 => sent += 1,
                _ => ends += check(&event, length),
            }
            (sent == COUNT && ends >= COUNT * 2 / 3).then_some(())
        });
        return;
    }
    for knobs in [
        [("TAGMATCH_CXI_ENTRIES", "64"), ("TAGMATCH_CXI_SEED", "1"), ("TAGMATCH_CXI_AGAIN", "0")],
        [
            ("TAGMATCH_CXI_ENTRIES", "300"),
            ("TAGMATCH_CXI_SEED", "2"),
            ("TAGMATCH_CXI_AGAIN", "100"),
        ],
        [
            ("TAGMATCH_CXI_ENTRIES", "9000"),
            ("TAGMATCH_CXI_SEED", "3"),
            ("TAGMATCH_CXI_TAKEN", "50"),
        ],
    ] {
        if child("a_nic_without_room_loses_nothing", &knobs).is_none() {
            return;
        }
    }
}

/// Checks a received message, and counts it.
fn check(event: &MatchingEvent, length: impl Fn(u64) -> usize) -> u64 {
    let MatchingEvent::Received { token, buffer, result } = event else { panic!("{event:?}") };
    let envelope = result.unwrap();
    assert_eq!((envelope.tag, envelope.length), (*token, length(*token) as u64));
    assert!(buffer[..length(*token)].iter().all(|byte| *byte == *token as u8), "{token}");
    1
}

/// Sends so many messages, each to a receive that waits for it and has this tag, and returns how
/// many were received.
fn exchange([a, b]: [&mut Ofi; 2], [to_b, to_a]: [PeerId; 2], tags: Range<u64>) -> u64 {
    let mut events = 0;
    for tag in tags {
        b.receive(pattern_of(tag, !0, Some(to_a)), Buffer::zeroed(64), tag).unwrap();
        a.send(synchronous(to_b, tag, &[1; 64])).unwrap();
        let (envelope, _) = wait(&mut [a, b], "it", |_, event| message_of(event, tag));
        assert_eq!(envelope.length, 64);
        events += 1;
    }
    events
}

/// The NIC's matches since `before`.
fn counted_since(before: NicMatches) -> NicMatches {
    NicMatches::read("cxi0").unwrap().since(&before).unwrap()
}

fn only_posted(posted: u64) -> NicMatches {
    NicMatches { posted, ..NicMatches::default() }
}

/// The NIC's counters agree: receives that were posted first are matched in it, and messages that
/// came before their receives are unexpected there.
#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn posted_receives_are_matched_in_the_nic() {
    if role().is_some() {
        let info = Ofi::probe(&config("cxi"));
        assert_eq!(info.nic.as_deref(), Some("cxi0"));
        let before = info.nic_matches.unwrap();
        assert!(before.posted + before.unexpected > 0, "the probe's own: {before:?}");
        assert!(info.to_string().contains("of all processes on cxi0: "), "{info}");
        let (mut a, mut b, to_b, to_a) = pair::<Providers>("cxi");
        let before = NicMatches::read("cxi0").unwrap();
        assert_eq!(exchange([&mut a, &mut b], [to_b, to_a], 0..100), 100);
        assert_eq!(counted_since(before), only_posted(100));
        for tag in 0..30 {
            assert!(a.send(send_of(to_b, tag, b"early")).is_ok());
        }
        let start = Instant::now();
        while counted_since(before).unexpected < 30 {
            let sent = a.poll();
            assert!(matches!(sent, None | Some(MatchingEvent::Sent { result: Ok(()), .. })));
            assert!(b.poll().is_none() && start.elapsed() < PATIENCE);
        }
        b.receive(pattern_of(7, !0, None), Buffer::zeroed(64), 7).unwrap();
        let (envelope, _) = wait(&mut [&mut b], "it", |_, event| message_of(event, 7));
        assert_eq!(envelope.length, 5);
        let unexpected = NicMatches { unexpected: 30, ..only_posted(100) };
        assert_eq!(counted_since(before), unexpected, "each message once");
        return;
    }
    let sysfs = Scratch::new("ofi-cxi-alone");
    let knobs = [("TAGMATCH_CXI_SYSFS", sysfs.to_str().unwrap())];
    child("posted_receives_are_matched_in_the_nic", &knobs);
}

/// Two processes, each with two devices, at the same time on one NIC: each has received what it was
/// sent, and the NIC's counts are the sum.
#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn the_nic_counts_for_all_processes_together() {
    let test = "the_nic_counts_for_all_processes_together";
    match role().as_deref() {
        None => {
            let sysfs = Scratch::new("ofi-cxi-together");
            child(test, &[("TAGMATCH_CXI_SYSFS", sysfs.to_str().unwrap())]);
        }
        Some("child") => {
            let shares = [100, 60];
            let spawn =
                |share: u64| Other::spawn(&format!("ofi_parts::cxi::{test}"), &share.to_string());
            let mut others = shares.map(spawn);
            others.iter_mut().for_each(|other| assert_eq!(other.hear(), "ready"));
            let before = NicMatches::read("cxi0").unwrap();
            // Each has matched messages while the other one had matched some and not all.
            for part in 1..=2 {
                others.iter_mut().for_each(|other| other.say("go"));
                for (other, share) in others.iter_mut().zip(shares) {
                    assert_eq!(other.hear(), (share * part / 2).to_string(), "its own");
                }
                assert_eq!(counted_since(before), only_posted(160 * part / 2), "all");
            }
        }
        Some(share) => {
            let share: u64 = share.parse().unwrap();
            let (mut a, mut b, to_b, to_a) = pair::<Providers>("cxi");
            let mut events = 0;
            say("ready");
            for tags in [0..share / 2, share / 2..share] {
                assert_eq!(hear_line(), "go");
                events += exchange([&mut a, &mut b], [to_b, to_a], tags);
                say(events);
            }
            // The parent ends this process.
            hear_line();
        }
    }
}
