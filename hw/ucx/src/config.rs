//! Settings of the device, checked once.

use std::net::IpAddr;
use std::time::Duration;

use tagmatch_device::{DeviceError, TagMatching};
use tagmatch_fabric::handshake::MeetingKind;
use tagmatch_fabric::settings::check_times;
use tagmatch_secret::Secret;

use super::carrier::TagCodec;

/// What tells the handshake of this device from that of others.
pub(super) const KIND: MeetingKind = MeetingKind {
    magic: *b"TMux",
    socket_prefix: "tagmatch-ucx-",
    protocol: b"tagmatch UCX 1",
    another_address: "not the address of a UCX device",
    another_layout: "it carries tags in another way: used, source and own_source must agree",
    // UCX's addresses begin with 8 bytes that name the worker.
    worker_min: 9,
};

tagmatch_device::settings! {
    /// Settings of the UCX device.
    ///
    /// Fields may be added: begin with `UcxConfig::default()`, and set fields by the methods named
    /// after them.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_ucx as ucx; }
    /// use tagmatch::ucx::UcxConfig;
    /// // 16 bits for the source, above 15 bits of tag; 33 bits are left for immediate data.
    /// let config = UcxConfig::default().used(0x7fff_ffff).source(0x7fff_8000);
    /// assert!(config.own_source.is_none());
    /// ```
    #[derive(Clone, Debug)]
    pub struct UcxConfig {
        /// The secret that all workers of the job share. Where there is one, both ends of a
        /// handshake prove that they know it, and no other worker is reached. `None`: the secret in
        /// the file that the environment variable `TAGMATCH_SECRET_FILE` names (mode 0600), or the
        /// value of `TAGMATCH_SECRET`, or no secret. A worker of `tagmatch` sets it by its own
        /// `Config::secret`. Default: none.
        pub secret: Option<Secret>,
        /// The bits of a tag that its layout uses, the source's among them. Where 33 bits or more
        /// are left above them, messages can carry immediate data. Default: all 64. A worker of
        /// `tagmatch` sets it by its own `Config::layout`.
        pub used: u64,
        /// The bits of the layout's source field: one run, wide enough to number all peers.
        /// Default: 24 bits from bit 24 on. A worker of `tagmatch` sets it by its own
        /// `Config::layout`.
        pub source: u64,
        /// The number that this worker's runtime puts into the source field of all its tags; it has
        /// to fit the field. `None`: the device uses the field; tags leave it zero, and a receive
        /// names its peer beside the tag. Default: none.
        pub own_source: Option<u64>,
        /// Whether UCX may let the NIC match (`UCX_RC_TM_ENABLE`). UCX does so only on mlx5 NICs up
        /// to ConnectX-7, and only over endpoints without error handling. So on a machine with such
        /// a NIC, unless this is `Off`, sends to a peer that dies don't end before the device does.
        /// A peer of which it is `Off` can't be reached then (`EHOSTUNREACH`): UCX connects only
        /// workers with the same choice. `Off` is off whatever the environment says. Default:
        /// [`TagMatching::Off`]. A worker of `tagmatch` sets it by its own `Config::hw_tags`.
        pub hw_tags: TagMatching,
        /// The addresses on which the device listens for handshakes over TCP, and which it
        /// announces to peers. Empty: it listens on all addresses and announces those of this
        /// machine's interfaces. The ports of UCX's transport `tcp` are not concerned. Default:
        /// empty.
        pub listen: Vec<IpAddr>,
        /// UCX's transports (`UCX_TLS`), such as `posix,self` or `tcp`; overrides the environment.
        /// `None`: the transports of the environment, or all. `self` alone can't wake a thread, so
        /// a sleeping thread polls every millisecond then. Default: none.
        pub transports: Option<String>,
        /// Other variables of UCX and their values, with or without `UCX_` before the name; they
        /// override the environment. If `hw_tags` is `Off`, none of them may switch the NIC's
        /// matching on. Default: empty.
        pub settings: Vec<(String, String)>,
        /// How long to try to reach a peer, and how long a pending connection may take for the
        /// handshake: 1 ms to one hour. Default: 10 s.
        pub connect_timeout: Duration,
        /// A peer on another machine that has not answered for so long is down: 1 s to one hour.
        /// The end of a process is noticed at once. Default: 8 s.
        pub keepalive: Duration,
    }
}

impl Default for UcxConfig {
    fn default() -> Self {
        UcxConfig {
            secret: None,
            used: u64::MAX,
            source: 0xff_ffff << 24,
            own_source: None,
            hw_tags: TagMatching::Off,
            listen: Vec::new(),
            transports: None,
            settings: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            keepalive: Duration::from_secs(8),
        }
    }
}

impl UcxConfig {
    /// Checks all ranges, and returns how tags are encoded.
    pub(super) fn check(&self) -> Result<TagCodec, DeviceError> {
        check_times(self.connect_timeout, self.keepalive)?;
        let is_on = |(name, value): &(String, String)| name.ends_with(TM_ENABLE) && !says_no(value);
        if self.hw_tags == TagMatching::Off && self.settings.iter().any(is_on) {
            return Err(DeviceError::Unsupported {
                what: "a variable TM_ENABLE in UcxConfig::settings",
                why: "the NIC's matching is off (HwTags::Off, UcxConfig::hw_tags); HwTags::Auto lets \
                      UCX use the NIC",
            });
        }
        TagCodec::new(self.used, self.source, self.own_source)
    }

    /// The variables to be set, by names without `UCX_`. `environment` returns the value of a
    /// variable in the environment.
    pub(super) fn variables(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Vec<(String, String)> {
        let named = |name: &str| name.strip_prefix("UCX_").unwrap_or(name).to_owned();
        let own_setting =
            |name: &str| self.settings.iter().rev().find(|(other, _)| named(other) == name);
        let tls = own_setting("TLS").map(|(_, value)| value.clone());
        let tls = self.transports.clone().or(tls).or_else(|| environment("TLS"));
        let mut variables: Vec<(String, String)> = Vec::new();
        let mut set = |name: &str, value: &str| {
            if own_setting(name).is_none() {
                variables.push((name.into(), value.into()));
            }
        };
        for (name, value, _) in OURS {
            if environment(name).is_none() {
                set(name, value);
            }
        }
        // UCX warns of variables that no transport reads, so these are set only if a transport
        // reads them.
        if environment(SHARED_MEMORY.0).is_none() && tls.is_none_or(|tls| has_shared_memory(&tls)) {
            set(SHARED_MEMORY.0, SHARED_MEMORY.1);
        }
        if self.hw_tags == TagMatching::Off {
            OFFLOAD
                .iter()
                .filter(|name| environment(name).is_some())
                .for_each(|name| set(name, "n"));
        } else {
            set(OFFLOAD[0], "y");
        }
        let own_settings = self.settings.iter();
        variables.extend(own_settings.map(|(name, value)| (named(name), value.clone())));
        // A later variable overrides an earlier one.
        variables.extend(self.transports.clone().map(|tls| ("TLS".into(), tls)));
        variables
    }
}

/// Whether a list of transports includes shared memory.
fn has_shared_memory(tls: &str) -> bool {
    const NAMES: [&str; 6] = ["all", "sm", "shm", "posix", "sysv", "xpmem"];
    tls.starts_with('^') || tls.split(',').any(|name| NAMES.contains(&name))
}

/// UCX's variables that this device sets, with the reasons.
const OURS: [(&str, &str, &str); 2] = [
    (
        "RNDV_THRESH",
        "8000",
        "a message of several fragments is a rendezvous: a receive that has half of an eager one waits \
         for ever if the sender dies (UCX issue 10873), one of a rendezvous ends with its endpoint; and \
         the unexpected messages of a peer stay small",
    ),
    (
        "RNDV_SCHEME",
        "get_zcopy",
        "the receiver reads, or both copy: no peer writes into a buffer that was given back",
    ),
];
/// Without this variable, endpoints with error handling can't use shared memory. The name is that
/// of the table from which posix, sysv and xpmem inherit.
const SHARED_MEMORY: (&str, &str) = ("MM_ERROR_HANDLING", "y");
/// The variables that switch the NIC's matching on. Both transports, `rc_mlx5` and `dc_mlx5`, read
/// the first one, and each reads variables of its own besides.
const OFFLOAD: [&str; 4] =
    ["RC_TM_ENABLE", "DC_TM_ENABLE", "RC_MLX5_TM_ENABLE", "DC_MLX5_TM_ENABLE"];
/// The end of the names of all these variables.
const TM_ENABLE: &str = "TM_ENABLE";

/// Whether UCX reads a value as no.
fn says_no(value: &str) -> bool {
    ["n", "no", "off", "0"].iter().any(|no| value.eq_ignore_ascii_case(no))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_setting_that_is_wrong() {
        let wrong = |config: UcxConfig| match config.check() {
            Err(DeviceError::BadSetting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        };
        let good = UcxConfig::default;
        assert!(good().check().is_ok());
        assert_eq!(wrong(UcxConfig { source: 0, ..good() }), "source");
        assert_eq!(wrong(UcxConfig { keepalive: Duration::ZERO, ..good() }), "keepalive_ms");
    }

    #[test]
    fn off_is_off_whatever_else_is_said() {
        let config = |name: &str, value: &str, hw_tags| {
            let settings = vec![(name.to_owned(), value.to_owned())];
            UcxConfig { hw_tags, settings, ..UcxConfig::default() }
        };
        for name in OFFLOAD.map(str::to_owned).into_iter().chain(["UCX_RC_TM_ENABLE".into()]) {
            for value in ["y", "yes", "1", "try", ""] {
                // Nothing is loaded before the settings are checked, so UCX need not be installed.
                let refused = crate::Ucx::new(config(&name, value, TagMatching::Off));
                let error = refused.map(drop).unwrap_err().to_string();
                assert!(error.contains("TM_ENABLE") && error.contains("hw_tags"), "{error}");
                assert!(config(&name, value, TagMatching::Auto).check().is_ok(), "{name}");
            }
            for value in ["n", "No", "0", "off"] {
                assert!(config(&name, value, TagMatching::Off).check().is_ok(), "{name}={value}");
            }
        }
        let environment = |name: &str| name.ends_with(TM_ENABLE).then(|| "y".into());
        let variables = UcxConfig::default().variables(environment);
        for name in OFFLOAD {
            assert!(variables.contains(&(name.into(), "n".into())), "{name}: {variables:?}");
        }
    }

    #[test]
    fn the_environment_wins_over_ours_and_the_program_over_both() {
        let value = |variables: &[(String, String)], name: &str| {
            let mut found = variables.iter().filter(|(other, _)| other == name);
            let value = found.next().map(|(_, value)| value.clone());
            assert!(found.next().is_none());
            value
        };
        let plain = UcxConfig::default();
        let ours = plain.variables(|_| None);
        assert_eq!(value(&ours, "RNDV_THRESH").as_deref(), Some("8000"));
        assert_eq!(value(&ours, "MM_ERROR_HANDLING").as_deref(), Some("y"));
        assert_eq!(value(&ours, "RC_TM_ENABLE"), None);
        let environment = plain.variables(|name| match name {
            "TLS" => Some("rc,tcp".into()),
            "RNDV_THRESH" | "RC_TM_ENABLE" => Some("y".into()),
            _ => None,
        });
        assert_eq!(value(&environment, "RNDV_THRESH"), None);
        assert_eq!(value(&environment, "MM_ERROR_HANDLING"), None);
        assert_eq!(value(&environment, "RC_TM_ENABLE").as_deref(), Some("n"));
        let settings = vec![("UCX_RNDV_THRESH".into(), "1".into())];
        let transports = Some("tcp".into());
        let hw_tags = TagMatching::Auto;
        let program = UcxConfig { settings, transports, hw_tags, ..plain }.variables(|_| None);
        assert_eq!(value(&program, "RNDV_THRESH").as_deref(), Some("1"));
        assert_eq!(value(&program, "TLS").as_deref(), Some("tcp"));
        assert_eq!(value(&program, "MM_ERROR_HANDLING"), None);
        assert_eq!(value(&program, "RC_TM_ENABLE").as_deref(), Some("y"));
    }

    /// UCX takes the last value of a variable, and so does what depends on its transports.
    #[test]
    fn the_last_of_two_values_of_a_variable_counts() {
        for (transports, has_shared_memory) in [(["tcp", "posix"], true), (["posix", "tcp"], false)]
        {
            let names = ["TLS", "UCX_TLS"];
            let settings = names.into_iter().zip(transports);
            let settings = settings.map(|(name, value)| (name.into(), value.into())).collect();
            let variables = UcxConfig { settings, ..UcxConfig::default() }.variables(|_| None);
            let last = variables.iter().rfind(|(name, _)| name == "TLS");
            assert_eq!(last.map(|(_, value)| &value[..]), Some(transports[1]));
            let error_handling = variables.iter().any(|(name, _)| name == SHARED_MEMORY.0);
            assert_eq!(error_handling, has_shared_memory, "{transports:?}");
        }
    }

    #[test]
    fn shared_memory_is_known_by_its_names() {
        for tls in ["all", "tcp,posix", "^tcp", "sm,self"] {
            assert!(has_shared_memory(tls), "{tls}");
        }
        for tls in ["tcp", "rc,ud,self", ""] {
            assert!(!has_shared_memory(tls), "{tls}");
        }
    }
}
