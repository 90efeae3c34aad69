//! Measures the device over loopback, and beside it two bare sockets with epoll: half round trips,
//! streams of reads of 1 MiB, and half round trips with a thousand idle peers.
//!
//! ```sh
//! cargo run --release -p tagmatch-tcp --example tcp_pingpong
//! ```
//! Two processes are pinned to the processors 0 and 1. Both ways take turns, block by block, so
//! that a disturbance of the machine meets both; the figure is the median of the blocks.
//!
//! Arguments choose measurements: `latency`, `stream`, `idle`.

#![allow(clippy::cast_possible_truncation, reason = "figures for people to read")]

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tagmatch_device::{Address, Buffer, Device, Event, Outgoing, PeerId, ReadRequest, RemoteSpan};
use tagmatch_os::event::{BATCH, Epoll, Ready};
use tagmatch_os::stream;
use tagmatch_tcp::{Secret, Tcp, TcpConfig};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROLE: &str = "PINGPONG_ROLE";
const BLOCKS: usize = 41;
const MIB: usize = 1 << 20;
/// Reads of 1 MiB that are under way at a time.
const DEPTH: usize = 4;
/// Bytes of a block of a stream.
const STREAM_BYTES: usize = 64 * MIB;

fn pin(processor: usize) {
    // SAFETY: a set may be all zeros, and `processor` is 0 or 1.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn config() -> Outcome<TcpConfig> {
    let secret = Some(Secret::from_bytes(b"only for this measurement")?);
    Ok(TcpConfig::default().secret(secret).listen(vec![Ipv4Addr::LOCALHOST.into()]))
}

/// A bare socket, with the epoll descriptor that watches it.
struct Bare {
    socket: TcpStream,
    epoll: Epoll,
}

impl Bare {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let epoll = Epoll::new()?;
        epoll.watch(socket.as_fd(), 0)?;
        Ok(Bare { socket, epoll })
    }

    fn wait(&self) {
        while self.epoll.ready_with_room(&mut [Ready::default(); BATCH]) == 0 {}
    }

    fn receive(&self, into: &mut [u8]) -> io::Result<()> {
        let mut have = 0;
        while have < into.len() {
            self.wait();
            match stream::receive(self.socket.as_fd(), &mut into[have..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => have += count,
            }
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            match stream::send(self.socket.as_fd(), &bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn exchange(&self, is_first: bool, rounds: usize) -> io::Result<()> {
        let mut bytes = [1; 8];
        for _ in 0..rounds {
            if is_first {
                self.send(&bytes)?;
            }
            self.receive(&mut bytes)?;
            if !is_first {
                self.send(&bytes)?;
            }
        }
        Ok(())
    }
}

fn wait_message(tcp: &mut Tcp) {
    loop {
        match tcp.poll() {
            Some(Event::Message(_)) => return,
            Some(Event::PeerDown { reason, .. }) => panic!("{reason:?}"),
            _ => {}
        }
    }
}

fn exchange(tcp: &mut Tcp, peer: PeerId, is_first: bool, rounds: usize) -> Outcome<()> {
    let outgoing = Outgoing { header: &[1; 8], payload: &[], immediate: None };
    for _ in 0..rounds {
        if !is_first {
            wait_message(tcp);
        }
        tcp.send(peer, outgoing).map_err(|refused| format!("{refused:?}"))?;
        if is_first {
            wait_message(tcp);
        }
    }
    Ok(())
}

/// The other process: it does what each line of its standard input says.
fn serve() -> Outcome<()> {
    pin(1);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut tcp = Tcp::new(config()?)?;
    let peer = PeerId(1);
    let exposed = tcp.expose(peer, Buffer::from(vec![7; MIB])).map_err(|(_, error)| error)?;
    let RemoteSpan { address, key, .. } = exposed.span;
    println!("{} {} {address} {key}", listener.local_addr()?, tcp.address());
    let bare = Bare::new(listener.accept()?.0)?;
    while !matches!(tcp.poll(), Some(Event::PeerUp { peer: up, .. }) if up == peer) {}
    let mut idle = Vec::new();
    for line in io::stdin().lines() {
        let line = line?;
        let (what, number) = line.split_once(' ').ok_or("a line without a number")?;
        match what {
            "bare" => bare.exchange(false, number.parse()?)?,
            "device" => exchange(&mut tcp, peer, false, number.parse()?)?,
            "bare-stream" => {
                let bytes = vec![7; MIB];
                for _ in 0..STREAM_BYTES / MIB {
                    bare.send(&bytes)?;
                }
            }
            // Ends with a message.
            "device-stream" => wait_message(&mut tcp),
            _ => idle = be_idle(&number.parse()?)?,
        }
    }
    drop(idle);
    Ok(())
}

/// A thousand devices, each connected to the one with this address.
fn be_idle(address: &Address) -> Outcome<Vec<Tcp>> {
    let mut idle = Vec::new();
    for _ in 0..1000 {
        let mut tcp = Tcp::new(config()?)?;
        let peer = tcp.connect(address)?;
        while !matches!(tcp.poll(), Some(Event::PeerUp { peer: up, .. }) if up == peer) {}
        idle.push(tcp);
    }
    Ok(idle)
}

struct Measured {
    server: Child,
    orders: ChildStdin,
    bare: Bare,
    tcp: Tcp,
    peer: PeerId,
    span: RemoteSpan,
}

impl Measured {
    fn order(&mut self, order: &str) -> io::Result<()> {
        writeln!(self.orders, "{order}")?;
        // The other process begins.
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    /// Half round trips in ns, bare and of the device.
    fn latency(&mut self) -> Outcome<[f64; 2]> {
        const ROUNDS: usize = 1000;
        let mut blocks = [Vec::new(), Vec::new()];
        for _ in 0..BLOCKS {
            self.order(&format!("bare {ROUNDS}"))?;
            let start = Instant::now();
            self.bare.exchange(true, ROUNDS)?;
            blocks[0].push(start.elapsed());
            self.order(&format!("device {ROUNDS}"))?;
            let start = Instant::now();
            exchange(&mut self.tcp, self.peer, true, ROUNDS)?;
            blocks[1].push(start.elapsed());
        }
        Ok(blocks.map(|block| median(block) * 1e9 / (2 * ROUNDS) as f64))
    }

    /// GB/s, bare and of reads.
    fn streams(&mut self) -> Outcome<[f64; 2]> {
        let mut blocks = [Vec::new(), Vec::new()];
        // As many buffers as the reads have, so that both ways use as much of the cache.
        let mut into = vec![0; DEPTH * MIB];
        let mut buffers: Vec<_> = (0..DEPTH).map(|_| Buffer::from(vec![1; MIB])).collect();
        for _ in 0..BLOCKS {
            self.order("bare-stream 0")?;
            let start = Instant::now();
            for _ in 0..STREAM_BYTES / into.len() {
                for part in into.chunks_mut(MIB) {
                    self.bare.receive(part)?;
                }
            }
            blocks[0].push(start.elapsed());
            self.order("device-stream 0")?;
            let start = Instant::now();
            self.read_all(&mut buffers)?;
            blocks[1].push(start.elapsed());
            let end = Outgoing { header: &[1], payload: &[], immediate: None };
            self.tcp.send(self.peer, end).map_err(|refused| format!("{refused:?}"))?;
        }
        Ok(blocks.map(|block| STREAM_BYTES as f64 / median(block) / 1e9))
    }

    fn read_all(&mut self, buffers: &mut Vec<Buffer>) -> Outcome<()> {
        let mut started = 0;
        let mut ended = 0;
        while ended < STREAM_BYTES / MIB {
            while started < STREAM_BYTES / MIB
                && let Some(into) = buffers.pop()
            {
                let request = ReadRequest { peer: self.peer, remote: self.span, into, token: 0 };
                self.tcp.read(request).map_err(|(_, error)| format!("{error:?}"))?;
                started += 1;
            }
            if let Some(Event::ReadDone { into, result, .. }) = self.tcp.poll() {
                result.map_err(|error| format!("{error:?}"))?;
                buffers.push(into);
                ended += 1;
            }
        }
        Ok(())
    }
}

fn median(mut blocks: Vec<Duration>) -> f64 {
    blocks.sort_unstable();
    blocks[blocks.len() / 2].as_secs_f64()
}

fn start() -> Outcome<Measured> {
    let mut server = Command::new(env::current_exe()?)
        .env(ROLE, "server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let orders = server.stdin.take().ok_or("no input")?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let mut word = || words.next().ok_or("the server printed too few words");
    let (place, address): (SocketAddr, Address) = (word()?.parse()?, word()?.parse()?);
    let span = RemoteSpan { address: word()?.parse()?, key: word()?.parse()?, length: MIB as u64 };
    let bare = Bare::new(TcpStream::connect(place)?)?;
    let mut tcp = Tcp::new(config()?)?;
    let peer = tcp.connect(&address)?;
    while !matches!(tcp.poll(), Some(Event::PeerUp { peer: up, .. }) if up == peer) {}
    Ok(Measured { server, orders, bare, tcp, peer, span })
}

fn main() -> Outcome<()> {
    if env::var_os(ROLE).is_some() {
        return serve();
    }
    let chosen: Vec<String> = env::args().skip(1).collect();
    let wants = |name: &str| chosen.is_empty() || chosen.iter().any(|other| other == name);
    pin(0);
    let mut measured = start()?;
    if wants("latency") {
        let [bare, device] = measured.latency()?;
        println!(
            "8 B, half round trip  bare {bare:.0} ns  device {device:.0} ns  {:.3} x",
            device / bare
        );
    }
    if wants("stream") {
        let [bare, device] = measured.streams()?;
        println!(
            "reads of 1 MiB        bare {bare:.2} GB/s  device {device:.2} GB/s  {:.3} x",
            device / bare
        );
    }
    if wants("idle") {
        let [bare_before, before] = measured.latency()?;
        let address = measured.tcp.address();
        measured.order(&format!("idle {address}"))?;
        let mut up = 0;
        while up < 1000 {
            up += usize::from(matches!(measured.tcp.poll(), Some(Event::PeerUp { .. })));
        }
        let [bare, device] = measured.latency()?;
        // The bare sockets tell how the machine has changed meanwhile.
        let ratio = device / before * bare_before / bare;
        println!("with 1000 idle peers  one {before:.0} ns  1000 {device:.0} ns  {ratio:.3} x");
    }
    let Measured { mut server, orders, .. } = measured;
    drop(orders);
    server.wait()?;
    Ok(())
}
