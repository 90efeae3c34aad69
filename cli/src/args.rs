//! The command line: every option, its unit, its bounds, and what would be right.

mod collective;
mod depth;
pub(crate) mod device;
mod effort;
mod host;
pub(crate) mod hw_tags;
mod pin;
pub(crate) mod report;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::failure::Failure;
use crate::units::{self, Sizes};
pub(crate) use collective::{Bulk, Collective, Recovery};
pub(crate) use depth::{Depth, Threads};
use device::DeviceArg;
pub(crate) use effort::{Effort, Limits};
pub(crate) use host::Host;
use hw_tags::HwTagsArg;
pub(crate) use pin::{Pin, PinChoice};

/// Where `serve` listens and a client knocks, unless told.
pub(crate) const PORT: u16 = 13338;
/// Bounds that both the command line and a serving side hold a run to.
pub(crate) const DEPTH_MAX: u64 = 1 << 20;
pub(crate) const WINDOW_MAX: u64 = 1 << 14;
pub(crate) const ITERS_MAX: u64 = 1 << 40;
pub(crate) const THREADS_MAX: u64 = 64;
pub(crate) const IDLE_MAX: u64 = 1024;
/// Processes of one machine.
const RANKS_MAX: i64 = 4096;

const TOUR_EXAMPLES: &str = "\
Measuring, with their own --help: tagperf lat | bw | bibw | rate | depth, and at N ranks
barrier | bcast | allreduce | alltoall | dup | agree | shrink
Exit status: 0 good, 1 a measurement or verification failed, 2 bad usage or input, 130 ^C
Fields of the JSON output: cli/JSON.md in the source tree

Examples:
  tagperf                                         the tour, under 30 seconds
  tagperf lat --sizes 8 --json -                  one size, one line of JSON, nothing else
  tagperf depth                                   does depth cost anything?
  tagperf serve --once                            one side ...
  tagperf bw 127.0.0.1                            ... and the other
  tagperf replay app.trace --matches -            your application's own matching";

const MEASURE_EXAMPLES: &str = "\
N may end in K, M or G, binary as sizes: 4K is 4096

Examples:
  tagperf lat --sizes 0..4M --duration 500ms
  tagperf lat --sizes 8 --iters 100000 --pin 0,1 --json lat.json
  tagperf bw --sizes 4K,64K,1M --window 32
  tagperf rate --posted-depth 1024 --wildcard-recv
  tagperf lat 127.0.0.1:13338 --unexpected-depth 256
  tagperf lat --sizes 8 --rate 100k --duration 5s
  tagperf rate --self --threads 1,2
  tagperf lat --sizes 4K --hw-tags model          a NIC matches: a model of one, here
  tagperf lat node7 --device verbs                RDMA to `tagperf serve --bind ADDRESS` there";

const DEPTH_EXAMPLES: &str = "\
N may end in K, M or G, binary as sizes: 4K is 4096

Examples:
  tagperf depth
  tagperf depth --queue posted --depths 0,1K,64K --wildcard 0,100 --json -
  tagperf depth --drain --order forward,reverse,random,adversarial --depths 1K,16K";

const RUN_EXAMPLES: &str = "\
Exit status: that of the first process that failed, 128 and the signal's number if one killed it

Examples:
  tagperf run -n 2 -- tagperf lat                 as `mpiexec -n 2 tagperf lat`
  tagperf run -n 4 --label -- ./app               which rank says what?
  tagperf run -n 4 --keep-going -- ./app          the others survive a rank that is killed";

const COLLECTIVE_EXAMPLES: &str = "\
Each rank times each call, a barrier before it keeps them together; avg, min and max are over the
ranks' means, p50 and p99 are of rank 0's times. bcast: the last rank has the bytes; dup: with free

Examples:
  tagperf allreduce -n 4                          4 ranks that it starts here by itself
  mpiexec -n 4 tagperf barrier                    as ranks of any job: MPICH's ...
  mpirun -n 4 --oversubscribe tagperf dup         ... Open MPI's (root: --allow-run-as-root) ...
  tagperf run -n 4 -- tagperf alltoall            ... and our own";

const SHRINK_EXAMPLES: &str = "\
Rank after rank kills itself (SIGKILL), the last one first, until one is left: a row a death.
Those who live time: noticed, from their last word to it until a barrier fails for its death; then
revoke, agree, shrink, and the first barrier of the new communicator. avg, min and max are over
those who live, of these four together

Examples:
  tagperf shrink                                  4 ranks that it starts here by itself
  tagperf run -n 8 --keep-going -- tagperf shrink
  mpirun -n 4 --oversubscribe --enable-recovery tagperf shrink
  mpiexec.hydra -n 4 -disable-auto-cleanup sh -c 'trap \"\" USR1; tagperf shrink || exit 0'";

const REPLAY_EXAMPLES: &str = "\
Examples:
  tagperf replay app.trace
  tagperf replay app.trace --matches app.matches
  tagperf replay - --matches - < app.trace 2> report.txt
  tagperf replay app.trace --hw-tags model        how much of it would a NIC match?";

const COMPARE_EXAMPLES: &str = "\
Exit status: 0  no result is slower by more than --fail-if-slower, beyond noise
             1  at least one is, or the output could not be written
             2  bad usage or input, or the runs have no result in common

Examples:
  tagperf lat --json old.json; ...; tagperf lat --json new.json
  tagperf compare old.json new.json --fail-if-slower 3
  cat monday*.json | tagperf compare - tuesday.json     runs put together: noise between runs too";

/// Latency, bandwidth, message rate and matching depth of tagmatch; alone: a tour of this machine.
#[derive(Parser, Debug)]
#[command(name = "tagperf", version, after_help = TOUR_EXAMPLES, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(override_usage = "tagperf [--json FILE|-] [--pin CPU,CPU] [--device NAME]\n       \
                            tagperf COMMAND ...")]
#[command(subcommand_value_name = "COMMAND", arg_required_else_help = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Latency by size: half the round trip in us, all percentiles
    #[command(after_help = MEASURE_EXAMPLES)]
    Lat(Measure),
    /// Bandwidth by size: one way, MB/s
    #[command(after_help = MEASURE_EXAMPLES)]
    Bw(Measure),
    /// Bandwidth by size: both ways at once, the sum in MB/s
    #[command(after_help = MEASURE_EXAMPLES)]
    Bibw(Measure),
    /// Message rate: one way, messages/s
    #[command(after_help = MEASURE_EXAMPLES)]
    Rate(Measure),
    /// Matching: latency in us by depth of a queue, or ns a message to drain it
    #[command(after_help = DEPTH_EXAMPLES)]
    Depth(Depth),
    /// Barrier of N ranks: us a call
    #[command(after_help = COLLECTIVE_EXAMPLES, mut_args = collective::reword)]
    Barrier(Collective),
    /// Broadcast to N ranks by size: us a call
    #[command(after_help = COLLECTIVE_EXAMPLES, mut_args = collective::reword)]
    Bcast(Bulk),
    /// Sum over N ranks, known to all, by size: us a call
    #[command(after_help = COLLECTIVE_EXAMPLES, mut_args = collective::reword)]
    Allreduce(Bulk),
    /// A message of each of N ranks to each, by size: us a call
    #[command(after_help = COLLECTIVE_EXAMPLES, mut_args = collective::reword)]
    Alltoall(Bulk),
    /// Duplicate of a communicator of N ranks, and its end: us a call
    #[command(after_help = COLLECTIVE_EXAMPLES, mut_args = collective::reword)]
    Dup(Collective),
    /// Agreement of N ranks, nobody having failed: us a call
    #[command(after_help = COLLECTIVE_EXAMPLES, mut_args = collective::reword)]
    Agree(Collective),
    /// Recovery of N ranks from the SIGKILL of one: us until those who live go on
    #[command(after_help = SHRINK_EXAMPLES, mut_args = collective::reword)]
    Shrink(Recovery),
    /// The other side for `lat | bw | bibw | rate | depth HOST[:PORT]`
    Serve(Serve),
    /// Start a command N times here, as ranks of a job (by PMI-1): `tagperf run -n 4 -- ./app`
    #[command(after_help = RUN_EXAMPLES)]
    Run(Run),
    /// Devices found, what each can do, and what to do about those missing
    Info,
    /// Run a recorded matching history (tagtrace 1) through the matcher
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Replay),
    /// Two runs side by side, and whether the later is slower
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(report::Compare),
    /// The second process of a local run and of `serve`; speaks on its standard input and output.
    #[command(hide = true)]
    Peer(Peer),
}

/// What the tour and the measuring commands share.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// CPU numbers for this side and the other, or none [both here: the first two]
    #[arg(long, value_name = "CPU,CPU")]
    pub(crate) pin: Option<PinChoice>,
    /// What carries messages: shm (within a machine), verbs[:NAME] (RDMA; the first that is active),
    /// or ucx[:UCX_TLS] (over what UCX reaches) [shm]
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceArg::Shm)]
    #[arg(hide_default_value = true)]
    pub(crate) device: DeviceArg,
    /// Who matches: off (software), auto, emu, or a model NIC of so many entries, model[:SLOTS] [off]
    #[arg(long, value_name = "WHO", default_value_t = HwTagsArg::Off)]
    #[arg(hide_default_value = true)]
    pub(crate) hw_tags: HwTagsArg,
    /// Do not check the bytes received
    #[arg(long)]
    pub(crate) no_validate: bool,
    /// One line of JSON (times in ns) to FILE; with - nothing else is printed
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: report::Report,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Measure {
    /// Where `tagperf serve` runs (port 13338); without it both sides run here
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: Option<Host>,
    /// Bytes a message: 0..4M (powers of two) or 8,4K,1M [0..4M; bw, bibw: 1..4M; rate, --rate: 8]
    #[arg(long, alias = "size", value_name = "SIZES")]
    pub(crate) sizes: Option<Sizes>,
    #[command(flatten)]
    pub(crate) effort: Effort,
    /// Messages sent before an answer; lat --rate: under way at most [64, at most 1 MiB]
    #[arg(long, value_name = "N", value_parser = units::count(1..=WINDOW_MAX))]
    pub(crate) window: Option<u64>,
    /// Receives posted first on both sides that never match
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = units::count(0..=DEPTH_MAX))]
    pub(crate) posted_depth: u64,
    /// Messages sent first by both sides that no receive takes
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = units::count(0..=DEPTH_MAX))]
    pub(crate) unexpected_depth: u64,
    /// Share of the posted ones that take any source, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = percent)]
    pub(crate) wildcard: u8,
    /// Let the measured receives take any source
    #[arg(long)]
    pub(crate) wildcard_recv: bool,
    /// Peers that are connected to each side and stay silent
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = units::count(0..=IDLE_MAX))]
    pub(crate) idle_peers: u64,
    /// Threads a side that share its worker, each with its tag; a list: one row each
    #[arg(long, value_name = "N[,N]")]
    pub(crate) threads: Option<Threads>,
    /// Send one buffer again and again, as UCX and OSU do; checks the last messages only
    #[arg(long)]
    pub(crate) single_buffer: bool,
    /// lat: messages a second at planned times, latency one way from those (1000, 250k, 1M)
    #[arg(long, value_name = "R", value_parser = depth::rate)]
    #[arg(conflicts_with_all = ["threads", "single_buffer", "oneself"])]
    pub(crate) rate: Option<u64>,
    /// One process that sends to itself (not bibw)
    #[arg(long = "self", conflicts_with = "host")]
    pub(crate) oneself: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// TCP port for control messages (0: any free one, printed)
    #[arg(long, value_name = "N", default_value_t = PORT)]
    pub(crate) port: u16,
    /// Address to listen on; any but loopback lets strangers in
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) bind: IpAddr,
    /// What carries messages on this side: shm, verbs (RDMA) or ucx [shm or verbs, as the client says]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceArg>,
    /// End after the first client that was served
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    /// How many processes
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    pub(crate) n: u32,
    /// Begin each line of output with the rank that wrote it: [3] ..., of the first job spawned [1:3] ...
    #[arg(long)]
    pub(crate) label: bool,
    /// Let the others go on when a process fails; without it they are ended, spawned ones too
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// What to start, with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Peer {
    /// Whom it serves, for the log
    #[arg(long)]
    pub(crate) client: Option<String>,
    /// The device that `serve` was started for
    #[arg(long)]
    pub(crate) device: Option<DeviceArg>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Replay {
    /// The recorded history; - is standard input
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Print what matched what, one line each, to FILE; - is standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) matches: Option<PathBuf>,
    /// The report as one line of JSON (times in ns) to FILE; - is standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// A chart of both lists' depths (entries) over the trace (operations)
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Who matches receives: off (software) or a model NIC of so many entries, model[:SLOTS] [off]
    #[arg(long, value_name = "off|model[:SLOTS]", default_value_t = HwTagsArg::Off)]
    #[arg(hide_default_value = true)]
    pub(crate) hw_tags: HwTagsArg,
    /// Let N draw the NIC's delays and how far it lags, any number [no delays, no lag]
    #[arg(long, value_name = "N", requires = "hw_tags")]
    pub(crate) seed: Option<u64>,
}

impl Cli {
    /// Reads the command line. `Ok(None)`: help or version was asked for, and printed.
    pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Result<Option<Self>, Failure> {
        match Self::try_parse_from(args) {
            Ok(cli) => Ok(Some(cli)),
            Err(error) if !error.use_stderr() => match error.print() {
                Ok(()) => Ok(None),
                Err(error) => Err(Failure::write("standard output", &error)),
            },
            Err(error) => Err(Failure::Usage(in_one_line(&error.to_string()))),
        }
    }
}

/// clap explains over several lines; scripts and people want one: what, where, what is right.
fn in_one_line(explained: &str) -> String {
    let said = explained.strip_prefix("error: ").unwrap_or(explained);
    let mut out = String::new();
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        if !out.is_empty() {
            out.push_str(if out.ends_with(':') || line.starts_with('[') { " " } else { "; " });
        }
        out.push_str(line);
    }
    out.push_str("; see tagperf --help");
    out
}

fn percent(text: &str) -> Result<u8, String> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    digits
        .parse()
        .ok()
        .filter(|&percent| percent <= 100)
        .ok_or_else(|| format!("`{text}` is no percentage; 0 to 100 would be right"))
}

impl Common {
    /// The CPUs of both sides, if they are to be kept there.
    pub(crate) fn pin(&self) -> Option<Pin> {
        self.pin.and_then(PinChoice::pin)
    }

    /// The same with CPUs chosen, unless the user did: for two sides that both run here.
    pub(crate) fn with_pin(&self) -> Self {
        let ours = || crate::trust::two_cpus().map(PinChoice::Ours);
        Self { pin: self.pin.or_else(ours), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(line: &str) -> Result<Cli, String> {
        let args = std::iter::once("tagperf").chain(line.split_whitespace()).map(Into::into);
        match Cli::read(args) {
            Ok(cli) => Ok(cli.expect("neither help nor version")),
            Err(failure) => Err(failure.to_string()),
        }
    }

    fn measure(line: &str) -> Measure {
        match read(line).unwrap().command {
            Some(Command::Lat(m) | Command::Bw(m) | Command::Bibw(m) | Command::Rate(m)) => m,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn every_option_of_a_measurement() {
        let m = measure(
            "lat node7:99 --sizes 0..8 --iters 10 --duration 500ms --warmup 0 --window 4 \
             --posted-depth 5 --unexpected-depth 6 --wildcard 50% --wildcard-recv --pin 0,1 \
             --device verbs:rxe0 --no-validate --json - --hw-tags model:9 --idle-peers 9 --threads 1,2 --single-buffer",
        );
        assert_eq!(
            (m.idle_peers, m.threads, m.single_buffer),
            (9, Some(Threads(vec![1, 2])), true)
        );
        assert_eq!(m.host.unwrap().to_string(), "node7:99");
        assert_eq!(m.sizes.unwrap().0, [0, 1, 2, 4, 8]);
        assert_eq!((m.effort.iters, m.effort.warmup, m.window), (Some(10), Some(0), Some(4)));
        assert_eq!((m.posted_depth, m.unexpected_depth, m.wildcard), (5, 6, 50));
        assert_eq!(m.effort.duration, Some(Duration::from_millis(500)));
        assert_eq!(m.common.pin(), Some(Pin { here: 0, there: 1 }));
        assert!(m.wildcard_recv && m.common.no_validate);
        assert_eq!(m.common.hw_tags, HwTagsArg::Model { slots: 9 });
        assert_eq!(m.common.device.to_string(), "verbs:rxe0");
        assert_eq!(m.common.json.unwrap().to_str(), Some("-"));
        assert_eq!(measure("lat").common.device, DeviceArg::Shm);
        assert_eq!(measure("lat --rate 250k").rate, Some(4_000_000));
        assert!(measure("rate --self").oneself);
        assert!(read("").unwrap().command.is_none());
        assert!(read("--json -").unwrap().common.json.is_some());
    }

    #[test]
    fn bad_usage_is_one_line_that_helps() {
        for line in [
            "lat --sizes 4X",
            "lat --nosuch",
            "latt",
            "replay",
            "lat --iters 0",
            "lat --wildcard 101",
            "lat --pin 0",
            "serve --port 70000",
            "serve --bind x",
            "lat a b",
            "--json - lat",
            "lat --iters",
            "bw --window 99999",
            "lat --posted-depth 9999999999",
            "lat --rate 0",
            "lat --rate 5 --threads 2",
            "lat --rate 5 --self",
            "lat a --self",
            "lat --threads 0",
            "lat --idle-peers 1025",
            "depth --order random",
            "depth --drain --order sideways",
            "depth --drain --wildcard-recv",
            "depth --depths 0..2M",
            "depth --seed 1",
            "replay x --seed 1",
            "replay x --hw-tags model:0",
            "lat --hw-tags on",
            "lat --hw-tags model:0",
            "serve --hw-tags model",
            "lat --device rdma",
            "lat --device verbs:",
            "serve --device verbs:a/b",
            "lat --self --device",
        ] {
            let error = read(line).unwrap_err();
            assert!(!error.contains('\n') && error.len() < 220, "{line}: {error}");
            assert!(error.ends_with("; see tagperf --help"), "{line}: {error}");
        }
        assert_eq!(
            read("bw --sizes 4X").unwrap_err(),
            "tagperf: invalid value '4X' for '--sizes <SIZES>': `4X` is no size; a size such as 8, \
             4K, 1M (at most 1G) would be right; see tagperf --help"
        );
        assert_eq!(
            read("replay").unwrap_err(),
            "tagperf: the following required arguments were not provided: <TRACE>; see tagperf \
             --help"
        );
    }

    /// The command itself and all that users see of its subcommands.
    fn commands() -> Vec<clap::Command> {
        use clap::CommandFactory;
        let mut command = Cli::command();
        command.build();
        let shown: Vec<_> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect();
        assert_eq!(shown.len(), 17);
        std::iter::once(command).chain(shown).map(|command| command.term_width(100)).collect()
    }

    /// What the help of an option must name: the unit of what it takes, by the name of its value.
    fn units(value: &str) -> &'static [&'static str] {
        match value {
            "SIZES" | "SIZE" => &["Bytes a message"],
            "TIME" => &["500ms"],
            "PERCENT" => &["percent"],
            "R" => &["a second"],
            "LIST" => &["Entries", "in percent", "Orders"],
            "N" | "N[,N]" => &[
                "messages", "Messages", "Calls", "Receives", "Peers", "Threads", "TCP port",
                "shuffles", "delays",
            ],
            "CPU,CPU" => &["CPU numbers"],
            "off|model[:SLOTS]" | "WHO" => &["entries"],
            "DEVICE" => &["carries messages"],
            "FILE|-" | "FILE" | "FILE.svg" | "NAME" | "QUEUE" | "ADDRESS" => &[""],
            other => panic!("what does {other} stand for?"),
        }
    }

    #[test]
    fn every_option_has_a_line_in_help() {
        for mut command in commands() {
            let (name, page) = (command.get_name().to_owned(), command.render_help().to_string());
            for option in command.get_arguments() {
                let Some(long) = option.get_long() else { continue };
                let line = format!("--{long}");
                assert!(page.split_whitespace().any(|word| word == line), "{name} {line}:\n{page}");
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{name} {line} says nothing");
                if option.get_action().takes_values() {
                    let values = option.get_value_names().expect("a value has a name");
                    let units = units(&values[0]);
                    assert!(units.iter().any(|unit| help.contains(unit)), "{name} {line}: {help}");
                }
            }
        }
    }

    #[test]
    fn sizes_have_one_name_everywhere_and_its_singular() {
        for option in ["--sizes", "--size"] {
            assert_eq!(measure(&format!("bw {option} 64")).sizes.unwrap().0, [64]);
            let Some(Command::Bcast(bcast)) = read(&format!("bcast {option} 64")).unwrap().command
            else {
                panic!("no bcast")
            };
            assert_eq!(bcast.sizes.unwrap().0, [64]);
            let Some(Command::Depth(depth)) = read(&format!("depth {option} 64")).unwrap().command
            else {
                panic!("no depth")
            };
            assert_eq!(depth.size, Some(64));
        }
        assert!(read("depth --sizes 8,64").unwrap_err().contains("`8,64` is no size"));
    }

    #[test]
    fn counts_are_typed_alike_everywhere() {
        let m = measure("lat --iters 2K --warmup 1k --posted-depth 4K --unexpected-depth 1M");
        assert_eq!((m.effort.iters, m.effort.warmup), (Some(2048), Some(1024)));
        assert_eq!((m.posted_depth, m.unexpected_depth), (4096, 1 << 20));
        let m = measure("bw --window 16K --idle-peers 1K");
        assert_eq!((m.window, m.idle_peers), (Some(1 << 14), 1024));
        let Some(Command::Depth(depth)) = read("depth --iters 2K --idle-peers 1K").unwrap().command
        else {
            panic!("no depth")
        };
        assert_eq!((depth.effort.iters, depth.idle_peers), (Some(2048), 1024));
    }

    #[test]
    fn help_fits_a_screen() {
        for mut command in commands() {
            let page = command.render_help().to_string();
            // A tall terminal's; what is measured and what becomes of it are a page of two parts.
            let screen = if page.contains("Results:") { 62 } else { 40 };
            assert!(page.lines().count() <= screen, "{} lines:\n{page}", page.lines().count());
            assert!(page.lines().all(|line| line.len() <= 100), "{page}");
        }
    }
}
