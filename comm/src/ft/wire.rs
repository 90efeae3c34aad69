//! The messages by which processes speak of failures, as bytes.
//!
//! Members are ranks in the job where all are of the sender's, and so the receiver is, too; else they are
//! names.

use std::sync::Arc;

use crate::group::Group;
use crate::mailbox::{Body, Letter};
use crate::names::{self, NAME_BYTES};
use crate::net::{FOREIGN_MAX, Net, ProcessId};

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
    /// Is the receiver done with these context ids?
    Ask { number: u64, asked: Vec<Asked> },
    /// To the question of that number: a bit for each id, set if the sender is done with it.
    Answer { number: u64, done: Vec<u64> },
    /// To a mailbox of the receiver.
    Letter(Letter),
}

/// A context id of the process that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) prefix: u32,
    /// Names the allocation by which the receiver of the question may have got the communicator.
    pub(crate) birth: u64,
}

/// Most ids that one message asks about.
pub(crate) const ASK_MAX: usize = 256;
/// Bytes of each.
const ASKED_BYTES: usize = 12;

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
const ASK: u32 = 6;
const ANSWER: u32 = 7;
/// Added to a code: members are names.
const NAMED: u32 = 16;

/// A letter; what it is stands where others have a context, the mailbox where they have an epoch.
const LETTER: u32 = 32;
const CALL: u32 = 0;
const SAID: u32 = 1;
const OVER: u32 = 2;

/// Bytes that most messages have no more than.
const SHORT: usize = 128;

/// Most bytes that a message to a process of a job of so many has.
pub(crate) fn length_max(processes: u32) -> u64 {
    let all = u64::from(processes) + u64::from(FOREIGN_MAX);
    let of_members = all * NAME_BYTES as u64 + all.div_ceil(64) * 32;
    96 + of_members.max((ASK_MAX * ASKED_BYTES) as u64)
}

impl Control {
    pub(crate) fn to_bytes<N: Net>(&self, net: &N) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SHORT);
        match self {
            Control::Revoke { key, group } => {
                head(&mut bytes, form(group, net) + REVOKE, *key);
                put_members(&mut bytes, group, net);
            }
            Control::Left { key, rounds } => {
                head(&mut bytes, LEFT, *key);
                put(&mut bytes, [*rounds]);
            }
            Control::Ask { number, asked } => {
                head(&mut bytes, ASK, Key { context: 0, epoch: *number });
                for Asked { prefix, birth } in asked {
                    put(&mut bytes, [*prefix]);
                    bytes.extend(birth.to_le_bytes());
                }
            }
            Control::Answer { number, done } => {
                head(&mut bytes, ANSWER, Key { context: 0, epoch: *number });
                done.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            }
            Control::Agree { key, number, message } => {
                head(&mut bytes, code(message.kind), *key);
                put(&mut bytes, [*number]);
                put_message(&mut bytes, message);
            }
            Control::Join { key, invitation, message } => {
                let Invitation { attempts, members, split } = invitation;
                head(&mut bytes, form(members, net) + JOIN + code(message.kind), *key);
                for attempt in attempts {
                    put(&mut bytes, [attempt.context]);
                    bytes.extend(attempt.epoch.to_le_bytes());
                }
                put(&mut bytes, [*split]);
                put_members(&mut bytes, members, net);
                put_message(&mut bytes, message);
            }
            Control::Letter(Letter { to, from, body }) => {
                let (what, said) = match body {
                    Body::Call => (CALL, &[][..]),
                    Body::Said(said) => (SAID, &said[..]),
                    Body::Over => (OVER, &[][..]),
                };
                head(&mut bytes, LETTER, Key { context: what, epoch: *to });
                bytes.extend(from.to_le_bytes());
                bytes.extend(said);
            }
        }
        bytes
    }

    /// What another process has sent; `None` if it can't be.
    pub(crate) fn parse<N: Net>(bytes: &[u8], from: ProcessId, net: &mut N) -> Option<Self> {
        let mut rest = bytes;
        let (code, context) = (word(&mut rest)?, word(&mut rest)?);
        let key = Key { context, epoch: long(&mut rest)? };
        if code == LETTER {
            let from = long(&mut rest)?;
            let body = match key.context {
                CALL if rest.is_empty() => Body::Call,
                SAID => Body::Said(rest.to_vec()),
                OVER if rest.is_empty() => Body::Over,
                _ => return None,
            };
            return Some(Control::Letter(Letter { to: key.epoch, from, body }));
        }
        let (is_named, code) = (code & NAMED != 0, code & !NAMED);
        if code == REVOKE {
            let group = members(&mut rest, is_named, from, net)?;
            return rest.is_empty().then_some(Control::Revoke { key, group });
        }
        if code == LEFT {
            return Some(Control::Left { key, rounds: word(&mut rest)? });
        }
        if code == ASK || code == ANSWER {
            return about_ids(code, key, is_named, rest);
        }
        let kind = |code| Some(AGREE.into_iter().find(|(of, _)| *of == code)?.1);
        let Some(of_join) = code.checked_sub(JOIN) else {
            let number = word(&mut rest)?;
            let message = message(kind(code)?, rest)?;
            return Some(Control::Agree { key, number, message });
        };
        let mut attempt = || Some(Key { context: word(&mut rest)?, epoch: long(&mut rest)? });
        let attempts = [attempt()?, attempt()?];
        let split = word(&mut rest)?;
        let members = Arc::new(members(&mut rest, is_named, from, net)?);
        let message = message(kind(of_join)?, rest)?;
        let size = members.size();
        let fits = message.dead.size() == size;
        let invitation = Invitation { attempts, members, split };
        (fits && (1..size).contains(&split)).then_some(Control::Join { key, invitation, message })
    }
}

/// All that is left of the bytes, as a question about context ids or an answer to one.
fn about_ids(code: u32, key: Key, is_named: bool, mut rest: &[u8]) -> Option<Control> {
    let each = if code == ASK { ASKED_BYTES } else { 8 };
    let count = rest.len() / each;
    let count_max = if code == ASK { ASK_MAX } else { ASK_MAX.div_ceil(64) };
    let is_whole = rest.len() == count * each && (1..=count_max).contains(&count);
    if !is_whole || is_named || key.context != 0 {
        return None;
    }
    let number = key.epoch;
    if code == ANSWER {
        let done = (0..count).map_while(|_| long(&mut rest)).collect();
        return Some(Control::Answer { number, done });
    }
    let mut one = || Some(Asked { prefix: word(&mut rest)?, birth: long(&mut rest)? });
    let asked = (0..count).map_while(|_| one()).collect();
    Some(Control::Ask { number, asked })
}

fn form<N: Net>(members: &Group, net: &N) -> u32 {
    if members.is_below(net.processes()) { 0 } else { NAMED }
}

fn put_members<N: Net>(bytes: &mut Vec<u8>, members: &Group, net: &N) {
    put(bytes, [members.size()]);
    if form(members, net) == NAMED {
        names::put(bytes, members, net);
    } else {
        put(bytes, members.processes().iter().map(|process| process.0));
    }
}

/// The receiver and the sender are among them, or nobody is admitted.
fn members<N: Net>(
    rest: &mut &[u8],
    is_named: bool,
    from: ProcessId,
    net: &mut N,
) -> Option<Group> {
    let (size, own) = (word(rest)?, net.own());
    let group = if is_named {
        let names: Vec<_> = (0..size).map_while(|_| names::take(rest)).collect();
        let has = |process| net.name(process).is_some_and(|name| names.contains(&name));
        if !(has(own) && has(from)) {
            return None;
        }
        names::admit(&names, net)?
    } else {
        let group = Group::new((0..size).map_while(|_| word(rest)).map(ProcessId));
        group.is_below(net.processes()).then_some(group)?
    };
    let is_member = |process| group.rank(process).is_some();
    (group.size() == size && is_member(own) && is_member(from)).then_some(group)
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
    use crate::net::sim::{Sim, SimConfig, SimNet};

    const KEY: Key = Key { context: 496, epoch: u64::MAX - 3 };

    /// The processes of that number in two jobs of 70 and 2.
    fn nets(numbers: [u32; 2]) -> [SimNet; 2] {
        let sim = Sim::of_jobs(SimConfig::default(), &[70, 2]);
        numbers.map(|number| sim.net(number))
    }

    fn message() -> Message {
        let set = |ranks: &[u32]| Ranks::of(70, ranks);
        let value = Value {
            flags: 5,
            low: 2,
            contributors: set(&[0, 69]),
            acknowledged: set(&[1]),
            dead: set(&[64]),
        };
        Message { kind: Kind::Reported, ballot: 1, dead: set(&[0]), value }
    }

    fn join(members: Group) -> Control {
        let (attempts, members) = ([KEY, Key { context: 1, ..KEY }], Arc::new(members));
        let invitation = Invitation { attempts, members, split: 69 };
        Control::Join { key: KEY, invitation, message: message() }
    }

    #[test]
    fn what_is_sent_is_what_comes_and_nothing_else_is() {
        let [sender, mut receiver] = nets([0, 4]);
        let group = Group::new([4, 0, 9].map(ProcessId));
        let join = join(Group::new((0..70).rev().map(ProcessId)));
        let agree = Control::Agree { key: KEY, number: 7, message: message() };
        let left = Control::Left { key: KEY, rounds: 3 };
        let revoke = Control::Revoke { key: KEY, group };
        for control in [&revoke, &left, &agree, &join] {
            let bytes = control.to_bytes(&sender);
            let parsed = Control::parse(&bytes, ProcessId(0), &mut receiver);
            assert_eq!(parsed.as_ref(), Some(control));
        }
        let asked =
            (0u32..).take(ASK_MAX).map(|prefix| Asked { prefix, birth: KEY.epoch }).collect();
        let ask = Control::Ask { number: 3, asked };
        let answer = Control::Answer { number: u64::MAX, done: vec![1, 2, 3, 4] };
        for control in [&ask, &answer] {
            let bytes = control.to_bytes(&sender);
            let mut parse = |bytes: &[u8]| Control::parse(bytes, ProcessId(0), &mut receiver);
            assert_eq!(parse(&bytes).as_ref(), Some(control));
            assert!(bytes.len() as u64 <= length_max(2));
            // Longer than any, a part of one more, none at all, with members, of a communicator.
            for extra in 1..=24 {
                assert_eq!(parse(&[&bytes[..], &vec![0; extra]].concat()), None);
            }
            assert!((1..8).all(|less| parse(&bytes[..bytes.len() - less]).is_none()));
            assert_eq!(parse(&bytes[..16]), None);
            for at in [0, 4] {
                let mut wrong = bytes.clone();
                wrong[at] |= 16;
                assert_eq!(parse(&wrong), None);
            }
        }
        for bytes in [revoke, agree, join].map(|control| control.to_bytes(&sender)) {
            let mut parse =
                |length: usize| Control::parse(&bytes[..length], ProcessId(0), &mut receiver);
            assert!((0..bytes.len()).all(|length| parse(length).is_none()));
            assert!(bytes.len() as u64 <= length_max(70));
        }
    }

    #[test]
    fn a_letter_is_what_was_written() {
        let [sender, mut receiver] = nets([0, 4]);
        let mut parse = |bytes: &[u8]| Control::parse(bytes, ProcessId(0), &mut receiver);
        for body in [Body::Call, Body::Over, Body::Said(vec![]), Body::Said(vec![7; 9])] {
            let is_said = matches!(body, Body::Said(_));
            let letter = Control::Letter(Letter { to: u64::MAX / 3, from: 1 << 40, body });
            let mut bytes = letter.to_bytes(&sender);
            assert!((0..24).all(|length| parse(&bytes[..length]).is_none()));
            assert_eq!(parse(&bytes), Some(letter));
            bytes.push(0);
            assert_eq!(parse(&bytes).is_some(), is_said);
            bytes[4] = 3;
            assert_eq!(parse(&bytes), None);
        }
    }

    #[test]
    fn members_of_two_jobs_have_each_its_own_number_at_both() {
        // Ranks 1 of both jobs.
        let [mut sender, mut receiver] = nets([1, 71]);
        let theirs = sender.admit(&receiver.name(ProcessId(1)).unwrap()).unwrap();
        let ours = receiver.admit(&sender.name(ProcessId(1)).unwrap()).unwrap();
        assert_eq!([theirs, ours], [ProcessId(70), ProcessId(2)]);
        let group = Group::new([0, 1, theirs.0].map(ProcessId));
        let bytes = Control::Revoke { key: KEY, group }.to_bytes(&sender);
        let heard = Control::parse(&bytes, ours, &mut receiver);
        // Rank 0 of the other job is new.
        let group = Group::new([3, 2, 1].map(ProcessId));
        assert_eq!(heard, Some(Control::Revoke { key: KEY, group }));
        for length in 0..bytes.len() {
            assert_eq!(Control::parse(&bytes[..length], ours, &mut receiver), None);
        }
        let members = (0..69).chain([theirs.0]).map(ProcessId);
        let bytes = join(Group::new(members)).to_bytes(&sender);
        assert!(bytes.len() as u64 <= length_max(2));
        let heard = Control::parse(&bytes, ours, &mut receiver);
        let Some(Control::Join { invitation, .. }) = heard else { panic!("{heard:?}") };
        assert_eq!(invitation.members.rank(ProcessId(1)), Some(69));
        assert_eq!(invitation.members.rank(ours), Some(1));
    }

    #[test]
    fn nobody_speaks_for_members_without_being_one() {
        let [mut sender, mut receiver] = nets([0, 70]);
        let from = receiver.admit(&sender.name(ProcessId(0)).unwrap()).unwrap();
        let [third, own] = [1, 0].map(|rank| receiver.name(ProcessId(rank)).unwrap());
        let [third, own] = [third, own].map(|name| sender.admit(&name).unwrap());
        let mut parse = |members: &[ProcessId]| {
            let group = Group::new(members.iter().copied());
            let bytes = Control::Revoke { key: KEY, group }.to_bytes(&sender);
            Control::parse(&bytes, from, &mut receiver)
        };
        // Without the receiver; without the sender; as if both were of one job.
        let refused = [&[ProcessId(0), third][..], &[own, third], &[ProcessId(0), ProcessId(1)]];
        assert!(refused.iter().all(|members| parse(members).is_none()));
        assert!(parse(&[ProcessId(0), own]).is_some());
        // Nobody was admitted by what was refused.
        assert_eq!(receiver.name(ProcessId(3)), None);
    }
}
