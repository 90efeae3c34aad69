//! Machines in one process: shared memory that says it is at another place, and TCP on loopback.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test binary uses its own part")]

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tagmatch_device::{
    Address, Buffer, Device, DeviceError, Event, EventDescriptor, Exposure, ExposureId, Flush,
    Join, LearnedChoice, Limits, Network, Outgoing, PeerId, PeerNumbers, ReadError, ReadMode,
    ReadRequest, Refused,
};
use tagmatch_routed::Routed;
use tagmatch_shm::{Shm, ShmConfig};
use tagmatch_tcp::{Secret, Tcp, TcpConfig};
pub use tagmatch_testkit::device::*;
use tagmatch_testkit::process::share_descriptors;

/// Shared memory that gives out another place than its own, as if it were on another machine.
pub struct OnMachine {
    pub shm: Shm,
    machine: u8,
}

impl Join for OnMachine {
    fn network(&self) -> Network {
        self.shm.network()
    }

    fn section(&self, room: usize) -> Vec<u8> {
        let mut section = self.shm.section(room);
        section[0] ^= self.machine;
        section
    }

    fn join(&mut self, address: Address, numbers: &PeerNumbers) {
        self.shm.join(address, numbers);
    }
}

impl EventDescriptor for OnMachine {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.shm.event_descriptor()
    }
}

impl Device for OnMachine {
    fn limits(&self) -> Limits {
        self.shm.limits()
    }

    fn address(&self) -> Address {
        self.shm.address()
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.shm.connect(address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.shm.peer_address(peer)
    }

    fn read_mode(&self, peer: PeerId) -> ReadMode {
        self.shm.read_mode(peer)
    }

    fn learned(&self, peer: PeerId) -> Vec<LearnedChoice> {
        self.shm.learned(peer)
    }

    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        self.shm.send(peer, message)
    }

    fn expose(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        self.shm.expose(reader, buffer)
    }

    fn withdraw(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        self.shm.withdraw(reader, id)
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        self.shm.read(request)
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        self.shm.poll()
    }

    fn flush(&mut self, peer: PeerId, mark: &mut Option<u64>) -> Flush {
        self.shm.flush(peer, mark)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.shm.disconnect(peer);
    }

    fn forget(&mut self, peer: PeerId) -> bool {
        self.shm.forget(peer)
    }

    fn close(&mut self) {
        self.shm.close();
    }

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.shm.arm(waiting_to_send)
    }

    fn has_work(&self) -> bool {
        self.shm.has_work()
    }

    fn disarm(&mut self) {
        self.shm.disarm();
    }
}

pub type Worker = Routed<OnMachine>;

fn tcp_config() -> TcpConfig {
    let secret = Secret::from_bytes(&[7; 16]).ok();
    let listen = vec![Ipv4Addr::LOCALHOST.into()];
    let connect_timeout = Duration::from_secs(2);
    // A worker that sleeps looks at its connections an eighth of this time after a message. No
    // test may end by that look.
    let acknowledge_timeout = Duration::from_secs(3600);
    TcpConfig::default()
        .secret(secret)
        .listen(listen)
        .connect_timeout(connect_timeout)
        .acknowledge_timeout(acknowledge_timeout)
}

pub fn tcp() -> Tcp {
    Tcp::new(tcp_config()).unwrap()
}

pub fn shm(machine: u8) -> OnMachine {
    OnMachine { shm: Shm::new(ShmConfig::default()).unwrap(), machine }
}

/// A worker on a machine with TCP.
pub fn worker(machine: u8) -> Worker {
    share_descriptors();
    up(Routed::new(shm(machine), vec![Box::new(tcp())]).unwrap())
}

/// A worker on a machine with TCP, which has little room.
pub fn narrow_worker(machine: u8, message_max: u32) -> Worker {
    share_descriptors();
    let config = ShmConfig::default().ring_bytes(16 << 10).message_max(message_max);
    let local = OnMachine { shm: Shm::new(config).unwrap(), machine };
    let tcp = Tcp::new(tcp_config().outbox_bytes(4096).message_max(message_max)).unwrap();
    up(Routed::new(local, vec![Box::new(tcp)]).unwrap())
}
