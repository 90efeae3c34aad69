//! Both sides as ranks of a launched job: `mpiexec -n 2 tagperf lat`.
//!
//! Rank 1 listens, and sends its address and a secret to rank 0 through the launcher. The secret
//! proves to rank 1 that the connection comes from rank 0. Then both leave the job and go on as
//! with `serve`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tagmatch_launch::wire::to_hex;
use tagmatch_launch::{Error, Job};

use crate::control::message::Hello;
use crate::control::prepare;
use crate::cpus;
use crate::failure::{Failure, one_line};
use crate::spec::{Pin, PinChoice};

/// The time that rank 0 has to connect after the exchange.
const CONNECT_TIME: Duration = Duration::from_secs(10);
const POLL_TIME: Duration = Duration::from_millis(2);
const SECRET_BYTES: usize = 16;

/// The role of this process.
pub(super) enum LaunchRole {
    /// No launcher has started it, or it is the only rank: it starts the other side itself.
    Alone,
    /// It measures; the other side is at the end of this connection.
    Measures(TcpStream, RankCpus),
    /// It is the other side.
    Serves(TcpStream),
}

/// The CPUs that each rank may use. Many launchers bind ranks to some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RankCpus {
    own: Vec<u32>,
    /// The other rank's CPUs; `None` if it is on another machine.
    other: Option<Vec<u32>>,
}

impl RankCpus {
    /// Reads the descriptions of both ranks, this one's first.
    fn of(said: [&[u8]; 2]) -> Self {
        let read = |said: &[u8]| {
            let said = String::from_utf8_lossy(said).into_owned();
            let mut words = said.split(' ');
            let machine = words.next().unwrap_or_default().to_owned();
            (machine, words.filter_map(|cpu| cpu.parse().ok()).collect())
        };
        let [(here, own), (there, other)] = said.map(read);
        Self { own, other: (here == there).then_some(other) }
    }

    /// Number of ranks on this machine.
    pub(super) fn processes(&self) -> usize {
        if self.other.is_some() { 2 } else { 1 }
    }

    /// Number of this machine's CPUs that either rank may use.
    pub(super) fn cores(&self) -> usize {
        let cpus: BTreeSet<_> = self.own.iter().chain(self.other.iter().flatten()).collect();
        cpus.len().max(1)
    }

    /// A CPU for each rank, two different ones if possible. `None` if the other rank is on another
    /// machine.
    pub(super) fn pin(&self) -> Option<PinChoice> {
        let here = *self.own.first()?;
        let others = self.other.as_ref()?;
        let pin = match others.iter().find(|&&cpu| cpu != here) {
            Some(&there) => Pin { here, there },
            // The other rank may only use this rank's first CPU: this rank takes another one of its
            // own.
            None => {
                let there = *others.first()?;
                Pin { here: *self.own.iter().find(|&&cpu| cpu != there).unwrap_or(&here), there }
            }
        };
        Some(PinChoice::Ours(pin))
    }
}

/// The description of this rank: its machine, and the CPUs that it may use.
fn place() -> Vec<u8> {
    let words = cpus::cpus().into_iter().map(|cpu| cpu.to_string());
    std::iter::once(Hello::new().boot_id).chain(words).collect::<Vec<_>>().join(" ").into_bytes()
}

/// Finds out whether a launcher has started this process, and connects to the other rank.
pub(super) fn join() -> Result<LaunchRole, Failure> {
    let mut job = Job::join().map_err(|error| failed(&error))?;
    match (job.size(), job.rank()) {
        (1, _) => leave(job).map(|()| LaunchRole::Alone),
        (2, 0) => {
            let places = exchange(&mut job, &place())?;
            let places = RankCpus::of([&places[0], &places[1]]);
            let said = exchange(&mut job, b"")?;
            leave(job)?;
            connect(&said[1]).map(|stream| LaunchRole::Measures(stream, places))
        }
        (2, _) => {
            let places = exchange(&mut job, &place())?;
            let is_here = RankCpus::of([&places[1], &places[0]]).other.is_some();
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

fn failed(error: &impl std::fmt::Display) -> Failure {
    Failure::Measurement(format!("cannot join the launcher's job: {}", one_line(error)))
}

fn exchange(job: &mut Job, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    job.exchange(own).map_err(|error: Error| failed(&error))
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
    fn each_rank_keeps_to_a_cpu_that_its_launcher_left_it() {
        let pinned = |own: &[u32], other: &[u32]| {
            let places = RankCpus { own: own.to_vec(), other: Some(other.to_vec()) };
            let pin = places.pin().and_then(PinChoice::pin).map(|pin| (pin.here, pin.there));
            (pin.unwrap(), places.cores())
        };
        assert_eq!(pinned(&[0, 1, 2], &[0, 1, 2]), ((0, 1), 3), "bound to none");
        assert_eq!(pinned(&[0], &[1]), ((0, 1), 2), "bound to a core each");
        assert_eq!(pinned(&[4, 36], &[5, 37]), ((4, 5), 4), "with two threads");
        assert_eq!(pinned(&[0, 1], &[0]), ((1, 0), 2));
        assert_eq!(pinned(&[3], &[3]), ((3, 3), 1), "bound to the same one");
        let elsewhere = RankCpus::of([b"a 0 1", b"b 0 1"]);
        assert_eq!((elsewhere.pin(), elsewhere.processes(), elsewhere.cores()), (None, 1, 2));
        let said = place();
        let own = cpus::cpus();
        assert_eq!(RankCpus::of([&said, &said]), RankCpus { own: own.clone(), other: Some(own) });
        assert_eq!(RankCpus::of([b"", b"\xff -1"]).cores(), 1, "garbled");
    }

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
