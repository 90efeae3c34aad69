//! A device that is lost (`IBV_EVENT_DEVICE_FATAL`), as a card that has failed. The test kills the
//! process that stands for the device in `tagmatch-hca`, which is the parent of this one.

use std::os::unix::process::parent_id;
use std::time::{Duration, Instant};

use tagmatch_device::{Buffer, Device, DownReason, Event, TagAdd, TagEvent, TagHandle};
use tagmatch_testkit::device::connect;
use tagmatch_verbs::{TagMatching, Verbs, VerbsConfig};

/// Polls until an event is the one that is wanted.
fn await_event<T>(device: &mut Verbs, mut wanted: impl FnMut(Event<'_>) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = device.poll().and_then(&mut wanted) {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the event does not come");
    }
}

/// Memory that is registered already.
fn registered(device: &mut Verbs) -> Buffer {
    device.tags().expect("a device with a list").entry_buffer(1 << 16).unwrap()
}

fn add(device: &mut Verbs, entry: u32, tag: u64, buffer: Buffer) -> TagHandle {
    let add = TagAdd { entry, tag, mask: u64::MAX, buffer, count: 0 };
    device.tags().unwrap().add(add).map_err(|(_, why)| why).unwrap()
}

/// Its peers are down, and the receives in its list come back: those whose delete the device has
/// not answered, and those that are deleted later.
#[test]
#[ignore = "kills the device: ci/test hca"]
fn a_lost_device_gives_its_receives_back() {
    let config = || VerbsConfig::default().tag_matching(TagMatching::Auto);
    let mut a = Verbs::new(config()).unwrap();
    let mut b = Verbs::new(VerbsConfig::default()).unwrap();
    for device in [&mut a, &mut b] {
        await_event(device, |event| matches!(event, Event::PeerUp { .. }).then_some(()));
    }
    let (to_b, _) = connect(&mut a, &mut b);
    let buffers = [(); 2].map(|()| registered(&mut a));
    let [buffer, later] = buffers;
    let first = add(&mut a, 1, 10, buffer);
    await_event(&mut a, |event| {
        matches!(event, Event::Tag(TagEvent::Added { entry: 1 })).then_some(())
    });
    let device = rustix::process::Pid::from_raw(parent_id() as i32).unwrap();
    rustix::process::kill_process(device, rustix::process::Signal::KILL).unwrap();
    // The device can't answer these any more.
    let second = add(&mut a, 2, 20, later);
    a.tags().unwrap().delete(second, true, 0).unwrap();
    let mut answers = Vec::new();
    let reason = await_event(&mut a, |event| match event {
        Event::Tag(TagEvent::Added { entry }) => {
            answers.push((entry, None));
            None
        }
        Event::Tag(TagEvent::Deleted { entry, buffer }) => {
            answers.push((entry, buffer.map(|buffer| buffer.len())));
            None
        }
        Event::PeerDown { peer, reason } if peer == to_b => Some(reason),
        _ => None,
    });
    let what = "the device is lost (IBV_EVENT_DEVICE_FATAL)";
    assert_eq!(reason, DownReason::Failed { what, errno: 0 });
    assert_eq!(answers, [(2, None), (2, Some(1 << 16))], "in the order of the operations");
    a.tags().unwrap().delete(first, true, 0).unwrap();
    let length = await_event(&mut a, |event| match event {
        Event::Tag(TagEvent::Deleted { entry: 1, buffer }) => buffer.map(|buffer| buffer.len()),
        _ => None,
    });
    assert_eq!(length, 1 << 16);
    let buffer = Buffer::zeroed(1 << 16);
    let more = TagAdd { entry: 3, tag: 30, mask: u64::MAX, buffer, count: 0 };
    assert!(a.tags().unwrap().add(more).is_err(), "nothing goes to a device that is lost");
}
