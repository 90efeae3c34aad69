//! The connection of a process to its job, under any launcher.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};

pub use crate::error::{BYTES_MAX, Error};
use crate::exchange::exchange;
use crate::pmi1::Pmi1;
use crate::pmix::Pmix;
use crate::secret::{self, JobSecretError, Secret};
use crate::slurm;
use crate::spawn::{self, PARENT_SECRET_KEY, Spawn, SpawnError};
use crate::step::{self, Lonely};

/// The kind of launcher that has started a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Launcher {
    /// No launcher: the job is this process alone.
    Nobody,
    /// A launcher that speaks PMI-1.
    Pmi1,
    /// A launcher that speaks PMIx.
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
enum LauncherConnection {
    None,
    Pmi1(Pmi1),
    Pmix(Box<Pmix>),
}

/// The connection of a process to its job.
///
/// Dropping it without [`leave`](Self::leave) tells the launcher that the process has failed.
#[derive(Debug)]
pub struct Job {
    connection: LauncherConnection,
    /// The number of exchanges so far. Each exchange has keys of its own.
    exchanges: u32,
    parent: Option<String>,
    secret: Option<Secret>,
    /// Whether the secret came through the launcher: then spawned processes get it that way, too.
    passes_secret: bool,
}

impl Job {
    /// Joins the job that this process was launched for: by PMI-1 or PMIx, whichever the
    /// environment names. If the environment names neither, the job is this process alone. Talks to
    /// the launcher, and doesn't wait for other processes.
    ///
    /// If the environment names neither, but shows that a launcher has started several processes
    /// together (`srun` without `--mpi`, for example), that is an error: each process would take
    /// itself for the whole job. [`alone`](Self::alone), or `TAGMATCH_ALONE=1` in the environment,
    /// says that this is meant.
    ///
    /// With PMI-1, MPICH's `mpiexec -disable-auto-cleanup` sends SIGUSR1 to the remaining processes
    /// when one fails. A process that wants to survive this must handle the signal. If a process is
    /// killed by a signal, `mpiexec` ends all others in any case. To hide the signal from
    /// `mpiexec`, start the process from a shell that exits with 0.
    ///
    /// # Errors
    /// The launcher named by the environment can't be reached or understood, it gives its processes
    /// no PMI ([`NoPmi`](Error::NoPmi)), or this process has already joined.
    pub fn join() -> Result<Self, Error> {
        static JOINED: AtomicBool = AtomicBool::new(false);
        if !Self::is_launched() {
            let lonely = step::lonely(|name| std::env::var_os(name));
            return lonely.map_or(Ok(Self::alone()), |Lonely { launcher, size, remedy }| {
                Err(Error::NoPmi { launcher, size, remedy })
            });
        }
        if JOINED.swap(true, Ordering::Relaxed) {
            return Err(Error::JoinedBefore);
        }
        let mut job = Self::alone();
        if let Some(mut pmi) = Pmi1::from_env()? {
            job.parent = pmi.parent()?;
            job.connection = LauncherConnection::Pmi1(pmi);
        } else if let Some(pmix) = Pmix::from_env()? {
            job.parent = pmix.parent();
            job.connection = LauncherConnection::Pmix(Box::new(pmix));
        }
        if let Some(parent) = &job.parent {
            spawn::check_word(parent)?;
        }
        Ok(job)
    }

    /// Whether the environment names a launcher, which [`join`](Self::join) would talk to.
    pub fn is_launched() -> bool {
        ["PMI_FD", "PMI_PORT", "PMIX_NAMESPACE"].iter().any(|v| std::env::var_os(v).is_some())
    }

    /// A job of this process alone, whatever the environment says: also where a launcher has
    /// started several processes, which [`join`](Self::join) would refuse without a PMI.
    pub fn alone() -> Self {
        Job {
            connection: LauncherConnection::None,
            exchanges: 0,
            parent: None,
            secret: None,
            passes_secret: false,
        }
    }

    /// This process's rank, below [`size`](Self::size).
    pub fn rank(&self) -> u32 {
        match &self.connection {
            LauncherConnection::None => 0,
            LauncherConnection::Pmi1(pmi) => pmi.rank(),
            LauncherConnection::Pmix(pmix) => pmix.rank(),
        }
    }

    /// The number of processes in the job, at least 1.
    pub fn size(&self) -> u32 {
        match &self.connection {
            LauncherConnection::None => 1,
            LauncherConnection::Pmi1(pmi) => pmi.size(),
            LauncherConnection::Pmix(pmix) => pmix.size(),
        }
    }

    /// The kind of launcher that has started the job.
    pub fn launcher(&self) -> Launcher {
        match &self.connection {
            LauncherConnection::None => Launcher::Nobody,
            LauncherConnection::Pmi1(_) => Launcher::Pmi1,
            LauncherConnection::Pmix(_) => Launcher::Pmix,
        }
    }

    /// In a process started by [`spawn`](Self::spawn), the string that `spawn` was given; `None` in
    /// other processes.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// Asks the launcher to start a new job. The job has ranks from 0 on, and exchanges and
    /// barriers of its own. Its processes run in the launcher's directory and environment. Each of
    /// them gets `word` from [`parent`](Self::parent): 1 to
    /// [`WORD_BYTES_MAX`](spawn::WORD_BYTES_MAX) printable ASCII characters without spaces. The
    /// environment also has `PMI_SPAWNED=1` (PMI-1) or `TAGMATCH_PARENT` (PMIx).
    ///
    /// Waits for the launcher's answer. `tagperf run` and Open MPI's `mpirun` answer when all
    /// processes run. MPICH's `mpiexec` answers before it starts them. If the command can't be
    /// started, `tagperf run` answers with an error, `mpiexec` reports it on its own output, and
    /// `mpirun` ends all jobs ([more](crate::pmix#spawning)). If a spawned process fails, all jobs
    /// end unless the launcher was told to keep going. `mpiexec` ignores the failure if the process
    /// just exits. Flux refuses to spawn, and so does `srun --mpi=pmix`. `srun --mpi=pmi2` needs
    /// `SLURM_OVERLAP=1` in its environment, and doesn't tell the end of spawned processes.
    ///
    /// ```no_run
    /// use tagmatch_launch::{Job, Spawn};
    ///
    /// let mut job = Job::join()?;
    /// if let Some(place) = job.parent() {
    ///     println!("{} of {} is to connect to {place}", job.rank(), job.size());
    /// } else if job.rank() == 0 {
    ///     let command = vec![std::env::args_os().next().unwrap()];
    ///     job.spawn(&Spawn::new(command, 2), "127.0.0.1:4711")?;
    /// }
    /// job.leave()?;
    /// # Ok::<(), tagmatch_launch::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no launcher, it refuses, it can't start the processes, or the connection to it has
    /// ended. `word` is invalid. The command can't be passed to the launcher: with PMI-1 its words
    /// must be UTF-8 without newlines, and the request at most [`BYTES_MAX`](spawn::BYTES_MAX)
    /// bytes.
    pub fn spawn(&mut self, spawn: &Spawn, word: &str) -> Result<(), Error> {
        spawn.check()?;
        spawn::check_word(word)?;
        let secret = self.secret.as_ref().filter(|_| self.passes_secret);
        let secret = secret.and_then(|secret| str::from_utf8(secret.expose()).ok());
        let secret = secret.filter(|secret| spawn::check_word(secret).is_ok());
        match &mut self.connection {
            LauncherConnection::None => return Err(SpawnError::NoLauncher.into()),
            LauncherConnection::Pmi1(pmi) => {
                slurm::check(pmi.kvsname(), spawn.size, |name| std::env::var_os(name))?;
                pmi.spawn(&spawn.to_lines(word, secret)?)?;
            }
            LauncherConnection::Pmix(pmix) => pmix.spawn(spawn, word, secret)?,
        }
        Ok(())
    }

    /// The secret that the processes of the job share, for connections between them:
    /// - the secret of the environment ([`Secret::from_environment`]), if every process has one.
    ///   `tagperf run` on several machines puts the same one into the environment of all processes.
    /// - Otherwise process 0 makes one, and the others get it through the launcher's key-value
    ///   store. It is as safe as that store: the launcher can read it, and so can whoever sees what
    ///   the launcher sends between machines.
    ///
    /// Processes that a process spawns after this call share its secret.
    ///
    /// `None`: the environment has none, and no launcher has started this process.
    ///
    /// Every process of the job must call this equally often. The first call waits for all
    /// processes.
    ///
    /// # Errors
    /// The secret of the environment can't be used, only some processes have one, or the connection
    /// to the launcher has ended.
    pub fn secret(&mut self) -> Result<Option<Secret>, Error> {
        if self.secret.is_none() {
            self.secret = self.agree_on_secret()?;
        }
        Ok(self.secret.clone())
    }

    fn agree_on_secret(&mut self) -> Result<Option<Secret>, Error> {
        let mut own = Secret::from_environment().map_err(JobSecretError::from)?;
        let is_spawned = self.parent.is_some();
        if let (None, true, LauncherConnection::Pmi1(pmi)) =
            (&own, is_spawned, &mut self.connection)
        {
            let given = pmi.get(PARENT_SECRET_KEY)?;
            own = given
                .map(|given| Secret::from_bytes(given.as_bytes()))
                .transpose()
                .map_err(JobSecretError::from)?;
        }
        self.passes_secret = own.is_none() || is_spawned;
        let rank = self.rank();
        let offer = if rank == 0 { Some(secret::offer(own.clone())?) } else { None };
        let put = offer.as_ref().map(|(_, value)| &**value);
        let value = match &mut self.connection {
            LauncherConnection::None => return Ok(own),
            LauncherConnection::Pmi1(pmi) => {
                put.map_or(Ok(()), |value| pmi.put(secret::KEY, value))?;
                pmi.barrier()?;
                if put.is_none() { pmi.get(secret::KEY)? } else { None }
            }
            LauncherConnection::Pmix(pmix) => {
                put.map_or(Ok(()), |value| pmix.put(secret::KEY, value))?;
                pmix.fence()?;
                if put.is_none() { pmix.get(0, secret::KEY)? } else { None }
            }
        };
        if let Some((secret, _)) = offer {
            return Ok(Some(secret));
        }
        // Without a value, process 0 has died before it put one.
        let value = value.ok_or(Error::Dead { rank: 0 })?;
        Ok(Some(secret::accept(rank, own, &value)?))
    }

    /// Sends these bytes to all processes of the job, and returns the bytes of each process in the
    /// order of ranks. Every process must call this equally often. Waits for all processes, except
    /// those that the launcher knows to be dead; Slurm's PMI-1 server knows of none.
    ///
    /// Of the processes of a machine, one asks the launcher for the bytes of all others. They share
    /// memory for this, which is gone when the call returns. Processes that can't share memory,
    /// since they run in different containers, ask for themselves.
    ///
    /// # Errors
    /// There are more than [`BYTES_MAX`] bytes, the connection to the launcher has ended, or a
    /// process died before it called this: [`Dead`](Error::Dead) if its death is known here, and
    /// otherwise [`Garbled`](Error::Garbled), since what it should have given is missing. PMIx
    /// servers tell of no deaths, so with PMIx only deaths on this machine are known.
    pub fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if own.len() > BYTES_MAX {
            return Err(Error::TooLong { length: own.len() });
        }
        let number = self.exchanges;
        self.exchanges += 1;
        match &mut self.connection {
            LauncherConnection::None => Ok(vec![own.to_vec()]),
            LauncherConnection::Pmi1(pmi) => exchange(pmi, number, own),
            LauncherConnection::Pmix(pmix) => exchange(&mut **pmix, number, own),
        }
    }

    /// Waits until all processes of the job have called this, except those that the launcher knows
    /// to be dead.
    ///
    /// # Errors
    /// The connection to the launcher has ended.
    pub fn barrier(&mut self) -> Result<(), Error> {
        match &mut self.connection {
            LauncherConnection::None => {}
            LauncherConnection::Pmi1(pmi) => pmi.barrier()?,
            LauncherConnection::Pmix(pmix) => pmix.fence()?,
        }
        Ok(())
    }

    /// Ranks of processes that have died, in ascending order, as the launcher reports them. PMIx
    /// servers don't report them reliably. With PMIx the kernel is asked instead: it knows the
    /// processes of this machine that have taken part in an exchange or a barrier with this
    /// process. The list then includes processes that have left the job and ended.
    ///
    /// # Errors
    /// The connection to the launcher has ended.
    pub fn dead(&mut self) -> Result<Vec<u32>, Error> {
        match &mut self.connection {
            LauncherConnection::Pmi1(pmi) => Ok(pmi.dead()?),
            LauncherConnection::Pmix(pmix) => Ok(pmix.dead()),
            LauncherConnection::None => Ok(Vec::new()),
        }
    }

    /// Leaves the job. From now on, the end of this process is no failure if its exit status is 0.
    ///
    /// # Errors
    /// The connection to the launcher has ended.
    pub fn leave(self) -> Result<(), Error> {
        match self.connection {
            LauncherConnection::None => {}
            LauncherConnection::Pmi1(pmi) => pmi.finalize()?,
            LauncherConnection::Pmix(pmix) => pmix.finalize()?,
        }
        Ok(())
    }

    /// Asks the launcher to end all processes of the job, and exits with this status.
    pub fn abort(self, status: u8) -> ! {
        // If no launcher can be asked, only this process ends.
        let _ = match self.connection {
            LauncherConnection::None => Ok(()),
            LauncherConnection::Pmi1(pmi) => pmi.abort(status).map_err(Error::from),
            LauncherConnection::Pmix(pmix) => pmix.abort(status).map_err(Error::from),
        };
        std::process::exit(status.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_alone_gets_its_own_bytes() {
        let mut job = Job::alone();
        assert_eq!((job.rank(), job.size(), job.launcher()), (0, 1, Launcher::Nobody));
        assert_eq!(job.exchange(&[1, 2]).unwrap(), [[1, 2]]);
        assert_eq!(job.exchange(&[]).unwrap(), [[]]);
        assert_eq!(job.exchange(&vec![7; BYTES_MAX]).unwrap(), [vec![7; BYTES_MAX]]);
        let long = job.exchange(&vec![0; BYTES_MAX + 1]);
        assert!(matches!(long, Err(Error::TooLong { .. })));
        job.barrier().unwrap();
        assert_eq!(job.dead().unwrap(), []);
        job.leave().unwrap();
    }
}
