//! The bare NIC, rule by rule. The documentation of `tagmatch_model` lists the rules.

mod host;

use tagmatch_device::tm::Tmh;
use tagmatch_model::{
    Chance, Completion, Delay, FailureTime, Fault, Knobs, ModelConfig, Operation, OperationKind,
    PostError, QueuePair, TmInfo, Verdict, WcFlags, WcOpcode, WcStatus,
};

use host::{Host, exposed, rendezvous, with};

const MATCH: WcFlags = WcFlags::MATCH;
const DATA: WcFlags = WcFlags::DATA_VALID;

/// Opcode, status, flags and `wr_id` of each completion.
fn shapes(completions: &[Completion]) -> Vec<(WcOpcode, WcStatus, WcFlags, u64)> {
    completions.iter().map(|c| (c.opcode, c.status, c.flags, c.wr_id)).collect()
}

/// The completions of messages, without the completions of operations.
fn received(completions: Vec<Completion>) -> Vec<Completion> {
    let is_message = |c: &Completion| matches!(c.opcode, WcOpcode::TmRecv | WcOpcode::TmNoTag);
    completions.into_iter().filter(is_message).collect()
}

#[test]
fn an_eager_message_of_one_packet_has_one_completion() {
    let mut host = with(Knobs::default());
    host.add(3, 0x12, 0);
    let bytes = host::eager(0x12, b"payload");
    assert!(matches!(host.arrive(9, &bytes, Some(77)), Verdict::Payload { recv_wr_id: 3, .. }));
    let seen = host.completions();
    let success = WcStatus::Success;
    let expected = [
        (WcOpcode::TmAdd, success, WcFlags::NONE, 1003),
        (WcOpcode::TmRecv, success, MATCH | DATA, 3),
    ];
    assert_eq!(shapes(&seen), expected);
    assert_eq!(seen[0].tm_info, TmInfo::default());
    assert_eq!(seen[1].tm_info, TmInfo { tag: 0x12, app_ctx: !0x12 });
    assert_eq!((seen[1].length, seen[1].immediate), (7, Some(77)));
    assert_eq!(seen[1].queue_pair, Some(QueuePair(9)));
    assert_eq!(&host.entries[&3][..8], b"payload\0");
    host.assert_no_faults();
}

#[test]
fn a_longer_eager_message_has_two_and_its_data_may_be_out_of_order() {
    let data = Delay { chance: Chance::ALWAYS, ticks_max: 50 };
    let knobs = Knobs::default().packet_bytes(64).data(data);
    let mut host = with(knobs);
    for wr_id in 0..8 {
        host.add(wr_id, wr_id, 0);
    }
    for wr_id in 0..8u8 {
        host.eager(1, wr_id.into(), &[wr_id; 49]);
    }
    let seen = received(host.completions());
    let (matches, data): (Vec<Completion>, Vec<Completion>) =
        seen.iter().partition(|c| c.flags == MATCH);
    assert_eq!((matches.len(), data.len()), (8, 8));
    for (n, c) in (0..8).zip(&matches) {
        assert_eq!((c.wr_id, c.tm_info.tag, c.length, c.immediate), (n, n, 0, None));
    }
    assert!(
        data.iter().all(|c| c.flags == DATA && c.tm_info == TmInfo::default() && c.length == 49)
    );
    assert!(!data.iter().is_sorted_by_key(|c| c.wr_id), "data has no order");
    host.assert_no_faults();
}

#[test]
fn a_rendezvous_is_read_and_gets_its_fin() {
    for short in [false, true] {
        let short_fin = if short { Chance::ALWAYS } else { Chance::NEVER };
        let mut host = with(Knobs::default().short_fin(short_fin));
        host.add(1, 5, 0);
        let request = rendezvous(5, 1 << 40, 1000);
        // The sender may put data of its own behind the headers.
        let whole = [&request[..], b"metadata"].concat();
        assert_eq!(host.arrive(4, &whole, Some(1)), Verdict::Rendezvous);
        let seen = received(host.completions());
        let success = WcStatus::Success;
        let expected =
            [(WcOpcode::TmRecv, success, MATCH, 1), (WcOpcode::TmRecv, success, DATA, 1)];
        assert_eq!(shapes(&seen), expected);
        assert_eq!((seen[1].length, seen[1].immediate), (1000, None));
        assert_eq!(host.entries[&1][..1000], exposed(1 << 40, 1000));
        let mut fin = request;
        fin[0] = 2;
        fin.truncate(if short { 16 } else { 32 });
        assert_eq!(host.fins, [(QueuePair(4), fin)]);
        host.assert_no_faults();
    }
}

#[test]
fn a_rendezvous_of_length_zero_gets_its_fin_without_a_read() {
    let mut host = with(Knobs::default().read_failure(Chance::ALWAYS));
    host.add(1, 5, 0);
    assert_eq!(host.arrive(4, &rendezvous(5, 0, 0), None), Verdict::Rendezvous);
    assert_eq!(received(host.completions()).len(), 2);
    assert_eq!(host.fins.len(), 1);
}

#[test]
fn a_rendezvous_that_does_not_fit_leaves_its_headers() {
    for (incomplete_in_two, expected) in
        [(Chance::NEVER, vec![MATCH | DATA]), (Chance::ALWAYS, vec![MATCH, DATA])]
    {
        let mut host = with(Knobs::default().incomplete_in_two(incomplete_in_two));
        host.add(1, 5, 0);
        let request = rendezvous(5, 99, 1025);
        assert!(matches!(host.arrive(4, &request, None), Verdict::Headers { recv_wr_id: 1, .. }));
        let seen = received(host.completions());
        assert!(seen.iter().all(|c| c.status == WcStatus::RendezvousIncomplete));
        assert_eq!(seen.iter().map(|c| c.flags).collect::<Vec<_>>(), expected);
        assert_eq!(host.entries[&1][..32], request);
        assert!(host.fins.is_empty());
        assert_eq!(host.nic.slots_taken(), 0);
        host.assert_no_faults();
    }
}

#[test]
fn messages_without_a_match_take_ordinary_buffers_and_only_tags_count() {
    let mut host = with(Knobs::default().first_count(u16::MAX));
    host.eager(1, 5, b"x");
    assert_eq!(host.arrive(1, &[0], Some(2)), Verdict::Ordinary { wr_id: 1 });
    let fin = Tmh { opcode: tagmatch_device::tm::Opcode::Fin, app_ctx: 1, tag: 1 }.emit();
    assert_eq!(host.arrive(1, &fin, None), Verdict::Ordinary { wr_id: 2 });
    let seen = host.completions();
    let shape = |opcode, wr_id| (opcode, WcStatus::Success, WcFlags::NONE, wr_id);
    let expected =
        [shape(WcOpcode::TmRecv, 0), shape(WcOpcode::TmNoTag, 1), shape(WcOpcode::TmNoTag, 2)];
    assert_eq!(shapes(&seen), expected);
    assert_eq!(seen.iter().map(|c| c.length).collect::<Vec<_>>(), [17, 1, 16]);
    assert_eq!(host.ordinary[&0][16..], *b"x");
    // One message was counted and the count wraps: an entry added with the count 0 is active.
    host.add(3, 5, 0);
    assert!(matches!(host.eager(1, 5, b"y"), Verdict::Payload { .. }));
    host.assert_no_faults();
}

#[test]
fn an_entry_out_of_phase_is_inactive_while_older_ones_match() {
    let mut host = with(Knobs::default().wake(tagmatch_model::Wake::Never));
    host.add(1, 1, 0);
    host.eager(1, 5, b"unexpected");
    host.add(2, 2, 0);
    assert!(matches!(host.eager(1, 2, b""), Verdict::Ordinary { .. }), "inactive");
    assert!(matches!(host.eager(1, 1, b""), Verdict::Payload { .. }), "older");
    host.completions();
    host.sync(true, 2).unwrap();
    assert!(matches!(host.eager(1, 2, b""), Verdict::Ordinary { .. }), "still inactive");
    host.completions();
    host.add(3, 2, 3);
    assert!(matches!(host.eager(1, 2, b""), Verdict::Payload { recv_wr_id: 3, .. }));
    host.assert_no_faults();
}

#[test]
fn a_count_that_agrees_may_make_entries_active() {
    let mut host = with(Knobs::default());
    host.eager(1, 5, b"unexpected");
    host.add(2, 2, 0);
    host.completions();
    host.sync(true, 1).unwrap();
    assert!(matches!(host.eager(1, 2, b""), Verdict::Payload { recv_wr_id: 2, .. }));
    host.assert_no_faults();
}

#[test]
fn a_count_comes_only_with_its_flag() {
    let mut host = with(Knobs::default());
    host.eager(1, 5, b"unexpected");
    host.completions();
    let kind = OperationKind::Add { recv_wr_id: 1, tag: 1, mask: 1, elements: 1, length: 64 };
    host.nic.post(Operation { wr_id: 0, signalled: true, unexpected_count: None, kind }).unwrap();
    let seen = host.completions();
    assert_eq!(seen[0].flags, WcFlags::SYNC_REQUEST, "software's count is behind");
    assert!(matches!(host.eager(1, 1, b""), Verdict::Ordinary { .. }));
}

#[test]
fn a_delete_removes_an_entry_or_loses_to_its_match() {
    let mut host = with(Knobs::default());
    let first = host.add(1, 1, 0);
    let second = host.add(2, 2, 0);
    host.delete(first, true, 0).unwrap();
    assert!(matches!(host.eager(1, 2, b"won"), Verdict::Payload { .. }));
    host.delete(second, true, 0).unwrap();
    assert!(host.nic.is_matched(second) && !host.nic.is_matched(first));
    let statuses: Vec<_> = host
        .completions()
        .iter()
        .filter(|c| c.opcode == WcOpcode::TmDel)
        .map(|c| (c.status, c.handle))
        .collect();
    let expected = [(WcStatus::Success, Some(first)), (WcStatus::TmError, Some(second))];
    assert_eq!(statuses, expected);
    assert!(matches!(host.eager(1, 1, b""), Verdict::Ordinary { .. }));
    assert_eq!(host.nic.slots_taken(), 0);
    host.assert_no_faults();
}

#[test]
fn a_delete_completes_late_or_in_order() {
    let slow = Delay { chance: Chance::ALWAYS, ticks_max: 50 };
    let mut late = 0;
    for seed in 0..20 {
        for deletes_in_order in [false, true] {
            let knobs =
                Knobs::default().answer(slow).receive(slow).deletes_in_order(deletes_in_order);
            let mut host = Host::new(&ModelConfig::default().seed(seed).knobs(knobs));
            let first = host.add(1, 1, 0);
            host.add(2, 1, 0);
            host.eager(1, 7, b"before");
            host.delete(first, true, 0).unwrap();
            host.eager(1, 1, b"after");
            let seen = host.completions();
            let at = |wr_id| seen.iter().position(|c| c.wr_id == wr_id).unwrap();
            let before = at(0);
            let delete = at(7);
            let after = at(2);
            assert!(before < after);
            if deletes_in_order {
                assert!(before < delete && delete < after);
            } else {
                late += usize::from(delete > after);
            }
        }
    }
    assert!(late > 0);
}

#[test]
fn an_unsignalled_delete_of_a_matched_entry_is_a_fault() {
    let mut host = with(Knobs::default());
    let handle = host.add(1, 1, 0);
    host.eager(1, 1, b"");
    host.delete(handle, false, 0).unwrap();
    assert_eq!(host.nic.faults(), [Fault::DeleteLost(handle)]);
}

#[test]
fn handles_that_have_ended_are_refused() {
    let mut host = with(Knobs::default());
    let handle = host.add(1, 1, 0);
    host.delete(handle, true, 0).unwrap();
    assert_eq!(host.delete(handle, true, 0), Err(PostError::Invalid));
    host.completions();
    assert_eq!(host.delete(handle, false, 0), Err(PostError::Invalid));
    let never = tagmatch_model::Handle(0xffff);
    assert_eq!(host.delete(never, false, 0).map_err(PostError::errno), Err(libc::EINVAL));
    let expected =
        [Fault::DeletedTwice(handle), Fault::StaleHandle(handle), Fault::StaleHandle(never)];
    assert_eq!(host.nic.faults(), expected);
}

#[test]
fn a_slot_is_free_after_its_last_completion() {
    let config = ModelConfig::default().slots(1);
    let mut host = Host::new(&config);
    let full = Err(PostError::ListFull);
    let first = host.add(1, 1, 0);
    assert_eq!(host.try_add(2, 1, 1, 0), full);
    assert_eq!(PostError::ListFull.errno(), libc::ENOMEM);
    // Neither the match alone nor the add alone frees the slot.
    host.eager(1, 1, b"");
    assert_eq!(host.try_add(2, 1, 1, 0), full);
    assert_eq!(host.nic.poll().unwrap().opcode, WcOpcode::TmAdd);
    assert_eq!(host.try_add(2, 1, 1, 0), full);
    assert_eq!(host.nic.poll().unwrap().opcode, WcOpcode::TmRecv);
    let second = host.try_add(2, 1, u64::MAX, 0).unwrap();
    assert_eq!((first.slot(), second.slot()), (0, 0));
    assert_ne!(first, second);
    // An unsignalled delete: the slot is free once the add has completed.
    host.delete(second, false, 0).unwrap();
    assert_eq!(host.try_add(3, 1, 1, 0), full);
    host.completions();
    host.try_add(3, 1, 1, 0).unwrap();
    host.assert_no_faults();
}

#[test]
fn operations_keep_their_places_until_a_later_completion_is_polled() {
    let config = ModelConfig::default().operations(3);
    let mut host = Host::new(&config);
    host.sync(false, 0).unwrap();
    host.sync(false, 0).unwrap();
    assert!(host.completions().is_empty());
    assert_eq!(host.nic.operations_outstanding(), 2);
    host.sync(true, 0).unwrap();
    assert_eq!(host.sync(true, 0), Err(PostError::QueueFull));
    assert_eq!(PostError::QueueFull.errno(), libc::ENOMEM);
    let seen = host.completions();
    assert_eq!(shapes(&seen), [(WcOpcode::TmSync, WcStatus::Success, WcFlags::NONE, 8)]);
    assert_eq!(host.nic.operations_outstanding(), 0);
    host.sync(true, 0).unwrap();
}

#[test]
fn one_scatter_element_or_none() {
    let mut host = with(Knobs::default());
    let add = |elements| Operation {
        wr_id: 0,
        signalled: true,
        unexpected_count: None,
        kind: OperationKind::Add { recv_wr_id: 0, tag: 1, mask: 1, elements, length: 64 },
    };
    assert_eq!(host.nic.post(add(2)), Err(PostError::Invalid));
    host.nic.post(add(0)).unwrap();
    host.entries.insert(0, vec![]);
    assert!(matches!(host.eager(1, 1, b""), Verdict::Payload { .. }));
    host.assert_no_faults();
}

#[test]
fn no_message_is_accepted_without_enough_ordinary_buffers() {
    let mut nic = Host::new(&ModelConfig::default());
    let mut fresh = tagmatch_model::Nic::new(&ModelConfig::default()).unwrap();
    std::mem::swap(&mut nic.nic, &mut fresh);
    for wr_id in 0..33 {
        assert_eq!(nic.eager(1, 1, b""), Verdict::NotReady);
        assert!(!nic.nic.is_ready());
        nic.nic.post_receive(wr_id, 64);
    }
    nic.add(500, 2, 0);
    for wr_id in 0..33 {
        assert_eq!(nic.eager(1, 1, b""), Verdict::Ordinary { wr_id });
    }
    assert_eq!(nic.eager(1, 2, b""), Verdict::NotReady, "even if it would match");
    assert_eq!(nic.arrive(1, &[0], None), Verdict::NotReady);
    nic.nic.post_receive(99, 64);
    assert!(matches!(nic.eager(1, 2, b""), Verdict::Payload { .. }));
    nic.assert_no_faults();
}

#[test]
fn a_queue_pair_that_fails_ends_only_its_own_matches() {
    let mut host = with(Knobs::default().packet_bytes(64));
    for wr_id in 1..=3 {
        host.add(wr_id, wr_id, 0);
    }
    host.reads_fail = true;
    assert_eq!(host.arrive(4, &rendezvous(1, 0, 100), None), Verdict::Rendezvous);
    host.eager(5, 2, &[1; 100]);
    let seen = received(host.completions());
    let flushed: Vec<_> = seen.iter().filter(|c| c.status == WcStatus::FlushError).collect();
    assert_eq!(flushed.iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1]);
    assert!(seen.iter().any(|c| c.wr_id == 2 && c.flags == DATA));
    assert_eq!(host.broken, [QueuePair(4)]);
    assert_eq!(host.eager(4, 3, b""), Verdict::Dropped);
    assert!(matches!(host.eager(5, 3, b""), Verdict::Payload { .. }));
    assert!(host.fins.is_empty() && host.nic.is_quiet(QueuePair(4)));
    host.completions();
    assert_eq!(host.nic.slots_taken(), 0);
    host.assert_no_faults();
}

#[test]
fn a_match_whose_read_is_under_way_fails_only_after_the_read_ends() {
    let mut host = with(Knobs::default());
    let handle = host.add(1, 1, 0);
    host.arrive(4, &rendezvous(1, 0, 100), None);
    assert!(host.nic.next_work().is_some());
    host.nic.queue_pair_down(QueuePair(4));
    assert_eq!(received(host.completions()).len(), 1, "the match");
    assert!(!host.nic.is_quiet(QueuePair(4)));
    host.nic.read_done(handle, true);
    let seen = received(host.completions());
    assert_eq!(seen[0].status, WcStatus::FlushError);
    assert!(host.nic.is_quiet(QueuePair(4)) && host.broken.is_empty());
    host.nic.read_done(handle, true);
    assert_eq!(host.nic.faults(), [Fault::NotUnderWay(handle)]);
}

#[test]
fn unfetched_work_ends_with_its_queue_pair() {
    let mut host = with(Knobs::default());
    host.add(1, 1, 0);
    host.arrive(4, &rendezvous(1, 0, 100), None);
    host.nic.queue_pair_down(QueuePair(4));
    assert_eq!(host.nic.next_work(), None);
    assert_eq!(received(host.completions())[1].status, WcStatus::FlushError);
    assert_eq!(host.nic.slots_taken(), 0);
}

#[test]
fn waiting_transfers_end_with_their_queue_pair() {
    let late = Delay { chance: Chance::ALWAYS, ticks_max: 1000 };
    for (read, fin) in [(late, Delay::NONE), (Delay::NONE, late)] {
        let mut host = with(Knobs::default().read(read).fin(fin));
        for wr_id in 1..=5 {
            host.add(wr_id, wr_id, 0);
            let from = if wr_id == 5 { 6 } else { 4 };
            assert_eq!(host.arrive(from, &rendezvous(wr_id, 0, 100), None), Verdict::Rendezvous);
        }
        host.work();
        host.nic.queue_pair_down(QueuePair(4));
        let seen = received(host.completions());
        let flushed = seen.iter().filter(|c| c.status == WcStatus::FlushError).map(|c| c.wr_id);
        assert_eq!(flushed.collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!((host.fins.len(), host.nic.slots_taken()), (1, 0));
    }
}

/// The next message that matches, and no other.
#[test]
fn a_queue_pair_fails_on_request_before_a_match_or_after_it() {
    for (when, taken) in [(FailureTime::Before, 1), (FailureTime::After, 0)] {
        let mut host = with(Knobs::default().packet_bytes(64));
        host.add(1, 1, 0);
        host.nic.fail_at_match(when);
        assert!(matches!(host.eager(4, 2, b""), Verdict::Ordinary { .. }));
        let is_before = when == FailureTime::Before;
        assert_eq!(host.eager(4, 1, &[7; 100]) == Verdict::Dropped, is_before);
        let seen = received(host.completions());
        let statuses: Vec<WcStatus> = seen.iter().skip(1).map(|c| c.status).collect();
        let lost = [WcStatus::Success, WcStatus::FlushError];
        assert_eq!(statuses, if is_before { &[][..] } else { &lost });
        assert_eq!((host.nic.slots_taken(), host.nic.failed_at_match()), (taken, 1));
        assert_eq!(host.broken, [QueuePair(4)]);
        host.add(3, 1, 1);
        assert!(matches!(host.eager(5, 1, b"again"), Verdict::Payload { .. }));
        host.assert_no_faults();
    }
}

#[test]
fn malformed_messages_end_their_queue_pair() {
    let eager_head = host::eager(1, b"");
    let request = rendezvous(1, 0, 1);
    let cases: [&[u8]; 5] = [&[], &[9; 32], &eager_head[..15], &request[..31], &[1; 65]];
    for bytes in cases {
        let mut host = with(Knobs::default());
        host.add(1, 1, 0);
        assert_eq!(host.arrive(4, bytes, None), Verdict::Dropped, "{bytes:?}");
        host.completions();
        assert_eq!(host.broken, [QueuePair(4)]);
        assert!(matches!(host.eager(5, 1, b""), Verdict::Payload { .. }));
        host.assert_no_faults();
    }
}

#[test]
fn buffers_too_short_are_faults() {
    let mut host = with(Knobs::default());
    host.room = 64;
    let handle = host.try_add(1, 1, u64::MAX, 0).unwrap();
    assert_eq!(host.eager(4, 1, &[0; 65]), Verdict::Dropped);
    let seen = received(host.completions());
    assert_eq!(seen[1].status, WcStatus::FlushError);
    assert_eq!(host.nic.faults(), [Fault::BufferTooShort { handle, length: 65, room: 64 }]);
    let mut host = with(Knobs::default());
    assert_eq!(host.eager(4, 1, &[0; 4096]), Verdict::Dropped);
    assert_eq!(host.nic.faults(), [Fault::OrdinaryTooShort { length: 4112, room: 4096 }]);
}

#[test]
fn impossible_counts_are_faults() {
    let mut host = with(Knobs::default().sync_limit(3));
    host.eager(1, 1, b"");
    // The NIC has counted the message, but the host has not polled it.
    host.sync(true, 1).unwrap();
    let early = Fault::CountNotTaken { given: 1, before: 0, taken: 0 };
    assert_eq!(host.nic.faults(), [early]);
    host.completions();
    host.sync(true, 0).unwrap();
    assert_eq!(host.nic.faults()[1], Fault::CountNotTaken { given: 0, before: 1, taken: 1 });
    host.sync(true, 1).unwrap();
    for _ in 0..3 {
        host.eager(1, 1, b"");
    }
    assert_eq!(host.nic.faults().len(), 2);
    host.eager(1, 1, b"");
    assert_eq!(host.nic.faults()[2], Fault::CountsApart { counted: 5, software_count: 1 });
    let flags = host.completions().last().unwrap().flags;
    assert_eq!(flags, WcFlags::SYNC_REQUEST);
}

#[test]
fn sync_requests_may_be_spurious_or_missing() {
    let always = Chance::ALWAYS;
    let knobs = Knobs::default().spurious_sync_request(always).missing_sync_request(always);
    let mut host = with(knobs);
    host.add(1, 1, 0);
    host.eager(1, 5, b"");
    host.add(2, 1, 0);
    let flags: Vec<_> = host.completions().iter().map(|c| c.flags).collect();
    assert_eq!(flags, [WcFlags::SYNC_REQUEST, WcFlags::SYNC_REQUEST, WcFlags::NONE]);
}

#[test]
fn a_tag_with_bits_outside_its_mask_is_a_fault() {
    let mut host = with(Knobs::default());
    let handle = host.try_add(1, 3, 1, 0).unwrap();
    assert!(matches!(host.eager(1, 3, b""), Verdict::Ordinary { .. }));
    assert_eq!(host.nic.faults(), [Fault::TagOutsideMask(handle)]);
}
