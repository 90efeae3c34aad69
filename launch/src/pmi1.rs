//! The client of PMI-1, version 1.1: how a process talks to the launcher that has started it.
//!
//! The launcher passes a connected socket to the process (`PMI_FD`, `PMI_RANK`, `PMI_SIZE`), or an
//! address to connect to (`PMI_PORT`, `PMI_ID`). Requests and answers are lines. Processes put
//! values under keys, wait in a barrier, and get the values that others have put. MPICH's
//! `mpiexec`, `srun --mpi=pmi2`, Flux and [`launcher`](crate::launcher) speak PMI-1.

use std::env;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use crate::inherit;
use crate::spawn::{PARENT_KEY, SIZE_MAX};
use crate::wire::{self, PmiLine, WireError};

/// Errors of the PMI-1 client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Pmi1Error {
    /// An environment variable has a value that no launcher would set.
    #[error("environment variable {name}=`{value}`: expected {wanted}")]
    Environment {
        /// The variable's name.
        name: &'static str,
        /// The variable's value; empty if it is not set.
        value: String,
        /// The expected value.
        wanted: &'static str,
    },
    /// The socket named by the environment is not open, or connecting to the launcher failed.
    #[error("the launcher can't be reached at {place}: {error}")]
    Unreachable {
        /// The environment variable and its value.
        place: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The connection has ended, or carries something other than PMI-1.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The launcher's answer does not belong to the request.
    #[error("the launcher answered `cmd={said}` instead of `cmd={wanted}`")]
    Answer {
        /// The command of the answer.
        said: String,
        /// The expected command.
        wanted: &'static str,
    },
    /// A field of the launcher's answer is missing or invalid.
    #[error("the launcher's `cmd={answer}` has no valid `{field}`")]
    Field {
        /// The command of the answer.
        answer: &'static str,
        /// The field's name.
        field: &'static str,
    },
    /// The launcher refuses a request.
    #[error("the launcher refuses `cmd={asked}`: {why}")]
    Refused {
        /// The command of the request.
        asked: &'static str,
        /// The launcher's reason, or its return code.
        why: String,
    },
    /// A key or value is longer than the launcher allows.
    #[error("a {what} of {length} bytes is longer than the launcher allows ({max})")]
    TooLong {
        /// `key` or `value`.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The longest allowed, in bytes.
        max: usize,
    },
}

/// The longest key and value that the launcher allows, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maxes {
    /// The longest key.
    pub key: usize,
    /// The longest value. A value that fits into a line may have to be shorter: see
    /// [`Pmi1::value_max`].
    pub value: usize,
}

/// A process's connection to its launcher.
///
/// Every call waits for the launcher's answer. Dropping the connection without
/// [`finalize`](Self::finalize) tells the launcher that the process has failed.
#[derive(Debug)]
pub struct Pmi1 {
    reader: BufReader<File>,
    rank: u32,
    size: u32,
    maxes: Maxes,
    kvsname: String,
}

impl Pmi1 {
    /// Connects to the launcher that the environment names; `None` if it names no PMI-1 launcher.
    ///
    /// # Errors
    /// The environment is invalid, the launcher can't be reached or doesn't speak PMI-1.
    pub fn from_env() -> Result<Option<Self>, Pmi1Error> {
        if let Some(number) = variable("PMI_FD") {
            let fd = parsed("PMI_FD", "the number of an open socket", |fd| *fd > 2)?;
            let socket =
                inherit::take(fd).map_err(|error| unreachable("PMI_FD", &number, error))?;
            let sizes = 1..=SIZE_MAX;
            let size = parsed("PMI_SIZE", "a number of processes", |size| sizes.contains(size))?;
            let rank = parsed("PMI_RANK", "a number below PMI_SIZE", |rank| *rank < size)?;
            return Self::open(socket, rank, size).map(Some);
        }
        if let Some(place) = variable("PMI_PORT") {
            let id = parsed("PMI_ID", "a number", |_: &u32| true)?;
            let stream = TcpStream::connect(&place)
                .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
                .map_err(|error| unreachable("PMI_PORT", &place, error))?;
            return Self::introduce(File::from(OwnedFd::from(stream)), id).map(Some);
        }
        Ok(None)
    }

    /// Tells the launcher at the other end of a new connection which process this is, and reads
    /// rank and size.
    fn introduce(socket: File, id: u32) -> Result<Self, Pmi1Error> {
        let mut reader = BufReader::new(socket);
        let id = id.to_string();
        let request = wire::line("initack", &[("pmiid", &id)])?;
        reader.get_mut().write_all(request.as_bytes()).map_err(WireError::Broken)?;
        expect(&mut reader, "initack")?;
        let size: u32 = number(&expect(&mut reader, "set")?, "set", "size")?;
        let rank: u32 = number(&expect(&mut reader, "set")?, "set", "rank")?;
        expect(&mut reader, "set")?.field("debug").ok_or(no_field("set", "debug"))?;
        if !(1..=SIZE_MAX).contains(&size) || rank >= size {
            return Err(no_field("set", "rank"));
        }
        Self::begin(reader, rank, size)
    }

    /// Starts a PMI-1 session over a socket.
    ///
    /// # Errors
    /// The other end does not speak PMI-1.
    pub fn open(socket: File, rank: u32, size: u32) -> Result<Self, Pmi1Error> {
        Self::begin(BufReader::new(socket), rank, size)
    }

    fn begin(reader: BufReader<File>, rank: u32, size: u32) -> Result<Self, Pmi1Error> {
        let maxes = Maxes { key: 0, value: 0 };
        let mut pmi = Pmi1 { reader, rank, size, maxes, kvsname: String::new() };
        let version = [("pmi_version", "1"), ("pmi_subversion", "1")];
        pmi.ask("init", &version, "response_to_init")?;
        let answer = pmi.ask("get_maxes", &[], "maxes")?;
        let max = |field| number::<usize>(&answer, "maxes", field);
        // Launchers count a terminating zero, too (MPICH's PMI_KVS_Get_value_length_max).
        pmi.maxes = Maxes {
            key: max("keylen_max")?.saturating_sub(1),
            value: max("vallen_max")?.saturating_sub(1),
        };
        let answer = pmi.ask("get_my_kvsname", &[], "my_kvsname")?;
        pmi.kvsname = number(&answer, "my_kvsname", "kvsname")?;
        Ok(pmi)
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of processes in the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The name of the job's key-value store.
    pub(crate) fn kvsname(&self) -> &str {
        &self.kvsname
    }

    /// The longest key and value that the launcher allows.
    pub fn maxes(&self) -> Maxes {
        self.maxes
    }

    /// The longest value, in bytes, that can be put under a key of `key` bytes: the launcher allows
    /// it, and it fits into a line.
    pub fn value_max(&self, key: usize) -> usize {
        let around = "cmd=put kvsname= key= value=\n".len() + self.kvsname.len() + key;
        self.maxes.value.min(wire::WRITTEN_BYTES_MAX.saturating_sub(around))
    }

    /// Puts a value under a key. Other processes can get it after a barrier. Key and value must not
    /// have a space.
    ///
    /// # Errors
    /// The key or value is too long, the launcher refuses it, or the connection has ended.
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

    /// Waits until all processes of the job have called this.
    ///
    /// # Errors
    /// The connection to the launcher has ended.
    pub fn barrier(&mut self) -> Result<(), Pmi1Error> {
        self.ask("barrier_in", &[], "barrier_out").map(drop)
    }

    /// The value under a key; `None` if there is none.
    ///
    /// # Errors
    /// The connection to the launcher has ended.
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

    /// Ranks of the dead processes that the launcher knows of and reports (`PMI_dead_processes`).
    ///
    /// # Errors
    /// The connection to the launcher has ended, or its list is invalid.
    pub fn dead(&mut self) -> Result<Vec<u32>, Pmi1Error> {
        let list = self.get("PMI_dead_processes")?.unwrap_or_default();
        ranks(&list, self.size).ok_or(no_field("get_result", "value"))
    }

    /// The string that the parent process passed when it spawned this process; `None` if this
    /// process was not spawned, or its parent passed none.
    ///
    /// # Errors
    /// The connection to the launcher has ended.
    pub fn parent(&mut self) -> Result<Option<String>, Pmi1Error> {
        // For processes that were not spawned, launchers leave the variable unset, or set it to 0.
        let is_spawned = variable("PMI_SPAWNED").is_some_and(|value| value != "0");
        if is_spawned { self.get(PARENT_KEY) } else { Ok(None) }
    }

    /// Asks the launcher to start a job, with the lines that [`Spawn`](crate::Spawn) has made, and
    /// waits for the answer.
    ///
    /// # Errors
    /// The launcher refuses, or the connection has ended.
    pub(crate) fn spawn(&mut self, lines: &str) -> Result<(), Pmi1Error> {
        self.say(lines, "spawn", "spawn_result").map(drop)
    }

    /// Ends the session. From now on, the launcher doesn't count the end of this process as a
    /// failure.
    ///
    /// # Errors
    /// The connection to the launcher has ended.
    pub fn finalize(mut self) -> Result<(), Pmi1Error> {
        self.ask("finalize", &[], "finalize_ack").map(drop)
    }

    /// Asks the launcher to end the whole job with this status. The launcher doesn't answer; this
    /// process should exit.
    ///
    /// # Errors
    /// The connection to the launcher has ended.
    pub fn abort(mut self, status: u8) -> Result<(), Pmi1Error> {
        let request = wire::line("abort", &[("exitcode", &status.to_string())])?;
        self.reader.get_mut().write_all(request.as_bytes()).map_err(WireError::Broken)?;
        Ok(())
    }

    fn ask(
        &mut self,
        asked: &'static str,
        fields: &[(&str, &str)],
        wanted: &'static str,
    ) -> Result<PmiLine, Pmi1Error> {
        self.say(&wire::line(asked, fields)?, asked, wanted)
    }

    fn say(
        &mut self,
        request: &str,
        asked: &'static str,
        wanted: &'static str,
    ) -> Result<PmiLine, Pmi1Error> {
        self.reader.get_mut().write_all(request.as_bytes()).map_err(WireError::Broken)?;
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

fn expect(reader: &mut BufReader<File>, wanted: &'static str) -> Result<PmiLine, Pmi1Error> {
    let answer = PmiLine::read(reader)?;
    if answer.command() == wanted {
        return Ok(answer);
    }
    Err(Pmi1Error::Answer { said: answer.command().to_owned(), wanted })
}

fn no_field(answer: &'static str, field: &'static str) -> Pmi1Error {
    Pmi1Error::Field { answer, field }
}

fn number<T: FromStr>(
    line: &PmiLine,
    answer: &'static str,
    field: &'static str,
) -> Result<T, Pmi1Error> {
    line.number(field).ok_or(no_field(answer, field))
}

/// An environment variable, if it is set. Characters that aren't Unicode are replaced.
fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn unreachable(name: &str, value: &str, error: io::Error) -> Pmi1Error {
    Pmi1Error::Unreachable { place: format!("{name}={}", value.escape_debug()), error }
}

/// The number in an environment variable.
fn parsed<T: FromStr>(
    name: &'static str,
    wanted: &'static str,
    is_right: impl FnOnce(&T) -> bool,
) -> Result<T, Pmi1Error> {
    let value = variable(name).unwrap_or_default();
    let wrong = || {
        let value = value.escape_debug().to_string();
        Pmi1Error::Environment { name, value, wanted }
    };
    value.parse().ok().filter(is_right).ok_or_else(wrong)
}

/// The ranks in a list such as `1,3-5`; `None` if the list is invalid or has a rank that is not
/// below `size`.
pub(crate) fn ranks(list: &str, size: u32) -> Option<Vec<u32>> {
    let mut ranges = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().ok()?;
        let last: u32 = last.parse().ok()?;
        if last >= size || first > last {
            return None;
        }
        ranges.push((first, last));
    }
    // A short list may name all ranks of a large job again and again.
    ranges.sort_unstable();
    let mut all = Vec::new();
    let mut next = 0;
    for (first, last) in ranges {
        all.extend(next.max(first)..=last);
        next = next.max(last + 1);
    }
    Some(all)
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
