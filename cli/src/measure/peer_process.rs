//! The process on the other side, as this side sees it: started here, behind `tagperf serve`, or
//! the other rank of a job.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tagmatch_results::show::one_line;

use super::client::{self, Measured};
use crate::control::message::{Answer, Ask, Hello};
use crate::control::{Control, prepare};
use crate::failure::Failure;
use crate::secret;
use crate::spec::{Case, DeviceArg, Host, Limits};
use crate::verbs;

/// The time that the other side has for its hello: `serve` may let a client wait for its turn, and
/// starts a process.
const HELLO_TIME: Duration = Duration::from_secs(8);
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// The other side, after the exchange of hellos.
pub(crate) struct PeerProcess {
    control: Control,
    child: Option<Child>,
    /// Its description for the facts above the tables.
    pub(crate) what: String,
    /// Whether it is on this machine.
    is_here: bool,
}

impl PeerProcess {
    /// Starts a process, or connects to `serve` at `host`; messages are to travel over `device`.
    pub(crate) fn find(host: Option<&Host>, device: &DeviceArg) -> Result<Self, Failure> {
        let other = match host {
            None => Self::spawn()?,
            Some(host) => Self::connect(host, device)?,
        };
        other.greet(device)
    }

    /// The other rank of a launched job, at the end of a connection.
    pub(crate) fn of_launched_job(stream: &TcpStream, device: &DeviceArg) -> Result<Self, Failure> {
        let control = stream
            .try_clone()
            .and_then(|reader| Control::new(reader, stream.try_clone()?, || ()))
            .map_err(|error| Failure::system("listen to rank 1", &error))?;
        let what = "rank 1 of a launched job".to_owned();
        Self { control, child: None, what, is_here: false }.greet(device)
    }

    fn greet(mut self, device: &DeviceArg) -> Result<Self, Failure> {
        let ours = Hello::new();
        let greeted = self.control.send(&Ask::Hello(ours.clone()));
        let answer = greeted.and_then(|()| self.control.receive(HELLO_TIME));
        let theirs = match answer {
            Ok(Answer::Hello(theirs)) => Ok(theirs),
            Ok(Answer::Refused { why }) => Err(format!(": {}", one_line(why))),
            Ok(_) => Err(": its first answer is no hello".to_owned()),
            Err(error) => Err(format!(": {}", one_line(error))),
        };
        let failed = |why| Failure::Measurement(format!("{}{why}", self.what));
        let theirs = theirs.map_err(failed)?;
        ours.understands(&theirs).map_err(Failure::Usage)?;
        self.is_here = ours.boot_id == theirs.boot_id;
        if !self.is_here && *device == DeviceArg::Shm {
            return Err(another_machine(&self.what));
        }
        Ok(self)
    }

    /// Checks that times can be taken one way: both sides must read the same clock.
    pub(crate) fn check_clock(&self) -> Result<(), Failure> {
        if self.is_here {
            return Ok(());
        }
        let why = "is another machine, with another clock, and times are taken one way";
        Err(Failure::usage(format!("--rate: {} {why}", self.what), "both sides on one machine"))
    }

    /// Runs one case; see [`client::run`].
    pub(crate) fn run(
        &mut self,
        device: &DeviceArg,
        case: &mut Case,
        limits: Limits,
        tick: impl FnMut() -> bool,
    ) -> Result<Measured, Failure> {
        match client::run(&mut self.control, device, case, limits, tick) {
            Err(Failure::Measurement(why)) => Err(Failure::Measurement(self.with_exit(why))),
            measured => measured,
        }
    }

    /// Adds how the process ended, which says more than that its channel closed.
    fn with_exit(&mut self, why: String) -> String {
        let Some(child) = &mut self.child else { return why };
        // The process may still be ending: its channel closes a moment before.
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
        let failed = |what: &str, error: &io::Error| {
            Failure::system(format_args!("{what} a second process"), error)
        };
        let mut child = peer(None, None)
            .and_then(|mut command| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn())
            .map_err(|error| failed("start", &error))?;
        let (Some(writer), Some(reader)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Measurement("a second process has no pipes".into()));
        };
        let what = format!("a second process here, pid {}", child.id());
        let control = Control::new(reader, writer, || ()).map_err(|e| failed("listen to", &e))?;
        Ok(Self { control, child: Some(child), what, is_here: true })
    }

    fn connect(host: &Host, device: &DeviceArg) -> Result<Self, Failure> {
        let secret = secret::known().map_err(Failure::Usage)?;
        let mut addresses: Vec<SocketAddr> = (host.name.as_str(), host.port)
            .to_socket_addrs()
            .map_err(|error| {
                let right = "a name that resolves, or 127.0.0.1";
                Failure::usage(format!("cannot find {}: {error}", host.name), right)
            })?
            .collect();
        if *device == DeviceArg::Shm {
            addresses.retain(|address| is_here(address.ip()));
            if addresses.is_empty() {
                return Err(another_machine(&host.to_string()));
            }
        }
        let connected = connect(&addresses).and_then(|stream| {
            prepare(&stream)?;
            Ok(stream)
        });
        let stream = connected.map_err(|error| {
            let serve = serve(&addresses, host.port);
            Failure::Measurement(format!(
                "cannot connect to {host}: {error}; start `{serve}` there first"
            ))
        })?;
        if let Some(secret) = secret {
            let proved = secret::prove(&stream, &secret, HELLO_TIME, refusal);
            proved.map_err(|why| {
                Failure::Measurement(format!("tagperf serve at {host}: {}", one_line(why)))
            })?;
        }
        let control = stream
            .try_clone()
            .and_then(|reader| Control::new(reader, stream, || ()))
            .map_err(|error| Failure::system(format_args!("listen to {host}"), &error))?;
        Ok(Self { control, child: None, what: format!("tagperf serve at {host}"), is_here: false })
    }
}

/// The reason in a message that refuses.
fn refusal(message: &[u8]) -> Option<String> {
    match serde_json::from_slice(message) {
        Ok(Answer::Refused { why }) => Some(why),
        _ => None,
    }
}

/// Connects to the first address that answers; otherwise returns the error of the last one.
fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECT_TIME) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The command that would start `serve` at these addresses.
fn serve(addresses: &[SocketAddr], port: u16) -> String {
    // Without --bind it listens on loopback.
    match addresses.iter().find(|address| !address.ip().is_loopback()) {
        Some(address) => format!("tagperf serve --bind {} --port {port}", address.ip()),
        None => format!("tagperf serve --port {port}"),
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It would exit by itself when its channel closes. Killed and reaped here, it is gone
            // before this process.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The command line of the process on the other side. `client` is the name for its log, `device`
/// the one that `serve` was started for.
pub(super) fn peer(client: Option<&str>, device: Option<&DeviceArg>) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("peer").envs(secret::for_child()).envs(verbs::for_child());
    if let Some(client) = client {
        command.args(["--client", client]);
    }
    if let Some(device) = device {
        command.arg("--device").arg(device.to_string());
    }
    Ok(command)
}

/// Whether an address belongs to this machine: only then can a socket be bound to it.
fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || TcpListener::bind((address, 0)).is_ok()
}

fn another_machine(what: &str) -> Failure {
    let right = "--device verbs, tcp, ucx or ofi, or both sides on one machine";
    Failure::usage(format!("{what} is another machine, which shm does not reach"), right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_addresses_are_here() {
        assert!(is_here("127.0.0.1".parse().unwrap()));
        assert!(is_here("127.8.9.10".parse().unwrap()));
        // Reserved for documentation.
        assert!(!is_here("192.0.2.1".parse().unwrap()));
        assert!(!is_here("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn another_machine_is_bad_usage() {
        let host = Host { name: "192.0.2.1".into(), port: 1 };
        let failure = PeerProcess::find(Some(&host), &DeviceArg::Shm).map(drop).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(_)), "{failure}");
        assert!(failure.to_string().contains("another machine"), "{failure}");
        assert!(failure.to_string().contains("--device verbs"), "{failure}");
    }

    #[test]
    fn the_first_address_that_answers_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        // A port that was free a moment ago.
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(connect(&[nobody, there]).unwrap().peer_addr().unwrap(), there);
        let error = connect(&[nobody]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(connect(&[]).is_err());
    }

    #[test]
    fn what_to_type_there_is_where_it_can_be_reached() {
        let addresses = |text: &str| [SocketAddr::new(text.parse().unwrap(), 7)];
        assert_eq!(serve(&addresses("::1"), 7), "tagperf serve --port 7");
        let far = "tagperf serve --bind 192.0.2.1 --port 7";
        assert_eq!(serve(&addresses("192.0.2.1"), 7), far);
    }
}
