//! Communicators on `tagmatch`: what a message-passing runtime builds on tag matching.
//!
//! A [`Runtime`] is a process's part in a job. It gives the communicator of all processes, and from
//! that come others: duplicates, parts, groups. Each has its own context, so that its messages meet
//! no others, and its own table of collective operations, which layers may override.
//!
//! ```
//! use tagmatch::{Config as WorkerConfig, Worker};
//! use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
//! use tagmatch_comm::net::worker::WorkerNet;
//! use tagmatch_comm::{Config, Runtime, Source};
//!
//! // A job of one process. With more, every process is given the addresses of all, in one order.
//! let worker = Worker::new(WorkerConfig::default())?;
//! let addresses = vec![worker.address()];
//! let runtime = Runtime::new(WorkerNet::new(worker, addresses, 0)?, Config::default())?;
//! let world = runtime.world();
//!
//! let part = world.split(Some(7), 0).wait()?.expect("this process has given a colour");
//! let hello = part.send(0, 1, b"hello".to_vec());
//! let message = part.mprobe_blocking(Source::Any, 1)?;
//! let room = vec![0; usize::try_from(message.status().length)?];
//! assert_eq!(message.recv(room).wait()?.data(), b"hello");
//! hello.wait()?;
//! let sum = part.allreduce(to_bytes(&[42u64]), &Op::sum::<u64>()).wait()?;
//! assert_eq!(from_bytes::<u64>(&sum), [42]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | join a job | [`Runtime`], [`net::worker::WorkerNet`] |
//! | make communicators | [`Comm::dup`], [`Comm::split`], [`Comm::create`], [`Comm::create_group`] |
//! | speak to another group | [`Comm::create_inter`], [`InterComm`], [`InterComm::send`] |
//! | make intercommunicators of its parts | [`InterComm::create`], [`InterComm::split`] |
//! | do something together with it | [`InterComm::barrier`], [`InterComm::allreduce`] and others |
//! | meet another job | [`Runtime::open_port`], [`Comm::accept`], [`Comm::connect`] |
//! | start one, and meet it | [`Comm::spawn`] |
//! | send, receive, probe | [`Comm::send`], [`Comm::recv`], [`Comm::mprobe`], [`Message`] |
//! | do something together | [`Comm::barrier`], [`Comm::allreduce`] and the others in [`coll`] |
//! | have its parts by machine | [`Comm::intranode`], [`Comm::internode`] |
//! | keep something with one | [`Comm::set_attribute`], [`Keyval`], [`ErrorHandler`] |
//! | wait for many things | [`Runtime::block_on`], [`Runtime::progress_thread`] |
//! | go on after failures | [`Comm::revoke`], [`Comm::agree`], [`Comm::shrink`], [`InterComm::shrink`], and [`ft`] |
//! | stand between | [`coll::CollLayer`] |
//! | run it on another transport | [`net::Net`] |
//! | wrap a transport | [`forward_net!`] |
//!
//! Sends and receives return a [`Request`]. Calls of several processes together return a
//! [`Collective`], which is waited for, started or awaited. Each operation is a state machine that
//! progress drives. At level `trace`, a logger of the crate `log` learns how each collective
//! operation is carried out.
//!
//! # Layers
//! Each of these modules uses only modules that stand below it, or further right in its row. So
//! `coll` and `ft` know nothing of each other.
//!
//! | module | contents |
//! |---|---|
//! | `fuzzing` | what fuzz targets call |
//! | `inter` | intercommunicators, ports, spawning |
//! | `runtime` | what a process has, and the settings |
//! | `creation` | communicators that are made of others |
//! | [`coll`] | the collective operations of a communicator, also in shared memory |
//! | `comm` | a communicator: its table, sends, receives, probes, attributes, failures |
//! | `shared_memory` | a member's part in operations in shared memory |
//! | `plans` | collective operations as data, and the machine that carries them out |
//! | `driver` | the transport and all state machines of a process, and how calls wait |
//! | [`ft`] | the service for failures: agreements, revocations, ids at rest |
//! | `mailbox`, `names` | letters between processes of any job |
//! | `life`, `settings`, `remote` | what is known of a communicator's members; settings that all have in common |
//! | [`alloc`] | which context ids are free |
//! | `group`, [`net`], [`ids`] | groups of processes; the transport; context ids |
//! | `error`, `net_values`, `context_id` | errors, and the values in them |
//!
//! # How it works
//! `comm/` is the communicator layer that a message-passing runtime builds on the public API. It
//! reaches its transport through one small trait (`net/transport.rs`). A worker implements the
//! trait. So does a simulated network (`lab/comm-sim/`) that runs all processes in one thread and
//! draws every delay and death from a seed. Everything above the trait is a set of state machines.
//! Progress drives them, under one lock per process. A collective call is one method, which returns
//! a `Collective` (`comm/collective.rs`): `wait` drives the machine in the calling thread, `start`
//! hands it to whatever makes progress, and `.await` starts it, too.
//!
//! 1. `Comm::dup` starts a machine (`creation/create.rs`). Each round offers the free context ids,
//!    reduces the offers by AND and looks at the result, until there is an id.
//! 2. The allocation of context ids (`alloc/`) is pure: it decides which allocation holds which
//!    part of the mask, and in which order. `alloc/tests/explore.rs` tries every order of steps of
//!    a few processes and threads.
//! 3. A collective operation is a *plan* (`plans/plan.rs`, `plans/algorithms/`): sends, receives
//!    and combinations in rounds, as data. One machine (`plans/exchange.rs`) carries out all plans.
//!    A communicator keeps its last small plan of each kind (`plans/repeats.rs`), because programs
//!    repeat their operations. The next operation of the same shape allocates no memory.
//! 4. A collective operation goes through the communicator's table (`comm/table.rs`). A table is
//!    immutable, and shared by all communicators that were patched alike. An entry that a layer has
//!    not overridden is the entry of the layer beneath, so no entry is ever missing.
//! 5. A blocking call (`driver/waiting.rs`) first polls many times, then yields, then sleeps. Where
//!    more processes of the job than processors share this process's processors
//!    (`net/worker/place.rs`), it polls 4 times and yields 64 times: the awaited process may need
//!    the processor. With 16 yields some ranks sleep although a yield works. More than 64 cost time
//!    where a yield doesn't reach the other processes, because each is a scheduling group of its
//!    own (sched(7), autogroup). Where other threads than ranks want the processor, waits notice it
//!    by a yield during which another thread ran, as those of a worker do
//!    ([`WaitPolicy::adapts`](tagmatch::WaitPolicy#structfield.adapts)), and hardly poll for a
//!    while. Of the sleeping threads of a process, one sleeps on the worker's
//!    descriptor. The others are woken whenever that thread is. If a thread that is awake completes
//!    an operation that a sleeper waits for, the operation itself wakes the sleeper: before a
//!    thread sleeps, it polls its operations as futures, with the sleeper as their waker.

#![forbid(unsafe_code)]
// An error of the transport that is dropped leaves others waiting for ever.
#![deny(clippy::let_underscore_must_use, clippy::unused_result_ok)]

pub mod alloc;
pub mod coll;
mod comm;
mod context_id;
mod creation;
mod driver;
mod error;
pub mod ft;
#[doc(hidden)]
pub mod fuzzing;
mod group;
pub mod ids;
mod inter;
mod life;
mod mailbox;
mod names;
pub mod net;
mod net_values;
mod plans;
mod remote;
mod runtime;
mod settings;
mod shared_memory;

pub use comm::{CollRequest, Collective, Comm, CommInfo, ErrorHandler, Keyval, Message};
pub use comm::{Destination, Received, RecvRequest, SendRequest, Source, Status, TagChoice};
pub use driver::{Pending, Request};
pub use error::{Error, ErrorClass, Failed};
pub use group::{Group, Likeness};
pub use inter::{InterAgreed, InterComm, InterRoot, OpenPort, PortName, RemoteLeader, Uniformity};
pub use runtime::{Config, Runtime};
pub use tagmatch::ProgressThread;
