//! The messages that both sides exchange on the control channel.
//!
//! 1. Both sides send [`Hello`], the client first.
//! 2. For each measurement the client sends a [`Case`] with its worker's address. The other side
//!    answers [`Answer::Ready`] with the address of its own worker, or refuses.
//! 3. The measurement itself runs over tagmatch; its last message ends it.
//! 4. The other side answers [`Answer::Done`], or [`Answer::Failed`] at any time before.
//!
//! A client that is interrupted while a measurement is set up sends [`Ask::Bye`], and the other
//! side closes the channel.

use serde::{Deserialize, Serialize};
use tagmatch_results::Matching;
use tagmatch_results::show::one_line;

use crate::spec::{Case, DeviceArg};

/// Version of these messages; both sides must have the same.
pub(crate) const PROTOCOL: u32 = 7;

/// The first message of each side. The boot id tells whether both sides are on one machine.
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

    /// Whether both sides have the same version of the protocol.
    pub(crate) fn understands(&self, other: &Self) -> Result<(), String> {
        if self.tagperf == other.tagperf {
            return Ok(());
        }
        let ours = &self.version;
        let theirs = one_line(&other.version);
        Err(format!("tagperf {theirs} is there, {ours} here; use the same on both"))
    }
}

/// A client's message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Ask {
    Hello(Hello),
    Case(Case),
    /// No more measurements; the one that is being set up is abandoned.
    Bye,
}

/// The other side's message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Answer {
    Hello(Hello),
    /// The other side's worker is at this address on this device, and waits.
    Ready {
        address: String,
        device: DeviceArg,
    },
    /// The measurement is over. If payloads were checked, they were right.
    Done {
        matching: Matching,
    },
    /// The case is out of bounds, or needs something that is not there.
    Refused {
        why: String,
    },
    /// The measurement broke.
    Failed {
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::bounds::DEPTH_MAX;
    use crate::spec::{Completions, Order, Queue, Traffic};

    #[test]
    fn messages_read_as_they_were_written_and_nothing_else() {
        let traffic =
            Traffic::Drain { queue: Queue::Unexpected, order: Order::Adversarial, seed: 7 };
        let drain = Case { traffic, batch: DEPTH_MAX, ..Case::sample() };
        let device: DeviceArg = "verbs:rxe0".parse().unwrap();
        let more = Case { threads: Some(2), single_buffer: true, ..drain };
        let more = Case { device: device.clone(), ..more };
        let text = serde_json::to_string(&more).unwrap();
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), more);
        for wrong in ["verbs:", "verbs:../x", "rdma"] {
            assert!(serde_json::from_str::<Case>(&text.replace("verbs:rxe0", wrong)).is_err());
        }
        let ready = Answer::Ready { address: "00".into(), device };
        let text = serde_json::to_string(&ready).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), ready);
        let queued = Case { completions: Completions::Queue, ..Case::sample() };
        let text = serde_json::to_string(&queued).unwrap();
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), queued);
        assert!(serde_json::from_str::<Case>(&text.replace("\"queue\"", "\"q\"")).is_err());
        let ask = Ask::Case(Case::sample());
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
