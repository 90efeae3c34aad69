//! TCP over a system that answers as badly as it may (`lab/world`): random use of a few workers by
//! one thread, in virtual time.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::panic::catch_unwind;
use std::time::Duration;

use tagmatch_device::DeviceError;
use tagmatch_tcp::{Secret, Tcp, TcpConfig};
use tagmatch_testkit::device::up;
use tagmatch_testkit::random::Random;
use tagmatch_world::devices::{Ends, Plan, Scenario};
use tagmatch_world::{Audit, Failure, Faults, Settings, World};

/// Seeds of an ordinary run.
const SEEDS: Range<u64> = 0..100;
/// A range of seeds, such as `0..100000`, to run instead.
const MORE: &str = "TAGMATCH_WORLD_SEEDS";
const HOUR: Duration = Duration::from_secs(3600);

fn seeds() -> Option<Range<u64>> {
    let text = std::env::var(MORE).ok()?;
    let (first, end) = text.split_once("..").expect("a range such as 0..100000");
    Some(first.parse().expect("a number")..end.parse().expect("a number"))
}

/// The addresses that a worker announces: its own, and some at which nobody is.
fn hosts(own: Ipv4Addr, has_dead_hosts: bool, random: &mut Random) -> Vec<IpAddr> {
    let mut hosts = vec![IpAddr::V4(own)];
    for number in 0..if has_dead_hosts { 1 + random.below_u32(2) } else { 0 } {
        let dead = Ipv4Addr::new(10, 0, 1, u8::try_from(number).unwrap());
        hosts.insert(random.index(hosts.len() + 1), IpAddr::V4(dead));
    }
    hosts
}

fn device(
    process: usize,
    patience: Duration,
    has_dead_hosts: bool,
    random: &mut Random,
) -> Result<Tcp, DeviceError> {
    let ip = Ipv4Addr::new(10, 0, 0, u8::try_from(process + 1).unwrap());
    let config = TcpConfig::default()
        .secret(Secret::from_bytes(&[7; 16]).ok())
        .listen(vec![IpAddr::V4(ip)])
        .announce(hosts(ip, has_dead_hosts, random))
        .message_max(random.between((3000, 9000)))
        .outbox_bytes(random.between((4096, 20_000)))
        .acknowledge_timeout(Duration::from_secs(8))
        .leave_timeout(patience);
    Tcp::new(config).map(up)
}

/// Whatever the system does, messages and reads arrive whole, once and in order; ends are told once
/// and in time; what was flushed arrives; nothing stays open.
#[test]
fn what_workers_promise_holds_however_badly_the_system_answers() {
    for seed in seeds().unwrap_or(SEEDS) {
        let done = catch_unwind(|| run_badly(seed));
        assert!(done.is_ok(), "{MORE}={seed}..{}", seed + 1);
    }
}

fn run_badly(seed: u64) {
    let mut random = Random::stream(seed, 0);
    let is_narrow = random.chance(1, 4);
    let bad = random.between((0, 300));
    let faults = Faults {
        errors_per_mille: bad,
        events_per_mille: bad,
        piece_max: if is_narrow { 1 + random.index(3) } else { random.index(5000) },
        failure: None,
    };
    let room = |random: &mut Random| if is_narrow { 128 } else { 128 << random.index(12) };
    let sent_max = room(&mut random);
    // A slow network isn't a narrow one, too: that would take hours.
    let is_wide = sent_max >= 1 << 16;
    let acknowledgement_ms = if is_wide { random.pick(&[0, 100, 2000]) } else { 0 };
    let settings = Settings {
        seed,
        has_network: true,
        faults: Faults::default(),
        sent_max,
        received_max: room(&mut random),
        acknowledgement_time: Duration::from_millis(acknowledgement_ms),
    };
    let plan = Plan {
        seed,
        steps: 60 + random.index(200),
        length_max: if is_narrow { 200 } else { 2900 },
        read_max: if is_wide { 200_000 } else { 2000 },
        ends: random.pick(&[Ends::None, Ends::Processes, Ends::Machines]),
        may_break: false,
        has_dead_hosts: random.chance(1, 4),
    };
    let patience = if plan.ends == Ends::Machines { Duration::from_secs(1) } else { HOUR };
    let count = 2 + random.index(2);
    let world = World::enter(settings);
    let has_dead_hosts = plan.has_dead_hosts;
    let make =
        |process| world.run_as(process, || device(process, patience, has_dead_hosts, &mut random));
    let devices = (0..count).map(make).collect::<Result<_, _>>().unwrap();
    world.set_faults(faults);
    Scenario::new(&world, plan, devices).run();
    let audit = world.leave();
    assert!(audit.open.is_empty(), "open at the end: {:?}", audit.open);
}

/// Each call of a scenario fails once. An error that passes changes nothing. Another one ends a
/// connection, or keeps a worker from being made, with an error that says what was wrong: what was
/// flushed arrives all the same, the other end is told, and nothing stays open.
#[test]
fn each_call_may_fail_once() {
    for seed in seeds().unwrap_or(0..2) {
        let failures = run_with(seed, None).failures(seeds().is_some());
        assert!(failures.len() > 100, "{} calls", failures.len());
        for failure in failures {
            let done = catch_unwind(|| run_with(seed, Some(failure)));
            assert!(done.is_ok(), "{MORE}={seed}..{}: {failure:?}", seed + 1);
        }
    }
}

fn run_with(seed: u64, failure: Option<Failure>) -> Audit {
    let mut random = Random::stream(seed, 0);
    let faults = Faults { failure, ..Faults::default() };
    let world = World::enter(Settings {
        seed,
        has_network: true,
        faults,
        sent_max: 4096,
        received_max: 4096,
        acknowledgement_time: Duration::ZERO,
    });
    let mut make = |process| world.run_as(process, || device(process, HOUR, false, &mut random));
    match (make(0), make(1)) {
        (Ok(one), Ok(other)) => {
            let may_break = failure.is_some_and(|failure| !failure.passes());
            let plan = Plan {
                seed,
                steps: 40,
                length_max: 2900,
                read_max: 9000,
                ends: Ends::None,
                may_break,
                has_dead_hosts: false,
            };
            Scenario::new(&world, plan, vec![one, other]).run();
        }
        (Err(error), _) | (_, Err(error)) => {
            let errno = failure.expect("a call has failed").errno;
            let cause = io::Error::from_raw_os_error(errno).to_string();
            let text = error.to_string();
            let is_told = text.contains(&cause) || text.contains("ulimit");
            assert!(is_told, "{cause}: {text}");
        }
    }
    let audit = world.leave();
    assert!(audit.open.is_empty(), "open at the end: {:?}", audit.open);
    audit
}
