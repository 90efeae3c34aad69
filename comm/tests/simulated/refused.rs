//! A transport that refuses messages for a reason of its own: not because a process is down.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tagmatch_comm::coll::Op;
use tagmatch_comm::net::heartbeat::{HeartbeatConfig, Heartbeats};
use tagmatch_comm::net::{Net, NetError};
use tagmatch_comm::{Comm, Config, Error, ErrorClass, Runtime};
use tagmatch_comm_sim::{Sim, SimConfig, SimNet};

use crate::common::transport::{Altered, Changes, Refused, WHY};
use crate::common::{TestNet, linger};
use crate::counted_out::{AGREEMENTS_MAX, work};
use crate::heartbeats::Clock;

/// A transport that refuses messages of a kind, after some of them.
fn refusing(net: SimNet, refused: Refused, left: u32) -> TestNet {
    Altered::new(net, Changes { refuses: Some((refused, left)), ..Changes::NONE })
}

/// Works, and goes on without the members that have failed: how many are left then. `None`: this
/// process has counted itself out.
async fn work_and_shrink(world: Comm<TestNet>) -> Option<u32> {
    let is_out = |error: &Error| match error {
        Error::CountedOut { why } => {
            assert!(why.contains(WHY), "{why}");
            true
        }
        _ => false,
    };
    match work(&world).await {
        Ok(()) => {}
        Err(error) if is_out(&error) => return None,
        Err(error) => {
            let class = error.class();
            let local = [ErrorClass::Transport, ErrorClass::ProcessFailed, ErrorClass::Revoked];
            assert!(local.contains(&class), "{error}");
        }
    }
    world.revoke();
    match world.shrink().await {
        Ok(left) => Some(left.size()),
        Err(error) => {
            assert!(is_out(&error), "{error}");
            assert!(is_out(&world.agree(1).await.unwrap_err()));
            assert!(is_out(&world.send(0, 7, vec![1]).await.unwrap_err().error));
            None
        }
    }
}

/// Whichever message is the first that a transport refuses: agreement, revocation and shrink end.
/// At the process that can't send they end with the transport's reason.
#[test]
fn operations_end_with_the_error_of_a_transport_that_refuses_messages() {
    for refused in [Refused::Control, Refused::Data, Refused::All] {
        for (processes, left) in [2, 3].into_iter().flat_map(|of| (0..40).map(move |at| (of, at))) {
            let seed = u64::from(left);
            let config = SimConfig { processes, seed, ..SimConfig::default() };
            let sim = Sim::new(SimConfig { turns_in_vain: 2000, ..config });
            let busy = Rc::new(Cell::new(processes));
            let start = |rank| {
                let left = if rank == 1 { left } else { u32::MAX };
                let net = refusing(sim.net(rank), refused, left);
                let runtime = Runtime::new(net, Config::default()).unwrap();
                linger(runtime.clone(), &busy, work_and_shrink(runtime.world()))
            };
            let ran = sim.run((0..processes).map(start), &[]);
            let ran = ran.unwrap_or_else(|stuck| panic!("{refused:?} after {left}: {stuck}"));
            let ends: Vec<_> = ran.ends.into_iter().map(Option::unwrap).collect();
            for (rank, end) in ends.iter().enumerate() {
                let stays = rank != 1 || ends[1].is_some();
                assert_eq!(end.is_some(), stays, "{refused:?} after {left}: {ends:?}");
            }
        }
    }
}

/// The error with which the operations of a process end that has nothing to do with what was
/// refused: an agreement with itself. `None`: they don't end.
async fn end_of_oneself<N: Net>(runtime: &Runtime<N>) -> Option<String> {
    for _ in 0..AGREEMENTS_MAX {
        if let Err(error) = runtime.oneself().agree(1).await {
            return Some(error.to_string());
        }
    }
    None
}

/// Runs a program in the first process alone, whose messages are refused from the first one on. Its
/// operations must end.
fn must_end<F: Future<Output = Option<String>>>(
    processes: u32,
    refused: Refused,
    program: impl Fn(TestNet) -> F,
) {
    let sim = Sim::new(SimConfig { processes, ..SimConfig::default() });
    let ran = sim.run([program(refusing(sim.net(0), refused, 0))], &[]);
    let error = ran.unwrap_or_else(|stuck| panic!("{stuck}")).ends.remove(0).flatten();
    assert!(error.as_ref().is_some_and(|error| error.contains(WHY)), "{error:?}");
}

/// A long message of the service is sent with a request, and its error comes later.
#[test]
fn a_long_revocation_that_is_refused_ends_the_operations_of_its_process() {
    must_end(300, Refused::Control, |net| async move {
        let runtime = Runtime::new(net, Config::default()).unwrap();
        runtime.world().revoke();
        end_of_oneself(&runtime).await
    });
}

/// The program of a buffered send gets no request, so it learns of the error by what comes next.
#[test]
fn a_buffered_send_that_is_refused_ends_the_operations_of_its_process() {
    must_end(2, Refused::Data, |net| async move {
        let runtime = Runtime::new(net, Config::default()).unwrap();
        runtime.attach_buffer(1000).unwrap();
        runtime.world().send_buffered(1, 1, &[1; 100]).unwrap();
        end_of_oneself(&runtime).await
    });
}

#[test]
fn a_heartbeat_that_is_refused_ends_the_operations_of_its_process() {
    must_end(2, Refused::Data, |net| async move {
        let clock: Clock = Box::new(|| Duration::from_secs(1000));
        let net = Heartbeats::with_clock(net, HeartbeatConfig::default(), clock).unwrap();
        end_of_oneself(&Runtime::new(net, Config::default()).unwrap()).await
    });
}

/// The member whose message is refused gets the transport's error, and the others learn that the
/// operation has failed.
#[test]
fn a_long_message_that_is_refused_fails_its_operation_at_all_members_that_need_it() {
    let processes = 3;
    let sim = Sim::new(SimConfig { processes, ..SimConfig::default() });
    let program = |rank: u32| {
        let left = if rank == 1 { 0 } else { u32::MAX };
        let net = refusing(sim.net(rank), Refused::Long, left);
        let world = Runtime::new(net, Config::default()).unwrap().world();
        async move {
            let ended = world.allreduce(vec![1; 9000], &Op::bor()).await.map(drop);
            let error = ended.unwrap_err();
            // The communicator can be used after that.
            world.barrier().await.unwrap();
            error
        }
    };
    let ran = sim.run((0..processes).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    let ends: Vec<_> = ran.ends.into_iter().map(Option::unwrap).collect();
    let refused = Error::Net(NetError::Other(WHY.to_owned()));
    let failed = Error::ProcessFailed { rank: None };
    assert_eq!(ends, [failed.clone(), refused, failed]);
}

/// A message of the service that a process could not receive ends what waits for it: one process
/// leaves, and the others go on.
#[test]
fn no_process_waits_for_a_control_message_that_could_not_be_received() {
    for left in 0..40 {
        let processes = 3;
        let seed = u64::from(left);
        let config = SimConfig { processes, seed, ..SimConfig::default() };
        let sim = Sim::new(SimConfig { turns_in_vain: 2000, ..config });
        let busy = Rc::new(Cell::new(processes));
        let start = |rank| {
            let left = if rank == 1 { left } else { u32::MAX };
            let net = refusing(sim.net(rank), Refused::Received, left);
            let runtime = Runtime::new(net, Config::default()).unwrap();
            let world = runtime.world();
            linger(runtime, &busy, async move {
                let worked = work(&world).await;
                world.revoke();
                (worked.is_err(), world.shrink().await.is_err())
            })
        };
        let ran = sim.run((0..processes).map(start), &[]);
        ran.unwrap_or_else(|stuck| panic!("after {left}: {stuck}"));
    }
}
