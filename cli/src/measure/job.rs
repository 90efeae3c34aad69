//! The job of ranks that a launcher has started: exchanging values through the launcher, and the
//! machine and CPUs of each rank.

use std::collections::BTreeSet;
use std::error::Error;
use std::os::unix::fs::MetadataExt as _;

use tagmatch_launch::Job;
use tagmatch_results::show::one_line;

use crate::control::message::Hello;
use crate::cpus;
use crate::failure::{Failure, with_limit};
use crate::spec::{Pin, PinChoice};

/// Gives each rank the values of all, in the order of ranks.
pub(super) fn exchange(job: &mut Job, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    job.exchange(own).map_err(failed)
}

pub(super) fn failed(error: impl Into<Box<dyn Error>>) -> Failure {
    let why = one_line(with_limit(&*error.into()));
    Failure::Measurement(format!("cannot join the launcher's job: {why}"))
}

/// The ranks of this machine, and the CPUs that each may use. Many launchers bind ranks to some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placement {
    rank: usize,
    /// The CPUs of each rank of the job; `None` for a rank on another machine.
    cpus: Vec<Option<Vec<u32>>>,
    /// All ranks are in one network namespace of one machine.
    is_one_network: bool,
}

impl Placement {
    /// Sends the place of this rank to all ranks, and receives theirs.
    pub(super) fn exchange(job: &mut Job) -> Result<Self, Failure> {
        let texts = exchange(job, &place())?;
        Ok(Self::of(usize::try_from(job.rank()).unwrap_or(usize::MAX), &texts))
    }

    /// Reads the places of all ranks.
    fn of(rank: usize, texts: &[impl AsRef<[u8]>]) -> Self {
        let read = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            let mut words = text.split(' ');
            let [machine, network] = [(); 2].map(|()| words.next().unwrap_or_default().to_owned());
            (machine, network, words.filter_map(|cpu| cpu.parse().ok()).collect())
        };
        let places: Vec<(String, String, Vec<u32>)> =
            texts.iter().map(|text| read(text.as_ref())).collect();
        let here = places.get(rank).map(|(machine, network, _)| (machine.clone(), network.clone()));
        let (machine, network) = here.unwrap_or_default();
        let is_one_network = places.iter().all(|(m, n, _)| (m, n) == (&machine, &network));
        let cpus = places.into_iter().map(|(m, _, cpus)| (m == machine).then_some(cpus));
        Self { rank, cpus: cpus.collect(), is_one_network }
    }

    /// Number of ranks on this machine.
    pub(super) fn processes(&self) -> usize {
        self.cpus.iter().flatten().count()
    }

    /// Whether all ranks are on this machine, with the same clock.
    pub(super) fn is_one_machine(&self) -> bool {
        self.processes() == self.cpus.len()
    }

    /// Whether all ranks are on this machine and in its network namespace, so that loopback and
    /// shared memory reach them.
    pub(super) fn is_one_network(&self) -> bool {
        self.is_one_network
    }

    /// Number of this machine's CPUs that any of its ranks may use.
    pub(super) fn cores(&self) -> usize {
        let cpus: BTreeSet<_> = self.cpus.iter().flatten().flatten().collect();
        cpus.len().max(1)
    }

    /// A CPU for each of two ranks, two different ones if possible. `None` if they are on two
    /// machines.
    pub(super) fn pair(&self) -> Option<PinChoice> {
        let [Some(own), Some(others)] = &self.cpus[..] else { return None };
        let here = *own.first()?;
        let pin = match others.iter().find(|&&cpu| cpu != here) {
            Some(&there) => Pin { here, there },
            // Rank 1 may only use rank 0's first CPU: rank 0 takes another one of its own.
            None => {
                let there = *others.first()?;
                Pin { here: *own.iter().find(|&&cpu| cpu != there).unwrap_or(&here), there }
            }
        };
        Some(PinChoice::Ours(pin))
    }

    /// The CPU that this rank is to be pinned to: each rank its own, if there are as many.
    pub(super) fn own_cpu(&self, choice: Option<PinChoice>) -> Option<u32> {
        let open = self.cpus.get(self.rank)?.as_ref()?;
        let at = self.cpus[..self.rank].iter().flatten().count();
        match choice {
            Some(PinChoice::Free) => None,
            Some(PinChoice::Wanted(pin) | PinChoice::Ours(pin)) => {
                Some(if at.is_multiple_of(2) { pin.here } else { pin.there })
            }
            // The launcher has bound this rank.
            None if open.len() == 1 => open.first().copied(),
            None => open.get(at).copied().filter(|_| self.processes() <= open.len()),
        }
    }
}

/// The place of this rank: its machine, its network namespace, and the CPUs that it may use.
fn place() -> Vec<u8> {
    let network = std::fs::metadata("/proc/self/ns/net").map_or(0, |about| about.ino());
    let words = cpus::cpus().into_iter().map(|cpu| cpu.to_string());
    let words = [Hello::new().boot_id, network.to_string()].into_iter().chain(words);
    words.collect::<Vec<_>>().join(" ").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_two_ranks_keeps_to_a_cpu_that_its_launcher_left_it() {
        let pinned = |own: &[u32], other: &[u32]| {
            let cpus = vec![Some(own.to_vec()), Some(other.to_vec())];
            let places = Placement { rank: 0, cpus, is_one_network: true };
            let pin = places.pair().and_then(PinChoice::pin).map(|pin| (pin.here, pin.there));
            (pin.unwrap(), places.cores())
        };
        assert_eq!(pinned(&[0, 1, 2], &[0, 1, 2]), ((0, 1), 3), "bound to none");
        assert_eq!(pinned(&[0], &[1]), ((0, 1), 2), "bound to a core each");
        assert_eq!(pinned(&[4, 36], &[5, 37]), ((4, 5), 4), "with two threads");
        assert_eq!(pinned(&[0, 1], &[0]), ((1, 0), 2));
        assert_eq!(pinned(&[3], &[3]), ((3, 3), 1), "bound to the same one");
    }

    #[test]
    fn places_are_read_as_they_were_written() {
        let elsewhere = Placement::of(0, &["a 7 0 1", "b 7 0 1"]);
        assert_eq!((elsewhere.pair(), elsewhere.processes(), elsewhere.cores()), (None, 1, 2));
        assert!(!elsewhere.is_one_network());
        let namespaces = Placement::of(0, &["a 7 0 1", "a 8 0 1"]);
        assert_eq!((namespaces.processes(), namespaces.is_one_network()), (2, false));
        let own = cpus::cpus();
        let here = Placement::of(1, &[place(), place()]);
        let cpus = vec![Some(own.clone()), Some(own)];
        assert_eq!(here, Placement { rank: 1, cpus, is_one_network: true });
        assert_eq!(Placement::of(0, &[&b""[..], b"\xff -1"]).cores(), 1, "garbled");
        assert_eq!(Placement::of(5, &[b"a 7 0"]).own_cpu(None), None, "not among them");
    }

    #[test]
    fn each_rank_has_its_cpu_where_there_are_enough() {
        // Ranks 0 and 1 are on another machine.
        let places = |open: &[u32], rank, here: usize| {
            let cpus = [vec![None; 2], vec![Some(open.to_vec()); here]].concat();
            Placement { rank, cpus, is_one_network: false }
        };
        assert_eq!(places(&[4, 5], 3, 2).own_cpu(None), Some(5));
        assert_eq!(places(&[4, 5], 3, 3).own_cpu(None), None);
        assert_eq!(places(&[7], 3, 2).own_cpu(None), Some(7), "bound by the launcher");
        assert_eq!(places(&[4, 5], 3, 2).own_cpu(Some(PinChoice::Free)), None);
        let pair = Some(PinChoice::Wanted(Pin { here: 1, there: 0 }));
        let found: Vec<_> = (2..5).map(|rank| places(&[0, 1], rank, 3).own_cpu(pair)).collect();
        assert_eq!(found, [Some(1), Some(0), Some(1)]);
    }
}
