//! Layers over the table of collective operations.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use common::try_run;
use tagmatch_comm::coll::{Attached, Call, Coll, CollLayer, Op, TableBuilder, to_bytes};
use tagmatch_comm::{CommInfo, Config, Error, Runtime};
use tagmatch_comm_sim::{Ran, Sim, SimConfig};

use crate::common::{self, TestNet, plain};

/// A layer that counts the calls that go through it.
#[derive(Default)]
struct Counts([Arc<AtomicU32>; Coll::ALL.len()]);

impl CollLayer<TestNet> for Counts {
    fn name(&self) -> &str {
        "counts"
    }

    fn level(&self) -> u32 {
        10
    }

    fn variant(&self, _: &CommInfo) -> Option<u64> {
        Some(0)
    }

    fn patch(&self, _: u64, table: &mut TableBuilder<TestNet>) -> Result<(), Error> {
        for coll in Coll::ALL {
            let count = Arc::clone(&self.0[coll as usize]);
            let beneath = Arc::clone(table.beneath());
            table.start(coll, move |comm, call| {
                count.fetch_add(1, Ordering::Relaxed);
                beneath.start(comm, call)
            });
        }
        Ok(())
    }
}

/// A layer that carries out barriers of four and more members as a reduction and a broadcast, as a
/// NIC might do.
struct Offload {
    level: u32,
}

impl CollLayer<TestNet> for Offload {
    fn name(&self) -> &str {
        "offload"
    }

    fn level(&self) -> u32 {
        self.level
    }

    fn variant(&self, comm: &CommInfo) -> Option<u64> {
        (comm.group.size() >= 4).then_some(0)
    }

    fn patch(&self, _: u64, table: &mut TableBuilder<TestNet>) -> Result<(), Error> {
        let beneath = Arc::clone(table.beneath());
        table.start(Coll::Barrier, move |comm, call| {
            let one =
                Call { coll: Coll::Allreduce, data: vec![1].into(), op: Some(Op::band()), ..call };
            beneath.start(comm, one)
        });
        Ok(())
    }
}

/// A layer that records when communicators are attached to it and dropped.
struct Diary {
    level: u32,
    /// The context id for which the layer fails.
    fails: Option<u32>,
    lines: Lines,
}

struct Page(String, Lines);

impl Drop for Page {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(format!("-{}", self.0));
    }
}

impl CollLayer<TestNet> for Diary {
    fn name(&self) -> &str {
        "diary"
    }

    fn level(&self) -> u32 {
        self.level
    }

    fn variant(&self, comm: &CommInfo) -> Option<u64> {
        (comm.id.bits() > 16).then_some(u64::from(comm.id.bits()))
    }

    fn patch(&self, variant: u64, _: &mut TableBuilder<TestNet>) -> Result<(), Error> {
        match self.fails {
            Some(id) if u64::from(id) == variant => {
                Err(Error::Layer { layer: self.name().into(), what: "as planned".into() })
            }
            _ => Ok(()),
        }
    }

    fn attach(&self, comm: &CommInfo) -> Result<Attached, Error> {
        let name = format!("{} of {}", self.level, comm.id.bits());
        self.lines.lock().unwrap().push(format!("+{name}"));
        Ok(Box::new(Page(name, Arc::clone(&self.lines))))
    }
}

#[test]
fn a_counting_layer_under_an_offloading_layer() {
    for size in [3, 4, 7] {
        let counts = Counts::default();
        let counts_of = counts.0.clone();
        let counts = Arc::new(counts);
        // The layers are listed in the wrong order. Their levels decide.
        let layers = || vec![Arc::new(Offload { level: 20 }) as _, Arc::clone(&counts) as _];
        let config = || Config::default().layers(layers());
        let program = |runtime: common::Sims| async move {
            let world = runtime.world();
            world.barrier().await.unwrap();
            world.allreduce(to_bytes(&[1u32]), &Op::sum::<u32>()).await.unwrap();
            let part = world.split(Some(world.rank() / 2), 0).await.unwrap().unwrap();
            part.barrier().await.unwrap();
            // The world's, its two layers or one; self and the parts have the same as each other.
            let layers = [world.table().layer().to_owned(), part.table().layer().to_owned()];
            (runtime.tables(), layers)
        };
        let Ran { ends, .. } = try_run(size, 5, &[], config, program).unwrap();
        let offloads = size >= 4;
        let expected =
            if offloads { (2, ["offload", "counts"]) } else { (1, ["counts", "counts"]) };
        for end in ends {
            assert_eq!(end, Some((expected.0, expected.1.map(str::to_owned))));
        }
        let count = |coll: Coll| counts_of[coll as usize].load(Ordering::Relaxed);
        // The counting layer sees the reduction and the broadcast of an offloaded barrier.
        assert_eq!(count(Coll::Barrier), if offloads { size } else { 2 * size });
        assert_eq!(count(Coll::Allreduce), if offloads { 2 * size } else { size });
    }
}

#[test]
fn tables_are_shared_by_those_that_were_patched_alike() {
    let config = || {
        Config::default().layers(vec![Arc::new(Counts::default()), Arc::new(Offload { level: 20 })])
    };
    let program = |runtime: common::Sims| async move {
        let world = runtime.world();
        let mut comms = Vec::new();
        for _ in 0..20 {
            comms.push(world.dup().await.unwrap());
            comms.push(world.split(Some(world.rank() % 2), 0).await.unwrap().unwrap());
        }
        assert!(Arc::ptr_eq(comms[0].table(), comms[2].table()));
        assert!(Arc::ptr_eq(comms[1].table(), comms[3].table()));
        assert!(Arc::ptr_eq(comms[0].table().beneath().unwrap(), comms[1].table()));
        runtime.tables()
    };
    let Ran { ends, .. } = try_run(4, 1, &[], config, program).unwrap();
    assert_eq!(ends, [Some(2); 4]);
}

/// Two communicators with the same variant of a layer do not share a table if the tables beneath it
/// differ.
#[test]
fn tables_over_other_tables_are_not_shared() {
    let config = || {
        Config::default().layers(vec![Arc::new(Counts::default()), Arc::new(Offload { level: 5 })])
    };
    let program = |runtime: common::Sims| async move {
        let world = runtime.world();
        let part = world.split(Some(world.rank() / 2), 0).await.unwrap().unwrap();
        assert_eq!(world.table().beneath().unwrap().layer(), "offload");
        assert_eq!(part.table().layer(), "counts");
        assert!(!Arc::ptr_eq(world.table(), part.table()));
    };
    try_run(4, 1, &[], config, program).unwrap();
}

/// The records of all layers.
type Lines = Arc<Mutex<Vec<String>>>;

fn diaries(fails: Option<u32>) -> (Vec<Arc<dyn CollLayer<TestNet>>>, Lines) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let diary = |level, fails| -> Arc<dyn CollLayer<TestNet>> {
        Arc::new(Diary { level, fails, lines: Arc::clone(&lines) })
    };
    (vec![diary(3, None), diary(1, None), diary(2, fails)], lines)
}

/// Duplicates the communicator of one process, once or twice.
fn dup_self(fails: Option<u32>) -> (Vec<String>, Vec<Result<(), Error>>, usize) {
    let (layers, lines) = diaries(fails);
    let sim = Sim::new(SimConfig { processes: 1, ..SimConfig::default() });
    let runtime = Runtime::new(plain(&sim, 0), Config::default().layers(layers)).unwrap();
    let before = runtime.free_ids();
    let oneself = runtime.oneself();
    let made: Vec<_> = (0..2).map(|_| oneself.dup().wait()).collect();
    let results = made.iter().map(|made| made.as_ref().map(drop).map_err(Clone::clone)).collect();
    drop(made);
    assert_eq!(runtime.free_ids(), before);
    let lines = lines.lock().unwrap().clone();
    (lines, results, runtime.tables())
}

#[test]
fn layers_are_attached_by_level_and_dropped_in_reverse() {
    let (lines, results, tables) = dup_self(None);
    assert_eq!(results, [Ok(()), Ok(())]);
    let come = |id: u32| [1, 2, 3].map(|level| format!("+{level} of {id}"));
    let go = |id: u32| [3, 2, 1].map(|level| format!("-{level} of {id}"));
    assert_eq!(lines, [come(496), come(480), go(496), go(480)].concat());
    assert_eq!(tables, 0);
}

#[test]
fn an_error_of_a_layer_undoes_the_layers_beneath_and_frees_the_id() {
    let (lines, results, tables) = dup_self(Some(496));
    let error = Error::Layer { layer: "diary".into(), what: "as planned".into() };
    // The first id can't be reused yet, so the second duplicate has another one.
    assert_eq!(results, [Err(error), Ok(())]);
    let first = ["+1 of 496", "+2 of 496", "-2 of 496", "-1 of 496"];
    let second = ["+1 of 480", "+2 of 480", "+3 of 480", "-3 of 480", "-2 of 480", "-1 of 480"];
    assert_eq!(lines, [&first[..], &second].concat());
    assert_eq!(tables, 0);
}

#[test]
fn two_layers_of_one_level_are_refused() {
    let sim = Sim::new(SimConfig::default());
    let layers: Vec<Arc<dyn CollLayer<TestNet>>> = vec![
        Arc::new(Offload { level: 20 }),
        Arc::new(Counts::default()),
        Arc::new(Offload { level: 20 }),
    ];
    let refused = Runtime::new(plain(&sim, 0), Config::default().layers(layers));
    assert!(matches!(refused, Err(Error::SameLevel { level: 20 })));
}
