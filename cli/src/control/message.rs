//! What the two sides say to each other, and the bounds that a serving side holds a client to.
//!
//! 1. Both say [`Hello`], the client first.
//! 2. For each measurement the client sends a [`Leg`] with its worker's address; the other side
//!    answers [`Answer::Ready`] with its own, or refuses.
//! 3. The measurement itself runs over tagmatch; its last message ends it.
//! 4. The other side answers [`Answer::Done`], or [`Answer::Failed`] at any time before.

use serde::{Deserialize, Serialize};

use crate::args::{DEPTH_MAX, WINDOW_MAX};
use crate::json::Matching;
use crate::units::{SIZE_MAX, show_size};

/// Version of these messages; both sides must have the same.
pub(crate) const PROTOCOL: u32 = 1;
/// Most messages between two looks at the payloads.
pub(crate) const BATCH_MAX: u64 = 1 << 14;
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
}

/// What the other side answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Answer {
    Hello(Hello),
    /// The other side's worker is at this address, and waits.
    Ready {
        address: String,
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
#[serde(rename_all = "snake_case")]
pub(crate) enum Traffic {
    /// One there, one back.
    PingPong,
    /// A window of messages there, an empty one back.
    Stream,
}

/// One measurement: one size, one depth.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Leg {
    pub(crate) traffic: Traffic,
    pub(crate) size: u64,
    /// Messages before an answer; 1 for a ping-pong.
    pub(crate) window: u64,
    /// Most messages between two looks at the payloads.
    pub(crate) batch: u64,
    pub(crate) posted_depth: u64,
    pub(crate) unexpected_depth: u64,
    pub(crate) wildcard_percent: u8,
    pub(crate) wildcard_recv: bool,
    pub(crate) validate: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) pin: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) device: Option<String>,
    /// Where the client's worker is.
    pub(crate) address: String,
}

impl Leg {
    /// Bytes of payload buffers that one side allocates.
    fn memory_bytes(&self) -> u64 {
        let ways = match self.traffic {
            Traffic::PingPong => 2,
            Traffic::Stream => 1,
        };
        self.size.saturating_mul(self.batch).saturating_mul(ways)
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
        upto("batch", self.batch, 1, BATCH_MAX)?;
        upto("posted depth", self.posted_depth, 0, DEPTH_MAX)?;
        upto("unexpected depth", self.unexpected_depth, 0, DEPTH_MAX)?;
        upto("wildcard percent", self.wildcard_percent.into(), 0, 100)?;
        if self.memory_bytes() > MEMORY_MAX {
            let (want, most) = (show_size(self.memory_bytes()), show_size(MEMORY_MAX));
            let right = "a smaller --window or --sizes would be right";
            return Err(format!("{want} of buffers, {most} is the most; {right}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg() -> Leg {
        Leg {
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
            device: None,
            address: "00".into(),
        }
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
            Leg { size: SIZE_MAX, batch: 3, traffic: Traffic::PingPong, ..leg() },
        ] {
            assert!(wrong.check().unwrap_err().contains("would be right"), "{wrong:?}");
        }
    }

    #[test]
    fn messages_read_as_they_were_written_and_nothing_else() {
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
