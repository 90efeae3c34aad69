//! The description of a group that its leader sends to the other leader, which sends it to its own
//! group.

use crate::error::Error;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};
use crate::life::Key;
use crate::names::{self, NAME_BYTES};
use crate::net::{Directory, FOREIGN_MAX};
use crate::settings::{CommonSettings, NAMES};

/// The length of the head in bytes. The names of the members follow.
pub(super) const HEAD: usize = 28;

/// The most members of a group that can be described.
pub(super) const MEMBERS_MAX: u32 = FOREIGN_MAX;

/// A group that is to get an intercommunicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupDescription {
    /// The attempt of the group.
    pub(super) attempt: Key,
    /// The context id in which its members will receive.
    pub(super) id: ContextId,
    /// Whether the group comes first in the order of both groups.
    pub(super) is_first: bool,
    pub(super) members: Group,
}

/// The reasons why there is no description. On the wire a reason is its position in this list, from
/// 1.
fn refusals(layout: IdLayout) -> [Error; 10] {
    let ids = layout.ids();
    [
        Error::Leader,
        Error::ProcessFailed { rank: None },
        Error::Exhausted { ids },
        Error::Fragmented { ids },
        Error::Revoked,
        Error::NoPeer,
        Error::Port,
        Error::Overlap,
        Error::Members,
        Error::NotStarted { why: None },
    ]
}

/// The number of the reason that settings differ. The setting's place among [`NAMES`] is above
/// the mark of [`put_untold`]; the own value and the other one take two words each.
const UNEQUAL: u32 = 100;

/// A description, or the reason why there is none, as bytes.
pub(super) fn to_bytes<N: Directory>(
    description: Result<&GroupDescription, &Error>,
    layout: IdLayout,
    net: &N,
) -> Vec<u8> {
    let mut named = Vec::new();
    let words = description.map(|GroupDescription { attempt, id, is_first, members }| {
        names::put(&mut named, members, net);
        let Key { context, epoch } = *attempt;
        let length = u32::try_from(named.len()).unwrap_or(0);
        let [low, high] = halves(epoch);
        [0, id.bits(), context, low, high, (*is_first).into(), length]
    });
    let mut bytes = head(words, layout);
    bytes.append(&mut named);
    bytes
}

/// A head, or the reason why there is none.
fn head(words: Result<[u32; HEAD / 4], &Error>, layout: IdLayout) -> Vec<u8> {
    let words = words.unwrap_or_else(|error| match error {
        Error::UnequalSetting { setting, own, other } => {
            let at = (0..).zip(NAMES).find(|(_, name)| name == setting);
            let place = at.map_or(0, |(at, _): (u32, _)| at << 8);
            let ([own, own_high], [other, other_high]) = (halves(*own), halves(*other));
            [UNEQUAL, place, own, own_high, other, other_high, 0]
        }
        error => {
            let error = match error {
                Error::ProcessFailed { .. } => &Error::ProcessFailed { rank: None },
                Error::NotStarted { .. } => &Error::NotStarted { why: None },
                other => other,
            };
            let refusal = (1..).zip(refusals(layout)).find(|(_, refusal)| refusal == error);
            [refusal.map_or(1, |(number, _)| number), 0, 0, 0, 0, 0, 0]
        }
    });
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The lower and the upper half of a number.
fn halves(number: u64) -> [u32; 2] {
    [(number << 32 >> 32) as u32, (number >> 32) as u32]
}

/// A context id, or the reason why there is none, as [`HEAD`] bytes.
pub(super) fn id_to_bytes(id: Result<ContextId, &Error>, layout: IdLayout) -> Vec<u8> {
    head(id.map(|id| [0, id.bits(), 0, 0, 0, 0, 0]), layout)
}

/// Parses the id that another process has sent.
pub(super) fn parse_id(head: &[u8], layout: IdLayout) -> Result<ContextId, Error> {
    let [id, ..] = words_of(head, layout)?;
    allocated(id, layout)
}

/// Whether a message has a reason instead of a description.
pub(super) fn is_refusal(head: &[u8]) -> bool {
    head.get(..4).is_some_and(|status| word(status) != 0)
}

/// Marks a reason that a leader sends to its own group: the other group was not told of the id, or
/// will not use it.
pub(super) fn put_untold(head: &mut [u8]) {
    if let Some(byte) = head.get_mut(4) {
        *byte = 1;
    }
}

/// Whether a message has that mark.
pub(super) fn is_untold(head: &[u8]) -> bool {
    is_refusal(head) && head.get(4) == Some(&1)
}

/// The length in bytes of the names that follow a head; 0 if it is longer than that of any group.
pub(super) fn names_length(head: &[u8]) -> usize {
    let length = head.get(HEAD - 4..HEAD).map_or(0, |length| word(length) as usize);
    if length <= NAME_BYTES * MEMBERS_MAX as usize { length } else { 0 }
}

/// Parses the message of another process.
pub(super) fn parse<N: Directory>(
    bytes: &[u8],
    layout: IdLayout,
    net: &mut N,
) -> Result<GroupDescription, Error> {
    let (head, mut tail) = bytes.split_at_checked(HEAD).ok_or(Error::Leader)?;
    let [id, context, low, high, is_first, length] = words_of(head, layout)?;
    let id = allocated(id, layout)?;
    let is_whole = !tail.is_empty() && tail.len() == length as usize;
    if !(is_whole && is_first <= 1) {
        return Err(Error::Leader);
    }
    let mut members = Vec::new();
    while !tail.is_empty() {
        members.push(names::take(&mut tail).ok_or(Error::Leader)?);
    }
    let members = names::admit(&members, net).ok_or(Error::Leader)?;
    let attempt = Key { context, epoch: u64::from(high) << 32 | u64::from(low) };
    Ok(GroupDescription { attempt, id, is_first: is_first == 1, members })
}

/// Parses the bytes, writes what was understood, and parses that. For fuzzing.
pub(crate) fn read_again<N: Directory>(bytes: &[u8], net: &mut N) {
    let layout = IdLayout::BITS_16;
    let described = parse(bytes, layout, net);
    let again = to_bytes(described.as_ref(), layout, net);
    assert_eq!(parse(&again, layout, net), described, "{bytes:?}");
    let id = parse_id(bytes, layout);
    assert_eq!(parse_id(&id_to_bytes(id.as_ref().copied(), layout), layout), id);
    assert!(names_length(bytes) <= NAME_BYTES * MEMBERS_MAX as usize);
}

/// The words of a head after the first one, which is 0.
///
/// # Errors
/// The head has a reason why there is no description.
fn words_of(head: &[u8], layout: IdLayout) -> Result<[u32; HEAD / 4 - 1], Error> {
    let words: Vec<u32> = head.chunks_exact(4).map(word).collect();
    let [status, id, context, low, high, is_first, length] = words[..] else {
        return Err(Error::Leader);
    };
    if status == UNEQUAL {
        let both = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let values = [both(context, low), both(high, is_first)];
        return Err(CommonSettings::error(id >> 8, values).unwrap_or(Error::Leader));
    }
    match status.checked_sub(1) {
        None => Ok([id, context, low, high, is_first, length]),
        Some(refusal) => {
            Err(refusals(layout).into_iter().nth(refusal as usize).unwrap_or(Error::Leader))
        }
    }
}

/// Parses an id that a group has allocated.
fn allocated(id: u32, layout: IdLayout) -> Result<ContextId, Error> {
    let id = layout.parse(id).map_err(|_| Error::Leader)?;
    let is_allocated = !layout.is_derived(id) && layout.prefix(id) >= layout.predefined();
    if is_allocated { Ok(id) } else { Err(Error::Leader) }
}

/// A number of up to four bytes.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::TestDirectory;
    use crate::net::ProcessId;

    const LAYOUT: IdLayout = IdLayout::BITS_16;

    /// A process of a job of five processes, and a process of another job.
    fn nets() -> [TestDirectory; 2] {
        [0, 5].map(|number| TestDirectory::new([5, 1], number))
    }

    fn description(members: [u32; 3]) -> GroupDescription {
        GroupDescription {
            attempt: Key { context: 7, epoch: u64::MAX / 3 },
            id: LAYOUT.id(31).unwrap(),
            is_first: true,
            members: Group::new(members.map(ProcessId)),
        }
    }

    #[test]
    fn a_description_parses_as_it_was_built() {
        let [mut ours, mut theirs] = nets();
        let described = description([4, 0, 2]);
        let bytes = to_bytes(Ok(&described), LAYOUT, &ours);
        assert_eq!(names_length(&bytes), bytes.len() - HEAD);
        assert_eq!(parse(&bytes, LAYOUT, &mut ours), Ok(described));
        // A process that knows none of the members numbers them in the order of the list.
        assert_eq!(parse(&bytes, LAYOUT, &mut theirs), Ok(description([1, 2, 3])));
        for refusal in refusals(LAYOUT) {
            let bytes = to_bytes(Err(&refusal), LAYOUT, &ours);
            assert_eq!((bytes.len(), names_length(&bytes)), (HEAD, 0));
            assert_eq!(parse(&bytes, LAYOUT, &mut theirs), Err(refusal));
        }
        let setting = NAMES[NAMES.len() - 1];
        let unequal = Error::UnequalSetting { setting, own: u64::MAX - 7, other: 1 << 32 };
        let mut bytes = to_bytes(Err(&unequal), LAYOUT, &ours);
        put_untold(&mut bytes);
        assert!(is_refusal(&bytes) && is_untold(&bytes) && names_length(&bytes) == 0);
        assert_eq!(parse(&bytes, LAYOUT, &mut theirs), Err(unequal));
        let named = to_bytes(Err(&Error::ProcessFailed { rank: Some(3) }), LAYOUT, &ours);
        let parsed = parse(&named, LAYOUT, &mut theirs);
        assert_eq!(parsed, Err(Error::ProcessFailed { rank: None }));
        let why = Some("no such command".to_owned());
        let text = to_bytes(Err(&Error::NotStarted { why }), LAYOUT, &ours);
        assert_eq!(parse(&text, LAYOUT, &mut theirs), Err(Error::NotStarted { why: None }));
    }

    #[test]
    fn an_invalid_description_is_refused() {
        let [mut ours, _] = nets();
        let bytes = to_bytes(Ok(&description([4, 0, 2])), LAYOUT, &ours);
        let mut refused = |bytes: &[u8]| {
            assert_eq!(parse(bytes, LAYOUT, &mut ours), Err(Error::Leader), "{bytes:?}");
        };
        (0..bytes.len()).for_each(|length| refused(&bytes[..length]));
        let changed = |word: usize, to: u32| {
            let mut bytes = bytes.clone();
            bytes[4 * word..4 * word + 4].copy_from_slice(&to.to_le_bytes());
            bytes
        };
        let world = LAYOUT.world();
        let id = description([0, 1, 2]).id;
        let ids = [world, LAYOUT.collective(id), LAYOUT.dynamic(9).unwrap()];
        ids.iter().for_each(|id| refused(&changed(1, id.bits())));
        // A name has one byte of length, four bytes of the job and four bytes of the rank.
        for (word, to) in [(0, 99), (1, u32::MAX), (5, 2), (6, 2), (6, 0), (7, 0), (7, 9)] {
            refused(&changed(word, to));
        }
        let mut twice = bytes.clone();
        twice.copy_within(HEAD..HEAD + 9, HEAD + 9);
        refused(&twice);
        let mut nobody = bytes.clone();
        nobody[HEAD + 5] = 5;
        refused(&nobody);
        assert_eq!(names_length(&changed(6, u32::MAX)), 0);
    }
}
