//! Settings of the emulator.

use tagmatch_model::{Knobs, ModelConfig};

/// How devices are emulated. The default is what a ConnectX-6 announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Entries that a list may have (`max_num_tags`), 1 to 65,535. Default: 127.
    pub tags: u32,
    /// Operations that may be outstanding (`max_ops`), 1 to 65,536. Default: 32,768.
    pub operations: u32,
    /// Bytes in the longest message that can arrive at a queue, header included: 64 bytes to 1 GiB.
    /// A longer one ends its queue pair, which hardware would not do. Default: 64 KiB.
    pub message_max: u32,
    /// Most bytes of bounce buffers of one queue. They are allocated and registered in pieces of 1
    /// MiB (of one message, if that is longer), when they are first used. If they hold fewer
    /// messages than the program has posted buffers, or a piece can't be had, senders are told to
    /// wait (RNR) once they are full. `message_max` or more; default: 16 MiB.
    pub memory_max: u64,
    /// The NIC's behaviour where its rules leave a choice. `packet_bytes` follows from the queue
    /// pairs' paths. Default: no delays, no failures.
    pub knobs: Knobs,
    /// The seed of these choices; any number. Default: 0.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tags: 127,
            operations: 32768,
            message_max: 1 << 16,
            memory_max: 1 << 24,
            knobs: Knobs::default(),
            seed: 0,
        }
    }
}

/// A setting that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}; it must be {range}")]
pub struct BadSetting {
    /// Name of the setting.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// The values that are allowed.
    pub range: &'static str,
}

impl Settings {
    /// Checks all ranges.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), BadSetting> {
        let message_max = u64::from(self.message_max);
        for (setting, value, allowed, range) in [
            ("tags", self.tags.into(), 1..=65535, "1 to 65535"),
            ("operations", self.operations.into(), 1..=65536, "1 to 65536"),
            ("message_max", message_max, 64..=1 << 30, "64 to 1073741824"),
            ("memory_max", self.memory_max, message_max..=u64::MAX, "message_max or more"),
        ] {
            if !allowed.contains(&value) {
                return Err(BadSetting { setting, value: value.to_string(), range });
            }
        }
        self.model(self.tags, self.operations).check().map_err(|error| BadSetting {
            setting: "knobs",
            value: error.to_string(),
            range: "a NIC that the model accepts",
        })
    }

    /// Settings of a NIC with so many slots and operations.
    pub(crate) fn model(&self, slots: u32, operations: u32) -> ModelConfig {
        let knobs = self.knobs.clone();
        let buffers = knobs.buffers_min.max(1);
        ModelConfig::default()
            .slots(slots)
            .operations(operations)
            .buffers(buffers)
            .seed(self.seed)
            .knobs(knobs)
    }

    /// The number of bounce buffers of a queue.
    pub(crate) fn bounces(&self) -> u32 {
        u32::try_from(self.memory_max / u64::from(self.message_max)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let wrong = |settings: Settings| settings.check().unwrap_err().setting;
        let good = Settings::default;
        assert_eq!(good().check(), Ok(()));
        assert_eq!(wrong(Settings { tags: 0, ..good() }), "tags");
        assert_eq!(wrong(Settings { tags: 65536, ..good() }), "tags");
        assert_eq!(wrong(Settings { operations: 65537, ..good() }), "operations");
        assert_eq!(wrong(Settings { message_max: 63, ..good() }), "message_max");
        assert_eq!(wrong(Settings { memory_max: 100, ..good() }), "memory_max");
        let knobs = Knobs::default().sync_limit(0);
        assert_eq!(wrong(Settings { knobs, ..good() }), "knobs");
    }
}
