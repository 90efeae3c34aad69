//! Groups as bytes for processes of other jobs, which number processes differently: each member is
//! given by its name.

use crate::group::Group;
use crate::net::{Directory, ProcessName};
#[cfg(test)]
use crate::net::{NetError, ProcessId};

/// The most bytes that a name takes, with the length byte before it.
pub(crate) const NAME_BYTES: usize = 1 + ProcessName::MAX;

/// Appends the names of a group's members. A member that the transport has no name for gets an
/// empty name, which every receiver refuses.
pub(crate) fn put<N: Directory>(bytes: &mut Vec<u8>, group: &Group, net: &N) {
    for process in group.processes() {
        let name = net.name(*process);
        let name = name.as_ref().map_or(&[][..], ProcessName::as_bytes);
        bytes.push(u8::try_from(name.len()).unwrap_or(0));
        bytes.extend_from_slice(name);
    }
}

/// Takes the next name off the front of `rest`.
pub(crate) fn take(rest: &mut &[u8]) -> Option<ProcessName> {
    let (length, others) = rest.split_first()?;
    let (name, others) = others.split_at_checked(usize::from(*length))?;
    *rest = others;
    ProcessName::from_bytes(name).ok()
}

/// The group of the processes with these names; `None` if a process occurs twice or the transport
/// refuses a name.
pub(crate) fn admit<N: Directory>(names: &[ProcessName], net: &mut N) -> Option<Group> {
    let processes: Option<Vec<_>> = names.iter().map(|name| net.admit(name).ok()).collect();
    let group = Group::new(processes?);
    (group.processes().len() == names.len()).then_some(group)
}

/// A process of one of two jobs, for tests of messages that name processes. A name has four bytes
/// of the job's number and four bytes of the rank.
#[cfg(test)]
pub(crate) struct TestDirectory {
    sizes: [u32; 2],
    job: usize,
    rank: u32,
    /// Known processes of the other job.
    foreign: Vec<ProcessName>,
}

#[cfg(test)]
impl TestDirectory {
    /// The process is given by its number among the processes of both jobs.
    pub(crate) fn new(sizes: [u32; 2], number: u32) -> Self {
        let rank = number.checked_sub(sizes[0]);
        let (job, rank) = rank.map_or((0, number), |rank| (1, rank));
        TestDirectory { sizes, job, rank, foreign: Vec::new() }
    }
}

#[cfg(test)]
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
        let (job, rank) = ((bits & 0xffff_ffff) as usize, (bits >> 32) as u32);
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
