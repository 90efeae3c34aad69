//! Measures the device without the protocol above it: half round trips, message rates, reads, and
//! the cost of single calls.
//!
//! ```sh
//! cargo run --release -p tagmatch-shm --example shm_pingpong
//! ```
//! Two processes are pinned to the processors 0 and 1. The receiver counts the messages of a rate.

#![allow(clippy::cast_possible_truncation, reason = "figures for people to read")]

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tagmatch_device::{Buffer, Device, Event, Outgoing, PeerId, ReadMode, ReadRequest, RemoteSpan};
use tagmatch_shm::{ReadPolicy, Shm, ShmConfig};

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

fn config() -> ShmConfig {
    ShmConfig::default().membarrier(env::var_os("PINGPONG_FENCE").is_none()).read(
        if env::var_os("PINGPONG_COPIED").is_some() {
            ReadPolicy::Copied
        } else {
            ReadPolicy::Auto
        },
    )
}

/// The other process, which is the first peer of this one.
const READER: PeerId = PeerId(1);

fn serve() -> Outcome<()> {
    pin(1);
    let mut shm = Shm::new(config())?;
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

/// Reads ordinary memory and memory of the peer's device, and by the bare system call.
fn reads(
    shm: &mut Shm,
    peer: PeerId,
    spans: [RemoteSpan; 2],
    pid: i32,
    length: usize,
) -> Outcome<()> {
    let times = (256 << 20) / length;
    let [ordinary, lent] = spans;
    let ordinary = read_times(shm, peer, ordinary, times, length)?;
    // The first pass maps the pages.
    read_times(shm, peer, lent, times, length)?;
    let lent = read_times(shm, peer, lent, times, length)?;
    let mut bare = Vec::with_capacity(times);
    let mut into = vec![0u8; length];
    for token in 0..times {
        let start = Instant::now();
        let from = spans[0].address as usize + token * length % EXPOSED_BYTES;
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: length };
        let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: length };
        // SAFETY: the local part is `into`. The kernel checks the remote part.
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        bare.push(start.elapsed().as_nanos() as u64);
    }
    println!("read {length:>8} B, min and p50 in us:");
    let kinds = ["ordinary memory", "memory of the peer's device", "bare process_vm_readv"];
    for (kind, mut times) in kinds.into_iter().zip([ordinary, lent, bare]) {
        times.sort_unstable();
        let us = [times[0], percentile(&times, 0.5)].map(|ns| ns as f64 / 1e3);
        println!("  {kind:<28} {:>8.2} {:>8.2}", us[0], us[1]);
    }
    Ok(())
}

fn read_times(
    shm: &mut Shm,
    peer: PeerId,
    span: RemoteSpan,
    times: usize,
    length: usize,
) -> Outcome<Vec<u64>> {
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

fn each(name: &str, times: u32, mut call: impl FnMut()) {
    let start = Instant::now();
    (0..times).for_each(|_| call());
    println!("{name:<28} {:>6.1} ns", start.elapsed().as_nanos() as f64 / f64::from(times));
}

/// The time in which a cache line goes from one processor to the other. No device can be faster.
fn floor() {
    #[repr(align(128))]
    struct Line(AtomicU64);
    const ROUNDS: u64 = 1_000_000;
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let wait = |line: &Line, value| while line.0.load(Ordering::Acquire) != value {};
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for round in 1..=ROUNDS {
                wait(&lines[0], round);
                lines[1].0.store(round, Ordering::Release);
            }
        });
        let start = Instant::now();
        for round in 1..=ROUNDS {
            lines[0].0.store(round, Ordering::Release);
            wait(&lines[1], round);
        }
        let each_ns = start.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64;
        println!("{:<28} {each_ns:>6.1} ns (mean)", "one line, one way, bare");
    });
}

fn calls(shm: &mut Shm, peer: PeerId) -> Outcome<()> {
    each("poll, one silent peer", 20_000_000, || {
        black_box(shm.poll().is_some());
    });
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut other = Shm::new(config())?;
        let to_us = other.connect(&shm.address())?;
        loop {
            black_box(shm.poll().is_some());
            if matches!(other.poll(), Some(Event::PeerUp { peer, .. }) if peer == to_us) {
                break;
            }
        }
        silent.push(other);
    }
    each("poll, 101 silent peers", 20_000_000, || {
        black_box(shm.poll().is_some());
    });
    drop(silent);
    // The bursts are shorter than the ring, so that the calls are measured without waits.
    let mut spent = Duration::ZERO;
    let bursts = 20_000;
    for _ in 0..bursts {
        let start = Instant::now();
        for _ in 0..64 {
            let header = black_box([COUNT; 24]);
            let outgoing =
                Outgoing { header: &header[..16], payload: &header[16..], immediate: None };
            shm.send(peer, outgoing).map_err(|refused| format!("{refused:?}"))?;
        }
        spent += start.elapsed();
        // Waits until the other side has received all of them.
        send(shm, peer, &[REPORT], &[]);
        wait_message(shm);
    }
    println!(
        "{:<28} {:>6.1} ns",
        "send 16 + 8 B",
        spent.as_nanos() as f64 / f64::from(bursts * 64)
    );
    each("send and poll, to oneself", 5_000_000, || {
        let header = black_box([COUNT; 24]);
        let outgoing = Outgoing { header: &header[..16], payload: &header[16..], immediate: None };
        let _ = shm.send(PeerId::ONESELF, outgoing);
        black_box(shm.poll().is_some());
    });
    Ok(())
}

fn main() -> Outcome<()> {
    if env::var_os(ROLE).is_some() {
        return serve();
    }
    pin(0);
    floor();
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
    let mut shm = Shm::new(config())?;
    let start = Instant::now();
    let peer = shm.connect(&address)?;
    loop {
        match shm.poll() {
            Some(Event::PeerUp { peer: up, .. }) if up == peer => break,
            Some(Event::PeerDown { reason, .. }) => return Err(format!("{reason:?}").into()),
            _ => {}
        }
    }
    let mode = shm.read_mode(peer);
    println!("connected in {:?}, reads {mode:?}", start.elapsed());
    let only = |name| env::var_os(name).is_some();
    if !only("PINGPONG_READS") {
        calls(&mut shm, peer)?;
    }
    if !only("PINGPONG_CALLS") && !only("PINGPONG_READS") {
        send(&mut shm, peer, &[REPORT], &[]);
        wait_message(&mut shm);
        for length in [8, 24, 56, 64, 1024, 8192] {
            latency(&mut shm, peer, length);
        }
        for length in [8, 56, 64, 1024, 8192] {
            stream(&mut shm, peer, length);
        }
    }
    if !only("PINGPONG_CALLS") {
        for length in [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20] {
            reads(&mut shm, peer, spans, server.id() as i32, length)?;
        }
    }
    if mode == ReadMode::Copied {
        println!("(copied reads go through the rings; the bare call is for comparison)");
    }
    std::io::stdout().flush()?;
    drop(shm);
    server.wait()?;
    Ok(())
}
