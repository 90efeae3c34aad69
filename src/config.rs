//! Settings of a worker.

use std::time::Duration;

use tagmatch_device::DeviceError;
#[cfg(any(feature = "ofi", feature = "ucx", feature = "verbs"))]
use tagmatch_device::TagMatching;
use tagmatch_fallback::wire::AppCtx;
use tagmatch_fallback::{Amount, CreditConfig, EngineConfig};
#[cfg(feature = "model")]
use tagmatch_model::ModelConfig;
#[cfg(feature = "ofi")]
use tagmatch_ofi::OfiConfig;
#[cfg(any(feature = "ofi", feature = "tcp", feature = "ucx", feature = "verbs"))]
use tagmatch_secret::Secret;
use tagmatch_shm::ShmConfig;
use tagmatch_soft::{Tag, TagLayout, TagMask};
#[cfg(feature = "tcp")]
use tagmatch_tcp::TcpConfig;
#[cfg(feature = "ucx")]
use tagmatch_ucx::UcxConfig;
#[cfg(feature = "verbs")]
use tagmatch_verbs::VerbsConfig;

use crate::auto::AutoConfig;
use crate::wait_policy::WaitPolicy;

/// Whether a NIC matches posted receives. A NIC compares tags alone: it gets receives that take any
/// sender, and those whose tag has one sender only
/// ([`Match::sent_only_by`](crate::Match::sent_only_by)).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum HwTags {
    /// Software matches all, whatever the settings of the device say. Over UCX, a variable among
    /// these settings that says otherwise is an error.
    #[default]
    Off,
    /// The device's NIC, where it can (`tm_caps` of ibv_query_device_ex(3)); elsewhere software.
    /// UCX is allowed to use its own tag offload, and libfabric the list of a NIC.
    Auto,
    /// A tag-matching NIC in software, behind the verbs interface of a device that has none: the
    /// worker drives it as it drives the hardware. On verbs only; see `tagmatch-emu`.
    #[cfg(feature = "emu")]
    Emu,
    /// The model of a tag-matching NIC, in this process, between the worker and its device. Slower
    /// than software: it is there to develop and test offload without the hardware. Messages to
    /// oneself don't pass it.
    #[cfg(feature = "model")]
    Model(ModelConfig),
}

impl HwTags {
    pub(crate) fn is_emu(&self) -> bool {
        #[cfg(feature = "emu")]
        return matches!(self, HwTags::Emu);
        #[cfg(not(feature = "emu"))]
        false
    }

    pub(crate) fn is_model(&self) -> bool {
        #[cfg(feature = "model")]
        return matches!(self, HwTags::Model(_));
        #[cfg(not(feature = "model"))]
        false
    }
}

#[cfg(feature = "tcp")]
impl Config {
    /// The settings of TCP, with the job's secret.
    pub(crate) fn of_tcp(&self, tcp: &TcpConfig) -> TcpConfig {
        let secret = self.secret.clone().or_else(|| tcp.secret.clone());
        tcp.clone().secret(secret)
    }
}

#[cfg(feature = "verbs")]
impl Config {
    /// The settings of verbs, with the tag matching that is asked for, and the job's secret.
    pub(crate) fn of_verbs(&self, verbs: &VerbsConfig) -> VerbsConfig {
        let secret = self.secret.clone().or_else(|| verbs.secret.clone());
        let verbs = verbs.clone().secret(secret);
        match self.hw_tags {
            #[cfg(feature = "emu")]
            HwTags::Emu => verbs.tag_matching(TagMatching::Required).library(tagmatch_emu::LIBRARY),
            HwTags::Auto => verbs.tag_matching(TagMatching::Auto),
            // A model is the only NIC.
            _ => verbs.tag_matching(TagMatching::Off),
        }
    }
}

#[cfg(feature = "ucx")]
impl Config {
    /// The settings of UCX, with the tag matching that is asked for, the layout, and the job's
    /// secret.
    pub(crate) fn of_ucx(&self, ucx: &UcxConfig) -> Result<UcxConfig, DeviceError> {
        let hw_tags = self.of_matching_device()?;
        let (used, source) = self.used_and_source();
        let secret = self.secret.clone().or_else(|| ucx.secret.clone());
        Ok(ucx.clone().secret(secret).hw_tags(hw_tags).used(used).source(source))
    }
}

#[cfg(feature = "ofi")]
impl Config {
    /// The settings of libfabric, with the tag matching that is asked for, the layout, and the
    /// job's secret.
    pub(crate) fn of_ofi(&self, ofi: &OfiConfig) -> Result<OfiConfig, DeviceError> {
        let hw_tags = self.of_matching_device()?;
        let (used, source) = self.used_and_source();
        let secret = self.secret.clone().or_else(|| ofi.secret.clone());
        Ok(ofi.clone().secret(secret).hw_tags(hw_tags).used(used).source(source))
    }
}

#[cfg(any(feature = "ofi", feature = "ucx"))]
impl Config {
    /// The tag matching that is asked for, of a device that matches by itself.
    fn of_matching_device(&self) -> Result<TagMatching, DeviceError> {
        match self.hw_tags {
            HwTags::Off => Ok(TagMatching::Off),
            HwTags::Auto => Ok(TagMatching::Auto),
            #[cfg(any(feature = "emu", feature = "model"))]
            _ => {
                let what = "a NIC in software";
                let why = "the device matches by itself; HwTags::Auto lets it use its NIC";
                Err(DeviceError::Unsupported { what, why })
            }
        }
    }

    /// The bits of the layout, and those of its source field.
    fn used_and_source(&self) -> (u64, u64) {
        let source = self.layout.source_mask().0;
        (source | self.layout.context_mask().0 | self.layout.tag_mask().0, source)
    }
}

/// Which device carries a worker's messages. A worker reaches workers with the same kind of device.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "made once for each worker")]
#[non_exhaustive]
pub enum DeviceConfig {
    /// Shared memory with the peers of this machine, network namespace and user; with all others
    /// verbs, if both sides have it, or else TCP. A network that can't be opened here is left out:
    /// verbs without a device or locked memory, TCP without a [secret](Config::secret). Where none
    /// can be opened, this is [`Shm`](DeviceConfig::Shm), and no message costs more than there.
    /// Workers on one of these networks alone can be reached, too.
    Auto(AutoConfig),
    /// Shared memory, between processes of one machine.
    Shm(ShmConfig),
    /// RDMA, by InfiniBand or RoCE, between machines or within one.
    #[cfg(feature = "verbs")]
    Verbs(VerbsConfig),
    /// TCP, between machines or within one. It needs the job's secret ([`Config::secret`]).
    #[cfg(feature = "tcp")]
    Tcp(TcpConfig),
    /// UCX, over any transport that it finds. UCX and libfabric match and move messages by
    /// themselves, so only the settings `layout`, `hw_tags`, `wait`, `drain_timeout` and
    /// `inject_bytes_max` of the worker count. [`Config::layout`] replaces the masks of
    /// `UcxConfig`.
    #[cfg(feature = "ucx")]
    Ucx(UcxConfig),
    /// libfabric, by one of its providers. The provider matches messages, so only the settings that
    /// count over UCX count here. [`Config::layout`] replaces the masks of `OfiConfig`.
    #[cfg(feature = "ofi")]
    Ofi(OfiConfig),
}

impl Config {
    /// See [`WorkerOf::free_tag_bits`](crate::WorkerOf::free_tag_bits).
    pub(crate) fn free_tag_bits(&self) -> (TagMask, Tag) {
        match &self.device {
            #[cfg(feature = "ucx")]
            DeviceConfig::Ucx(ucx) => {
                let source = self.layout.source_mask().0;
                let free = self.layout.context_mask().0 | self.layout.tag_mask().0;
                let own = ucx.own_source.unwrap_or(0) << source.trailing_zeros().min(63) & source;
                (TagMask(free), Tag(own))
            }
            #[cfg(feature = "ofi")]
            DeviceConfig::Ofi(_) => {
                (TagMask(self.layout.context_mask().0 | self.layout.tag_mask().0), Tag(0))
            }
            _ => (TagMask::EXACT, Tag(0)),
        }
    }
}

impl Default for DeviceConfig {
    /// [`Auto`](DeviceConfig::Auto).
    fn default() -> Self {
        DeviceConfig::Auto(AutoConfig::default())
    }
}

tagmatch_device::settings! {
    /// Settings of a worker. The default is right for most.
    ///
    /// A setting that is out of its range makes [`Worker::new`](crate::WorkerOf::new) fail with
    /// [`DeviceError::BadSetting`], which names it.
    ///
    /// | setting | unit | range | default |
    /// |---|---|---|---|
    /// | `eager_max` | bytes | 0 to 128 MiB | 8 KiB |
    /// | `fragmented_max` | bytes | 0 to 128 MiB | 64 KiB |
    /// | `unexpected_bytes` | bytes | at least 64 KiB | 64 MiB |
    /// | `unexpected_messages` | messages | 1 to 2^30 | 2^18 |
    /// | `unexpected_peer_percent` | percent | 1 to 100 | 50 |
    /// | `inject_bytes_max` | bytes | any | 16 MiB |
    /// | `hw_tags` | | [`HwTags`] | off |
    /// | `hw_tags_threshold` | bytes | any | 1 KiB |
    /// | `layout` | | any [`TagLayout`] | [`TagLayout::MPI`]: 16 bits of context, 24 of source, 24 of tag |
    /// | `wait` | | [`WaitPolicy`] | spins, yields, sleeps |
    /// | `drain_timeout` | time | any | 5 s |
    /// | `departed_max` | peers | at least 1 | 1,024 |
    /// | `peer_events` | | | `false` |
    /// | `secret` | | [`Secret`] of 16 to 1024 bytes | from the environment |
    /// | `device` | | [`DeviceConfig`] | shared memory, with the networks that can be opened |
    ///
    /// Fields may be added: begin with `Config::default()`, and set fields by the methods named
    /// after them.
    ///
    /// ```
    /// use tagmatch::{Config, Worker};
    /// let config = Config::default().unexpected_bytes(8 << 20);
    /// let worker = Worker::new(config)?;
    /// # Ok::<(), tagmatch::Error>(())
    /// ```
    #[derive(Clone, Debug)]
    pub struct Config {
        /// Largest payload that is sent at once, in bytes; a larger one is read by its receiver out
        /// of the sender's memory. 0 to 128 MiB; default: 8 KiB. Where the device of the sender or
        /// of the receiver carries less in one message, that is the bound: by default 16 KiB over
        /// shared memory, and 8 KiB over verbs (`message_max` of the device's settings). Not used
        /// over UCX and libfabric.
        pub eager_max: usize,
        /// Largest payload that is sent in fragments, in bytes, where that is faster than a read:
        /// over shared memory. The receiver takes the first fragments while the sender writes the
        /// next ones, and no system call is needed. Up to which size that is faster is measured for
        /// each peer when it connects; this setting bounds it. Messages up to `eager_max` are sent
        /// whole, and those beyond both bounds are read by the receiver. 0 to 128 MiB; default: 64
        /// KiB; 0: no message is sent in fragments.
        pub fragmented_max: usize,
        /// Bytes that unexpected messages of all peers together may take in this worker, counted in
        /// blocks of powers of two. When they are used up, peers wait; no message of a peer that is
        /// up is lost. Messages of peers that are down are dropped if they hold more than half of
        /// these bytes and less than an eighth is free. At least 64 KiB; default: 64 MiB. Not used
        /// over UCX and libfabric ([`Ability::Bounds`](crate::Ability)).
        pub unexpected_bytes: u64,
        /// Unexpected messages of all peers together that may wait in this worker. When there are
        /// as many, peers wait. Each peer may always have 16 rendezvous requests waiting. 1 to
        /// 2^30; default: 2^18. Not used over UCX and libfabric.
        pub unexpected_messages: u64,
        /// Of `unexpected_bytes` and of `unexpected_messages`, the share that one peer may take, in
        /// percent: 1 to 100; default: 50. Not used over UCX and libfabric.
        pub unexpected_peer_percent: u32,
        /// Bytes that messages which [`inject`](crate::WorkerOf::inject) has copied, and which wait
        /// to be sent, may take before [`inject_with`](crate::WorkerOf::inject_with) takes no
        /// further one that has to wait. A message counts with 64 bytes more than it has. One
        /// message may always wait, and `inject` keeps no bound. Any number; default: 16 MiB.
        pub inject_bytes_max: u64,
        /// Whether a NIC matches posted receives. Default: [`HwTags::Off`].
        pub hw_tags: HwTags,
        /// The smallest receive buffer, in bytes, that is posted to the NIC's list. For smaller
        /// ones the list costs more time than matching in software. Any number; default: 1,024, as
        /// in UCX.
        pub hw_tags_threshold: u64,
        /// Which bits of a tag hold the source. When messages also reach software by a way that the
        /// NIC doesn't see, only receives whose tag fixes the source may be posted to the NIC's
        /// list. A layout other than the runtime's costs speed only, except over UCX and libfabric,
        /// whose tags carry the source: there a tag outside of the layout, or with another source
        /// than the sender, is refused. Over UCX, immediate data travels in the highest 33 bits if
        /// the layout leaves them free. Default: [`TagLayout::MPI`].
        pub layout: TagLayout,
        /// How blocking calls wait.
        pub wait: WaitPolicy,
        /// How long dropping the last handle of a worker waits, at most, until the messages that it
        /// has accepted are with their peers; see [`Worker`](crate::WorkerOf). Any time; zero: not
        /// at all; `Duration::MAX`: for ever. Default: 5 s.
        pub drain_timeout: Duration,
        /// How many peers that went down the worker remembers. With twice as many, it forgets those
        /// that went down first, down to this number, so a server can meet any number of clients. A
        /// peer of which something is left is not forgotten: a message that waits or that a matched
        /// probe took, or a result or an end that was not taken.
        ///
        /// A [`Peer`](crate::Peer) that was forgotten stays down, for
        /// [`PeerFault::Forgotten`](crate::PeerFault::Forgotten), and its address isn't known any
        /// more. A later connection with that address is one to another peer. Peers that are
        /// reached over verbs, UCX or libfabric, or through the model of a NIC, are not forgotten:
        /// a worker meets at most 2^20 of them in its life ([`Ability::Forgets`](crate::Ability)).
        /// At least 1; default: 1,024.
        pub departed_max: usize,
        /// Whether the completion queue tells of peers ([`End::PeerUp`](crate::End::PeerUp),
        /// [`End::PeerDown`](crate::End::PeerDown)). A worker with this setting must have its ends
        /// taken: until then each peer holds up to two requests. Default: `false`.
        pub peer_events: bool,
        /// The secret that all workers of a job share; its bytes are never printed. TCP needs one:
        /// both ends of a connection prove that they know it. So do workers on verbs, UCX and
        /// libfabric where there is one. Shared memory doesn't use it. Default: none, which stands
        /// for the device's own setting (`TcpConfig::secret`, for example), or else for the secret
        /// that the environment gives: the contents of the file that `TAGMATCH_SECRET_FILE` names
        /// (mode 0600), or the variable `TAGMATCH_SECRET`. If there is none at all, a worker on TCP
        /// can't be made.
        #[cfg(any(feature = "ofi", feature = "tcp", feature = "ucx", feature = "verbs"))]
        pub secret: Option<Secret>,
        /// The device, with its settings. Default: shared memory, with the networks that can be
        /// opened here ([`DeviceConfig::Auto`]).
        pub device: DeviceConfig,
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            eager_max: 8192,
            fragmented_max: 64 << 10,
            unexpected_bytes: 64 << 20,
            unexpected_messages: 1 << 18,
            unexpected_peer_percent: 50,
            inject_bytes_max: 16 << 20,
            hw_tags: HwTags::Off,
            hw_tags_threshold: 1024,
            layout: TagLayout::MPI,
            wait: WaitPolicy::default(),
            drain_timeout: Duration::from_secs(5),
            departed_max: 1024,
            peer_events: false,
            #[cfg(any(feature = "ofi", feature = "tcp", feature = "ucx", feature = "verbs"))]
            secret: None,
            device: DeviceConfig::default(),
        }
    }
}

/// The credit that a peer gets when it connects.
const FIRST: Amount = Amount { messages: 1024, bytes: 256 * 1024 };

/// The longest message that any device carries: half of the largest ring of shared memory.
const EAGER_MAX: usize = 128 << 20;
/// With fewer bytes, a message of zero bytes could be refused because one other message waits.
const UNEXPECTED_BYTES_MIN: u64 = 64 << 10;
/// The most messages that a matching list holds.
const UNEXPECTED_MESSAGES_MAX: u64 = 1 << 30;

impl Config {
    /// Checks the settings that are not the device's.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        let percent = self.unexpected_peer_percent;
        let settings = [
            (
                "eager_max",
                self.eager_max as u64,
                self.eager_max <= EAGER_MAX,
                "from 0 to 134217728 bytes",
            ),
            (
                "fragmented_max",
                self.fragmented_max as u64,
                self.fragmented_max <= EAGER_MAX,
                "from 0 to 134217728 bytes",
            ),
            (
                "unexpected_bytes",
                self.unexpected_bytes,
                self.unexpected_bytes >= UNEXPECTED_BYTES_MIN,
                "at least 65536",
            ),
            (
                "unexpected_messages",
                self.unexpected_messages,
                (1..=UNEXPECTED_MESSAGES_MAX).contains(&self.unexpected_messages),
                "from 1 to 1073741824",
            ),
            (
                "unexpected_peer_percent",
                percent.into(),
                (1..=100).contains(&percent),
                "from 1 to 100",
            ),
        ];
        match settings.into_iter().find(|(.., is_right, _)| !is_right) {
            Some((setting, value, _, range)) => {
                Err(DeviceError::BadSetting { setting, value, range })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn engine(&self, seed: u64) -> EngineConfig {
        let share = |total: u64| {
            let percent = u128::from(self.unexpected_peer_percent);
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
            fragmented_max: self.fragmented_max,
            operations_max: AppCtx::OPERATIONS_MAX,
            credit: CreditConfig { pool, first, peer_max },
            nic_threshold: self.hw_tags_threshold,
            source_bits: self.layout.source_mask(),
            departed_max: self.departed_max,
            seed,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Error, Worker};

    #[cfg(feature = "ucx")]
    #[test]
    fn the_source_field_is_not_free_over_ucx() {
        let layout = TagLayout::new(8, 4, 20).unwrap();
        let free = |own_source| {
            let device = DeviceConfig::Ucx(UcxConfig::default().own_source(own_source));
            Config { device, layout, ..Config::default() }.free_tag_bits()
        };
        assert_eq!(free(None), (TagMask(0xff0f_ffff), Tag(0)));
        assert_eq!(free(Some(5)), (TagMask(0xff0f_ffff), Tag(0x50_0000)));
    }

    #[test]
    fn names_the_setting_that_is_out_of_range() {
        let wrong = |config: Config| match Worker::new(config) {
            Err(Error::Device(DeviceError::BadSetting { setting, .. })) => Some(setting),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        };
        let good = Config::default;
        assert_eq!(wrong(good()), None);
        assert_eq!(wrong(Config { eager_max: 1 << 30, ..good() }), Some("eager_max"));
        assert_eq!(wrong(Config { fragmented_max: 1 << 30, ..good() }), Some("fragmented_max"));
        assert_eq!(wrong(Config { eager_max: 0, ..good() }), None);
        for unexpected_bytes in [0, UNEXPECTED_BYTES_MIN - 1] {
            assert_eq!(wrong(Config { unexpected_bytes, ..good() }), Some("unexpected_bytes"));
        }
        assert_eq!(wrong(Config { departed_max: 0, ..good() }), Some("departed_max"));
        for unexpected_messages in [0, UNEXPECTED_MESSAGES_MAX + 1] {
            let config = Config { unexpected_messages, ..good() };
            assert_eq!(wrong(config), Some("unexpected_messages"));
        }
        for unexpected_peer_percent in [0, 101] {
            let config = Config { unexpected_peer_percent, ..good() };
            assert_eq!(wrong(config), Some("unexpected_peer_percent"));
        }
    }

    #[test]
    fn both_ends_of_each_range_are_right() {
        let good = Config::default;
        let ends = [
            Config { eager_max: 0, fragmented_max: 0, ..good() },
            Config { eager_max: EAGER_MAX, fragmented_max: EAGER_MAX, ..good() },
            Config { unexpected_bytes: UNEXPECTED_BYTES_MIN, unexpected_messages: 1, ..good() },
            Config { unexpected_bytes: u64::MAX, unexpected_messages: 1 << 30, ..good() },
            Config { unexpected_peer_percent: 1, ..good() },
            Config { unexpected_peer_percent: 100, ..good() },
        ];
        for config in ends {
            assert!(config.check().is_ok(), "{config:?}");
        }
    }

    #[cfg(feature = "ucx")]
    #[test]
    fn the_worker_decides_how_ucx_matches_and_what_a_tag_has() {
        let theirs = UcxConfig::default().hw_tags(TagMatching::Required);
        let of = |hw_tags, layout| Config { hw_tags, layout, ..Config::default() }.of_ucx(&theirs);
        let layout = TagLayout::new(8, 4, 20).unwrap();
        for (hw_tags, expected) in
            [(HwTags::Off, TagMatching::Off), (HwTags::Auto, TagMatching::Auto)]
        {
            let ucx = of(hw_tags, layout).unwrap();
            assert_eq!((ucx.hw_tags, ucx.used, ucx.source), (expected, 0xffff_ffff, 0xf0_0000));
        }
        #[cfg(feature = "model")]
        assert!(of(HwTags::Model(ModelConfig::default()), layout).is_err());
        #[cfg(feature = "emu")]
        assert!(of(HwTags::Emu, layout).is_err());
    }

    /// The worker's secret comes first; without it, the device's own counts.
    #[cfg(all(feature = "tcp", feature = "ucx", feature = "verbs"))]
    #[test]
    fn each_network_gets_the_secret_of_the_job() {
        let secret = |byte| Secret::from_bytes(&[byte; 16]).ok();
        for (of_worker, expected) in [(None, 1), (secret(2), 2)] {
            let config = Config { secret: of_worker, ..Config::default() };
            let tcp = TcpConfig::default().secret(secret(1));
            let verbs = VerbsConfig::default().secret(secret(1));
            let ucx = UcxConfig::default().secret(secret(1));
            let given = [
                config.of_tcp(&tcp).secret,
                config.of_verbs(&verbs).secret,
                config.of_ucx(&ucx).unwrap().secret,
            ];
            assert!(given.iter().flatten().all(|given| given.expose() == [expected; 16]));
            assert_eq!(given.iter().flatten().count(), 3);
        }
    }

    #[cfg(feature = "ucx")]
    #[test]
    fn off_is_off_whatever_the_settings_of_ucx_say() {
        let ucx = |hw_tags, settings| UcxConfig::default().hw_tags(hw_tags).settings(settings);
        let settings = vec![("RC_TM_ENABLE".into(), "y".into())];
        let device = DeviceConfig::Ucx(ucx(TagMatching::Auto, settings));
        let refused = Worker::new(Config { device, hw_tags: HwTags::Off, ..Config::default() });
        let error = refused.map(drop).unwrap_err().to_string();
        assert!(error.contains("TM_ENABLE") && error.contains("HwTags::Off"), "{error}");
    }

    #[test]
    fn a_peer_has_its_share_of_what_may_wait() {
        let shares = |unexpected_peer_percent, unexpected_bytes| {
            let config = Config { unexpected_peer_percent, unexpected_bytes, ..Config::default() };
            let peer_max = config.engine(0).credit.peer_max;
            (peer_max.messages, peer_max.bytes)
        };
        let messages = Config::default().unexpected_messages;
        assert_eq!(shares(100, 1 << 20), (messages, 1 << 20));
        assert_eq!(shares(25, 1 << 20), (messages / 4, 1 << 18));
        assert_eq!(shares(50, u64::MAX), (messages / 2, u64::MAX / 2));
    }

    #[test]
    fn the_least_that_can_be_set_works() {
        let config = Config {
            eager_max: 0,
            unexpected_bytes: UNEXPECTED_BYTES_MIN,
            unexpected_messages: 1,
            unexpected_peer_percent: 1,
            ..Config::default()
        };
        let worker = Worker::new(config).unwrap();
        let me = worker.oneself();
        for length in [0, 1, 20_000] {
            let sent = [(); 10].map(|()| worker.send(me, 1, vec![7; length]));
            for send in sent {
                let received = worker.recv(crate::Match::tag(1), vec![0; length]).wait().unwrap();
                assert_eq!(received.data(), vec![7; length]);
                send.wait().unwrap();
            }
        }
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn the_worker_decides_whether_the_nic_matches() {
        for of_device in [TagMatching::Off, TagMatching::Auto, TagMatching::Required] {
            let wanted = |hw_tags: HwTags| {
                let verbs = VerbsConfig::default().tag_matching(of_device);
                Config { hw_tags, ..Config::default() }.of_verbs(&verbs).tag_matching
            };
            assert_eq!(wanted(HwTags::Off), TagMatching::Off);
            assert_eq!(wanted(HwTags::Auto), TagMatching::Auto);
            #[cfg(feature = "model")]
            assert_eq!(wanted(HwTags::Model(ModelConfig::default())), TagMatching::Off);
            #[cfg(feature = "emu")]
            assert_eq!(wanted(HwTags::Emu), TagMatching::Required);
        }
    }
}
