//! The settings of the device, and their check.

use std::time::Duration;

use tagmatch_device::DeviceError;
use tagmatch_os::safety;

use super::arena::Arena;
use super::doorbell;
use super::ring::Geometry;
use super::streaming;

/// How to read a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReadPolicy {
    /// Directly where the kernel allows it, which is tried for each peer; by copying elsewhere. A
    /// direct read waits inside the kernel for memory that the peer withholds (userfaultfd(2),
    /// FUSE): peers are trusted not to.
    #[default]
    Auto,
    /// Directly. A peer whose memory can't be read directly is refused.
    Direct,
    /// Always by copying through shared memory. No peer can make this process wait.
    Copied,
}

/// Into which buffers the senders of long messages may write, while they are received into. These
/// settings bind honest peers: where the kernel lets a process of the same user read this process'
/// memory, it lets it write there, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SenderWrites {
    /// Into none: this worker copies all bytes that it receives.
    Nowhere,
    /// Into those that own their memory: vectors, and buffers of `Worker::buffer`.
    #[default]
    OwnedBuffers,
    /// Also into memory that a caller has lent for a call. The call returns only once no sender is
    /// writing there: a sender that is stopped in the middle of a piece, for at most 128 KiB, holds
    /// it up until it goes on or ends, and so does a sender that never releases its piece. A worker
    /// that is dropped waits as well. All of the memory must be initialised: a sender that lies
    /// about what it has written leaves there what was there before.
    AllBuffers,
}

/// Bytes of a ring, where no setting says it.
const RING_BYTES: u32 = 256 << 10;
/// Bytes of a ring to each of the first eight peers on processors of AMD. There, a line that the
/// reader's core has in its own cache is written at half the rate of one that only the shared cache
/// has, and laps of 2 MiB leave none in the reader's: half a round trip of 8 KiB between two cores
/// of an EPYC 9004 with one cache took 1290 ns with rings of 256 KiB, 950 with 1 MiB, 720 with 2
/// MiB and 690 with 4 MiB.
const WIDE_BYTES: u32 = 2 << 20;
const WIDE_PEERS: usize = 8;

tagmatch_device::settings! {
    /// Settings of the shared-memory device. The defaults suit a machine with a process on each
    /// core.
    ///
    /// Fields may be added: begin with `ShmConfig::default()`, and set fields by the methods named
    /// after them.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_shm as shm; }
    /// use tagmatch::shm::ShmConfig;
    /// let config = ShmConfig::default().ring_bytes(1 << 20);
    /// assert_eq!(config.ring_bytes, 1 << 20);
    /// ```
    #[derive(Clone, Debug)]
    pub struct ShmConfig {
        /// Bytes for messages that a peer has under way to us: a power of two, 4 KiB to 256 MiB, or
        /// 0 for 256 KiB, and on processors of AMD for 2 MiB for each of the first eight peers. A
        /// message takes up to 16 bytes more than its length, in whole pieces of 64. With a peer
        /// whose setting is smaller, both rings have that size. Only what is used takes memory: a
        /// page for both directions while a pair sends few and short messages, two more where both
        /// sides keep up with each other, and all of it while a busy writer finds that faster
        /// ([`learns`](#structfield.learns)). Memory that was not used for one or two times
        /// `sweep_interval` is given back as both sides poll. Default: 0.
        pub ring_bytes: u32 = 0,
        /// Longest message that we receive, header included: 64 bytes to 128 less than half of
        /// `ring_bytes`. Less from a peer whose `ring_bytes` allow less. Default: 16 KiB + 64.
        pub message_max: u32 = (16 << 10) + 64,
        /// Whether peers should send messages that are somewhat longer than `message_max` in
        /// fragments, through the ring. Without it, this worker reads them out of the memory of the
        /// peers. Off for a worker with a NIC's list, which fragments don't pass. Default: `true`.
        pub fragments: bool = true,
        /// How to read a peer's memory. Default: [`ReadPolicy::Auto`].
        pub read: ReadPolicy = ReadPolicy::Auto,
        /// Whether this worker copies a part of the long messages (16 KiB or more) that it sends
        /// into the receiver's memory, while it polls. So both processors copy. A receiver that
        /// withholds its memory (userfaultfd(2), FUSE) can make this process wait inside the
        /// kernel. Not where the kernel forbids it, nor with [`ReadPolicy::Copied`]. Default:
        /// `true`.
        pub sender_copies: bool = true,
        /// Into which buffers of this worker senders may copy a part of the long messages that it
        /// receives. Default: [`SenderWrites::OwnedBuffers`].
        pub sender_writes: SenderWrites = SenderWrites::OwnedBuffers,
        /// Whether peers get bytes from and put bytes into the regions of this worker by
        /// themselves, and this worker those of peers, where the kernel allows direct reads or the
        /// region is memory of the device. A peer that withholds its memory makes such a get or put
        /// wait inside the kernel. Peers map the memory of the device for writing, and write only
        /// regions there that grant it. Without this setting they map it for reading, and puts,
        /// gets and atomic operations are messages. Default: `true`.
        pub direct_regions: bool = true,
        /// Whether this worker learns, for each peer, which of two ways is faster: short or long
        /// laps of the ring that it writes; and for each class of lengths whether messages of 8 to
        /// 128 KiB go out in fragments, and whether a sender copies a part of the messages of 16
        /// KiB and more that this worker reads. Both ways are measured on messages that pass, and
        /// the slower one is tried ever more rarely. `false`: laps are short, the handshake decides
        /// about fragments, and senders copy a part of messages of 64 KiB and more wherever they
        /// may. The next three settings pin one choice each. `Worker::learned` and `tagperf info
        /// --learned` show what was learned. Default: `true`.
        pub learns: bool = true,
        /// Whether laps of the ring that this worker writes are short, so that few lines are used
        /// again and again, or as long as the ring. Default: `None`, learned.
        pub short_laps: Option<bool> = None,
        /// Whether messages of 8 to 128 KiB that this worker sends go out in fragments where the
        /// peer takes them, or are read by the peer where it can. Default: `None`, learned.
        pub sends_fragments: Option<bool> = None,
        /// Whether senders are asked to copy a part of each message of 64 KiB and more that this
        /// worker reads, where they may, or never of any. Default: `None`, learned.
        pub shares_copies: Option<bool> = None,
        /// Whether runs of 1 KiB and more are written to the ring past the cache, or never.
        /// Default: `None`: never on processors of Intel, where it gains nothing; on those of AMD
        /// while an ordinary write takes long, which is measured now and then.
        pub streams: Option<bool> = None,
        /// Whether processes of the same user may be allowed to read our memory, where Yama would
        /// allow it to our ancestors only (`PR_SET_PTRACER_ANY`, for the whole process). Without it
        /// and under Yama's scope 1, reads are done by copying. Default: `true`.
        pub allow_readers: bool = true,
        /// How long to try to reach a peer whose socket can't be connected to, and how long a
        /// process that connects may take until it has sent its hello. A peer that is there and
        /// doesn't poll is waited for. Above zero, up to one hour. Default: 10 s.
        pub connect_timeout: Duration = Duration::from_secs(10),
        /// Most peers connected at a time, up to 4,095. At least 1. Default: 4,095.
        pub peers_max: u32 = 4095,
        /// Most peers connected at a time that one other process has brought: 1 or more; default:
        /// 1,024. So it takes several processes to use up all places. Peers that this worker has
        /// connected to don't count.
        pub process_peers_max: u32 = 1024,
        /// Most bytes of device memory, out of which large buffers come that this worker gives out
        /// (`Worker::buffer`). Peers map it and read such a buffer without a system call, whatever
        /// [`ShmConfig::read`] is. Only what was used takes memory, which is used again, and which
        /// returns to the system with the worker and its buffers. All connected peers can read it
        /// at any time, and write it unless [`ShmConfig::direct_regions`] is off. 0 for none, or
        /// from 1 MiB to 16 GiB. Default: 256 MiB.
        ///
        /// Peers' memory is mapped up to the same length. Address space is taken for each peer, and
        /// memory only when it is read. Where the address space is limited (`ulimit -v`), and with
        /// `vm.overcommit_memory=2`, there is no device memory. A process that locks its memory
        /// (mlockall(2)) should set 0, since all of it would be taken at once. Core dumps leave it
        /// out.
        pub device_memory_bytes: u64 = 256 << 20,
        /// A peer, or another process of the same user, can clear the doorbell bit that says that a
        /// ring has a message, and the word that says that this worker sleeps. So all rings are
        /// looked at without their bits after this time at the latest, whether the worker polls or
        /// sleeps: no message waits longer. A sleeping worker wakes for each such look. Above zero,
        /// up to one hour. Default: 1 s.
        pub sweep_interval: Duration = safety::period(Duration::from_secs(1)),
        /// Whether to use membarrier(2), which spares each send a fence. For measuring without it.
        /// Default: `true`.
        pub membarrier: bool = true,
    }
}

impl ShmConfig {
    /// How laps are pinned, if they are.
    pub(crate) fn pinned_laps(&self) -> Option<bool> {
        self.short_laps.or((!self.learns).then_some(true))
    }

    /// Whether senders are pinned to copy a part, or never to do so, if they are.
    pub(crate) fn pinned_sharing(&self) -> Option<bool> {
        self.shares_copies.or((!self.learns).then_some(true))
    }

    /// The size of the rings of a next connection, where no setting says it, and where it is not
    /// that of all others. `taken`: connections before, the worker's own to itself included.
    pub(crate) fn wide_rings(&self, taken: usize) -> Option<Geometry> {
        let is_wide = self.ring_bytes == 0 && taken <= WIDE_PEERS && streaming::is_faster_here();
        if is_wide { Geometry::new(WIDE_BYTES) } else { None }
    }

    /// Checks all ranges, and returns the size of this worker's rings to many peers.
    pub(crate) fn check(&self) -> Result<Geometry, DeviceError> {
        let bad = |setting, value, range| DeviceError::BadSetting { setting, value, range };
        let bytes = if self.ring_bytes == 0 { RING_BYTES } else { self.ring_bytes };
        let Some(geometry) = Geometry::new(bytes) else {
            let range = "0, or a power of two from 4096 to 268435456";
            return Err(bad("ring_bytes", self.ring_bytes.into(), range));
        };
        if !geometry.allows_messages_of(self.message_max) {
            let range = "from 64 to 128 less than half of ring_bytes";
            return Err(bad("message_max", self.message_max.into(), range));
        }
        // One bit of the doorbell is for messages to oneself.
        if self.peers_max == 0 || self.peers_max as usize >= doorbell::BITS {
            return Err(bad("peers_max", self.peers_max.into(), "from 1 to 4095"));
        }
        if self.process_peers_max == 0 {
            return Err(bad("process_peers_max", 0, "1 or more"));
        }
        let memory = Arena::BYTES_MIN..=Arena::BYTES_MAX;
        if self.device_memory_bytes != 0 && !memory.contains(&self.device_memory_bytes) {
            let range = "0, or from 1048576 to 17179869184";
            return Err(bad("device_memory_bytes", self.device_memory_bytes, range));
        }
        let longest = Duration::from_secs(3600);
        let times = [
            ("connect_timeout_ms", self.connect_timeout),
            ("sweep_interval_ms", self.sweep_interval),
        ];
        for (setting, time) in times {
            if time.is_zero() || time > longest {
                let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                return Err(bad(setting, ms, "above 0, up to one hour"));
            }
        }
        Ok(geometry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_peers_have_wide_rings_where_those_are_faster_and_no_setting_says_otherwise() {
        let bytes = |config: &ShmConfig, taken| config.wide_rings(taken).map(Geometry::bytes);
        let wide = streaming::is_faster_here().then_some(WIDE_BYTES);
        let config = ShmConfig::default();
        // The worker's own connection to itself is the first one.
        assert_eq!([1, WIDE_PEERS].map(|taken| bytes(&config, taken)), [wide; 2]);
        assert_eq!(bytes(&config, WIDE_PEERS + 1), None);
        assert_eq!(config.check().unwrap().bytes(), RING_BYTES);
        assert_eq!(bytes(&config.ring_bytes(RING_BYTES), 1), None);
    }

    #[test]
    fn the_error_names_the_setting_that_is_wrong() {
        let wrong = |config: ShmConfig| match config.check() {
            Err(DeviceError::BadSetting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        };
        let good = ShmConfig::default;
        assert!(good().check().is_ok());
        assert_eq!(wrong(ShmConfig { ring_bytes: 2048, ..good() }), "ring_bytes");
        assert_eq!(wrong(ShmConfig { message_max: 63, ..good() }), "message_max");
        let too_long = ShmConfig { message_max: (128 << 10) + 1, ..good() };
        assert_eq!(wrong(too_long), "message_max");
        assert_eq!(wrong(ShmConfig { peers_max: 4096, ..good() }), "peers_max");
        assert_eq!(wrong(ShmConfig { process_peers_max: 0, ..good() }), "process_peers_max");
        for device_memory_bytes in [1, (1 << 20) - 1, (16 << 30) + 1] {
            let config = ShmConfig { device_memory_bytes, ..good() };
            assert_eq!(wrong(config), "device_memory_bytes");
        }
        let never = ShmConfig { connect_timeout: Duration::ZERO, ..good() };
        assert_eq!(wrong(never), "connect_timeout_ms");
        let rarely = Duration::from_secs(3601);
        assert_eq!(wrong(ShmConfig { sweep_interval: rarely, ..good() }), "sweep_interval_ms");
    }
}
