//! A libfabric provider for tests that behaves as HPE's `cxi` does, without its NIC.
//!
//! The NIC of the largest machines, HPE Slingshot, matches tags in hardware, and is reached through
//! libfabric alone. What a program must bear from it is tested here on any machine: libfabric loads
//! this library and finds a provider named `cxi`. It is no product: it carries messages between
//! processes of one machine and one user, and isn't fast. It offers tagged messages alone, and
//! neither registers memory nor counts in counters. **No line of it was compared with a NIC**: what
//! it does is what cxi's source and manual page say (libfabric 2.6, `prov/cxi`, fi_cxi(7)).
//!
//! # Use
//! ```text
//! mkdir /tmp/cxi && ln -s $PWD/target/debug/libtagmatch_cxi_fi.so /tmp/cxi/libtagmatch_cxi-fi.so
//! FI_PROVIDER_PATH=/tmp/cxi TAGMATCH_CXI_NIC=cxi0 fi_info -p cxi -v
//! ```
//! [`install`] makes the link for a test. The provider needs a libfabric without a cxi of its own,
//! as that of Debian 12 is.
//!
//! # Habits
//! What cxi does, and a program has to bear:
//!
//! - Tags have 48 bits; longer ones, also as bits to ignore, are `-FI_EINVAL`. A second offer, of
//!   the protocol `FI_PROTO_CXI_RNR`, has 40 bits and no order; an endpoint of it doesn't open.
//! - Receives that name a source and receives that name none are on one list. Messages are
//!   unexpected in the order in which they arrived, whoever sent them.
//! - Completions have 8 bytes of data. 192 bytes can be injected, a message has one part and at
//!   most 2^32 - 1 bytes. An injected message that fails has an error entry without a context.
//! - `FI_MATCH_COMPLETE` is true, and fi_getinfo(3) takes it as the default of sends.
//! - `FI_PEEK` is answered through the completion queue, some rounds later. While a search that
//!   claims is under way, receives and searches are `-FI_EAGAIN`. The name of the claimed message
//!   is in the context's memory. `FI_DISCARD` is `-FI_EBADFLAGS`.
//! - A cancelled receive ends some rounds later, unless a message is faster. Without such a
//!   receive, or if its message is being read, the call answers `-FI_ENOENT`.
//! - Without a free list entry, an endpoint in hardware mode goes through flow control: receives
//!   and searches are `-FI_EAGAIN`, and so are sends to it; a claim is answered as if there were no
//!   message. If its receives alone take all entries, the process aborts. In hybrid mode software
//!   matches from then on.
//! - The mode is `FI_CXI_RX_MATCH_MODE`, or the argument of
//!   `fi_control(domain, FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE, "hybrid")` before the first
//!   endpoint. Later, cxi takes a mode and applies it to later endpoints; here it is `-FI_EBUSY`.
//! - Sends to a dead process end with an error. A long send that has reached the process, and a
//!   send that waits for its match, never end. A peer that dies in flow control leaves its senders
//!   with `-FI_EAGAIN`.
//! - fi_close(3) of an endpoint waits for sends, at most three seconds. What is left has no entry.
//! - Progress is made by reading the completion queue alone. Its descriptor wakes for packets;
//!   fi_trywait(3) must be asked first.
//!
//! Its own: a socket has room for ten packets (`net.unix.max_dgram_qlen`), so a sender may have to
//! make progress where cxi's NIC needs none; list entries are counted by endpoint; searches in
//! software mode take as many rounds as others.
//!
//! # Knobs
//! Environment variables, read when a fabric is opened, with their usual values. A *round* is one
//! read of the completion queue.
//!
//! - `TAGMATCH_CXI_NIC` (none): the NIC: `cxi0` to `cxi255`; without it there is none. Endpoints of
//!   different NICs don't reach each other.
//! - `FI_CXI_RX_MATCH_MODE` (`hardware`): cxi's own: `hardware`, `hybrid` or `software`.
//! - `TAGMATCH_CXI_CONTROL` (`on`): `off`: fi_control(3) can't set the mode, as before libfabric
//!   2.4.
//! - `TAGMATCH_CXI_ENTRIES` (15360): list entries of an endpoint, for receives and unexpected
//!   messages.
//! - `TAGMATCH_CXI_TAKEN` (0): of a thousand unexpected messages, how many find no entry, because
//!   others have all. Needs a seed.
//! - `TAGMATCH_CXI_SECOND` (`abort`): `wait`: a second exhaustion in flow control waits for an
//!   entry.
//! - `TAGMATCH_CXI_ONLOAD` (4): rounds that each change of the state takes.
//! - `TAGMATCH_CXI_PEEK` (2): rounds until a search is answered.
//! - `TAGMATCH_CXI_CANCEL` (2): rounds until a cancelled receive ends.
//! - `TAGMATCH_CXI_GET` (1): rounds from the match of a message of more than 16 KiB until its bytes
//!   are there.
//! - `TAGMATCH_CXI_MATCH_IDS` (2048): sends at a time that wait for a match; more are `-FI_EAGAIN`.
//! - `TAGMATCH_CXI_DEATH` (`EHOSTUNREACH`): how sends to the dead end: also `ENOTCONN`, `EIO`.
//! - `TAGMATCH_CXI_CLOSE_MS` (3000): how long closing an endpoint waits at most.
//! - `TAGMATCH_CXI_WAKE` (`on`): `off`: the descriptor wakes nobody. cxi's may miss a packet
//!   (fi_cxi(7), *Wait Objects*).
//! - `TAGMATCH_CXI_SYSFS` (none): the folder that stands for `/sys/class/cxi`: the counters are in
//!   `cxi0/device/telemetry/`; without it there are none.
//! - `TAGMATCH_CXI_TELEMETRY_LOST` (0): of a thousand counted messages, how many aren't counted.
//!   Needs a seed.
//! - `TAGMATCH_CXI_AGAIN` (0): of a thousand sends, receives and searches, how many are
//!   `-FI_EAGAIN` without a reason. Needs a seed.
//! - `TAGMATCH_CXI_SEED` (none): makes each number of rounds a random one up to that of its knob,
//!   and the knobs that need a seed work.
//!
//! The counters are `lpe_net_match_priority_N` (messages that met a posted receive),
//! `lpe_net_match_overflow_N` (unexpected ones) and `lpe_net_match_request_N` (those that software
//! matched); N is 0 to 3, and the sum counts. They are the NIC's: all processes count in them.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `provider`, `offer` | what this provider is, for the tables of functions of `tagmatch-ofi-provider`; its answer to `fi_getinfo` |
//! | `endpoint` | an endpoint: `sender`, `matcher` with its `lists` and `mode` |
//! | `transport`, `wire` | datagram sockets, and the packets on them |
//! | `telemetry` | the NIC's counters, as files |
//! | `effects` | completions, and packets to send |
//! | `settings`, `chance` | the knobs, and what is left to chance |
//!
//! # A message
//! 1. `sender` puts it behind the receiver's earlier ones, and sends it as soon as the receiver's
//!    socket has room. Up to 16 KiB travel with it; a longer message is only announced.
//! 2. The receiver's round of progress takes it from the socket. `matcher` gives it to the oldest
//!    receive that accepts it, or keeps it.
//! 3. The bytes of a long message are read out of its sender's memory (process_vm_readv(2)) some
//!    rounds after the match. Then the sender is told; so it is for `FI_MATCH_COMPLETE`.

mod chance;
mod effects;
mod endpoint;
mod install;
mod offer;
mod provider;
mod settings;
mod telemetry;
mod transport;
mod wire;

pub use install::install;
pub use provider::fi_prov_ini;
