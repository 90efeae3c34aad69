//! The processes of two jobs, for tests of messages that name processes.

use crate::net::{Directory, NetError, ProcessId, ProcessName};

/// A process of one of two jobs. A name has four bytes
/// of the job's number and four bytes of the rank.
pub(crate) struct TestDirectory {
    sizes: [u32; 2],
    job: usize,
    rank: u32,
    /// Known processes of the other job.
    foreign: Vec<ProcessName>,
}

impl TestDirectory {
    /// The process is given by its number among the processes of both jobs.
    pub(crate) fn new(sizes: [u32; 2], number: u32) -> Self {
        let rank = number.checked_sub(sizes[0]);
        let (job, rank) = rank.map_or((0, number), |rank| (1, rank));
        TestDirectory { sizes, job, rank, foreign: Vec::new() }
    }
}

impl Directory for TestDirectory {
    fn processes(&self) -> u32 {
        self.sizes[self.job]
    }

    fn own(&self) -> ProcessId {
        ProcessId(self.rank)
    }

    fn name(&self, process: ProcessId) -> Option<ProcessName> {
        match process.0.checked_sub(self.processes()) {
            Some(at) => self.foreign.get(at as usize).copied(),
            None => {
                let words = [u32::try_from(self.job).unwrap(), process.0];
                ProcessName::from_bytes(&words.map(u32::to_le_bytes).concat()).ok()
            }
        }
    }

    fn admit(&mut self, name: &ProcessName) -> Result<ProcessId, NetError> {
        let unknown = || NetError::Other(format!("no process has the name {name}"));
        let words: &[u8; 8] = name.as_bytes().try_into().map_err(|_| unknown())?;
        let bits = u64::from_le_bytes(*words);
        let job = (bits & 0xffff_ffff) as usize;
        let rank = (bits >> 32) as u32;
        if self.sizes.get(job).is_none_or(|size| rank >= *size) {
            return Err(unknown());
        }
        if job == self.job {
            return Ok(ProcessId(rank));
        }
        let at = self.foreign.iter().position(|known| known == name).unwrap_or_else(|| {
            self.foreign.push(*name);
            self.foreign.len() - 1
        });
        Ok(ProcessId(self.processes() + u32::try_from(at).unwrap()))
    }
}
