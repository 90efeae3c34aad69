//! The server side of PMI-1, as a pure state machine: lines from processes in, lines to processes
//! out.
//!
//! A barrier waits for all processes that still run and have not left. It doesn't wait for a
//! process that has died. So the others go on, find the dead process in `PMI_dead_processes`, and
//! find no values that it did not put.

use std::collections::{BTreeSet, HashMap};

use crate::spawn::request::SpawnRequest;
use crate::wire::{self, PmiLine, WireError};

/// The longest key, in bytes, with a terminating zero, as in MPICH's mpiexec.
const KEY_MAX: usize = 64;
/// The longest value, in bytes, with a terminating zero: it fits into a line of both `put` and
/// `get_result`.
const VALUE_MAX: usize = 960;
/// The most values that a job may put, for each of its processes. It bounds the memory of a job.
const VALUES_MAX_PER_PROCESS: usize = 4096;

/// The line that tells a process that a barrier has ended.
pub(crate) const BARRIER_OUT: &str = "cmd=barrier_out\n";

/// A line to send to a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The rank of the process.
    pub to: u32,
    /// The line, with its newline.
    pub line: String,
}

/// What the launcher has to do after a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send these lines.
    Reply(Vec<Reply>),
    /// End the job with this exit status.
    Abort(u8),
    /// Start a new job, and send the [`spawn_result`] to the process that asked for it.
    Spawn(SpawnRequest),
}

/// How a process has broken the protocol. The launcher kills it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The answer or the request is not a line of PMI-1.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The request is unknown, or this launcher doesn't support it.
    #[error("`cmd={0}` is not supported")]
    Unknown(String),
    /// PMI-1 doesn't allow this request in the current phase of the process.
    #[error("`cmd={0}` is not allowed at this point")]
    OutOfTurn(String),
}

/// The phase of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProcessPhase {
    /// The process has sent nothing, and may never send anything: any command can be launched.
    Silent,
    /// The process has sent `init`.
    Joined,
    /// The process waits in a barrier.
    Waiting,
    /// The process has sent `finalize`, and may end.
    Left,
    /// The process has ended.
    Ended,
}

impl ProcessPhase {
    /// Whether a barrier waits for the process.
    fn is_missing(self) -> bool {
        matches!(self, Self::Silent | Self::Joined)
    }
}

/// The PMI-1 state of one job.
#[derive(Debug)]
pub struct Server {
    kvsname: String,
    values: HashMap<String, String>,
    phases: Vec<ProcessPhase>,
    /// The number of processes that a barrier waits for.
    missing: usize,
    dead: BTreeSet<u32>,
    /// The keys of the values that were put since the last [`take_news`](Self::take_news); `None`
    /// if nobody takes them.
    news: Option<BTreeSet<String>>,
}

impl Server {
    /// The server of a job of `size` processes. `kvsname` is the name of its key-value space, which
    /// has `values` from the beginning. All processes are on one machine, unless a value under
    /// `PMI_process_mapping` says otherwise.
    pub fn new(
        size: u32,
        kvsname: &str,
        values: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        Server {
            kvsname: kvsname.to_owned(),
            values: values.into_iter().collect(),
            phases: vec![ProcessPhase::Silent; size as usize],
            missing: size as usize,
            dead: BTreeSet::new(),
            news: None,
        }
    }

    /// The name of the job's key-value space.
    pub fn kvsname(&self) -> &str {
        &self.kvsname
    }

    /// From now on, [`take_news`](Self::take_news) returns the values that processes put.
    pub fn keep_news(&mut self) {
        self.news = Some(BTreeSet::new());
    }

    /// The values that processes have put since this was last called, with their keys. All
    /// processes may get them once a barrier has ended, and from any process that knows them.
    pub fn take_news(&mut self) -> Vec<(String, String)> {
        let keys = self.news.as_mut().map(std::mem::take).unwrap_or_default();
        let of = |key: String| Some((key.clone(), self.values.get(&key)?.clone()));
        keys.into_iter().filter_map(of).collect()
    }

    /// The number of processes in the job.
    pub fn size(&self) -> usize {
        self.phases.len()
    }

    /// Whether a process has sent `init` and not `finalize`. It is a failure if the process ends
    /// now.
    pub fn is_joined(&self, rank: u32) -> bool {
        let phase = self.phases.get(rank as usize);
        phase.is_some_and(|phase| matches!(phase, ProcessPhase::Joined | ProcessPhase::Waiting))
    }

    /// Handles a request of one line.
    ///
    /// # Errors
    /// The request breaks the protocol. Nothing of it was carried out.
    pub fn handle_line(&mut self, rank: u32, line: &PmiLine) -> Result<Action, Violation> {
        let command = line.command();
        let out_of_turn = || Err(Violation::OutOfTurn(command.to_owned()));
        let Some(phase) = self.phases.get_mut(rank as usize) else { return out_of_turn() };
        match (*phase, command) {
            (ProcessPhase::Silent, "init") => *phase = ProcessPhase::Joined,
            (ProcessPhase::Joined, "init") | (ProcessPhase::Silent | ProcessPhase::Waiting, _) => {
                return out_of_turn();
            }
            (ProcessPhase::Left | ProcessPhase::Ended, _) => return out_of_turn(),
            (ProcessPhase::Joined, _) => {}
        }
        let answer = match command {
            "init" => self.init(rank, line)?,
            "get_maxes" => {
                let key = KEY_MAX.to_string();
                let value = VALUE_MAX.to_string();
                let maxes = [("kvsname_max", "256"), ("keylen_max", &key), ("vallen_max", &value)];
                wire::line("maxes", &maxes)?
            }
            "get_appnum" => wire::line("appnum", &[("appnum", "0")])?,
            "get_universe_size" => {
                wire::line("universe_size", &[("size", &self.size().to_string())])?
            }
            "get_my_kvsname" => wire::line("my_kvsname", &[("kvsname", &self.kvsname)])?,
            "put" => self.put(line)?,
            "get" => self.get(line)?,
            "barrier_in" => {
                self.set_phase(rank, ProcessPhase::Waiting);
                return Ok(Action::Reply(self.end_barrier()));
            }
            "finalize" => {
                self.set_phase(rank, ProcessPhase::Left);
                let line = wire::line("finalize_ack", &[])?;
                let mut replies = vec![Reply { to: rank, line }];
                replies.extend(self.end_barrier());
                return Ok(Action::Reply(replies));
            }
            "abort" => return Ok(Action::Abort(line.number("exitcode").unwrap_or(1))),
            other => return Err(Violation::Unknown(other.to_owned())),
        };
        Ok(Action::Reply(vec![Reply { to: rank, line: answer }]))
    }

    /// Handles a spawn request.
    ///
    /// # Errors
    /// The request breaks the protocol.
    pub fn handle_spawn(&mut self, rank: u32, request: SpawnRequest) -> Result<Action, Violation> {
        if self.phases.get(rank as usize) != Some(&ProcessPhase::Joined) {
            return Err(Violation::OutOfTurn("spawn".to_owned()));
        }
        if request.command < request.commands {
            // A spawn of several commands gets one answer, after the last command.
            return Ok(Action::Reply(Vec::new()));
        }
        Ok(match refusal(&request) {
            Some(why) => Action::Reply(vec![spawn_result(rank, Some(&why))]),
            None => Action::Spawn(request),
        })
    }

    /// Notes that a process has ended. If it has failed, `PMI_dead_processes` lists it from now on.
    pub fn ended(&mut self, rank: u32, has_failed: bool) -> Vec<Reply> {
        if self.phases.len() <= rank as usize {
            return Vec::new();
        }
        self.set_phase(rank, ProcessPhase::Ended);
        if has_failed {
            self.dead.insert(rank);
        }
        self.end_barrier()
    }

    fn init(&mut self, rank: u32, line: &PmiLine) -> Result<String, WireError> {
        let known = line.field("pmi_version") == Some("1");
        if !known {
            self.phases[rank as usize] = ProcessPhase::Silent;
        }
        let code = if known { "0" } else { "-1" };
        let version = [("pmi_version", "1"), ("pmi_subversion", "1"), ("rc", code)];
        wire::line("response_to_init", &version)
    }

    fn put(&mut self, line: &PmiLine) -> Result<String, WireError> {
        let refused = |why| wire::line("put_result", &[("rc", "-1"), ("msg", why)]);
        if line.field("kvsname") != Some(&self.kvsname) {
            return refused("no_such_kvsname");
        }
        let (Some(key), Some(value)) = (line.field("key"), line.field("value")) else {
            return refused("no_key_or_no_value");
        };
        if let Some(why) = put_refusal(key, value) {
            return refused(why);
        }
        let is_new = !self.values.contains_key(key);
        if is_new && self.values.len() >= VALUES_MAX_PER_PROCESS * self.size() {
            return refused("too_many_keys");
        }
        self.values.insert(key.to_owned(), value.to_owned());
        if let Some(news) = &mut self.news {
            news.insert(key.to_owned());
        }
        wire::line("put_result", &[("rc", "0"), ("msg", "success")])
    }

    fn get(&self, line: &PmiLine) -> Result<String, WireError> {
        let refused = |why| wire::line("get_result", &[("rc", "-1"), ("msg", why)]);
        if line.field("kvsname") != Some(&self.kvsname) {
            return refused("no_such_kvsname");
        }
        let value = match line.field("key") {
            None => return refused("no_key"),
            // One block of all processes, on one node.
            Some(key @ "PMI_process_mapping") => {
                let mapping = self.values.get(key).cloned();
                Some(mapping.unwrap_or_else(|| format!("(vector,(0,1,{}))", self.size())))
            }
            Some("PMI_dead_processes") => Some(list(&self.dead)),
            Some(key) => self.values.get(key).cloned(),
        };
        let Some(value) = value else { return refused("key_not_found") };
        let answer = [("rc", "0"), ("msg", "success"), ("value", &*value)];
        // A value that was put fits into a line. A long list of dead processes may not.
        wire::line("get_result", &answer).or_else(|_| refused("too_long"))
    }

    fn set_phase(&mut self, rank: u32, phase: ProcessPhase) {
        let was = std::mem::replace(&mut self.phases[rank as usize], phase);
        self.missing -= usize::from(was.is_missing());
        self.missing += usize::from(phase.is_missing());
    }

    /// Ends the barrier if all processes that still take part wait in it.
    fn end_barrier(&mut self) -> Vec<Reply> {
        if self.missing > 0 {
            return Vec::new();
        }
        let mut replies = Vec::new();
        for (to, phase) in (0..).zip(&mut self.phases) {
            if *phase == ProcessPhase::Waiting {
                *phase = ProcessPhase::Joined;
                self.missing += 1;
                replies.push(Reply { to, line: BARRIER_OUT.to_owned() });
            }
        }
        replies
    }
}

/// The answer to a spawn request: success, or the reason of the refusal.
pub fn spawn_result(rank: u32, refusal: Option<&str>) -> Reply {
    let code = refusal.map_or("0".to_owned(), |why| {
        // A PMI-1 value has no spaces.
        let word = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        format!("-1 msg={}", why.chars().take(VALUE_MAX).map(word).collect::<String>())
    });
    Reply { to: rank, line: format!("cmd=spawn_result rc={code}\n") }
}

/// Why a spawn request is refused, if it is.
fn refusal(request: &SpawnRequest) -> Option<String> {
    if request.commands != 1 {
        return Some("a job with several commands is not supported".to_owned());
    }
    if request.infos > 0 {
        return Some("infos beside a command are not supported".to_owned());
    }
    if let Err(error) = request.spawn.check() {
        return Some(error.to_string());
    }
    request.values.iter().find_map(|(key, value)| put_refusal(key, value)).map(str::to_owned)
}

/// Why a value may not be put, if it may not.
fn put_refusal(key: &str, value: &str) -> Option<&'static str> {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if key.is_empty() || key.len() >= KEY_MAX || value.len() >= VALUE_MAX {
        return Some("too_long");
    }
    if !is_word(key) || !is_word(value) {
        return Some("invalid_character");
    }
    // Keys with this prefix are the launcher's.
    key.starts_with("PMI_").then_some("reserved_key")
}

/// A list of ranks in the form `1,3-5`.
fn list(ranks: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let run = |&(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
