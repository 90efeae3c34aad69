//! `tagperf serve`: accepts clients, and starts a process for each.
//!
//! Only a client that proves to know the secret is let in, on loopback, too: other users of the
//! machine can connect there. Connections prove themselves beside each other, before they wait for
//! a turn; of what a client sends after that the server itself reads no byte. It serves one client
//! at a time, since two measurements would disturb each other. The process of the last client may
//! still be ending when the next client arrives, so that one waits a moment for its turn. Then it
//! is told that another client is being served. The process that serves a client exits when the
//! client has been silent for two minutes.

mod entrance;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tagmatch_results::show::one_line;
use tagmatch_secret::Secret;

use super::peer::{FAILED, SERVED, UNSERVED, last_words};
use super::peer_process;
use crate::args;
use crate::control::prepare;
use crate::failure::Failure;
use crate::secret::{self, Unproved};
use crate::spec::{DeviceArg, Host};
use entrance::Entrance;

/// The pause after a connection could not be accepted (no descriptors, no memory).
const PAUSE: Duration = Duration::from_millis(200);

/// The time that a client has to prove that it knows the secret.
const PROOF_TIME: Duration = Duration::from_secs(2);
/// How long a client waits for its turn: longer than a process takes to end, and well below the
/// time that the client waits for the answer to its hello.
const TURN_TIME: Duration = Duration::from_secs(3);
/// Clients that may wait at a time. Each holds a thread.
const WAITING_MAX: usize = 16;

/// Clients in the order of their arrival, of which one is served.
#[derive(Default)]
struct ClientQueue {
    line: Mutex<WaitingClients>,
    moved: Condvar,
}

/// Each client that waits has a number.
#[derive(Default)]
struct WaitingClients {
    busy: bool,
    waiting: std::collections::VecDeque<u64>,
    next_number: u64,
}

impl ClientQueue {
    fn line(&self) -> MutexGuard<'_, WaitingClients> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place in the queue; `None` if it is full.
    fn queue(&self) -> Option<u64> {
        let mut line = self.line();
        if line.waiting.len() == WAITING_MAX {
            return None;
        }
        let number = line.next_number;
        line.next_number += 1;
        line.waiting.push_back(number);
        Some(number)
    }

    /// Waits for the turn of a client; false if it does not come in time. Either way the client's
    /// place in the queue is gone.
    fn wait(&self, number: u64, time: Duration) -> bool {
        let not_yet = |line: &mut WaitingClients| {
            line.busy || line.waiting.front().is_some_and(|&n| n != number)
        };
        let waited = self.moved.wait_timeout_while(self.line(), time, not_yet);
        let (mut line, result) = waited.unwrap_or_else(PoisonError::into_inner);
        line.waiting.retain(|&n| n != number);
        let ours = !result.timed_out();
        line.busy |= ours;
        drop(line);
        self.moved.notify_all();
        ours
    }

    /// The client that was served has gone.
    fn done(&self) {
        self.line().busy = false;
        self.moved.notify_all();
    }
}

/// The command. It returns only if it can't listen.
pub(crate) fn command(args: &args::Serve) -> Result<(), Failure> {
    let wanted = SocketAddr::new(args.bind, args.port);
    let listener = TcpListener::bind(wanted).map_err(|error| {
        let right = "an address of this machine and a free --port";
        Failure::usage(format!("cannot listen on {wanted}: {error}"), right)
    })?;
    let address = listener.local_addr().unwrap_or(wanted);
    let (secret, _) = secret::known_or_new().map_err(Failure::Usage)?;
    let asked = match secret::source() {
        Some(source) => format!("; clients need the secret of {source} here"),
        None => "; clients need the secret that follows".into(),
    };
    say(&mut std::io::stdout(), &format!("tagperf serve: listening on {address}{asked}"));
    let next = client(address, args.device.as_ref());
    // A secret that the environment gives is not shown.
    let mut variable = String::new();
    if let Some((name, value)) = secret::for_child() {
        make_output_private()?;
        variable = format!("{name}={value} ");
    }
    say(&mut std::io::stdout(), &format!("next: {variable}{next}"));
    let entrance = Arc::new(Entrance::default());
    let turns = Arc::new(ClientQueue::default());
    loop {
        let (stream, client) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                log(&format!("a client could not connect: {error}"));
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let stream = Arc::new(stream);
        entrance.enter(client.ip(), &stream);
        let line = Arc::clone(&turns);
        let args = args.clone();
        let secret = secret.clone();
        let at = Arc::clone(&entrance);
        let theirs = Arc::clone(&stream);
        let turn = move || {
            if let Some(stream) = let_in(theirs, client, &secret, &at) {
                take_turn(stream, client, &args, &line);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("client".into()).spawn(turn) {
            entrance.leave(&stream);
            log(&format!("{client}: cannot start a thread for it: {error}"));
        }
    }
}

/// Makes standard output private if it is a file, since a new secret will be printed to it.
fn make_output_private() -> Result<(), Failure> {
    let output = std::io::stdout().as_fd().try_clone_to_owned().map(fs::File::from);
    let private = output.and_then(|output| {
        let about = output.metadata()?;
        if !about.is_file() || about.permissions().mode() & 0o077 == 0 {
            return Ok(());
        }
        output.set_permissions(fs::Permissions::from_mode(0o600))?;
        log("standard output is a file; its mode is 0600 now, since a new secret is printed to it");
        Ok(())
    });
    private.map_err(|error| {
        let right = "TAGMATCH_SECRET_FILE with the name of a file of mode 0600, or TAGMATCH_SECRET";
        Failure::usage(format!("a new secret would be written to a file: {error}"), right)
    })
}

/// Lets a client in that proves to know the secret, and tells any other one why not.
fn let_in(
    stream: Arc<TcpStream>,
    client: SocketAddr,
    secret: &Secret,
    entrance: &Entrance,
) -> Option<TcpStream> {
    let prepared = prepare(&stream).map_err(Unproved::from);
    let admitted = prepared.and_then(|()| secret::admit(&stream, secret, PROOF_TIME));
    if let Err(why) = &admitted {
        let why_not = one_line(why);
        if entrance.is_news(client.ip(), why) {
            let machine = client.ip();
            log(&format!("{client}: not let in: {why_not} (said once for {machine})"));
        }
        last_words(&stream, why_not);
    }
    entrance.leave(&stream);
    admitted.ok().and(stream.try_clone().ok())
}

/// The command that a client has to type.
fn client(address: SocketAddr, device: Option<&DeviceArg>) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => Host { name: host_name(), port: address.port() },
        ip => Host { name: ip.to_string(), port: address.port() },
    };
    // From another machine, shared memory does not reach this one.
    let device = match device {
        Some(DeviceArg::Verbs { .. }) => " --device verbs",
        Some(DeviceArg::Ucx { .. }) => " --device ucx",
        Some(DeviceArg::Ofi { .. }) => " --device ofi",
        Some(DeviceArg::Tcp { .. }) => " --device tcp",
        Some(DeviceArg::Auto) => " --device auto",
        None if !address.ip().is_loopback() => " --device tcp",
        _ => "",
    };
    format!("tagperf lat {host}{device}")
}

/// The name of this machine on the network.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().parse::<Host>().map_or_else(|_| "HOST".into(), |host| host.name)
}

/// Handles a client that was let in, up to its end.
fn take_turn(stream: TcpStream, client: SocketAddr, args: &args::Serve, turns: &ClientQueue) {
    if !turns.queue().is_some_and(|number| turns.wait(number, TURN_TIME)) {
        return turn_away(&stream, client);
    }
    match serve(stream, client, args.device.as_ref()) {
        Ok(Some(SERVED)) if args.once => std::process::exit(0),
        Ok(_) => {}
        Err(error) => log(&format!("{client}: cannot start a process for it: {error}")),
    }
    turns.done();
}

/// Starts a process with the client's connection as its standard input and output, and waits for
/// its end. Returns its exit status if it is one of [`SERVED`], [`FAILED`] and [`UNSERVED`].
fn serve(
    stream: TcpStream,
    client: SocketAddr,
    device: Option<&DeviceArg>,
) -> std::io::Result<Option<u8>> {
    let output: OwnedFd = stream.try_clone()?.into();
    let input: OwnedFd = stream.into();
    let mut child = peer_process::peer(Some(&client.to_string()), device)?
        .stdin(input)
        .stdout(output)
        .spawn()?;
    let status = child.wait().ok().and_then(|status| status.code());
    let known = [SERVED, FAILED, UNSERVED].into_iter().find(|&s| Some(s.into()) == status);
    if known.is_none() {
        let how =
            status.map_or_else(|| "by a signal".to_owned(), |status| format!("status {status}"));
        log(&format!("{client}: its process ended, {how}"));
    }
    Ok(known)
}

fn turn_away(stream: &TcpStream, client: SocketAddr) {
    log(&format!("{client}: turned away, another client is being served"));
    let why = "it measures with another client; try again when that is done".into();
    last_words(stream, why);
}

fn log(what: &str) {
    say(&mut std::io::stderr(), &format!("tagperf serve: {what}"));
}

/// Prints a line. If nobody reads it, the server goes on.
fn say(to: &mut impl Write, what: &str) {
    let _ = to.write_all(format!("{what}\n").as_bytes()).and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);
    const NOW: Duration = Duration::from_millis(1);

    #[test]
    fn first_come_first_served() {
        let turns = ClientQueue::default();
        let [first, second, third, fourth] = std::array::from_fn(|_| turns.queue().unwrap());
        assert!(!turns.wait(second, NOW), "not before the first");
        assert!(turns.wait(first, SOON));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.wait(third, SOON));
            assert!(!turns.wait(fourth, NOW), "one at a time");
            turns.done();
            assert!(waiting.join().unwrap());
        });
        let fifth = turns.queue().unwrap();
        assert!(!turns.wait(fifth, NOW));
        turns.done();
        let sixth = turns.queue().unwrap();
        assert!(turns.wait(sixth, SOON), "a client that waits no more holds up nobody");
    }

    #[test]
    fn a_client_is_told_what_to_type() {
        let device = |text: &str| text.parse::<DeviceArg>().unwrap();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let here = address("127.0.0.1:7");
        assert_eq!(client(here, None), "tagperf lat 127.0.0.1:7");
        assert_eq!(client(here, Some(&device("shm"))), "tagperf lat 127.0.0.1:7");
        let with_verbs = "tagperf lat 127.0.0.1:7 --device verbs";
        assert_eq!(client(here, Some(&device("verbs:x"))), with_verbs);
        let there = address("[2001:db8::1]:7");
        assert_eq!(client(there, None), "tagperf lat [2001:db8::1]:7 --device tcp");
        let any = client(address("0.0.0.0:7"), None);
        assert!(!any.contains("0.0.0.0") && any.ends_with(":7 --device tcp"), "{any}");
    }

    #[test]
    fn the_line_is_bounded() {
        let turns = ClientQueue::default();
        let numbers: Vec<_> = (0..WAITING_MAX).map(|_| turns.queue().unwrap()).collect();
        assert_eq!(turns.queue(), None);
        assert!(!turns.wait(numbers[3], NOW));
        assert!(turns.queue().is_some());
    }
}
