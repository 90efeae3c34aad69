//! Settings of a worker.

use std::time::Duration;

use tagmatch_fallback::{Amount, CreditConfig, EngineConfig};
use tagmatch_hw::model::ModelConfig;
use tagmatch_hw::shm::ShmConfig;
use tagmatch_hw::ucx::UcxConfig;
use tagmatch_hw::verbs::VerbsConfig;
use tagmatch_soft::TagLayout;

/// How a blocking call waits: it polls, then polls and yields the processor, then sleeps.
///
/// Each phase lasts that many polls without result; a poll takes some 10 ns. The default suits one
/// thread per core. Where more threads wait than there are cores, set `spin` to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Polls before the first yield.
    pub spin: u32,
    /// Polls, each after a yield, before the first sleep.
    pub yields: u32,
    /// Whether to sleep at all. A sleeping worker costs no processor time, and some microseconds to
    /// wake; its peers pay for the wake-up call.
    pub sleep: bool,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        // The machine's processors, not those that this process may use: pinned to one of many, its
        // peers run on the others.
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let alone = online.is_ok_and(|processors| processors.trim() == "0");
        WaitPolicy { spin: if alone { 0 } else { 20_000 }, yields: 2_000, sleep: true }
    }
}

/// Whether a NIC matches posted receives.
#[derive(Clone, Debug, Default)]
pub enum HwTags {
    /// Software matches all.
    #[default]
    Off,
    /// The device's NIC, where it can (`tm_caps` of ibv_query_device_ex(3)); elsewhere software. UCX is allowed to
    /// use its own tag offload.
    Auto,
    /// A tag-matching NIC in software, behind the verbs interface of a device that has none: the worker
    /// drives it as it drives the hardware. On verbs only; see `tagmatch-emu`.
    Emu,
    /// The model of a tag-matching NIC, in this process, between the worker and its device. Slower than
    /// software: it is there to develop and test offload without the hardware. Messages to oneself don't
    /// pass it.
    Model(ModelConfig),
}

/// Which device carries a worker's messages. Workers reach those of the same kind.
#[derive(Clone, Debug)]
pub enum DeviceConfig {
    /// Shared memory, between processes of one machine.
    Shm(ShmConfig),
    /// RDMA, by InfiniBand or RoCE, between machines or within one.
    Verbs(VerbsConfig),
    /// UCX, over whatever it can use. It matches, and moves messages, by itself: of a worker's settings only
    /// `layout`, `hw_tags` and `wait` count. [`Config::layout`] replaces this one's masks.
    Ucx(UcxConfig),
}

impl Default for DeviceConfig {
    fn default() -> Self {
        DeviceConfig::Shm(ShmConfig::default())
    }
}

/// Settings of a worker. The default is right for most.
///
/// ```
/// use tagmatch::{Config, Worker};
/// let config = Config { unexpected_bytes: 8 << 20, ..Config::default() };
/// let worker = Worker::new(config)?;
/// # Ok::<(), tagmatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest payload in bytes that is sent at once; a larger one is read by its receiver out of the
    /// sender's memory. At most what the device carries in one message.
    pub eager_max: usize,
    /// Bytes that unexpected messages of all peers together may take in this worker, counted in
    /// blocks of powers of two. Beyond it peers wait; nothing is lost.
    pub unexpected_bytes: u64,
    /// Unexpected messages of all peers together that may wait in this worker. Beyond it peers wait.
    /// Each peer may always have [`tagmatch_fallback::FLOOR_MESSAGES`] rendezvous requests waiting.
    pub unexpected_messages: u64,
    /// Of these, the share that one peer may take: from 1 to 100 percent.
    pub unexpected_peer_percent: u32,
    /// Who matches posted receives.
    pub hw_tags: HwTags,
    /// Bytes from which a receive is worth the NIC's list: below, handing it over costs more than
    /// matching it. The default is UCX's.
    pub hw_tags_threshold: u64,
    /// Where tags have their source. With messages from elsewhere than the NIC's peers, only receives that
    /// pin their source may be handed to it. A layout other than the runtime's costs speed, nothing else;
    /// except over UCX, which has 64 bits for all: there a tag outside of the layout, or with a source of its own, is
    /// refused, and immediate data travels in the highest 33 bits if the layout leaves them free.
    pub layout: TagLayout,
    /// How blocking calls wait.
    pub wait: WaitPolicy,
    /// How long dropping the last handle of a worker waits, at most, until the messages that it has accepted are
    /// with their peers; see [`Worker`](crate::WorkerOf). Any time; zero: not at all; `Duration::MAX`: for ever.
    /// Default: 5 s.
    pub drain_timeout: Duration,
    /// The device, with its settings.
    pub device: DeviceConfig,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            eager_max: 8192,
            unexpected_bytes: 64 << 20,
            unexpected_messages: 1 << 18,
            unexpected_peer_percent: 50,
            hw_tags: HwTags::Off,
            hw_tags_threshold: 1024,
            layout: TagLayout::MPI,
            wait: WaitPolicy::default(),
            drain_timeout: Duration::from_secs(5),
            device: DeviceConfig::default(),
        }
    }
}

/// What a stranger is granted at first.
const FIRST: Amount = Amount { messages: 1024, bytes: 256 * 1024 };

impl Config {
    pub(crate) fn engine(&self, seed: u64) -> EngineConfig {
        let share = |total: u64| {
            let percent = u128::from(self.unexpected_peer_percent.clamp(1, 100));
            u64::try_from(u128::from(total) * percent / 100).unwrap_or(total)
        };
        let pool = Amount { messages: self.unexpected_messages, bytes: self.unexpected_bytes };
        let peer_max = Amount { messages: share(pool.messages), bytes: share(pool.bytes) };
        let first = Amount {
            messages: FIRST.messages.min(peer_max.messages),
            bytes: FIRST.bytes.min(peer_max.bytes),
        };
        EngineConfig {
            eager_max: self.eager_max,
            operations_max: u32::MAX,
            credit: CreditConfig { pool, first, peer_max },
            nic_threshold: self.hw_tags_threshold,
            source_bits: self.layout.source_mask(),
            seed,
        }
    }
}
