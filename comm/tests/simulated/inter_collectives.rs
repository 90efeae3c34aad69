//! Collective operations of intercommunicators, on the simulated network.

use common::inter::Groups;
use common::inter_coll::{Case, View, all_at_once, cases, deaths, run_on, shrinks};
use tagmatch_comm::coll::Op;
use tagmatch_comm::{Error, InterRoot, Uniformity};
use tagmatch_comm_sim::Kill;

use crate::common::{self, TestNet};

fn run(sizes: [u32; 2], scale: usize) {
    let seed = u64::from(sizes[0] * 10 + sizes[1]);
    let ran = Groups::new(sizes, seed).run(&[], |member| async move {
        let inter = member.create(Uniformity::None).await.unwrap();
        let copy = inter.dup().await.unwrap();
        let view = View::new(&inter, member.is_first, scale);
        // First one operation after the other. Then all at the same time on both
        // intercommunicators, awaited in another order than they were begun.
        let cases: Vec<Case<TestNet>> = cases(view);
        for case in &cases {
            assert_eq!((case.call)(&inter).await.unwrap(), case.expected, "{}", case.name);
        }
        let begin =
            |case: &Case<TestNet>| [(case.call)(&inter).start(), (case.call)(&copy).start()];
        let begun: Vec<_> = cases.iter().map(begin).collect();
        inter.barrier().await.unwrap();
        for (case, both) in cases.iter().zip(begun).rev() {
            for request in both {
                assert_eq!(request.await.unwrap(), case.expected, "{}", case.name);
            }
        }
    });
    ran.unwrap_or_else(|stuck| panic!("{sizes:?}: {stuck}"));
}

#[test]
fn every_operation_gives_what_it_is_defined_to_give() {
    for (first, second) in (1..=5).flat_map(|first| (1..=5).map(move |second| (first, second))) {
        run([first, second], 1);
    }
}

#[test]
fn long_messages_go_by_their_own_algorithms() {
    for sizes in [[1, 2], [3, 2], [5, 9]] {
        run(sizes, 2000);
    }
}

#[test]
fn operations_end_at_all_survivors() {
    deaths([1, 1], 4, 1, all_at_once);
    deaths([2, 2], 2, 17, all_at_once);
    deaths([3, 2], 2, 61, all_at_once);
}

#[test]
fn a_shrink_has_one_result_at_all_survivors() {
    deaths([1, 1], 4, 1, shrinks);
    deaths([1, 2], 2, 1, shrinks);
    deaths([2, 2], 2, 3, shrinks);
    deaths([3, 2], 1, 3, shrinks);
}

/// The leader of the second group is down.
#[test]
fn errors_name_a_dead_process_by_its_remote_rank() {
    let kills = [Kill { rank: 2, step: 0 }];
    let ran = run_on([2, 2], 3, &kills, |_, inter| async move {
        inter.allreduce(vec![1], &Op::sum::<u8>()).await
    });
    let failed = |rank| Some(Err(Error::ProcessFailed { rank }));
    assert_eq!(ran.ends, [failed(Some(0)), failed(None), None, failed(None)]);
}

/// The leader of the second group is down. No process of the first group has its rank there.
#[test]
fn messages_and_probes_name_a_dead_process_by_its_remote_rank() {
    for (sizes, rank) in [([2, 2], 0), ([1, 3], 2), ([3, 3], 1)] {
        let kills = [Kill { rank: sizes[0] + rank, step: 0 }];
        let ran = run_on(sizes, 3, &kills, |member, inter| async move {
            if !member.is_first {
                return Vec::new();
            }
            let received = inter.recv(rank, 1, vec![]).await;
            let sent = inter.send_sync(rank, 1, vec![1]).await;
            let probed = inter.probe(rank, 1);
            let taken = inter.mprobe(rank, 1);
            let failed = [received.err().map(|it| it.error), sent.err().map(|it| it.error)];
            failed.into_iter().chain([probed.err(), taken.err()]).collect()
        });
        let named = vec![Some(Error::ProcessFailed { rank: Some(rank) }); 4];
        for end in &ran.ends[..sizes[0] as usize] {
            assert_eq!(end.as_ref(), Some(&named));
        }
    }
}

/// First a group has no context id left. Then it has ids left, but none that is free at both of its
/// members. Both groups report the same error.
#[test]
fn a_shrink_without_ids_is_the_same_error_everywhere() {
    run_on([1, 2], 4, &[], |member, inter| async move {
        let before = member.runtime.free_ids();
        let oneself = member.runtime.oneself();
        let mut taken = Vec::new();
        while !member.is_first
            && let Ok(copy) = oneself.dup().await
        {
            taken.push(copy);
        }
        let ids = 2048;
        assert_eq!(inter.shrink().await.err(), Some(Error::Exhausted { ids }));
        // One member keeps the first half of the ids, the other member the second half.
        let half = taken.len() / 2;
        taken.drain(if inter.rank() == 0 { half..taken.len() } else { 0..half });
        assert_eq!(inter.shrink().await.err(), Some(Error::Fragmented { ids }));
        drop(taken);
        assert_eq!(member.runtime.free_ids(), before);
        assert!(inter.shrink().await.is_ok());
    });
}

#[test]
fn invalid_calls_are_errors() {
    let ran = Groups::new([2, 1], 1).run(&[], |member| async move {
        let inter = member.create(Uniformity::None).await.unwrap();
        let size = inter.remote_size();
        let remote = InterRoot::Remote(size);
        let beyond = Err(Error::Rank { rank: size, size });
        let sum = Op::sum::<u32>();
        let word = vec![0; 4];
        assert_eq!(inter.broadcast(remote, vec![]).await, beyond);
        assert_eq!(inter.reduce(remote, word.clone(), &sum).await, beyond);
        assert_eq!(inter.gather(remote, vec![], 0).await, beyond);
        assert_eq!(inter.scatterv(remote, vec![], &[], 0).await, beyond);
        let wrong = [
            inter.allreduce(vec![0; 7], &sum).start(),
            inter.reduce(InterRoot::Own, vec![0; 7], &sum).start(),
            inter.reduce_scatter(vec![0; 8], &[5, 3], &sum).start(),
            inter.reduce_scatter(vec![0; 8], &[4; 3], &sum).start(),
            inter.gather(InterRoot::Own, vec![], usize::MAX).start(),
            inter.gatherv(InterRoot::Own, vec![], &[1; 9]).start(),
            inter.scatter(InterRoot::Own, vec![0; 3], 2).start(),
            inter.allgather(vec![0; 3], usize::MAX).start(),
            inter.allgatherv(vec![0; 3], &[usize::MAX; 9]).start(),
            inter.alltoallv(vec![0; 3], &[1; 9], &[1; 9]).start(),
        ];
        for (at, wrong) in wrong.into_iter().enumerate() {
            let error = wrong.await.err();
            assert!(matches!(error, Some(Error::Length { .. })), "{at}: {error:?}");
        }
        // The two groups pass different lengths.
        let mine = inter.allreduce(vec![0; 4 + 4 * usize::from(member.is_first)], &sum).await;
        assert!(matches!(mine, Err(Error::Mismatch { .. } | Error::ProcessFailed { rank: None })));
        inter.barrier().await.unwrap();
        // A call that one process refuses has no effect on the other processes.
        if member.is_first && inter.rank() == 0 {
            assert!(inter.allreduce(vec![0; 7], &sum).await.is_err());
        }
        inter.barrier().await.unwrap();
    });
    ran.unwrap_or_else(|stuck| panic!("{stuck}"));
}
