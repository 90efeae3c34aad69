//! Intercommunicators, on the simulated network.

mod common;

use std::rc::Rc;

use common::inter::{Groups, Member, eventual, kill_everywhere, strict};
use tagmatch_comm::{Error, InterAgreed, InterRoot, Likeness, Source, TagChoice, Uniformity};

/// Runs a program on two groups, under several seeds.
fn each<F: Future>(sizes: [u32; 2], seeds: u64, program: impl Fn(Rc<Member>) -> F) {
    for seed in 0..seeds {
        let ran = Groups::new(sizes, seed, None).run(&[], &program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

const SIZES: [[u32; 2]; 5] = [[1, 1], [1, 3], [2, 2], [3, 1], [4, 3]];

#[test]
fn messages_go_from_one_group_to_the_other() {
    for sizes in SIZES {
        each(sizes, 20, |member| async move {
            let inter = member.create(Uniformity::None).await.unwrap();
            let (rank, size, others) = (inter.rank(), inter.size(), inter.remote_size());
            assert_eq!([size, others], if member.is_first { sizes } else { [sizes[1], sizes[0]] });
            assert_eq!(inter.group().compare(member.part.group()), Likeness::Identical);
            assert_eq!(inter.group().intersection(inter.remote_group()).size(), 0);
            // Each tells each of the others who it is, in messages small and large.
            let own = u8::try_from(rank).unwrap();
            let sends: Vec<_> = (0..others)
                .flat_map(|to| [1, 100].map(|length| inter.send_sync(to, 7, vec![own; length])))
                .collect();
            for from in 0..others {
                let byte = u8::try_from(from).unwrap();
                let received = inter.recv(from, TagChoice::Any, vec![0; 1]).await.unwrap();
                assert_eq!((received.status.source, received.data()), (Some(from), &[byte][..]));
            }
            for _ in 0..others {
                let message = loop {
                    if let Some(message) = inter.mprobe(Source::Any, 7).unwrap() {
                        break message;
                    }
                    common::turn().await;
                };
                let byte = u8::try_from(message.status().source.unwrap()).unwrap();
                let received = message.recv(vec![0; 100]).await.unwrap();
                assert_eq!(received.data(), vec![byte; 100]);
            }
            for send in sends {
                send.await.unwrap();
            }
            let beyond = inter.send(others, 1, vec![]).await.unwrap_err().error;
            assert_eq!(beyond, Error::Rank { rank: others, size: others });
        });
    }
}

#[test]
fn duplicates_merges_and_locals_are_apart_and_come_to_an_end() {
    for sizes in SIZES {
        each(sizes, 20, |member| async move {
            let before = member.runtime.free_ids();
            let inter = member.create(Uniformity::None).await.unwrap();
            let copy = inter.idup().await.unwrap();
            assert_ne!(copy.id(), inter.id());
            let (local, of_copy) = (inter.local().unwrap(), copy.local().unwrap());
            assert!(local.is(&inter.local().unwrap()) && !local.is(&of_copy));
            // All at once, each with its own.
            let mine = inter.recv(0, 1, vec![0; 1]);
            let of_dup = copy.recv(0, 1, vec![0; 1]);
            let (merged, again) = (inter.imerge(!member.is_first), inter.imerge(member.is_first));
            let barriers =
                [inter.ibarrier(), copy.ibarrier(), local.ibarrier(), of_copy.ibarrier()];
            if inter.rank() == 0 {
                for to in 0..inter.remote_size() {
                    copy.send(to, 1, vec![2]).await.unwrap();
                    inter.send(to, 1, vec![1]).await.unwrap();
                }
            }
            assert_eq!(mine.await.unwrap().data(), [1]);
            assert_eq!(of_dup.await.unwrap().data(), [2]);
            let (merged, again) = (merged.await.unwrap(), again.await.unwrap());
            for barrier in barriers {
                barrier.await.unwrap();
            }
            // The first group is low, then high.
            let first = if member.is_first { inter.group() } else { inter.remote_group() };
            let second = if member.is_first { inter.remote_group() } else { inter.group() };
            assert_eq!(*merged.group(), first.union(second));
            assert_eq!(*again.group(), second.union(first));
            merged.ibarrier().await.unwrap();
            again.ibarrier().await.unwrap();
            assert_eq!(inter.imerge(false).await.unwrap().group(), merged.group());
            // The id is not free before the last that needs it is gone.
            drop((copy, merged, again, inter));
            assert_eq!(member.runtime.free_ids(), before - 2);
            local.ibarrier().await.unwrap();
            drop((local, of_copy));
            assert_eq!(member.runtime.free_ids(), before);
        });
    }
}

#[test]
fn each_group_gets_what_the_other_gives() {
    for sizes in SIZES {
        each(sizes, 20, |member| async move {
            let inter = member.create(Uniformity::Strict).await.unwrap();
            for root in 0..sizes[0] {
                let root = match (member.is_first, inter.rank() == root) {
                    (true, true) => InterRoot::Own,
                    (true, false) => InterRoot::Local,
                    (false, _) => InterRoot::Remote(root),
                };
                let own = if root == InterRoot::Own { vec![5; 100] } else { vec![0; 100] };
                let all = inter.ibroadcast(root, own).await.unwrap();
                assert_eq!(all[0], if root == InterRoot::Local { 0 } else { 5 });
            }
            inter.ibarrier().await.unwrap();
            let own = if member.is_first { !1 << 8 } else { !2 };
            let flags = if member.is_first { !2 } else { !1 << 8 };
            let agreed = inter.iagree(own).await.unwrap();
            assert_eq!(agreed, InterAgreed { flags, unacknowledged: inter.failed() });
            assert_eq!(inter.failed().size(), 0);
            let any = inter.recv(Source::Any, 1, vec![0; 1]);
            if member.is_first && inter.rank() == 0 {
                inter.revoke();
            }
            assert_eq!(any.await.unwrap_err().error, Error::Revoked);
            assert!(inter.is_revoked());
            // The next one may have the same ids.
            drop(inter);
            let next = member.create(Uniformity::Eventual).await.unwrap();
            next.ibarrier().await.unwrap();
            assert!(!next.is_revoked());
        });
    }
}

#[test]
fn a_strict_creation_has_one_result_whoever_dies() {
    for (sizes, seeds) in [([1, 1], 6), ([2, 2], 4), ([1, 3], 2), ([3, 2], 2)] {
        kill_everywhere(sizes, seeds, None, strict);
    }
}

#[test]
fn an_eventual_creation_has_one_result_in_the_end() {
    for (sizes, seeds) in [([1, 1], 6), ([2, 2], 4), ([1, 3], 2), ([3, 2], 2)] {
        kill_everywhere(sizes, seeds, None, eventual);
    }
}
