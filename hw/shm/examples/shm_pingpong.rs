//! Measures the device without the protocol above it: half round trips, message rates and reads.
//!
//! ```sh
//! cargo run --release -p tagmatch-shm --example shm_pingpong
//! ```
//! Two processes are pinned to the processors 0 and 1. The receiver counts the messages of a rate.

#![allow(clippy::cast_possible_truncation, reason = "figures for people to read")]

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use tagmatch_device::{Buffer, Device, Event, Outgoing, PeerId, ReadRequest, RemoteSpan};
use tagmatch_shm::{Shm, ShmConfig};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROLE: &str = "PINGPONG_ROLE";
const EXPOSED_BYTES: usize = 64 << 20;
/// The first byte of a message tells the receiver what to do with it.
const ECHO: u8 = 0;
const COUNT: u8 = 1;
const REPORT: u8 = 2;

fn pin(processor: usize) {
    // SAFETY: a set may be all zeros, and `processor` is 0 or 1.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// The other process, which is the first peer of this one.
const READER: PeerId = PeerId(1);

fn serve() -> Outcome<()> {
    pin(1);
    let mut shm = Shm::new(ShmConfig::default())?;
    let filled = (0..EXPOSED_BYTES).map(|at| at as u8).collect::<Vec<_>>();
    let mut lent = shm.allocate(EXPOSED_BYTES).ok_or("no memory")?;
    lent.as_mut_slice().ok_or("read-only memory")?.copy_from_slice(&filled);
    print!("{}", shm.address());
    for buffer in [Buffer::from(filled), lent] {
        let span = shm.expose(READER, buffer).map_err(|(_, error)| error)?.span;
        print!(" {} {}", span.address, span.key);
    }
    println!();
    let mut counted = 0u64;
    let mut copy = [0u8; 32 << 10];
    loop {
        let (peer, length) = match shm.poll() {
            Some(Event::Message(message)) => (message.peer, message.bytes.copy_to(0, &mut copy)),
            Some(Event::PeerDown { .. }) => return Ok(()),
            _ => continue,
        };
        match copy[0] {
            ECHO => send(&mut shm, peer, &copy[..16.min(length)], &copy[16.min(length)..length]),
            COUNT => counted += 1,
            _ => {
                let bytes = counted.to_le_bytes();
                counted = 0;
                send(&mut shm, peer, &bytes, &[]);
            }
        }
    }
}

#[inline]
fn send(shm: &mut Shm, peer: PeerId, header: &[u8], payload: &[u8]) {
    let outgoing = Outgoing { header, payload, immediate: None };
    while shm.send(peer, outgoing).is_err() {
        // No message arrives while this process sends.
        let _ = shm.poll();
    }
}

fn wait_message(shm: &mut Shm) -> u64 {
    loop {
        if let Some(Event::Message(message)) = shm.poll() {
            return message.bytes.array::<8>(0).map_or(0, u64::from_le_bytes);
        }
    }
}

fn percentile(sorted: &[u64], part: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize]
}

fn latency(shm: &mut Shm, peer: PeerId, length: usize) {
    let payload = vec![ECHO; length];
    let (header, payload) = payload.split_at(16.min(length));
    let mut times = Vec::with_capacity(200_000);
    // Ten exchanges for each reading of the clock, so that the cost of the reading doesn't count.
    for round in 0..20_000 {
        let start = Instant::now();
        for _ in 0..10 {
            send(shm, peer, header, payload);
            wait_message(shm);
        }
        if round >= 2_000 {
            times.push(start.elapsed().as_nanos() as u64 / 20);
        }
    }
    times.sort_unstable();
    println!(
        "half round trip {length:>6} B   min {:>5}  p50 {:>5}  p99 {:>5} ns",
        times[0],
        percentile(&times, 0.5),
        percentile(&times, 0.99)
    );
}

fn stream(shm: &mut Shm, peer: PeerId, length: usize) {
    let mut payload = vec![COUNT; length.max(1)];
    payload[0] = COUNT;
    let (header, rest) = payload.split_at(16.min(length));
    let count = if length > 1000 { 200_000 } else { 5_000_000 };
    let start = Instant::now();
    for _ in 0..count {
        send(shm, peer, header, rest);
    }
    send(shm, peer, &[REPORT], &[]);
    assert_eq!(wait_message(shm), count);
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "stream          {length:>6} B   {:>7.2} M messages/s  {:>6.1} ns each  {:>6.2} GB/s",
        count as f64 / seconds / 1e6,
        seconds * 1e9 / count as f64,
        count as f64 * length as f64 / seconds / 1e9
    );
}

/// Reads ordinary memory and memory of the peer's device.
fn reads(shm: &mut Shm, peer: PeerId, spans: [RemoteSpan; 2], length: usize) -> Outcome<()> {
    let [ordinary, lent] = spans;
    let ordinary = read_times(shm, peer, ordinary, length)?;
    // The first pass maps the pages.
    read_times(shm, peer, lent, length)?;
    let lent = read_times(shm, peer, lent, length)?;
    println!("read {length:>8} B, min and p50 in us:");
    let kinds = ["ordinary memory", "memory of the peer's device"];
    for (kind, mut times) in kinds.into_iter().zip([ordinary, lent]) {
        times.sort_unstable();
        let us = [times[0], percentile(&times, 0.5)].map(|ns| ns as f64 / 1e3);
        println!("  {kind:<28} {:>8.2} {:>8.2}", us[0], us[1]);
    }
    Ok(())
}

fn read_times(shm: &mut Shm, peer: PeerId, span: RemoteSpan, length: usize) -> Outcome<Vec<u64>> {
    let times = (256 << 20) / length;
    let mut buffer = Some(Buffer::zeroed(length));
    let mut all = Vec::with_capacity(times);
    for token in 0..times {
        let start = Instant::now();
        let into = buffer.take().ok_or("no buffer")?;
        let remote = RemoteSpan {
            address: span.address + (token * length % EXPOSED_BYTES) as u64,
            length: length as u64,
            ..span
        };
        let request = ReadRequest { peer, remote, into, token: token as u64 };
        shm.read(request).map_err(|(_, error)| format!("{error:?}"))?;
        while buffer.is_none() {
            if let Some(Event::ReadDone { into, result, .. }) = shm.poll() {
                result.map_err(|error| format!("{error:?}"))?;
                buffer = Some(into);
            }
        }
        all.push(start.elapsed().as_nanos() as u64);
    }
    Ok(all)
}

fn main() -> Outcome<()> {
    if env::var_os(ROLE).is_some() {
        return serve();
    }
    pin(0);
    let mut server =
        Command::new(env::current_exe()?).env(ROLE, "server").stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let output = server.stdout.take().ok_or("no output")?;
    BufReader::new(output).read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let mut word = || words.next().ok_or("the server printed too few words");
    let address = word()?.parse()?;
    let mut span = || -> Outcome<RemoteSpan> {
        Ok(RemoteSpan { address: word()?.parse()?, key: word()?.parse()?, length: 0 })
    };
    let spans = [span()?, span()?];
    let mut shm = Shm::new(ShmConfig::default())?;
    let start = Instant::now();
    let peer = shm.connect(&address)?;
    loop {
        match shm.poll() {
            Some(Event::PeerUp { peer: up, .. }) if up == peer => break,
            Some(Event::PeerDown { reason, .. }) => return Err(format!("{reason:?}").into()),
            _ => {}
        }
    }
    println!("connected in {:?}, reads {:?}", start.elapsed(), shm.read_mode(peer));
    for length in [8, 24, 56, 64, 1024, 8192] {
        latency(&mut shm, peer, length);
    }
    for length in [8, 56, 64, 1024, 8192] {
        stream(&mut shm, peer, length);
    }
    for length in [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20] {
        reads(&mut shm, peer, spans, length)?;
    }
    std::io::stdout().flush()?;
    drop(shm);
    server.wait()?;
    Ok(())
}
