//! The client of PMI-1, version 1.1: what a process says to the launcher that has started it.
//!
//! The launcher hands over a connected socket (`PMI_FD`, `PMI_RANK`, `PMI_SIZE`), or says where to connect to
//! (`PMI_PORT`, `PMI_ID`). Lines go back and forth; processes put values under keys, meet at a barrier, and get
//! what others have put. MPICH's `mpiexec`, `srun --mpi=pmi2`, Flux and [`launcher`](crate::launcher) speak it.

use std::env;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use crate::wire::{self, Line, WireError};
use crate::{inherit, spawn};

/// Processes of a job; more can't be ranks here.
pub const SIZE_MAX: u32 = 1 << 24;

/// Why PMI-1 can't go on.
#[derive(Debug, thiserror::Error)]
pub enum Pmi1Error {
    /// A variable of the environment isn't what a launcher would set.
    #[error("{name}=`{value}` in the environment: {wanted} would be right")]
    Environment {
        /// Its name.
        name: &'static str,
        /// Its value; empty if it is missing.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// The socket that the launcher is said to have left isn't there, or the launcher can't be reached.
    #[error("the launcher can't be reached at {place}: {error}")]
    Unreachable {
        /// The variable and its value.
        place: String,
        /// The system's word.
        error: io::Error,
    },
    /// The connection has ended, or carries what is no PMI-1.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The launcher answers something else than what was asked.
    #[error("the launcher says `cmd={said}` where PMI-1 has `cmd={wanted}`")]
    Answer {
        /// What it says.
        said: String,
        /// What is wanted.
        wanted: &'static str,
    },
    /// The launcher leaves out, or garbles, a field of its answer.
    #[error("the launcher's `cmd={answer}` has no good `{field}`")]
    Field {
        /// The answer.
        answer: &'static str,
        /// The field.
        field: &'static str,
    },
    /// The launcher refuses.
    #[error("the launcher refuses `cmd={asked}`: {why}")]
    Refused {
        /// What was asked.
        asked: &'static str,
        /// Its reason, or its return code.
        why: String,
    },
    /// A key or value is longer than the launcher takes.
    #[error("a {what} of {length} bytes is longer than the launcher takes: {max}")]
    TooLong {
        /// `key` or `value`.
        what: &'static str,
        /// Its bytes.
        length: usize,
        /// How many there may be.
        max: usize,
    },
}

/// How long what is put may be, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maxes {
    /// Of a key.
    pub key: usize,
    /// Of a value; what fits a line is less, see [`Pmi1::value_max`].
    pub value: usize,
}

/// A process's connection to its launcher.
///
/// Every call waits for the launcher's answer. Dropping it without [`finalize`](Self::finalize) tells the
/// launcher that the process has failed.
#[derive(Debug)]
pub struct Pmi1 {
    reader: BufReader<File>,
    rank: u32,
    size: u32,
    maxes: Maxes,
    kvsname: String,
}

impl Pmi1 {
    /// Connects as the environment says; `None` if it names no launcher of this kind.
    ///
    /// # Errors
    /// The environment is garbled, the launcher isn't there or doesn't speak PMI-1.
    pub fn from_env() -> Result<Option<Self>, Pmi1Error> {
        if let Some(number) = variable("PMI_FD") {
            let wanted = "the number of an open socket";
            let fd = number.parse().ok().filter(|fd| *fd > 2);
            let fd = fd.ok_or_else(|| wrong("PMI_FD", &number, wanted))?;
            let socket =
                inherit::take(fd).map_err(|error| unreachable("PMI_FD", &number, error))?;
            let wanted = "a number of processes";
            let size = parsed("PMI_SIZE", wanted, |size| (1..=SIZE_MAX).contains(size))?;
            let rank = parsed("PMI_RANK", "a number below PMI_SIZE", |rank| *rank < size)?;
            return Self::open(socket, rank, size).map(Some);
        }
        if let Some(place) = variable("PMI_PORT") {
            let id: u32 = parsed("PMI_ID", "a number", |_| true)?;
            let stream = TcpStream::connect(&place)
                .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
                .map_err(|error| unreachable("PMI_PORT", &place, error))?;
            return Self::introduce(File::from(OwnedFd::from(stream)), id).map(Some);
        }
        Ok(None)
    }

    /// Says which process this is to a launcher that was connected to, and hears rank and size.
    fn introduce(socket: File, id: u32) -> Result<Self, Pmi1Error> {
        let mut reader = BufReader::new(socket);
        let id = id.to_string();
        let said = wire::line("initack", &[("pmiid", &id)])?;
        reader.get_mut().write_all(said.as_bytes()).map_err(WireError::Broken)?;
        expect(&mut reader, "initack")?;
        let size: u32 = number(&expect(&mut reader, "set")?, "set", "size")?;
        let rank: u32 = number(&expect(&mut reader, "set")?, "set", "rank")?;
        expect(&mut reader, "set")?.field("debug").ok_or(no_field("set", "debug"))?;
        if !(1..=SIZE_MAX).contains(&size) || rank >= size {
            return Err(no_field("set", "rank"));
        }
        Self::greet(reader, rank, size)
    }

    /// Begins to speak PMI-1 over a socket.
    ///
    /// # Errors
    /// The other side doesn't.
    pub fn open(socket: File, rank: u32, size: u32) -> Result<Self, Pmi1Error> {
        Self::greet(BufReader::new(socket), rank, size)
    }

    fn greet(reader: BufReader<File>, rank: u32, size: u32) -> Result<Self, Pmi1Error> {
        let maxes = Maxes { key: 0, value: 0 };
        let mut pmi = Pmi1 { reader, rank, size, maxes, kvsname: String::new() };
        let version = [("pmi_version", "1"), ("pmi_subversion", "1")];
        pmi.ask("init", &version, "response_to_init")?;
        let answer = pmi.ask("get_maxes", &[], "maxes")?;
        let max = |field| number::<usize>(&answer, "maxes", field);
        // What they count includes a terminating zero (MPICH's PMI_KVS_Get_value_length_max).
        pmi.maxes = Maxes {
            key: max("keylen_max")?.saturating_sub(1),
            value: max("vallen_max")?.saturating_sub(1),
        };
        let answer = pmi.ask("get_my_kvsname", &[], "my_kvsname")?;
        answer
            .field("kvsname")
            .ok_or(no_field("my_kvsname", "kvsname"))?
            .clone_into(&mut pmi.kvsname);
        Ok(pmi)
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes the job has.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// What the launcher allows.
    pub fn maxes(&self) -> Maxes {
        self.maxes
    }

    /// The most bytes of a value that is put under a key of `key` bytes: by the launcher's word, and such that
    /// it fits a line.
    pub fn value_max(&self, key: usize) -> usize {
        let around = "cmd=put kvsname= key= value=\n".len() + self.kvsname.len() + key;
        self.maxes.value.min(wire::WRITTEN_BYTES_MAX.saturating_sub(around))
    }

    /// Puts a value under a key; others see it after a barrier. Neither may have a space.
    ///
    /// # Errors
    /// They are too long, the launcher refuses them or has gone.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Pmi1Error> {
        let too_long = |what, length, max| Err(Pmi1Error::TooLong { what, length, max });
        if key.len() > self.maxes.key {
            return too_long("key", key.len(), self.maxes.key);
        }
        if value.len() > self.value_max(key.len()) {
            return too_long("value", value.len(), self.value_max(key.len()));
        }
        let kvsname = self.kvsname.clone();
        let fields = [("kvsname", &*kvsname), ("key", key), ("value", value)];
        self.ask("put", &fields, "put_result").map(drop)
    }

    /// Waits for all processes of the job.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn barrier(&mut self) -> Result<(), Pmi1Error> {
        self.ask("barrier_in", &[], "barrier_out").map(drop)
    }

    /// What was put under a key; `None` if nothing was.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, Pmi1Error> {
        let kvsname = self.kvsname.clone();
        match self.ask("get", &[("kvsname", &kvsname), ("key", key)], "get_result") {
            Ok(answer) => {
                let value = answer.field("value").ok_or(no_field("get_result", "value"))?;
                Ok(Some(value.to_owned()))
            }
            Err(Pmi1Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ranks of processes that have died, as far as the launcher knows and tells (`PMI_dead_processes`).
    ///
    /// # Errors
    /// The launcher has gone, or its list is garbled.
    pub fn dead(&mut self) -> Result<Vec<u32>, Pmi1Error> {
        let list = self.get("PMI_dead_processes")?.unwrap_or_default();
        ranks(&list, self.size).ok_or(no_field("get_result", "value"))
    }

    /// The word that the process that has spawned this one has left for it; `None` if this one was not spawned, or
    /// by nobody who leaves such words.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn parent(&mut self) -> Result<Option<String>, Pmi1Error> {
        // Launchers leave it unset, or 0, for others.
        let is_spawned = variable("PMI_SPAWNED").is_some_and(|value| value != "0");
        if is_spawned { self.get(spawn::PARENT) } else { Ok(None) }
    }

    /// Asks for more processes, in lines that [`Spawn`](spawn::Spawn) has made, and waits for the answer.
    ///
    /// # Errors
    /// The launcher refuses or has gone.
    pub(crate) fn spawn(&mut self, lines: &str) -> Result<(), Pmi1Error> {
        self.say(lines, "spawn", "spawn_result").map(drop)
    }

    /// Ends the connection: from now on this process's end is no failure.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn finalize(mut self) -> Result<(), Pmi1Error> {
        self.ask("finalize", &[], "finalize_ack").map(drop)
    }

    /// Asks the launcher to end the whole job with this status. It doesn't answer; this process should exit.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn abort(mut self, status: u8) -> Result<(), Pmi1Error> {
        let said = wire::line("abort", &[("exitcode", &status.to_string())])?;
        self.reader.get_mut().write_all(said.as_bytes()).map_err(WireError::Broken)?;
        Ok(())
    }

    fn ask(
        &mut self,
        asked: &'static str,
        fields: &[(&str, &str)],
        wanted: &'static str,
    ) -> Result<Line, Pmi1Error> {
        self.say(&wire::line(asked, fields)?, asked, wanted)
    }

    fn say(
        &mut self,
        said: &str,
        asked: &'static str,
        wanted: &'static str,
    ) -> Result<Line, Pmi1Error> {
        self.reader.get_mut().write_all(said.as_bytes()).map_err(WireError::Broken)?;
        let answer = expect(&mut self.reader, wanted)?;
        match answer.field("rc") {
            None | Some("0") => Ok(answer),
            Some(code) => {
                let why = answer.field("msg").map_or_else(|| format!("rc={code}"), str::to_owned);
                Err(Pmi1Error::Refused { asked, why })
            }
        }
    }
}

fn expect(reader: &mut BufReader<File>, wanted: &'static str) -> Result<Line, Pmi1Error> {
    let answer = Line::read(reader)?;
    if answer.command() == wanted {
        return Ok(answer);
    }
    Err(Pmi1Error::Answer { said: answer.command().to_owned(), wanted })
}

fn no_field(answer: &'static str, field: &'static str) -> Pmi1Error {
    Pmi1Error::Field { answer, field }
}

fn number<T: std::str::FromStr>(
    line: &Line,
    answer: &'static str,
    field: &'static str,
) -> Result<T, Pmi1Error> {
    line.number(field).ok_or(no_field(answer, field))
}

/// A variable of the environment that is set; what isn't Unicode is told as such.
fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn wrong(name: &'static str, value: &str, wanted: &'static str) -> Pmi1Error {
    Pmi1Error::Environment { name, value: value.escape_debug().to_string(), wanted }
}

fn unreachable(name: &str, value: &str, error: io::Error) -> Pmi1Error {
    Pmi1Error::Unreachable { place: format!("{name}={}", value.escape_debug()), error }
}

fn parsed(
    name: &'static str,
    wanted: &'static str,
    is_right: impl FnOnce(&u32) -> bool,
) -> Result<u32, Pmi1Error> {
    let value = variable(name).unwrap_or_default();
    value.parse().ok().filter(is_right).ok_or_else(|| wrong(name, &value, wanted))
}

/// The ranks of a list such as `1,3-5`, all below `size`.
fn ranks(list: &str, size: u32) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= size || first > last {
            return None;
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, Read};
    use std::os::unix::net::UnixStream;
    use std::thread;

    /// A launcher that has these answers, one for each line it hears. Gives what it heard.
    fn with_answers<T: Send>(
        answers: &[&str],
        client: impl FnOnce(File) -> T + Send,
    ) -> (T, Vec<String>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let client = scope.spawn(move || client(File::from(OwnedFd::from(theirs))));
            let mut reader = BufReader::new(ours);
            let mut heard = Vec::new();
            for answer in answers {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap() == 0 {
                    break;
                }
                heard.push(line.trim_end().to_owned());
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            reader.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
            let mut rest = String::new();
            reader.read_to_string(&mut rest).unwrap();
            heard.extend(rest.lines().map(str::to_owned));
            (client.join().unwrap(), heard)
        })
    }

    const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
    const KVSNAME: &str = "cmd=my_kvsname kvsname=kvs_1\n";

    #[test]
    fn a_session_of_hydra() {
        let answers = [
            INIT,
            MAXES,
            KVSNAME,
            "cmd=put_result rc=0 msg=success\n",
            "cmd=barrier_out\n",
            "cmd=get_result rc=0 msg=success value=00ff\n",
            "cmd=get_result rc=-1 msg=key_b_not_found value=unknown\n",
            "cmd=get_result rc=0 msg=success value=1,3-5\n",
            "cmd=finalize_ack\n",
        ];
        let (result, heard) = with_answers(&answers, |socket| {
            let mut pmi = Pmi1::open(socket, 1, 8)?;
            pmi.put("a", "00ff")?;
            pmi.barrier()?;
            assert_eq!(pmi.get("a")?.as_deref(), Some("00ff"));
            assert_eq!(pmi.get("b")?, None);
            assert_eq!(pmi.dead()?, [1, 3, 4, 5]);
            pmi.finalize()
        });
        result.unwrap();
        assert_eq!(heard[0], "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(heard[3], "cmd=put kvsname=kvs_1 key=a value=00ff");
        assert_eq!(heard[5], "cmd=get kvsname=kvs_1 key=a");
        assert_eq!(heard[8], "cmd=finalize");
    }

    #[test]
    fn a_process_that_connects_introduces_itself() {
        let answers = ["cmd=initack rc=0\ncmd=set size=3\ncmd=set rank=2\ncmd=set debug=0\n"];
        let answers = [answers[0], INIT, MAXES, KVSNAME];
        let introduce = |socket| Pmi1::introduce(socket, 7).map(|pmi| (pmi.rank(), pmi.size()));
        let (introduced, heard) = with_answers(&answers, introduce);
        assert_eq!(introduced.unwrap(), (2, 3));
        assert_eq!(heard[0], "cmd=initack pmiid=7");
        let beyond = ["cmd=initack\ncmd=set size=3\ncmd=set rank=3\ncmd=set debug=0\n"];
        let (refused, _) = with_answers(&beyond, |socket| Pmi1::introduce(socket, 7).map(drop));
        assert!(matches!(refused, Err(Pmi1Error::Field { field: "rank", .. })));
    }

    #[test]
    fn processes_are_asked_for_in_lines_of_mpich() {
        let spawn = spawn::Spawn { command: ["app", "-n", "a b"].map(Into::into).into(), size: 2 };
        let lines = spawn.to_lines("word").unwrap();
        for (answer, is_right) in [
            ("cmd=spawn_result rc=0\n", true),
            ("cmd=spawn_result rc=-1 msg=no_such_file\n", false),
        ] {
            let (result, heard) = with_answers(&[INIT, MAXES, KVSNAME, answer], |socket| {
                Pmi1::open(socket, 0, 1)?.spawn(&lines)
            });
            match result {
                Ok(()) => assert!(is_right),
                Err(error) => {
                    assert!(!is_right && error.to_string().ends_with(": no_such_file"), "{error}");
                }
            }
            let said = "mcmd=spawn nprocs=2 execname=app totspawns=1 spawnssofar=1 arg1=-n arg2=a b argcnt=2 \
                        preput_num=1 preput_key_0=TAGMATCH_PARENT preput_val_0=word info_num=0 endcmd";
            assert_eq!(heard[3..].join(" "), said);
        }
    }

    #[test]
    fn what_the_launcher_garbles_is_an_error() {
        let open = |answers: &[&str]| {
            let (opened, _) = with_answers(answers, |socket| Pmi1::open(socket, 0, 1).map(drop));
            opened.unwrap_err()
        };
        assert!(matches!(open(&[]), Pmi1Error::Wire(WireError::Closed)));
        assert!(matches!(open(&["HTTP/1.1 400\n"]), Pmi1Error::Wire(WireError::Garbage { .. })));
        assert!(matches!(open(&[MAXES]), Pmi1Error::Answer { wanted: "response_to_init", .. }));
        let refused = open(&["cmd=response_to_init rc=-1\n"]);
        assert!(matches!(refused, Pmi1Error::Refused { asked: "init", .. }), "{refused}");
        let field = open(&[INIT, "cmd=maxes keylen_max=x vallen_max=9\n"]);
        assert!(matches!(field, Pmi1Error::Field { field: "keylen_max", .. }), "{field}");
        assert!(matches!(open(&[INIT, MAXES, "cmd=my_kvsname\n"]), Pmi1Error::Field { .. }));
    }

    #[test]
    fn lengths_are_the_launchers_and_the_lines() {
        let room = |socket| Pmi1::open(socket, 0, 1).map(|pmi| pmi.value_max(10));
        let (room, _) = with_answers(&[INIT, MAXES, KVSNAME], room);
        let room = room.unwrap();
        let line = wire::line(
            "put",
            &[("kvsname", "kvs_1"), ("key", &"k".repeat(10)), ("value", &"v".repeat(room))],
        );
        assert_eq!(line.unwrap().len(), wire::WRITTEN_BYTES_MAX);
        let small = "cmd=maxes kvsname_max=256 keylen_max=4 vallen_max=9\n";
        let (results, heard) = with_answers(&[INIT, small, KVSNAME], |socket| {
            let mut pmi = Pmi1::open(socket, 0, 1).unwrap();
            assert_eq!(pmi.value_max(3), 8);
            [pmi.put("long", "v"), pmi.put("k", "123456789")]
        });
        for (result, wrong) in results.iter().zip(["key", "value"]) {
            assert!(matches!(result, Err(Pmi1Error::TooLong { what, .. }) if *what == wrong));
        }
        assert_eq!(heard.len(), 3, "nothing of it was said");
    }

    #[test]
    fn lists_of_ranks() {
        assert_eq!(ranks("", 4).unwrap(), []);
        assert_eq!(ranks("3,0-1,1", 4).unwrap(), [0, 1, 3]);
        for garbled in ["4", "x", "1-", "2-1", "0-4294967295", "-1"] {
            assert_eq!(ranks(garbled, 4), None, "{garbled}");
        }
    }
}
