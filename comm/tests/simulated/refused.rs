//! A transport that refuses messages for a reason of its own: not because a process is down.

use std::cell::Cell;
use std::rc::Rc;

use tagmatch::{Buffer, Tag};
use tagmatch_comm::coll::Op;
use tagmatch_comm::net::heartbeat::{HeartbeatConfig, Heartbeats};
use tagmatch_comm::net::{Arrived, Directory, Envelope, Mode, Net, NetError, NetFailed};
use tagmatch_comm::net::{Pattern, ProcessId};
use tagmatch_comm::{Comm, Config, Error, ErrorClass, Runtime, forward_net};
use tagmatch_comm_sim::{Sim, SimConfig, SimNet};

use crate::common::linger;
use crate::counted_out::{AGREEMENTS_MAX, work};

/// The text of the transport's error.
const WHY: &str = "no room on the card";

/// The messages that a transport refuses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refused {
    /// The control messages of the service for failures.
    Control,
    /// All others.
    Data,
    All,
    /// Long ones of the program.
    Long,
    /// The control messages of the service for failures, when they are received.
    Received,
}

/// A transport that refuses messages.
struct Refusing {
    net: SimNet,
    refused: Refused,
    /// Number of messages before the first one that is refused.
    left: Cell<u32>,
}

impl Refusing {
    fn new(net: SimNet, refused: Refused, left: u32) -> Self {
        Refusing { net, refused, left: Cell::new(left) }
    }

    fn check_send(&self, tag: Tag, is_long: bool) -> Result<(), NetError> {
        self.check(match self.refused {
            Refused::Control => is_control(tag),
            Refused::Data => !is_control(tag),
            Refused::All => true,
            Refused::Long => is_long && !is_control(tag),
            Refused::Received => false,
        })
    }

    /// `is_concerned`: the message is of the refused kind.
    fn check(&self, is_concerned: bool) -> Result<(), NetError> {
        if is_concerned && self.left.replace(self.left.get().saturating_sub(1)) == 0 {
            return Err(NetError::Other(WHY.to_owned()));
        }
        Ok(())
    }
}

/// Whether a message is of the service for failures. In this network all bits of its tag are set.
fn is_control(tag: Tag) -> bool {
    tag.0 == u64::MAX
}

impl Directory for Refusing {
    forward_net!(net: processes, own, name, admit);
}

impl Net for Refusing {
    /// A send, or the error with which it ends.
    type Send = Result<<SimNet as Net>::Send, Option<NetFailed>>;
    /// A receive, and whether it fails when it ends.
    type Receive = (<SimNet as Net>::Receive, bool);
    /// A message, and whether it is of the service for failures.
    type Message = (<SimNet as Net>::Message, bool);

    forward_net!(net: probe, is_down, watch, give_up, take_down);
    forward_net!(net: free_tag_bits, has_left, failure, progress, wait_policy);

    fn receive(&mut self, pattern: Pattern, room: Buffer) -> Self::Receive {
        (self.net.receive(pattern, room), false)
    }

    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>> {
        let (receive, fails) = receive;
        let ended = self.net.test_receive(receive)?;
        let refused = |arrived: Arrived| NetFailed {
            error: NetError::Other(WHY.to_owned()),
            buffer: arrived.buffer,
        };
        Some(if *fails { ended.map_or_else(Err, |arrived| Err(refused(arrived))) } else { ended })
    }

    fn cancel(&mut self, receive: &mut Self::Receive) {
        self.net.cancel(&mut receive.0);
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)> {
        let (message, envelope) = self.net.matched_probe(pattern)?;
        Some(((message, is_control(envelope.tag)), envelope))
    }

    fn receive_message(&mut self, message: Self::Message, room: Buffer) -> Self::Receive {
        let (message, is_control) = message;
        let fails = self.check(self.refused == Refused::Received && is_control).is_err();
        (self.net.receive_message(message, room), fails)
    }

    fn send(&mut self, to: ProcessId, tag: Tag, data: Buffer, mode: Mode) -> Self::Send {
        match self.check_send(tag, true) {
            Ok(()) => Ok(self.net.send(to, tag, data, mode)),
            Err(error) => Err(Some(NetFailed { error, buffer: data })),
        }
    }

    fn test_send(&mut self, send: &mut Self::Send) -> Option<Result<Buffer, NetFailed>> {
        match send {
            Ok(send) => self.net.test_send(send),
            Err(refused) => refused.take().map(Err),
        }
    }

    fn inject(&mut self, to: ProcessId, tag: Tag, data: &[u8]) -> Result<(), NetError> {
        self.check_send(tag, false)?;
        self.net.inject(to, tag, data)
    }
}

/// Works, and goes on without the members that have failed: how many are left then. `None`: this
/// process has counted itself out.
async fn work_and_shrink(world: Comm<Refusing>) -> Option<u32> {
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
                let net = Refusing::new(sim.net(rank), refused, left);
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
    program: impl Fn(Refusing) -> F,
) {
    let sim = Sim::new(SimConfig { processes, ..SimConfig::default() });
    let ran = sim.run([program(Refusing::new(sim.net(0), refused, 0))], &[]);
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
        let net = Heartbeats::new(net, HeartbeatConfig::default()).unwrap();
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
        let net = Refusing::new(sim.net(rank), Refused::Long, left);
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
    let told = Error::ProcessFailed { rank: None };
    assert_eq!(ends, [told.clone(), refused, told]);
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
            let net = Refusing::new(sim.net(rank), Refused::Received, left);
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
