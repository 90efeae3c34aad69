//! TCP: the device for networks without RDMA.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! | module | contents |
//! |---|---|
//! | `device` | the type [`Tcp`]: its parts, and the calls of a device |
//! | `poll`, `ready`, `inbox` | what a poll does; descriptors that are ready; received bytes |
//! | `frame` | the frames that travel over a connection |
//! | `connection`, `send_half`, `piece`, `unsent`, `reads` | a connection to a peer: what is sent, and this worker's reads |
//! | `accesses`, `puts`, `regions`, `sources` | puts and gets of this worker; puts of a peer; what they reach; memory of streams |
//! | `greeting`, `handshake` | the bytes of a handshake, and its two ends |
//! | `listeners`, `accept`, `connect` | listening sockets; connections of others, and to others |
//! | `ending`, `leaving`, `leave`, `busy` | how connections begin and end; leaving without loss; machines that are gone |
//! | `sleep`, `flush_wait`, `clock` | sleeping until there is something to do; the time that deadlines count |
//! | `peers`, `numbers` | the peers; numbers of descriptors |
//! | `hosts`, `refused_machines` | what machines that connect may take; machines that were refused |
//! | `address`, `config` | what is in an address; settings |
//!
//! # How two workers connect
//! 1. Each worker listens on one port of the addresses that [`TcpConfig`] allows. Its address names
//!    the port, up to ten IP addresses, and a random name that tells this worker from an earlier
//!    one on the same port. The job's [`Secret`] is not in the address.
//! 2. A worker that connects tries the IP addresses one after the other. The kernel takes
//!    connections for a worker that is busy. Such a worker is waited for without a limit.
//! 3. The connecting end says a random number and its worker's address; the listening end answers
//!    with its own. Then each end proves that it knows the secret: it sends a keyed hash over its
//!    role, both random numbers and both addresses (`greeting`). The connecting end proves itself
//!    only to the worker that it wanted to reach, and the listening end only to an end that has
//!    proved itself. All steps have a fixed length. Nothing behind them is received before both
//!    proofs are right.
//! 4. If both workers connect at the same time, the connection that the worker with the smaller
//!    address began counts. If that worker hasn't sent its proof yet, it takes the other
//!    connection.
//!
//! # What travels
//! Frames: a header of 12 bytes, and a message or a part of a read or a put (`frame`). A message is
//! sent by one system call, with header and payload as separate parts. What the kernel doesn't take
//! waits in the peer's outbox, which is bounded ([`TcpConfig::outbox_bytes`]).
//!
//! A reader asks for exposed memory by a frame. The owner sends the bytes out of the exposed
//! buffer, in pieces, and the reader receives them into its own buffer. Several reads take turns,
//! and messages go between the pieces. A message waits for the piece that was begun, and for what
//! the kernel holds and hasn't sent (`TCP_NOTSENT_LOWAT`): two pieces. A piece has 64 KiB, or what
//! the connection sends in a sixteenth of a millisecond if that is more (`unsent`).
//!
//! # Puts and gets
//! The owner of a region publishes it, and a peer names its bytes by the region's key.
//! - **A get** is a read: its request names the bytes, and the owner sends them out of the region.
//! - **A put** is a stream in the other direction: a frame that names the bytes, and pieces that go
//!   straight out of the buffer. The owner looks at key, right and bounds before the first byte is
//!   written, and receives the bytes into the region. It answers after the last one: then they are
//!   visible to all its processors. The bytes of a put that isn't allowed are received and dropped.
//! - **Order.** An access begins once the put before it was sent, so the bytes of puts come in
//!   their order, and a get reads after the puts before it. Accesses end in their order.
//! - **Turns.** While puts and reads both have bytes to send, each kind is given as many bytes as
//!   the other, however long they are. While one-sided operations are under way, a call sends 384
//!   KiB of reads at most: the next operations wait for that, and not for 2 MiB. A request or an
//!   answer that comes while the socket is watched for room sends nothing at once: the reads that
//!   are there would take the turn of those whose requests come behind it.
//! - **Closing.** Region memory is used in calls of the device alone, so after
//!   [`Device::unpublish`](tagmatch_device::Device::unpublish) nothing reads or writes it. What
//!   comes of a put afterwards is dropped; a get fails.
//!
//! # What peers and other processes can cost
//! - A process that has not proved itself: one of 256 pending connections, each with less than 200
//!   bytes here. The kernel holds what it sends beyond that, and connections that weren't accepted
//!   yet. If all are taken, one that is older than a tenth of a second is closed for a new one. A
//!   pending connection ends after [`TcpConfig::connect_timeout`], which counts only time in which
//!   this worker polls or sleeps. The first refusal of each machine is logged.
//! - A peer: one partial frame, 64 requested reads and gets, 16 answers to puts, and the outbox. A
//!   peer that breaks a rule goes down. Other peers are not affected. Exposed memory is read by the
//!   peer that it was exposed to: a peer that asks with another's key, which it may have guessed,
//!   has broken a rule.
//! - A machine: [`TcpConfig::host_peers_max`] peers that have connected to this worker, under
//!   whatever names. All addresses of loopback are one machine, and all of one /64 of IPv6.
//! - All peers that connect together: the descriptors of this process but the last ones, a 64th, 1
//!   to
//!   16. Those are left for peers that this worker connects to. Callers wait then, and try again.
//!
//! # How a death is noticed
//! - A peer that ends in order sends a frame for that. The end of a process, even by a signal,
//!   closes its connections, and the peers are told at once.
//! - A machine that is gone while a connection is idle is noticed by the kernel's keep-alives
//!   ([`TcpConfig::keep_alive`]).
//! - While data is under way, the age of the last acknowledgement tells
//!   ([`TcpConfig::acknowledge_timeout`]). A peer that doesn't receive, and whose machine
//!   acknowledges, is alive. On kernels before 6.15, a machine that goes while its window is shut
//!   is noticed up to two minutes later.
//!
//! # Leaving
//! [`Device::flush`](tagmatch_device::Device::flush) ends when the other machine has acknowledged.
//! Dropping the device, or disconnecting a peer, sends what waits and keeps the socket until it is
//! acknowledged, for up to [`TcpConfig::leave_timeout`]. Acknowledged bytes are in the peer's
//! kernel: a peer that lives will receive them.
//!
//! # What a worker's name proves
//! Nothing, among holders of the secret: they trust each other to use their own addresses. The
//! proof of a greeting is one of the job's secret, which all workers have, so a hostile worker of
//! the job can connect with the address of another worker, as long as the two aren't connected. It
//! gets what is sent to that worker then, its messages count as that worker's, and the worker
//! itself is refused. What holds all the same: an address whose peer is up, and this worker's own,
//! can't be taken over; the peer's connection isn't harmed by the attempt; and a process without
//! the secret gets in under no name.
//!
//! # What is not protected
//! Only the beginning of a connection is protected. Whoever can read the packets of the network can
//! read the messages. Whoever can change packets can change messages. The proofs don't tell the
//! secret, but a secret that can be guessed can be tried out on a proof that was seen.
//!
//! # After fork
//! A worker belongs to the process that made it. A forked child has none of its sockets
//! (`hw/os/src/fork.rs`), so peers notice the end of the process while the child lives, on this
//! machine and on others. The child may drop the worker, which ends no
//! connection, or call exec.
//!
//! # Decisions
//! - **Deadlines count progress.** A worker that computes for a minute finds the bytes that came
//!   meanwhile, and deadlines that are not over: the clock of the device stands still while nobody
//!   polls or sleeps. The kernel takes connections for a busy worker, so a machine that has
//!   answered is waited for without a limit.
//! - **Which machines are gone.** The kernel's keep-alive watches idle connections. While data is
//!   under way, the age of the last acknowledgement counts, but only while the kernel waits for
//!   one: it asks a peer whose window is shut more and more seldom, so the age alone would end
//!   connections to peers that live and compute. `TCP_RTO_MAX_MS` (Linux 6.15) makes the kernel ask
//!   often enough that a machine that dies with its window shut is noticed in time, too.
//! - **Several pieces by one call.** Each call of sendmsg(2) ends in a packet that isn't full, and
//!   BBR, where it is the machine's choice, paces each packet by a timer. Reads of 1 MiB over
//!   loopback ran at 0.3 of a bare socket stream with one piece a call, and with runs of up to 1
//!   MiB at 1.2 of it (with CUBIC at 0.6 and 0.95).
//! - **Where a put's first bytes land.** A frame that begins a put may come together with the first
//!   bytes behind it, in one receive into the inbox, which are then copied. So after a put the next
//!   receive is short, and the bytes of the puts that follow it go straight into their regions.
//! - **Nothing is lost by leaving.** A socket that is closed while received bytes wait in it resets
//!   its connection, and what is under way to the peer is lost. So a worker that leaves drops what
//!   still comes until the peer has acknowledged everything.
mod accept;
mod accesses;
mod address;
mod audit;
mod busy;
mod clock;
mod config;
mod connect;
mod connection;
mod device;
mod ending;
mod flush_wait;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod greeting;
mod handshake;
#[cfg(test)]
mod hostile;
mod hosts;
mod inbox;
mod leave;
mod leaving;
mod listeners;
mod numbers;
mod peers;
mod piece;
mod poll;
mod puts;
mod reads;
mod ready;
mod refused_machines;
mod regions;
mod send_half;
mod sleep;
mod sources;
mod unsent;

pub use config::TcpConfig;
pub use device::Tcp;
pub use tagmatch_secret::Secret;
