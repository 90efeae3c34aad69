//! Groups as bytes for processes of other jobs, which number processes differently: each member is
//! given by its name.

use crate::group::Group;
use crate::net::{Directory, ProcessName};

mod test_directory;

pub(crate) use test_directory::TestDirectory;

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
