//! Finding the other side: a process of our own, or one behind a `tagperf serve`.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::client::{self, Limits, Measured};
use crate::args::Host;
use crate::control::Control;
use crate::control::message::{Answer, Ask, Hello, Leg};
use crate::failure::{Failure, one_line};

/// How long the other side may take to say hello; `serve` may let us wait for our turn, and starts a
/// process.
const HELLO_TIME: Duration = Duration::from_secs(8);
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// A side that does not read for so long has failed.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// The other side, greeted and ready for measurements.
pub(crate) struct Other {
    control: Control,
    child: Option<Child>,
    /// For the block above the tables.
    pub(crate) what: String,
}

impl Other {
    pub(crate) fn find(host: Option<&Host>) -> Result<Self, Failure> {
        let mut other = match host {
            None => Self::spawn()?,
            Some(host) => Self::connect(host)?,
        };
        let ours = Hello::new();
        let greeted = other.control.send(&Ask::Hello(ours.clone()));
        let answer = greeted.and_then(|()| other.control.receive(HELLO_TIME));
        let theirs = match answer {
            Ok(Answer::Hello(theirs)) => theirs,
            Ok(Answer::Refused { why }) => {
                return Err(Failure::Measurement(format!("{}: {}", other.what, one_line(why))));
            }
            Ok(answer) => {
                let why = format!("{} says {answer:?}, no hello", other.what);
                return Err(Failure::Measurement(why));
            }
            Err(error) => {
                return Err(Failure::Measurement(format!("{}: {}", other.what, one_line(error))));
            }
        };
        ours.understands(&theirs).map_err(Failure::Usage)?;
        if ours.boot_id != theirs.boot_id {
            return Err(another_machine(&other.what));
        }
        Ok(other)
    }

    /// Runs one leg; see [`client::run`].
    pub(crate) fn run(
        &mut self,
        leg: &mut Leg,
        limits: Limits,
        tick: impl FnMut() -> bool,
    ) -> Result<Measured, Failure> {
        client::run(&mut self.control, leg, limits, tick).map_err(|failure| match failure {
            Failure::Measurement(why) => Failure::Measurement(self.with_exit(why)),
            other => other,
        })
    }

    /// How our second process ended says more than that it did.
    fn with_exit(&mut self, why: String) -> String {
        let Some(child) = &mut self.child else { return why };
        // It may still be ending; its channel closes a moment before.
        for _ in 0..20 {
            if let Ok(Some(status)) = child.try_wait() {
                return match status.signal() {
                    Some(signal) => format!("the second process was killed by signal {signal}"),
                    None => format!("the second process ended, {status}: {why}"),
                };
            }
            if !self.control.wants_attention() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        why
    }

    fn spawn() -> Result<Self, Failure> {
        let failed = |what: &str, error: &std::io::Error| {
            Failure::Measurement(format!("cannot {what} a second process: {error}"))
        };
        let mut child = peer(None)
            .and_then(|mut command| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn())
            .map_err(|error| failed("start", &error))?;
        let (Some(writer), Some(reader)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Measurement("a second process has no pipes".into()));
        };
        let what = format!("a second process here, pid {}", child.id());
        let control = Control::new(reader, writer, || ()).map_err(|e| failed("listen to", &e))?;
        Ok(Self { control, child: Some(child), what })
    }

    fn connect(host: &Host) -> Result<Self, Failure> {
        let addresses: Vec<SocketAddr> = (host.name.as_str(), host.port)
            .to_socket_addrs()
            .map_err(|error| {
                let right = "a name that resolves, or 127.0.0.1, would be right";
                Failure::Usage(format!("cannot find {}: {error}; {right}", host.name))
            })?
            .collect();
        let Some(address) = addresses.iter().find(|address| is_here(address.ip())) else {
            return Err(another_machine(&host.to_string()));
        };
        let connected = TcpStream::connect_timeout(address, CONNECT_TIME).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(WRITE_TIME))?;
            let reader = stream.try_clone()?;
            Control::new(reader, stream, || ())
        });
        let control = connected.map_err(|error| {
            let right = format!("`tagperf serve --port {}` there first would be right", host.port);
            Failure::Measurement(format!("cannot connect to {host}: {error}; {right}"))
        })?;
        Ok(Self { control, child: None, what: format!("tagperf serve at {host}") })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It would go by itself as soon as its channel closes; this way it is gone, and reaped,
            // before we are.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The command of the other side's process; `client` is named in what it logs.
pub(super) fn peer(client: Option<&str>) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("peer");
    if let Some(client) = client {
        command.args(["--client", client]);
    }
    Ok(command)
}

/// Whether an address is one of this machine: only then can a socket be bound to it.
fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || TcpListener::bind((address, 0)).is_ok()
}

fn another_machine(what: &str) -> Failure {
    let device = crate::link::DEVICE;
    let right = "both sides on one machine would be right";
    Failure::Usage(format!(
        "{what} is another machine, which {device}, the only device, does not reach; {right}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_addresses_are_here() {
        assert!(is_here("127.0.0.1".parse().unwrap()));
        assert!(is_here("127.8.9.10".parse().unwrap()));
        // Reserved for documentation: nobody's.
        assert!(!is_here("192.0.2.1".parse().unwrap()));
        assert!(!is_here("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn another_machine_is_bad_usage() {
        let host = Host { name: "192.0.2.1".into(), port: 1 };
        let failure = Other::find(Some(&host)).map(drop).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(_)), "{failure}");
        assert!(failure.to_string().contains("another machine"), "{failure}");
    }
}
