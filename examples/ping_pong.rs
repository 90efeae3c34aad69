//! Ping-pong between two processes. The program starts itself again, with the address of its worker
//! as the argument. Any other way to hand over an address will do: a file, a socket, PMI.
//!
//! `cargo run --release --example ping_pong`

use std::env;
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use tagmatch::{Address, Config, Match, Worker};

const HELLO: u64 = 0;
const PING: u64 = 1;
const PONG: u64 = 2;
const ROUNDS: u32 = 1_000;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        None => parent(),
        Some(address) => Ok(child(&address.parse()?)?),
    }
}

fn parent() -> Result<(), Box<dyn Error>> {
    let worker = Worker::new(Config::default())?;
    let mut process =
        Command::new(env::current_exe()?).arg(worker.address().to_string()).spawn()?;

    // A receive from any source can't tell that the child has died: so it has a time limit.
    let mut hello = worker.recv(Match::tag(HELLO), vec![]);
    let hello = hello.wait_timeout(Duration::from_secs(10)).ok_or("the child doesn't connect")?;
    let child = hello?.status.source;

    let mut bytes = *b"8 bytes.";
    let start = Instant::now();
    for _ in 0..ROUNDS {
        worker.inject(child, PING, &bytes)?;
        // A receive that names its source fails if that process dies.
        worker.recv_blocking(Match::tag(PONG).from(child), &mut bytes)?;
    }
    println!("half a round trip: {:?}", start.elapsed() / ROUNDS / 2);
    if process.wait()?.success() { Ok(()) } else { Err("the child failed".into()) }
}

fn child(parent: &Address) -> Result<(), tagmatch::Error> {
    let worker = Worker::new(Config::default())?;
    let parent = worker.connect(parent)?;
    worker.inject(parent, HELLO, &[])?;
    let mut bytes = [0; 8];
    for _ in 0..ROUNDS {
        worker.recv_blocking(Match::tag(PING).from(parent), &mut bytes)?;
        worker.inject(parent, PONG, &bytes)?;
    }
    Ok(()) // Dropping the worker waits until the last message is with the parent.
}
