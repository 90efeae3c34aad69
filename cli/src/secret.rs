//! The job's secret: where it comes from, and the proof on the control port that both ends know it.
//!
//! | bytes | from | contents |
//! |---|---|---|
//! | 24 | client | [`MAGIC`], and 16 random bytes |
//! | 24 | `serve` | [`MAGIC`], and 16 random bytes |
//! | 32 | client | its proof |
//! | 32 | `serve` | its proof |
//!
//! Messages follow. `serve` may refuse by a message at any step. A message begins with `{`, so the
//! two can be told apart by their first byte.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tagmatch_secret::{Greeting, ProofEnd, Role, SECRET, SECRET_FILE, Secret};

use crate::spec::DeviceArg;

/// The first bytes of each end. No message of the control channel begins with the first of them.
const MAGIC: [u8; 8] = *b"\x01tagperf";
/// A magic and a nonce, in bytes.
const HELLO_BYTES: usize = 24;
const PROTOCOL: &[u8] = b"tagperf control 1";
/// The longest refusal that is read, in bytes.
const REFUSAL_BYTES_MAX: usize = 1024;

/// The error where a device needs the secret and there is none.
pub(crate) const MISSING: &str = "there is no secret; set TAGMATCH_SECRET_FILE to the name of a file of mode 0600, or \
                                  TAGMATCH_SECRET, to the same secret at both ends";

/// The secret of this process, once it is known.
static KNOWN: OnceLock<Option<Secret>> = OnceLock::new();

/// The secret of this process, if it has one: from the environment, or the one that
/// [`known_or_new`] made.
pub(crate) fn known() -> Result<Option<Secret>, String> {
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let found = Secret::from_environment().map_err(|error| error.to_string())?;
    Ok(KNOWN.get_or_init(|| found).clone())
}

/// The secret of this process, and whether it was made now because the environment has none. To be
/// called before [`known`].
pub(crate) fn known_or_new() -> Result<(Secret, bool), String> {
    if let Some(secret) = Secret::from_environment().map_err(|error| error.to_string())? {
        return Ok((secret, false));
    }
    let made = || Secret::random().map_err(|error| format!("cannot make a secret: {error}"));
    let secret = made()?;
    match KNOWN.get_or_init(|| Some(secret)).clone() {
        Some(secret) => Ok((secret, true)),
        None => Err(MISSING.to_owned()),
    }
}

/// Takes the secret of the job that this process is in, unless the environment gave one before.
pub(crate) fn adopt(of_job: Option<Secret>) {
    let _ = KNOWN.get_or_init(|| of_job);
}

/// The secret for workers of this device, if there is one. Shared memory alone uses none, so one
/// that can't be used is no reason to do without it.
pub(crate) fn for_workers(device: &DeviceArg) -> Result<Option<Secret>, String> {
    match device {
        DeviceArg::Shm => Ok(None),
        _ => known(),
    }
}

/// Checks that there is a secret, if `device` needs one.
pub(crate) fn check(device: &DeviceArg) -> Result<(), String> {
    match device {
        DeviceArg::Tcp { .. } => known()?.map(drop).ok_or_else(|| MISSING.to_owned()),
        _ => Ok(()),
    }
}

/// The variable of the environment that gives the secret, if one does.
pub(crate) fn source() -> Option<&'static str> {
    [SECRET_FILE, SECRET].into_iter().find(|name| std::env::var_os(name).is_some())
}

/// The variable and the value by which a process that this one starts gets the secret, where it
/// doesn't get the secret with the rest of the environment.
pub(crate) fn for_child() -> Option<(&'static str, String)> {
    let secret = KNOWN.get().cloned().flatten().filter(|_| source().is_none())?;
    Some((SECRET, String::from_utf8_lossy(secret.expose()).into_owned()))
}

/// Why an end of the control port was not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unproved {
    #[error(
        "the client doesn't prove that it knows the secret; set {SECRET} or {SECRET_FILE} there to the \
             value that is used here"
    )]
    ClientWithout,
    #[error("the client knows another secret; set the same {SECRET} or {SECRET_FILE} at both ends")]
    AnotherSecret,
    #[error("the other end doesn't prove that it knows the secret")]
    Garbage,
    #[error("{0}")]
    Refused(String),
    #[error("its first bytes did not come: {0}")]
    Broken(#[from] io::Error),
}

/// Proves to `serve` that this process knows the secret, and has `serve` prove the same. `refusal`
/// reads the reason out of a message.
pub(crate) fn prove(
    stream: &TcpStream,
    secret: &Secret,
    time: Duration,
    refusal: impl Fn(&[u8]) -> Option<String>,
) -> Result<(), Unproved> {
    let deadline = Instant::now() + time;
    let own = hello()?;
    write(stream, &own)?;
    let theirs = match read::<HELLO_BYTES>(stream, deadline, &[])? {
        hello if hello.starts_with(&MAGIC) => hello,
        message => return Err(refused(stream, deadline, &message, refusal)),
    };
    let greeting = greeting(&own, &theirs);
    write(stream, &greeting.proof(secret, Role::Caller))?;
    let proof = read::<32>(stream, deadline, &[])?;
    if greeting.is_proof(secret, Role::Listener, &proof) {
        return Ok(stream.set_read_timeout(None)?);
    }
    Err(refused(stream, deadline, &proof, refusal))
}

/// Lets a client in that proves to know the secret. Nothing that the client sends after its proof
/// is read.
pub(crate) fn admit(stream: &TcpStream, secret: &Secret, time: Duration) -> Result<(), Unproved> {
    let deadline = Instant::now() + time;
    let mut first = [0];
    stream.set_read_timeout(Some(time))?;
    let begins_with_magic = match stream.peek(&mut first)? {
        0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        read => read == 1 && first == MAGIC[..1],
    };
    if !begins_with_magic {
        return Err(Unproved::ClientWithout);
    }
    let theirs = read::<HELLO_BYTES>(stream, deadline, &MAGIC)?;
    let own = hello()?;
    write(stream, &own)?;
    let greeting = greeting(&theirs, &own);
    let proof = read::<32>(stream, deadline, &[])?;
    if !greeting.is_proof(secret, Role::Caller, &proof) {
        return Err(Unproved::AnotherSecret);
    }
    write(stream, &greeting.proof(secret, Role::Listener))?;
    Ok(stream.set_read_timeout(None)?)
}

/// The first bytes of an end: the magic and a nonce.
fn hello() -> Result<[u8; HELLO_BYTES], Unproved> {
    let nonce: [u8; 16] = tagmatch_os::random()?;
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..].copy_from_slice(&nonce);
    Ok(hello)
}

fn greeting<'a>(client: &'a [u8; HELLO_BYTES], server: &'a [u8; HELLO_BYTES]) -> Greeting<'a> {
    let end = |hello: &'a [u8; HELLO_BYTES]| ProofEnd {
        nonce: hello.last_chunk().unwrap_or(&[0; 16]),
        address: b"",
    };
    Greeting { protocol: PROTOCOL, caller: end(client), listener: end(server) }
}

/// The error that a message, of which the first bytes were read, stands for.
fn refused(
    stream: &TcpStream,
    deadline: Instant,
    first: &[u8],
    refusal: impl Fn(&[u8]) -> Option<String>,
) -> Unproved {
    let mut message = first.to_vec();
    while message.len() < REFUSAL_BYTES_MAX
        && let Ok([byte]) = read(stream, deadline, &[])
    {
        message.push(byte);
    }
    refusal(&message).map_or(Unproved::Garbage, Unproved::Refused)
}

fn write(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)
}

/// Reads so many bytes until a deadline. Bytes that don't begin as wanted are an error at once.
fn read<const N: usize>(
    mut stream: &TcpStream,
    deadline: Instant,
    wanted: &[u8],
) -> Result<[u8; N], Unproved> {
    let mut bytes = [0; N];
    let mut length = 0;
    while length < N {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        stream.set_read_timeout(Some(left))?;
        length += match stream.read(&mut bytes[length..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error.into()),
        };
        let count = length.min(wanted.len());
        if bytes[..count] != wanted[..count] {
            return Err(Unproved::Garbage);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes(&[byte; 16]).unwrap()
    }

    /// How both ends of a connection end, with these secrets.
    fn meet(
        client: impl FnOnce(&TcpStream) -> Result<(), Unproved> + Send,
        server: &Secret,
        time: Duration,
    ) -> [Result<(), Unproved>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        std::thread::scope(|scope| {
            let client = scope.spawn(move || client(&theirs));
            let admitted = admit(&ours, server, time);
            if let Err(error) = &admitted {
                let _ = (&ours).write_all(format!("{{{error}}}\n").as_bytes());
            }
            drop(ours);
            [client.join().unwrap(), admitted]
        })
    }

    fn knows(secret: &Secret) -> impl FnOnce(&TcpStream) -> Result<(), Unproved> {
        |stream| {
            let text = |message: &[u8]| Some(String::from_utf8_lossy(message).into_owned());
            prove(stream, secret, SOON, text)
        }
    }

    #[test]
    fn both_ends_with_one_secret_meet() {
        let [client, server] = meet(knows(&secret(1)), &secret(1), SOON);
        assert!(client.is_ok() && server.is_ok(), "{client:?} {server:?}");
    }

    #[test]
    fn both_ends_are_told_what_is_wrong() {
        let [client, server] = meet(knows(&secret(2)), &secret(1), SOON);
        assert!(matches!(server, Err(Unproved::AnotherSecret)), "{server:?}");
        assert!(client.unwrap_err().to_string().contains("another secret"));
        let hello = |mut stream: &TcpStream| Ok(stream.write_all(b"{\"hello\":{}}\n")?);
        let [_, server] = meet(hello, &secret(1), SOON);
        assert!(matches!(server, Err(Unproved::ClientWithout)), "{server:?}");
    }

    #[test]
    fn an_end_that_only_sends_back_what_it_gets_is_not_let_in() {
        let reflect = |mut stream: &TcpStream| {
            stream.write_all(&hello()?)?;
            let mut chunk = [0; 64];
            while let Ok(read @ 1..) = stream.read(&mut chunk) {
                stream.write_all(&chunk[..read])?;
                // The proof is 8 bytes longer than the greeting.
                stream.write_all(&[0; 8])?;
            }
            Ok(())
        };
        let [_, server] = meet(reflect, &secret(1), SOON);
        assert!(matches!(server, Err(Unproved::AnotherSecret)), "{server:?}");
    }

    #[test]
    fn garbage_and_silence_end_soon() {
        let garbage =
            |mut stream: &TcpStream| Ok(stream.write_all(b"\x01garbage that is long enough")?);
        let [_, server] = meet(garbage, &secret(1), SOON);
        assert!(matches!(server, Err(Unproved::Garbage)), "{server:?}");
        let slow = |mut stream: &TcpStream| {
            for byte in MAGIC {
                if stream.write_all(&[byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        };
        let begin = Instant::now();
        let [_, server] = meet(slow, &secret(1), Duration::from_millis(300));
        assert!(matches!(server, Err(Unproved::Broken(_))), "{server:?}");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}
