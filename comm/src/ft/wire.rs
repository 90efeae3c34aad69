//! Control messages as bytes.
//!
//! A list of members has ranks in the job if all members are of the sender's job, which is then the
//! receiver's job, too. If not, it has names.

use std::sync::Arc;

use super::agree::{AgreeKind, AgreeMessage, Value};
use super::control::{ASK_MAX, Asked, Control, Invitation, JoinMessage};
use super::doubts::Doubt;
use super::ranks::Ranks;
use crate::group::Group;
use crate::life::Key;
use crate::mailbox::{Body, Letter};
use crate::names::{self, NAME_BYTES};
use crate::net::{Directory, FOREIGN_MAX, ProcessId};
use crate::settings::Difference;

/// The bytes of one [`Asked`] id.
const ASKED_BYTES: usize = 12;

const REVOKE: u32 = 0;
const AGREE: [(u32, AgreeKind); 4] = [
    (1, AgreeKind::Gathered),
    (2, AgreeKind::Reported),
    (3, AgreeKind::Decided),
    (5, AgreeKind::Asked),
];
/// Added to the code of a message of an agreement: the message has an invitation.
const JOIN: u32 = 8;
const LEFT: u32 = 4;
const ASK: u32 = 6;
const ANSWER: u32 = 7;
/// Added to a code: the members are given by names.
const NAMED: u32 = 16;

/// A letter. The kind of its body is in the place of the context, the mailbox in the place of the
/// epoch.
const LETTER: u32 = 32;
const CALL: u32 = 0;
const SAID: u32 = 1;
const OVER: u32 = 2;

const SETTINGS: u32 = 33;
/// The most settings that a message may have.
const SETTINGS_MAX: usize = 256;
/// Two processes have different settings. The setting is in the place of the context, its first
/// value in the place of the epoch.
const UNEQUAL: u32 = 34;
/// A process that some process has lost. The kind of message is in the place of the context, the
/// process's rank in the place of the epoch.
const DOUBT: u32 = 35;
const ASKED: u32 = 0;
const CALLED: u32 = 1;
const ANSWERED: u32 = 2;
const LOST: u32 = 3;
const LIVES: u32 = 4;
/// The uses of ids that the sender closes: the first one is in the place of the epoch.
const CLOSING: u32 = 36;

/// Most messages have no more bytes than this.
const SHORT: usize = 128;

/// The length of the longest message, in bytes, to a process of a job of `processes` processes.
pub(crate) fn length_max(processes: u32) -> u64 {
    let all = u64::from(processes) + u64::from(FOREIGN_MAX);
    let of_members = all * NAME_BYTES as u64 + all.div_ceil(64) * 32;
    96 + of_members.max((ASK_MAX * ASKED_BYTES).max(SETTINGS_MAX * 8) as u64)
}

impl Control {
    pub(crate) fn to_bytes<N: Directory>(&self, net: &N) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SHORT);
        match self {
            Control::Revoke { key, group } => {
                put_head(&mut bytes, named(group, net) + REVOKE, *key);
                put_members(&mut bytes, group, net);
            }
            Control::Left { key, rounds } => {
                put_head(&mut bytes, LEFT, *key);
                put_words(&mut bytes, [*rounds]);
            }
            Control::Ask { number, asked } => {
                put_head(&mut bytes, ASK, Key { context: 0, epoch: *number });
                for Asked { prefix, creation } in asked {
                    put_words(&mut bytes, [*prefix]);
                    bytes.extend(creation.to_le_bytes());
                }
            }
            Control::Answer { number, done } => {
                put_head(&mut bytes, ANSWER, Key { context: 0, epoch: *number });
                done.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            }
            Control::Agree { key, number, message } => {
                put_head(&mut bytes, code_of(message.kind), *key);
                bytes.extend(number.to_le_bytes());
                put_message(&mut bytes, message);
            }
            Control::Join(JoinMessage { key, invitation, message }) => {
                let Invitation { attempts, members, split } = invitation;
                put_head(&mut bytes, named(members, net) + JOIN + code_of(message.kind), *key);
                attempts.iter().for_each(|attempt| put_key(&mut bytes, *attempt));
                put_words(&mut bytes, [*split]);
                put_members(&mut bytes, members, net);
                put_message(&mut bytes, message);
            }
            Control::Closing { uses } => {
                let (first, others) = uses.split_first().unwrap_or((&0, &[]));
                put_head(&mut bytes, CLOSING, Key { context: 0, epoch: *first });
                others.iter().for_each(|name| bytes.extend(name.to_le_bytes()));
            }
            Control::Letter(Letter { to, from, body }) => {
                let (what, said) = match body {
                    Body::Call => (CALL, &[][..]),
                    Body::Said(said) => (SAID, &said[..]),
                    Body::Over => (OVER, &[][..]),
                };
                put_head(&mut bytes, LETTER, Key { context: what, epoch: *to });
                bytes.extend(from.to_le_bytes());
                bytes.extend(said);
            }
            Control::Settings(values) => {
                put_head(&mut bytes, SETTINGS, Key { context: 0, epoch: 0 });
                values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            }
            Control::Unequal(Difference { setting, values: [one, other] }) => {
                put_head(&mut bytes, UNEQUAL, Key { context: *setting, epoch: *one });
                bytes.extend(other.to_le_bytes());
            }
            Control::Doubt(doubt) => {
                let (context, process) = match doubt {
                    Doubt::Asked(about) => (ASKED, about),
                    Doubt::Called(caller) => (CALLED, caller),
                    Doubt::Answered(caller) => (ANSWERED, caller),
                    Doubt::Said { about, lives: false } => (LOST, about),
                    Doubt::Said { about, lives: true } => (LIVES, about),
                };
                put_head(&mut bytes, DOUBT, Key { context, epoch: process.0.into() });
            }
        }
        bytes
    }

    /// Parses the message of another process; `None` if it is invalid.
    pub(crate) fn parse<N: Directory>(bytes: &[u8], from: ProcessId, net: &mut N) -> Option<Self> {
        let mut rest = bytes;
        let code = take_u32(&mut rest)?;
        let key = take_key(&mut rest)?;
        if code == LETTER {
            let from = take_u64(&mut rest)?;
            let body = match key.context {
                CALL if rest.is_empty() => Body::Call,
                SAID => Body::Said(rest.to_vec()),
                OVER if rest.is_empty() => Body::Over,
                _ => return None,
            };
            return Some(Control::Letter(Letter { to: key.epoch, from, body }));
        }
        if code == SETTINGS {
            let count = rest.len() / 8;
            let is_whole = rest.len() == 8 * count && (1..=SETTINGS_MAX).contains(&count);
            let values = (0..count).map_while(|_| take_u64(&mut rest)).collect();
            let is_valid = is_whole && key == Key { context: 0, epoch: 0 };
            return is_valid.then_some(Control::Settings(values));
        }
        if code == CLOSING {
            let others = rest.len() / 8;
            let is_valid = rest.len() == 8 * others && others < ASK_MAX && key.context == 0;
            let others = (0..others).map_while(|_| take_u64(&mut rest));
            let uses = [key.epoch].into_iter().chain(others).collect();
            return is_valid.then_some(Control::Closing { uses });
        }
        if code == UNEQUAL {
            let values = [key.epoch, take_u64(&mut rest)?];
            let difference = Difference { setting: key.context, values };
            return rest.is_empty().then_some(Control::Unequal(difference));
        }
        if code == DOUBT {
            let process = ProcessId(u32::try_from(key.epoch).ok()?);
            let doubt = match key.context {
                ASKED => Doubt::Asked(process),
                CALLED => Doubt::Called(process),
                ANSWERED => Doubt::Answered(process),
                LOST => Doubt::Said { about: process, lives: false },
                LIVES => Doubt::Said { about: process, lives: true },
                _ => return None,
            };
            return rest.is_empty().then_some(Control::Doubt(doubt));
        }
        let is_named = code & NAMED != 0;
        let code = code & !NAMED;
        if code == REVOKE {
            let group = take_members(&mut rest, is_named, from, net)?;
            return rest.is_empty().then_some(Control::Revoke { key, group });
        }
        if code == LEFT {
            let rounds = take_u32(&mut rest)?;
            let is_valid = rest.is_empty() && !is_named;
            return is_valid.then_some(Control::Left { key, rounds });
        }
        if code == ASK || code == ANSWER {
            return take_ids(code, key, is_named, rest);
        }
        let kind = |code| Some(AGREE.into_iter().find(|(of, _)| *of == code)?.1);
        let Some(of_join) = code.checked_sub(JOIN) else {
            let number = take_u64(&mut rest)?;
            let message = take_message(kind(code)?, rest)?;
            return (!is_named).then_some(Control::Agree { key, number, message });
        };
        let attempts = [take_key(&mut rest)?, take_key(&mut rest)?];
        let split = take_u32(&mut rest)?;
        let members = Arc::new(take_members(&mut rest, is_named, from, net)?);
        let message = take_message(kind(of_join)?, rest)?;
        let size = members.size();
        let fits = message.dead.size() == size;
        let invitation = Invitation { attempts, members, split };
        let join = Control::Join(JoinMessage { key, invitation, message });
        (fits && (1..size).contains(&split)).then_some(join)
    }
}

/// Parses the bytes, writes what was understood, and parses that. For fuzzing.
pub(crate) fn read_again<N: Directory>(bytes: &[u8], from: ProcessId, net: &mut N) {
    if let Some(control) = Control::parse(bytes, from, net) {
        let again = Control::parse(&control.to_bytes(net), from, net);
        assert_eq!(again, Some(control), "{bytes:?}");
    }
}

/// Parses the rest of a question about context ids, or of an answer to one.
fn take_ids(code: u32, key: Key, is_named: bool, mut rest: &[u8]) -> Option<Control> {
    let each = if code == ASK { ASKED_BYTES } else { 8 };
    let count = rest.len() / each;
    let count_max = if code == ASK { ASK_MAX } else { ASK_MAX.div_ceil(64) };
    let is_whole = rest.len() == count * each && (1..=count_max).contains(&count);
    if !is_whole || is_named || key.context != 0 {
        return None;
    }
    let number = key.epoch;
    if code == ANSWER {
        let done = (0..count).map_while(|_| take_u64(&mut rest)).collect();
        return Some(Control::Answer { number, done });
    }
    let mut one = || Some(Asked { prefix: take_u32(&mut rest)?, creation: take_u64(&mut rest)? });
    let asked = (0..count).map_while(|_| one()).collect();
    Some(Control::Ask { number, asked })
}

/// [`NAMED`] if the members must be given by names, else 0.
fn named<N: Directory>(members: &Group, net: &N) -> u32 {
    if members.is_below(net.processes()) { 0 } else { NAMED }
}

fn put_members<N: Directory>(bytes: &mut Vec<u8>, members: &Group, net: &N) {
    put_words(bytes, [members.size()]);
    if named(members, net) == NAMED {
        names::put(bytes, members, net);
    } else {
        put_words(bytes, members.processes().iter().map(|process| process.0));
    }
}

/// Parses a list of members. It must contain the receiver and the sender: if not, no process is
/// admitted.
fn take_members<N: Directory>(
    rest: &mut &[u8],
    is_named: bool,
    from: ProcessId,
    net: &mut N,
) -> Option<Group> {
    let size = take_u32(rest)?;
    let own = net.own();
    let group = if is_named {
        let names: Vec<_> = (0..size).map_while(|_| names::take(rest)).collect();
        let has = |process| net.name(process).is_some_and(|name| names.contains(&name));
        if !(has(own) && has(from)) {
            return None;
        }
        names::admit(&names, net)?
    } else {
        let group = Group::new((0..size).map_while(|_| take_u32(rest)).map(ProcessId));
        group.is_below(net.processes()).then_some(group)?
    };
    let is_member = |process| group.rank(process).is_some();
    (group.size() == size && is_member(own) && is_member(from)).then_some(group)
}

fn code_of(kind: AgreeKind) -> u32 {
    AGREE.into_iter().find(|(_, of)| *of == kind).map_or(0, |(code, _)| code)
}

fn put_message(bytes: &mut Vec<u8>, AgreeMessage { ballot, dead, value, .. }: &AgreeMessage) {
    put_words(bytes, [*ballot, dead.size()]);
    [value.low, value.flags].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    for set in [dead, &value.contributors, &value.acknowledged, &value.dead] {
        set.words().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }
}

/// Parses the rest of a message of an agreement.
fn take_message(kind: AgreeKind, mut rest: &[u8]) -> Option<AgreeMessage> {
    let ballot = take_u32(&mut rest)?;
    let size = take_u32(&mut rest)?;
    let low = take_u64(&mut rest)?;
    let flags = take_u64(&mut rest)?;
    let words = size.div_ceil(u64::BITS) as usize;
    if rest.len() != words.checked_mul(4 * 8)? {
        return None;
    }
    let mut set = || Ranks::read(size, || take_u64(&mut rest));
    let dead = set()?;
    let contributors = set()?;
    let acknowledged = set()?;
    let value = Value { flags, low, contributors, acknowledged, dead: set()? };
    Some(AgreeMessage { kind, ballot, dead, value })
}

fn put_head(bytes: &mut Vec<u8>, code: u32, key: Key) {
    put_words(bytes, [code]);
    put_key(bytes, key);
}

fn put_key(bytes: &mut Vec<u8>, Key { context, epoch }: Key) {
    put_words(bytes, [context]);
    bytes.extend(epoch.to_le_bytes());
}

fn put_words(bytes: &mut Vec<u8>, words: impl IntoIterator<Item = u32>) {
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

fn take_key(rest: &mut &[u8]) -> Option<Key> {
    Some(Key { context: take_u32(rest)?, epoch: take_u64(rest)? })
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(u32::from_le_bytes(*first))
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(u64::from_le_bytes(*first))
}

#[cfg(test)]
mod tests;
