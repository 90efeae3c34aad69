//! Settings of the device. They are checked once, when the device is created.

use std::ops::RangeInclusive;
use std::time::Duration;

use tagmatch_device::{DeviceError, TagMatching};
use tagmatch_rdma_core_sys::Library;
use tagmatch_secret::Secret;

use super::credits::WINDOW_MAX;

/// The range of [`VerbsConfig::message_max`]. The minimum is the length of a rendezvous request: a
/// worker that received only shorter messages could be sent nothing.
pub(super) const MESSAGE_MAX: RangeInclusive<u32> = 64..=1 << 20;

tagmatch_device::settings! {
    /// Settings of the verbs device. The defaults suit a cluster with thousands of
    /// peers of which some are busy.
    ///
    /// The fields of [`SETTINGS`](super::SETTINGS), for example `gid_index`, are those that differ
    /// from cluster to cluster. `None` stands for the value of their environment variable, or else
    /// for the default.
    ///
    /// Fields may be added: begin with `VerbsConfig::default()`, and set fields by the methods
    /// named after them.
    #[derive(Clone, Debug)]
    pub struct VerbsConfig {
        /// The secret that all workers of the job share. Where there is one, workers connect only
        /// if both know it. `None`: the secret in the file that the environment variable
        /// `TAGMATCH_SECRET_FILE` names (mode 0600), or the value of `TAGMATCH_SECRET`, or no
        /// secret. A worker of `tagmatch` sets it by its own `Config::secret`. Default: `None`.
        pub secret: Option<Secret>,
        /// Name of the device, as `ibv_devices` lists it. If `None`, the value of
        /// `TAGMATCH_VERBS_DEVICE`, or else one with an active port: in the InfiniBand subnet with
        /// the lowest prefix, so that all ranks of a job meet, or on Ethernet if there is no
        /// InfiniBand; among the fastest ports there, one whose device is near this process'
        /// processors. Ranks of one machine take turns at equal ports, by `MPI_LOCALRANKID`,
        /// `OMPI_COMM_WORLD_LOCAL_RANK` or `SLURM_LOCALID` of the environment. Default: `None`.
        pub device: Option<String>,
        /// Port of the device, from 1. If `None`, the value of `TAGMATCH_VERBS_PORT`, or else an
        /// active port, chosen as the device is. Default: `None`.
        pub port: Option<u8>,
        /// Row of the port's GID table. If `None`, the value of `TAGMATCH_VERBS_GID_INDEX`, or else
        /// on RoCE the best row by type and address: version 2 and IPv4 are preferred. Default:
        /// `None`.
        pub gid_index: Option<u8>,
        /// Key of the partition (P_Key) that the worker is in, one of the port's table. The highest
        /// bit, which says whether the port is a full member, doesn't count. Two workers reach each
        /// other only in the same partition, and if one of them is a full member. If `None`, the
        /// value of `TAGMATCH_VERBS_PARTITION_KEY`, or else the first key with full membership, or
        /// else the first. Default: `None`.
        pub partition_key: Option<u16>,
        /// Longest message that this worker receives, header included: 64 bytes to 1 MiB. Each
        /// connected peer, even if idle, has one receive buffer of this length posted. Default:
        /// 8,208, which is a payload of 8 KiB with its header.
        pub message_max: u32,
        /// Receive buffers, beyond one per peer, that busy peers share: 0 to 65,536. Default: 896,
        /// with `peers_max` the most that the queue of 4,096 holds.
        pub receive_buffers: u32,
        /// Messages that a busy peer may have under way to this worker: 1 to 4,096. Default: 64.
        pub window_max: u32,
        /// Messages under way from this worker, over all peers, that are too long to be carried
        /// inline in a work request: 1 to 65,536. Each needs a buffer of `message_max` bytes, which
        /// is allocated when it is first needed. Default: 256.
        pub send_buffers: u32,
        /// Messages under way from this worker to one peer: 16 to 4,096. A connected peer, even if
        /// idle, has a send queue of this length, which is the larger part of its memory. Default:
        /// 42, with `inline_max` the most that 16 KiB of a ConnectX's queue hold.
        pub queue_depth: u32,
        /// Bytes of a message that a work request should carry inline, 0 to 1,024. Where the device
        /// allows fewer, it is as many as it allows. If `None`, the value of
        /// `TAGMATCH_VERBS_INLINE_MAX`, or else 188. Default: `None`.
        pub inline_max: Option<u32>,
        /// Most peers connected at a time, 1 to 65,536. Fewer if the device's queues are shorter.
        /// Default: 1,024.
        pub peers_max: u32,
        /// RDMA READs under way from one peer at a time, 1 to 128. The device and the peer may
        /// allow fewer. Default: 16.
        pub reads_max: u8,
        /// How long to try to connect to a peer: 1 ms to one hour. Default: 10 s.
        pub connect_timeout: Duration,
        /// A connection that was silent for this long is tested, so that the loss of a peer is
        /// noticed: 1 ms to one hour. Default: 1 s.
        pub keepalive: Duration,
        /// Exponent n of the time until an unacknowledged packet is sent again: 4.096 µs × 2^n,
        /// with n from 1 to 31 (`timeout` in ibv_modify_qp(3)). A device may take up to four times
        /// as long. If `None`, the value of `TAGMATCH_VERBS_ACK_TIMEOUT`, or else 18, which is 1.07
        /// s. Default: `None`.
        pub ack_timeout: Option<u8>,
        /// How many times an unacknowledged packet is sent again before the peer counts as lost: 0
        /// to 7. On soft-RoCE, 7 means forever. With the defaults a connection survives that
        /// nothing gets through for 5 s, and the death of a process of another machine is noticed
        /// after 9 s. If `None`, the value of `TAGMATCH_VERBS_RETRY_COUNT`, or else 7, and 6 on
        /// soft-RoCE. Default: `None`.
        pub retry_count: Option<u8>,
        /// How many times a message that found no receive buffer is sent again: 0 to 7, where 7
        /// means forever. With credits, a peer that keeps the rules always finds a buffer. Default:
        /// 7.
        pub rnr_retry: u8,
        /// Code of the time until a message that found no receive buffer is sent again: 0 to 31
        /// (`min_rnr_timer` in ibv_modify_qp(3)); 13 is 0.96 ms. Default: 13.
        pub rnr_timer: u8,
        /// How long exposed memory stays registered after it was withdrawn: up to one hour. This
        /// matters where the network can deliver repeated packets after later ones: a READ may then
        /// be repeated after it has ended, and soft-RoCE fails the connection unless the memory is
        /// still registered. While it lingers, the memory stays locked, and the peer can read it,
        /// whatever it is used for by then. Default: zero.
        pub linger: Duration,
        /// Bytes of unused registered memory that are kept for later buffers. Any number. Default:
        /// 256 MiB.
        pub idle_memory_max: u64,
        /// Whether the NIC matches tags. A worker of `tagmatch` sets this from its own
        /// `Config::hw_tags`. Default: [`TagMatching::Off`].
        pub tag_matching: TagMatching,
        /// Where libibverbs' functions come from: the installed library, or a table that wraps it.
        /// To make a table is unsafe, so that safe code can't have other functions called. Default:
        /// the installed library.
        pub library: Library,
        /// Service level, 0 to 15. If `None`, the value of `TAGMATCH_VERBS_SERVICE_LEVEL`, or else
        /// 0. Default: `None`.
        pub service_level: Option<u8>,
        /// Traffic class, 0 to 255: on RoCE the byte with the packets' DSCP and ECN bits. If
        /// `None`, the value of `TAGMATCH_VERBS_TRAFFIC_CLASS`, or else 0. Default: `None`.
        pub traffic_class: Option<u8>,
        /// Longest packet, in bytes: 256, 512, 1,024, 2,048 or 4,096. Packets are shorter where
        /// this port or the peer's allows less. If `None`, the value of `TAGMATCH_VERBS_MTU`, or
        /// else what the port allows. Default: `None`.
        pub mtu: Option<u16>,
    }
}

impl Default for VerbsConfig {
    fn default() -> Self {
        VerbsConfig {
            secret: None,
            device: None,
            port: None,
            gid_index: None,
            partition_key: None,
            message_max: 8208,
            receive_buffers: 896,
            window_max: 64,
            send_buffers: 256,
            queue_depth: 42,
            inline_max: None,
            peers_max: 1024,
            reads_max: 16,
            connect_timeout: Duration::from_secs(10),
            keepalive: Duration::from_secs(1),
            ack_timeout: None,
            retry_count: None,
            rnr_retry: 7,
            rnr_timer: 13,
            linger: Duration::ZERO,
            idle_memory_max: 256 << 20,
            tag_matching: TagMatching::default(),
            library: Library::INSTALLED,
            service_level: None,
            traffic_class: None,
            mtu: None,
        }
    }
}

impl VerbsConfig {
    /// The bytes that a work request should carry inline.
    pub(super) fn inline_max_or_default(&self) -> u32 {
        self.inline_max.unwrap_or(188)
    }

    /// Exponent of the time until an unacknowledged packet is sent again.
    pub(super) fn ack_timeout_or_default(&self) -> u8 {
        self.ack_timeout.unwrap_or(18)
    }

    /// How many times an unacknowledged packet is sent again.
    pub(super) fn retry_count_or_default(&self, is_soft_roce: bool) -> u8 {
        self.retry_count.unwrap_or(if is_soft_roce { 6 } else { 7 })
    }

    /// The service level.
    pub(super) fn service_level_or_default(&self) -> u8 {
        self.service_level.unwrap_or(0)
    }

    /// The traffic class.
    pub(super) fn traffic_class_or_default(&self) -> u8 {
        self.traffic_class.unwrap_or(0)
    }

    /// The longest time after which a connection must have received something or failed: the
    /// device's own timeout, plus two keepalive intervals.
    pub(super) fn silence_max(&self) -> Duration {
        let wait = Duration::from_nanos(4096 << self.ack_timeout_or_default());
        // A device may wait up to four times as long as it is told to.
        wait * 4 * (u32::from(self.retry_count_or_default(false)) + 1) + 2 * self.keepalive
    }

    /// Checks the ranges of the settings that the environment can't give.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let message_max = u64::from(*MESSAGE_MAX.start())..=u64::from(*MESSAGE_MAX.end());
        let window_max = u64::from(WINDOW_MAX.min(4096));
        let numbers: [(&'static str, u64, RangeInclusive<u64>, &'static str); 9] = [
            ("message_max", self.message_max.into(), message_max, "from 64 to 1048576"),
            ("receive_buffers", self.receive_buffers.into(), 0..=1 << 16, "from 0 to 65536"),
            ("window_max", self.window_max.into(), 1..=window_max, "from 1 to 4096"),
            ("send_buffers", self.send_buffers.into(), 1..=1 << 16, "from 1 to 65536"),
            ("queue_depth", self.queue_depth.into(), 16..=4096, "from 16 to 4096"),
            ("peers_max", self.peers_max.into(), 1..=1 << 16, "from 1 to 65536"),
            ("reads_max", self.reads_max.into(), 1..=128, "from 1 to 128"),
            ("rnr_retry", self.rnr_retry.into(), 0..=7, "from 0 to 7"),
            ("rnr_timer", self.rnr_timer.into(), 0..=31, "from 0 to 31"),
        ];
        for (setting, value, allowed, range) in numbers {
            if !allowed.contains(&value) {
                return Err(DeviceError::BadSetting { setting, value, range });
            }
        }
        let shortest = Duration::from_millis(1);
        let longest = Duration::from_secs(3600);
        let times = [
            ("connect_timeout_ms", self.connect_timeout, shortest, "from 1 ms to one hour"),
            ("linger_ms", self.linger, Duration::ZERO, "up to one hour"),
            ("keepalive_ms", self.keepalive, shortest, "from 1 ms to one hour"),
        ];
        for (setting, time, least, range) in times {
            if time < least || time > longest {
                let value = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                return Err(DeviceError::BadSetting { setting, value, range });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_setting_is_named() {
        let wrong = |config: VerbsConfig| match config.check() {
            Err(DeviceError::BadSetting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        };
        let good = VerbsConfig::default;
        assert!(good().check().is_ok());
        assert_eq!(wrong(VerbsConfig { message_max: 63, ..good() }), "message_max");
        assert_eq!(wrong(VerbsConfig { receive_buffers: 65537, ..good() }), "receive_buffers");
        assert_eq!(wrong(VerbsConfig { window_max: 0, ..good() }), "window_max");
        assert_eq!(wrong(VerbsConfig { queue_depth: 15, ..good() }), "queue_depth");
        assert_eq!(wrong(VerbsConfig { reads_max: 0, ..good() }), "reads_max");
        let never = VerbsConfig { connect_timeout: Duration::ZERO, ..good() };
        assert_eq!(wrong(never), "connect_timeout_ms");
    }
}
