//! Heartbeats over a simulated network that reports no deaths: survivors learn of a death by
//! heartbeats alone.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::linger;
use tagmatch::TagLayout;
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::ids::IdLayout;
use tagmatch_comm::net::heartbeat::{HeartbeatConfig, Heartbeats};
use tagmatch_comm::net::{Directory, Net, ProcessId};
use tagmatch_comm::{Config, ErrorClass, Runtime};
use tagmatch_comm_sim::{Kill, Ran, Sim, SimConfig};

use crate::common::{self, TestNet, plain};

/// One type of clock for all tests: see [`crate::common::transport`].
pub(crate) type Clock = Box<dyn Fn() -> Duration>;
type Beating = Runtime<Heartbeats<TestNet, Clock>>;

/// The timeout of heartbeats, in steps of the simulation.
const TIMEOUT: u32 = 5000;
/// After so many steps a process that still waits would wait forever.
const STEPS_MAX: Duration = Duration::from_micros(400_000);

/// Some members die at the same time. The others learn of all deaths, and make a communicator
/// without the dead.
async fn survive(runtime: Beating, rounds: usize) -> (u32, u32) {
    let world = runtime.world();
    // A failure ends the operation at members that depend on the dead one. These members revoke the
    // communicator, which ends it at the others.
    let count = |comm: &tagmatch_comm::Comm<_>| {
        comm.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).start()
    };
    for _ in 0..rounds {
        if let Err(error) = count(&world).await {
            assert!(matches!(error.class(), ErrorClass::ProcessFailed | ErrorClass::Revoked));
            world.revoke();
            break;
        }
    }
    loop {
        let living = world.shrink().await.unwrap();
        let sum = count(&living).await;
        let is_whole = u64::from(sum.is_ok());
        if living.agree(is_whole).await.unwrap().flags == 1 {
            return (living.size(), from_bytes::<u32>(&sum.unwrap())[0]);
        }
    }
}

fn beating() -> HeartbeatConfig {
    HeartbeatConfig::default()
        .period(Duration::from_micros(500))
        .timeout(Duration::from_micros(TIMEOUT.into()))
}

fn run(processes: u32, seed: u64, kills: &[Kill]) -> Vec<Option<(u32, u32)>> {
    let sim = Sim::new(SimConfig {
        processes,
        seed,
        tells_deaths: false,
        turns_in_vain: TIMEOUT,
        ..SimConfig::default()
    });
    let config = beating();
    // Until a member dies, or, without a death, for many timeouts.
    let rounds = if kills.is_empty() { 1000 } else { usize::MAX };
    let busy = Rc::new(Cell::new(processes));
    let start = |rank| {
        let now = sim.clock();
        let clock: Clock = Box::new(move || {
            assert!(
                now() < STEPS_MAX || rounds < usize::MAX,
                "seed {seed}: rank {rank} waits for ever"
            );
            now()
        });
        let net = Heartbeats::with_clock(plain(&sim, rank), config, clock).unwrap();
        let runtime = Runtime::new(net, Config::default()).unwrap();
        linger(runtime.clone(), &busy, survive(runtime, rounds))
    };
    let Ran { ends, .. } = sim.run((0..processes).map(start), kills).unwrap();
    ends
}

#[test]
fn survivors_find_silent_deaths_and_go_on() {
    for processes in [2, 3, 5] {
        for step in (0..800).step_by(67) {
            let rank = u32::try_from(step / 67).unwrap() % processes;
            let ends = run(processes, step, &[Kill { rank, step }]);
            let living = processes - 1;
            let ends: Vec<_> = ends.into_iter().flatten().collect();
            assert_eq!(ends, vec![(living, living); living as usize], "step {step}");
        }
    }
}

#[test]
fn neighbours_that_die_at_once_are_all_found() {
    for seed in 0..6 {
        let first = u32::try_from(seed).unwrap();
        let kills = [0, 1, 2].map(|by| Kill { rank: (first + by) % 6, step: 100 + 30 * seed });
        let ends = run(6, seed, &kills);
        assert_eq!(ends.into_iter().flatten().collect::<Vec<_>>(), [(3, 3); 3], "seed {seed}");
    }
}

#[test]
fn no_living_process_is_given_up() {
    for seed in 0..5 {
        assert_eq!(run(4, seed, &[]), [Some((4, 4)); 4], "seed {seed}");
    }
}

#[test]
fn a_timeout_of_no_more_than_a_period_is_refused() {
    for (period, timeout) in [(0, 1), (1, 1)] {
        let [period, timeout] = [period, timeout].map(Duration::from_secs);
        let sim = Sim::new(SimConfig::default());
        let config = HeartbeatConfig::default().period(period).timeout(timeout);
        assert!(Heartbeats::new(sim.net(0), config).is_err());
    }
}

/// Process 0 hears that process 2 is down: it believes another process of its job, and no process
/// of another job.
#[test]
fn a_beat_of_another_job_is_ignored() {
    let ids = IdLayout::BITS_16;
    // The context of heartbeats.
    let context = ((ids.ids() - 1) * ids.oneself().bits()) | (1 << (ids.bits() - 1));
    let tag = TagLayout::MPI.pack(context.into(), 0, 1).unwrap();
    for liar in [1, 3] {
        let config = SimConfig { turns_in_vain: TIMEOUT, ..SimConfig::default() };
        let sim = Sim::of_jobs(config, &[3, 1]);
        let name = |of: u32| {
            let net = sim.net(of);
            net.name(net.own()).unwrap()
        };
        let names = (0..4).map(name).collect::<Vec<_>>();
        let believes = async |number: u32| {
            let mut net = sim.net(number);
            if number == liar {
                let to = net.admit(&names[0]).unwrap();
                net.inject(to, tag, &[1 << 2]).unwrap();
            }
            if number > 0 {
                return false;
            }
            net.admit(&names[liar as usize]).unwrap();
            let mut beats = Heartbeats::with_clock(net, beating(), sim.clock()).unwrap();
            for _ in 0..200 {
                beats.progress();
                common::turn().await;
            }
            beats.is_down(ProcessId(2))
        };
        let ends = sim.run((0..4).map(believes), &[]).unwrap().ends;
        assert_eq!(ends[0], Some(liar == 1), "process {liar} of both jobs");
    }
}
