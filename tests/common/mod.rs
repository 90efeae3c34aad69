//! What tests of the public API share: the device that they run on.

use std::time::Duration;

use tagmatch::verbs::VerbsConfig;
use tagmatch::{Config, DeviceConfig, HwTags};

/// Settings for the device that `TAGMATCH_TEST_DEVICE` names: `shm`, which is the default, or verbs,
/// with `verbs`, or with an emulated NIC that matches, `verbs+emu`. There it is offered all receives.
pub(crate) fn config() -> Config {
    let name = std::env::var("TAGMATCH_TEST_DEVICE").unwrap_or_else(|_| "shm".to_owned());
    let connect_timeout = Duration::from_millis(500);
    let verbs = DeviceConfig::Verbs(VerbsConfig { connect_timeout, ..VerbsConfig::default() });
    match name.as_str() {
        "shm" => Config::default(),
        "verbs" => Config { device: verbs, ..Config::default() },
        "verbs+emu" => Config {
            device: verbs,
            hw_tags: HwTags::Emu,
            hw_tags_threshold: 0,
            ..Config::default()
        },
        other => panic!("TAGMATCH_TEST_DEVICE is {other}: shm, verbs or verbs+emu would be right"),
    }
}
