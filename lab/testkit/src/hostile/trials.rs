//! Gives every variant of every message to a receiver, in each situation, by each sender.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::message::{Legality, Message};
use super::variants::Variant;

/// The most faults that a report lists.
const LISTED_MAX: usize = 12;
/// How many messages of a flood follow when as many have come as the receiver keeps.
const FURTHER: usize = 64;

/// A receiver, and what surrounds it.
pub trait Room {
    /// How far the receiver is in its protocol.
    type Situation: Copy + Debug;
    /// Who sends: the process that the receiver expects, another one, one that is gone.
    type Sender: Copy + Debug;

    /// A receiver that is in this situation.
    fn enter(situation: Self::Situation) -> Self;

    /// Whether the receiver takes the good message.
    fn takes(situation: Self::Situation, sender: Self::Sender, message: &Message) -> Legality;

    /// Delivers a message. Whether the receiver has answered it, other than by a refusal. A message
    /// is taken if it is answered or changes the state.
    fn hear(&mut self, sender: Self::Sender, bytes: &[u8]) -> bool;

    /// What a refused message leaves as it was. Its length says how much the receiver keeps.
    fn state(&self) -> String;

    /// Afterwards: others are served, and what was taken is back.
    ///
    /// # Panics
    /// They aren't.
    fn audit(self);
}

/// Tries all of it. Returns the number of trials.
///
/// # Panics
/// A message was taken or refused that shouldn't have been, a refused one has changed something, or
/// the receiver has panicked.
pub fn try_all<R: Room>(
    situations: &[R::Situation],
    senders: &[R::Sender],
    messages: &[Message],
) -> usize {
    let mut faults = Vec::new();
    let mut trials = 0;
    for message in messages {
        let variants = message.variants();
        for (situation, sender) in
            situations.iter().flat_map(|of| senders.iter().map(|by| (*of, *by)))
        {
            let place = R::takes(situation, sender, message);
            // Where the good message is refused, its variants may be other messages.
            let count = if place == Legality::Illegal { 1 } else { variants.len() };
            for variant in &variants[..count] {
                trials += 1;
                let legality = place.and(variant.legality);
                let tried = catch_unwind(AssertUnwindSafe(|| {
                    attempt::<R>((situation, sender), variant, legality)
                }));
                let fault = tried.unwrap_or(Some("panics"));
                faults.extend(fault.map(|fault| {
                    let Variant { what, bytes, .. } = variant;
                    let name = message.name();
                    format!("{name}, {what}, from {sender:?}, {situation:?}: {fault}\n{bytes:02x?}")
                }));
            }
        }
    }
    let count = faults.len();
    faults.truncate(LISTED_MAX);
    assert!(faults.is_empty(), "{count} of {trials}:\n{}", faults.join("\n"));
    trials
}

/// What is wrong after one message.
fn attempt<R: Room>(
    (situation, sender): (R::Situation, R::Sender),
    variant: &Variant,
    legality: Legality,
) -> Option<&'static str> {
    let mut room = R::enter(situation);
    let before = room.state();
    let is_answered = room.hear(sender, &variant.bytes);
    let is_changed = room.state() != before;
    let fault = match legality {
        Legality::Illegal if is_answered => Some("is answered"),
        Legality::Illegal if is_changed => Some("changes something"),
        Legality::Legal if !(is_answered || is_changed) => Some("is refused"),
        _ => None,
    };
    // It comes twice.
    room.hear(sender, &variant.bytes);
    room.audit();
    fault
}

/// Sends a message again and again, each time with another number in the field of this name. What
/// the receiver keeps no longer grows after `bound` of them.
///
/// # Panics
/// It does, or no field has this name.
pub fn flood<R: Room>(
    situation: R::Situation,
    sender: R::Sender,
    message: &Message,
    (field, bound): (&str, usize),
) {
    let found = message.fields.iter().find(|of| of.name == field);
    let field = found.unwrap_or_else(|| panic!("{} has no field {field}", message.name()));
    let mut room = R::enter(situation);
    let mut bytes = message.bytes().to_vec();
    // All of these numbers are equally long as text.
    let first = 10u64.pow(field.value_max().ilog10() - 1);
    let mut send = |room: &mut R, numbers: std::ops::Range<usize>| {
        for number in numbers {
            field.put(&mut bytes, first + number as u64);
            room.hear(sender, &bytes);
        }
        room.state().len()
    };
    let kept = send(&mut room, 0..bound);
    let kept_later = send(&mut room, bound..bound + FURTHER);
    let name = message.name();
    assert!(kept_later <= kept, "of {name}, {kept_later} instead of {kept} bytes are kept");
    room.audit();
}
