//! What can be set: the size of the list, and how the NIC behaves where it may choose.

use super::random::Random;
use tagmatch_device::DeviceError;

/// A probability, in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(pub u32);

impl Chance {
    /// Never.
    pub const NEVER: Chance = Chance(0);
    /// Each time.
    pub const ALWAYS: Chance = Chance(1_000_000);

    /// So many of a hundred.
    pub const fn percent(percent: u32) -> Self {
        Chance(percent * 10_000)
    }

    pub(super) fn draw(self, random: &mut Random) -> bool {
        self.0 > 0 && random.below(Self::ALWAYS.0) < self.0
    }
}

/// How long something is held back, in ticks ([`Nic::tick`](super::Nic::tick)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// How often there is a delay at all.
    pub chance: Chance,
    /// The longest one; each length from 1 to this is equally likely.
    pub ticks_max: u32,
}

impl Delay {
    /// None, ever.
    pub const NONE: Delay = Delay { chance: Chance::NEVER, ticks_max: 0 };

    pub(super) fn draw(self, random: &mut Random) -> u64 {
        if self.ticks_max == 0 || !self.chance.draw(random) {
            return 0;
        }
        1 + u64::from(random.below(self.ticks_max))
    }
}

/// What an operation does to inactive entries when its count agrees with the NIC's.
///
/// `Documentation/tag_matching.md` says that matching of new tags is disabled "until SW and HW
/// synchronize" and then "resumes normally"; no public source shows what hardware does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// They become active.
    #[default]
    Always,
    /// Nothing: an entry that missed its phase never matches.
    Never,
    /// The seed chooses at each such operation, for all inactive entries alike.
    Sometimes,
}

/// What the NIC does where it may choose; everything is drawn from the seed. The default is the NIC
/// at its kindest: no delays, no failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// From the posting of an operation until the NIC takes it up. Operations keep their order.
    /// Default: none.
    pub operation: Delay,
    /// Until an operation's completion shows. They keep their order. Default: none.
    pub answer: Delay,
    /// A `TM_DEL` shows before every match and message that the NIC decided on later. Nothing that is
    /// written says so. Without, a driver that cancels must conclude from the match of a later entry that
    /// an earlier one, which would have matched as well, is deleted. Default: `false`.
    pub deletes_in_order: bool,
    /// Until the completion of a match, or of an ordinary buffer, shows. They keep their order.
    /// Default: none.
    pub receive: Delay,
    /// Until the second completion of a match shows, when its data is there. They have no order.
    /// Default: none.
    pub data: Delay,
    /// Until a READ begins. Default: none.
    pub read: Delay,
    /// From the end of a READ until its FIN is sent. Default: none.
    pub fin: Delay,
    /// What an agreeing count does to inactive entries. Default: [`Wake::Always`].
    pub wake: Wake,
    /// What both counts of unexpected messages start at; 0 on hardware. Close to 2^16, they wrap at
    /// once. Default: 0.
    pub first_count: u16,
    /// How far the NIC's count may be ahead of the one that it was told last before that is a
    /// [`Fault`](super::Fault), at most 0x3fff (`MLX5_TM_MAX_SYNC_DIFF`). Default: [`SYNC_LIMIT`].
    pub sync_limit: u16,
    /// `SYNC_REQ` on completions that need none; mlx5 does that. Default: never.
    pub spurious_sync_request: Chance,
    /// No `SYNC_REQ` where one is due; mlx5 does that as well. Default: never.
    pub missing_sync_request: Chance,
    /// Bytes in a packet, header included (the path's MTU). A matched eager message of one packet has one
    /// completion, a longer one has two. Default: 4096.
    pub packet_bytes: u64,
    /// An incomplete rendezvous has two completions, not one. Default: never.
    pub incomplete_in_two: Chance,
    /// The FIN is the message's TMH alone, not TMH and RVH: `Documentation/tag_matching.md` says both.
    /// Default: never.
    pub short_fin: Chance,
    /// Ordinary buffers that must have been posted at once before any traffic is taken; 33 on mlx5.
    /// Default: [`FLOOR`].
    pub floor: u32,
    /// A READ fails, and with it its queue pair. Default: never.
    pub read_failure: Chance,
    /// At a message, its queue pair fails: half of the time before the message, else after it.
    /// Default: never.
    pub queue_pair_error: Chance,
}

/// The largest distance of the counts that is safe, `MLX5_TM_MAX_SYNC_DIFF` of rdma-core's mlx5.
pub const SYNC_LIMIT: u16 = 0x3fff;
/// Ordinary buffers that hardware wants before traffic, `UCT_IB_MLX5_XRQ_MIN_UWQ_POST` of UCX.
pub const FLOOR: u32 = 33;

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            operation: Delay::NONE,
            answer: Delay::NONE,
            deletes_in_order: false,
            receive: Delay::NONE,
            data: Delay::NONE,
            read: Delay::NONE,
            fin: Delay::NONE,
            wake: Wake::default(),
            first_count: 0,
            sync_limit: SYNC_LIMIT,
            spurious_sync_request: Chance::NEVER,
            missing_sync_request: Chance::NEVER,
            packet_bytes: 4096,
            incomplete_in_two: Chance::NEVER,
            short_fin: Chance::NEVER,
            floor: FLOOR,
            read_failure: Chance::NEVER,
            queue_pair_error: Chance::NEVER,
        }
    }
}

impl Knobs {
    /// A NIC of its own mind: every knob but those of failures is drawn from the seed. What is matched
    /// with what must not depend on it.
    pub fn random(seed: u64) -> Self {
        let random = &mut Random::new(seed ^ 0x6b6e_6f62);
        let mut delay = || Delay {
            chance: Chance::percent([0, 10, 50, 100][random.below(4) as usize]),
            ticks_max: [1, 4, 20, 100][random.below(4) as usize],
        };
        let (operation, answer, receive) = (delay(), delay(), delay());
        let (data, read, fin) = (delay(), delay(), delay());
        let mut chance = || Chance::percent([0, 50, 100][random.below(3) as usize]);
        let (spurious_sync_request, missing_sync_request) = (chance(), chance());
        let (incomplete_in_two, short_fin) = (chance(), chance());
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
            wake: [Wake::Always, Wake::Never, Wake::Sometimes][random.below(3) as usize],
            first_count: [0, 1, u16::MAX, u16::MAX - 9][random.below(4) as usize],
            packet_bytes: [64, 256, 1024, 4096][random.below(4) as usize],
            ..Knobs::default()
        }
    }
}

/// Settings of the NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// Entries of the list (`max_num_tags`), 1 to 65535; 127 on ConnectX-5 and 6. Default: 127.
    pub slots: u32,
    /// Operations outstanding (`max_ops`), 1 to 65536. UCX makes room for two of each entry and two.
    /// Default: 256.
    pub operations: u32,
    /// Ordinary buffers of [`Model`](super::Model), [`Knobs::floor`] to 65536. A bare
    /// [`Nic`](super::Nic) is given its own. Default: 64.
    pub buffers: u32,
    /// Where all choices come from. Any number. Default: 0.
    pub seed: u64,
    /// How the NIC behaves. Default: no delays, no failures.
    pub knobs: Knobs,
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig { slots: 127, operations: 256, buffers: 64, seed: 0, knobs: Knobs::default() }
    }
}

impl ModelConfig {
    /// Looks at every setting.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] names the first one that is out of its range.
    pub fn check(&self) -> Result<(), DeviceError> {
        let knobs = &self.knobs;
        let in_range = |setting, value: u64, low: u64, high: u64, range| {
            let ok = (low..=high).contains(&value);
            ok.then_some(()).ok_or(DeviceError::BadSetting { setting, value, range })
        };
        in_range("slots", self.slots.into(), 1, 65535, "1 to 65535")?;
        in_range("operations", self.operations.into(), 1, 65536, "1 to 65536")?;
        let floor = u64::from(knobs.floor).max(1);
        in_range("buffers", self.buffers.into(), floor, 65536, "the NIC's floor to 65536")?;
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
}
