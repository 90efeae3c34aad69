//! The settings of the device, and their check.

use std::net::IpAddr;
use std::time::Duration;

use tagmatch_device::{DeviceError, InCall, Outgoing};
use tagmatch_os::safety;
use tagmatch_secret::Secret;

use super::frame;

tagmatch_device::settings! {
    /// Settings of the TCP device. The defaults suit a machine with one network, once there
    /// is a secret.
    ///
    /// Fields may be added: begin with `TcpConfig::default()`, and set fields by the methods named
    /// after them.
    ///
    /// ```
    /// # mod tagmatch { pub use tagmatch_tcp::{self as tcp, Secret}; }
    /// use tagmatch::{Secret, tcp::TcpConfig};
    /// let secret = Secret::from_bytes(b"at least sixteen bytes").ok();
    /// let listen = vec!["127.0.0.1".parse()?];
    /// let config = TcpConfig::default().secret(secret).listen(listen);
    /// assert_eq!(config.port, 0);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[derive(Clone, Debug)]
    pub struct TcpConfig {
        /// The secret that all workers of the job share. Without one, no device can be
        /// made: other users, of this machine too, could connect. Default: none, which stands for
        /// the secret in the file that the environment variable `TAGMATCH_SECRET_FILE` names (mode
        /// 0600), or else in the variable `TAGMATCH_SECRET`.
        pub secret: Option<Secret> = None,
        /// The addresses of this machine on which to listen. Default: none, which stands for all.
        pub listen: Vec<IpAddr> = Vec::new(),
        /// The network interfaces whose addresses to listen on, by their names, if `listen` names
        /// no address. Default: none, which stands for all.
        pub interfaces: Vec<String> = Vec::new(),
        /// The addresses by which peers reach this machine, in the order in which they try them,
        /// those of one link alone last. As many count as fit into the worker's address of 64
        /// bytes: about ten of IPv4 or three of IPv6; beside shared memory and verbs three of IPv4
        /// or one of IPv6. The log names the others (level info). For machines behind an address
        /// translator. Default: none, which stands for the addresses that this device listens on,
        /// without those of loopback if there are others.
        pub announce: Vec<IpAddr> = Vec::new(),
        /// The port to listen on; 0 for any free one. Default: 0.
        pub port: u16 = 0,
        /// Longest message that we receive, header included, in bytes: 64 to 16 MiB. Default: 64
        /// KiB + 64.
        pub message_max: u32 = (64 << 10) + 64,
        /// Bytes of messages to one peer that may wait until the kernel takes them: 4 KiB to 1 GiB.
        /// Memory is used only while messages wait. One message always fits. Default: 1 MiB.
        pub outbox_bytes: u32 = 1 << 20,
        /// Most peers at a time that have connected to this worker from one machine, so that one
        /// machine can't take all places under invented names. Loopback counts as one machine, and
        /// so do the IPv6 addresses of one /64. A machine with more workers than that, each of
        /// which connects to this one, needs more. Peers that this worker connects to don't count.
        /// At least 1; default: 1,024.
        pub host_peers_max: u32 = 1024,
        /// How long to try to reach a peer's machine, and how long a process that connects to this
        /// worker may take to prove that it knows the secret. Only time in which this worker polls
        /// or sleeps counts. A peer whose machine has answered is waited for without a limit: it
        /// may be busy. Above zero, up to one hour. Default: 10 s.
        pub connect_timeout: Duration = Duration::from_secs(10),
        /// How long after a machine stopped answering an idle connection to it fails, about: 4 s to
        /// one hour. Default: 8 s.
        pub keep_alive: Duration = Duration::from_secs(8),
        /// How long a machine may take to acknowledge data before the connection fails: 1 s to one
        /// hour. A peer that doesn't receive for longer is no fault, as its machine goes on
        /// acknowledging. Default: 8 s.
        pub acknowledge_timeout: Duration = safety::period(Duration::from_secs(8)),
        /// How long dropping the device, or the end of a connection that was disconnected, may take
        /// until what was sent is acknowledged. Up to one hour; zero: not waited for. Default: 5 s.
        pub leave_timeout: Duration = Duration::from_secs(5),
    }
}

impl TcpConfig {
    /// Checks all ranges.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        let bad = |setting, value, range| DeviceError::BadSetting { setting, value, range };
        let least = u32::try_from(Outgoing::HEADER_MAX).unwrap_or(u32::MAX);
        if !(least..=frame::MESSAGE_MAX).contains(&self.message_max) {
            return Err(bad("message_max", self.message_max.into(), "from 64 to 16777216"));
        }
        if !(4 << 10..=1 << 30).contains(&self.outbox_bytes) {
            let range = "from 4096 to 1073741824";
            return Err(bad("outbox_bytes", self.outbox_bytes.into(), range));
        }
        if self.host_peers_max == 0 {
            return Err(bad("host_peers_max", 0, "at least 1"));
        }
        for (setting, time, least, range) in [
            ("connect_timeout_ms", self.connect_timeout, 1, "from 1 ms to one hour"),
            ("keep_alive_ms", self.keep_alive, 4000, "from 4 s to one hour"),
            ("acknowledge_timeout_ms", self.acknowledge_timeout, 1000, "from 1 s to one hour"),
            ("leave_timeout_ms", self.leave_timeout, 0, "up to one hour"),
        ] {
            let range_ms = Duration::from_millis(least)..=Duration::from_secs(3600);
            if !range_ms.contains(&time) {
                let value = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                return Err(bad(setting, value, range));
            }
        }
        Ok(())
    }

    /// The job's secret.
    pub(crate) fn find_secret(&self) -> Result<Secret, DeviceError> {
        let found = Secret::or_from_environment(self.secret.as_ref());
        let found = found.in_call("reading the job's secret")?;
        found.ok_or(DeviceError::Unsupported { what: "TCP", why: NO_SECRET })
    }
}

const NO_SECRET: &str = "it needs the job's secret, so that no other user can connect; set \
                         TAGMATCH_SECRET_FILE to a file of mode 0600, TAGMATCH_SECRET, or \
                         TcpConfig::secret";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_without_a_secret_says_where_one_may_come_from() {
        for source in [tagmatch_secret::SECRET, tagmatch_secret::SECRET_FILE] {
            assert!(NO_SECRET.contains(source));
        }
    }

    #[test]
    fn the_error_names_the_setting_that_is_wrong() {
        let wrong = |config: TcpConfig| match config.check() {
            Err(DeviceError::BadSetting { setting, .. }) => setting,
            other => panic!("{other:?}"),
        };
        let good = TcpConfig::default;
        assert!(good().check().is_ok());
        for message_max in [63, (16 << 20) + 1] {
            assert_eq!(wrong(TcpConfig { message_max, ..good() }), "message_max");
        }
        for outbox_bytes in [4095, (1 << 30) + 1] {
            assert_eq!(wrong(TcpConfig { outbox_bytes, ..good() }), "outbox_bytes");
        }
        assert_eq!(wrong(TcpConfig { host_peers_max: 0, ..good() }), "host_peers_max");
        let long = Duration::from_secs(3601);
        for time in [Duration::ZERO, long] {
            let config = TcpConfig { connect_timeout: time, ..good() };
            assert_eq!(wrong(config), "connect_timeout_ms");
            assert_eq!(wrong(TcpConfig { keep_alive: time, ..good() }), "keep_alive_ms");
            let config = TcpConfig { acknowledge_timeout: time, ..good() };
            assert_eq!(wrong(config), "acknowledge_timeout_ms");
        }
        assert_eq!(wrong(TcpConfig { leave_timeout: long, ..good() }), "leave_timeout_ms");
    }
}
