use super::*;
use crate::names::TestDirectory;

const KEY: Key = Key { context: 496, epoch: u64::MAX - 3 };

/// Two processes, by their numbers among those of two jobs of 70 and 2 processes.
fn nets(numbers: [u32; 2]) -> [TestDirectory; 2] {
    numbers.map(|number| TestDirectory::new([70, 2], number))
}

fn message() -> AgreeMessage {
    let set = |ranks: &[u32]| Ranks::of(70, ranks);
    let value = Value {
        flags: 5,
        low: 2,
        contributors: set(&[0, 69]),
        acknowledged: set(&[1]),
        dead: set(&[64]),
    };
    AgreeMessage { kind: AgreeKind::Reported, ballot: 1, dead: set(&[0]), value }
}

fn join(members: Group) -> Control {
    let attempts = [KEY, Key { context: 1, ..KEY }];
    let members = Arc::new(members);
    let invitation = Invitation { attempts, members, split: 69 };
    Control::Join(JoinMessage { key: KEY, invitation, message: message() })
}

#[test]
fn a_message_parses_as_it_was_built_and_nothing_else_parses() {
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
        (0u32..).take(ASK_MAX).map(|prefix| Asked { prefix, creation: KEY.epoch }).collect();
    let ask = Control::Ask { number: 3, asked };
    let answer = Control::Answer { number: u64::MAX, done: vec![1, 2, 3, 4] };
    for control in [&ask, &answer] {
        let bytes = control.to_bytes(&sender);
        let mut parse = |bytes: &[u8]| Control::parse(bytes, ProcessId(0), &mut receiver);
        assert_eq!(parse(&bytes).as_ref(), Some(control));
        assert!(bytes.len() as u64 <= length_max(2));
        // Too long, or with a part of one more id.
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
fn closings_parse_as_they_were_built() {
    let [sender, mut receiver] = nets([0, 4]);
    let mut parse = |bytes: &[u8]| Control::parse(bytes, ProcessId(0), &mut receiver);
    for count in [1, 2, ASK_MAX as u64] {
        let closing = Control::Closing { uses: (0..count).map(|name| name << 40 | 7).collect() };
        let bytes = closing.to_bytes(&sender);
        assert!((0..bytes.len()).all(|length| parse(&bytes[..length]) != Some(closing.clone())));
        assert_eq!(parse(&bytes), Some(closing));
        assert!(bytes.len() as u64 <= length_max(2));
        assert_eq!(parse(&[&bytes[..], &[0]].concat()), None);
        let is_full = count == ASK_MAX as u64;
        assert_eq!(parse(&[&bytes[..], &[0; 8]].concat()).is_none(), is_full);
        assert_eq!(parse(&[&bytes[..4], &[1], &bytes[5..]].concat()), None);
    }
}

#[test]
fn a_letter_parses_as_it_was_built() {
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
fn members_of_two_jobs_are_numbered_by_the_receiver() {
    // Ranks 1 of both jobs.
    let [mut sender, mut receiver] = nets([1, 71]);
    let theirs = sender.admit(&receiver.name(ProcessId(1)).unwrap()).unwrap();
    let ours = receiver.admit(&sender.name(ProcessId(1)).unwrap()).unwrap();
    assert_eq!([theirs, ours], [ProcessId(70), ProcessId(2)]);
    let group = Group::new([0, 1, theirs.0].map(ProcessId));
    let bytes = Control::Revoke { key: KEY, group }.to_bytes(&sender);
    let parsed = Control::parse(&bytes, ours, &mut receiver);
    // Rank 0 of the other job is new to the receiver.
    let group = Group::new([3, 2, 1].map(ProcessId));
    assert_eq!(parsed, Some(Control::Revoke { key: KEY, group }));
    for length in 0..bytes.len() {
        assert_eq!(Control::parse(&bytes[..length], ours, &mut receiver), None);
    }
    let members = (0..69).chain([theirs.0]).map(ProcessId);
    let bytes = join(Group::new(members)).to_bytes(&sender);
    assert!(bytes.len() as u64 <= length_max(2));
    let parsed = Control::parse(&bytes, ours, &mut receiver);
    let Some(Control::Join(JoinMessage { invitation, .. })) = parsed else { panic!("{parsed:?}") };
    assert_eq!(invitation.members.rank(ProcessId(1)), Some(69));
    assert_eq!(invitation.members.rank(ours), Some(1));
}

#[test]
fn a_list_of_members_without_sender_and_receiver_is_refused() {
    let [mut sender, mut receiver] = nets([0, 70]);
    let from = receiver.admit(&sender.name(ProcessId(0)).unwrap()).unwrap();
    let [third, own] = [1, 0].map(|rank| receiver.name(ProcessId(rank)).unwrap());
    let [third, own] = [third, own].map(|name| sender.admit(&name).unwrap());
    let mut parse = |members: &[ProcessId]| {
        let group = Group::new(members.iter().copied());
        let bytes = Control::Revoke { key: KEY, group }.to_bytes(&sender);
        Control::parse(&bytes, from, &mut receiver)
    };
    // Without the receiver; without the sender; and as if all were of one job.
    let refused = [&[ProcessId(0), third][..], &[own, third], &[ProcessId(0), ProcessId(1)]];
    assert!(refused.iter().all(|members| parse(members).is_none()));
    assert!(parse(&[ProcessId(0), own]).is_some());
    // The refused messages have admitted no process.
    assert_eq!(receiver.name(ProcessId(3)), None);
}

#[test]
fn doubts_parse_as_they_were_built() {
    let [sender, mut receiver] = nets([0, 4]);
    let process = ProcessId(u32::MAX);
    let answers = [true, false].map(|lives| Doubt::Said { about: process, lives });
    let others = [Doubt::Asked(process), Doubt::Called(process), Doubt::Answered(process)];
    for doubt in others.into_iter().chain(answers) {
        let bytes = Control::Doubt(doubt).to_bytes(&sender);
        let mut parse = |bytes: &[u8]| Control::parse(bytes, ProcessId(0), &mut receiver);
        assert_eq!(parse(&bytes), Some(Control::Doubt(doubt)));
        assert_eq!(parse(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(parse(&[&bytes[..4], &[9], &bytes[5..]].concat()), None, "an unknown kind");
        assert_eq!(parse(&[&bytes[..12], &[1], &bytes[13..]].concat()), None, "no such number");
    }
}

#[test]
fn settings_and_their_difference_parse_as_they_were_built() {
    let [sender, mut receiver] = nets([0, 4]);
    let settings = Control::Settings(vec![u64::MAX - 1; SETTINGS_MAX]);
    let unequal = Control::Unequal(Difference { setting: 3, values: [u64::MAX, 1 << 40] });
    for control in [settings, unequal] {
        let bytes = control.to_bytes(&sender);
        let mut parse = |bytes: &[u8]| Control::parse(bytes, ProcessId(0), &mut receiver);
        assert_eq!(parse(&bytes), Some(control));
        assert!(bytes.len() as u64 <= length_max(2));
        assert!((1..8).all(|less| parse(&bytes[..bytes.len() - less]).is_none()));
        assert!((1..9).all(|more| parse(&[&bytes[..], &vec![0; more]].concat()).is_none()));
        assert_eq!(parse(&bytes[..16]), None);
    }
}
