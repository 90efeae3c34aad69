//! The simulated kernel: descriptors, and the calls of sockets.
//!
//! A call returns `None` if its descriptor is none of the world's: then the real kernel answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use tagmatch_testkit::random::Random;

use crate::faults::{Call, FaultState, Faults};
use crate::stream::{Buffers, Connection, End, Info, Move};

/// The result of a call: a number, or an error number.
pub(crate) type Answer<T> = Option<Result<T, i32>>;

/// The events for which a descriptor is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) events: u32,
    pub(crate) number: u64,
}

pub(crate) enum File {
    /// The watched descriptors.
    Epoll(BTreeMap<i32, Watch>),
    /// When the timer is over.
    Timer(Option<Duration>),
    /// A socket that is neither connected nor listens, and its address.
    Fresh(Option<SocketAddrV4>),
    Listening {
        address: SocketAddrV4,
        /// Connections that wait to be accepted.
        queue: VecDeque<usize>,
    },
    Connected {
        connection: usize,
        side: usize,
    },
    /// A second descriptor of a file, which nothing but its end is asked of.
    Second,
}

/// An open descriptor.
pub(crate) struct Open {
    pub(crate) process: usize,
    pub(crate) file: File,
}

/// The properties of a world.
pub(crate) struct Kernel {
    pub(crate) random: Random,
    pub(crate) faults: FaultState,
    pub(crate) now: Duration,
    /// The process whose calls these are. Each process has a machine of its own.
    pub(crate) process: usize,
    pub(crate) files: BTreeMap<i32, Open>,
    pub(crate) connections: BTreeMap<usize, Connection>,
    /// Machines that answer nothing any more, and since when.
    pub(crate) silent: BTreeMap<usize, Duration>,
    /// The network makes no move.
    pub(crate) is_frozen: bool,
    /// TCP, sets of descriptors, timers and time are simulated. If not, calls only fail.
    pub(crate) has_network: bool,
    buffers: Buffers,
    next_connection: usize,
    next_port: u16,
}

/// How much a connection holds, and how badly the system answers.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// All that is random follows from it.
    pub seed: u64,
    /// How badly the system answers.
    pub faults: Faults,
    /// TCP, sets of descriptors, timers and time are simulated. If not, the real kernel answers,
    /// and calls only fail.
    pub has_network: bool,
    /// Bytes that a socket holds until they are acknowledged.
    pub sent_max: usize,
    /// Bytes that a socket holds until they are received.
    pub received_max: usize,
    /// How long an acknowledgement takes.
    pub acknowledgement_time: Duration,
}

/// Whether no answer comes from there: no machine has an address in 10.0.1.0/24.
fn is_nobodys(address: SocketAddrV4) -> bool {
    address.ip().octets()[..3] == [10, 0, 1]
}

impl Kernel {
    pub(crate) fn new(settings: Settings) -> Self {
        Kernel {
            random: Random::stream(settings.seed, 1),
            faults: FaultState::new(settings.faults),
            now: Duration::from_secs(1000),
            process: 0,
            files: BTreeMap::new(),
            connections: BTreeMap::new(),
            silent: BTreeMap::new(),
            is_frozen: false,
            has_network: settings.has_network,
            buffers: Buffers {
                sent_max: settings.sent_max,
                received_max: settings.received_max,
                acknowledgement_time: settings.acknowledgement_time,
            },
            next_connection: 0,
            next_port: 20_000,
        }
    }

    /// The error of a call that is to fail.
    pub(crate) fn strike(&mut self, call: Call) -> Result<(), i32> {
        self.faults.strike(call, &mut self.random)
    }

    /// Takes a new descriptor, whose number the real kernel gave.
    pub(crate) fn open(&mut self, fd: i32, file: File) {
        self.files.insert(fd, Open { process: self.process, file });
    }

    /// Takes another descriptor of a file, if the file is the world's.
    pub(crate) fn duplicated(&mut self, fd: i32, second: i32) {
        if self.files.contains_key(&fd) {
            self.open(second, File::Second);
        }
    }

    fn connected(&self, fd: i32) -> Option<(usize, usize)> {
        match self.files.get(&fd)?.file {
            File::Connected { connection, side } => Some((connection, side)),
            _ => None,
        }
    }

    /// The connection of a socket, and its side.
    fn end(&mut self, fd: i32) -> Option<(&mut Connection, usize)> {
        let (connection, side) = self.connected(fd)?;
        Some((self.connections.get_mut(&connection)?, side))
    }

    pub(crate) fn bind(&mut self, fd: i32, mut address: SocketAddrV4) -> Answer<()> {
        self.files.get(&fd)?;
        Some((|| {
            self.strike(Call::Bind)?;
            if address.port() == 0 {
                self.next_port += 1;
                address.set_port(self.next_port);
            }
            let taken = |open: &Open| match &open.file {
                File::Listening { address: other, .. } => *other == address,
                File::Fresh(other) => *other == Some(address),
                _ => false,
            };
            if self.files.values().any(taken) {
                return Err(libc::EADDRINUSE);
            }
            let open = self.files.get_mut(&fd).ok_or(libc::EBADF)?;
            open.file = File::Fresh(Some(address));
            Ok(())
        })())
    }

    pub(crate) fn listen(&mut self, fd: i32) -> Answer<()> {
        self.files.get(&fd)?;
        Some((|| {
            self.strike(Call::Listen)?;
            let open = self.files.get_mut(&fd).ok_or(libc::EBADF)?;
            let File::Fresh(Some(address)) = open.file else { return Err(libc::EINVAL) };
            open.file = File::Listening { address, queue: VecDeque::new() };
            Ok(())
        })())
    }

    /// The address of a socket.
    pub(crate) fn name(&mut self, fd: i32) -> Answer<SocketAddrV4> {
        let address = match &self.files.get(&fd)?.file {
            File::Listening { address, .. } => *address,
            File::Fresh(address) => address.unwrap_or(nowhere()),
            File::Connected { connection, side } => {
                self.connections.get(connection)?.ends[*side].address
            }
            _ => return Some(Err(libc::ENOTSOCK)),
        };
        Some(self.strike(Call::Name).map(|()| address))
    }

    /// The address of the other end.
    pub(crate) fn peer_name(&mut self, fd: i32) -> Answer<SocketAddrV4> {
        self.files.get(&fd)?;
        let strike = self.strike(Call::PeerName);
        let Some((connection, side)) = self.end(fd) else { return Some(Err(libc::ENOTCONN)) };
        let address = connection.ends[1 - side].address;
        let is_connected = connection.is_established && !connection.is_reset(side);
        Some(strike.and(if is_connected { Ok(address) } else { Err(libc::ENOTCONN) }))
    }

    /// Begins to connect. A socket of UDP only asks whether there is a route.
    pub(crate) fn connect(&mut self, fd: i32, address: SocketAddrV4) -> Answer<()> {
        if !self.files.contains_key(&fd) {
            return self.has_network.then_some(Ok(()));
        }
        Some((|| {
            self.strike(Call::Connect)?;
            self.next_port += 1;
            let own = Ipv4Addr::new(10, 0, 0, u8::try_from(self.process + 1).unwrap_or(u8::MAX));
            let own = SocketAddrV4::new(own, self.next_port);
            let caller = End::new(self.process, own, self.buffers);
            // Which machine it is becomes known when the request arrives.
            let called = End::new(usize::MAX, address, self.buffers);
            let connection = self.next_connection;
            self.next_connection += 1;
            self.connections.insert(connection, Connection::new([caller, called]));
            let open = self.files.get_mut(&fd).ok_or(libc::EBADF)?;
            open.file = File::Connected { connection, side: 0 };
            Err(libc::EINPROGRESS)
        })())
    }

    /// The next connection of a listener.
    pub(crate) fn accept(&mut self, fd: i32) -> Answer<File> {
        self.files.get(&fd)?;
        let strike = self.strike(Call::Accept);
        let File::Listening { queue, .. } = &mut self.files.get_mut(&fd)?.file else {
            return Some(Err(libc::EINVAL));
        };
        if let Err(errno) = strike {
            // These end the connection that waits first.
            if [libc::ECONNABORTED, libc::EPROTO, libc::EPERM].contains(&errno)
                && let Some(first) = queue.pop_front()
                && let Some(connection) = self.connections.get_mut(&first)
            {
                connection.close(1);
                connection.ends[0].reset(libc::ECONNRESET);
            }
            return Some(Err(errno));
        }
        let first = queue.pop_front().ok_or(libc::EAGAIN);
        Some(first.map(|connection| File::Connected { connection, side: 1 }))
    }

    pub(crate) fn send(&mut self, fd: i32, bytes: &[u8]) -> Answer<usize> {
        self.files.get(&fd)?;
        Some((|| {
            self.strike(Call::Send)?;
            let count = self.faults.piece(bytes.len(), &mut self.random);
            let (connection, side) = self.end(fd).ok_or(libc::ENOTCONN)?;
            connection.send(side, &bytes[..count])
        })())
    }

    pub(crate) fn receive(&mut self, fd: i32, length: usize) -> Answer<Vec<u8>> {
        self.files.get(&fd)?;
        Some((|| {
            self.strike(Call::Receive)?;
            let count = self.faults.piece(length, &mut self.random);
            let (connection, side) = self.end(fd).ok_or(libc::ENOTCONN)?;
            connection.receive(side, count)
        })())
    }

    pub(crate) fn shut_down(&mut self, fd: i32, how: i32) -> Answer<()> {
        self.files.get(&fd)?;
        if let File::Listening { .. } = self.files.get(&fd)?.file {
            self.close_listener(fd);
            return Some(Ok(()));
        }
        let (connection, side) = self.end(fd)?;
        Some(connection.shut_down(side, how))
    }

    /// Connections that nobody will accept are reset.
    fn close_listener(&mut self, fd: i32) {
        let Some(Open { file, .. }) = self.files.get_mut(&fd) else { return };
        let File::Listening { queue, .. } = file else { return };
        for waiting in std::mem::take(queue) {
            if let Some(connection) = self.connections.get_mut(&waiting) {
                connection.close(1);
                connection.ends[0].reset(libc::ECONNRESET);
            }
        }
        *file = File::Fresh(None);
    }

    /// Closes a descriptor, if it is the world's.
    pub(crate) fn close(&mut self, fd: i32) {
        self.close_listener(fd);
        let Some(open) = self.files.remove(&fd) else { return };
        if let File::Connected { connection, side } = open.file
            && let Some(connection) = self.connections.get_mut(&connection)
        {
            connection.close(side);
        }
        for open in self.files.values_mut() {
            if let File::Epoll(watched) = &mut open.file {
                watched.remove(&fd);
            }
        }
        self.connections.retain(|_, connection| !connection.is_gone());
    }

    /// How many bytes are not acknowledged.
    pub(crate) fn outstanding(&mut self, fd: i32) -> Answer<usize> {
        self.files.get(&fd)?;
        let (connection, side) = self.end(fd)?;
        Some(Ok(connection.outstanding(side)))
    }

    /// The answer of `TCP_INFO`.
    pub(crate) fn info(&mut self, fd: i32) -> Answer<Info> {
        let (connection, side) = self.connected(fd)?;
        let connection = self.connections.get_mut(&connection)?;
        if connection.ends.iter().any(|end| self.silent.contains_key(&end.machine)) {
            return Some(Ok(connection.info_of_silent(side, self.now)));
        }
        Some(Ok(connection.info(side, self.now, &mut self.random)))
    }

    pub(crate) fn set_option(&mut self, fd: i32, level: i32, name: i32, value: i32) -> Answer<()> {
        self.files.get(&fd)?;
        if let Err(errno) = self.strike(Call::SetOption) {
            return Some(Err(errno));
        }
        if let Some((connection, side)) = self.end(fd)
            && level == libc::IPPROTO_TCP
        {
            let seconds = Duration::from_secs(value.unsigned_abs().into());
            let end = &mut connection.ends[side];
            // The calls set the time until the first question, then that between the others.
            match name {
                libc::TCP_KEEPIDLE => end.keep_alive = Some(seconds),
                libc::TCP_KEEPINTVL => {
                    end.keep_alive = end.keep_alive.map(|idle| idle + 3 * seconds);
                }
                _ => {}
            }
        }
        Some(Ok(()))
    }

    /// A machine can neither be reached nor reach others any more.
    pub(crate) fn silence(&mut self, machine: usize) {
        self.silent.insert(machine, self.now);
    }

    /// The network makes one of its moves. `false` if there is none.
    pub(crate) fn make_a_move(&mut self) -> bool {
        if self.is_frozen {
            return false;
        }
        let mut moves = Vec::new();
        let mut found: Vec<(usize, Move)> = Vec::new();
        for (number, connection) in &self.connections {
            let called = if connection.is_established {
                None
            } else {
                self.listener_at(connection.ends[1].address)
            };
            let mut machines = connection.ends.iter().map(|end| end.machine).chain(called);
            let is_silent = machines.any(|machine| self.silent.contains_key(&machine));
            if !is_silent && !is_nobodys(connection.ends[1].address) {
                connection.moves(self.now, &mut moves);
                found.extend(moves.drain(..).map(|next| (*number, next)));
            }
        }
        if found.is_empty() {
            return false;
        }
        let (number, next) = self.random.pick(&found);
        if next == Move::Establish {
            self.establish(number);
        } else if let Some(connection) = self.connections.get_mut(&number) {
            connection.make(next, self.now, &mut self.random);
        }
        self.connections.retain(|_, connection| !connection.is_gone());
        true
    }

    /// The machine of the process that listens at an address.
    fn listener_at(&self, wanted: SocketAddrV4) -> Option<usize> {
        let is_it = |open: &&Open| match &open.file {
            File::Listening { address, .. } => *address == wanted,
            _ => false,
        };
        self.files.values().find(is_it).map(|open| open.process)
    }

    /// The request to connect arrives.
    fn establish(&mut self, number: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let wanted = connection.ends[1].address;
        let listener = self.files.values_mut().find_map(|open| match &mut open.file {
            File::Listening { address, queue } if *address == wanted => Some((open.process, queue)),
            _ => None,
        });
        match listener {
            Some((machine, queue)) => {
                connection.ends[1].machine = machine;
                connection.establish(self.now);
                queue.push_back(number);
            }
            None => connection.ends[0].reset(libc::ECONNREFUSED),
        }
    }
}

fn nowhere() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)
}
