//! Outages of the network, which `tagmatch-hca` makes on request.

use std::time::{Duration, Instant};

use tagmatch_device::{Device, DownReason, PeerId, Refused};
use tagmatch_testkit::device::{Owned, connect, message, poll, up};
use tagmatch_verbs::{Verbs, VerbsConfig};

/// A line in this file is a fault.
const CONTROL: &str = "/sys/class/tagmatch-hca/control";

/// Two connected devices that repeat a packet seven times, each after 4.096 µs × 2^`ack_timeout`.
fn pair(ack_timeout: u8) -> (Verbs, Verbs, PeerId) {
    let ack_timeout = Some(ack_timeout);
    let config = VerbsConfig::default().ack_timeout(ack_timeout).retry_count(Some(7));
    let [mut a, mut b] = [config.clone(), config].map(|config| up(Verbs::new(config).unwrap()));
    let (to_b, _) = connect(&mut a, &mut b);
    (a, b, to_b)
}

/// Sends messages in an outage, which begins some time after it was asked for. Returns why the peer
/// is down, or `None` once none came for `silence` and then one did.
fn send_in_outage(ack_timeout: u8, fault: &str, silence: Duration) -> Option<DownReason> {
    let (mut a, mut b, to_b) = pair(ack_timeout);
    std::fs::write(CONTROL, format!("{fault}\n")).unwrap();
    let start = Instant::now();
    let mut last = start;
    while start.elapsed() < Duration::from_secs(30) {
        let sent = a.send(to_b, message(b"in between"));
        assert!(matches!(sent, Ok(()) | Err(Refused::Full | Refused::Down)), "{sent:?}");
        if let Some(Owned::Down(peer, reason)) = poll(&mut a) {
            assert_eq!(peer, to_b);
            return Some(reason);
        }
        if let Some(Owned::Message(_, _, bytes)) = poll(&mut b) {
            assert_eq!(bytes, b"in between");
            if last.elapsed() > silence {
                return None;
            }
            last = Instant::now();
        }
    }
    panic!("no end of the outage, and none of the connection");
}

/// All attempts together take 2.1 s here, and 0.5 s below. With the defaults they take 8.6 s.
#[test]
#[ignore = "makes outages: ci/test hca"]
fn a_connection_survives_an_outage_that_is_shorter_than_all_its_attempts() {
    assert_eq!(send_in_outage(16, "outage 1s", Duration::from_millis(700)), None);
}

/// The port says that its link is down.
#[test]
#[ignore = "makes outages: ci/test hca"]
fn a_connection_survives_a_link_that_is_down_for_a_time() {
    assert_eq!(send_in_outage(16, "down 1s", Duration::from_millis(700)), None);
}

#[test]
#[ignore = "makes outages: ci/test hca"]
fn a_longer_outage_ends_a_connection() {
    let reason = send_in_outage(14, "outage 5s", Duration::from_secs(4));
    assert_eq!(reason, Some(DownReason::Unreachable { errno: libc::ETIMEDOUT }));
}
