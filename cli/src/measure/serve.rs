//! `tagperf serve`: waits for clients, and gives each a process of its own.
//!
//! The server itself reads not a byte of what a client sends. It serves one at a time, since two
//! measurements would spoil each other; a second is told so.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::other;
use super::peer::{FAILED, NO_CLIENT, SERVED};
use crate::args;
use crate::control::message::Answer;
use crate::failure::Failure;

/// When no more connections can be had (no descriptors, no memory), how long to let go by.
const PAUSE: Duration = Duration::from_millis(200);

/// The command; returns only if it can't listen.
pub(crate) fn command(args: &args::Serve) -> Result<(), Failure> {
    let wanted = SocketAddr::new(args.bind, args.port);
    let listener = TcpListener::bind(wanted).map_err(|error| {
        let right = "an address of this machine and a free --port would be right";
        Failure::Usage(format!("cannot listen on {wanted}: {error}; {right}"))
    })?;
    let address = listener.local_addr().unwrap_or(wanted);
    let open = if address.ip().is_loopback() { "" } else { "; anyone who reaches it may use it" };
    say(&mut std::io::stdout(), &format!("tagperf serve: listening on {address}{open}"));
    let busy = Arc::new(AtomicBool::new(false));
    loop {
        match listener.accept() {
            Ok((stream, client)) if busy.swap(true, Ordering::SeqCst) => turn_away(stream, client),
            Ok((stream, client)) => {
                if let Err(error) = serve(stream, client, args.once, &busy) {
                    log(&format!("{client}: cannot start a process for it: {error}"));
                    busy.store(false, Ordering::SeqCst);
                }
            }
            Err(error) => {
                log(&format!("a client could not connect: {error}"));
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Starts a process with the client on its standard input and output; a thread waits for its end.
fn serve(
    stream: TcpStream,
    client: SocketAddr,
    once: bool,
    busy: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let output: OwnedFd = stream.try_clone()?.into();
    let input: OwnedFd = stream.into();
    let mut child = other::peer(Some(&client.to_string()))?.stdin(input).stdout(output).spawn()?;
    let busy = Arc::clone(busy);
    std::thread::Builder::new().name("client".into()).spawn(move || {
        let status = child.wait().ok().and_then(|status| status.code());
        let known = [SERVED, FAILED, NO_CLIENT].into_iter().find(|&s| Some(s.into()) == status);
        if known.is_none() {
            log(&format!("{client}: its process ended, status {status:?}"));
        }
        busy.store(false, Ordering::SeqCst);
        match known {
            Some(NO_CLIENT) => {}
            served if once => std::process::exit(served.unwrap_or(FAILED).into()),
            _ => {}
        }
    })?;
    Ok(())
}

fn turn_away(mut stream: TcpStream, client: SocketAddr) {
    log(&format!("{client}: turned away, another client is being served"));
    let why = "it measures with another client; try again when that is done".into();
    let Ok(mut line) = serde_json::to_vec(&Answer::Refused { why }) else { return };
    line.push(b'\n');
    // It fits into any socket's buffer, so this does not block. Closing before the client's hello
    // is read would take the answer back.
    let _ = stream.write_all(&line).and_then(|()| stream.shutdown(Shutdown::Write));
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    let _ = stream.read(&mut [0; 4096]);
}

fn log(what: &str) {
    say(&mut std::io::stderr(), &format!("tagperf serve: {what}"));
}

/// Whether anybody reads what the server says is no reason to end it.
fn say(to: &mut impl Write, what: &str) {
    let _ = to.write_all(format!("{what}\n").as_bytes()).and_then(|()| to.flush());
}
