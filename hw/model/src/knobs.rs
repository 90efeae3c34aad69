//! Settings: sizes, and the behaviour where hardware may choose.

use tagmatch_device::DeviceError;

use crate::knob_values::{Chance, Delay, InTwo, KnobValue, Wake};
use crate::random::Random;

/// Why a setting cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// There is no such setting.
    #[error("unknown setting `{name}`: expected one of {}", Knobs::NAMES.join(", "))]
    Name {
        /// The name that was given.
        name: String,
    },
    /// The setting has no such value.
    #[error("invalid value `{value}` of {name}: expected {right}")]
    Value {
        /// The setting.
        name: String,
        /// The value that was given.
        value: String,
        /// The values that are right.
        right: &'static str,
    },
}

/// Declares the settings, whose names and meanings are what their documentation says.
macro_rules! knobs {
    (
        $(#[$about:meta])*
        pub struct Knobs {
            $($(#[doc = $line:literal])* pub $field:ident: $kind:ty = $default:expr,)*
        }
    ) => {
        tagmatch_device::settings! {
            $(#[$about])*
            pub struct Knobs {
                $($(#[doc = $line])* pub $field: $kind = $default,)*
            }
        }

        impl Knobs {
            /// The names of all settings.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// What each setting means, and the values that are right: name, values, meaning.
            pub fn described() -> impl Iterator<Item = (&'static str, &'static str, String)> {
                [$((
                    stringify!($field),
                    <$kind as KnobValue>::RIGHT,
                    plain(concat!($($line),*)),
                )),*]
                .into_iter()
            }

            /// Sets one setting from text: a number, `true`, a probability (`50%`), or for a delay
            /// a probability and the most ticks (`50%:20`). Its range is checked by
            /// [`ModelConfig::check`].
            ///
            /// # Errors
            /// [`KnobError`] if there is no such setting, or its value is of another kind.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
                match name {
                    $(stringify!($field) => self.$field = read(name, value)?,)*
                    _ => return Err(KnobError::Name { name: name.to_owned() }),
                }
                Ok(())
            }
        }
    };
}

fn read<T: KnobValue>(name: &str, value: &str) -> Result<T, KnobError> {
    let name = name.to_owned();
    let right = T::RIGHT;
    T::read(value).ok_or(KnobError::Value { name, value: value.to_owned(), right })
}

/// Documentation as text: lines joined, links as the words that they stand behind.
fn plain(documentation: &str) -> String {
    let mut text = String::new();
    let mut rest = documentation.trim();
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((word, after)) = link.split_once("`]") else { break };
        text += before;
        text += &format!("`{}`", word.rsplit("::").next().unwrap_or(word));
        let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    text += rest;
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

knobs! {
    /// The behaviour of the NIC where hardware may choose; every choice is drawn from the seed. The
    /// default is the simplest NIC: no delays, no failures.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Knobs {
        /// The delay before an operation is executed. Operations keep their order. Default: none.
        pub operation: Delay = Delay::NONE,
        /// The delay before the completion of an operation is visible. They keep their order.
        /// Default: none.
        pub answer: Delay = Delay::NONE,
        /// Whether a `TM_DEL` becomes visible before every match and message that the NIC decides
        /// later. No document promises this. If `false`, a driver that cancels must conclude from
        /// the match of a later entry that an earlier one, which would have matched as well, is
        /// deleted. Default: `false`.
        pub deletes_in_order: bool = false,
        /// The delay before the completion of a match or of an ordinary buffer is visible. They
        /// keep their order. Default: none.
        pub receive: Delay = Delay::NONE,
        /// The delay before the data completion of a match is visible, once the data is there.
        /// These completions have no order. Default: none.
        pub data: Delay = Delay::NONE,
        /// The delay before a READ starts. Default: none.
        pub read: Delay = Delay::NONE,
        /// The delay between the end of a READ and its FIN. Default: none.
        pub fin: Delay = Delay::NONE,
        /// What a count of an operation that agrees with the NIC's does to entries that missed
        /// their phase: all become active, none, or the seed chooses ([`Wake`]). Default: always.
        pub wake: Wake = Wake::default(),
        /// The first value of both counts of unexpected messages; 0 on hardware. With a value close
        /// to 2^16 they wrap early. Default: 0.
        pub first_count: u16 = 0,
        /// How far the NIC's count may be ahead of the last count from software before that is a
        /// `Fault`, at most 0x3fff (`MLX5_TM_MAX_SYNC_DIFF`). Default: 0x3fff.
        pub sync_limit: u16 = SYNC_LIMIT,
        /// The probability of `SYNC_REQ` on a completion that needs none; mlx5 does this. Default:
        /// never.
        pub spurious_sync_request: Chance = Chance::NEVER,
        /// The probability that a needed `SYNC_REQ` is missing; mlx5 does this as well. Default:
        /// never.
        pub missing_sync_request: Chance = Chance::NEVER,
        /// Bytes in a packet, header included (the path MTU). Default: 4096.
        pub packet_bytes: u64 = 4096,
        /// Which matched eager messages have two completions: those longer than a packet, all, or
        /// none. Default: packet.
        pub eager_in_two: InTwo = InTwo::BeyondAPacket,
        /// Whether a message that matches is accepted although there is no ordinary buffer.
        /// Default: `false`.
        pub matches_without_buffers: bool = false,
        /// Whether the data of a rendezvous completes before its FIN is sent; otherwise, after it.
        /// Default: `false`.
        pub data_before_fin: bool = false,
        /// Whether `SYNC_REQ` tells how the counts are when the host takes the completion of an add
        /// or a delete; otherwise, when the NIC executed the operation. Default: `false`.
        pub counts_at_answer: bool = false,
        /// Whether a rendezvous of length zero is READ. Default: `false`.
        pub reads_nothing: bool = false,
        /// The probability that an incomplete rendezvous has two completions, not one. Default:
        /// never.
        pub incomplete_in_two: Chance = Chance::NEVER,
        /// The probability that a FIN is a TMH alone; otherwise it is TMH and RVH. rdma-core's page
        /// on tag matching says both. Default: never.
        pub short_fin: Chance = Chance::NEVER,
        /// The number of ordinary buffers that must have been posted at one time before the NIC
        /// accepts messages, 0 to 65536. Default: 33, as on mlx5 (`UCT_IB_MLX5_XRQ_MIN_UWQ_POST` of
        /// UCX).
        pub buffers_min: u32 = 33,
        /// The probability that a READ fails, and with it its queue pair. Default: never.
        pub read_failure: Chance = Chance::NEVER,
        /// The probability that a queue pair fails at a message: half of the time before the
        /// message, otherwise after it. Default: never.
        pub queue_pair_error: Chance = Chance::NEVER,
    }
}

/// The largest safe distance of the two counts, `MLX5_TM_MAX_SYNC_DIFF` of rdma-core's mlx5.
const SYNC_LIMIT: u16 = 0x3fff;

impl Knobs {
    /// A NIC with random behaviour: every knob except the failures is drawn from the seed. Which
    /// receive gets which message must not depend on them.
    pub fn random(seed: u64) -> Self {
        let random = &mut Random::new(seed ^ 0x6b6e_6f62);
        let mut delay = || Delay {
            chance: Chance::percent([0, 10, 50, 100][random.below(4) as usize]),
            ticks_max: [1, 4, 20, 100][random.below(4) as usize],
        };
        let operation = delay();
        let answer = delay();
        let receive = delay();
        let data = delay();
        let read = delay();
        let fin = delay();
        let mut chance = || Chance::percent([0, 50, 100][random.below(3) as usize]);
        let spurious_sync_request = chance();
        let missing_sync_request = chance();
        let incomplete_in_two = chance();
        let short_fin = chance();
        let wake = [Wake::Always, Wake::Never, Wake::Sometimes][random.below(3) as usize];
        let first_count = [0, 1, u16::MAX, u16::MAX - 9][random.below(4) as usize];
        let packet_bytes = [64, 256, 1024, 4096][random.below(4) as usize];
        let eager_in_two =
            [InTwo::BeyondAPacket, InTwo::Always, InTwo::Never][random.below(3) as usize];
        let mut is_so = || random.below(2) == 1;
        Knobs {
            operation,
            answer,
            receive,
            data,
            read,
            fin,
            spurious_sync_request,
            missing_sync_request,
            incomplete_in_two,
            short_fin,
            wake,
            first_count,
            packet_bytes,
            eager_in_two,
            matches_without_buffers: is_so(),
            data_before_fin: is_so(),
            counts_at_answer: is_so(),
            reads_nothing: is_so(),
            ..Knobs::default()
        }
    }
}

tagmatch_device::settings! {
    /// Settings of the NIC.
    ///
    /// Fields may be added: begin with `ModelConfig::default()`, and set fields by the methods
    /// named after them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ModelConfig {
        /// Entries in the list (`max_num_tags`), 1 to 65535; 127 on ConnectX-5 and 6. Default: 127.
        pub slots: u32 = 127,
        /// Places in the command queue (`max_ops`), 1 to 65536. UCX uses two for each entry, and
        /// two more. Default: 256.
        pub operations: u32 = 256,
        /// Ordinary buffers of `Model`, [`Knobs::buffers_min`] to 65536. The host
        /// of a bare `Nic` posts its own. Default: 64.
        pub buffers: u32 = 64,
        /// The seed of all random choices; any number. Default: 0.
        pub seed: u64 = 0,
        /// The behaviour of the NIC. Default: no delays, no failures.
        pub knobs: Knobs = Knobs::default(),
    }
}

impl ModelConfig {
    /// Checks every setting.
    pub fn check(&self) -> Result<(), DeviceError> {
        let knobs = &self.knobs;
        let in_range = |setting, value: u64, low: u64, high: u64, range| {
            let ok = (low..=high).contains(&value);
            ok.then_some(()).ok_or(DeviceError::BadSetting { setting, value, range })
        };
        in_range("slots", self.slots.into(), 1, 65535, "1 to 65535")?;
        in_range("operations", self.operations.into(), 1, 65536, "1 to 65536")?;
        in_range("buffers_min", knobs.buffers_min.into(), 0, 65536, "0 to 65536")?;
        let floor = u64::from(knobs.buffers_min).max(1);
        in_range("buffers", self.buffers.into(), floor, 65536, "Knobs::buffers_min to 65536")?;
        in_range("sync_limit", knobs.sync_limit.into(), 1, SYNC_LIMIT.into(), "1 to 0x3fff")?;
        in_range("packet_bytes", knobs.packet_bytes, 64, u64::MAX, "64 or more")?;
        let chances = [
            ("operation", knobs.operation.chance),
            ("answer", knobs.answer.chance),
            ("receive", knobs.receive.chance),
            ("data", knobs.data.chance),
            ("read", knobs.read.chance),
            ("fin", knobs.fin.chance),
            ("spurious_sync_request", knobs.spurious_sync_request),
            ("missing_sync_request", knobs.missing_sync_request),
            ("incomplete_in_two", knobs.incomplete_in_two),
            ("short_fin", knobs.short_fin),
            ("read_failure", knobs.read_failure),
            ("queue_pair_error", knobs.queue_pair_error),
        ];
        for (setting, Chance(parts)) in chances {
            in_range(setting, parts.into(), 0, 1_000_000, "0 to 1000000 parts per million")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let wrong = |config: ModelConfig| match config.check() {
            Err(DeviceError::BadSetting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        };
        let config = ModelConfig::default;
        let knobs = Knobs::default;
        assert!(config().check().is_ok());
        assert_eq!(wrong(ModelConfig { slots: 0, ..config() }), "slots");
        assert_eq!(wrong(ModelConfig { slots: 65536, ..config() }), "slots");
        assert_eq!(wrong(ModelConfig { operations: 0, ..config() }), "operations");
        assert_eq!(wrong(ModelConfig { buffers: 32, ..config() }), "buffers");
        let with = |knobs| ModelConfig { knobs, ..config() };
        assert_eq!(wrong(with(Knobs { buffers_min: 65537, ..knobs() })), "buffers_min");
        assert_eq!(wrong(with(Knobs { sync_limit: 0x4000, ..knobs() })), "sync_limit");
        assert_eq!(wrong(with(Knobs { packet_bytes: 63, ..knobs() })), "packet_bytes");
        let data = Delay { chance: Chance::percent(101), ticks_max: 1 };
        assert_eq!(wrong(with(Knobs { data, ..knobs() })), "data");
    }

    #[test]
    fn random_knobs_are_in_range_and_never_fail() {
        for seed in 0..200 {
            let knobs = Knobs::random(seed);
            assert_eq!((knobs.read_failure, knobs.queue_pair_error), Default::default());
            assert_eq!(knobs, Knobs::random(seed));
            ModelConfig { knobs, seed, ..ModelConfig::default() }.check().unwrap();
        }
    }

    #[test]
    fn each_kind_of_setting_is_read() {
        let mut knobs = Knobs::default();
        for (name, value) in [
            ("read", "50%:20"),
            ("short_fin", "100%"),
            ("deletes_in_order", "true"),
            ("wake", "sometimes"),
            ("eager_in_two", "always"),
            ("first_count", "65535"),
            ("packet_bytes", "256"),
            ("buffers_min", "1"),
        ] {
            knobs.set(name, value).unwrap();
        }
        let expected = Knobs {
            read: Delay { chance: Chance::percent(50), ticks_max: 20 },
            short_fin: Chance::ALWAYS,
            deletes_in_order: true,
            wake: Wake::Sometimes,
            eager_in_two: InTwo::Always,
            first_count: 65535,
            packet_bytes: 256,
            buffers_min: 1,
            ..Knobs::default()
        };
        assert_eq!(knobs, expected);
        for (text, wake) in [("always", Wake::Always), ("never", Wake::Never)] {
            knobs.set("wake", text).unwrap();
            assert_eq!(knobs.wake, wake);
        }
        for (text, in_two) in [("packet", InTwo::BeyondAPacket), ("never", InTwo::Never)] {
            knobs.set("eager_in_two", text).unwrap();
            assert_eq!(knobs.eager_in_two, in_two);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let mut knobs = Knobs::default();
        let mut wrong = |name, value| knobs.set(name, value).unwrap_err().to_string();
        assert!(
            wrong("speed", "1")
                .starts_with("unknown setting `speed`: expected one of operation, answer")
        );
        assert_eq!(
            wrong("wake", "1"),
            "invalid value `1` of wake: expected always, never or sometimes"
        );
        for (name, value) in [
            ("read", "50%"),
            ("read", "50%:x"),
            ("read", "101%:1"),
            ("short_fin", "101%"),
            ("short_fin", "50"),
            ("first_count", "65536"),
            ("deletes_in_order", "1"),
            ("eager_in_two", "two"),
        ] {
            let start = format!("invalid value `{value}` of {name}: expected ");
            assert!(wrong(name, value).starts_with(&start), "{name}={value}");
        }
        assert_eq!(knobs, Knobs::default());
    }

    #[test]
    fn each_setting_says_what_it_means_and_which_values_are_right() {
        let described: Vec<_> = Knobs::described().collect();
        assert_eq!(described.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), Knobs::NAMES);
        for (name, _, meaning) in &described {
            assert!(meaning.contains("Default: ") && !meaning.contains("[`"), "{name}: {meaning}");
        }
        let wake = ("wake", "always, never or sometimes");
        let meaning = "What a count of an operation that agrees with the NIC's does to entries that \
                       missed their phase: all become active, none, or the seed chooses (`Wake`). \
                       Default: always.";
        assert_eq!(described[7], (wake.0, wake.1, meaning.into()));
    }
}
