//! Exchanges of many processes in one thread: the parts of all processes as they ship, PMI-1's
//! server as `tagperf run` has it, and boards in memory.

mod counts;
mod deaths;
mod hostile;
mod nonsense;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::rc::Rc;

use super::Part;
use super::board::Board;
use super::mapping::neighbours;
use super::store::{MAPPING, Reach, ValueStore};
use crate::error::Error;
use crate::pmi1;
use crate::server::{Action, Server};
use crate::wire::{self, PmiLine};

/// What a process does and what it waits for, in turn: a step, a barrier, and so on.
const STAGES: usize = 9;

thread_local! {
    /// The boards that can be opened, by place.
    static BOARDS: RefCell<HashMap<String, Memory>> = RefCell::default();
    /// The process that runs, and the processes that can open no board.
    static OPENER: RefCell<(u32, BTreeSet<u32>)> = RefCell::default();
    /// How often the process that runs writes to boards before it dies, if it does.
    static WRITES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// What was written, by where it begins.
type Memory = Rc<RefCell<BTreeMap<u64, Vec<u8>>>>;

struct SimBoard {
    memory: Memory,
    /// Of the process that has made the board: nobody can open it after that process has gone.
    place: Option<String>,
}

impl Board for SimBoard {
    fn make(number: u32) -> io::Result<(Self, String)> {
        let memory = Memory::default();
        let maker = OPENER.with_borrow(|opener| opener.0);
        let place = format!("{number}/{maker}");
        BOARDS.with_borrow_mut(|boards| boards.insert(place.clone(), Rc::clone(&memory)));
        Ok((SimBoard { memory, place: Some(place.clone()) }, place))
    }

    fn open(place: &str, _: u32) -> Option<Self> {
        let is_apart = OPENER.with_borrow(|(rank, apart)| apart.contains(rank));
        let memory = BOARDS.with_borrow(|boards| boards.get(place).map(Rc::clone))?;
        (!is_apart).then_some(SimBoard { memory, place: None })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let left = WRITES_LEFT.get();
        if left != Some(0) {
            self.memory.borrow_mut().insert(at, bytes.to_vec());
        }
        WRITES_LEFT.set(left.map(|left| left.saturating_sub(1)));
        Ok(())
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        bytes.fill(0);
        if let Some(written) = self.memory.borrow().get(&at) {
            let there = written.get(..bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            bytes.copy_from_slice(there);
        }
        Ok(())
    }
}

impl Drop for SimBoard {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            BOARDS.with_borrow_mut(|boards| boards.remove(place));
        }
    }
}

/// How many requests a process has sent, and how many bytes went to it and from it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Traffic {
    puts: u64,
    gets: u64,
    barriers: u64,
    /// Bytes of requests, and bytes of answers.
    bytes: [u64; 2],
}

/// What an exchange has brought.
type Outcome = Result<Vec<Vec<u8>>, Error>;

/// A job, and its launcher.
struct World {
    server: Server,
    traffic: Vec<Traffic>,
    parts: Vec<Option<Part<SimBoard>>>,
    dead: BTreeSet<u32>,
    /// The processes of each process's machine, for those that have asked and their neighbours.
    neighbours: Vec<Option<Rc<[u32]>>>,
    bytes: fn(u32) -> Vec<u8>,
}

impl World {
    /// `mapping`: where the launcher says that the processes run. `apart`: those that can open no
    /// board of another one.
    fn new(size: u32, mapping: &str, apart: &[u32], bytes: fn(u32) -> Vec<u8>) -> Self {
        OPENER.set((0, apart.iter().copied().collect()));
        let mapping = (MAPPING.to_owned(), mapping.to_owned());
        let mut server = Server::new(size, "kvs_12345_0", [mapping]);
        let init = PmiLine::parse(b"cmd=init pmi_version=1 pmi_subversion=1").unwrap();
        for rank in 0..size {
            server.handle_line(rank, &init).unwrap();
        }
        let parts = (0..size).map(|_| None).collect();
        let traffic = vec![Traffic::default(); size as usize];
        let neighbours = vec![None; size as usize];
        World { server, traffic, parts, dead: BTreeSet::new(), neighbours, bytes }
    }

    /// The world as this process sees it.
    fn client(&mut self, rank: u32) -> Client<'_> {
        OPENER.with_borrow_mut(|opener| opener.0 = rank);
        let server = &mut self.server;
        let traffic = &mut self.traffic;
        Client { server, traffic, neighbours: &mut self.neighbours, rank }
    }

    /// The process ends without leaving the job.
    fn kill(&mut self, rank: u32) {
        self.parts[rank as usize] = None;
        self.dead.insert(rank);
        self.server.ended(rank, true);
    }

    /// The process takes its step before all others, and dies in it after so many writes to a
    /// board.
    fn kill_within(&mut self, stage: usize, rank: u32, writes: u32) {
        WRITES_LEFT.set(Some(writes));
        self.step(stage, rank);
        WRITES_LEFT.set(None);
        self.kill(rank);
    }

    /// Lets a process take a step. `stage` is even.
    fn step(&mut self, stage: usize, rank: u32) {
        let own = (self.bytes)(rank);
        let Some(mut part) = self.parts[rank as usize].take() else {
            if stage == 0 && !self.dead.contains(&rank) {
                self.parts[rank as usize] = Some(Part::begin(&mut self.client(rank), 0, &own));
            }
            return;
        };
        let mut client = self.client(rank);
        match stage {
            2 => part.contribute(&mut client),
            4 => part.bundle(&mut client),
            6 => part.collect(&mut client),
            _ => {}
        }
        self.parts[rank as usize] = Some(part);
    }

    /// The exchange of all processes. Before each stage, `meddle` may do what a process could, or
    /// kill it. Returns the results of the processes that live.
    fn run(&mut self, mut meddle: impl FnMut(&mut Self, usize)) -> Vec<(u32, Outcome)> {
        let all = 0..u32::try_from(self.parts.len()).unwrap();
        for stage in 0..STAGES - 1 {
            meddle(self, stage);
            for rank in all.clone() {
                if stage % 2 == 0 {
                    self.step(stage, rank);
                } else if self.parts[rank as usize].is_some() {
                    self.client(rank).barrier(Reach::Job, false).unwrap();
                }
            }
        }
        meddle(self, STAGES - 1);
        let mut results = Vec::new();
        for rank in all {
            if let Some(part) = self.parts[rank as usize].take() {
                results.push((rank, part.end(&mut self.client(rank))));
            }
        }
        results
    }
}

/// A process's connection to the server.
struct Client<'a> {
    server: &'a mut Server,
    traffic: &'a mut [Traffic],
    neighbours: &'a mut [Option<Rc<[u32]>>],
    rank: u32,
}

impl Client<'_> {
    fn ask(&mut self, command: &str, fields: &[(&str, &str)]) -> Option<PmiLine> {
        let kvsname = self.server.kvsname().to_owned();
        let fields = [&[("kvsname", &*kvsname)], fields].concat();
        let line =
            wire::line(command, if command == "barrier_in" { &[] } else { &fields }).unwrap();
        self.traffic[self.rank as usize].bytes[0] += line.len() as u64;
        let request = PmiLine::parse(line.trim_end().as_bytes()).unwrap();
        let Action::Reply(replies) = self.server.handle_line(self.rank, &request).unwrap() else {
            panic!("{command}")
        };
        for reply in &replies {
            self.traffic[reply.to as usize].bytes[1] += reply.line.len() as u64;
        }
        let own = replies.iter().find(|reply| reply.to == self.rank)?;
        Some(PmiLine::parse(own.line.trim_end().as_bytes()).unwrap())
    }
}

impl ValueStore for Client<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        u32::try_from(self.server.size()).unwrap()
    }

    fn neighbours(&mut self) -> Result<Vec<u32>, Error> {
        let mapping = self.get(0, MAPPING)?.unwrap();
        let rank = self.rank as usize;
        if self.neighbours[rank].is_none() {
            let ranks = neighbours(&mapping, self.rank, self.size()).unwrap_or_default();
            let ranks: Rc<[u32]> = ranks.into();
            for rank in ranks.iter() {
                self.neighbours[*rank as usize] = Some(Rc::clone(&ranks));
            }
        }
        Ok(self.neighbours[rank].as_deref().unwrap_or_default().to_vec())
    }

    fn value_max(&self, key: usize) -> usize {
        let around = "cmd=put kvsname= key= value=\n".len() + self.server.kvsname().len() + key;
        959.min(wire::WRITTEN_BYTES_MAX - around)
    }

    fn put(&mut self, key: &str, value: &str, _: Reach) -> Result<(), Error> {
        self.traffic[self.rank as usize].puts += 1;
        let answer = self.ask("put", &[("key", key), ("value", value)]).unwrap();
        assert_eq!(answer.field("rc"), Some("0"), "{answer:?}");
        Ok(())
    }

    fn get(&mut self, _: u32, key: &str) -> Result<Option<String>, Error> {
        self.traffic[self.rank as usize].gets += 1;
        Ok(self.ask("get", &[("key", key)]).unwrap().field("value").map(str::to_owned))
    }

    fn barrier(&mut self, _: Reach, _: bool) -> Result<(), Error> {
        self.traffic[self.rank as usize].barriers += 1;
        self.ask("barrier_in", &[]);
        Ok(())
    }

    fn is_dead(&mut self, rank: u32) -> Result<bool, Error> {
        let dead = self.get(0, "PMI_dead_processes")?.unwrap();
        Ok(pmi1::ranks(&dead, self.size()).unwrap().contains(&rank))
    }
}
