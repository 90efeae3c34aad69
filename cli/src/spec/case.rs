//! One measurement: traffic, size, depths; and the bounds that a serving side holds a client to.

use serde::{Deserialize, Serialize};
use tagmatch_results::show::{invalid, show_size};

use super::bounds::{
    BATCH_MAX, DEPTH_MAX, IDLE_MAX, INTERVAL_PS_MAX, INTERVAL_PS_MIN, MEMORY_MAX, THREADS_MAX,
    WINDOW_MAX,
};
use super::device::DeviceArg;
use super::hw_tags::HwTagsArg;
use crate::units::SIZE_MAX;

/// The pattern of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Traffic {
    /// A message from the client, then one back.
    PingPong,
    /// A window of messages from the client, then an empty one back.
    Stream,
    /// Windows of messages both ways at once.
    Both,
    /// Messages from the client, each at its planned time.
    Planned { interval_ps: u64 },
    /// A batch of messages and a batch of receives; one of the two waits in a queue and is then
    /// matched.
    Drain { queue: Queue, order: Order, seed: u64 },
    /// One-sided operations of the client on memory of the other side: each of them timed, with no
    /// other one beside it, or in windows.
    OneSided { operation: OneSided, times_each: bool },
}

/// A one-sided operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OneSided {
    /// Bytes are written.
    Put,
    /// Bytes are read.
    Get,
    /// One is added to a number of 64 bits, and the old number comes back.
    Fadd,
}

/// The queue that is filled and then drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Queue {
    /// Receives are posted, then their messages arrive.
    Posted,
    /// Messages arrive, then their receives are posted.
    Unexpected,
}

/// The order in which a queue's entries are matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The oldest first.
    Forward,
    /// The newest first: a list is walked to its end each time.
    Reverse,
    /// Shuffled anew each time, by --seed.
    Random,
    /// Reverse, with tags that fall into one bucket of a table that takes them modulo its size.
    Adversarial,
}

/// How the measured loop of windows learns that an operation has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Completions {
    /// Each operation has a request, which is tested.
    #[default]
    Requests,
    /// The ends of all operations come in the worker's completion queue.
    Queue,
}

/// The requirements that a measurement has of its worker beside the defaults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerNeeds {
    /// Room for so many messages that no receive takes.
    pub(crate) unexpected: u64,
    /// 32 bits beside a message.
    pub(crate) immediate: bool,
}

/// One measurement: one size, one depth.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) traffic: Traffic,
    pub(crate) size: u64,
    /// Messages before an answer; 1 for a ping-pong.
    pub(crate) window: u64,
    /// Messages of each thread between two checks of the payloads, at most; the depth of a drain.
    pub(crate) batch: u64,
    pub(crate) posted_depth: u64,
    pub(crate) unexpected_depth: u64,
    pub(crate) wildcard_percent: u8,
    pub(crate) wildcard_recv: bool,
    pub(crate) validate: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) pin: Option<u32>,
    /// The device of the other side.
    #[serde(default)]
    pub(crate) device: DeviceArg,
    /// Threads that share the worker; `None`: one thread that has it to itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) threads: Option<u64>,
    /// Peers that are connected to the worker and stay silent.
    #[serde(default)]
    pub(crate) idle_peers: u64,
    /// Whether every message is sent from the same buffer.
    #[serde(default)]
    pub(crate) single_buffer: bool,
    /// Where the measured receives are matched.
    #[serde(default)]
    pub(crate) hw_tags: HwTagsArg,
    #[serde(default)]
    pub(crate) completions: Completions,
    /// The address of the client's worker.
    pub(crate) address: String,
}

impl Case {
    /// Threads on each side.
    pub(crate) fn thread_count(&self) -> u64 {
        self.threads.unwrap_or(1)
    }

    /// Whether measured messages arrive at the client, and at the other side.
    pub(crate) fn receivers(&self) -> [bool; 2] {
        match self.traffic {
            Traffic::PingPong | Traffic::Both => [true, true],
            Traffic::Stream | Traffic::Planned { .. } => [false, true],
            Traffic::Drain { .. } => [true, false],
            Traffic::OneSided { .. } => [false, false],
        }
    }

    /// Where the receives of the client, and those of the other side, are matched. A NIC is only
    /// used on a side where measured messages arrive, except over a device that
    /// matches by itself: UCX connects a worker that matches in the NIC to no other one.
    pub(crate) fn matchers(&self) -> [HwTagsArg; 2] {
        if self.device.matches() {
            return [self.hw_tags; 2];
        }
        self.receivers().map(|receives| if receives { self.hw_tags } else { HwTagsArg::Off })
    }

    /// The worker needs room for messages that stay unexpected, and 32 bits of immediate data for
    /// an open loop.
    pub(crate) fn needs(&self) -> WorkerNeeds {
        let unexpected = match self.traffic {
            Traffic::Drain { queue: Queue::Unexpected, .. } => self.unexpected_depth + self.batch,
            _ => self.unexpected_depth,
        };
        WorkerNeeds { unexpected, immediate: matches!(self.traffic, Traffic::Planned { .. }) }
    }

    /// How the windows' operations end, where there are windows.
    pub(crate) fn completions(&self) -> Option<Completions> {
        matches!(self.traffic, Traffic::Stream | Traffic::Both).then_some(self.completions)
    }

    /// Receives that a stream has posted at a time.
    pub(crate) fn ahead(&self) -> u64 {
        match self.traffic {
            // The other side may be a window ahead of what this one has seen.
            Traffic::Both => self.window.saturating_mul(2),
            _ => self.window,
        }
    }

    /// Bytes of payload buffers that one side allocates, at most.
    fn memory_bytes(&self) -> u64 {
        let buffers = match (self.traffic, self.single_buffer) {
            (Traffic::PingPong, true) => 2,
            (Traffic::PingPong | Traffic::Both, false) => self.batch.saturating_mul(2),
            (Traffic::Stream | Traffic::Both, true) => self.ahead().saturating_add(1),
            (Traffic::Stream | Traffic::Drain { .. } | Traffic::OneSided { .. }, _) => self.batch,
            (Traffic::Planned { .. }, _) => self.window,
        };
        self.size.saturating_mul(buffers).saturating_mul(self.thread_count())
    }

    /// Checks every parameter against its bound; the error says what is expected.
    pub(crate) fn check(&self) -> Result<(), String> {
        let upto = |name: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(invalid(name, value, format_args!("{least} to {most}")))
        };
        upto("size", self.size, 0, SIZE_MAX)?;
        upto("window", self.window, 1, WINDOW_MAX)?;
        let drains = matches!(self.traffic, Traffic::Drain { .. });
        upto("batch", self.batch, 1, if drains { DEPTH_MAX } else { BATCH_MAX })?;
        upto("posted depth", self.posted_depth, 0, DEPTH_MAX)?;
        upto("unexpected depth", self.unexpected_depth, 0, DEPTH_MAX)?;
        upto("wildcard percent", self.wildcard_percent.into(), 0, 100)?;
        upto("threads", self.thread_count(), 1, THREADS_MAX)?;
        upto("idle peers", self.idle_peers, 0, IDLE_MAX)?;
        if let Traffic::Planned { interval_ps } = self.traffic {
            upto("interval", interval_ps, INTERVAL_PS_MIN, INTERVAL_PS_MAX)?;
        }
        if let Traffic::OneSided { operation, .. } = self.traffic {
            let is_number = operation == OneSided::Fadd;
            let (least, most) = if is_number { (8, 8) } else { (1, SIZE_MAX) };
            upto("size of a one-sided operation", self.size, least, most)?;
            if self.device.matches() {
                let device = &self.device;
                return Err(format!(
                    "--device {device}: it has no one-sided operations; use shm, tcp, verbs or auto"
                ));
            }
        }
        let many = matches!(self.traffic, Traffic::PingPong | Traffic::Stream | Traffic::Both);
        if !many && (self.threads.is_some() || self.single_buffer) {
            return Err(
                "--drain, --rate and one-sided operations go without --threads and --single-buffer"
                    .into(),
            );
        }
        if self.completions == Completions::Queue {
            if self.completions().is_none() {
                return Err("--completions queue: expected bw, bibw or rate".into());
            }
            if self.thread_count() > 1 {
                let why = "an end in the queue goes to whichever thread takes it";
                return Err(format!("--completions queue: {why}; use one thread"));
            }
        }
        if self.memory_bytes() > MEMORY_MAX {
            let want = show_size(self.memory_bytes());
            let most = show_size(MEMORY_MAX);
            let most = format!("{most} is the most");
            return Err(format!("{want} of buffers, {most}; use a smaller --window or --sizes"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Case {
        /// A small stream, for tests.
        pub(crate) fn sample() -> Self {
            Self {
                traffic: Traffic::Stream,
                size: 8,
                window: 64,
                batch: 1024,
                posted_depth: 0,
                unexpected_depth: 0,
                wildcard_percent: 0,
                wildcard_recv: false,
                validate: true,
                pin: None,
                device: DeviceArg::Shm,
                threads: None,
                idle_peers: 0,
                single_buffer: false,
                hw_tags: HwTagsArg::Off,
                completions: Completions::Requests,
                address: "00".into(),
            }
        }
    }

    fn case() -> Case {
        Case::sample()
    }

    #[test]
    fn every_parameter_has_its_bound() {
        assert_eq!(case().check(), Ok(()));
        for wrong in [
            Case { size: SIZE_MAX + 1, batch: 1, ..case() },
            Case { window: 0, ..case() },
            Case { window: WINDOW_MAX + 1, ..case() },
            Case { batch: 0, ..case() },
            Case { batch: u64::MAX, ..case() },
            Case { posted_depth: DEPTH_MAX + 1, ..case() },
            Case { unexpected_depth: u64::MAX, ..case() },
            Case { wildcard_percent: 101, ..case() },
            Case { size: SIZE_MAX, batch: 5, ..case() },
            Case { size: 1 << 27, batch: 16, threads: Some(3), ..case() },
            Case { threads: Some(0), ..case() },
            Case { threads: Some(THREADS_MAX + 1), ..case() },
            Case { idle_peers: IDLE_MAX + 1, ..case() },
            Case { traffic: Traffic::Planned { interval_ps: 0 }, ..case() },
            Case { batch: DEPTH_MAX + 1, ..drain(Order::Forward) },
            Case { size: 1 << 17, batch: 1 << 16, ..drain(Order::Random) },
            Case { size: SIZE_MAX, batch: 3, traffic: Traffic::PingPong, ..case() },
            Case { completions: Completions::Queue, threads: Some(2), ..case() },
            Case { completions: Completions::Queue, traffic: Traffic::PingPong, ..case() },
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.contains("expected") || error.contains("; use "), "{wrong:?}: {error}");
        }
    }

    fn drain(order: Order) -> Case {
        let traffic = Traffic::Drain { queue: Queue::Unexpected, order, seed: 7 };
        Case { traffic, batch: DEPTH_MAX, ..case() }
    }

    #[test]
    fn a_drain_is_as_deep_as_a_queue_may_be_and_has_one_thread() {
        assert_eq!(drain(Order::Reverse).check(), Ok(()));
        assert_eq!(drain(Order::Reverse).needs().unexpected, DEPTH_MAX);
        assert!(Case { threads: Some(1), ..drain(Order::Forward) }.check().is_err());
        let paced = Case { traffic: Traffic::Planned { interval_ps: 1000 }, ..case() };
        assert_eq!(paced.check(), Ok(()));
        assert!(Case { single_buffer: true, ..paced }.check().is_err());
    }

    #[test]
    fn a_nic_is_used_where_messages_arrive_and_over_ucx_on_both_sides() {
        let nic = HwTagsArg::Auto;
        let one_way = Case { hw_tags: nic, ..case() };
        assert_eq!(one_way.matchers(), [HwTagsArg::Off, nic]);
        let device = "ucx:rc_x".parse().unwrap();
        assert_eq!(Case { device, ..one_way.clone() }.matchers(), [nic, nic]);
        assert_eq!(Case { traffic: Traffic::PingPong, ..one_way }.matchers(), [nic, nic]);
    }
}
