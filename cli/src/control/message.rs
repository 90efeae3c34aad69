//! What the two sides say to each other, and the bounds that a serving side holds a client to.
//!
//! 1. Both say [`Hello`], the client first.
//! 2. For each measurement the client sends a [`Leg`] with its worker's address; the other side
//!    answers [`Answer::Ready`] with its own, or refuses.
//! 3. The measurement itself runs over tagmatch; its last message ends it.
//! 4. The other side answers [`Answer::Done`], or [`Answer::Failed`] at any time before.
//!
//! A client that is interrupted while a measurement is set up says [`Ask::Bye`], and the other side
//! hangs up.

use serde::{Deserialize, Serialize};

use crate::args::device::DeviceArg;
use crate::args::hw_tags::HwTagsArg;
use crate::args::{DEPTH_MAX, IDLE_MAX, THREADS_MAX, WINDOW_MAX};
use crate::json::Matching;
use crate::link::Needs;
use crate::units::{SIZE_MAX, show_size};

/// Version of these messages; both sides must have the same.
pub(crate) const PROTOCOL: u32 = 5;
/// Most messages between two looks at the payloads.
pub(crate) const BATCH_MAX: u64 = 1 << 14;
/// Bounds of the time between two planned messages: a thousand million and one a second.
pub(crate) const INTERVAL_PS_MIN: u64 = 1000;
pub(crate) const INTERVAL_PS_MAX: u64 = 1_000_000_000_000;
/// Most bytes of buffers that a serving side allocates for one client.
pub(crate) const MEMORY_MAX: u64 = 4 << 30;

/// Who is there. The boot id tells whether both sides are on one machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    pub(crate) tagperf: u32,
    pub(crate) version: String,
    pub(crate) boot_id: String,
}

impl Hello {
    pub(crate) fn new() -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Self {
            tagperf: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            boot_id: boot_id.unwrap_or_default().trim().into(),
        }
    }

    /// Whether two sides that said these understand each other.
    pub(crate) fn understands(&self, other: &Self) -> Result<(), String> {
        if self.tagperf == other.tagperf {
            return Ok(());
        }
        let (ours, theirs) = (&self.version, crate::failure::one_line(&other.version));
        Err(format!("tagperf {theirs} is there, {ours} here; the same on both would be right"))
    }
}

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Ask {
    Hello(Hello),
    Leg(Leg),
    /// No more, and not what was asked for last either, which is still being set up.
    Bye,
}

/// What the other side answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Answer {
    Hello(Hello),
    /// The other side's worker is at this address on this device, and waits.
    Ready {
        address: String,
        device: DeviceArg,
    },
    /// The measurement is over. Payloads were right, if they were checked.
    Done {
        matching: Matching,
    },
    /// What was asked for is out of bounds, or not to be had.
    Refused {
        why: String,
    },
    /// The measurement broke.
    Failed {
        why: String,
    },
}

/// How messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Traffic {
    /// One there, one back.
    PingPong,
    /// A window of messages there, an empty one back.
    Stream,
    /// Windows of messages both ways at once.
    Both,
    /// Messages one way, each at its planned time.
    Paced { interval_ps: u64 },
    /// A batch of messages that meets a batch of receives, one of them waiting in a queue.
    Drain { queue: Queue, order: Order, seed: u64 },
}

/// Which queue is filled and then drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Queue {
    /// Receives are posted; then their messages come.
    Posted,
    /// Messages wait; then their receives are posted.
    Unexpected,
}

/// In which order what waits in a queue is matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The oldest first.
    Forward,
    /// The newest first: a list is walked to its end each time.
    Reverse,
    /// Shuffled anew each time, by --seed.
    Random,
    /// Reverse, with tags that share the bucket of a table which takes them modulo its size.
    Adversarial,
}

/// One measurement: one size, one depth.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Leg {
    pub(crate) traffic: Traffic,
    pub(crate) size: u64,
    /// Messages before an answer; 1 for a ping-pong.
    pub(crate) window: u64,
    /// Most messages (each thread's) between two looks at the payloads; a drain's depth.
    pub(crate) batch: u64,
    pub(crate) posted_depth: u64,
    pub(crate) unexpected_depth: u64,
    pub(crate) wildcard_percent: u8,
    pub(crate) wildcard_recv: bool,
    pub(crate) validate: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) pin: Option<u32>,
    /// What is to carry messages on the other side.
    #[serde(default)]
    pub(crate) device: DeviceArg,
    /// Threads that share the worker; none: one that has it for itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) threads: Option<u64>,
    /// Peers that are connected to the worker and stay silent.
    #[serde(default)]
    pub(crate) idle_peers: u64,
    /// Whether every message goes out of the same buffer.
    #[serde(default)]
    pub(crate) single_buffer: bool,
    /// Who matches the receives that are measured.
    #[serde(default)]
    pub(crate) hw_tags: HwTagsArg,
    /// Where the client's worker is.
    pub(crate) address: String,
}

impl Leg {
    /// Threads on each side.
    pub(crate) fn lanes(&self) -> u64 {
        self.threads.unwrap_or(1)
    }

    /// Whether measured messages come to the client, and whether they come to the other side.
    pub(crate) fn receivers(&self) -> [bool; 2] {
        match self.traffic {
            Traffic::PingPong | Traffic::Both => [true, true],
            Traffic::Stream | Traffic::Paced { .. } => [false, true],
            Traffic::Drain { .. } => [true, false],
        }
    }

    /// Who matches the receives of the client, and those of the other side. A NIC sits where measured
    /// messages come to.
    pub(crate) fn matchers(&self) -> [HwTagsArg; 2] {
        self.receivers().map(|receives| if receives { self.hw_tags } else { HwTagsArg::Off })
    }

    /// What a worker must have: room for messages that wait unexpected for long, and 32 bits where one says
    /// when it was planned.
    pub(crate) fn needs(&self) -> Needs {
        let unexpected = match self.traffic {
            Traffic::Drain { queue: Queue::Unexpected, .. } => self.unexpected_depth + self.batch,
            _ => self.unexpected_depth,
        };
        Needs { unexpected, immediate: matches!(self.traffic, Traffic::Paced { .. }) }
    }

    /// Receives that a stream has posted at a time.
    pub(crate) fn ahead(&self) -> u64 {
        match self.traffic {
            // The other side may be a window ahead of what this one has seen.
            Traffic::Both => self.window.saturating_mul(2),
            _ => self.window,
        }
    }

    /// Payload buffers that one side allocates, both sides' roles taken together.
    fn buffers(&self) -> u64 {
        let each = match (self.traffic, self.single_buffer) {
            (Traffic::PingPong, true) => 2,
            (Traffic::PingPong | Traffic::Both, false) => self.batch.saturating_mul(2),
            (Traffic::Stream | Traffic::Both, true) => self.ahead().saturating_add(1),
            (Traffic::Stream | Traffic::Drain { .. }, _) => self.batch,
            (Traffic::Paced { .. }, _) => self.window,
        };
        each.saturating_mul(self.lanes())
    }

    /// Bytes of payload buffers that one side allocates.
    fn memory_bytes(&self) -> u64 {
        self.size.saturating_mul(self.buffers())
    }

    /// Holds every parameter to its bound; the error says what would be right.
    pub(crate) fn check(&self) -> Result<(), String> {
        let upto = |name: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!("{name} {value}; {least} to {most} would be right"))
        };
        upto("size", self.size, 0, SIZE_MAX)?;
        upto("window", self.window, 1, WINDOW_MAX)?;
        let drains = matches!(self.traffic, Traffic::Drain { .. });
        upto("batch", self.batch, 1, if drains { DEPTH_MAX } else { BATCH_MAX })?;
        upto("posted depth", self.posted_depth, 0, DEPTH_MAX)?;
        upto("unexpected depth", self.unexpected_depth, 0, DEPTH_MAX)?;
        upto("wildcard percent", self.wildcard_percent.into(), 0, 100)?;
        upto("threads", self.lanes(), 1, THREADS_MAX)?;
        upto("idle peers", self.idle_peers, 0, IDLE_MAX)?;
        if let Traffic::Paced { interval_ps } = self.traffic {
            upto("interval", interval_ps, INTERVAL_PS_MIN, INTERVAL_PS_MAX)?;
        }
        let many = matches!(self.traffic, Traffic::PingPong | Traffic::Stream | Traffic::Both);
        if !many && (self.threads.is_some() || self.single_buffer) {
            return Err("a drain and a planned rate know no threads and no single buffer".into());
        }
        if self.memory_bytes() > MEMORY_MAX {
            let (want, most) = (show_size(self.memory_bytes()), show_size(MEMORY_MAX));
            let right = "a smaller --window or --sizes would be right";
            return Err(format!("{want} of buffers, {most} is the most; {right}"));
        }
        Ok(())
    }
}

#[cfg(test)]
impl Leg {
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
            address: "00".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg() -> Leg {
        Leg::sample()
    }

    #[test]
    fn every_parameter_has_its_bound() {
        assert_eq!(leg().check(), Ok(()));
        for wrong in [
            Leg { size: SIZE_MAX + 1, batch: 1, ..leg() },
            Leg { window: 0, ..leg() },
            Leg { window: WINDOW_MAX + 1, ..leg() },
            Leg { batch: 0, ..leg() },
            Leg { batch: u64::MAX, ..leg() },
            Leg { posted_depth: DEPTH_MAX + 1, ..leg() },
            Leg { unexpected_depth: u64::MAX, ..leg() },
            Leg { wildcard_percent: 101, ..leg() },
            Leg { size: SIZE_MAX, batch: 5, ..leg() },
            Leg { size: 1 << 27, batch: 16, threads: Some(3), ..leg() },
            Leg { threads: Some(0), ..leg() },
            Leg { threads: Some(THREADS_MAX + 1), ..leg() },
            Leg { idle_peers: IDLE_MAX + 1, ..leg() },
            Leg { traffic: Traffic::Paced { interval_ps: 0 }, ..leg() },
            Leg { batch: DEPTH_MAX + 1, ..drain(Order::Forward) },
            Leg { size: 1 << 17, batch: 1 << 16, ..drain(Order::Random) },
            Leg { size: SIZE_MAX, batch: 3, traffic: Traffic::PingPong, ..leg() },
        ] {
            assert!(wrong.check().unwrap_err().contains("would be right"), "{wrong:?}");
        }
    }

    fn drain(order: Order) -> Leg {
        let traffic = Traffic::Drain { queue: Queue::Unexpected, order, seed: 7 };
        Leg { traffic, batch: DEPTH_MAX, ..leg() }
    }

    #[test]
    fn a_drain_is_as_deep_as_a_queue_may_be_and_has_one_thread() {
        assert_eq!(drain(Order::Reverse).check(), Ok(()));
        assert_eq!(drain(Order::Reverse).needs().unexpected, DEPTH_MAX);
        assert!(Leg { threads: Some(1), ..drain(Order::Forward) }.check().is_err());
        let paced = Leg { traffic: Traffic::Paced { interval_ps: 1000 }, ..leg() };
        assert_eq!(paced.check(), Ok(()));
        assert!(Leg { single_buffer: true, ..paced }.check().is_err());
    }

    #[test]
    fn messages_read_as_they_were_written_and_nothing_else() {
        let device: DeviceArg = "verbs:rxe0".parse().unwrap();
        let more = Leg { threads: Some(2), single_buffer: true, ..drain(Order::Adversarial) };
        let more = Leg { device: device.clone(), ..more };
        let text = serde_json::to_string(&more).unwrap();
        assert_eq!(serde_json::from_str::<Leg>(&text).unwrap(), more);
        for wrong in ["verbs:", "verbs:../x", "rdma"] {
            assert!(serde_json::from_str::<Leg>(&text.replace("verbs:rxe0", wrong)).is_err());
        }
        let ready = Answer::Ready { address: "00".into(), device };
        let text = serde_json::to_string(&ready).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), ready);
        let ask = Ask::Leg(leg());
        let text = serde_json::to_string(&ask).unwrap();
        assert_eq!(serde_json::from_str::<Ask>(&text).unwrap(), ask);
        assert!(serde_json::from_str::<Ask>(&text.replace("\"window\":64", "\"w\":64")).is_err());
        assert!(serde_json::from_str::<Ask>(&text.replace("64", "-64")).is_err());
        assert!(serde_json::from_str::<Ask>(&text.replace("\"size\":8", "\"size\":1e99")).is_err());
        assert!(serde_json::from_str::<Answer>(&text).is_err());
    }

    #[test]
    fn another_protocol_is_not_understood() {
        let here = Hello::new();
        assert_eq!(here.understands(&here), Ok(()));
        let there = Hello { tagperf: PROTOCOL + 1, version: "9.9\n".into(), ..here.clone() };
        assert!(here.understands(&there).unwrap_err().starts_with("tagperf 9.9\\n is there"));
        assert!(here.boot_id.len() >= 32);
    }
}
