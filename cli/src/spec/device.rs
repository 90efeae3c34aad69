//! `--device`: the device that carries messages.

use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;

use tagmatch::ofi::OfiConfig;
use tagmatch::shm::ShmConfig;
use tagmatch::tcp::TcpConfig;
use tagmatch::ucx::UcxConfig;
use tagmatch::verbs::VerbsConfig;
use tagmatch::{AutoConfig, DeviceConfig, TagMatching};

use super::hw_tags::HwTagsArg;
use super::text::text_in_json;
use crate::verbs;

/// The longest list of transports, in bytes.
const TRANSPORTS_BYTES_MAX: usize = 127;
/// The longest name of an RDMA device, in bytes (`IB_DEVICE_NAME_MAX` with its end).
const NAME_BYTES_MAX: usize = 63;
/// The longest name of a network interface, in bytes (`IFNAMSIZ` without its end).
const INTERFACE_BYTES_MAX: usize = 15;

/// The device that was asked for. On the control channel and in JSON it is text as on the command
/// line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// Shared memory.
    #[default]
    Shm,
    /// Shared memory with the networks that there are.
    Auto,
    /// RDMA.
    Verbs {
        /// As `ibv_devices` lists it; `None`: one with an active port.
        name: Option<String>,
    },
    /// TCP.
    Tcp {
        /// The network interface, or the address of this machine, on which to listen, and which
        /// the other side is told; `None`: all.
        place: Option<String>,
    },
    /// UCX.
    Ucx {
        /// A value of `UCX_TLS`; `None`: as in the environment, or all transports.
        transports: Option<String>,
    },
    /// libfabric.
    Ofi {
        /// A provider, as `fi_info` names it; `None`: chosen by the device's rule.
        provider: Option<String>,
    },
}

impl FromStr for DeviceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, detail) = match text.split_once(':') {
            Some((kind, detail)) => (kind, Some(detail)),
            None => (text, None),
        };
        let detail_as = |is_right: fn(&str) -> bool, right: &str| match detail {
            Some(detail) if !is_right(detail) => Err(format!("expected {right}")),
            detail => Ok(detail.map(str::to_owned)),
        };
        Ok(match (kind, detail) {
            ("shm", None) => Self::Shm,
            ("auto", None) => Self::Auto,
            ("verbs", _) => {
                let right = "verbs:NAME with a name that ibv_devices lists";
                Self::Verbs { name: detail_as(is_verbs_name, right)? }
            }
            ("tcp", _) => {
                let right =
                    "tcp:PLACE with an interface or an address of this machine, say tcp:eth0";
                Self::Tcp { place: detail_as(is_place, right)? }
            }
            ("ucx", _) => {
                let right = "ucx:TRANSPORTS as in UCX_TLS, say ucx:tcp,self";
                Self::Ucx { transports: detail_as(are_transports, right)? }
            }
            ("ofi", _) => {
                let right = "ofi:PROVIDER with a provider that fi_info lists, say ofi:tcp;ofi_rxm";
                Self::Ofi { provider: detail_as(is_provider, right)? }
            }
            _ => {
                let right = "auto, shm, verbs, verbs:NAME, tcp, tcp:PLACE, ucx, ucx:TRANSPORTS, ofi or \
                             ofi:PROVIDER";
                return Err(format!("expected {right}"));
            }
        })
    }
}

fn is_verbs_name(name: &str) -> bool {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    fits && name.bytes().all(|b| b.is_ascii_graphic() && !b"/:".contains(&b))
}

fn is_place(place: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    let fits = (1..=INTERFACE_BYTES_MAX).contains(&place.len());
    place.parse::<IpAddr>().is_ok() || fits && place.bytes().all(known)
}

fn are_transports(transports: &str) -> bool {
    let fits = (1..=TRANSPORTS_BYTES_MAX).contains(&transports.len());
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_,^\\".contains(&byte);
    fits && transports.bytes().all(known)
}

fn is_provider(name: &str) -> bool {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-;".contains(&byte))
}

impl Display for DeviceArg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (kind, detail) = match self {
            Self::Shm => ("shm", &None),
            Self::Auto => ("auto", &None),
            Self::Verbs { name } => ("verbs", name),
            Self::Tcp { place } => ("tcp", place),
            Self::Ucx { transports } => ("ucx", transports),
            Self::Ofi { provider } => ("ofi", provider),
        };
        f.write_str(kind)?;
        detail.as_ref().map_or(Ok(()), |detail| write!(f, ":{detail}"))
    }
}

text_in_json!(DeviceArg);

impl DeviceArg {
    /// Whether TCP is, or may be, among the networks, which needs a secret.
    pub(crate) fn may_use_tcp(&self) -> bool {
        matches!(self, DeviceArg::Auto | DeviceArg::Tcp { .. })
    }

    /// The configuration of a worker that is measured.
    pub(crate) fn config(&self) -> DeviceConfig {
        match self {
            DeviceArg::Shm => DeviceConfig::Shm(ShmConfig::default()),
            DeviceArg::Auto => DeviceConfig::Auto(AutoConfig::default().verbs(verbs::config())),
            DeviceArg::Verbs { .. } => DeviceConfig::Verbs(self.verbs()),
            DeviceArg::Tcp { place } => DeviceConfig::Tcp(tcp_config(place.as_deref())),
            DeviceArg::Ucx { .. } => DeviceConfig::Ucx(self.ucx()),
            // A worker sets the matching by its own setting.
            DeviceArg::Ofi { .. } => DeviceConfig::Ofi(self.ofi(HwTagsArg::Auto)),
        }
    }

    /// The configuration of a worker with one silent peer. It uses little memory, since there may
    /// be many.
    pub(crate) fn idle_config(&self) -> DeviceConfig {
        match self.config() {
            DeviceConfig::Verbs(verbs) => DeviceConfig::Verbs(
                verbs.receive_buffers(64).send_buffers(1).queue_depth(16).peers_max(4),
            ),
            other => other,
        }
    }

    /// The settings of verbs of the command line, with this device's name.
    pub(crate) fn verbs(&self) -> VerbsConfig {
        let name = if let DeviceArg::Verbs { name } = self { name.clone() } else { None };
        let config = verbs::config();
        let device = name.or(config.device.clone());
        config.device(device)
    }

    /// The settings of UCX, with these transports.
    pub(crate) fn ucx(&self) -> UcxConfig {
        let transports =
            if let DeviceArg::Ucx { transports } = self { transports.clone() } else { None };
        UcxConfig::default().transports(transports)
    }

    /// The settings of libfabric, with this provider.
    pub(crate) fn ofi(&self, hw_tags: HwTagsArg) -> OfiConfig {
        let hw_tags = if hw_tags == HwTagsArg::Off { TagMatching::Off } else { TagMatching::Auto };
        let provider = if let DeviceArg::Ofi { provider } = self { provider.clone() } else { None };
        OfiConfig::default().provider(provider).hw_tags(hw_tags)
    }

    /// Whether the device matches by itself.
    pub(crate) fn matches(&self) -> bool {
        matches!(self, DeviceArg::Ucx { .. } | DeviceArg::Ofi { .. })
    }

    /// The device that `serve` uses for a client if it was started without `--device`. UCX
    /// and libfabric are refused: they listen on and connects to what the client names, and trust
    /// each peer after the handshake, so the user that starts `serve` has to choose it.
    pub(crate) fn served_unnamed(asked: &DeviceArg) -> Result<DeviceArg, String> {
        match asked {
            DeviceArg::Shm | DeviceArg::Auto | DeviceArg::Verbs { .. } => Ok(asked.clone()),
            // A place is one of the client's machine.
            DeviceArg::Tcp { .. } => Ok(DeviceArg::Tcp { place: None }),
            DeviceArg::Ucx { .. } => {
                Err(format!("{asked} is not served here; start `tagperf serve --device ucx` there"))
            }
            DeviceArg::Ofi { .. } => {
                Err(format!("{asked} is not served here; start `tagperf serve --device ofi` there"))
            }
        }
    }

    /// The device that `serve --device self` uses for a client that asks for `asked`. Each side may
    /// have a name of its own for it.
    pub(crate) fn serving(&self, asked: &DeviceArg) -> Result<DeviceArg, String> {
        match (self, asked) {
            (DeviceArg::Shm, DeviceArg::Shm)
            | (DeviceArg::Auto, DeviceArg::Auto)
            | (DeviceArg::Verbs { name: None }, DeviceArg::Verbs { .. }) => Ok(asked.clone()),
            (DeviceArg::Verbs { .. }, DeviceArg::Verbs { .. })
            | (DeviceArg::Tcp { .. }, DeviceArg::Tcp { .. }) => Ok(self.clone()),
            (DeviceArg::Ucx { transports: None }, DeviceArg::Ucx { .. }) => Ok(asked.clone()),
            (DeviceArg::Ucx { .. }, DeviceArg::Ucx { .. }) => Ok(self.clone()),
            (DeviceArg::Ofi { provider: None }, DeviceArg::Ofi { .. }) => Ok(asked.clone()),
            (DeviceArg::Ofi { .. }, DeviceArg::Ofi { .. }) => Ok(self.clone()),
            _ => Err(format!("{asked} is not served here; use --device {self}")),
        }
    }
}

/// The settings of TCP, with this interface or address.
fn tcp_config(place: Option<&str>) -> TcpConfig {
    let default = TcpConfig::default();
    match place.map(|place| (place, place.parse())) {
        None => default,
        Some((_, Ok(address))) => default.listen(vec![address]),
        Some((name, Err(_))) => default.interfaces(vec![name.to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> DeviceArg {
        text.parse().unwrap()
    }

    #[test]
    fn a_device_is_named() {
        assert_eq!(device("shm"), DeviceArg::default());
        for text in [
            "shm",
            "verbs",
            "verbs:rxe0",
            "verbs:mlx5_0",
            "verbs:roce-p1.s0",
            "tcp",
            "tcp:eth0",
            "tcp:192.0.2.1",
            "tcp:2001:db8::1",
            "ucx",
            "ucx:tcp,self",
            "ucx:^rc_x",
            "ofi",
            "ofi:tcp;ofi_rxm",
            "ofi:cxi",
        ] {
            assert_eq!(device(text).to_string(), text);
            let json = serde_json::to_string(&device(text)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<DeviceArg>(&json).unwrap(), device(text));
        }
        let longest = format!("verbs:{}", "x".repeat(NAME_BYTES_MAX));
        assert_eq!(device(&longest).to_string(), longest);
        let too_long = longest + "x";
        for wrong in [
            "",
            "Shm",
            "shm:",
            "shm:0",
            "rdma",
            "verbs:",
            "verbs:a b",
            "verbs:a/b",
            "verbs:a:1",
            "verbs:\u{1b}[2J",
            "verbs:\0",
            "verbs:ä",
            "tcp:",
            "tcp:a/b",
            "tcp:a b",
            "tcp:an-interface-too-long",
            "ucx:",
            "ucx:a b",
            "ucx:a/b",
            "ucx:\u{1b}[2J",
            "ofi:",
            "ofi:a b",
            "ofi:a/b",
            &too_long,
        ] {
            let error = wrong.parse::<DeviceArg>().unwrap_err();
            assert!(error.contains("expected"), "{wrong}: {error}");
            let json = serde_json::to_string(wrong).unwrap();
            assert!(serde_json::from_str::<DeviceArg>(&json).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<DeviceArg>("{\"Verbs\":{\"name\":\"a/b\"}}").is_err());
    }

    #[test]
    fn each_side_has_names_of_its_own() {
        let serving = |ours: &str, asked: &str| {
            device(ours).serving(&device(asked)).map(|device| device.to_string())
        };
        assert_eq!(serving("shm", "shm").unwrap(), "shm");
        assert_eq!(serving("verbs", "verbs").unwrap(), "verbs");
        assert_eq!(serving("verbs", "verbs:a").unwrap(), "verbs:a");
        assert_eq!(serving("verbs:b", "verbs").unwrap(), "verbs:b");
        assert_eq!(serving("verbs:b", "verbs:a").unwrap(), "verbs:b");
        assert_eq!(serving("ucx", "ucx:tcp").unwrap(), "ucx:tcp");
        assert_eq!(serving("ucx:tcp", "ucx").unwrap(), "ucx:tcp");
        assert_eq!(serving("ofi", "ofi:tcp").unwrap(), "ofi:tcp");
        assert_eq!(serving("ofi:tcp", "ofi").unwrap(), "ofi:tcp");
        assert_eq!(serving("tcp:eth0", "tcp:192.0.2.1").unwrap(), "tcp:eth0");
        assert_eq!(serving("tcp", "tcp:192.0.2.1").unwrap(), "tcp");
        assert!(serving("ucx", "verbs").unwrap_err().ends_with("use --device ucx"));
        let right = "use --device verbs:b";
        assert!(serving("verbs:b", "shm").unwrap_err().ends_with(right));
        assert!(serving("shm", "verbs").unwrap_err().ends_with("use --device shm"));
        let unnamed = |asked: &str| DeviceArg::served_unnamed(&device(asked));
        assert_eq!(
            [unnamed("shm"), unnamed("verbs:a")],
            [Ok(device("shm")), Ok(device("verbs:a"))]
        );
        assert_eq!(unnamed("tcp:eth0"), Ok(device("tcp")));
        for asked in ["ucx", "ucx:tcp"] {
            assert!(unnamed(asked).unwrap_err().contains("serve --device ucx"));
        }
        assert!(unnamed("ofi:tcp").unwrap_err().contains("serve --device ofi"));
    }

    #[test]
    fn a_worker_gets_the_device() {
        assert!(matches!(device("shm").config(), DeviceConfig::Shm(_)));
        assert!(matches!(device("shm").idle_config(), DeviceConfig::Shm(_)));
        for config in [device("verbs:x").config(), device("verbs:x").idle_config()] {
            let DeviceConfig::Verbs(config) = config else { panic!("{config:?}") };
            assert_eq!(config.device.as_deref(), Some("x"));
        }
        assert_eq!(device("verbs").verbs().device, None);
        let tcp = |text: &str| match device(text).config() {
            DeviceConfig::Tcp(config) => (config.listen, config.interfaces),
            other => panic!("{other:?}"),
        };
        assert_eq!(tcp("tcp"), (vec![], vec![]));
        assert_eq!(tcp("tcp:eth0"), (vec![], vec!["eth0".to_owned()]));
        assert_eq!(tcp("tcp:::1"), (vec!["::1".parse().unwrap()], vec![]));
        let DeviceConfig::Ucx(config) = device("ucx:tcp").config() else { panic!("not UCX") };
        assert_eq!(config.transports.as_deref(), Some("tcp"));
        assert_eq!(device("ucx").ucx().transports, None);
        let DeviceConfig::Ofi(config) = device("ofi:shm").config() else { panic!("not libfabric") };
        assert_eq!(config.provider.as_deref(), Some("shm"));
        assert_eq!(device("ofi").ofi(HwTagsArg::Off).provider, None);
    }
}
