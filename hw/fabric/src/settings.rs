//! Checks of settings that all transports have.

use std::time::Duration;

use tagmatch_device::{DeviceError, InCall};
use tagmatch_secret::Secret;

/// Checks the ranges of a device's times.
///
/// # Errors
/// [`DeviceError::BadSetting`] with the name of the setting.
pub fn check_times(connect_timeout: Duration, keepalive: Duration) -> Result<(), DeviceError> {
    let longest = Duration::from_secs(3600);
    for (setting, time, least, range) in [
        ("connect_timeout_ms", connect_timeout, 1, "from 1 ms to one hour"),
        ("keepalive_ms", keepalive, 1000, "from 1 s to one hour"),
    ] {
        if time < Duration::from_millis(least) || time > longest {
            let value = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            return Err(DeviceError::BadSetting { setting, value, range });
        }
    }
    Ok(())
}

/// Checks the bits of a tag layout, and those of its source field.
///
/// # Errors
/// [`DeviceError::BadSetting`] with the name of the setting.
pub fn check_layout(used: u64, source: u64) -> Result<(), DeviceError> {
    let bad = |setting, value, range| Err(DeviceError::BadSetting { setting, value, range });
    let field = source >> source.trailing_zeros().min(63);
    if source == 0 || field & field.wrapping_add(1) != 0 {
        return bad("source", source, "one run of bits, not empty");
    }
    if used & source != source {
        return bad("used", used, "all bits of the layout, its source field included");
    }
    Ok(())
}

/// The job's secret, if there is one: that of the settings, or that of the environment.
///
/// # Errors
/// It can't be read.
pub fn find_secret(secret: Option<&Secret>) -> Result<Option<Secret>, DeviceError> {
    Secret::or_from_environment(secret).in_call("reading the job's secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting_of(checked: Result<(), DeviceError>) -> &'static str {
        match checked {
            Err(DeviceError::BadSetting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_time_out_of_its_range_is_named() {
        let second = Duration::from_secs(1);
        assert!(check_times(second, second).is_ok());
        assert_eq!(setting_of(check_times(Duration::ZERO, second)), "connect_timeout_ms");
        assert_eq!(setting_of(check_times(second, Duration::from_millis(1))), "keepalive_ms");
        assert_eq!(setting_of(check_times(second, second * 3601)), "keepalive_ms");
    }

    #[test]
    fn a_layout_that_cannot_work_is_named() {
        assert_eq!(setting_of(check_layout(0xff, 0)), "source");
        assert_eq!(setting_of(check_layout(0xff, 0b101)), "source");
        assert_eq!(setting_of(check_layout(0xff, 0xff00)), "used");
        assert!(check_layout(!0, !0).is_ok() && check_layout(!0, 1 << 63).is_ok());
    }
}
