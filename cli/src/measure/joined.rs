//! Both sides as ranks of a job that a launcher has started: `mpiexec -n 2 tagperf lat`.
//!
//! Rank 1 listens, and tells rank 0 through the launcher where, and a secret by which it knows rank 0. Both leave
//! the launcher then; what follows is as with `serve`.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tagmatch_launch::wire::to_hex;
use tagmatch_launch::{Error, Job};

use crate::control::message::Hello;
use crate::control::prepare;
use crate::failure::{Failure, one_line};

/// How long rank 1 waits for rank 0, which has left the same exchange.
const CONNECT_TIME: Duration = Duration::from_secs(10);
const POLL_TIME: Duration = Duration::from_millis(2);
const SECRET_BYTES: usize = 16;

/// What this process does in a measurement.
pub(super) enum Part {
    /// All of it: no launcher has started others.
    Alone,
    /// It measures; the other side is at the end of this connection.
    Measures(TcpStream),
    /// It is the other side.
    Serves(TcpStream),
}

/// Finds out whether a launcher has started this process, and connects to the other rank.
pub(super) fn join() -> Result<Part, Failure> {
    let mut job = Job::join().map_err(|error| failed(&error))?;
    match (job.size(), job.rank()) {
        (1, _) => leave(job).map(|()| Part::Alone),
        (2, 0) => {
            exchange(&mut job, Hello::new().boot_id.as_bytes())?;
            let said = exchange(&mut job, b"")?;
            leave(job)?;
            connect(&said[1]).map(Part::Measures)
        }
        (2, _) => {
            let machines = exchange(&mut job, Hello::new().boot_id.as_bytes())?;
            let (listener, place, secret) =
                listen(machines[0] == machines[1]).map_err(|error| failed(&error))?;
            exchange(&mut job, format!("{secret} {place}").as_bytes())?;
            leave(job)?;
            accept(&listener, &secret).map(Part::Serves)
        }
        (size, rank) => Err(Failure::Usage(format!(
            "rank {rank} of {size}: two processes measure; -n 2, or -n 1 with a second process that \
             it starts itself, would be right"
        ))),
    }
}

fn failed(error: &impl std::fmt::Display) -> Failure {
    Failure::Measurement(format!("cannot join the launcher's job: {}", one_line(error)))
}

fn exchange(job: &mut Job, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    job.exchange(own).map_err(|error: Error| failed(&error))
}

fn leave(job: Job) -> Result<(), Failure> {
    job.leave().map_err(|error| failed(&error))
}

/// Listens where rank 0 can reach it and, on its own machine, nobody from elsewhere can.
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

/// The connection of rank 0: of whoever knows the secret.
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
