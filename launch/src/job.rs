//! A process's part in a job, whoever has launched it.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::pmi1::{Pmi1, Pmi1Error};
use crate::pmix::{Pmix, PmixError};
use crate::spawn::{self, Spawn, SpawnError};
use crate::wire::{from_hex, to_hex};

/// Bytes that a process may hand to the others at a time.
pub const BYTES_MAX: usize = 64 << 10;
/// Hexadecimal digits before the first piece: how many bytes there are.
const LENGTH_DIGITS: usize = 8;

/// Why a process can't take part in its job.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// PMI-1 failed.
    #[error(transparent)]
    Pmi1(#[from] Pmi1Error),
    /// PMIx failed.
    #[error(transparent)]
    Pmix(#[from] PmixError),
    /// Processes can't be asked for.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// A launcher is joined once in a process.
    #[error("this process has joined its job before")]
    JoinedBefore,
    /// There is more to hand over than can be.
    #[error("{length} bytes are more than a process may hand over: {BYTES_MAX}")]
    TooLong {
        /// How many bytes.
        length: usize,
    },
    /// A process has died before it handed anything over.
    #[error("process {rank} of the job has died")]
    Dead {
        /// Its rank.
        rank: u32,
    },
    /// What a process has handed over isn't there or is garbled.
    #[error("what process {rank} of the job has handed over {what}")]
    Garbled {
        /// Its rank.
        rank: u32,
        /// What is wrong.
        what: &'static str,
    },
}

/// Who has launched a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Launcher {
    /// Nobody: a job of one process.
    Nobody,
    /// One that speaks PMI-1.
    Pmi1,
    /// One that speaks PMIx.
    Pmix,
}

impl Display for Launcher {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "no launcher",
            Self::Pmi1 => "PMI-1",
            Self::Pmix => "PMIx",
        })
    }
}

#[derive(Debug)]
enum Via {
    Nobody,
    Pmi1(Pmi1),
    Pmix(Box<Pmix>),
}

/// A process's part in a job.
///
/// Dropping it without [`leave`](Self::leave) tells the launcher that the process has failed.
#[derive(Debug)]
pub struct Job {
    via: Via,
    /// Exchanges so far: each has its own keys.
    exchanges: u32,
    parent: Option<String>,
}

impl Job {
    /// Joins the job that this process was launched for: by PMI-1 or PMIx, whichever the environment names, or
    /// alone if it names neither. Talks with the launcher, and doesn't wait for other processes.
    ///
    /// With PMI-1, MPICH's `mpiexec -disable-auto-cleanup` sends SIGUSR1 to those that are left when a process
    /// fails: who wants to survive that must handle it. When a process is killed by a signal it ends all others, in
    /// any case; a shell that starts the process and exits with 0 keeps that from it.
    ///
    /// # Errors
    /// The environment names a launcher that isn't there or can't be understood, or this process has joined
    /// before.
    pub fn join() -> Result<Self, Error> {
        static JOINED: AtomicBool = AtomicBool::new(false);
        if !Self::is_launched() {
            return Ok(Self::alone());
        }
        if JOINED.swap(true, Ordering::Relaxed) {
            return Err(Error::JoinedBefore);
        }
        let mut job = Self::alone();
        if let Some(mut pmi) = Pmi1::from_env()? {
            job.parent = pmi.parent()?;
            job.via = Via::Pmi1(pmi);
        } else if let Some(pmix) = Pmix::from_env()? {
            job.parent = pmix.parent();
            job.via = Via::Pmix(Box::new(pmix));
        }
        if let Some(parent) = &job.parent {
            spawn::check_word(parent)?;
        }
        Ok(job)
    }

    /// Whether the environment names a launcher: [`join`](Self::join) would talk to it.
    pub fn is_launched() -> bool {
        ["PMI_FD", "PMI_PORT", "PMIX_NAMESPACE"].iter().any(|v| std::env::var_os(v).is_some())
    }

    /// A job of this process alone, whatever the environment says.
    pub fn alone() -> Self {
        Job { via: Via::Nobody, exchanges: 0, parent: None }
    }

    /// This process's rank, below [`size`](Self::size).
    pub fn rank(&self) -> u32 {
        match &self.via {
            Via::Nobody => 0,
            Via::Pmi1(pmi) => pmi.rank(),
            Via::Pmix(pmix) => pmix.rank(),
        }
    }

    /// How many processes the job has, 1 at least.
    pub fn size(&self) -> u32 {
        match &self.via {
            Via::Nobody => 1,
            Via::Pmi1(pmi) => pmi.size(),
            Via::Pmix(pmix) => pmix.size(),
        }
    }

    /// Who has launched the job.
    pub fn launcher(&self) -> Launcher {
        match &self.via {
            Via::Nobody => Launcher::Nobody,
            Via::Pmi1(_) => Launcher::Pmi1,
            Via::Pmix(_) => Launcher::Pmix,
        }
    }

    /// The word that [`spawn`](Self::spawn) was given, in a process that it has started; `None` in others.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// Asks the launcher to start processes: a job of their own, with ranks from 0 on, that exchanges and meets in
    /// barriers apart from this one. They run in the launcher's directory and environment. Each finds `word` as its
    /// [`parent`](Self::parent): 1 to [`WORD_BYTES_MAX`](spawn::WORD_BYTES_MAX) printable ASCII characters without
    /// spaces. The environment also says `PMI_SPAWNED=1` (PMI-1) or `TAGMATCH_PARENT` (PMIx).
    ///
    /// Waits for the launcher's answer. `tagperf run` and Open MPI's `mpirun` give it when all of them run; MPICH's
    /// `mpiexec` only says that it will start them. A command that can't be started is an error under `tagperf run`, is
    /// reported by `mpiexec`, and ends all jobs under `mpirun` ([more](crate::pmix#spawning)). One of the processes that
    /// fails ends all jobs where the launcher wasn't told to keep going; `mpiexec` overlooks it if it just exits. Flux
    /// starts none, and says so.
    ///
    /// ```no_run
    /// use tagmatch_launch::{Job, Spawn};
    ///
    /// let mut job = Job::join()?;
    /// if let Some(place) = job.parent() {
    ///     println!("{} of {} is to connect to {place}", job.rank(), job.size());
    /// } else if job.rank() == 0 {
    ///     let command = vec![std::env::args_os().next().unwrap()];
    ///     job.spawn(&Spawn { command, size: 2 }, "127.0.0.1:4711")?;
    /// }
    /// job.leave()?;
    /// # Ok::<(), tagmatch_launch::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no launcher, it refuses, can't start them or has gone; the word is none; the command can't be handed
    /// to the launcher: with PMI-1 its words are UTF-8 without newlines, and
    /// [`BYTES_MAX`](spawn::BYTES_MAX) bytes in all.
    pub fn spawn(&mut self, spawn: &Spawn, word: &str) -> Result<(), Error> {
        spawn.check()?;
        spawn::check_word(word)?;
        match &mut self.via {
            Via::Nobody => return Err(SpawnError::NoLauncher.into()),
            Via::Pmi1(pmi) => pmi.spawn(&spawn.to_lines(word)?)?,
            Via::Pmix(pmix) => pmix.spawn(spawn, word)?,
        }
        Ok(())
    }

    /// Hands these bytes to all processes, and gives those of all in the order of their ranks. Every process
    /// calls it, as often as the others; it waits for them.
    ///
    /// # Errors
    /// There are more than [`BYTES_MAX`], the launcher has gone, or a process has died before.
    pub fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if own.len() > BYTES_MAX {
            return Err(Error::TooLong { length: own.len() });
        }
        let exchange = self.exchanges;
        self.exchanges += 1;
        let (rank, size) = (self.rank(), self.size());
        let text = format!("{:0LENGTH_DIGITS$x}{}", own.len(), to_hex(own));
        let by = |rank| move |piece| format!("tagmatch-{exchange}-{rank}-{piece}");
        match &mut self.via {
            Via::Nobody => Ok(vec![own.to_vec()]),
            Via::Pmi1(pmi) => {
                put_pieces(pmi, by(rank), &text)?;
                pmi.barrier()?;
                (0..size).map(|rank| parse(rank, &get_pieces(pmi, rank, by(rank))?)).collect()
            }
            Via::Pmix(pmix) => {
                pmix.put(&by(rank)(0), &text)?;
                pmix.fence()?;
                (0..size).map(|rank| parse(rank, &pmix.get(rank, &by(rank)(0))?)).collect()
            }
        }
    }

    /// Waits for all processes of the job, those excepted that the launcher knows to be dead.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn barrier(&mut self) -> Result<(), Error> {
        match &mut self.via {
            Via::Nobody => {}
            Via::Pmi1(pmi) => pmi.barrier()?,
            Via::Pmix(pmix) => pmix.fence()?,
        }
        Ok(())
    }

    /// Ranks of processes that have died, in ascending order: by the launcher's word. PMIx's servers don't tell
    /// reliably; there it is by the kernel's, which knows of processes of this machine that have met this one in an
    /// exchange or a barrier; those that have left the job and ended are then among them.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn dead(&mut self) -> Result<Vec<u32>, Error> {
        match &mut self.via {
            Via::Pmi1(pmi) => Ok(pmi.dead()?),
            Via::Pmix(pmix) => Ok(pmix.dead()),
            Via::Nobody => Ok(Vec::new()),
        }
    }

    /// Leaves the launcher: from now on this process's end is no failure if its exit status is 0.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn leave(self) -> Result<(), Error> {
        match self.via {
            Via::Nobody => {}
            Via::Pmi1(pmi) => pmi.finalize()?,
            Via::Pmix(pmix) => pmix.finalize()?,
        }
        Ok(())
    }

    /// Asks the launcher to end all processes of the job, and exits with this status.
    pub fn abort(self, status: u8) -> ! {
        // Without a launcher to ask, this process's own end is all there is.
        let _ = match self.via {
            Via::Nobody => Ok(()),
            Via::Pmi1(pmi) => pmi.abort(status).map_err(Error::from),
            Via::Pmix(pmix) => pmix.abort(status).map_err(Error::from),
        };
        std::process::exit(status.into())
    }
}

/// Puts a text in pieces that fit.
fn put_pieces(pmi: &mut Pmi1, key: impl Fn(usize) -> String, text: &str) -> Result<(), Error> {
    let mut rest = text;
    for piece in 0.. {
        let key = key(piece);
        let max = pmi.value_max(key.len());
        if max < LENGTH_DIGITS {
            return Err(Pmi1Error::TooLong { what: "value", length: LENGTH_DIGITS, max }.into());
        }
        let (value, after) = rest.split_at(max.min(rest.len()));
        pmi.put(&key, value)?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Gets the pieces that a process has put, and puts them together.
fn get_pieces(pmi: &mut Pmi1, rank: u32, key: impl Fn(usize) -> String) -> Result<String, Error> {
    let mut text = String::new();
    for piece in 0.. {
        let Some(value) = pmi.get(&key(piece))? else {
            let is_dead = pmi.dead()?.contains(&rank);
            let what = "isn't there";
            return Err(if is_dead { Error::Dead { rank } } else { Error::Garbled { rank, what } });
        };
        text.push_str(&value);
        if value.is_empty() || text.len() >= digits(rank, &text)? {
            break;
        }
    }
    Ok(text)
}

/// How many digits a text has by its own word.
fn digits(rank: u32, text: &str) -> Result<usize, Error> {
    let digits = text.get(..LENGTH_DIGITS).filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
    let length = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let length = length.filter(|length| *length <= BYTES_MAX);
    let what = "has no good length";
    Ok(LENGTH_DIGITS + 2 * length.ok_or(Error::Garbled { rank, what })?)
}

/// The bytes of a text.
fn parse(rank: u32, text: &str) -> Result<Vec<u8>, Error> {
    let bytes = (text.len() == digits(rank, text)?).then(|| from_hex(&text[LENGTH_DIGITS..]));
    bytes.flatten().ok_or(Error::Garbled { rank, what: "is garbled" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_one_hears_oneself() {
        let mut job = Job::alone();
        assert_eq!((job.rank(), job.size(), job.launcher()), (0, 1, Launcher::Nobody));
        assert_eq!(job.exchange(&[1, 2]).unwrap(), [[1, 2]]);
        assert_eq!(job.exchange(&[]).unwrap(), [[]]);
        let long = job.exchange(&vec![0; BYTES_MAX + 1]);
        assert!(matches!(long, Err(Error::TooLong { .. })));
        job.barrier().unwrap();
        assert_eq!(job.dead().unwrap(), []);
        job.leave().unwrap();
    }

    #[test]
    fn what_others_hand_over_is_checked() {
        assert_eq!(parse(0, "0000000200ff").unwrap(), [0, 0xff]);
        assert_eq!(parse(0, "00000000").unwrap(), []);
        for garbled in ["", "0000000", "0000000200f", "00000002", "0000000200fg", "00000001aabb"] {
            assert!(matches!(parse(3, garbled), Err(Error::Garbled { rank: 3, .. })), "{garbled}");
        }
        for length in ["ffffffff", "00010001", "+0000001", "éééé"] {
            assert!(digits(0, length).is_err(), "{length}");
        }
    }
}
