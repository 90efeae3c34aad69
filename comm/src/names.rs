//! Groups as bytes for those who number processes otherwise: by names.

use crate::group::Group;
use crate::net::{Net, ProcessName};

/// Most bytes that a name takes: its length comes before it.
pub(crate) const NAME_BYTES: usize = 1 + ProcessName::BYTES_MAX;

/// Appends the names of a group. One that the transport has no name for becomes an empty one, which nobody
/// takes.
pub(crate) fn put<N: Net>(bytes: &mut Vec<u8>, group: &Group, net: &N) {
    for process in group.processes() {
        let name = net.name(*process);
        let name = name.as_ref().map_or(&[][..], ProcessName::as_bytes);
        bytes.push(u8::try_from(name.len()).unwrap_or(0));
        bytes.extend_from_slice(name);
    }
}

/// Takes the next name off the front.
pub(crate) fn take(rest: &mut &[u8]) -> Option<ProcessName> {
    let (length, others) = rest.split_first()?;
    let (name, others) = others.split_at_checked(usize::from(*length))?;
    *rest = others;
    ProcessName::from_bytes(name).ok()
}

/// The group of these names; `None` if one comes twice, or the transport refuses one.
pub(crate) fn admit<N: Net>(names: &[ProcessName], net: &mut N) -> Option<Group> {
    let processes: Option<Vec<_>> = names.iter().map(|name| net.admit(name).ok()).collect();
    let group = Group::new(processes?);
    (group.processes().len() == names.len()).then_some(group)
}
