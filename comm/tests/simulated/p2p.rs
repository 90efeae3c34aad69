//! Point-to-point messages of a communicator, by MPI's rules.

use common::{run, turn};
use tagmatch::Buffer;
use tagmatch_comm::{Comm, Destination, Error, ErrorClass, Message, Source, Status, TagChoice};

use crate::common::{self, TestNet, join};

async fn mprobe(comm: &Comm<TestNet>, from: Source, tag: TagChoice) -> Message<TestNet> {
    loop {
        if let Some(message) = comm.mprobe(from, tag).unwrap() {
            return message;
        }
        turn().await;
    }
}

#[test]
fn wildcards_give_rank_and_tag() {
    for seed in 0..20 {
        run(5, seed, |runtime| async move {
            let world = runtime.world();
            let rank = world.rank();
            if rank > 0 {
                for tag in [rank, world.tag_max()] {
                    world
                        .send(0, tag, vec![u8::try_from(rank).unwrap(); rank as usize])
                        .await
                        .unwrap();
                }
                return;
            }
            let mut seen = Vec::new();
            for _ in 0..8 {
                let received = world.recv(Source::Any, TagChoice::Any, vec![0; 8]).await.unwrap();
                let Status { source, tag, length } = received.status;
                let source = source.unwrap();
                assert_eq!(received.data(), vec![u8::try_from(source).unwrap(); source as usize]);
                assert_eq!(length, source as usize);
                seen.push((source, tag.unwrap()));
            }
            // The messages of each sender are received in order.
            for rank in 1..5 {
                let of_rank: Vec<_> =
                    seen.iter().filter(|of| of.0 == rank).map(|of| of.1).collect();
                assert_eq!(of_rank, [rank, world.tag_max()]);
            }
        });
    }
}

#[test]
fn numbers_are_received_in_their_own_memory() {
    run(2, 0, |runtime| async move {
        let world = runtime.world();
        let numbers = vec![0.5f64, -1.25, 1e300];
        if world.rank() == 0 {
            world.send(1, 1, Buffer::from_elements(numbers)).await.unwrap();
            return;
        }
        let room = vec![0f64; 3];
        let start = room.as_ptr();
        let received = world.recv(0, 1, Buffer::from_elements(room)).await.unwrap();
        let got = received.buffer.into_elements::<f64>().unwrap();
        assert_eq!((got.as_ptr(), got), (start, numbers));
    });
}

#[test]
fn several_slices_are_one_message() {
    run(2, 1, |runtime| async move {
        let world = runtime.world();
        let slices = |lengths: &[usize], byte| {
            Buffer::from_slices(lengths.iter().map(|&length| vec![byte; length]))
        };
        if world.rank() == 0 {
            for tag in 0..2 {
                let sent = world.send(1, tag, slices(&[2, 0, 5], 7)).await.unwrap();
                assert_eq!(sent.into_slices().unwrap().len(), 3);
            }
            return;
        }
        let received = world.recv(0, 0, slices(&[4, 4], 0)).await.unwrap();
        assert_eq!(received.status.length, 7);
        let got = received.buffer.into_slices().unwrap();
        assert_eq!((&got[0][..], &got[1][..]), (&[7; 4][..], &[7, 7, 7, 0][..]));
        let failed = world.recv(0, 1, slices(&[3, 3], 0)).await.unwrap_err();
        assert_eq!(failed.error, Error::Truncated { length: 7, room: 6 });
        assert_eq!(failed.buffer.into_vec(), [7; 6]);
    });
}

#[test]
fn of_no_process() {
    run(1, 0, |runtime| async move {
        let world = runtime.world();
        let nowhere = Destination::NoProcess;
        assert_eq!(world.send(nowhere, 1, vec![1, 2]).await.unwrap()[..], [1, 2]);
        world.send_sync(nowhere, 1, vec![1]).await.unwrap();
        world.send_buffered(nowhere, 1, &[1]).unwrap();
        let none = Status { source: None, tag: None, length: 0 };
        let received = world.recv(Source::NoProcess, 3, vec![7; 4]).await.unwrap();
        assert_eq!(
            (received.status, received.data(), &received.buffer[..]),
            (none, &[][..], &[7; 4][..])
        );
        assert_eq!(world.probe(Source::NoProcess, 1).unwrap(), Some(none));
        let message = world.mprobe(Source::NoProcess, TagChoice::Any).unwrap().unwrap();
        assert_eq!(message.status(), none);
        assert_eq!(message.recv(vec![]).await.unwrap().status, none);
        world.mprobe(Source::NoProcess, 1).unwrap().unwrap().discard();
    });
}

#[test]
fn a_synchronous_send_waits_for_the_receive_not_for_the_probe() {
    for seed in 0..20 {
        run(2, seed, |runtime| async move {
            let world = runtime.world();
            if world.rank() == 0 {
                let mut send = world.send_sync(1, 5, vec![1; 8]);
                let mut discarded = world.send_sync(1, 6, vec![1; 8]);
                world.recv(1, 1, vec![]).await.unwrap();
                assert!(send.test().is_none() && discarded.test().is_none());
                world.send(1, 2, vec![]).await.unwrap();
                send.await.unwrap();
                discarded.await.unwrap();
            } else {
                let message = mprobe(&world, Source::Any, TagChoice::Tag(5)).await;
                let other = mprobe(&world, Source::Rank(0), TagChoice::Any).await;
                assert_eq!((message.status().tag, other.status().tag), (Some(5), Some(6)));
                assert_eq!(world.probe(Source::Any, 5).unwrap(), None);
                world.send(0, 1, vec![]).await.unwrap();
                world.recv(0, 2, vec![]).await.unwrap();
                assert_eq!(message.recv(vec![0; 8]).await.unwrap().data(), [1; 8]);
                other.discard();
            }
        });
    }
}

#[test]
fn truncation_is_the_receives_and_consumes_the_message() {
    for seed in 0..20 {
        run(2, seed, |runtime| async move {
            let world = runtime.world();
            if world.rank() == 0 {
                for length in [10, 100] {
                    world.send(1, 1, vec![3; length]).await.unwrap();
                    world.send(1, 1, vec![3; length]).await.unwrap();
                }
                return;
            }
            for length in [10, 100u8] {
                let truncated = Error::Truncated { length: usize::from(length), room: 4 };
                let message = mprobe(&world, Source::Any, TagChoice::Any).await;
                assert_eq!(message.status().length, usize::from(length));
                let failed = message.recv(vec![0; 4]).await.unwrap_err();
                assert_eq!((&failed.error, &failed.buffer[..]), (&truncated, &[3; 4][..]));
                assert_eq!(failed.error.class(), ErrorClass::Truncate);
                let failed = world.recv(0, 1, vec![0; 4]).await.unwrap_err();
                assert_eq!(failed.error, truncated);
            }
            assert_eq!(world.probe(Source::Any, TagChoice::Any).unwrap(), None);
        });
    }
}

#[test]
fn buffered_sends_take_room_until_they_have_left() {
    run(2, 3, |runtime| async move {
        let world = runtime.world();
        // The message is longer than the network's eager limit, so its send ends after the match.
        let message = [9; 100];
        if world.rank() == 0 {
            let full = |needed, left| Err(Error::BufferFull { needed, left });
            assert_eq!(world.send_buffered(1, 1, &message), full(164, 0));
            runtime.attach_buffer(400).unwrap();
            assert_eq!(runtime.attach_buffer(400), Err(Error::BufferAttached));
            world.send_buffered(1, 1, &message).unwrap();
            world.send_buffered(1, 1, &message).unwrap();
            assert_eq!(world.send_buffered(1, 1, &message), full(164, 72));
            world.send(1, 2, vec![]).await.unwrap();
            world.recv(1, 3, vec![]).await.unwrap();
            world.send_buffered(1, 1, &message).unwrap();
            world.recv(1, 3, vec![]).await.unwrap();
            assert_eq!(runtime.detach_buffer(), 400);
        } else {
            world.recv(0, 2, vec![]).await.unwrap();
            for count in [2, 1] {
                for _ in 0..count {
                    assert_eq!(world.recv(0, 1, vec![0; 100]).await.unwrap().data(), message);
                }
                world.send(0, 3, vec![]).await.unwrap();
            }
        }
    });
}

#[test]
fn a_receive_can_be_cancelled_until_it_is_matched() {
    run(2, 9, |runtime| async move {
        let world = runtime.world();
        let other = 1 - world.rank();
        let mut receive = world.recv(other, 1, vec![0; 4]);
        receive.cancel();
        let failed = receive.await.unwrap_err();
        assert_eq!((failed.error, failed.buffer.len()), (Error::Cancelled, 4));
        world.barrier().await.unwrap();
        let mut receive = world.recv(other, 1, vec![0; 4]);
        world.send(other, 1, vec![1]).await.unwrap();
        world.barrier().await.unwrap();
        let matched = receive.test();
        receive.cancel();
        let ended = match matched {
            Some(ended) => ended,
            None => receive.await,
        };
        assert!(ended.is_ok_and(|received| received.data() == [1]));
        // After the drop another receive gets the message.
        drop(world.recv(other, 2, vec![0; 4]));
        world.barrier().await.unwrap();
        world.send(other, 2, vec![2]).await.unwrap();
        assert_eq!(world.recv(other, 2, vec![0; 4]).await.unwrap().data(), [2]);
    });
}

#[test]
fn invalid_arguments_are_errors_that_return_the_buffer() {
    run(2, 1, |runtime| async move {
        let world = runtime.world();
        let tag = world.tag_max() + 1;
        let failed = world.send(2, 0, vec![1, 2]).await.unwrap_err();
        assert_eq!(failed.error, Error::Rank { rank: 2, size: 2 });
        assert_eq!(failed.buffer[..], [1, 2]);
        let failed = world.recv(0, tag, vec![1, 2]).await.unwrap_err();
        assert_eq!(failed.error, Error::Tag { tag, max: tag - 1 });
        assert_eq!(failed.error.class(), ErrorClass::Argument);
        assert!(world.probe(2, 0).is_err() && world.mprobe(0, tag).is_err());
        assert!(world.send_buffered(3, 0, &[]).is_err());
        let mut request = world.send(2, 0, vec![]);
        assert!(request.test().is_some());
        assert!(matches!(request.test(), Some(Err(failed)) if failed.error == Error::AlreadyTaken));
    });
}

#[test]
fn a_message_with_a_forged_rank_is_an_error() {
    use tagmatch::{Buffer, TagLayout};
    use tagmatch_comm::net::{Mode, Net, ProcessId};
    use tagmatch_comm_sim::{Sim, SimConfig};
    let sim = Sim::new(SimConfig { processes: 2, ..SimConfig::default() });
    let runtime = join(&sim, 0);
    let world = runtime.world();
    let mut hostile = sim.net(1);
    for rank in [0, 2, 0xff_ffff] {
        let tag = TagLayout::MPI.pack(0, rank, 7).unwrap();
        for _ in 0..3 {
            drop(hostile.send(ProcessId(0), tag, Buffer::from(vec![6]), Mode::Standard));
        }
        let received = world.recv(Source::Any, 7, vec![0; 8]);
        let program = async { received.await.unwrap_err().error };
        let ran = sim.run([program], &[]).unwrap();
        assert_eq!(ran.ends, [Some(Error::Forged { rank })]);
        // Wait until the other messages have arrived, too.
        drop(sim.run(
            [async {
                for _ in 0..200 {
                    turn().await
                }
            }],
            &[],
        ));
        assert_eq!(world.probe(Source::Any, 7), Err(Error::Forged { rank }));
        // The forged message is reported once. Neither probe finds it again.
        assert!(matches!(world.mprobe(Source::Any, 7), Err(Error::Forged { .. })));
        assert_eq!(world.probe(Source::Any, 7), Ok(None));
        assert_eq!(sim.unexpected(), 0);
    }
}

/// With matching in software the forged message stays unexpected. A transport that compares tags
/// alone matches it to the receive that names the rank, and the receive reports the forgery. The
/// next receive gets the rank's own message.
#[test]
fn a_message_with_a_forged_rank_is_no_other_receives() {
    use tagmatch::{Buffer, TagLayout};
    use tagmatch_comm::net::{Mode, Net, ProcessId};
    use tagmatch_comm_sim::{Sim, SimConfig};
    for seed in 0..40 {
        let sim = Sim::new(SimConfig { processes: 3, seed, ..SimConfig::default() });
        let runtime = join(&sim, 0);
        let world = runtime.world();
        let tag = TagLayout::MPI.pack(0, 1, 7).unwrap();
        let [mut honest, mut hostile] = [1, 2].map(|process| sim.net(process));
        let first = world.recv(1, 7, vec![0; 8]);
        drop(hostile.send(ProcessId(0), tag, Buffer::from(vec![6]), Mode::Standard));
        // Until the message has arrived.
        drop(sim.run(
            [async {
                for _ in 0..200 {
                    turn().await;
                }
            }],
            &[],
        ));
        drop(honest.send(ProcessId(0), tag, Buffer::from(vec![5]), Mode::Standard));
        let second = world.recv(1, 7, vec![0; 8]);
        let program = async {
            match first.await {
                Ok(received) => {
                    assert_eq!((seed % 2, received.data()), (0, &[5][..]));
                    assert_eq!(world.probe(Source::Any, 7), Err(Error::Forged { rank: 1 }));
                }
                Err(failed) => {
                    assert_eq!((seed % 2, failed.error), (1, Error::Forged { rank: 1 }));
                    assert_eq!(second.await.unwrap().data(), [5]);
                }
            }
        };
        assert_eq!(sim.run([program], &[]).unwrap().ends, [Some(())]);
    }
}
