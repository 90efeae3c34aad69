//! The launcher's side of PMI-1, as a pure state machine: lines of processes in, lines for processes out.
//!
//! A barrier is of all processes that still run and have not left: one that dies is not waited for, so that the
//! others go on, find it in `PMI_dead_processes`, and find none of what it did not put.

use std::collections::{BTreeSet, HashMap};

use crate::spawn::order::Order;
use crate::wire::{self, Line, WireError};

/// Bytes of a key and of a value, a terminating zero included: a key as MPICH's mpiexec has it, a value such that
/// a line carries it there and back.
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 960;
/// Values that may be put for each process of the job: what a job keeps is bounded.
const VALUES_MAX_PER_PROCESS: usize = 4096;

/// A line for a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Its rank.
    pub to: u32,
    /// The line, its end included.
    pub line: String,
}

/// What comes of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// These are to be sent.
    Replies(Vec<Reply>),
    /// The process asks for the end of the job, with this exit status.
    Abort(u8),
    /// The process asks for a new job, and waits for what [`spawned`] says.
    Spawn(Order),
}

/// Why a process is no longer listened to.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// It isn't PMI-1 what it says.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// PMI-1 has it, and this launcher hasn't, or nobody has.
    #[error("`cmd={0}` is not supported")]
    Unknown(String),
    /// It is said where PMI-1 doesn't have it.
    #[error("`cmd={0}` comes out of turn")]
    OutOfTurn(String),
}

/// What a process has said so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing, and perhaps it never will: any command can be launched.
    Silent,
    /// It takes part.
    Joined,
    /// It waits in the barrier.
    Waiting,
    /// It has left, and may end.
    Left,
    /// It has ended.
    Ended,
}

/// What the processes of one job have said.
#[derive(Debug)]
pub struct Server {
    kvsname: String,
    values: HashMap<String, String>,
    phases: Vec<Phase>,
    dead: BTreeSet<u32>,
}

impl Server {
    /// For a job of `size` processes, all on this machine. The name is that of its space of keys, in which `values`
    /// stand from the beginning.
    pub fn new(
        size: u32,
        kvsname: &str,
        values: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        Server {
            kvsname: kvsname.to_owned(),
            values: values.into_iter().collect(),
            phases: vec![Phase::Silent; size as usize],
            dead: BTreeSet::new(),
        }
    }

    /// How many processes the job has.
    pub fn size(&self) -> usize {
        self.phases.len()
    }

    /// Whether a process has begun to take part and has not left: it may not end now.
    pub fn takes_part(&self, rank: u32) -> bool {
        let phase = self.phases.get(rank as usize);
        phase.is_some_and(|phase| matches!(phase, Phase::Joined | Phase::Waiting))
    }

    /// Takes in a line of a process.
    ///
    /// # Errors
    /// It breaks the protocol; nothing of it was done.
    pub fn hear(&mut self, rank: u32, line: &Line) -> Result<Heard, Violation> {
        let command = line.command();
        let out_of_turn = || Err(Violation::OutOfTurn(command.to_owned()));
        let Some(phase) = self.phases.get_mut(rank as usize) else { return out_of_turn() };
        match (*phase, command) {
            (Phase::Silent, "init") => *phase = Phase::Joined,
            (Phase::Joined, "init") | (Phase::Silent | Phase::Waiting, _) => return out_of_turn(),
            (Phase::Left | Phase::Ended, _) => return out_of_turn(),
            (Phase::Joined, _) => {}
        }
        let answer = match command {
            "init" => self.init(rank, line)?,
            "get_maxes" => {
                let (key, value) = (KEY_MAX.to_string(), VALUE_MAX.to_string());
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
                self.phases[rank as usize] = Phase::Waiting;
                return Ok(Heard::Replies(self.barrier()));
            }
            "finalize" => {
                self.phases[rank as usize] = Phase::Left;
                let line = wire::line("finalize_ack", &[])?;
                let mut replies = vec![Reply { to: rank, line }];
                replies.extend(self.barrier());
                return Ok(Heard::Replies(replies));
            }
            "abort" => return Ok(Heard::Abort(line.number("exitcode").unwrap_or(1))),
            other => return Err(Violation::Unknown(other.to_owned())),
        };
        Ok(Heard::Replies(vec![Reply { to: rank, line: answer }]))
    }

    /// Takes in a `mcmd=spawn` of a process.
    ///
    /// # Errors
    /// It breaks the protocol.
    pub fn hear_order(&mut self, rank: u32, order: Order) -> Result<Heard, Violation> {
        if self.phases.get(rank as usize) != Some(&Phase::Joined) {
            return Err(Violation::OutOfTurn("spawn".to_owned()));
        }
        if order.command < order.commands {
            // One answer, to the last of them.
            return Ok(Heard::Replies(Vec::new()));
        }
        Ok(match refusal(&order) {
            Some(why) => Heard::Replies(vec![spawned(rank, Some(&why))]),
            None => Heard::Spawn(order),
        })
    }

    /// A process has ended; if it is dead, and did not just end well, the others can find out.
    pub fn ended(&mut self, rank: u32, dead: bool) -> Vec<Reply> {
        let Some(phase) = self.phases.get_mut(rank as usize) else { return Vec::new() };
        *phase = Phase::Ended;
        if dead {
            self.dead.insert(rank);
        }
        self.barrier()
    }

    fn init(&mut self, rank: u32, line: &Line) -> Result<String, WireError> {
        let known = line.field("pmi_version") == Some("1");
        if !known {
            self.phases[rank as usize] = Phase::Silent;
        }
        let code = if known { "0" } else { "-1" };
        let version = [("pmi_version", "1"), ("pmi_subversion", "1"), ("rc", code)];
        wire::line("response_to_init", &version)
    }

    fn put(&mut self, line: &Line) -> Result<String, WireError> {
        let refused = |why| wire::line("put_result", &[("rc", "-1"), ("msg", why)]);
        if line.field("kvsname") != Some(&self.kvsname) {
            return refused("no_such_kvsname");
        }
        let (Some(key), Some(value)) = (line.field("key"), line.field("value")) else {
            return refused("no_key_or_no_value");
        };
        if let Some(why) = unfit(key, value) {
            return refused(why);
        }
        let is_new = !self.values.contains_key(key);
        if is_new && self.values.len() >= VALUES_MAX_PER_PROCESS * self.size() {
            return refused("too_many_keys");
        }
        self.values.insert(key.to_owned(), value.to_owned());
        wire::line("put_result", &[("rc", "0"), ("msg", "success")])
    }

    fn get(&self, line: &Line) -> Result<String, WireError> {
        let refused = |why| wire::line("get_result", &[("rc", "-1"), ("msg", why)]);
        if line.field("kvsname") != Some(&self.kvsname) {
            return refused("no_such_kvsname");
        }
        let value = match line.field("key") {
            None => return refused("no_key"),
            // All on one node, in blocks of all of them.
            Some("PMI_process_mapping") => Some(format!("(vector,(0,1,{}))", self.size())),
            Some("PMI_dead_processes") => Some(list(&self.dead)),
            Some(key) => self.values.get(key).cloned(),
        };
        let Some(value) = value else { return refused("key_not_found") };
        let answer = [("rc", "0"), ("msg", "success"), ("value", &*value)];
        // What was put fits a line; a list of many dead may not.
        wire::line("get_result", &answer).or_else(|_| refused("too_long"))
    }

    /// Lets those who wait go if nobody else is to come.
    fn barrier(&mut self) -> Vec<Reply> {
        let is_to_come = |phase: &Phase| matches!(phase, Phase::Silent | Phase::Joined);
        if self.phases.iter().any(is_to_come) {
            return Vec::new();
        }
        let mut replies = Vec::new();
        for (to, phase) in (0..).zip(&mut self.phases) {
            if *phase == Phase::Waiting {
                *phase = Phase::Joined;
                replies.push(Reply { to, line: "cmd=barrier_out\n".to_owned() });
            }
        }
        replies
    }
}

/// The answer to a process that has asked for a new job: it runs, or why not.
pub fn spawned(rank: u32, refusal: Option<&str>) -> Reply {
    let code = refusal.map_or("0".to_owned(), |why| {
        // A value of PMI-1 has no spaces.
        let word = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        format!("-1 msg={}", why.chars().take(VALUE_MAX).map(word).collect::<String>())
    });
    Reply { to: rank, line: format!("cmd=spawn_result rc={code}\n") }
}

/// Why nothing like this is started.
fn refusal(order: &Order) -> Option<String> {
    if order.commands != 1 {
        return Some("a job has one command here".to_owned());
    }
    if order.infos > 0 {
        return Some("infos beside a command are not supported".to_owned());
    }
    if let Err(error) = order.spawn.check() {
        return Some(error.to_string());
    }
    order.values.iter().find_map(|(key, value)| unfit(key, value)).map(str::to_owned)
}

/// Why this may not be put.
fn unfit(key: &str, value: &str) -> Option<&'static str> {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if key.is_empty() || key.len() >= KEY_MAX || value.len() >= VALUE_MAX {
        return Some("too_long");
    }
    if !is_word(key) || !is_word(value) {
        return Some("no_word");
    }
    // Those of the launcher.
    key.starts_with("PMI_").then_some("reserved_key")
}

/// Ranks as in `1,3-5`.
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
mod tests {
    use super::*;
    use crate::spawn::Spawn;

    fn say(server: &mut Server, rank: u32, line: &str) -> Result<Vec<(u32, String)>, Violation> {
        match server.hear(rank, &Line::parse(line.as_bytes()).unwrap())? {
            Heard::Replies(replies) => {
                Ok(replies.into_iter().map(|r| (r.to, r.line.trim_end().to_owned())).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    fn joined(size: u32) -> Server {
        let mut server = Server::new(size, "k", []);
        for rank in 0..size {
            let answer = say(&mut server, rank, "cmd=init pmi_version=1 pmi_subversion=1").unwrap();
            assert!(answer[0].1.ends_with("rc=0"), "{answer:?}");
        }
        server
    }

    fn answer(server: &mut Server, rank: u32, line: &str) -> String {
        let replies = say(server, rank, line).unwrap();
        assert_eq!((replies.len(), replies[0].0), (1, rank), "{replies:?}");
        replies[0].1.clone()
    }

    #[test]
    fn what_one_puts_another_gets() {
        let mut server = joined(2);
        let put = "cmd=put kvsname=k key=a value=b=c";
        assert_eq!(answer(&mut server, 0, put), "cmd=put_result rc=0 msg=success");
        assert_eq!(say(&mut server, 0, "cmd=barrier_in").unwrap(), []);
        let out = "cmd=barrier_out".to_owned();
        let both = say(&mut server, 1, "cmd=barrier_in").unwrap();
        assert_eq!(both, [(0, out.clone()), (1, out)]);
        let got = answer(&mut server, 1, "cmd=get kvsname=k key=a");
        assert_eq!(got, "cmd=get_result rc=0 msg=success value=b=c");
        let got = answer(&mut server, 1, "cmd=get kvsname=k key=PMI_process_mapping");
        assert!(got.ends_with("value=(vector,(0,1,2))"), "{got}");
        assert_eq!(answer(&mut server, 1, "cmd=finalize"), "cmd=finalize_ack");
        assert!(!server.takes_part(1) && server.takes_part(0));
    }

    #[test]
    fn the_dead_are_told_and_not_waited_for() {
        let mut server = joined(5);
        for rank in [0, 3] {
            assert_eq!(say(&mut server, rank, "cmd=barrier_in").unwrap(), []);
        }
        assert_eq!(server.ended(1, true), []);
        assert_eq!(server.ended(2, true), []);
        let out = server.ended(4, true);
        assert_eq!(out.iter().map(|reply| reply.to).collect::<Vec<_>>(), [0, 3]);
        let dead = answer(&mut server, 0, "cmd=get kvsname=k key=PMI_dead_processes");
        assert!(dead.ends_with(" value=1-2,4"), "{dead}");
        // Again, among those who are left.
        assert_eq!(say(&mut server, 0, "cmd=barrier_in").unwrap(), []);
        assert_eq!(say(&mut server, 3, "cmd=finalize").unwrap().len(), 2);
    }

    #[test]
    fn an_end_without_a_word_is_no_death_and_holds_nobody_up() {
        let mut server = Server::new(2, "k", []);
        say(&mut server, 0, "cmd=init pmi_version=1").unwrap();
        assert_eq!(say(&mut server, 0, "cmd=barrier_in").unwrap(), [], "the other may still come");
        assert_eq!(server.ended(1, false).len(), 1);
        let dead = answer(&mut server, 0, "cmd=get kvsname=k key=PMI_dead_processes");
        assert!(dead.ends_with(" value="), "{dead}");
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let mut server = joined(1);
        let long = "x".repeat(KEY_MAX);
        for put in [
            "kvsname=other key=a value=b",
            "kvsname=k key=a",
            "kvsname=k value=b",
            "kvsname=k key= value=b",
            "kvsname=k key=PMI_dead_processes value=0",
            &format!("kvsname=k key={long} value=b"),
        ] {
            let said = answer(&mut server, 0, &format!("cmd=put {put}"));
            assert!(said.starts_with("cmd=put_result rc=-1 msg="), "{put}: {said}");
        }
        for get in ["kvsname=k key=none", "kvsname=other key=a", "kvsname=k"] {
            let said = answer(&mut server, 0, &format!("cmd=get {get}"));
            assert!(said.starts_with("cmd=get_result rc=-1 msg="), "{get}: {said}");
        }
        assert!(matches!(say(&mut server, 0, "cmd=spawn"), Err(Violation::Unknown(_))));
        assert!(matches!(say(&mut server, 0, "cmd=init"), Err(Violation::OutOfTurn(_))));
        assert!(matches!(say(&mut server, 7, "cmd=init"), Err(Violation::OutOfTurn(_))));
        say(&mut server, 0, "cmd=finalize").unwrap();
        assert!(matches!(say(&mut server, 0, "cmd=barrier_in"), Err(Violation::OutOfTurn(_))));

        let mut server = Server::new(1, "k", []);
        let early = say(&mut server, 0, "cmd=get_maxes");
        assert!(matches!(early, Err(Violation::OutOfTurn(_))));
        assert!(answer(&mut server, 0, "cmd=init pmi_version=2").ends_with("rc=-1"));
        assert!(!server.takes_part(0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut server = joined(1);
        let put = |server: &mut Server, key: usize| {
            answer(server, 0, &format!("cmd=put kvsname=k key={key} value=b"))
        };
        for key in 0..VALUES_MAX_PER_PROCESS {
            assert!(put(&mut server, key).contains("rc=0"));
        }
        assert!(put(&mut server, VALUES_MAX_PER_PROCESS).contains("rc=-1 msg=too_many_keys"));
        assert!(put(&mut server, 0).contains("rc=0"), "one that is there");
    }

    fn order(size: u32, values: &[(&str, &str)]) -> Order {
        let values = values.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        let spawn = Spawn { command: vec!["a".into()], size };
        Order { spawn, values: values.collect(), infos: 0, commands: 1, command: 1 }
    }

    #[test]
    fn what_is_asked_for_finds_its_values() {
        let mut server = joined(2);
        let asked = order(3, &[("a", "b"), ("c", "")]);
        assert_eq!(server.hear_order(1, asked.clone()).unwrap(), Heard::Spawn(asked.clone()));
        assert_eq!(spawned(1, None).line, "cmd=spawn_result rc=0\n");
        let mut new = Server::new(asked.spawn.size, "new", asked.values);
        say(&mut new, 2, "cmd=init pmi_version=1").unwrap();
        assert!(answer(&mut new, 2, "cmd=get kvsname=new key=a").ends_with(" value=b"));
        assert!(answer(&mut new, 2, "cmd=get kvsname=new key=c").ends_with(" value="));
        assert!(answer(&mut new, 2, "cmd=get kvsname=k key=a").contains("rc=-1"), "of the old job");
        // The old one goes on.
        assert!(answer(&mut server, 1, "cmd=get kvsname=k key=a").contains("rc=-1"));
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused() {
        let mut server = joined(1);
        let long = "x".repeat(VALUE_MAX);
        let several = |command| Order { commands: 2, command, ..order(1, &[]) };
        for (refused, why) in [
            (order(0, &[]), "0_processes_of"),
            (order(u32::MAX, &[]), "4294967295_processes_of"),
            (order(1, &[("PMI_dead_processes", "0")]), "reserved_key"),
            (order(1, &[("a", "b"), ("", "b")]), "too_long"),
            (order(1, &[("a", &long)]), "too_long"),
            (order(1, &[("a", "b c")]), "no_word"),
            (order(1, &[("a\r", "b")]), "no_word"),
            (Order { infos: 1, ..order(1, &[]) }, "infos"),
            (Order { commands: 0, ..order(1, &[]) }, "a_job_has_one"),
            (several(2), "a_job_has_one"),
        ] {
            let Heard::Replies(replies) = server.hear_order(0, refused).unwrap() else {
                panic!("{why}")
            };
            assert_eq!((replies.len(), replies[0].to), (1, 0));
            let said = &replies[0].line;
            assert!(said.starts_with(&format!("cmd=spawn_result rc=-1 msg={why}")), "{said}");
        }
        assert_eq!(server.hear_order(0, several(1)).unwrap(), Heard::Replies(vec![]));
        // Why not is a line, whatever it is.
        for why in ["no\nsuch file", "é\0", &"x ".repeat(5000)] {
            let said = spawned(0, Some(why)).line;
            assert!(said.len() <= wire::WRITTEN_BYTES_MAX, "{said}");
            Line::parse(said.strip_suffix('\n').unwrap().as_bytes()).unwrap();
        }
    }

    #[test]
    fn who_takes_no_part_asks_for_nothing() {
        let out_of_turn = |server: &mut Server, rank| {
            matches!(server.hear_order(rank, order(1, &[])), Err(Violation::OutOfTurn(_)))
        };
        assert!(out_of_turn(&mut Server::new(1, "k", []), 0), "silent");
        let mut server = joined(2);
        say(&mut server, 0, "cmd=barrier_in").unwrap();
        assert!(out_of_turn(&mut server, 0), "it waits");
        say(&mut server, 1, "cmd=finalize").unwrap();
        assert!(out_of_turn(&mut server, 1), "it has left");
        assert!(out_of_turn(&mut server, 2), "there is none");
    }

    #[test]
    fn an_abort_has_its_status() {
        let mut server = joined(1);
        let abort = Line::parse(b"cmd=abort exitcode=7").unwrap();
        assert_eq!(server.hear(0, &abort).unwrap(), Heard::Abort(7));
        let garbled = Line::parse(b"cmd=abort exitcode=99999").unwrap();
        assert_eq!(server.hear(0, &garbled).unwrap(), Heard::Abort(1));
    }
}
