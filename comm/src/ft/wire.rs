//! The messages by which processes speak of failures, as bytes.

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
}

const REVOKE: u32 = 0;
const AGREE: [(u32, Kind); 3] = [(1, Kind::Gathered), (2, Kind::Reported), (3, Kind::Decided)];
const LEFT: u32 = 4;

/// Bytes that most messages have no more than.
const SHORT: usize = 128;

/// Most bytes that a message in a job of so many processes has.
pub(crate) fn length_max(processes: u32) -> u64 {
    64 + u64::from(processes) * 4 + u64::from(processes.div_ceil(64)) * 32
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
                let Message { kind, ballot, dead, value } = message;
                let code = AGREE.into_iter().find(|(_, of)| of == kind).map_or(0, |(code, _)| code);
                head(&mut bytes, code, *key);
                put(&mut bytes, [*number, *ballot, value.low, dead.size()]);
                bytes.extend(value.flags.to_le_bytes());
                for set in [dead, &value.contributors, &value.acknowledged, &value.dead] {
                    set.words()
                        .iter()
                        .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
                }
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
        let (_, kind) = AGREE.into_iter().find(|(of, _)| *of == code)?;
        let [number, ballot, low, size] =
            [word(&mut rest)?, word(&mut rest)?, word(&mut rest)?, word(&mut rest)?];
        let flags = long(&mut rest)?;
        let words = size.div_ceil(u64::BITS) as usize;
        if rest.len() != words.checked_mul(4 * 8)? {
            return None;
        }
        let mut set = || Ranks::read(size, || long(&mut rest));
        let (dead, contributors, acknowledged) = (set()?, set()?, set()?);
        let value = Value { flags, low, contributors, acknowledged, dead: set()? };
        let message = Message { kind, ballot, dead, value };
        Some(Control::Agree { key, number, message })
    }
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
        let agree = Control::Agree { key, number: 7, message };
        let left = Control::Left { key, rounds: 3 };
        for control in [Control::Revoke { key, group }, left, agree.clone()] {
            assert_eq!(Control::parse(&control.to_bytes()), Some(control));
        }
        let bytes = agree.to_bytes();
        assert!((0..bytes.len()).all(|length| Control::parse(&bytes[..length]).is_none()));
        assert!(bytes.len() as u64 <= length_max(70));
    }
}
