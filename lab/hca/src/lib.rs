//! A ConnectX in software: the command `tagmatch-hca`.
//!
//! ```text
//! tagmatch-hca -- tagperf lat --device verbs --hw-tags auto
//! ```
//!
//! The program, and all that it starts, find an mlx5 device that matches tags, through unmodified
//! libibverbs, libmlx5 and UCX. It shows what the driver's half of tag matching does: libmlx5's,
//! tagmatch's and UCX's. It shows nothing about a card: how fast one is, or where it differs from
//! the model.
//!
//! # How it works
//! 1. One system call of the program is trapped, by seccomp user notification:
//!    `ioctl(RDMA_VERBS_IOCTL)`, by which libibverbs makes all objects. The device answers as the
//!    kernel's mlx5 driver does; each refusal in `calls` names the driver's function or its error.
//! 2. `/sys/class` and `/dev` of the program are covered, in a namespace of its own, by directories
//!    with the same entries and the devices'. Without root this needs user namespaces.
//! 3. Queues lie in the program's memory, where libmlx5 puts them. The device reads requests and
//!    writes completions and data there, by process_vm_readv(2).
//! 4. Registers (`UAR` pages) lie in a file in memory that takes the place of the opened device, so
//!    that the device sees a doorbell without a system call.
//! 5. The device has a thread for each process. They exchange packets: a process that withholds its
//!    memory holds up its own thread alone.
//! 6. What matches is the NIC of [`tagmatch_model`].
//!
//! The command is three processes: a guardian, the device, and the program. If the device dies, the
//! guardian says `IBV_EVENT_DEVICE_FATAL` and refuses calls; a program that looks at nothing but
//! its queues waits, as on a dead card. If the guardian is killed, the device kills the programs.
//!
//! # A network
//! With `--port roce:eth0` (an interface, or one of this machine's addresses) the port is one of
//! Ethernet: its GIDs are the interface's addresses, its MTU the longest that the interface has
//! room for. Queue pairs whose peer is elsewhere send packets of RoCE version 2 on UDP port 4791,
//! as InfiniBand's specification has them (volume 1, chapter 9, and annex A17): to another
//! tagmatch-hca, on this machine at another address or on another one, to soft-RoCE, and, by the
//! specification, to a card. **A card at the other end was never seen.** Those whose peer is a
//! program of the same command still talk inside it. No root is needed.
//!
//! ```text
//! tagmatch-hca --port roce:10.0.0.1 -- ibv_rc_pingpong -g 1
//! tagmatch-hca --port roce:10.0.0.2 -- ibv_rc_pingpong -g 1 10.0.0.1
//! ```
//!
//! - Reliable connections answer a gap in the packets' numbers at once, repeat what is not
//!   acknowledged in time, as often as `retry_cnt` says, wait as a receiver without a buffer asks
//!   (`rnr_retry`), carry an atomic operation out once, and ask again for the part of a READ that
//!   was lost. Acknowledgements tell credits; as a sender the device counts none.
//! - At most 32 packets and 64 KiB of a queue pair are under way, so that they don't overrun the
//!   buffer of the peer's socket. That is all there is against congestion.
//! - `--knob loss=1%`, `duplication=1%` and `reordering=1%` have packets go wrong as they leave.
//! - The list of tags is there, for senders of any kind: the headers of tag matching are data.
//! - A receiver behind a UDP socket doesn't see the identification of an IPv4 header, which the
//!   ICRC covers. It is solved for, so that 16 of the check's 32 bits are left (`roce::icrc`).
//!
//! What was seen (`ci/hca-wire`): `ibv_rc_pingpong`, which looks at all bytes, `ibv_ud_pingpong`
//! and perftest's sends, writes, reads and atomic operations between two network namespaces, also
//! with 1 % of the packets lost, repeated and late; `tshark` finds none malformed, and Scapy
//! computes the same ICRCs. perftest's four, and `ibv_rc_pingpong`, with soft-RoCE of Linux 6.1 in
//! an emulated guest, at either end. There, a peer may be too slow for a program whose answers are
//! due in 67 ms. Half a round trip of 4 KiB between two namespaces took 88 us at least and 144 us
//! as a rule, and WRITEs of 1 MiB came at 0.15 GB/s, while other programs had the processors, too.
//!
//! What is missing: version 1, whose GIDs are listed and whose packets are lost; VLANs; addresses
//! that change while the command runs; whether a neighbour is there (`ibv_modify_qp` doesn't wait
//! for it); marks of congestion (ECN, CNP) and source ports by flow (all packets come from 4791);
//! segmentation by the kernel (GSO), `sendmmsg` and AF_PACKET, so each packet is a system call;
//! unreliable connections; SEND with invalidation, which is refused.
//!
//! # Knobs
//! Where no public source says what a card does, `--knob NAME=VALUE` sets it, and `ci/test hca`
//! runs the API's tests and UCX with each behaviour. Other knobs make the devices unlike a ConnectX
//! on InfiniBand, as those that a driver meets on its first day. `--knob help` prints this table:
//!
#![doc = include_str!("../knobs.md")]
//!
//! What was seen of them: rdma-core's test of an eager message expects that it completes at once
//! (`eager_in_two`). libmlx5 takes a rendezvous for software in two steps as `CONSUMED_SW_RDNV` and
//! `EXPECTED` only (`incomplete_in_two`). With `counts_at_answer`, tagmatch matches a tenth less in
//! the NIC. No other difference was seen in libmlx5, tagmatch or UCX.
//!
//! Without a knob: a message that is longer than its entry breaks the connection, and its match has
//! no second completion, since libmlx5 takes an error's index for that of a shared receive; a
//! message that is lost with its connection likewise. The errata of a firmware are not modelled.
//!
//! # Faults
//! `--fault "500ms:outage 2s"` has something go wrong so long after the program's start, and
//! `tagmatch-hca ctl outage 2s` at once, from outside or inside (of the same user, in the same
//! network namespace). A program asks for the same by a line in a file: `echo "outage 2s" >
//! /sys/class/tagmatch-hca/control`. Behind a fault, `mlx5_1` says that one device alone is meant.
//! The report (`--report`) counts them for each process. `--fault help` prints this table:
//!
#![doc = include_str!("../faults.md")]
//!
//! # Limits
//! - x86-64, and programs of 64 bits. Others find no device that answers.
//! - Reliable connections and datagrams. No XRC, DC, DEVX, memory windows, device memory, on-demand
//!   paging, or resizing of receive queues. Completion queues are resized where commands that wait
//!   can't be interrupted: since Linux 5.19.
//! - RoCE by `--knob link_layer=ethernet`, which leads to no network, has no network devices behind
//!   its GIDs, and no VLAN: a program that asks for either finds none. There is no rdma_cm, and so
//!   no connection over iWARP.
//! - RDMA WRITE with immediate data to a queue with a list of tags is refused.
//! - Programs inside gain nothing by sudo or setuid (`no_new_privs`), and can't start tagmatch-hca
//!   again.
//! - Before Linux 5.19, a signal interrupts a command, which is undone and repeated: a timer must
//!   give it time, some milliseconds.
//! - A libibverbs that gives commands by write(2), not by ioctl(2), finds its writes refused: it
//!   can't open the device.
//! - A program that becomes another one by execve(2) with an open device should close it before.
//!
//! | module | contents |
//! |---|---|
//! | `command_line`, `settings`, `knobs` | options, and what they mean |
//! | `guardian`, `serve`, `program`, `wire` | the processes of the command, and what they tell each other |
//! | `namespace`, `sysfs` | what the program sees |
//! | `seccomp`, `abi`, `boundary`, `calls` | trapped calls, their structures, and their answers |
//! | `memory`, `doorbells`, `channel` | the program's memory, registers, and descriptors of events |
//! | `wqe`, `cqe` | requests and completions, as libmlx5 writes and reads them |
//! | `nic` | queues, connections, and the list of tags; `nic::wired`: connections over a network |
//! | `roce` | packets of RoCE, and the sockets that carry them |
//! | `gid` | the names of ports, and routes |
//! | `fault`, `control`, `control_socket`, `ctl`, `strikes` | what goes wrong on request, who asks for it, and when it is due |
//! | `priority` | how soon a thread of the device gets a processor |

#![allow(
    clippy::cast_possible_truncation,
    reason = "formats of the kernel and of the card have fields of fixed widths"
)]

mod abi;
mod boundary;
mod calls;
mod channel;
mod command_line;
mod control;
mod control_socket;
mod cqe;
mod ctl;
mod doorbells;
mod fault;
#[doc(hidden)]
pub mod fuzzing;
mod gid;
mod guardian;
mod knobs;
mod memory;
mod namespace;
mod nic;
mod priority;
mod program;
mod roce;
mod seccomp;
mod serve;
mod settings;
mod strikes;
mod sysfs;
#[cfg(test)]
mod tests;
mod wire;
mod wqe;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rustix::process::Pid;
use tagmatch_os::notice;

use command_line::Options;
use wire::{Notice, Wire};

/// Runs the command with these arguments, of which the first is not its name.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    if arguments.first().is_some_and(|first| first == "ctl") {
        return ctl::run(&arguments[1..]);
    }
    let name = OsString::from("tagmatch-hca");
    let options = match Options::try_parse_from([name].iter().chain(&arguments)) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 125 } else { 0 });
        }
    };
    if let Some(help) = options.help() {
        let _ = io::stdout().write_all(help.as_bytes());
        return ExitCode::SUCCESS;
    }
    let status = match options.stage.as_deref() {
        None => guard(&options, &arguments),
        Some("device") => serve(&options, &arguments),
        Some(_) => start(&options),
    };
    status.unwrap_or_else(|error| {
        notice::tell(&format!("tagmatch-hca: {error}"));
        ExitCode::from(125)
    })
}

/// The exit status of a program by its status of waitpid(2), as shells give it.
fn exit_code(status: i32) -> u8 {
    let signal = status & 0x7f;
    let code = if signal == 0 { status >> 8 & 0xff } else { 128 + signal };
    u8::try_from(code).unwrap_or(125)
}

fn guard(options: &Options, arguments: &[OsString]) -> io::Result<ExitCode> {
    options.settings().map_err(io::Error::other)?;
    guardian::adopt()?;
    let (own, other) = Wire::pair()?;
    let device = guardian::start("device", &other, arguments)?;
    drop(other);
    Ok(exit_code(guardian::watch(&own, device)?).into())
}

/// The wire that this process was started with.
fn inherited(options: &Options) -> io::Result<Wire> {
    let fd = options.wire.filter(|fd| *fd > 2).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the process that has started this one says that the descriptor is for it alone.
    let wire = Wire::new(unsafe { OwnedFd::from_raw_fd(fd) });
    rustix::io::fcntl_setfd(std::os::fd::AsFd::as_fd(&wire), rustix::io::FdFlags::CLOEXEC)?;
    Ok(wire)
}

/// The arguments without those of a stage.
fn plain(arguments: &[OsString]) -> &[OsString] {
    arguments.get(4..).unwrap_or_default()
}

fn serve(options: &Options, arguments: &[OsString]) -> io::Result<ExitCode> {
    let guardian = inherited(options)?;
    guardian::adopt()?;
    let settings = options.settings().map_err(io::Error::other)?;
    // An address in use is found before the program begins.
    let network = roce::socket::RoceWire::open(settings.ports()).map_err(io::Error::other)?;
    let (own, other) = Wire::pair()?;
    let mut program = guardian::start("program", &other, plain(arguments))?;
    drop(other);
    let Some((Notice::Listener(pid), Some(listener))) = own.hear()? else {
        // The program's process has said why.
        let status = program.wait()?;
        return Ok(ExitCode::from(
            status.code().and_then(|code| code.try_into().ok()).unwrap_or(125),
        ));
    };
    let first = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let first = first.ok_or(io::ErrorKind::InvalidData)?;
    guardian.say(Notice::Listener(pid), Some(std::os::fd::AsFd::as_fd(&listener)))?;
    let server = serve::Server::new(listener, guardian, settings, first);
    server.connect(network)?;
    own.say(Notice::Go, None)?;
    let (status, reports) = server.run();
    if let Some(place) = &options.report {
        let text = serde_json::to_string_pretty(&reports).map_err(io::Error::other)?;
        match place.as_str() {
            "-" => notice::print(&(text + "\n"), Duration::MAX),
            file => std::fs::write(file, text + "\n")?,
        }
    }
    Ok(exit_code(status).into())
}

fn start(options: &Options) -> io::Result<ExitCode> {
    let device = inherited(options)?;
    let settings = options.settings().map_err(io::Error::other)?;
    let error =
        program::become_program(&device, &settings, !options.interruptible, &options.program);
    notice::tell(&format!("tagmatch-hca: {error}"));
    Ok(ExitCode::from(u8::try_from(error.exit_status()).unwrap_or(125)))
}

#[cfg(test)]
mod exit_codes {
    use super::exit_code;

    /// `<bits/waitstatus.h>`: the signal, 0x80 for a dump of memory, and the status above.
    #[test]
    fn a_program_ends_as_shells_say() {
        let ends = [0, 3 << 8, 255 << 8, 9, 11 | 0x80].map(exit_code);
        assert_eq!(ends, [0, 3, 255, 128 + 9, 128 + 11]);
    }
}
