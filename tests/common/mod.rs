//! What tests of the public API share: the device that they run on.

use std::time::Duration;

use tagmatch::verbs::VerbsConfig;
use tagmatch::{Config, DeviceConfig, HwTags};

/// Settings for the device that `TAGMATCH_TEST_DEVICE` names: `shm`, which is the default, or verbs,
/// with `verbs`, or with an emulated NIC that matches, `verbs+emu`. There it is offered all receives.
pub(crate) fn config() -> Config {
    on_device(VerbsConfig::default())
}

/// The same, with little patience for a peer that doesn't answer.
pub(crate) fn hasty() -> Config {
    on_device(VerbsConfig { connect_timeout: Duration::from_millis(300), ..VerbsConfig::default() })
}

fn on_device(verbs: VerbsConfig) -> Config {
    let name = std::env::var("TAGMATCH_TEST_DEVICE").unwrap_or_else(|_| "shm".to_owned());
    let device = DeviceConfig::Verbs(verbs);
    match name.as_str() {
        "shm" => Config::default(),
        "verbs" => Config { device, ..Config::default() },
        "verbs+emu" => {
            Config { device, hw_tags: HwTags::Emu, hw_tags_threshold: 0, ..Config::default() }
        }
        other => panic!("TAGMATCH_TEST_DEVICE is {other}: shm, verbs or verbs+emu would be right"),
    }
}
