//! The release of tagmatch that a worker is of.

use std::fmt;

/// Major and minor version. The protocol between workers may change with each of them, so only
/// workers of one release connect. Addresses and handshakes carry it as one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    major: u8,
    minor: u8,
}

/// A worker of another release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the worker is of tagmatch {peer}, and this one of tagmatch {own}: both need the same minor \
     version"
)]
pub struct OtherRelease {
    /// The release of this worker.
    pub own: Release,
    /// The release of the other worker.
    pub peer: Release,
}

/// The lower bits of the byte, which are the minor version.
const MINOR_BITS: u32 = 5;
const MINOR: u8 = (1 << MINOR_BITS) - 1;

impl Release {
    /// The release of the workers that this crate makes.
    pub const OWN: Release = Release {
        major: number(env!("CARGO_PKG_VERSION_MAJOR"), u8::MAX >> MINOR_BITS),
        minor: number(env!("CARGO_PKG_VERSION_MINOR"), MINOR),
    };

    /// The byte that stands for it.
    pub const fn byte(self) -> u8 {
        self.major << MINOR_BITS | self.minor
    }

    /// Checks the byte that a peer has sent.
    ///
    /// # Errors
    /// The peer is of another release.
    pub fn check(byte: u8) -> Result<(), OtherRelease> {
        let peer = Release { major: byte >> MINOR_BITS, minor: byte & MINOR };
        let own = Release::OWN;
        if peer == own { Ok(()) } else { Err(OtherRelease { own, peer }) }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A part of the version, which has at most two digits.
const fn number(text: &str, max: u8) -> u8 {
    let mut value = 0;
    let mut rest = text.as_bytes();
    while let [digit, after @ ..] = rest {
        value = value * 10 + (*digit - b'0');
        rest = after;
    }
    assert!(value <= max, "the byte of a release has no room for this version");
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_is_refused_with_both_versions_in_the_words() {
        assert!(Release::check(Release::OWN.byte()).is_ok());
        let newer = Release { minor: Release::OWN.minor + 1, ..Release::OWN };
        let refused = Release::check(newer.byte()).unwrap_err().to_string();
        for version in [Release::OWN, newer] {
            assert!(refused.contains(&format!("tagmatch {version}")), "{refused}");
        }
        assert_eq!(Release { major: 7, minor: 31 }.byte(), u8::MAX);
    }
}
