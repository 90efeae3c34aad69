//! Options of `serve` and `run`, and of the hidden command `peer`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use tagmatch_launch::launcher::Host;

use crate::spec::DeviceArg;
use crate::spec::bounds::{PORT, RANKS_MAX};

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// TCP port for control messages (0: any free one, printed)
    #[arg(long, value_name = "N", default_value_t = PORT)]
    pub(crate) port: u16,
    /// Address to listen on. Clients must know the secret, which is printed if it is new
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) bind: IpAddr,
    /// Device that carries messages on this side: shm, verbs (RDMA), tcp, ucx or ofi [any but
    /// ucx and ofi, as the client asks]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceArg>,
    /// End after the first client whose measurements were completed
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    /// How many processes
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    pub(crate) n: u32,
    /// Machines to start them on, through an agent: a,b or a:2,b:4 (with slots); in blocks of ranks
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', conflicts_with = "hostfile")]
    pub(crate) hosts: Vec<Host>,
    /// File with the machines: one `a`, `a:2` or `a slots=2` a line
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// How many processes on each machine, one machine after the other [slots, or evenly]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ppn: Option<u32>,
    /// Command that is given a machine and a text for the shell there, and connects this shell's
    /// input and output [ssh]
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Begin each line of output with the rank that wrote it: [3] ..., of the first job spawned
    /// [1:3] ...
    #[arg(long)]
    pub(crate) label: bool,
    /// Let the others go on when a process fails; without it they are ended, spawned ones too
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Command to start, with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Peer {
    /// The client's name for the log
    #[arg(long)]
    pub(crate) client: Option<String>,
    /// The device that `serve` was started for
    #[arg(long)]
    pub(crate) device: Option<DeviceArg>,
}
