//! A worker meets any number of peers in its life: those that went down are forgotten.

use std::time::{Duration, Instant};

use tagmatch::shm::ShmConfig;
use tagmatch::{Config, DeviceConfig, Error, Match, Peer, PeerFault, Worker};

const REMEMBERED: usize = 16;
/// Bytes by which the process may grow while three quarters of the clients come and go. Each would
/// leave 450 bytes if it was not forgotten, so two thousand of them more than this.
const GROWTH_MAX: u64 = 1 << 19;

/// Bytes of memory that this process uses.
fn used_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * tagmatch_os::memory::page_bytes() as u64
}

/// A client connects, sends a message, and leaves.
fn visit(server: &Worker, config: &Config) -> Peer {
    let client = Worker::new(config.clone()).unwrap();
    let to_server = client.connect(&server.address()).unwrap();
    client.inject(to_server, 7, b"here I am").unwrap();
    let mut request = server.recv(Match::tag(7), vec![0; 16]);
    let start = Instant::now();
    let received = loop {
        client.progress();
        if let Some(received) = request.test() {
            break received.unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no message came");
    };
    let source = received.status.source;
    drop(client);
    while server.peer_fault(source).unwrap().is_none() {
        server.progress();
        assert!(start.elapsed() < Duration::from_secs(20), "the client has not left");
    }
    source
}

/// `TAGMATCH_TEST_CLIENTS` is another number of clients.
fn serve(config: &Config, of_clients: &[Config], clients: usize) {
    let wanted = std::env::var("TAGMATCH_TEST_CLIENTS").ok().and_then(|wanted| wanted.parse().ok());
    let clients = wanted.unwrap_or(clients);
    let server = Worker::new(config.clone()).unwrap();
    let first = visit(&server, &of_clients[0]);
    assert_eq!(server.peer_fault(first).unwrap(), Some(PeerFault::Left));
    assert_eq!(server.oneself().number(), 0);
    let mut used_before = 0;
    for number in 0..clients {
        let client = visit(&server, &of_clients[number % of_clients.len()]);
        assert_ne!(client, first);
        assert!(![0, first.number()].contains(&client.number()), "a number is used twice");
        let place = client.place();
        // A place has 4095 numbers.
        let most = 2 * REMEMBERED + 1 + number / 4095;
        assert!(place <= most, "client {number} has place {place}");
        if number == clients / 4 {
            used_before = used_bytes();
        }
    }
    let grown = used_bytes().saturating_sub(used_before);
    println!("{clients} clients: {grown} bytes more");
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
    let forgotten = usize::try_from(server.counters().peers_forgotten).unwrap();
    assert!(forgotten > clients - 2 * REMEMBERED, "{forgotten}");
    // The first client's number is an error, though others have had its place.
    assert_eq!(server.peer_fault(first).unwrap(), Some(PeerFault::Forgotten));
    let down = |error: Error| {
        assert!(
            matches!(error, Error::PeerDown { peer, fault: PeerFault::Forgotten } if peer == first),
            "{error}"
        );
    };
    down(server.inject(first, 7, b"anybody?").unwrap_err());
    down(server.send(first, 7, vec![0; 100_000]).wait().unwrap_err().error);
    down(server.recv(Match::tag(7).from(first), vec![0; 16]).wait().unwrap_err().error);
    down(server.probe(Match::tag(7).from(first)).unwrap_err());
    down(server.peer_address(first).unwrap_err());
    server.disconnect(first).unwrap();
}

fn config(device: DeviceConfig) -> Config {
    Config::default().device(device).departed_max(REMEMBERED)
}

#[test]
fn a_server_over_shared_memory_meets_any_number_of_clients() {
    // Small rings, since each client makes its own.
    let shm = ShmConfig::default().ring_bytes(64 << 10);
    let config = config(DeviceConfig::Shm(shm));
    serve(&config, std::slice::from_ref(&config), 4400);
}

#[cfg(feature = "tcp")]
#[test]
fn a_server_over_tcp_meets_any_number_of_clients() {
    let config = config(DeviceConfig::Tcp(tcp()));
    serve(&config, std::slice::from_ref(&config), 2000);
}

/// The devices of one worker share the numbers: a client over TCP gets that of one over shared
/// memory, and the other way round.
#[cfg(feature = "tcp")]
#[test]
fn a_server_on_several_networks_meets_any_number_of_clients() {
    use tagmatch::AutoConfig;
    let shm = ShmConfig::default().ring_bytes(64 << 10);
    let auto = AutoConfig::default().shm(shm.clone()).tcp(tcp());
    let [shm, tcp] = [DeviceConfig::Shm(shm), DeviceConfig::Tcp(tcp())].map(config);
    serve(&config(DeviceConfig::Auto(auto)), &[shm.clone(), tcp.clone(), tcp, shm], 1000);
}

#[cfg(feature = "tcp")]
fn tcp() -> tagmatch::tcp::TcpConfig {
    use tagmatch::{Secret, tcp::TcpConfig};
    let secret = Secret::from_bytes(&[7; 16]).ok();
    let listen = vec![std::net::Ipv4Addr::LOCALHOST.into()];
    TcpConfig::default().secret(secret).listen(listen)
}
