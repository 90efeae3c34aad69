//! The knobs, which are environment variables: the table stands in the crate's page.

use std::path::PathBuf;

use tagmatch_ofi_sys::calls::Errno;
use tagmatch_os::notice;

/// Where receives are matched: `FI_CXI_RX_MATCH_MODE`, or fi_control(3) on the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In the NIC; without a free list entry, flow control.
    Hardware,
    /// In the NIC; without a free list entry, in software from then on.
    Hybrid,
    /// In software.
    Software,
}

impl Mode {
    /// The mode with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Mode::Hardware, Mode::Hybrid, Mode::Software].into_iter().find(|mode| mode.name() == name)
    }

    /// The name, as fi_cxi(7) has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Hardware => "hardware",
            Mode::Hybrid => "hybrid",
            Mode::Software => "software",
        }
    }
}

/// What the environment says. Rounds are calls that make progress on an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) nic: String,
    pub(crate) mode: Mode,
    pub(crate) has_mode_control: bool,
    pub(crate) entries_max: usize,
    pub(crate) taken_per_mille: u32,
    pub(crate) aborts: bool,
    pub(crate) onload_rounds: u32,
    pub(crate) peek_rounds: u32,
    pub(crate) cancel_rounds: u32,
    pub(crate) get_rounds: u32,
    pub(crate) match_ids: usize,
    pub(crate) death: Errno,
    pub(crate) close_ms: u32,
    pub(crate) wakes: bool,
    pub(crate) sysfs: Option<PathBuf>,
    pub(crate) telemetry_lost_per_mille: u32,
    pub(crate) again_per_mille: u32,
    pub(crate) seed: Option<u64>,
}

/// The settings of this process.
///
/// # Errors
/// There is no NIC (`FI_ENODATA`). So it is if a knob is wrong, which is told on standard error.
pub(crate) fn of_environment() -> Result<Settings, Errno> {
    let settings = read(|name| std::env::var(name).ok()).map_err(|error| {
        notice::tell(&format!("cxi: {error}"));
        Errno::NO_DATA
    })?;
    settings.ok_or(Errno::NO_DATA)
}

/// The settings; `None` without a NIC. The words of an error say which variable is wrong.
fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Settings>, String> {
    let Some(nic) = variable("TAGMATCH_CXI_NIC") else { return Ok(None) };
    let index = nic.strip_prefix("cxi").and_then(|index| index.parse::<u8>().ok());
    if index.is_none() {
        return Err(format!("TAGMATCH_CXI_NIC={nic}: names of NICs are cxi0, cxi1, …"));
    }
    let number = |name: &str, usual: u32| match variable(name) {
        None => Ok(usual),
        Some(text) => text.parse::<u32>().map_err(|_| format!("{name}={text} is no number")),
    };
    let choice = |name: &str, usual: &'static str, others: &[&'static str]| {
        let Some(text) = variable(name) else { return Ok(usual) };
        let known = std::iter::once(&usual).chain(others).find(|known| ***known == text);
        known.copied().ok_or_else(|| format!("{name}={text}: it can be {usual}, {others:?}"))
    };
    let seed = match variable("TAGMATCH_CXI_SEED") {
        None => None,
        Some(text) => {
            Some(text.parse().map_err(|_| format!("TAGMATCH_CXI_SEED={text} is no number"))?)
        }
    };
    // cxi warns about another value and keeps its default (fi_cxi(7)).
    let mode = variable("FI_CXI_RX_MATCH_MODE").and_then(|name| Mode::named(&name));
    Ok(Some(Settings {
        nic,
        mode: mode.unwrap_or(Mode::Hardware),
        has_mode_control: choice("TAGMATCH_CXI_CONTROL", "on", &["off"])? == "on",
        entries_max: number("TAGMATCH_CXI_ENTRIES", 15360)? as usize,
        taken_per_mille: number("TAGMATCH_CXI_TAKEN", 0)?,
        aborts: choice("TAGMATCH_CXI_SECOND", "abort", &["wait"])? == "abort",
        onload_rounds: number("TAGMATCH_CXI_ONLOAD", 4)?,
        peek_rounds: number("TAGMATCH_CXI_PEEK", 2)?,
        cancel_rounds: number("TAGMATCH_CXI_CANCEL", 2)?,
        get_rounds: number("TAGMATCH_CXI_GET", 1)?,
        match_ids: number("TAGMATCH_CXI_MATCH_IDS", 2048)? as usize,
        death: match choice("TAGMATCH_CXI_DEATH", "EHOSTUNREACH", &["ENOTCONN", "EIO"])? {
            "ENOTCONN" => Errno::NOT_CONNECTED,
            "EIO" => Errno::IO,
            _ => Errno::HOST_UNREACHABLE,
        },
        close_ms: number("TAGMATCH_CXI_CLOSE_MS", 3000)?,
        wakes: choice("TAGMATCH_CXI_WAKE", "on", &["off"])? == "on",
        sysfs: variable("TAGMATCH_CXI_SYSFS").map(PathBuf::from),
        telemetry_lost_per_mille: number("TAGMATCH_CXI_TELEMETRY_LOST", 0)?,
        again_per_mille: number("TAGMATCH_CXI_AGAIN", 0)?,
        seed,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        read(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
    }

    #[test]
    fn without_a_nic_there_are_no_settings() {
        assert!(of(&[("TAGMATCH_CXI_SEED", "1")]).unwrap().is_none());
        let settings = of(&[("TAGMATCH_CXI_NIC", "cxi3")]).unwrap().unwrap();
        assert_eq!((settings.nic.as_str(), settings.mode), ("cxi3", Mode::Hardware));
    }

    #[test]
    fn a_value_that_a_knob_cannot_have_is_refused_by_name() {
        for (name, value) in [
            ("TAGMATCH_CXI_NIC", "mlx5_0"),
            ("TAGMATCH_CXI_SEED", "x"),
            ("TAGMATCH_CXI_ENTRIES", "-1"),
            ("TAGMATCH_CXI_CONTROL", "maybe"),
            ("TAGMATCH_CXI_DEATH", "EPERM"),
        ] {
            let error = of(&[(name, value), ("TAGMATCH_CXI_NIC", "cxi0")]).unwrap_err();
            assert!(error.starts_with(&format!("{name}={value}")), "{error}");
        }
    }

    #[test]
    fn an_unknown_mode_is_the_usual_one_as_with_cxi() {
        for (name, mode) in
            [("hybrid", Mode::Hybrid), ("software", Mode::Software), ("Hybrid", Mode::Hardware)]
        {
            let pairs = [("TAGMATCH_CXI_NIC", "cxi0"), ("FI_CXI_RX_MATCH_MODE", name)];
            assert_eq!(of(&pairs).unwrap().unwrap().mode, mode);
        }
    }
}
