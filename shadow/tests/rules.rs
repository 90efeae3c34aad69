//! A test for each rule of the shadow.

use tagmatch_shadow::table::State;
use tagmatch_shadow::{
    CancelAnswer, Deleted, LOOKS_MAX, Lost, Op, Refusal, Removal, Shadow, ShadowConfig,
    ShadowError, Take, Why,
};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

const LONG: u64 = 4096;

fn config() -> ShadowConfig {
    ShadowConfig {
        slots: 4,
        operations: 32,
        sync_every: 8,
        first_count: 0,
        threshold: 1024,
        read_max: 1 << 20,
        source_bits: TagMask(0xf0),
    }
}

fn shadow() -> Shadow {
    Shadow::new(&config())
}

fn exact(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}

fn any() -> Pattern {
    Pattern::new(Tag(0), TagMask::ANY)
}

/// Takes all operations that are due. The handle of an entry is its slot plus 100.
fn drain(shadow: &mut Shadow) -> Vec<Op> {
    let mut ops = vec![];
    while let Some(due) = shadow.next_op() {
        let op = due.op();
        let handle = if let Op::Add { slot, .. } = op { Some(slot + 100) } else { None };
        due.accepted(handle);
        ops.push(op);
    }
    ops
}

fn post(shadow: &mut Shadow, id: u32, pattern: &Pattern) -> Vec<Op> {
    shadow.post(id, pattern, LONG, true);
    drain(shadow)
}

/// Posts a receive and makes its entry active. Returns the slot.
fn active(shadow: &mut Shadow, id: u32, pattern: &Pattern) -> u32 {
    let ops = post(shadow, id, pattern);
    let [Op::Add { slot, .. }] = ops[..] else { panic!("{ops:?}") };
    shadow.added(slot).unwrap();
    assert_eq!(drain(shadow), []);
    slot
}

fn add(id: u32, slot: u32, count: u16) -> Op {
    Op::Add { id, slot, count }
}

fn delete(slot: u32, answer: bool, count: u16) -> Op {
    Op::Delete { handle: slot + 100, slot, answer, count }
}

#[test]
fn receives_that_are_not_worth_adding_stay_in_software() {
    let mut shadow = shadow();
    shadow.post(0, &exact(1), 1023, true);
    shadow.post(1, &exact(2), LONG, false);
    shadow.post(2, &exact(3), (1 << 20) + 1, true);
    shadow.post(3, &exact(4).from_source(SourceId(1)), LONG, true);
    assert_eq!(drain(&mut shadow), []);
    let why: Vec<_> = (0..5).map(|id| shadow.why(id)).collect();
    let right = [Why::TooSmall, Why::Memory, Why::Memory, Why::Source].map(Some);
    assert_eq!(why, [&right[..], &[None]].concat());
    for (id, why) in (0..4).zip(right) {
        assert_eq!(shadow.take(id, true), Take::Software(why.unwrap()));
    }
    assert_eq!(shadow.counters().software, [1, 0, 0, 1, 2, 0, 0, 0]);
    assert_eq!(shadow.counters().receives, 0);
}

#[test]
fn receives_as_long_as_the_bounds_are_added() {
    let mut shadow = shadow();
    for (id, length) in [(0, 1024), (1, 1 << 20)] {
        shadow.post(id, &exact(u64::from(id)), length, true);
        assert_eq!(drain(&mut shadow), [add(id, id, 0)]);
    }
}

#[test]
fn without_a_list_nothing_is_added() {
    let mut shadow = Shadow::new(&ShadowConfig { slots: 0, ..config() });
    assert_eq!(post(&mut shadow, 0, &any()), []);
    assert_eq!(shadow.why(0), Some(Why::Off));
    let mut shadow = Shadow::new(&ShadowConfig { operations: 1, ..config() });
    assert_eq!(post(&mut shadow, 0, &any()), []);
}

#[test]
fn an_older_receive_in_software_blocks_the_receives_that_it_overlaps() {
    let mut shadow = shadow();
    shadow.post(0, &Pattern::new(Tag(0x10), TagMask(0xf0)), 0, true);
    assert_eq!(post(&mut shadow, 1, &exact(0x11)), []);
    assert_eq!(post(&mut shadow, 2, &exact(0x21)), [add(2, 0, 0)]);
    // A receive waits for older ones that overlap it, for whatever reason these are in software.
    assert_eq!(post(&mut shadow, 3, &any()), []);
    assert_eq!([1, 3].map(|id| shadow.why(id)), [Some(Why::Order); 2]);
    assert_eq!(shadow.take(0, true), Take::Software(Why::TooSmall));
    shadow.searched();
    // Receive 3 still waits: receive 2 was added with another count and is not known to be active.
    assert_eq!(drain(&mut shadow), [add(1, 1, 1)]);
}

#[test]
fn entries_of_the_same_count_do_not_block() {
    let mut shadow = shadow();
    assert_eq!(post(&mut shadow, 0, &any()), [add(0, 0, 0)]);
    assert_eq!(post(&mut shadow, 1, &any()), [add(1, 1, 0)]);
    shadow.searched();
    assert_eq!(post(&mut shadow, 2, &any()), []);
    assert_eq!(shadow.why(2), Some(Why::Order));
}

#[test]
fn entries_that_missed_their_phase_are_deleted_youngest_first() {
    let mut shadow = shadow();
    for id in 0..3 {
        post(&mut shadow, id, &any());
    }
    shadow.searched();
    shadow.added(0).unwrap();
    assert_eq!(shadow.state(0), Some(State::Inactive));
    let deletes = [2, 1, 0].map(|slot| delete(slot, true, 1));
    assert_eq!(drain(&mut shadow), deletes);
    shadow.added(1).unwrap();
    shadow.added(2).unwrap();
    assert_eq!(shadow.deleted(2), Ok(Deleted::Again { id: 2 }));
    assert_eq!(drain(&mut shadow), []);
    // The NIC may have activated the entry, and then its match is valid.
    assert_eq!(shadow.lost(1), Ok(Lost { id: Some(1), was: Some(Removal::Again) }));
    assert_eq!(shadow.deleted(0), Ok(Deleted::Again { id: 0 }));
    assert_eq!(drain(&mut shadow), [add(0, 0, 1), add(2, 2, 1)]);
    assert_eq!((shadow.matched(1), shadow.landed(1)), (Ok(1), Ok(1)));
    assert_eq!(shadow.state(1), Some(State::Free));
}

#[test]
fn unexpected_messages_that_software_has_not_searched_for_count_in_the_phase() {
    let mut shadow = shadow();
    post(&mut shadow, 0, &exact(1));
    shadow.unexpected_reported();
    // The NIC would add the entry as inactive.
    assert_eq!(post(&mut shadow, 1, &exact(2)), []);
    assert_eq!(shadow.why(1), Some(Why::Phase));
    shadow.added(0).unwrap();
    assert_eq!(shadow.state(0), Some(State::Inactive));
}

#[test]
fn a_message_of_the_list_withdraws_an_entry_with_the_old_count() {
    let mut shadow = shadow();
    post(&mut shadow, 0, &exact(1));
    shadow.unexpected_reported();
    assert_eq!(shadow.take(0, true), Take::Reclaim { slot: 0, handle: 100, why: Why::Phase });
    shadow.searched();
    shadow.post(1, &exact(1), LONG, true);
    let due = shadow.next_op().unwrap();
    assert_eq!(due.op(), delete(0, false, 0));
    // The delete is refused: no other operation is sent, and the count stays.
    due.refused(Refusal::QueueFull);
    assert!(shadow.next_op().is_none());
    shadow.searched();
    assert_eq!(drain(&mut shadow), [delete(0, false, 0), add(1, 1, 2)]);
    assert_eq!(shadow.state(0), Some(State::AddingWithdrawn));
    shadow.added(0).unwrap();
    assert_eq!(shadow.state(0), Some(State::Free));
}

#[test]
fn a_message_that_arrives_on_another_way_waits_for_the_nic() {
    let mut shadow = shadow();
    let slot = active(&mut shadow, 7, &exact(1));
    assert_eq!(shadow.take(7, false), Take::Wait);
    assert_eq!(drain(&mut shadow), [delete(slot, true, 0)]);
    // A second message waits as well, and a cancel is too late.
    assert_eq!(shadow.take(7, false), Take::Wait);
    assert_eq!(shadow.cancel(7), CancelAnswer::TooLate);
    assert_eq!(drain(&mut shadow), []);
    assert_eq!(shadow.slots_in(State::Removing), 1);
    assert_eq!(shadow.deleted(slot), Ok(Deleted::ForMessage { id: 7 }));
    assert_eq!(shadow.slots_in(State::Free), 4);
}

#[test]
fn a_match_of_the_nic_takes_the_receive_from_waiting_messages() {
    let mut shadow = shadow();
    let slot = active(&mut shadow, 7, &exact(1));
    assert_eq!(shadow.take(7, false), Take::Wait);
    // The entry has matched before its delete is sent, so there is nothing to delete.
    assert_eq!(shadow.matched(slot), Ok(7));
    assert_eq!(drain(&mut shadow), []);
    shadow.landed(slot).unwrap();

    let slot = active(&mut shadow, 8, &exact(1));
    assert_eq!(shadow.take(8, false), Take::Wait);
    drain(&mut shadow);
    assert_eq!(shadow.matched(slot), Ok(8));
    assert_eq!(shadow.landed(slot), Ok(8));
    // The id may be used again before the NIC answers the delete.
    post(&mut shadow, 8, &exact(2));
    assert_eq!(shadow.lost(slot), Ok(Lost { id: None, was: Some(Removal::Message) }));
    assert_eq!(shadow.state(slot), Some(State::Free));
}

#[test]
fn a_cancel_that_was_sent_to_the_nic_comes_before_a_later_message() {
    let mut shadow = shadow();
    let slot = active(&mut shadow, 0, &exact(1));
    assert_eq!((shadow.cancel(0), shadow.cancel(0)), (CancelAnswer::Asked, CancelAnswer::Asked));
    assert_eq!(drain(&mut shadow), [delete(slot, true, 0)]);
    shadow.unexpected_reported();
    assert_eq!(shadow.take(0, true), Take::Wait);
    assert!(!shadow.counters().broken);
    assert_eq!(shadow.deleted(slot), Ok(Deleted::Cancelled { id: 0 }));
    assert_eq!(shadow.cancel(0), CancelAnswer::TooLate);
}

#[test]
fn a_nic_that_missed_a_match_gets_no_more_receives() {
    let mut shadow = shadow();
    let slot = active(&mut shadow, 0, &exact(1));
    shadow.unexpected_reported();
    assert_eq!(shadow.take(0, true), Take::Wait);
    assert!(shadow.counters().broken);
    assert_eq!(drain(&mut shadow), [delete(slot, true, 0)]);
    assert_eq!(shadow.deleted(slot), Ok(Deleted::ForMessage { id: 0 }));
    shadow.searched();
    assert_eq!(post(&mut shadow, 1, &exact(1)), []);
    assert_eq!(shadow.why(1), Some(Why::Off));
}

#[test]
fn with_other_devices_a_receive_must_name_a_source_of_the_list() {
    let mut shadow = shadow();
    shadow.other_device();
    assert_eq!(post(&mut shadow, 0, &exact(0x10)), []);
    assert_eq!(post(&mut shadow, 1, &Pattern::new(Tag(0x02), TagMask(0x0f))), []);
    assert_eq!([0, 1].map(|id| shadow.why(id)), [Some(Why::Source); 2]);
    assert_eq!(shadow.take(1, true), Take::Software(Why::Source));
    shadow.source_seen(Tag(0x13), true);
    assert_eq!(drain(&mut shadow), [add(0, 0, 0)]);
    // A source with one message that arrived on another way isn't listed any more.
    shadow.source_seen(Tag(0x20), true);
    shadow.source_seen(Tag(0x21), false);
    shadow.source_seen(Tag(0x21), true);
    assert_eq!(post(&mut shadow, 2, &exact(0x22)), []);
    // Where tags don't name their sender, no receive names a source.
    let mut shadow = Shadow::new(&ShadowConfig { source_bits: TagMask(0), ..config() });
    shadow.other_device();
    shadow.source_seen(Tag(0x13), true);
    assert_eq!(post(&mut shadow, 0, &exact(0x13)), []);
}

#[test]
fn a_freed_slot_goes_to_the_oldest_waiting_receive() {
    let mut shadow = Shadow::new(&ShadowConfig { slots: 1, ..config() });
    let slot = active(&mut shadow, 0, &exact(1));
    for id in 1..4 {
        assert_eq!(post(&mut shadow, id, &exact(u64::from(id) + 1)), []);
        assert_eq!(shadow.why(id), Some(Why::ListFull));
    }
    let counted = |shadow: &Shadow| (shadow.counters().waiting, shadow.counters().slots);
    assert_eq!(counted(&shadow), (3, 1));
    shadow.matched(slot).unwrap();
    assert_eq!(drain(&mut shadow), []);
    shadow.landed(slot).unwrap();
    assert_eq!(drain(&mut shadow), [add(1, 0, 0)]);
    assert_eq!(counted(&shadow), (2, 1));
}

#[test]
fn few_waiting_receives_are_examined_per_event() {
    let mut shadow = Shadow::new(&ShadowConfig { slots: 127, operations: 1024, ..config() });
    shadow.post(0, &any(), 0, true);
    for id in 1..=40 {
        assert_eq!(post(&mut shadow, id, &exact(u64::from(id))), []);
    }
    shadow.end(0);
    let looks = usize::try_from(LOOKS_MAX).unwrap();
    assert_eq!(drain(&mut shadow).len(), looks);
    shadow.added(0).unwrap();
    assert_eq!(drain(&mut shadow).len(), looks);
    shadow.searched();
    assert_eq!(drain(&mut shadow).len(), 40 - 2 * looks);
}

#[test]
fn the_nic_is_told_the_count_in_time() {
    let mut shadow = shadow();
    let mut counts = vec![];
    for _ in 0..8 {
        shadow.searched();
        counts.extend(drain(&mut shadow));
    }
    assert_eq!(counts, [Op::Sync { count: 4 }, Op::Sync { count: 8 }]);
    shadow.synced().unwrap();
    shadow.synced().unwrap();
    assert_eq!(shadow.synced(), Err(ShadowError::Unsynced));
}

#[test]
fn operations_are_kept_for_deletes() {
    let mut shadow = Shadow::new(&ShadowConfig { operations: 4, ..config() });
    // The four operations are enough for two ADDs and a delete for each.
    for id in 0..3 {
        shadow.post(id, &exact(u64::from(id)), LONG, true);
    }
    assert_eq!(drain(&mut shadow), [add(0, 0, 0), add(1, 1, 0)]);
    assert_eq!(shadow.why(2), Some(Why::ListFull));
    shadow.cancel(0);
    shadow.cancel(1);
    assert_eq!(drain(&mut shadow).len(), 2);
}

#[test]
fn a_refused_receive_stays_in_software() {
    let mut shadow = shadow();
    shadow.post(0, &exact(1), LONG, true);
    shadow.next_op().unwrap().refused(Refusal::Buffer);
    assert!(shadow.next_op().is_none());
    assert_eq!(shadow.why(0), Some(Why::Memory));
    shadow.post(1, &exact(2), LONG, true);
    shadow.next_op().unwrap().refused(Refusal::Broken);
    assert!(shadow.next_op().is_none());
    assert_eq!(shadow.why(1), Some(Why::Off));
    assert_eq!(shadow.counters().refused, 2);
}

#[test]
fn a_list_that_was_full_is_used_again_once_an_entry_has_left() {
    let mut shadow = shadow();
    let slot = active(&mut shadow, 0, &exact(1));
    shadow.post(1, &exact(2), LONG, true);
    shadow.next_op().unwrap().refused(Refusal::ListFull);
    assert_eq!((drain(&mut shadow), shadow.why(1)), (vec![], Some(Why::ListFull)));
    shadow.matched(slot).unwrap();
    assert_eq!(drain(&mut shadow), []);
    shadow.landed(slot).unwrap();
    assert_eq!(drain(&mut shadow), [add(1, slot, 0)]);
}

#[test]
fn the_count_goes_on_when_the_last_entry_to_be_deleted_is_matched_instead() {
    let mut shadow = shadow();
    let matched = active(&mut shadow, 0, &exact(1));
    post(&mut shadow, 1, &exact(2));
    // A message of the list takes the second receive before the NIC has answered its ADD. The
    // delete of its entry goes first.
    shadow.unexpected_reported();
    assert_eq!(shadow.take(1, true), Take::Reclaim { slot: 1, handle: 101, why: Why::Phase });
    shadow.searched();
    assert_eq!(shadow.cancel(0), CancelAnswer::Asked);
    let due = shadow.next_op().unwrap();
    assert_eq!(due.op(), delete(1, false, 0));
    due.accepted(None);
    // The first entry has matched before its delete is sent, so there is nothing to delete.
    assert_eq!(shadow.matched(matched), Ok(0));
    assert_eq!(post(&mut shadow, 2, &exact(3)), [add(2, 2, 1)]);
}

/// An operation without an answer occupies a place until a later operation is answered.
#[test]
fn withdrawn_entries_never_use_up_the_operations() {
    for operations in 2..8 {
        let mut shadow = Shadow::new(&ShadowConfig { operations, sync_every: 1000, ..config() });
        for round in 1..=20 {
            let ops = post(&mut shadow, 0, &exact(1));
            let [Op::Add { slot, .. }] = ops[..] else {
                panic!("with {operations} operations, round {round} hands over {ops:?}")
            };
            shadow.unexpected_reported();
            assert!(matches!(shadow.take(0, true), Take::Reclaim { .. }));
            shadow.searched();
            let ops = drain(&mut shadow);
            let [Op::Delete { answer, .. }] = ops[..] else { panic!("{ops:?}") };
            shadow.added(slot).unwrap();
            if answer {
                assert_eq!(shadow.deleted(slot), Ok(Deleted::Ignored));
            }
            assert_eq!(shadow.counters().added, round);
        }
    }
}

/// The receives have more masks than the index has views and groups.
#[test]
fn receives_that_have_left_block_none() {
    let mut shadow = shadow();
    for id in 0..60 {
        let mask = TagMask(!(u64::from(id) << 8));
        shadow.post(id, &Pattern::new(Tag(1), mask), 0, true);
    }
    assert_eq!(post(&mut shadow, 60, &exact(1)), []);
    for id in 0..60 {
        assert_eq!(drain(&mut shadow), [], "{id} have left");
        assert_eq!(shadow.take(id, true), Take::Software(Why::TooSmall));
    }
    assert_eq!(drain(&mut shadow), [add(60, 0, 0)]);
}

#[test]
fn counts_wrap() {
    let mut shadow = Shadow::new(&ShadowConfig { first_count: u16::MAX, ..config() });
    assert_eq!(post(&mut shadow, 0, &exact(1)), [add(0, 0, u16::MAX)]);
    shadow.searched();
    assert_eq!(post(&mut shadow, 1, &exact(2)), [add(1, 1, 0)]);
    // After 2^16 messages the NIC's count has the value again that the ADD carried.
    for _ in 0..u16::MAX {
        shadow.searched();
    }
    shadow.added(0).unwrap();
    assert_eq!(shadow.state(0), Some(State::Inactive));
}

#[test]
fn an_event_that_cannot_be_names_the_entry() {
    let mut shadow = shadow();
    post(&mut shadow, 0, &exact(1));
    post(&mut shadow, 1, &exact(2));
    assert_eq!(shadow.added(4), Err(ShadowError::NoSuchEntry { slot: 4, slots: 4 }));
    let wrong = shadow.matched(2).unwrap_err().to_string();
    assert_eq!(wrong, "entry 2 of the NIC's list was Free when it got the event Match");
    let wrong = shadow.added(1).unwrap_err().to_string();
    assert!(wrong.starts_with("entry 1 of the NIC's list (Adding) got the answer"), "{wrong}");
    assert_eq!(shadow.deleted(9), Err(ShadowError::NoSuchEntry { slot: 9, slots: 4 }));
    shadow.added(0).unwrap();
    // Entries that are in the list go on, and no entry is added.
    assert_eq!(post(&mut shadow, 2, &exact(3)), []);
    assert_eq!((shadow.why(2), shadow.matched(0)), (Some(Why::Off), Ok(0)));
}
