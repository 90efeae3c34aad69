//! The messages by which processes speak of failures, as bytes.

use std::sync::Arc;

use crate::group::Group;
use crate::net::ProcessId;

use super::agree::{Kind, Message, Value};
use super::life::Key;
use super::ranks::Ranks;

/// What one process tells another outside of any communicator's own messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The communicator of these members is revoked.
    Revoke { key: Key, group: Group },
    /// The sender has left an allocation, of which it had begun so many rounds.
    Left { key: Key, rounds: u32 },
    /// Of an agreement.
    Agree { key: Key, number: u32, message: Message },
    /// Of the agreement by which an intercommunicator is made.
    Join { key: Key, invitation: Invitation, message: Message },
}

/// What one who knows nothing of the other group needs to take part in that agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invitation {
    /// The attempts of both groups.
    pub(crate) attempts: [Key; 2],
    /// Both groups, one after the other.
    pub(crate) members: Arc<Group>,
    /// How many the first one has.
    pub(crate) split: u32,
}

impl Invitation {
    /// Of which group a member is.
    pub(crate) fn attempt(&self, rank: u32) -> Key {
        self.attempts[usize::from(rank >= self.split)]
    }
}

const REVOKE: u32 = 0;
const AGREE: [(u32, Kind); 4] =
    [(1, Kind::Gathered), (2, Kind::Reported), (3, Kind::Decided), (5, Kind::Asked)];
/// Added to the code of a message of an agreement: it has an invitation.
const JOIN: u32 = 8;
const LEFT: u32 = 4;

/// Bytes that most messages have no more than.
const SHORT: usize = 128;

/// Most bytes that a message in a job of so many processes has.
pub(crate) fn length_max(processes: u32) -> u64 {
    96 + u64::from(processes) * 4 + u64::from(processes.div_ceil(64)) * 32
}

impl Control {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SHORT);
        match self {
            Control::Revoke { key, group } => {
                head(&mut bytes, REVOKE, *key);
                put(&mut bytes, group.processes().iter().map(|process| process.0));
            }
            Control::Left { key, rounds } => {
                head(&mut bytes, LEFT, *key);
                put(&mut bytes, [*rounds]);
            }
            Control::Agree { key, number, message } => {
                head(&mut bytes, code(message.kind), *key);
                put(&mut bytes, [*number]);
                put_message(&mut bytes, message);
            }
            Control::Join { key, invitation, message } => {
                let Invitation { attempts, members, split } = invitation;
                head(&mut bytes, JOIN + code(message.kind), *key);
                for attempt in attempts {
                    put(&mut bytes, [attempt.context]);
                    bytes.extend(attempt.epoch.to_le_bytes());
                }
                put(&mut bytes, [*split, members.size()]);
                put(&mut bytes, members.processes().iter().map(|process| process.0));
                put_message(&mut bytes, message);
            }
        }
        bytes
    }

    /// What another process has sent; `None` if it can't be.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let (code, context) = (word(&mut rest)?, word(&mut rest)?);
        let key = Key { context, epoch: long(&mut rest)? };
        if code == REVOKE {
            let members = std::iter::from_fn(|| word(&mut rest)).map(ProcessId);
            return Some(Control::Revoke { key, group: Group::new(members) });
        }
        if code == LEFT {
            return Some(Control::Left { key, rounds: word(&mut rest)? });
        }
        let kind = |code| Some(AGREE.into_iter().find(|(of, _)| *of == code)?.1);
        let Some(of_join) = code.checked_sub(JOIN) else {
            let number = word(&mut rest)?;
            let message = message(kind(code)?, rest)?;
            return Some(Control::Agree { key, number, message });
        };
        let mut attempt = || Some(Key { context: word(&mut rest)?, epoch: long(&mut rest)? });
        let attempts = [attempt()?, attempt()?];
        let (split, size) = (word(&mut rest)?, word(&mut rest)?);
        let processes = (0..size).map_while(|_| word(&mut rest)).map(ProcessId);
        let members = Arc::new(Group::new(processes));
        let message = message(kind(of_join)?, rest)?;
        let fits = members.size() == size && message.dead.size() == size;
        let invitation = Invitation { attempts, members, split };
        (fits && (1..size).contains(&split)).then_some(Control::Join { key, invitation, message })
    }
}

fn code(kind: Kind) -> u32 {
    AGREE.into_iter().find(|(_, of)| *of == kind).map_or(0, |(code, _)| code)
}

fn put_message(bytes: &mut Vec<u8>, Message { ballot, dead, value, .. }: &Message) {
    put(bytes, [*ballot, value.low, dead.size()]);
    bytes.extend(value.flags.to_le_bytes());
    for set in [dead, &value.contributors, &value.acknowledged, &value.dead] {
        set.words().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }
}

/// All that is left of the bytes, as what was said in an agreement.
fn message(kind: Kind, mut rest: &[u8]) -> Option<Message> {
    let (ballot, low, size) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
    let flags = long(&mut rest)?;
    let words = size.div_ceil(u64::BITS) as usize;
    if rest.len() != words.checked_mul(4 * 8)? {
        return None;
    }
    let mut set = || Ranks::read(size, || long(&mut rest));
    let (dead, contributors, acknowledged) = (set()?, set()?, set()?);
    let value = Value { flags, low, contributors, acknowledged, dead: set()? };
    Some(Message { kind, ballot, dead, value })
}

fn head(bytes: &mut Vec<u8>, code: u32, key: Key) {
    put(bytes, [code, key.context]);
    bytes.extend(key.epoch.to_le_bytes());
}

fn put(bytes: &mut Vec<u8>, words: impl IntoIterator<Item = u32>) {
    words.into_iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
}

fn word(rest: &mut &[u8]) -> Option<u32> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(u32::from_le_bytes(*first))
}

fn long(rest: &mut &[u8]) -> Option<u64> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(u64::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_comes_and_nothing_else_is() {
        let key = Key { context: 496, epoch: u64::MAX - 3 };
        let group = Group::new([4, 0, 9].map(ProcessId));
        let set = |ranks: &[u32]| Ranks::of(70, ranks);
        let value = Value {
            flags: 5,
            low: 2,
            contributors: set(&[0, 69]),
            acknowledged: set(&[1]),
            dead: set(&[64]),
        };
        let message = Message { kind: Kind::Reported, ballot: 1, dead: set(&[0]), value };
        let members = Arc::new(Group::new((0..70).rev().map(ProcessId)));
        let invitation =
            Invitation { attempts: [key, Key { context: 1, ..key }], members, split: 69 };
        let join = Control::Join { key, invitation, message: message.clone() };
        let agree = Control::Agree { key, number: 7, message };
        let left = Control::Left { key, rounds: 3 };
        for control in [Control::Revoke { key, group }, left, agree.clone(), join.clone()] {
            assert_eq!(Control::parse(&control.to_bytes()), Some(control));
        }
        for bytes in [agree, join].map(|control| control.to_bytes()) {
            assert!((0..bytes.len()).all(|length| Control::parse(&bytes[..length]).is_none()));
            assert!(bytes.len() as u64 <= length_max(70));
        }
    }
}
