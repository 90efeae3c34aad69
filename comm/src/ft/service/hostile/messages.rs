//! The descriptions of all control messages.

use std::sync::Arc;

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest};

use super::{BYSTANDER, LINE, LOST, PARTNER, PORT, ServiceSurroundings, THEIR_LINE};
use crate::ft::agree::{AgreeKind, AgreeMessage, Value};
use crate::ft::control::{ASK_MAX, Asked, Control, Invitation, JoinMessage};
use crate::ft::doubts::Doubt;
use crate::ft::ranks::Ranks;
use crate::group::Group;
use crate::life::Key;
use crate::mailbox::{Body, Letter};
use crate::settings::{Difference, NAMES};

fn of(name: &'static str, control: &Control, around: &ServiceSurroundings) -> Message {
    Message::new(name, control.to_bytes(&around.directory)).le(4, "code", Meaning::Open)
}

/// The head's context and epoch.
fn head(message: Message, context: Meaning, epoch: Meaning) -> Message {
    message.le(4, "context", context).le(8, "epoch", epoch)
}

fn rest(unit: usize, count: std::ops::RangeInclusive<usize>, legality: Legality) -> Rest {
    Rest { unit, count, legality }
}

/// The processes that may send and answer a doubt have numbers of the job.
fn doubts(around: &ServiceSurroundings) -> [Message; 4] {
    let doubt = |name, doubt, about| {
        let kinds = Meaning::OneOf((0..=4).collect());
        head(of(name, &Control::Doubt(doubt), around), kinds, about)
    };
    let others = Meaning::OneOf(vec![BYSTANDER.0.into(), LOST.0.into()]);
    [
        doubt("asked", Doubt::Asked(BYSTANDER), others),
        doubt("called", Doubt::Called(BYSTANDER), Meaning::Open),
        doubt("answered", Doubt::Answered(BYSTANDER), Meaning::Fixed),
        doubt("said", Doubt::Said { about: LOST, lives: false }, Meaning::Fixed),
    ]
}

fn letters(around: &ServiceSurroundings) -> [Message; 3] {
    let letter = |name, to, from, body| {
        let message = of(name, &Control::Letter(Letter { to, from, body }), around);
        head(message, Meaning::Open, Meaning::Fixed)
    };
    let text = letter("said in a line", LINE, THEIR_LINE, Body::Said(vec![1, 2, 3, 4, 5]));
    let text = text.le(8, "from", Meaning::Fixed);
    [
        letter("call", PORT, 7, Body::Call).le(8, "from", Meaning::Free),
        text.rest(rest(1, 0..=usize::MAX, Legality::Open)),
        letter("over", LINE, THEIR_LINE, Body::Over).le(8, "from", Meaning::Fixed),
    ]
}

/// The part of a message that an agreement reads. The sets are of 4 members.
fn agreement(message: Message) -> Message {
    let message = message.le(4, "ballot", Meaning::Open).le(4, "size", Meaning::Fixed);
    let message = message.le(8, "low", Meaning::Open).le(8, "flags", Meaning::Open);
    let sets = ["dead", "contributors", "acknowledged", "dead by value"];
    sets.into_iter().fold(message, |message, set| message.le(8, set, Meaning::Open))
}

fn agreements(around: &ServiceSurroundings) -> [Message; 2] {
    let value = Value {
        flags: 1,
        low: 0,
        contributors: Ranks::of(4, &[PARTNER.0]),
        acknowledged: Ranks::none(4),
        dead: Ranks::none(4),
    };
    let kind = AgreeKind::Gathered;
    let message = AgreeMessage { kind, ballot: 0, dead: Ranks::none(4), value };
    let agree = Control::Agree { key: around.world, number: 0, message: message.clone() };
    let agree = head(of("agree", &agree, around), Meaning::Open, Meaning::Open);
    let attempts = [around.world, Key { context: 1, epoch: 3 }];
    let members = Arc::clone(&around.group);
    let invitation = Invitation { attempts, members, split: 2 };
    let join = Control::Join(JoinMessage { key: around.world, invitation, message });
    let mut join = head(of("join", &join, around), Meaning::Open, Meaning::Open);
    for _ in attempts {
        join = head(join, Meaning::Open, Meaning::Open);
    }
    let join = join.le(4, "split", Meaning::Within(1..=3)).le(4, "members", Meaning::Fixed);
    let join = (0..4).fold(join, |join, _| join.le(4, "member", Meaning::Open));
    [agreement(agree.le(8, "number", Meaning::Open)), agreement(join)]
}

pub(super) fn all(around: &ServiceSurroundings) -> Vec<Message> {
    let revoke = Control::Revoke { key: around.other, group: Group::clone(&around.group) };
    let revoke = head(of("revoke", &revoke, around), Meaning::Open, Meaning::Open);
    let left = Control::Left { key: around.allocation, rounds: 2 };
    let left = head(of("left", &left, around), Meaning::Open, Meaning::Open);
    let asked = Asked { prefix: 9, creation: 4 };
    let ask = of("ask", &Control::Ask { number: 3, asked: vec![asked; 2] }, around);
    let answer = Control::Answer { number: around.question, done: vec![u64::MAX; 2] };
    let answer = head(of("answer", &answer, around), Meaning::Fixed, Meaning::Fixed);
    let closing = Control::Closing { uses: vec![around.used; 3] };
    let closing = head(of("closing", &closing, around), Meaning::Fixed, Meaning::Open);
    let settings = of("settings", &Control::Settings(around.settings.values().to_vec()), around);
    let unequal = Control::Unequal(Difference { setting: 3, values: [1, 2] });
    let setting = Meaning::Within(0..=NAMES.len() as u64 - 1);
    let unequal = head(of("unequal", &unequal, around), setting, Meaning::Free);
    let mut all = vec![
        revoke.le(4, "size", Meaning::Counts(4)).rest(rest(4, 2..=4, Legality::Open)),
        left.le(4, "rounds", Meaning::Free),
        head(ask, Meaning::Fixed, Meaning::Free).rest(rest(12, 1..=ASK_MAX, Legality::Legal)),
        answer.rest(rest(8, 2..=2, Legality::Legal)),
        closing.rest(rest(8, 0..=ASK_MAX - 1, Legality::Legal)),
        head(settings, Meaning::Fixed, Meaning::Fixed).rest(rest(8, 1..=256, Legality::Open)),
        unequal.le(8, "other value", Meaning::Free),
    ];
    all.extend(doubts(around));
    all.extend(letters(around));
    all.extend(agreements(around));
    all
}
