//! The machines of a job, and how its ranks are divided among them.

use std::ffi::OsString;
use std::str::FromStr;

/// A machine, as in `node7`, `me@node7` or `node7:4`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// The name, which the agent is given.
    pub name: String,
    /// The number of processes that the machine is meant for, if it was named.
    pub slots: Option<u32>,
}

/// Why the machines of a job can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// This is not the name of a machine.
    #[error("invalid host `{text}`: expected `name` or `name:slots`")]
    Name {
        /// The text.
        text: String,
    },
    /// A line of a file with hosts can't be understood.
    #[error("line {line}: `{word}` is neither a host nor `slots=N`")]
    Line {
        /// The number of the line, from 1 on.
        line: usize,
        /// The first word that is wrong.
        word: String,
    },
    /// The job has more processes than the machines have slots.
    #[error("{size} processes need as many slots, and the hosts have {slots}; name more of them")]
    TooFew {
        /// The number of processes.
        size: u32,
        /// The number of slots.
        slots: u64,
    },
    /// There is no host.
    #[error("no host is named")]
    None,
}

impl FromStr for Host {
    type Err = HostsError;

    fn from_str(text: &str) -> Result<Self, HostsError> {
        let wrong = || HostsError::Name { text: text.escape_debug().to_string() };
        // An address of IPv6 has colons: with slots it stands in brackets.
        let (name, slots) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, "")) => (name, None),
            Some((name, rest)) => (name, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            None => match text.split_once(':') {
                Some((name, slots)) if !slots.contains(':') => (name, Some(slots)),
                _ => (text, None),
            },
        };
        let slots = slots.map(|slots| slots.parse().ok().filter(|&slots| slots > 0));
        let slots = slots.map(|slots| slots.ok_or_else(wrong)).transpose()?;
        // The agent would take a name that begins with `-` for an option.
        let is_name = !name.is_empty() && !name.starts_with('-');
        if !is_name || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',') {
            return Err(wrong());
        }
        Ok(Host { name: name.to_owned(), slots })
    }
}

/// Reads a file with hosts, as `mpiexec` of MPICH and of Open MPI have them: one `name`,
/// `name:slots` or `name slots=N` a line, and comments from `#` on.
///
/// # Errors
/// [`HostsError::Line`].
pub fn parse_hosts(file: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    for (text, line) in file.lines().zip(1..) {
        let mut words = text.split('#').next().unwrap_or_default().split_whitespace();
        let Some(name) = words.next() else { continue };
        let wrong = |word: &str| HostsError::Line { line, word: word.escape_debug().to_string() };
        let mut host: Host = name.parse().map_err(|_| wrong(name))?;
        for word in words {
            let slots = word.strip_prefix("slots=").and_then(|slots| slots.parse().ok());
            host.slots = Some(slots.filter(|&slots| slots > 0).ok_or_else(|| wrong(word))?);
        }
        hosts.push(host);
    }
    Ok(hosts)
}

/// Where a job runs: machines, and the agent that starts a helper on each of them.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The machines. One that is named again gets more slots.
    pub hosts: Vec<Host>,
    /// The number of processes on each machine, whatever their slots.
    pub per_host: Option<u32>,
    /// The agent: a command that is given the name of a machine, and a text for the shell there. It
    /// must connect its standard input and output to that shell. `None`: `ssh`, and none
    /// for `localhost` and for this machine's own name. One that is named is asked for these, too.
    pub agent: Option<Vec<OsString>>,
    /// The text for the shell: a command that calls [`help`](super::help).
    pub helper: OsString,
}

impl Hosts {
    /// The machines that get processes of a job of `size` processes, in blocks of consecutive
    /// ranks, with the numbers of processes.
    ///
    /// If slots or a number for each machine are given, machines are filled one after the other.
    /// Otherwise each gets as many as the others, or one more.
    pub(super) fn divide(&self, size: u32) -> Result<Vec<(String, u32)>, HostsError> {
        let mut hosts: Vec<Host> = Vec::new();
        for host in &self.hosts {
            match hosts.iter_mut().find(|known| known.name == host.name) {
                Some(known) => {
                    let slots = known.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1));
                    known.slots = Some(slots);
                }
                None => hosts.push(host.clone()),
            }
        }
        let has_slots = hosts.iter().any(|host| host.slots.is_some());
        let counts = if let Some(count) = self.per_host {
            fill(size, &vec![count; hosts.len()])?
        } else if has_slots {
            fill(size, &hosts.iter().map(|host| host.slots.unwrap_or(1)).collect::<Vec<_>>())?
        } else {
            evenly(size, hosts.len())
        };
        if hosts.is_empty() {
            return Err(HostsError::None);
        }
        let names = hosts.into_iter().map(|host| host.name);
        Ok(names.zip(counts).filter(|(_, count)| *count > 0).collect())
    }
}

/// Fills one machine after the other.
fn fill(size: u32, slots: &[u32]) -> Result<Vec<u32>, HostsError> {
    let all = slots.iter().map(|&slots| u64::from(slots)).sum();
    if u64::from(size) > all {
        return Err(HostsError::TooFew { size, slots: all });
    }
    let mut left = size;
    let take = |&slots: &u32| {
        let taken = slots.min(left);
        left -= taken;
        taken
    };
    Ok(slots.iter().map(take).collect())
}

/// Gives each machine as many processes as the others, or one more.
pub(super) fn evenly(size: u32, hosts: usize) -> Vec<u32> {
    let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
    (0..hosts).map(|at| size / hosts + u32::from(at < size % hosts)).collect()
}

/// The numbers of processes on the machines, as PMI-1 tells them (`PMI_process_mapping`): runs of
/// (first machine, number of machines, processes on each).
pub(super) fn mapping(counts: &[u32]) -> String {
    let mut runs = String::new();
    let mut at = 0;
    for run in counts.chunk_by(|one, other| one == other) {
        runs.push_str(&format!(",({at},{},{})", run.len(), run[0]));
        at += run.len();
    }
    format!("(vector{runs})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(hosts: &str, per_host: Option<u32>, size: u32) -> Result<Vec<u32>, HostsError> {
        let hosts = hosts.split(',').map(|host| host.parse().unwrap()).collect();
        let hosts = Hosts { hosts, per_host, agent: None, helper: OsString::new() };
        Ok(hosts.divide(size)?.into_iter().map(|(_, count)| count).collect())
    }

    #[test]
    fn ranks_are_divided_in_blocks() {
        assert_eq!(divide("a,b", None, 4).unwrap(), [2, 2]);
        assert_eq!(divide("a,b,c", None, 5).unwrap(), [2, 2, 1]);
        assert_eq!(divide("a,b,c", None, 2).unwrap(), [1, 1], "one machine gets none");
        assert_eq!(divide("a:3,b:2", None, 4).unwrap(), [3, 1]);
        assert_eq!(divide("a:3,b", None, 4).unwrap(), [3, 1]);
        assert_eq!(divide("a,b,a", None, 3).unwrap(), [2, 1], "named twice");
        assert_eq!(divide("a:9,b,c", Some(2), 5).unwrap(), [2, 2, 1]);
        let too_few = HostsError::TooFew { size: 5, slots: 4 };
        assert_eq!(divide("a:3,b", None, 5), Err(too_few.clone()));
        assert_eq!(divide("a,b", Some(2), 5), Err(too_few));
    }

    #[test]
    fn the_mapping_has_runs_of_equal_machines() {
        assert_eq!(mapping(&[2, 2]), "(vector,(0,2,2))");
        assert_eq!(mapping(&[3, 2, 2, 1]), "(vector,(0,1,3),(1,2,2),(3,1,1))");
    }

    #[test]
    fn hosts_are_parsed() {
        let host = |text: &str| text.parse::<Host>().map(|host| (host.name, host.slots));
        let is = |name: &str, slots| Ok((name.to_owned(), slots));
        assert_eq!(host("a"), is("a", None));
        assert_eq!(host("me@a.example:4"), is("me@a.example", Some(4)));
        assert_eq!(host("fe80::1"), is("fe80::1", None));
        assert_eq!(host("[::1]:2"), is("::1", Some(2)));
        for wrong in ["", ":2", "a:", "a:0", "a:x", "-oProxyCommand=x", "a b", "[::1]2", "a\n"] {
            assert!(host(wrong).is_err(), "{wrong:?}");
        }
        let file = "# mine\na\n  b:2 # two\n\nc slots=3\n";
        let hosts = parse_hosts(file).unwrap();
        assert_eq!(
            hosts.iter().map(|host| host.slots).collect::<Vec<_>>(),
            [None, Some(2), Some(3)]
        );
        assert_eq!(
            parse_hosts("a\nb max=3"),
            Err(HostsError::Line { line: 2, word: "max=3".into() })
        );
    }
}
