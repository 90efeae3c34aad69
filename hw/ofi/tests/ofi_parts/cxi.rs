//! The provider that behaves as `cxi` does (`emu/cxi`): its modes, and a NIC without room.

use std::process::Command;

use tagmatch_device::matching::{MatchingDevice, MatchingEvent};
use tagmatch_device::{Buffer, TagMatching};
use tagmatch_ofi::{Ofi, OfiConfig};
use tagmatch_testkit::device::{ROLE, role};

use super::support::{config, exactly, pair, received, send_of, synchronous, wait};

/// Runs a test once more, in a process of its own, with these knobs. Skipped where the provider
/// isn't there.
fn child(test: &str, knobs: &[(&str, &str)]) -> Option<String> {
    if !Ofi::probe(&config("cxi")).device.is_available {
        println!("SKIPPED: FI_PROVIDER_PATH names no provider cxi");
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("ofi_parts::cxi::{test}"), "--exact", "--nocapture", "-q"]);
    command.arg("--include-ignored").env(ROLE, "child").envs(knobs.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{knobs:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text)
}

#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn the_mode_is_hybrid_or_software_and_never_hardware() {
    if role().is_some() {
        let hw_tags = match std::env::var("HW_TAGS").as_deref() {
            Ok("off") => TagMatching::Off,
            _ => TagMatching::Auto,
        };
        println!("child: {}", Ofi::probe(&OfiConfig { hw_tags, ..config("cxi") }));
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
        let (mut a, mut b, to_b, to_a) = pair("cxi");
        for number in 0..COUNT {
            if number % 3 == 0 {
                let named = (number % 2 == 0).then_some(to_a);
                b.receive(exactly(number, named), Buffer::zeroed(40_000), number).unwrap();
            }
        }
        let mut sent = 0;
        for number in 0..COUNT {
            let bytes = vec![number as u8; length(number)];
            let message = match number % 5 {
                0 => synchronous(to_b, number, bytes.into()),
                _ => send_of(to_b, number, &bytes),
            };
            sent += u64::from(a.send(message).unwrap().is_some());
            a.poll().inspect(|_| sent += 1);
            if let Some(event) = b.poll() {
                check(&event, length);
            }
        }
        for number in (0..COUNT).filter(|number| number % 3 != 0) {
            b.receive(exactly(number, None), Buffer::zeroed(40_000), number).unwrap();
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

/// The NIC's counters agree: receives that were posted first are matched in it.
#[test]
#[ignore = "needs libfabric1: ci/test ofi"]
fn posted_receives_are_matched_in_the_nic() {
    if role().is_some() {
        let (mut a, mut b, to_b, to_a) = pair("cxi");
        for number in 0..100 {
            b.receive(exactly(number, Some(to_a)), Buffer::zeroed(64), number).unwrap();
            a.send(synchronous(to_b, number, vec![1; 64].into())).unwrap();
            let (length, _) = wait(&mut [&mut a, &mut b], "it", |_, event| received(event, number));
            assert_eq!(length, Ok(64));
        }
        return;
    }
    let folder = std::env::temp_dir().join(format!("tagmatch-ofi-cxi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let sysfs = folder.to_str().unwrap();
    let ran = child("posted_receives_are_matched_in_the_nic", &[("TAGMATCH_CXI_SYSFS", sysfs)]);
    let telemetry = folder.join("cxi0/device/telemetry");
    let sum = |counter: &str| -> u64 {
        let each = (0..4).map(|n| telemetry.join(format!("lpe_net_match_{counter}_{n}")));
        let text = each.filter_map(|file| std::fs::read_to_string(file).ok());
        text.filter_map(|text| text.split('@').next()?.trim().parse::<u64>().ok()).sum()
    };
    let (posted, software) = (sum("priority"), sum("request"));
    std::fs::remove_dir_all(&folder).unwrap();
    if ran.is_some() {
        assert!(posted >= 100 && software == 0, "{posted} {software}");
    }
}
