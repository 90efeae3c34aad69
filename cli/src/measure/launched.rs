//! Both sides as ranks of a launched job: `mpiexec -n 2 tagperf lat`.
//!
//! Rank 1 listens, and sends its addresses to rank 0 through the launcher. Both prove to each other
//! that they know the job's secret. Then both leave the job and go on as with `serve`.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tagmatch::Secret;
use tagmatch_launch::Job;
use tagmatch_os::stream::own_addresses;

use super::job::{Placement, exchange, failed};
use crate::control::prepare;
use crate::failure::Failure;
use crate::secret;

/// The time that rank 0 has to connect after the exchange.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The time that rank 0 tries one address.
const TRY_TIME: Duration = Duration::from_secs(2);
/// The time that a connection has to prove that it is rank 0's.
const PROOF_TIME: Duration = Duration::from_secs(1);
const POLL_TIME: Duration = Duration::from_millis(2);

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
pub(super) fn join() -> Result<LaunchRole, Failure> {
    let mut job = Job::join().map_err(failed)?;
    match (job.size(), job.rank()) {
        (1, _) => leave(job).map(|()| LaunchRole::Alone),
        (2, 0) => {
            let secret = shared_secret(&mut job)?;
            let places = Placement::exchange(&mut job)?;
            let addresses = exchange(&mut job, b"")?;
            leave(job)?;
            connect(&addresses[1], &secret, CONNECT_TIME)
                .map(|stream| LaunchRole::Measures(stream, places))
        }
        (2, _) => {
            let secret = shared_secret(&mut job)?;
            let is_here = Placement::exchange(&mut job)?.is_one_network();
            let (listener, places) = listen(is_here).map_err(failed)?;
            exchange(&mut job, places.as_bytes())?;
            leave(job)?;
            accept(&listener, &secret).map(LaunchRole::Serves)
        }
        (size, rank) => Err(Failure::Usage(format!(
            "rank {rank} of {size}: two processes measure; use -n 2, or -n 1 with a second process \
             that it starts itself"
        ))),
    }
}

fn shared_secret(job: &mut Job) -> Result<Secret, Failure> {
    let secret = job.secret().map_err(failed)?;
    secret::adopt(secret.clone());
    secret.ok_or_else(|| failed(secret::MISSING))
}

fn leave(job: Job) -> Result<(), Failure> {
    job.leave().map_err(failed)
}

/// Listens on loopback if rank 0 shares this network namespace, so that no other machine can
/// connect. Also returns where to connect to, in the order in which rank 0 is to try.
fn listen(is_here: bool) -> io::Result<(TcpListener, String)> {
    let (listener, hosts) = if is_here {
        (TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, vec![Ipv4Addr::LOCALHOST.into()])
    } else {
        // Of both families, where there is IPv6.
        let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0));
        let listener = both.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        let hosts = own_addresses()?.into_iter().filter(|host| !host.is_loopback());
        (listener, hosts.collect())
    };
    let port = listener.local_addr()?.port();
    let places = hosts.into_iter().map(|host| SocketAddr::new(host, port).to_string());
    Ok((listener, places.collect::<Vec<_>>().join(" ")))
}

/// Connects to rank 1 at one of its places. Tries again for a while, since rank 1 may be busy with
/// connections of others.
fn connect(addresses: &[u8], secret: &Secret, time: Duration) -> Result<TcpStream, Failure> {
    let addresses = String::from_utf8_lossy(addresses).into_owned();
    let places: Vec<SocketAddr> =
        addresses.split(' ').filter_map(|place| place.parse().ok()).collect();
    let begin = Instant::now();
    let mut why = String::from("it has no address");
    loop {
        for place in &places {
            match connect_to(place, secret) {
                Ok(stream) => return Ok(stream),
                Err(error) => why = error,
            }
        }
        if places.is_empty() || begin.elapsed() >= time {
            return Err(failed(format!("rank 1 at {addresses} can't be reached: {why}")));
        }
        std::thread::sleep(POLL_TIME);
    }
}

fn connect_to(place: &SocketAddr, secret: &Secret) -> Result<TcpStream, String> {
    let connect = || {
        let stream = TcpStream::connect_timeout(place, TRY_TIME)?;
        prepare(&stream).map(|()| stream)
    };
    let stream = connect().map_err(|error: io::Error| error.to_string())?;
    secret::prove(&stream, secret, TRY_TIME, |_| None).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Accepts connections until one proves that it knows the secret.
fn accept(listener: &TcpListener, secret: &Secret) -> Result<TcpStream, Failure> {
    let begin = Instant::now();
    listener.set_nonblocking(true).map_err(failed)?;
    while begin.elapsed() < CONNECT_TIME {
        match listener.accept() {
            Ok((stream, _)) => {
                let proved = stream.set_nonblocking(false).is_ok()
                    && secret::admit(&stream, secret, PROOF_TIME).is_ok();
                if proved && prepare(&stream).is_ok() {
                    return Ok(stream);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL_TIME),
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(format!("rank 0 did not connect within {} s", CONNECT_TIME.as_secs())))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn only_who_knows_the_secret_is_let_in() {
        let [secret, another] = [7, 8].map(|byte| Secret::from_bytes(&[byte; 16]).unwrap());
        let (listener, places) = listen(true).unwrap();
        assert!(places.starts_with("127.0.0.1:"), "{places}");
        let mut stranger = TcpStream::connect(&places).unwrap();
        stranger.write_all(&[b'0'; 64]).unwrap();
        let mut theirs = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| accept(&listener, &secret).unwrap());
            assert!(connect(places.as_bytes(), &another, Duration::ZERO).is_err());
            // The first place is no place, and nobody listens at the second.
            let addresses = format!("nowhere 127.0.0.1:1 {places}");
            connect(addresses.as_bytes(), &secret, SOON).unwrap().write_all(b"x").unwrap();
            accepted.join().unwrap()
        });
        let mut byte = [0];
        theirs.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        for nowhere in ["", "garbled", "127.0.0.1:1"] {
            assert!(connect(nowhere.as_bytes(), &secret, Duration::ZERO).is_err());
        }
    }

    #[test]
    fn other_machines_are_told_all_addresses_but_loopback() {
        let (listener, places) = listen(false).unwrap();
        let port = listener.local_addr().unwrap().port();
        for place in places.split_whitespace() {
            let place: SocketAddr = place.parse().unwrap();
            assert!(!place.ip().is_loopback() && place.port() == port, "{places}");
            assert!(TcpStream::connect(place).is_ok(), "{place}");
        }
    }
}
