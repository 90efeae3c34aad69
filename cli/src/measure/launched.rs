//! Both sides as ranks of a launched job: `mpiexec -n 2 tagperf lat`.
//!
//! Rank 1 listens, and sends its address and a secret to rank 0 through the launcher. The secret
//! proves to rank 1 that the connection comes from rank 0. Then both leave the job and go on as
//! with `serve`.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tagmatch_launch::Job;
use tagmatch_launch::wire::to_hex;

use super::job::{Placement, exchange, failed};
use crate::control::prepare;
use crate::failure::Failure;
use crate::secret;
use crate::spec::DeviceArg;

/// The time that rank 0 has to connect after the exchange.
const CONNECT_TIME: Duration = Duration::from_secs(10);
const POLL_TIME: Duration = Duration::from_millis(2);
const SECRET_BYTES: usize = 16;

/// The role of this process.
pub(super) enum LaunchRole {
    /// No launcher has started it, or it is the only rank: it starts the other side itself.
    Alone,
    /// It measures; the other side is at the end of this connection.
    Measures(TcpStream, Placement),
    /// It is the other side.
    Serves(TcpStream),
}

/// Finds out whether a launcher has started this process, and connects to the other rank.
pub(super) fn join(device: &DeviceArg) -> Result<LaunchRole, Failure> {
    let mut job = Job::join().map_err(|error| failed(&error))?;
    if device.may_use_tcp() && job.size() > 1 {
        secret::adopt(job.secret().map_err(|error| failed(&error))?);
    }
    match (job.size(), job.rank()) {
        (1, _) => leave(job).map(|()| LaunchRole::Alone),
        (2, 0) => {
            let places = Placement::exchange(&mut job)?;
            let said = exchange(&mut job, b"")?;
            leave(job)?;
            connect(&said[1]).map(|stream| LaunchRole::Measures(stream, places))
        }
        (2, _) => {
            let is_here = Placement::exchange(&mut job)?.is_one_machine();
            let (listener, place, secret) = listen(is_here).map_err(|error| failed(&error))?;
            exchange(&mut job, format!("{secret} {place}").as_bytes())?;
            leave(job)?;
            accept(&listener, &secret).map(LaunchRole::Serves)
        }
        (size, rank) => Err(Failure::Usage(format!(
            "rank {rank} of {size}: two processes measure; -n 2, or -n 1 with a second process that \
             it starts itself, would be right"
        ))),
    }
}

fn leave(job: Job) -> Result<(), Failure> {
    job.leave().map_err(|error| failed(&error))
}

/// Listens on loopback if rank 0 is on this machine, so that no other machine can connect.
fn listen(is_here: bool) -> io::Result<(TcpListener, String, String)> {
    let address = if is_here { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    let listener = TcpListener::bind((address, 0))?;
    let name = if is_here {
        address.to_string()
    } else {
        std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned()
    };
    let mut secret = [0; SECRET_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let place = format!("{name}:{}", listener.local_addr()?.port());
    Ok((listener, place, to_hex(&secret)))
}

fn connect(said: &[u8]) -> Result<TcpStream, Failure> {
    let said = String::from_utf8_lossy(said).into_owned();
    let (secret, place) = said.split_once(' ').unwrap_or_default();
    let connected = TcpStream::connect(place).and_then(|mut stream| {
        prepare(&stream)?;
        stream.write_all(secret.as_bytes())?;
        Ok(stream)
    });
    connected.map_err(|error| failed(&format!("rank 1 at {place} can't be reached: {error}")))
}

/// Accepts connections until one presents the secret.
fn accept(listener: &TcpListener, secret: &str) -> Result<TcpStream, Failure> {
    let begin = Instant::now();
    listener.set_nonblocking(true).map_err(|error| failed(&error))?;
    while begin.elapsed() < CONNECT_TIME {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Ok(stream) = knows(stream, secret) {
                    return Ok(stream);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL_TIME),
            Err(error) => return Err(failed(&error)),
        }
    }
    Err(failed(&format!("rank 0 did not connect within {} s", CONNECT_TIME.as_secs())))
}

fn knows(mut stream: TcpStream, secret: &str) -> io::Result<TcpStream> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut said = [0; 2 * SECRET_BYTES];
    stream.read_exact(&mut said)?;
    if said != secret.as_bytes() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(None)?;
    prepare(&stream)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_is_let_in() {
        let (listener, place, secret) = listen(true).unwrap();
        assert!(place.starts_with("127.0.0.1:"), "{place}");
        let mut stranger = TcpStream::connect(&place).unwrap();
        stranger.write_all(&[b'0'; 2 * SECRET_BYTES]).unwrap();
        let said = format!("{secret} {place}");
        let mut ours = connect(said.as_bytes()).unwrap();
        ours.write_all(b"x").unwrap();
        let mut theirs = accept(&listener, &secret).unwrap();
        let mut byte = [0];
        theirs.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        assert_ne!(listen(true).unwrap().2, secret);
        assert!(connect(b"garbled").is_err());
    }
}
