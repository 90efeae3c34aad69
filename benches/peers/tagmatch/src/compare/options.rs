//! The options of `ci/peers`, whose first lines explain them, and what follows from them.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, value_parser};
use tagmatch_results::show::invalid;
use tagperf::shared::allowed_cpus;

use crate::case::Outcome;
use crate::report::Stat;

/// The groups of cases that `--only` chooses from.
const GROUPS: [&str; 9] =
    ["latency", "rate", "bandwidth", "cold", "depth", "memory", "collectives", "ranks", "rma"];
const PEERS: [&str; 8] = [
    "openmpi",
    "openmpi-ob1",
    "openmpi-ucx",
    "mpich",
    "ucx",
    "provider",
    // Not peers, but which versions of them.
    "debian",
    "newest",
];

/// tagmatch beside Open MPI, MPICH and UCX; the first lines of `ci/peers` explain the options.
#[derive(Parser, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    #[arg(long)]
    pub(super) quick: bool,
    #[arg(long)]
    pub(super) check: bool,
    #[arg(long, conflicts_with_all = ["ofi", "only", "peers", "scale"])]
    pub(super) tcp: bool,
    #[arg(long, conflicts_with_all = ["tcp", "ofi", "only", "scale"])]
    pub(super) programs: bool,
    #[arg(long, requires = "tcp")]
    pub(super) namespaces: bool,
    #[arg(long, value_name = "PROVIDER", conflicts_with_all = ["only", "peers", "scale"])]
    pub(super) ofi: Option<String>,
    #[arg(long, value_name = "RANKS", num_args = 0.., value_parser = value_parser!(u32).range(1..=9999))]
    #[arg(conflicts_with_all = ["only", "peers"])]
    pub(super) scale: Option<Vec<u32>>,
    #[arg(long, value_parser = value_parser!(u64).range(1..=9999))]
    minutes: Option<u64>,
    #[arg(long, value_parser = value_parser!(u64).range(1..=9999))]
    enough: Option<u64>,
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(1..=99999))]
    time: Option<u64>,
    #[arg(long, value_name = "A,B")]
    cores: Option<Cores>,
    #[arg(long, default_value = "p50")]
    pub(super) stat: Stat,
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    pub(super) markdown: Option<PathBuf>,
    #[arg(long, value_name = "DIR")]
    pub(super) plot: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    pub(super) from: Option<PathBuf>,
    #[arg(long, value_delimiter = ',', value_parser = GROUPS, default_values = GROUPS)]
    only: Vec<String>,
    #[arg(long, value_delimiter = ',', value_parser = PEERS)]
    peers: Vec<String>,
}

/// Two different CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores(pub(super) [u32; 2]);

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || invalid("pair of CPUs", text, "two different numbers such as 0,1");
        let (a, b) = text.split_once(',').ok_or_else(wrong)?;
        match (a.parse(), b.parse()) {
            (Ok(a), Ok(b)) if a != b => Ok(Cores([a, b])),
            _ => Err(wrong()),
        }
    }
}

/// The transport that the processes of each program use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    SharedMemory,
    Tcp,
    /// A provider of libfabric.
    Ofi(String),
}

/// A run of `ci/peers`.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(super) way: Way,
    pub(super) groups: Vec<String>,
    /// Whether the peers are the newest ones of PyPI, rather than those of Debian.
    pub(super) is_newest: bool,
    /// The programs, in the order in which they take turns.
    pub(super) programs: Vec<&'static str>,
    pub(super) cores: [u32; 2],
    pub(super) minutes: u64,
    /// Samples of a case that are enough.
    pub(super) enough: u64,
    /// How long a sample takes, in ms.
    pub(super) time_ms: u64,
}

impl Options {
    /// # Errors
    /// Two CPUs that this process may not use, or a file that can't be written.
    pub(super) fn setup(&self) -> Outcome<Setup> {
        let way = match &self.ofi {
            Some(provider) => Way::Ofi(provider.clone()),
            None if self.tcp => Way::Tcp,
            None => Way::SharedMemory,
        };
        let groups = match way {
            Way::SharedMemory if self.scale.is_some() => vec!["ranks".to_owned()],
            Way::SharedMemory => self.only.clone(),
            Way::Tcp => vec!["tcp".to_owned(), "rma".to_owned()],
            Way::Ofi(_) => vec!["ofi".to_owned()],
        };
        for path in self.json.iter().chain(&self.record) {
            let created = File::create(path);
            created.map_err(|error| format!("can't write {}: {error}", path.display()))?;
        }
        let minutes = match (&way, self.quick) {
            (Way::SharedMemory, false) => 30,
            (Way::SharedMemory, true) => 4,
            _ => 10,
        };
        let (enough, time_ms) = if self.quick { (3, 8) } else { (7, 20) };
        Ok(Setup {
            is_newest: self.peers.iter().any(|peer| peer == "newest"),
            programs: self.programs(&way, &groups),
            way,
            groups,
            cores: self.cores()?,
            minutes: self.minutes.unwrap_or(minutes),
            enough: self.enough.unwrap_or(enough),
            time_ms: self.time.unwrap_or(time_ms),
        })
    }

    fn programs(&self, way: &Way, groups: &[String]) -> Vec<&'static str> {
        let mut programs = vec!["tagmatch", "floor"];
        // A job's ranks are started by both launchers.
        if groups.iter().any(|group| group == "ranks") {
            programs.push("tagmatch-mpiexec");
        }
        match way {
            Way::SharedMemory if self.scale.is_some() => programs.extend(["openmpi-ob1", "mpich"]),
            Way::SharedMemory => {
                programs.extend(self.peers.iter().flat_map(|peer| programs_of(peer)));
                if programs.iter().all(|program| !is_peer(program)) {
                    let all = ["openmpi", "mpich", "ucx", "provider"];
                    programs.extend(all.iter().flat_map(|peer| programs_of(peer)));
                    if groups.iter().any(|group| group == "rma") {
                        programs.push("libfabric");
                    }
                }
            }
            Way::Tcp => programs.extend(["ucx", "libfabric"]),
            Way::Ofi(_) => programs.push("libfabric"),
        }
        programs
    }

    /// The first two CPUs that this process may use, unless `--cores` names others.
    fn cores(&self) -> Outcome<[u32; 2]> {
        let allowed = allowed_cpus();
        let Some(Cores(wanted)) = self.cores else {
            let [first, second, ..] = allowed[..] else {
                return Err(format!("two CPUs are needed, this process may use {allowed:?}").into());
            };
            return Ok([first, second]);
        };
        match wanted.iter().find(|cpu| !allowed.contains(cpu)) {
            Some(cpu) => {
                Err(format!("--cores: this process may use CPUs {allowed:?}, not {cpu}").into())
            }
            None => Ok(wanted),
        }
    }
}

/// Whether a program is not one that always runs.
fn is_peer(program: &str) -> bool {
    !["tagmatch", "floor", "tagmatch-mpiexec"].contains(&program)
}

/// The programs behind a value of `--peers`.
fn programs_of(peer: &str) -> &'static [&'static str] {
    match peer {
        "openmpi" => &["openmpi-ob1", "openmpi-ucx"],
        "openmpi-ob1" => &["openmpi-ob1"],
        "openmpi-ucx" => &["openmpi-ucx"],
        "mpich" => &["mpich"],
        "ucx" => &["ucx", "ucx-fifo-1024", "ucx-fifo-4096"],
        "provider" => &["tagmatch-libfabric", "tagmatch-openmpi"],
        _ => &[],
    }
}

impl Setup {
    /// Shows one line on a terminal, in place of the one before.
    pub(super) fn show_progress(&self, line: &str) {
        if io::stderr().is_terminal() {
            let end = if line.is_empty() { "\r" } else { "" };
            let _ = write!(io::stderr(), "\r{line:<70}{end}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words = ["ci/peers"].into_iter().chain(line.split_whitespace());
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn programs_follow_from_the_options() {
        let programs = |line: &str| {
            let options = parse(line).unwrap();
            let way = if options.tcp { Way::Tcp } else { Way::SharedMemory };
            options.programs(&way, &options.only)
        };
        let all = ["openmpi-ob1", "openmpi-ucx", "mpich", "ucx", "ucx-fifo-1024"];
        assert_eq!(
            programs("")[..8],
            [&["tagmatch", "floor", "tagmatch-mpiexec"], &all[..]].concat()
        );
        assert_eq!(
            programs("--only rate --peers ucx"),
            ["tagmatch", "floor", "ucx", "ucx-fifo-1024", "ucx-fifo-4096"]
        );
        assert_eq!(programs("--only rate --peers newest,ucx"), programs("--only rate --peers ucx"));
        assert_eq!(programs("--peers newest"), programs(""));
        let is_newest = |line: &str| parse(line).unwrap().setup().unwrap().is_newest;
        assert_eq!(["", "--peers debian", "--peers newest"].map(is_newest), [false, false, true]);
        assert!(programs("--tcp").ends_with(&["ucx", "libfabric"]));
        assert!(programs("--scale 16 64").ends_with(&["openmpi-ob1", "mpich"]));
    }

    #[test]
    fn wrong_options_are_refused() {
        for wrong in [
            "--only ping",
            "--peers osu",
            "--namespaces",
            "--tcp --only rate",
            "--minutes 0",
            "--cores 1,1",
            "--cores 1",
            "--stat mean",
            "--ofi",
            "--scale 0",
            "x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse("--scale").unwrap().scale, Some(Vec::new()));
    }
}
