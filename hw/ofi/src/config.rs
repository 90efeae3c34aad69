//! Settings of the device, checked once.

use std::net::IpAddr;
use std::time::Duration;

use tagmatch_device::TagMatching;
use tagmatch_fabric::handshake::MeetingKind;
use tagmatch_secret::Secret;

/// What tells the handshake of this device from that of others.
pub(super) const KIND: MeetingKind = MeetingKind {
    magic: *b"TMof",
    socket_prefix: "tagmatch-ofi-",
    protocol: b"tagmatch OFI 1",
    another_address: "not the address of a libfabric device",
    another_layout: "it carries tags in another way: used and source must agree",
    worker_min: 3,
};

tagmatch_device::settings! {
    /// Settings of the libfabric device.
    ///
    /// Fields may be added: begin with `OfiConfig::default()`, and set fields by the methods named
    /// after them.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_ofi as ofi; }
    /// use tagmatch::ofi::OfiConfig;
    /// let config = OfiConfig::default().provider(Some("tcp;ofi_rxm".into()));
    /// assert!(config.listen.is_empty());
    /// ```
    #[derive(Clone, Debug)]
    pub struct OfiConfig {
        /// The secret that all workers of the job share. Where there is one, both ends of a
        /// handshake prove that they know it, and no other worker is reached. `None`: the secret in
        /// the file that the environment variable `TAGMATCH_SECRET_FILE` names (mode 0600), or the
        /// value of `TAGMATCH_SECRET`, or no secret. A worker of `tagmatch` sets it by its own
        /// `Config::secret`. Default: none.
        pub secret: Option<Secret>,
        /// The bits of a tag that its layout uses, the source's among them. Default: all 64. A
        /// worker of `tagmatch` sets it by its own `Config::layout`.
        pub used: u64,
        /// The bits of the layout's source field: one run. The device fills it in; tags leave it
        /// zero, and a receive names its peer beside the tag. Default: 24 bits from bit 24 on. A
        /// worker of `tagmatch` sets it by its own `Config::layout`.
        pub source: u64,
        /// The provider, as `fi_info` names it, such as `tcp;ofi_rxm`. `None`: chosen by the rule
        /// that the page of its crate has. Default: none.
        pub provider: Option<String>,
        /// Whether a NIC may match (`cxi`). `Off`: its provider matches in software. Default:
        /// [`TagMatching::Auto`]. A worker of `tagmatch` sets it by its own `Config::hw_tags`.
        pub hw_tags: TagMatching,
        /// The addresses on which the device listens for handshakes over TCP, and which it
        /// announces to peers. A provider over IP uses the first one's interface. Empty: the
        /// handshake listens on all addresses and announces those of this machine's interfaces, and
        /// the provider uses the first interface that libfabric offers. Default: empty.
        pub listen: Vec<IpAddr>,
        /// How long to try to reach a peer, and how long a pending connection may take for the
        /// handshake: 1 ms to one hour. Default: 10 s.
        pub connect_timeout: Duration,
        /// A peer on another machine that has not answered for so long is down: 1 s to one hour.
        /// The end of a process is noticed at once. Default: 8 s.
        pub keepalive: Duration,
    }
}

impl Default for OfiConfig {
    fn default() -> Self {
        OfiConfig {
            secret: None,
            used: u64::MAX,
            source: 0xff_ffff << 24,
            provider: None,
            hw_tags: TagMatching::Auto,
            listen: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            keepalive: Duration::from_secs(8),
        }
    }
}
