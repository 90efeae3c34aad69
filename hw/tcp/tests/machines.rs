//! Two machines, which are network namespaces joined by a cable (a veth pair): what happens when
//! the cable is cut. As root: `cargo test -p tagmatch-tcp --test machines -- --ignored`

mod common;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tagmatch_device::{Device, DownReason, Flush, PeerId, Refused};
use tagmatch_os::stream;
use tagmatch_tcp::{Tcp, TcpConfig};

use common::{
    Owned, config, connect, exchange, message, pattern, poll, send, sleep, tcp, wait_for,
};

/// Messages that a machine keeps for a worker that doesn't receive.
const SMALL: usize = 2000;

/// Two machines and a cable.
struct Machines {
    names: [String; 2],
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Machines {
    /// The machines; `None` where this process may not make any.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // SAFETY: the call accesses no memory.
        if unsafe { libc::geteuid() } != 0 {
            println!("SKIPPED: only root can make network namespaces");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = [1, 2].map(|side| format!("tm{}-{number}-{side}", std::process::id()));
        for name in &names {
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
        }
        let [one, two] = &names;
        ip(&format!("-n {one} link add cable type veth peer name cable netns {two}"));
        for (name, last) in names.iter().zip([1, 2]) {
            ip(&format!("-n {name} address add 10.77.0.{last}/24 dev cable"));
            ip(&format!("-n {name} link set cable up"));
        }
        let machines = Machines { names };
        machines.wait_for_cable();
        Some(machines)
    }

    /// Waits until both machines have noticed that the cable is there.
    fn wait_for_cable(&self) {
        let start = Instant::now();
        let is_up = |name: &String| {
            let shown = Command::new("ip").args(["-n", name, "link", "show", "cable"]).output();
            String::from_utf8_lossy(&shown.unwrap().stdout).contains("state UP")
        };
        while !self.names.iter().all(is_up) {
            assert!(start.elapsed() < common::PATIENCE, "the cable doesn't come up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Cuts the cable at the second machine, or mends it.
    fn cut(&self, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        ip(&format!("-n {} link set cable {state}", self.names[1]));
    }

    /// A device on a machine. Its listening socket stays on that machine.
    fn device(&self, side: usize, config: TcpConfig) -> Tcp {
        self.inside(side, move || tcp(config))
    }

    /// Runs a function on a machine.
    fn inside<T: Send>(&self, side: usize, run: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.names[side])).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                // SAFETY: the call accesses no memory. It moves this thread alone.
                let moved = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(moved, 0);
                run()
            });
            thread.join().unwrap()
        })
    }

    /// Two connected devices, one on each machine, and a neighbour of the first.
    fn pair(&self, a: TcpConfig, b: TcpConfig) -> (Tcp, Tcp, PeerId, PeerId) {
        let anywhere = |config: TcpConfig| config.listen(Vec::new());
        let mut a = self.device(0, anywhere(a));
        let mut b = self.device(1, anywhere(b));
        // The sockets of a connection that is begun here are on the first machine.
        let (to_b, to_a) = self.inside(0, || connect(&mut a, &mut b));
        (a, b, to_b, to_a)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Times for a test. Idle connections are watched by keep-alive, and others by acknowledgements.
fn times(keep_alive_s: u64, acknowledge_ms: u64) -> TcpConfig {
    config()
        .keep_alive(Duration::from_secs(keep_alive_s))
        .acknowledge_timeout(Duration::from_millis(acknowledge_ms))
        .leave_timeout(Duration::from_millis(100))
}

/// How long it takes until a sleeping device reports that a peer is gone.
fn time_to_down(tcp: &mut Tcp, peer: PeerId, patience: Duration) -> Duration {
    let start = Instant::now();
    loop {
        match poll(tcp) {
            Some(Owned::Down(down, reason)) => {
                assert_eq!((down, reason), (peer, DownReason::Gone));
                return start.elapsed();
            }
            None => {}
            other => panic!("{other:?}"),
        }
        if tcp.arm(&[]) {
            sleep(tcp, Duration::from_millis(100));
            tcp.disarm();
        }
        assert!(start.elapsed() < patience, "{peer:?} is gone, and not reported");
    }
}

fn fill(tcp: &mut Tcp, peer: PeerId) -> usize {
    let mut sent = 0;
    while tcp.send(peer, message(&pattern(sent, 10_000))) != Err(Refused::Full) {
        sent += 1;
    }
    sent
}

#[test]
#[ignore = "needs root, to make network namespaces: ci/test tcp"]
fn a_cut_is_noticed_on_an_idle_connection_and_others_stay() {
    let Some(machines) = Machines::new() else { return };
    let (mut a, mut b, to_b, to_a) = machines.pair(times(4, 60_000), times(4, 60_000));
    let near = times(4, 60_000).listen(vec![Ipv4Addr::LOCALHOST.into()]);
    let mut neighbour = machines.device(0, near);
    let (to_neighbour, _) = machines.inside(0, || connect(&mut a, &mut neighbour));
    exchange(&mut a, to_b, &mut b);
    let mut mark = None;
    while a.flush(to_b, &mut mark) != Flush::Done {
        assert!(poll(&mut a).is_none());
    }
    machines.cut(true);
    let took = time_to_down(&mut a, to_b, Duration::from_secs(8));
    assert!(took > Duration::from_secs(2), "{took:?}");
    time_to_down(&mut b, to_a, Duration::from_secs(8));
    exchange(&mut a, to_neighbour, &mut neighbour);
}

#[test]
#[ignore = "needs root, to make network namespaces: ci/test tcp"]
fn a_cut_is_noticed_while_data_is_under_way() {
    let Some(machines) = Machines::new() else { return };
    let (mut a, mut b, to_b, _) = machines.pair(times(60, 1000), times(60, 1000));
    exchange(&mut a, to_b, &mut b);
    machines.cut(true);
    a.send(to_b, message(b"into the void")).unwrap();
    let took = time_to_down(&mut a, to_b, Duration::from_secs(3));
    assert!(took > Duration::from_millis(900), "{took:?}");
}

/// The kernel asks a peer with a shut window whether it is still shut, and gets no answer.
#[test]
#[ignore = "needs root, to make network namespaces: ci/test tcp"]
fn a_cut_is_noticed_while_the_window_is_shut() {
    let Some(machines) = Machines::new() else { return };
    let (mut a, _b, to_b, _) = machines.pair(times(60, 1000), times(60, 1000));
    fill(&mut a, to_b);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        assert!(poll(&mut a).is_none(), "a machine that acknowledges is alive");
    }
    machines.cut(true);
    let took = time_to_down(&mut a, to_b, Duration::from_secs(6));
    assert!(took > Duration::from_millis(900), "{took:?}");
}

#[test]
#[ignore = "needs root, to make network namespaces: ci/test tcp"]
fn nothing_is_lost_in_a_cut_that_ends_in_time() {
    let Some(machines) = Machines::new() else { return };
    let (mut a, mut b, to_b, _) = machines.pair(times(60, 8000), times(60, 8000));
    machines.cut(true);
    let sent = fill(&mut a, to_b);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1500) {
        assert!(poll(&mut a).is_none() && poll(&mut b).is_none());
    }
    machines.cut(false);
    let mut next = 0;
    wait_for(&mut [&mut b, &mut a], "the messages", |index, event| match event {
        Owned::Message(_, _, bytes) if index == 0 => {
            assert!(bytes == pattern(next, 10_000));
            next += 1;
            (next == sent).then_some(())
        }
        other => panic!("{other:?}"),
    });
}

/// The receiver has not come to the end of it when the machine is known to be gone.
#[test]
#[ignore = "needs root, to make network namespaces: ci/test tcp"]
fn what_a_machine_has_sent_is_delivered_before_the_report_that_it_is_gone() {
    let Some(machines) = Machines::new() else { return };
    let (mut a, mut b, to_b, to_a) = machines.pair(times(60, 1000), times(60, 1000));
    let mut mark = None;
    let bytes = |number| pattern(number, 8);
    for number in 0..SMALL {
        send(&mut b, to_a, message(&bytes(number)), || {});
    }
    let start = Instant::now();
    while b.flush(to_a, &mut mark) != Flush::Done {
        assert!(poll(&mut b).is_none() && start.elapsed() < common::PATIENCE);
    }
    machines.cut(true);
    a.send(to_b, message(b"to nobody")).unwrap();
    let mut next = 0;
    wait_for(&mut [&mut a], "the end", |_, event| match event {
        Owned::Message(_, _, got) => {
            assert!(got == bytes(next));
            next += 1;
            // All of them take longer than the machine may be silent.
            std::thread::sleep(Duration::from_millis(1));
            None
        }
        Owned::Down(peer, DownReason::Gone) if peer == to_b => Some(()),
        other => panic!("{other:?}"),
    });
    assert_eq!(next, SMALL);
}

/// A machine that doesn't answer at all: not even that nobody listens.
#[test]
#[ignore = "needs root, to make network namespaces: ci/test tcp"]
fn a_machine_that_does_not_answer_is_unreachable_in_time() {
    let Some(machines) = Machines::new() else { return };
    let short = times(60, 1000).connect_timeout(Duration::from_millis(700));
    let (mut a, b, _, _) = machines.pair(short.clone(), short.clone());
    let mut other = machines.device(1, short.listen(Vec::new()));
    machines.cut(true);
    let address = other.address();
    let start = Instant::now();
    let to_other = machines.inside(0, || {
        let peer = a.connect(&address).unwrap();
        wait_for(&mut [&mut a], "the peer's end", |_, event| match event {
            Owned::Down(down, DownReason::Unreachable { .. }) if down == peer => Some(peer),
            Owned::Down(..) => None,
            other => panic!("{other:?}"),
        })
    });
    assert!((600..2500).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert_eq!(a.send(to_other, message(b"x")), Err(Refused::Down));
    assert!(other.poll().is_none());
    drop(b);
}

/// The kernel has one error number for both. Only a lack of ports is one of this process.
#[test]
#[ignore = "needs root, to make network namespaces: ci/test tcp"]
fn a_machine_without_ports_is_told_from_one_without_an_address() {
    let Some(machines) = Machines::new() else { return };
    let v6: SocketAddr = (Ipv6Addr::LOCALHOST, 9).into();
    machines.inside(0, || {
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40009").unwrap();
        for host in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let listener = TcpListener::bind((host, 0)).unwrap();
            let to = listener.local_addr().unwrap();
            let mut held = Vec::new();
            let error = loop {
                match stream::connect_tcp(to) {
                    Ok(socket) => held.push(socket),
                    Err(error) => break error,
                }
                assert!(held.len() <= 10, "{host}");
            };
            assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL), "{host}");
        }
    });
    for device in ["lo", "cable"] {
        ip(&format!("-n {} -6 address flush dev {device}", machines.names[0]));
    }
    let error = machines.inside(0, || stream::connect_tcp(v6).unwrap_err());
    assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH));
}
