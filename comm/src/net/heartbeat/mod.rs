//! Heartbeats around a transport that doesn't notice when a process dies.
//!
//! The devices of `tagmatch` notice the death of a connected peer themselves, at the next progress:
//!
//! | device | a process ends | its node falls silent | it is stopped |
//! |---|---|---|---|
//! | shared memory | at once, by its pidfd or its socket | | never |
//! | RDMA | on this machine at once, by its pidfd; on another one after a second of silence at most (`keepalive`), and the NIC's retries; at once if it closes its worker | about 9 s of retries, up to 35 s with some NICs (`ack_timeout` and `retry_count` of `VerbsConfig`) | never |
//! | UCX, libfabric | at once, by the socket of its connection | after 8 s (`keepalive`) | never |
//!
//! So heartbeats are for processes that no device finds: a process that is stopped, or runs in a
//! loop without progress. They are also for transports of your own.
//!
//! There is no thread for heartbeats: progress sends and receives beats. So a process that makes no
//! progress for the timeout counts as down, and stays down. Its beats are ignored from then on.
//! Once it learns that it counts as down, it takes all other processes for down.
//!
//! Every process believes the beats of the others. So a process can take any other one out of the
//! job by naming it in a beat: heartbeats are for processes that trust each other.
//!
//! The ring has the processes of one job. The transport beneath has to notice the death of
//! processes of other jobs.
//!
//! ```
//! use std::time::Duration;
//! use tagmatch::{Config as WorkerConfig, Worker};
//! use tagmatch_comm::net::heartbeat::{Heartbeats, HeartbeatConfig};
//! use tagmatch_comm::net::worker::WorkerNet;
//! use tagmatch_comm::{Config, Runtime};
//!
//! let worker = Worker::new(WorkerConfig::default())?;
//! let addresses = vec![worker.address()];
//! let net = WorkerNet::new(worker, addresses, 0)?;
//! let beating = HeartbeatConfig::default().timeout(Duration::from_secs(20));
//! let runtime = Runtime::new(Heartbeats::new(net, beating)?, Config::default())?;
//! runtime.world().barrier().wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod ring;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tagmatch::{Tag, TagLayout, TagMask};

use super::{Directory, Incoming, Net, NetError, Pattern, ProcessId};
use crate::error::check_carried;
use crate::forward_net;
use crate::ids::IdLayout;
use ring::{HeartbeatRing, parse};

/// The tag of beats in the context of failures. No other message in that context has this tag.
const BEAT_TAG: u64 = 1;
/// How often beats are looked for within a period. This is the precision of periods.
const LOOKS: u32 = 16;

tagmatch::settings! {
    /// How heartbeats are timed, the same in all processes of a job.
    ///
    /// Fields may be added: begin with `HeartbeatConfig::default()`, and set fields by the methods
    /// named after them.
    #[derive(Clone, Copy, Debug)]
    pub struct HeartbeatConfig {
        /// Time between two beats: above zero. Default: 3 s, as Open MPI's.
        pub period: Duration,
        /// How long a process may be silent: longer than `period`. Default: 10 s, as Open MPI's.
        ///
        /// A living process is never taken for dead under two conditions. The timeout is more than
        /// a period and twice the sum of the longest time that a message takes and the longest time
        /// between two calls of progress. All processes start within one timeout. If `f` neighbours
        /// in the ring die at once, the last one is found after about `f` timeouts.
        pub timeout: Duration,
        /// As [`crate::Config::ids`].
        pub ids: IdLayout,
        /// As [`crate::Config::tags`].
        pub tags: TagLayout,
    }
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        HeartbeatConfig {
            period: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            ids: IdLayout::BITS_16,
            tags: TagLayout::MPI,
        }
    }
}

/// A transport that finds by heartbeats which processes are down. `C` tells the time since some
/// moment.
#[derive(Debug)]
pub struct Heartbeats<N: Net, C = fn() -> Duration> {
    net: N,
    clock: C,
    ring: HeartbeatRing,
    tag: Tag,
    pattern: Pattern,
    look_after: Duration,
    /// Beats are late by no more.
    sleep_max: Duration,
    looked: Option<Duration>,
    incoming: Incoming<N::Receive>,
    /// Why a beat could not be sent to a process that is not down. That process would take this one
    /// for dead.
    failure: Option<String>,
}

impl<N: Net> Heartbeats<N> {
    /// Around a transport, by the system's clock.
    ///
    /// # Errors
    /// The period is zero, or not shorter than the timeout; or the layouts don't fit each
    /// other or the transport.
    pub fn new(net: N, config: HeartbeatConfig) -> Result<Self, NetError> {
        Self::with_clock(net, config, monotonic)
    }
}

impl<N: Net, C: Fn() -> Duration> Heartbeats<N, C> {
    /// The same by another clock.
    ///
    /// # Errors
    /// As for [`new`](Heartbeats::new).
    pub fn with_clock(net: N, config: HeartbeatConfig, clock: C) -> Result<Self, NetError> {
        let HeartbeatConfig { period, timeout, ids, tags } = config;
        if period.is_zero() || period >= timeout {
            let what = format!("heartbeats every {period:?} with a timeout of {timeout:?}");
            return Err(NetError::Other(what));
        }
        let carried = check_carried(net.free_tag_bits(), tags);
        carried.map_err(|error| NetError::Other(error.to_string()))?;
        let tag = tags.pack(ids.control().bits().into(), 0, BEAT_TAG);
        let tag = tag.map_err(|error| NetError::Other(error.to_string()))?;
        let ring = HeartbeatRing::new(net.own().0, net.processes(), period, timeout);
        let pattern = Pattern { tag, mask: TagMask::EXACT, from: None };
        Ok(Heartbeats {
            net,
            clock,
            ring,
            tag,
            pattern,
            look_after: period / LOOKS,
            sleep_max: period / 4,
            looked: None,
            incoming: Incoming::new(),
            failure: None,
        })
    }

    /// The transport beneath.
    pub fn beneath(&self) -> &N {
        &self.net
    }

    /// Takes in beats, lets time pass, sends beats: how many events that were.
    fn beat(&mut self) -> usize {
        let now = (self.clock)();
        let is_early = |looked: Duration| now.saturating_sub(looked) < self.look_after;
        if self.looked.is_some_and(is_early) {
            return 0;
        }
        self.looked = Some(now);
        let mut events = self.hear();
        self.ring.look(now);
        for rank in self.ring.take_found() {
            events += 1;
            self.net.give_up(ProcessId(rank));
        }
        let bytes = self.ring.beat();
        for rank in self.ring.take_beats() {
            match self.net.inject(ProcessId(rank), self.tag, &bytes) {
                // The transport reports by `take_down` that the process is down.
                Ok(()) | Err(NetError::Down(_)) => {}
                Err(error) => {
                    let why =
                        || format!("a heartbeat to process {rank} could not be sent: {error}");
                    self.failure.get_or_insert_with(why);
                }
            }
        }
        events
    }

    fn hear(&mut self) -> usize {
        let size = self.net.processes();
        let length_max = size.div_ceil(8).into();
        // About one beat of each process is expected. More beats wait for the next call.
        let beats = (0..2 * size)
            .take_while(|_| self.incoming.take(&mut self.net, self.pattern, length_max))
            .count();
        for (from, beat) in self.incoming.complete(&mut self.net) {
            // A message of a process outside of the job is no beat.
            if let Some(down) = parse(&beat, size).filter(|_| from.0 < size) {
                self.ring.hear(from.0, down);
            }
        }
        beats
    }
}

fn monotonic() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

impl<N: Net, C: Fn() -> Duration + 'static> Directory for Heartbeats<N, C> {
    forward_net!(net: processes, own, name, admit);
}

impl<N: Net, C: Fn() -> Duration + 'static> Net for Heartbeats<N, C> {
    type Send = N::Send;
    type Receive = N::Receive;
    type Message = N::Message;

    forward_net!(net: send, inject, test_send, receive, receive_by_tag, test_receive, cancel);
    forward_net!(net: probe, matched_probe, receive_message, is_down, watch, give_up);
    forward_net!(net: free_tag_bits, has_left, wait_policy, pause, node, shares_memory, sleeper);
    forward_net!(net: watch_after, reports_messages, arm, disarm, notify);

    fn failure(&self) -> Option<String> {
        self.net.failure().or_else(|| self.failure.clone())
    }

    fn take_down(&mut self) -> Vec<ProcessId> {
        let down = self.net.take_down();
        down.iter().for_each(|process| self.ring.learn(process.0));
        down
    }

    fn progress(&mut self) -> usize {
        self.net.progress() + self.beat()
    }

    fn sleep_max(&self) -> Duration {
        self.net.sleep_max().min(self.sleep_max)
    }
}
