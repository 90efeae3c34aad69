//! The command line: options with their units and bounds, and errors that say what is expected.

mod collective;
mod common;
mod depth;
mod effort;
mod examples;
mod info;
mod lists;
mod measure;
mod one_sided;
mod processes;
mod replay;
pub(crate) mod report;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::verbs::VerbsArg;
pub(crate) use collective::{Bulk, Collective, Ranks as RanksArgs, Recovery};
pub(crate) use common::Common;
pub(crate) use depth::Depth;
pub(crate) use effort::Effort;
use examples::{
    COLLECTIVE_EXAMPLES, COMPARE_EXAMPLES, DEPTH_EXAMPLES, MEASURE_EXAMPLES, ONE_SIDED_EXAMPLES,
    OVERVIEW_EXAMPLES, REPLAY_EXAMPLES, RUN_EXAMPLES, SHRINK_EXAMPLES,
};
pub(crate) use info::Info;
pub(crate) use measure::Measure;
pub(crate) use one_sided::{OneSidedArgs, OneSidedBulk};
pub(crate) use processes::{Peer, Run, Serve};
pub(crate) use replay::Replay;

/// Latency, bandwidth, message rate and matching depth of tagmatch; alone: all tests, briefly.
#[derive(Parser, Debug)]
#[command(name = "tagperf", version, after_help = OVERVIEW_EXAMPLES, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(override_usage = "tagperf [--json FILE|-] [--pin CPU,CPU] [--device NAME]\n       \
                            tagperf COMMAND ...")]
#[command(subcommand_value_name = "COMMAND", arg_required_else_help = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// RDMA settings here: `gid_index=3,mtu=1024` [`info` shows all]
    #[arg(long, global = true, value_name = "NAME=VALUE", value_delimiter = ',')]
    pub(crate) verbs: Vec<VerbsArg>,
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
    /// Puts into the other side's memory by size: us each; with --window also MB/s
    #[command(after_help = ONE_SIDED_EXAMPLES)]
    Put(OneSidedBulk),
    /// Gets from the other side's memory by size: us each; with --window also MB/s
    #[command(after_help = ONE_SIDED_EXAMPLES)]
    Get(OneSidedBulk),
    /// Fetch and add on a number in the other side's memory: us each
    #[command(after_help = ONE_SIDED_EXAMPLES)]
    Fadd(OneSidedArgs),
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
    /// Agreement of N ranks without a failure: us a call
    #[command(after_help = COLLECTIVE_EXAMPLES, mut_args = collective::reword)]
    Agree(Collective),
    /// Recovery of N ranks from the SIGKILL of one: us until the others go on
    #[command(after_help = SHRINK_EXAMPLES, mut_args = collective::reword)]
    Shrink(Recovery),
    /// The other side for `lat | bw | bibw | rate | depth | put | get | fadd HOST[:PORT]`
    Serve(Serve),
    /// Start a command N times, here or on other machines, as ranks of a job (by PMI-1)
    #[command(after_help = RUN_EXAMPLES)]
    Run(Run),
    /// Devices, what each can do, and what to do about missing ones
    Info(Info),
    /// Run recorded matching histories (tagtrace 1 and 2) through the matcher
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Replay),
    /// Compare two runs: is the later one slower?
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(report::Compare),
    /// The other side of a measurement; gets and gives messages on its standard input and output.
    #[command(hide = true)]
    Peer(Peer),
    /// The helper of `run --hosts` on another machine; gets what to start on its standard input.
    #[command(hide = true)]
    RunHere,
}

impl Cli {
    /// Checks that the command makes workers, if there are settings for them.
    pub(crate) fn check_verbs(&self) -> Result<(), Failure> {
        let makes_none = |command: &Command| {
            use Command::{Compare, Replay, Run, RunHere};
            matches!(command, Run(_) | RunHere | Replay(_) | Compare(_))
        };
        if self.verbs.is_empty() || !self.command.as_ref().is_some_and(makes_none) {
            return Ok(());
        }
        let right =
            "variables for the processes that it starts, such as TAGMATCH_VERBS_GID_INDEX=3";
        Err(Failure::usage("--verbs: this command has no worker of its own", right))
    }

    /// Reads the command line. `Ok(None)`: help or version was asked for, and was printed.
    pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Result<Option<Self>, Failure> {
        // `--sizes -1` is a wrong size, and no unknown option.
        let takes_numbers = |arg: clap::Arg| {
            let is_value = arg.get_action().takes_values() && !arg.is_positional();
            if is_value { arg.allow_negative_numbers(true) } else { arg }
        };
        let mut command = Self::command();
        command = command.mut_subcommands(|command| command.mut_args(takes_numbers));
        let parsed = command.try_get_matches_from_mut(args);
        match parsed.and_then(|matches| Self::from_arg_matches(&matches)) {
            Ok(cli) => Ok(Some(cli)),
            Err(error) if !error.use_stderr() => match error.print() {
                Ok(()) => Ok(None),
                Err(error) => Err(Failure::write("standard output", &error)),
            },
            Err(error) => Err(Failure::Usage(in_one_line(&error.to_string()))),
        }
    }
}

/// Turns clap's explanation, which has several lines, into one: scripts and people want that.
fn in_one_line(explained: &str) -> String {
    let explanation = explained.strip_prefix("error: ").unwrap_or(explained);
    let mut out = String::new();
    for line in explanation.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // The tip would make an option that is misspelt a HOST.
        if line.starts_with("tip: to pass") {
            continue;
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::lists::List;
    use super::*;
    use crate::spec::{Completions, DeviceArg, HwTagsArg, Pin};

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
    fn a_negative_number_is_a_wrong_value_and_no_unknown_option() {
        for line in ["lat --sizes -1", "bw --window -3", "depth --iters -1"] {
            let why = read(line).unwrap_err();
            let option = line.split_whitespace().nth(1).unwrap();
            assert!(why.contains(option) && !why.contains("unexpected"), "{line}: {why}");
        }
        let why = read("lat --szies 8").unwrap_err();
        assert!(why.contains("--szies") && !why.contains("-- "), "{why}");
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_of_a_measurement() {
        let m = measure(
            "lat node7:99 --sizes 0..8 --iters 10 --duration 500ms --warmup 0 --window 4 \
             --posted-depth 5 --unexpected-depth 6 --wildcard 50% --wildcard-recv --pin 0,1 \
             --device verbs:rxe0 --no-validate --json - --hw-tags model:9 --idle-peers 9 --threads 1,2 --single-buffer",
        );
        assert_eq!((m.idle_peers, m.threads, m.single_buffer), (9, Some(List(vec![1, 2])), true));
        assert_eq!(m.host.unwrap().to_string(), "node7:99");
        assert_eq!(m.sizes.unwrap().0, [0, 1, 2, 4, 8]);
        assert_eq!((m.effort.iters, m.effort.warmup, m.window), (Some(10), Some(0), Some(4)));
        assert_eq!((m.posted_depth, m.unexpected_depth, m.wildcard), (5, 6, 50));
        assert_eq!(m.effort.duration, Some(Duration::from_millis(500)));
        assert_eq!(m.common.pin(), Some(Pin { here: 0, there: 1 }));
        assert!(m.wildcard_recv && m.common.no_validate);
        assert_eq!(m.common.hw_tags, HwTagsArg::Model { slots: 9 });
        assert_eq!(m.common.device().to_string(), "verbs:rxe0");
        assert_eq!(m.common.json.unwrap().to_str(), Some("-"));
        assert_eq!(measure("lat").common.device(), DeviceArg::Shm);
        assert_eq!(measure("lat --rate 250k").rate, Some(4_000_000));
        assert!(measure("rate --self").oneself);
        assert_eq!(measure("bw").completions, None);
        assert_eq!(measure("bw --completions queue").completions, Some(Completions::Queue));
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
            "rate --completions polls",
            "depth --completions queue",
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
            "tagperf: invalid value '4X' for '--sizes <SIZES>': invalid size `4X`: expected a number \
             such as 8, 4K or 1M, at most 1G (K, M and G are binary); see tagperf --help"
        );
        assert_eq!(
            read("rate --completions polls").unwrap_err(),
            "tagperf: invalid value 'polls' for '--completions <WAY>' [possible values: requests, \
             queue]; see tagperf --help"
        );
        assert_eq!(
            read("replay").unwrap_err(),
            "tagperf: the following required arguments were not provided: <TRACE>...; see tagperf \
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
        assert_eq!(shown.len(), 20);
        std::iter::once(command).chain(shown).map(|command| command.term_width(100)).collect()
    }

    /// Words of which the help of an option must have one: the unit of its value, by the value's
    /// name.
    fn units(value: &str) -> &'static [&'static str] {
        match value {
            "SIZES" | "SIZE" => &["Bytes a message"],
            "TIME" => &["500ms"],
            "PERCENT" => &["percent"],
            "R" => &["a second"],
            "LIST" => &["Entries", "in percent", "Orders"],
            "N" | "N[,N]" => &[
                "processes",
                "messages",
                "Messages",
                "Calls",
                "Receives",
                "Peers",
                "Threads",
                "TCP port",
                "shuffles",
                "delays",
            ],
            "CPU,CPU" => &["CPU numbers"],
            "off|model[:SLOTS]" | "MATCHER" => &["entries"],
            "DEVICE" => &["carries messages"],
            "NAME=VALUE" => &["gid_index=3"],
            "WAY" => &["requests or queue"],
            "HOSTS" | "AGENT" | "FILE|-" | "FILE" | "FILE.svg" | "NAME" | "QUEUE" | "ADDRESS" => {
                &[""]
            }
            other => panic!("what does {other} stand for?"),
        }
    }

    #[test]
    fn every_option_has_a_line_in_help() {
        for mut command in commands() {
            let name = command.get_name().to_owned();
            let page = command.render_help().to_string();
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
        assert!(read("depth --sizes 8,64").unwrap_err().contains("invalid size `8,64`"));
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
    fn both_ends_of_each_range_are_taken_and_nothing_beyond_them() {
        for (line, ends, beyond) in [
            ("lat --duration {}", ["1ms", "1h"], &["0.9ms", "3601s"][..]),
            ("lat --sizes {}", ["0", "1G"], &["1025M"]),
            ("depth --sizes {}", ["0", "1G"], &["1025M"]),
            ("lat --iters {}", ["1", "1024G"], &["0", "1025G"]),
            ("lat --warmup {}", ["0", "1024G"], &["1025G"]),
            ("bw --window {}", ["1", "16K"], &["0", "16385"]),
            ("lat --posted-depth {}", ["0", "1M"], &["1048577"]),
            ("lat --unexpected-depth {}", ["0", "1M"], &["1048577"]),
            ("lat --wildcard {}", ["0", "100"], &["101"]),
            ("lat --idle-peers {}", ["0", "1K"], &["1025"]),
            ("depth --idle-peers {}", ["0", "1K"], &["1025"]),
            ("bw --threads {}", ["1", "64"], &["0", "65"]),
            ("lat --rate {}", ["1", "1000M"], &["0.9", "1000.1M"]),
            ("depth --depths {}", ["0", "1M"], &["1048577"]),
            ("depth --wildcard {}", ["0", "100"], &["101"]),
            ("lat --hw-tags model:{}", ["1", "65535"], &["0", "65536"]),
            ("barrier -n {}", ["2", "4096"], &["1", "4097"]),
            ("run -n {} true", ["1", "4096"], &["0", "4097"]),
        ] {
            for end in ends {
                let read = read(&line.replace("{}", end));
                assert!(read.is_ok(), "{line} {end}: {}", read.unwrap_err());
            }
            for value in beyond {
                assert!(read(&line.replace("{}", value)).is_err(), "{line} {value} is taken");
            }
        }
        for (option, most) in [("lat --sizes", 64), ("bw --threads", 16), ("depth --wildcard", 16)]
        {
            let list = |length: usize| read(&format!("{option} {}", vec!["1"; length].join(",")));
            assert!(list(most).is_ok() && list(most + 1).is_err(), "{option}");
        }
    }

    #[test]
    fn help_fits_a_screen() {
        for mut command in commands() {
            let page = command.render_help().to_string();
            // A page with options for both the measurement and the results may fill a tall
            // terminal.
            let screen = if page.contains("Results:") { 62 } else { 40 };
            assert!(page.lines().count() <= screen, "{} lines:\n{page}", page.lines().count());
            assert!(page.lines().all(|line| line.len() <= 100), "{page}");
        }
    }
}
