//! What the leader of one group tells that of the other, and then its own group: as bytes.

use crate::error::Error;
use crate::ft::Key;
use crate::group::Group;
use crate::ids::{ContextId, IdLayout};
use crate::net::ProcessId;

/// Bytes before the members.
pub(super) const HEAD: usize = 28;

/// A group that is to have an intercommunicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    /// Names the attempt, among all of this group.
    pub(super) attempt: Key,
    /// What its members will receive in.
    pub(super) id: ContextId,
    /// Whether it comes first where both groups are in one order.
    pub(super) is_first: bool,
    pub(super) members: Group,
}

/// What can be said instead, by number.
fn refusals(layout: IdLayout) -> [Error; 7] {
    let ids = layout.ids();
    [
        Error::Leader,
        Error::ProcessFailed { rank: None },
        Error::Exhausted { ids },
        Error::Fragmented { ids },
        Error::Revoked,
        Error::NoPeer,
        Error::Overlap,
    ]
}

/// Most bytes in a job of so many processes.
pub(super) fn length_max(processes: u32) -> usize {
    HEAD + 4 * processes as usize
}

/// A card, or why there is none.
pub(super) fn to_bytes(card: Result<&Card, &Error>, layout: IdLayout) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |word: u32| bytes.extend(word.to_le_bytes());
    match card {
        Ok(Card { attempt, id, is_first, members }) => {
            put(0);
            put(id.bits());
            put(attempt.context);
            put((attempt.epoch << 32 >> 32) as u32);
            put((attempt.epoch >> 32) as u32);
            put((*is_first).into());
            put(members.size());
            members.processes().iter().for_each(|process| put(process.0));
        }
        Err(error) => {
            let error = match error {
                Error::ProcessFailed { .. } => &Error::ProcessFailed { rank: None },
                other => other,
            };
            let refusal = (1..).zip(refusals(layout)).find(|(_, refusal)| refusal == error);
            put(refusal.map_or(1, |(number, _)| number));
            bytes.resize(HEAD, 0);
        }
    }
    bytes
}

/// Members that follow a head.
pub(super) fn members_of(head: &[u8]) -> usize {
    head.get(HEAD - 4..HEAD).map_or(0, |size| word(size) as usize)
}

/// What another process has said, with numbers of processes below `processes`.
pub(super) fn parse(bytes: &[u8], layout: IdLayout, processes: u32) -> Result<Card, Error> {
    let (head, tail) = bytes.split_at_checked(HEAD).ok_or(Error::Leader)?;
    let words: Vec<u32> = head.chunks_exact(4).map(word).collect();
    let [status, id, context, low, high, is_first, size] = words[..] else {
        return Err(Error::Leader);
    };
    if let Some(refusal) = status.checked_sub(1) {
        let known = refusals(layout).into_iter().nth(refusal as usize);
        return Err(known.unwrap_or(Error::Leader));
    }
    let id = layout.parse(id).map_err(|_| Error::Leader)?;
    let members = Group::new(tail.chunks_exact(4).map(word).map(ProcessId));
    let is_known = members.processes().iter().all(|process| process.0 < processes);
    let is_whole = size > 0 && members.size() == size && tail.len() == 4 * size as usize;
    let is_allocated = !layout.is_derived(id) && layout.prefix(id) >= layout.predefined();
    if !(is_known && is_whole && is_allocated && is_first <= 1) {
        return Err(Error::Leader);
    }
    let attempt = Key { context, epoch: u64::from(high) << 32 | u64::from(low) };
    Ok(Card { attempt, id, is_first: is_first == 1, members })
}

/// Of at most four bytes.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: IdLayout = IdLayout::BITS_16;

    fn card() -> Card {
        Card {
            attempt: Key { context: 7, epoch: u64::MAX / 3 },
            id: LAYOUT.id(31).unwrap(),
            is_first: true,
            members: Group::new([4, 0, 2].map(ProcessId)),
        }
    }

    #[test]
    fn what_is_said_is_what_is_heard() {
        let bytes = to_bytes(Ok(&card()), LAYOUT);
        assert!(bytes.len() <= length_max(5) && members_of(&bytes) == 3);
        assert_eq!(parse(&bytes, LAYOUT, 5), Ok(card()));
        for refusal in refusals(LAYOUT) {
            let bytes = to_bytes(Err(&refusal), LAYOUT);
            assert_eq!((bytes.len(), members_of(&bytes)), (HEAD, 0));
            assert_eq!(parse(&bytes, LAYOUT, 5), Err(refusal));
        }
        let named = to_bytes(Err(&Error::ProcessFailed { rank: Some(3) }), LAYOUT);
        assert_eq!(parse(&named, LAYOUT, 5), Err(Error::ProcessFailed { rank: None }));
    }

    #[test]
    fn what_can_t_be_is_refused() {
        let bytes = to_bytes(Ok(&card()), LAYOUT);
        let refused = |bytes: &[u8], processes| {
            assert_eq!(parse(bytes, LAYOUT, processes), Err(Error::Leader), "{bytes:?}");
        };
        refused(&bytes, 4);
        (0..bytes.len()).for_each(|length| refused(&bytes[..length], 5));
        let changed = |word: usize, to: u32| {
            let mut bytes = bytes.clone();
            bytes[4 * word..4 * word + 4].copy_from_slice(&to.to_le_bytes());
            bytes
        };
        let world = LAYOUT.world();
        let ids = [world, LAYOUT.collective(card().id), LAYOUT.dynamic(9).unwrap()];
        ids.iter().for_each(|id| refused(&changed(1, id.bits()), 5));
        for (word, to) in [(0, 99), (1, u32::MAX), (5, 2), (6, 2), (6, 0), (7, 0)] {
            refused(&changed(word, to), 5);
        }
    }
}
