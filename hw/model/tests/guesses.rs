//! Where no source says what hardware does, a setting has each behaviour.

mod host;

use tagmatch_device::tm::{Opcode, Tmh};
use tagmatch_model::{InTwo, Knobs, ModelConfig, Nic, Verdict, WcFlags, WcOpcode, Work};

use host::{Host, rendezvous, with};

#[test]
fn eager_messages_have_one_completion_or_two_as_set() {
    // Bytes of payload behind a header of 16, for packets of 64.
    for (eager_in_two, payload, expected) in [
        (InTwo::BeyondAPacket, 48, 1),
        (InTwo::BeyondAPacket, 49, 2),
        (InTwo::Always, 1, 2),
        (InTwo::Never, 500, 1),
    ] {
        let mut host = with(Knobs::default().packet_bytes(64).eager_in_two(eager_in_two));
        host.add(1, 5, 0);
        assert!(matches!(host.eager(2, 5, &vec![7; payload]), Verdict::Payload { .. }));
        let seen = host.completions();
        let data: Vec<_> = seen.iter().filter(|c| c.opcode == WcOpcode::TmRecv).collect();
        assert_eq!(data.len(), expected, "{eager_in_two:?} {payload}");
        assert_eq!(data.last().unwrap().length, payload as u64);
        host.assert_no_faults();
    }
}

/// A host whose ordinary buffers are used up, with one entry for each of the tags 0 to 2.
fn host_without_buffers(matches_without_buffers: bool) -> Host {
    let knobs = Knobs::default().matches_without_buffers(matches_without_buffers).buffers_min(1);
    let config = ModelConfig::default().knobs(knobs);
    let mut host = Host::new(&config);
    host.nic = Nic::new(&config).unwrap();
    for tag in 0..3 {
        host.add(tag, tag, 0);
    }
    assert_eq!(host.eager(1, 0, b""), Verdict::NotReady, "no buffer was ever posted");
    host.nic.post_receive(0, 64);
    assert_eq!(host.eager(1, 9, b""), Verdict::Ordinary { wr_id: 0 });
    host
}

#[test]
fn a_message_that_matches_waits_for_a_buffer_as_set() {
    let mut host = host_without_buffers(true);
    assert!(matches!(host.eager(1, 0, b""), Verdict::Payload { recv_wr_id: 0, .. }));
    assert_eq!(host.arrive(1, &rendezvous(1, 0, 8), None), Verdict::Rendezvous);
    assert_eq!(host.eager(1, 7, b""), Verdict::NotReady, "no entry matches");
    let fin = Tmh { opcode: Opcode::Fin, app_ctx: 0, tag: 2 }.emit();
    assert_eq!(host.arrive(1, &fin, None), Verdict::NotReady);
    host.assert_no_faults();
    let mut host = host_without_buffers(false);
    assert_eq!(host.eager(1, 0, b""), Verdict::NotReady);
}

#[test]
fn the_data_of_a_rendezvous_completes_before_its_fin_as_set() {
    for data_before_fin in [false, true] {
        let mut host = with(Knobs::default().data_before_fin(data_before_fin));
        let handle = host.add(1, 5, 0);
        host.arrive(4, &rendezvous(5, 0, 8), None);
        assert!(matches!(host.nic.next_work(), Some(Work::Read { .. })));
        host.nic.read_done(handle, true);
        let data = |host: &mut Host| {
            let polled = std::iter::from_fn(|| host.nic.poll());
            polled.filter(|c| c.flags.contains(WcFlags::DATA_VALID)).count()
        };
        assert_eq!(data(&mut host), usize::from(data_before_fin));
        assert!(matches!(host.nic.next_work(), Some(Work::Fin { .. })));
        // A FIN that can't be sent takes no data back.
        host.nic.fin_done(handle, !data_before_fin);
        assert_eq!(data(&mut host), usize::from(!data_before_fin));
        host.assert_no_faults();
    }
}

#[test]
fn counts_are_compared_at_the_operation_or_at_its_answer_as_set() {
    for counts_at_answer in [false, true] {
        let mut host = with(Knobs::default().counts_at_answer(counts_at_answer));
        host.add(1, 5, 0);
        host.eager(4, 6, b"");
        let added = host.nic.poll().unwrap();
        assert_eq!(added.opcode, WcOpcode::TmAdd);
        assert_eq!(added.flags.contains(WcFlags::SYNC_REQUEST), counts_at_answer);
    }
}

#[test]
fn a_rendezvous_of_length_zero_is_read_as_set() {
    for reads_nothing in [false, true] {
        let mut host = with(Knobs::default().reads_nothing(reads_nothing));
        host.add(1, 5, 0);
        host.arrive(4, &rendezvous(5, 0, 0), None);
        assert_eq!(matches!(host.nic.next_work(), Some(Work::Read { .. })), reads_nothing);
    }
}
