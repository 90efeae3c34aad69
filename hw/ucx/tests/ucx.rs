//! The UCX device on a real libucp: run by `ci/test ucx`, or by hand with
//! `cargo test -p tagmatch-ucx --test ucx -- --ignored` where libucx0 is installed.
//!
//! Each test runs over each of the transports that are named in `TAGMATCH_TEST_UCX_TLS` (values of
//! `UCX_TLS`, apart by spaces), else over shared memory and over TCP.

use std::ptr::NonNull;

use tagmatch_device::matching::{MatchingDevice, TagSend, Unfit};
use tagmatch_device::{Buffer, DeviceError, DownReason, PeerId};
use tagmatch_secret::Secret;
use tagmatch_testkit::device::{again, role};
use tagmatch_testkit::matching::{
    Fixture, Settings, connect, down, drain, exactly, expect, pair, pattern_of, receive, send_of,
    up, wait,
};
use tagmatch_testkit::matching_contract;
use tagmatch_ucx::{Ucx, UcxConfig};
use tagmatch_ucx_sys::signals::Signals;

struct Transports;

/// 31 bits of layout: immediate data fits above.
fn config(tls: &str) -> UcxConfig {
    let Settings { layout: [used, source], .. } = Settings::default();
    UcxConfig::default().used(used).source(source).transports(Some(tls.into()))
}

impl Fixture for Transports {
    type Device = Ucx;
    const MODULE: &'static str = "";
    const MAGIC: &'static [u8; 4] = b"TMux";
    const SOCKET: &'static str = "tagmatch-ucx-";
    const HAS_FIRST_BYTES: bool = false;
    /// UCX 1.13 over TCP ends the process then (`Assertion wireup_ep->pending_count == 0`).
    const SENDS_TO_THE_DYING: bool = false;
    const ENDS: u32 = 30;

    fn ways() -> Vec<String> {
        let named = std::env::var("TAGMATCH_TEST_UCX_TLS");
        let named = named.as_deref().unwrap_or("posix,self tcp");
        named.split_whitespace().map(Into::into).collect()
    }

    fn alone() -> Vec<String> {
        Self::ways().into_iter().chain(["self".into()]).collect()
    }

    fn make(way: &str, settings: Settings) -> Ucx {
        let Settings { layout: [used, source], secret, connect_timeout } = settings;
        let secret = secret.map(|byte| Secret::from_bytes(&[byte; 16]).unwrap());
        let config = config(way).used(used).source(source).secret(secret);
        Ucx::new(config.connect_timeout(connect_timeout)).unwrap()
    }

    fn lend(memory: &mut [u8]) -> Buffer {
        // SAFETY: the memory lives longer than the device has it, by the contract.
        unsafe { Buffer::from_raw(NonNull::from(&mut *memory).cast(), memory.len(), true) }
    }
}

matching_contract!(
    #[ignore = "needs libucx0: ci/test ucx"]
    Transports
);

fn numbered(tls: &str, own: u64) -> Ucx {
    let mut ucx = Ucx::new(config(tls).own_source(Some(own))).unwrap();
    assert!(ucx.poll().is_some());
    ucx
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn a_runtime_may_keep_the_source_in_its_tags() {
    for tls in Transports::ways() {
        let tag = |source: u64, tag: u64| source << 16 | tag;
        let mut a = numbered(&tls, 40);
        let mut b = numbered(&tls, 50);
        let early = b.connect(&a.address()).unwrap();
        let unnumbered = b.receive(pattern_of(tag(40, 1), !0, Some(early)), Buffer::zeroed(1), 1);
        assert!(matches!(unnumbered, Err((_, Unfit::NotCarried(_)))));
        let mut ups = 0;
        wait(&mut [&mut a, &mut b], "both", |_, _| {
            ups += 1;
            (ups == 2).then_some(())
        });
        let to_b = a.connect(&b.address()).unwrap();
        a.send(send_of(to_b, tag(40, 7), b"x")).unwrap();
        receive(&mut b, exactly(tag(40, 7)), 1, 1);
        let (envelope, _) = expect(&mut a, &mut b, 1);
        assert_eq!((envelope.tag, envelope.source), (tag(40, 7), early), "{tls}");
        receive(&mut b, pattern_of(7, 0xffff, Some(early)), 1, 2);
        a.send(send_of(to_b, tag(40, 7), b"x")).unwrap();
        assert_eq!(expect(&mut a, &mut b, 2).0.tag, tag(40, 7));
        let (_, unfit) = a.send(send_of(to_b, tag(41, 7), b"x")).unwrap_err();
        assert!(matches!(unfit, Unfit::NotCarried(_)), "{unfit:?}");
        b.send(send_of(PeerId::ONESELF, tag(50, 1), b"x")).unwrap();
        receive(&mut b, exactly(tag(50, 1)), 1, 3);
        assert_eq!(expect(&mut a, &mut b, 3).0.source, PeerId::ONESELF);
    }
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn two_peers_with_one_number_are_one_too_many_and_one_without_is_refused() {
    let tls = &Transports::ways()[0];
    let mut a = numbered(tls, 1);
    let mut b = numbered(tls, 2);
    connect(&mut b, &mut a);
    for mut other in [numbered(tls, 2), numbered(tls, 1), up::<Transports>(tls)] {
        let to_a = other.connect(&a.address()).unwrap();
        let reason = down(&mut [&mut a, &mut other], 1, to_a);
        assert!(matches!(reason, DownReason::Misbehaved { .. }), "{reason:?}");
    }
    assert!(a.poll().is_none());
}

#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn immediate_data_needs_bits_above_the_layout() {
    let wide = config(&Transports::ways()[0]).used(0xffff_ffff);
    let message = send_of(PeerId::ONESELF, 1, b"abc");
    let refused = Ucx::new(wide).unwrap().send(TagSend { immediate: Some(1), ..message });
    let (buffer, unfit) = refused.unwrap_err();
    assert!(matches!(unfit, Unfit::NotCarried(_)) && &buffer[..] == b"abc", "{unfit:?}");
}

/// What UCX would print by itself: of a device that can't be made, of one whose peer dies, of one
/// that is dropped with messages in it.
#[test]
#[ignore = "needs libucx0: ci/test ucx"]
fn signals_stay_as_they_are_and_nothing_is_printed() {
    if role().is_some() {
        let before = Signals::now();
        let unknown = config("tcp").transports(Some("nonsense".into()));
        assert!(matches!(Ucx::new(unknown), Err(DeviceError::System { .. })));
        for tls in Transports::ways() {
            let (mut a, mut b, to_b, _) = pair::<Transports>(&tls);
            a.send(send_of(to_b, 1, &[0; 50_000])).unwrap();
            a.send(send_of(to_b, 1, b"unexpected")).unwrap();
            drain(&mut b);
            drop(a);
            drain(&mut b);
        }
        assert!(before.are_unchanged(), "a signal's handler has changed");
        return;
    }
    let test = "signals_stay_as_they_are_and_nothing_is_printed";
    let text = again(test, &[("UCX_LOG_LEVEL", "info")]);
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
    for tls in Transports::ways() {
        let (a, _b, to_b, _) = pair::<Transports>(&tls);
        let used = a.transports(to_b);
        let name = tls.split(',').next().unwrap();
        assert!(used.iter().any(|used| used.starts_with(name)), "{tls}: {used:?}");
    }
}
