//! The address of the other side.

use std::fmt::{self, Display, Formatter};
use std::net::Ipv6Addr;
use std::str::FromStr;

use tagmatch_results::show::invalid;

use super::bounds::PORT;

/// The address that the other side listens on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let such_as = format!("127.0.0.1:{PORT}, node7 or [::1]:{PORT}");
            invalid("host", text, format_args!("HOST[:PORT] such as {such_as}"))
        };
        // A zone (`fe80::1%eth0`) is left to the resolver.
        let is_v6 =
            |name: &str| name.split('%').next().is_some_and(|a| a.parse::<Ipv6Addr>().is_ok());
        let (name, port) = match text.strip_prefix('[') {
            // Brackets are for numeric addresses with colons, as in a URL (RFC 3986, 3.2.2).
            Some(rest) => {
                let (name, after) = rest.split_once(']').ok_or_else(wrong)?;
                is_v6(name).then_some(()).ok_or_else(wrong)?;
                let port = after.strip_prefix(':');
                (name, port.or(if after.is_empty() { None } else { Some("") }))
            }
            None if is_v6(text) => (text, None),
            None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
        };
        let port = match port {
            Some(digits) => digits.parse().ok().filter(|&port| port > 0).ok_or_else(wrong)?,
            None => PORT,
        };
        let strange = |c: char| c.is_whitespace() || c.is_control() || "[]".contains(c);
        if name.is_empty() || name.contains(strange) {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), port })
    }
}

impl Display for Host {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let host = |text: &str| text.parse::<Host>().map(|host| host.to_string());
        assert_eq!(host("a").unwrap(), "a:13338");
        assert_eq!(host("::1").unwrap(), "[::1]:13338");
        assert_eq!(host("[::1]").unwrap(), "[::1]:13338");
        assert_eq!(host("[::1]:7").unwrap(), "[::1]:7");
        assert_eq!(host("fe80::1%eth0").unwrap(), "[fe80::1%eth0]:13338");
        for wrong in [
            "", ":", ":7", "a:", "a:0", "a:99999", "a b", "[]", "[::1", "::1]", "[::1]7", "[::1]:",
            "[a]", "[::1]]", "a]:7", "1:2:3", "[[::1]]",
        ] {
            assert!(host(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }
}
