//! What tests of the public API share: the device that they run on, and what it can't do.

#![cfg_attr(
    not(all(feature = "emu", feature = "ofi", feature = "ucx")),
    allow(dead_code, unused_imports, unused_variables, reason = "fewer devices use less of it")
)]

pub(crate) mod fork;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) use tagmatch::Ability;
use tagmatch::AutoConfig;
#[cfg(feature = "tcp")]
use tagmatch::Secret;
#[cfg(feature = "ofi")]
use tagmatch::ofi::OfiConfig;
#[cfg(feature = "tcp")]
use tagmatch::tcp::TcpConfig;
#[cfg(feature = "ucx")]
use tagmatch::ucx::UcxConfig;
#[cfg(feature = "verbs")]
use tagmatch::verbs::VerbsConfig;
use tagmatch::{Config, DeviceConfig, DeviceKind, HwTags, TagLayout};

/// A layout that leaves 33 bits free, in which UCX carries immediate data.
const NARROW: TagLayout = match TagLayout::new(7, 8, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("31 bits"),
};

/// Settings for the device that `TAGMATCH_TEST_DEVICE` names: `shm` (the default); `verbs`;
/// `verbs+emu`, verbs with an emulated NIC that is offered all receives; `tcp`, on loopback;
/// `auto`, shared memory with TCP, of which shared memory is used; `auto+tcp`, where every second
/// worker has TCP alone, so that both are used; `auto+model`, `auto+tcp` with a model of a NIC on
/// TCP that is offered all receives; `auto+verbs` and `auto+emu`, where every second worker has
/// verbs alone, without or with an emulated NIC that is offered all receives; `ucx`, over the
/// transports that `TAGMATCH_TEST_UCX_TLS` names in the form of `UCX_TLS`; or `ofi`, over the
/// provider of libfabric that `TAGMATCH_TEST_OFI` names.
pub(crate) fn config() -> Config {
    on_device(None)
}

/// Settings as [`config`] gives them, but a peer that doesn't answer is given up soon.
pub(crate) fn hasty() -> Config {
    on_device(Some(Duration::from_millis(300)))
}

/// Settings for the other worker of a pair. Where every second worker has a network alone, one
/// worker of the pair has that, so the pair's messages pass over the network.
pub(crate) fn counterpart(config: &Config) -> Config {
    let device = match (device().as_str(), config.device.clone()) {
        #[cfg(feature = "tcp")]
        ("auto+tcp" | "auto+model", DeviceConfig::Auto(auto)) => DeviceConfig::Tcp(auto.tcp),
        #[cfg(feature = "tcp")]
        ("auto+tcp" | "auto+model", DeviceConfig::Tcp(tcp)) => {
            DeviceConfig::Auto(AutoConfig::default().tcp(tcp))
        }
        #[cfg(feature = "verbs")]
        ("auto+verbs" | "auto+emu" | "auto+nic", DeviceConfig::Auto(auto)) => {
            DeviceConfig::Verbs(auto.verbs)
        }
        #[cfg(feature = "verbs")]
        ("auto+verbs" | "auto+emu" | "auto+nic", DeviceConfig::Verbs(verbs)) => {
            DeviceConfig::Auto(AutoConfig::default().verbs(verbs))
        }
        (_, device) => device,
    };
    config.clone().device(device)
}

/// The name of the device, as for [`config`].
pub(crate) fn device() -> String {
    std::env::var("TAGMATCH_TEST_DEVICE").unwrap_or_else(|_| "shm".to_owned())
}

fn on_device(patience: Option<Duration>) -> Config {
    #[cfg(feature = "verbs")]
    let verbs = || DeviceConfig::Verbs(verbs(patience));
    match device().as_str() {
        "shm" => Config::default(),
        #[cfg(feature = "verbs")]
        "verbs" => Config::default().device(verbs()),
        #[cfg(feature = "verbs")]
        "verbs+nic" => {
            let hw_tags = HwTags::Auto;
            Config::default().device(verbs()).hw_tags(hw_tags).hw_tags_threshold(0)
        }
        #[cfg(feature = "verbs")]
        "auto+nic" => {
            let hw_tags = HwTags::Auto;
            auto_or_verbs(patience).hw_tags(hw_tags).hw_tags_threshold(0)
        }
        #[cfg(feature = "emu")]
        "verbs+emu" => {
            let hw_tags = HwTags::Emu;
            Config::default().device(verbs()).hw_tags(hw_tags).hw_tags_threshold(0)
        }
        #[cfg(feature = "verbs")]
        "auto+verbs" => auto_or_verbs(patience),
        #[cfg(feature = "emu")]
        "auto+emu" => {
            let hw_tags = HwTags::Emu;
            auto_or_verbs(patience).hw_tags(hw_tags).hw_tags_threshold(0)
        }
        #[cfg(feature = "tcp")]
        "tcp" => tcp(patience),
        #[cfg(feature = "tcp")]
        "auto" => auto(patience),
        #[cfg(feature = "tcp")]
        "auto+tcp" => auto_or_tcp(patience),
        #[cfg(all(feature = "tcp", feature = "model"))]
        "auto+model" => {
            let hw_tags = HwTags::Model(tagmatch::model::ModelConfig::default());
            auto_or_tcp(patience).hw_tags(hw_tags).hw_tags_threshold(0)
        }
        #[cfg(feature = "ucx")]
        "ucx" => Config::default().device(ucx(patience)).layout(NARROW),
        #[cfg(feature = "ofi")]
        "ofi" => Config::default().device(ofi(patience)),
        other => {
            panic!(
                "TAGMATCH_TEST_DEVICE is {other}: shm, verbs, verbs+emu, verbs+nic, tcp, auto, \
                 auto+tcp, auto+model, auto+verbs, auto+emu, auto+nic, ucx or ofi is right"
            )
        }
    }
}

#[cfg(feature = "tcp")]
fn tcp(patience: Option<Duration>) -> Config {
    with_secret(DeviceConfig::Tcp(on_loopback(patience)))
}

#[cfg(feature = "tcp")]
fn auto(patience: Option<Duration>) -> Config {
    let tcp = on_loopback(patience);
    with_secret(DeviceConfig::Auto(AutoConfig::default().tcp(tcp)))
}

#[cfg(feature = "tcp")]
fn auto_or_tcp(patience: Option<Duration>) -> Config {
    if is_every_second() { auto(patience) } else { tcp(patience) }
}

#[cfg(feature = "verbs")]
fn verbs(patience: Option<Duration>) -> VerbsConfig {
    let default = VerbsConfig::default();
    let connect_timeout = patience.unwrap_or(default.connect_timeout);
    default.connect_timeout(connect_timeout)
}

#[cfg(feature = "verbs")]
fn auto_or_verbs(patience: Option<Duration>) -> Config {
    let verbs = verbs(patience);
    let device = if is_every_second() {
        DeviceConfig::Auto(AutoConfig::default().verbs(verbs))
    } else {
        DeviceConfig::Verbs(verbs)
    };
    Config::default().device(device)
}

/// True for every second call.
fn is_every_second() -> bool {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
}

#[cfg(feature = "tcp")]
fn on_loopback(patience: Option<Duration>) -> TcpConfig {
    let default = TcpConfig::default();
    let connect_timeout = patience.unwrap_or(default.connect_timeout);
    default.listen(vec![std::net::Ipv4Addr::LOCALHOST.into()]).connect_timeout(connect_timeout)
}

#[cfg(feature = "tcp")]
fn with_secret(device: DeviceConfig) -> Config {
    let secret = Secret::from_bytes(b"the secret of these tests").ok();
    Config::default().device(device).secret(secret)
}

#[cfg(feature = "ucx")]
fn ucx(patience: Option<Duration>) -> DeviceConfig {
    let transports = std::env::var("TAGMATCH_TEST_UCX_TLS").ok();
    let default = UcxConfig::default();
    let connect_timeout = patience.unwrap_or(default.connect_timeout);
    DeviceConfig::Ucx(default.transports(transports).connect_timeout(connect_timeout))
}

#[cfg(feature = "ofi")]
fn ofi(patience: Option<Duration>) -> DeviceConfig {
    let provider = std::env::var("TAGMATCH_TEST_OFI").ok();
    let default = OfiConfig::default();
    let connect_timeout = patience.unwrap_or(default.connect_timeout);
    let listen =
        vec![tagmatch_testkit::device::loopback_of(provider.as_deref().unwrap_or_default())];
    DeviceConfig::Ofi(default.provider(provider).connect_timeout(connect_timeout).listen(listen))
}

/// Whether messages leave their sender though their receiver makes no progress. UCX over TCP has
/// them acknowledged by the receiver's UCX.
pub(crate) fn takes_without_progress() -> bool {
    let transports = std::env::var("TAGMATCH_TEST_UCX_TLS").unwrap_or_default();
    device() != "ucx" || !transports.contains("tcp")
}

/// Whether the device under test has an ability. If it hasn't, a line of the test's output says so
/// and why. What only some providers of libfabric lack is named in `TAGMATCH_TEST_OFI_LACKS`.
pub(crate) fn has(ability: Ability) -> bool {
    let kind = match device().as_str() {
        "ucx" => DeviceKind::Ucx,
        "ofi" => DeviceKind::Ofi,
        _ => return true,
    };
    let lacking = std::env::var("TAGMATCH_TEST_OFI_LACKS").unwrap_or_default();
    if ability == Ability::ManyWaiting && !lacking.split_whitespace().any(|it| it == "ManyWaiting")
    {
        return true;
    }
    let Some(why) = ability.lacking(kind) else { return true };
    println!("NOT OVER {}: {ability:?}: {why}", kind.name());
    false
}
