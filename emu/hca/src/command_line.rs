//! The command's options.

use std::ffi::OsString;

use clap::Parser;
use tagmatch_model::ModelConfig;

use crate::settings::Settings;
use crate::sysfs;

/// Runs a program, which sees a ConnectX in software: an mlx5 device that matches tags.
///
/// The program and all that it starts find the device through unmodified libibverbs and UCX.
/// Nothing has to be installed but these libraries, and root is not needed where the system allows
/// user namespaces.
#[derive(Debug, Parser)]
#[command(name = "tagmatch-hca", version)]
pub(crate) struct Options {
    /// The number of devices.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) devices: u32,

    /// Entries in the list of tags: one less than a power of two.
    #[arg(long, default_value_t = 127, value_name = "N")]
    pub(crate) tags: u32,

    /// The seed of all random choices.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// Write a JSON report of each process to a file, or to standard error (-).
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<String>,

    /// Any signal interrupts a command that waits, as on Linux before 5.19.
    #[arg(long)]
    pub(crate) interruptible: bool,

    /// Which process of the command this is.
    #[arg(long, hide = true)]
    pub(crate) stage: Option<String>,

    /// The descriptor of the wire to the process that has started this one.
    #[arg(long, hide = true)]
    pub(crate) wire: Option<i32>,

    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

/// Why options are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("--tags {0}: 1, 3, 7 and so on up to 32767, one less than a power of two")]
    Tags(u32),
    #[error("{0}")]
    Model(#[from] tagmatch_device::DeviceError),
}

impl Options {
    pub(crate) fn settings(&self) -> Result<Settings, OptionError> {
        let is_size = (self.tags + 1).is_power_of_two() && (1..=32767).contains(&self.tags);
        if !is_size {
            return Err(OptionError::Tags(self.tags));
        }
        let model = ModelConfig { slots: self.tags, seed: self.seed, ..ModelConfig::default() };
        model.check()?;
        let first = sysfs::first_free();
        let devices = (first..first + self.devices).collect();
        Ok(Settings { devices, model })
    }
}
