//! Attributes, error handlers, and the communicators of one machine and across machines.

use std::sync::{Arc, Mutex};

use common::run;
use tagmatch_comm::net::ProcessId;
use tagmatch_comm::{
    Comm, Error, ErrorClass, ErrorHandler, Group, Keyval, Runtime, Source, Uniformity,
};
use tagmatch_comm_sim::{Sim, SimConfig};

use crate::common::{self, TestNet, join};

type Lines = Arc<Mutex<Vec<String>>>;

/// A key that records the copies and deletions of its values. It does not copy odd values, and
/// fails to copy 13.
fn diary(name: &'static str, lines: &Lines) -> Keyval<u32> {
    let copies = Arc::clone(lines);
    let deletes = Arc::clone(lines);
    Keyval::new(
        move |comm, value| {
            copies.lock().unwrap().push(format!("copy {name} {value} of {}", comm.id));
            match value {
                13 => Err(Error::Layer { layer: name.to_owned(), what: "as planned".to_owned() }),
                value => Ok((value % 2 == 0).then_some(value + 2)),
            }
        },
        move |comm, value| {
            deletes.lock().unwrap().push(format!("delete {name} {value} of {}", comm.id));
        },
    )
}

fn alone() -> Runtime<TestNet> {
    let sim = Sim::new(SimConfig { processes: 1, ..SimConfig::default() });
    join(&sim, 0)
}

#[test]
fn attributes_are_copied_in_order_and_deleted_in_reverse() {
    let runtime = alone();
    let lines = Lines::default();
    let news = || -> Vec<String> { lines.lock().unwrap().drain(..).collect() };
    let a = diary("a", &lines);
    let b = diary("b", &lines);
    let c = diary("c", &lines);
    let comm = runtime.oneself().dup().wait().unwrap();
    comm.set_attribute(&a, 2);
    comm.set_attribute(&b, 3);
    comm.set_attribute(&c, 4);
    let copy = comm.dup().wait().unwrap();
    assert_eq!(news(), ["copy a 2 of 0x1f0", "copy b 3 of 0x1f0", "copy c 4 of 0x1f0"]);
    let of = |comm: &Comm<TestNet>| [&a, &b, &c].map(|key| comm.attribute(key).map(|value| *value));
    assert_eq!(of(&comm), [Some(2), Some(3), Some(4)]);
    assert_eq!(of(&copy), [Some(4), None, Some(6)]);
    // Setting an attribute again deletes the old value first. The new value is the last in order.
    comm.set_attribute(&a, 8);
    assert_eq!(news(), ["delete a 2 of 0x1f0"]);
    assert!(comm.delete_attribute(&b) && !comm.delete_attribute(&b));
    assert_eq!(news(), ["delete b 3 of 0x1f0"]);
    comm.free();
    assert_eq!(news(), ["delete a 8 of 0x1f0", "delete c 4 of 0x1f0"]);
    // Values outlive the last handle of their key.
    drop((a, c));
    copy.free();
    assert_eq!(news(), ["delete c 6 of 0x1e0", "delete a 4 of 0x1e0"]);
}

#[test]
fn an_attribute_that_can_not_be_copied_ends_the_duplication() {
    let runtime = alone();
    let lines = Lines::default();
    let a = diary("a", &lines);
    let b = diary("b", &lines);
    let comm = runtime.oneself().dup().wait().unwrap();
    comm.set_attribute(&a, 2);
    comm.set_attribute(&b, 13);
    let free = runtime.free_ids();
    assert!(matches!(comm.dup().wait(), Err(Error::Layer { .. })));
    assert_eq!(runtime.free_ids(), free);
    let entries: Vec<String> = lines.lock().unwrap().drain(..).collect();
    assert_eq!(entries, ["copy a 2 of 0x1f0", "copy b 13 of 0x1f0", "delete a 4 of 0x1f0"]);
}

#[test]
fn only_duplicates_have_attributes_of_their_parent() {
    run(3, 1, |runtime| async move {
        let world = runtime.world();
        let inherited = Keyval::<String>::inherited();
        let own = Keyval::<u8>::own();
        world.set_attribute(&inherited, "text".to_owned());
        world.set_attribute(&own, 1);
        let copy = world.dup().await.unwrap();
        // An attribute that is set after a duplication was begun is not copied.
        let late = world.dup().start();
        world.set_attribute(&inherited, "other".to_owned());
        let late = late.await.unwrap();
        for comm in [&copy, &late] {
            assert_eq!(comm.attribute(&inherited).unwrap().as_str(), "text");
            assert!(comm.attribute(&own).is_none());
        }
        let part = world.split(Some(0), 0).await.unwrap().unwrap();
        assert!(part.attribute(&inherited).is_none());
    });
}

#[test]
fn handlers_are_called_once_per_error_and_are_inherited() {
    run(2, 2, |runtime| async move {
        let world = runtime.world();
        let errors: Arc<Mutex<Vec<(u32, ErrorClass)>>> = Arc::default();
        let news = || -> Vec<_> { errors.lock().unwrap().drain(..).collect() };
        let hears = Arc::clone(&errors);
        let parent = world.dup().await.unwrap();
        parent.set_error_handler(ErrorHandler::calls(move |comm: &Comm<TestNet>, error| {
            hears.lock().unwrap().push((comm.id().bits(), error.class()));
        }));
        let copy = parent.dup().await.unwrap();
        let part = parent.split(Some(0), 0).await.unwrap().unwrap();
        assert_eq!(news(), []);
        let small = parent.shrink().await.unwrap();
        for comm in [&parent, &copy, &part, &small, &copy.intranode().unwrap()] {
            let id = comm.id().bits();
            assert!(comm.broadcast(9, vec![]).await.is_err());
            assert_eq!(news(), [(id, ErrorClass::Argument)]);
            assert!(comm.send(9, 1, vec![]).await.is_err());
            assert_eq!(news(), [(id, ErrorClass::Argument)]);
            assert!(comm.probe(9, 1).is_err());
            assert_eq!(news(), [(id, ErrorClass::Argument)]);
            // A simulated process can't block, so these calls must end without waiting.
            assert!(comm.broadcast(9, vec![]).wait().is_err());
            assert_eq!(news(), [(id, ErrorClass::Argument)]);
            let elsewhere = Group::new([ProcessId(9)]);
            assert!(comm.create(&elsewhere).wait().is_err());
            assert!(comm.create_group(&elsewhere, 1).wait().is_err());
            let no_leader = comm.create_inter(Uniformity::None, 9, None);
            assert_eq!(news().len(), 2);
            assert!(no_leader.wait().is_err());
            assert_eq!(news(), [(id, ErrorClass::Argument)]);
        }
        // A cancelled receive is no error for the handler. A message that is too long is one.
        let mut receive = parent.recv(Source::Any, 6, vec![0; 4]);
        receive.cancel();
        assert!(receive.await.is_err());
        assert_eq!(news(), []);
        let other = 1 - world.rank();
        parent.send(other, 5, vec![0; 8]).await.unwrap();
        assert!(parent.recv(other, 5, vec![0; 4]).await.is_err());
        assert_eq!(news(), [(parent.id().bits(), ErrorClass::Truncate)]);
        copy.set_error_handler(ErrorHandler::Returns);
        assert!(copy.broadcast(9, vec![]).await.is_err());
        assert_eq!(news(), []);
        // A handler may use the communicator that has the error.
        part.set_error_handler(ErrorHandler::calls(|comm: &Comm<TestNet>, _| comm.revoke()));
        if part.rank() == 0 {
            assert!(part.broadcast(9, vec![]).await.is_err());
            assert!(part.is_revoked());
        }
        assert_eq!(part.barrier().await, Err(Error::Revoked));
    });
}

#[test]
fn the_parts_on_a_machine_and_across_machines() {
    for seed in 0..20 {
        let sim = Sim::new(SimConfig { processes: 7, per_node: 3, seed, ..SimConfig::default() });
        let program = |rank: u32| {
            let runtime = join(&sim, rank);
            async move {
                let world = runtime.world();
                // Ranks 6, 5 .. 0, on machines 2, 1, 1, 1, 0, 0, 0.
                let comm = world.split(Some(0), -rank.cast_signed()).await.unwrap().unwrap();
                let free = runtime.free_ids();
                let near = comm.intranode().unwrap();
                let far = comm.internode().unwrap();
                let members = |comm: &Comm<TestNet>| -> Vec<u32> {
                    comm.group().processes().iter().map(|process| process.0).collect()
                };
                let expected: [&[u32]; 3] = [&[2, 1, 0], &[5, 4, 3], &[6]];
                assert_eq!(members(&near), expected[rank as usize / 3]);
                assert_eq!(far.is_some(), [2, 5, 6].contains(&rank));
                assert!(near.is(&comm.intranode().unwrap()));
                let own = vec![u8::try_from(rank).unwrap()];
                let mut all = near.gather(0, own.clone()).await.unwrap();
                if let Some(far) = &far {
                    assert_eq!(members(far), [6, 5, 2]);
                    assert!(matches!(far.intranode(), Err(Error::NoChildren)));
                    let lengths = [1, 3, 3];
                    all = far.gatherv(0, all, &lengths).await.unwrap();
                    if far.rank() == 0 {
                        assert_eq!(all, [6, 5, 4, 3, 2, 1, 0]);
                    }
                }
                assert!(matches!(near.internode(), Err(Error::NoChildren)));
                // The parts use up no context id. They keep the id of the whole communicator in
                // use.
                assert_eq!(runtime.free_ids(), free);
                comm.free();
                near.barrier().await.unwrap();
                assert_eq!(runtime.free_ids(), free);
                drop(far);
                near.free();
                assert_eq!(runtime.free_ids(), free + 1);
                let everybody = world.intranode().unwrap();
                assert_eq!(everybody.size(), if rank == 6 { 1 } else { 3 });
                everybody.barrier().await.unwrap();
            }
        };
        sim.run((0..7).map(program), &[]).unwrap_or_else(|stuck| panic!("{stuck}"));
    }
}
