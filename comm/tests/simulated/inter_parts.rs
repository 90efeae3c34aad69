//! Intercommunicators of parts of an intercommunicator: `create` and `split`.

use std::rc::Rc;

use tagmatch_comm::coll::{from_bytes, to_bytes};
use tagmatch_comm::ids::IdLayout;
use tagmatch_comm::{Config, Error, ErrorClass, Group, InterComm, Source, TagChoice, Uniformity};
use tagmatch_comm_sim::Kill;

use crate::common::TestNet;
use crate::common::inter::{Groups, Member, kill_everywhere, living};
use crate::common::resting::Draws;

type Inter = InterComm<TestNet>;

/// A colour and a key of each member of each group.
type Choices = [Vec<(Option<u32>, i32)>; 2];

/// The ranks in its group of the members with this colour, computed as plainly as possible: the
/// members with the lowest key first, and those with equal keys in the order of ranks.
fn chosen(choices: &[(Option<u32>, i32)], color: u32) -> Vec<u32> {
    let mut ranks = Vec::new();
    for key in i32::from(i8::MIN)..=i32::from(i8::MAX) {
        for (rank, choice) in (0..).zip(choices) {
            if *choice == (Some(color), key) {
                ranks.push(rank);
            }
        }
    }
    ranks
}

fn side(member: &Member) -> usize {
    usize::from(!member.is_first)
}

/// Checks that a part has the members that it should have, by their ranks in the local and the
/// remote group of the whole, and that they reach each other and nobody else.
async fn check(whole: &Inter, part: Option<&Inter>, due: [Vec<u32>; 2]) {
    let own = due[0].iter().position(|rank| *rank == whole.rank());
    let exists = own.is_some() && !due[1].is_empty();
    assert_eq!(part.is_some(), exists, "rank {} of {due:?}", whole.rank());
    let Some(part) = part else { return };
    assert_eq!(*part.group(), whole.group().include(&due[0]).unwrap());
    assert_eq!(*part.remote_group(), whole.remote_group().include(&due[1]).unwrap());
    assert_eq!(part.rank() as usize, own.unwrap());
    // All parts receive in the same contexts: no message may arrive in another part.
    let sends: Vec<_> =
        (0..part.remote_size()).map(|to| part.send(to, 7, to_bytes(&[whole.rank()]))).collect();
    let mut ranks_by_source = vec![None; due[1].len()];
    for _ in 0..part.remote_size() {
        let received = part.recv(Source::Any, TagChoice::Any, vec![0; 4]).await.unwrap();
        let source = received.status.source.unwrap() as usize;
        ranks_by_source[source] = from_bytes::<u32>(received.data()).first().copied();
    }
    assert_eq!(ranks_by_source, due[1].iter().copied().map(Some).collect::<Vec<_>>());
    for send in sends {
        send.await.unwrap();
    }
    let ranks = part.allgather(to_bytes(&[whole.rank()]), 4).await.unwrap();
    assert_eq!(from_bytes::<u32>(&ranks), due[1]);
    let local = part.local().unwrap();
    let ranks = local.allgather(to_bytes(&[whole.rank()])).await.unwrap();
    assert_eq!(from_bytes::<u32>(&ranks), due[0]);
    let agreed = part.agree(!(1 << whole.rank())).await.unwrap();
    assert_eq!(agreed.flags, !due[1].iter().map(|rank| 1 << rank).sum::<u32>());
}

/// Waits until all members of both groups are here, and the ids of what they have dropped are back.
async fn settle(inter: &Inter, member: &Member, before: u32) {
    inter.barrier().await.unwrap();
    assert_eq!(member.runtime.free_ids(), before);
}

fn random_choices(sizes: [u32; 2], random: &mut Draws) -> Choices {
    let colors = 1 + random.below(4);
    sizes.map(|size| {
        let mut choice = || {
            let color = random.below(colors + 1).checked_sub(1);
            (color, i32::try_from(random.below(4)).unwrap() - 2)
        };
        (0..size).map(|_| choice()).collect()
    })
}

#[test]
fn each_colour_gets_the_members_that_chose_it_on_both_sides() {
    let mut parts = 0;
    let mut none = 0;
    for seed in 0..80 {
        let mut random = Draws(seed);
        let sizes = [1 + random.below(5), 1 + random.below(5)];
        let choices = Rc::new(random_choices(sizes, &mut random));
        let program = |member: Rc<Member>| {
            let choices = Rc::clone(&choices);
            async move {
                let inter = member.create(Uniformity::Strict).await.unwrap();
                let before = member.runtime.free_ids();
                let side = side(&member);
                let (color, key) = choices[side][inter.rank() as usize];
                let part = if seed % 2 == 0 {
                    inter.split(color, key).await.unwrap()
                } else {
                    inter.split(color, key).start().await.unwrap()
                };
                let due = |of: usize| color.map_or(vec![], |color| chosen(&choices[of], color));
                check(&inter, part.as_ref(), [due(side), due(1 - side)]).await;
                // The revocation of a part, and what follows from it, stays in that part.
                if let Some(part) = &part {
                    part.barrier().await.unwrap();
                    if color == Some(0) && part.rank() == 0 {
                        part.revoke();
                    }
                }
                inter.barrier().await.unwrap();
                let ids = part.as_ref().map(|part| (part.id(), part.remote_id()));
                if let Some(part) = part {
                    let end = part.barrier().await;
                    assert_eq!(end.is_err(), color == Some(0), "{end:?}");
                    let again = part.shrink().await.unwrap();
                    assert_eq!(again.remote_size(), part.remote_size());
                }
                settle(&inter, &member, before).await;
                (side, ids)
            }
        };
        let ran =
            Groups::new(sizes, seed).run(&[], program).unwrap_or_else(|stuck| panic!("{stuck}"));
        let ids: Vec<_> = ran.ends.into_iter().map(|end| end.flatten().unwrap().1).collect();
        // All parts have the same pair of ids, each side its own.
        let pairs = ids.iter().filter_map(|(side, ids)| {
            ids.map(|(own, remote)| if *side == 0 { (own, remote) } else { (remote, own) })
        });
        let pairs: Vec<_> = pairs.collect();
        assert!(pairs.windows(2).all(|two| two[0] == two[1]), "{pairs:?}");
        parts += pairs.len();
        none += ids.len() - pairs.len();
    }
    assert!(parts > 100 && none > 100, "{parts} and {none}");
}

#[test]
fn a_created_one_has_the_groups_that_both_sides_pass() {
    for seed in 0..60 {
        let mut random = Draws(seed);
        let sizes = [1 + random.below(4), 1 + random.below(4)];
        // Some ranks in any order; sometimes none.
        let mut subset = |size: u32| {
            let mut ranks: Vec<u32> = (0..size).filter(|_| random.below(3) > 0).collect();
            for at in (1..ranks.len()).rev() {
                ranks.swap(at, random.below(u32::try_from(at + 1).unwrap()) as usize);
            }
            ranks
        };
        let subsets = Rc::new([subset(sizes[0]), subset(sizes[1])]);
        let program = |member: Rc<Member>| {
            let subsets = Rc::clone(&subsets);
            async move {
                let inter = member.create(Uniformity::Strict).await.unwrap();
                let before = member.runtime.free_ids();
                let side = side(&member);
                let group = inter.group().include(&subsets[side]).unwrap();
                let part = inter.create(&group).await.unwrap();
                let due = [subsets[side].clone(), subsets[1 - side].clone()];
                check(&inter, part.as_ref(), due).await;
                let foreign = Group::new(inter.remote_group().processes().iter().copied());
                assert_eq!(inter.create(&foreign).await.map(drop), Err(Error::Group));
                drop(part);
                settle(&inter, &member, before).await;
            }
        };
        Groups::new(sizes, seed).run(&[], program).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// The ids are those that MPICH gives: the highest free ones of the lowest word, without those of
/// members that get no intercommunicator, except for rank 0.
#[test]
fn ids_are_allocated_among_the_members_that_get_a_part_and_rank_0() {
    // In each group: the rank that has no id left, and passes no colour.
    for (full, fails) in [(1, false), (0, true)] {
        let program = |member: Rc<Member>| async move {
            let inter = member.create(Uniformity::Strict).await.unwrap();
            let ids = [member.part.id(), inter.id(), inter.remote_id()].map(|id| id.bits());
            assert_eq!(ids, [496, 480, 480]);
            let is_full = inter.rank() == full;
            let mut kept = Vec::new();
            while is_full && let Ok(copy) = member.runtime.oneself().dup().await {
                kept.push(copy);
            }
            let part = inter.split((!is_full).then_some(3), 0).await;
            if fails {
                let error = part.unwrap_err();
                assert!(matches!(error, Error::Exhausted { .. }), "{error}");
            } else {
                let ids = part.unwrap().map(|part| [part.id().bits(), part.remote_id().bits()]);
                assert_eq!(ids, (!is_full).then_some([464, 464]));
            }
            // All members take part in the allocation of a creation.
            let error = inter.create(&Group::new([])).await.map(drop).unwrap_err();
            assert!(matches!(error, Error::Exhausted { .. }), "{error}");
        };
        let ran = Groups::new([3, 2], 5).run(&[], program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// There are far fewer ids than splits, and parts are freed at different times.
#[test]
fn ids_of_parts_come_back_and_are_not_given_out_while_others_send_in_them() {
    let config = || Config::default().ids(IdLayout::new(1, true, 2).unwrap()).eager_words(1);
    for seed in 0..4 {
        let program = |member: Rc<Member>| async move {
            let inter = member.create(Uniformity::Strict).await.unwrap();
            let before = member.runtime.free_ids();
            let mut kept = Vec::new();
            for turn in 0..150u32 {
                let color = (inter.rank() + turn) % 3;
                let part = inter.split(color.checked_sub(1), 0).await.unwrap();
                // Messages that nobody receives must not arrive in a later part.
                if let Some(part) = &part {
                    for to in 0..part.remote_size() {
                        let _sent = part.send(to, turn, vec![7]);
                    }
                    assert_eq!(part.allgather(to_bytes(&[turn]), 4).await.unwrap().len() % 4, 0);
                    let found = part.probe(Source::Any, TagChoice::Any).unwrap();
                    assert!(found.is_none_or(|status| status.tag == Some(turn)), "{found:?}");
                }
                kept.push(part);
                if kept.len() > (inter.rank() % 2 * 5) as usize {
                    kept.clear();
                }
            }
            drop(kept);
            settle(&inter, &member, before).await;
        };
        let ran = Groups::with([3, 2], seed, config).run(&[], program);
        ran.unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}

/// Splits or creates while processes die. All calls of survivors end, and no id stays in use.
fn survive(groups: &mut Groups, kills: &[Kill], by_split: bool) -> u64 {
    let program = |member: Rc<Member>| async move {
        let Ok(inter) = member.create(Uniformity::Strict).await else { return None };
        let before = member.runtime.free_ids();
        let made = if by_split {
            // A colour of both groups, one of one group, and no colour.
            let color = [Some(0), Some(1 + u32::from(member.is_first)), None];
            inter.split(color[inter.rank() as usize], 0).await
        } else {
            inter.create(&inter.group().include(&[inter.size() - 1]).unwrap()).await
        };
        // Each group learns whether the other one has its parts. Where it doesn't, parts are
        // revoked: otherwise their members would wait for processes that have none.
        let agreed = inter.agree(u32::from(made.is_ok())).await.unwrap();
        if let Ok(Some(part)) = &made {
            if agreed.flags & 1 == 0 {
                part.revoke();
            }
            let _works = part.barrier().await;
        }
        let end = made.map(drop).map_err(|error| error.class());
        assert_eq!(member.runtime.free_ids(), before, "{end:?}");
        Some(end)
    };
    let ran = groups.run(kills, program).unwrap_or_else(|stuck| panic!("{kills:?}: {stuck}"));
    for (_, end) in living(ran.ends, kills) {
        let is_known = matches!(end, None | Some(Ok(()) | Err(ErrorClass::ProcessFailed)));
        assert!(is_known && !(kills.is_empty() && end != Some(Ok(()))), "{kills:?}: {end:?}");
    }
    ran.steps
}

#[test]
fn splits_end_at_all_survivors_whoever_dies_and_when() {
    kill_everywhere([3, 2], 1, |groups, kills| survive(groups, kills, true));
}

#[test]
fn creations_of_parts_end_at_all_survivors_whoever_dies_and_when() {
    kill_everywhere([2, 2], 2, |groups, kills| survive(groups, kills, false));
}
