//! A launcher that answers whatever it likes: at the wrong time, twice, and cut off.

use std::os::unix::net::UnixStream;

use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest, Room, try_all};

use super::*;
use crate::wire::READ_BYTES_MAX;

/// The number of processes.
const SIZE: u32 = 8;
const INIT: &str = "cmd=response_to_init rc=0\n";
const MAXES: &str = "cmd=maxes keylen_max=64 vallen_max=1024\n";
const NAME: &str = "cmd=my_kvsname kvsname=k\n";

/// The request that the launcher answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedFor {
    Introduction,
    Init,
    Maxes,
    Name,
    Put,
    Barrier,
    Get,
    Dead,
    Spawn,
    Finalize,
}

/// The process, and the launcher's end of its connection. Nothing blocks: what is asked for beyond
/// the launcher's answers is an error.
struct ClientRoom {
    asked: AskedFor,
    launcher: File,
    client: Result<Pmi1, File>,
}

/// Marks a message that stands for an answer with these numbers.
const MARK_BYTES: usize = 4;
const RANK_MARK: &[u8; MARK_BYTES] = b"\x01rnk";
const MAXES_MARK: &[u8; MARK_BYTES] = b"\x01max";
const DEAD_MARK: &[u8; MARK_BYTES] = b"\x01ded";

/// The answer for which a message stands.
fn answer(bytes: &[u8]) -> Vec<u8> {
    let numbers = bytes.split_first_chunk().and_then(|(mark, rest)| {
        let (numbers, []) = rest.as_chunks() else { return None };
        let [first, second] = numbers.try_into().ok()?;
        Some((mark, u64::from_le_bytes(first), u64::from_le_bytes(second)))
    });
    let line = match numbers {
        Some((RANK_MARK, size, rank)) => {
            format!("cmd=initack\ncmd=set size={size}\ncmd=set rank={rank}\ncmd=set debug=0")
        }
        Some((MAXES_MARK, key, value)) => format!("cmd=maxes keylen_max={key} vallen_max={value}"),
        Some((DEAD_MARK, first, last)) => format!("cmd=get_result rc=0 value={first}-{last}"),
        _ => return [bytes, b"\n"].concat(),
    };
    [line.as_bytes(), b"\n"].concat()
}

impl ClientRoom {
    fn say(&mut self, bytes: &[u8]) {
        self.launcher.write_all(bytes).unwrap();
    }

    /// What the client makes of what the launcher has answered.
    fn call(&mut self) -> Result<(), Pmi1Error> {
        if let Err(socket) = &self.client {
            let socket = socket.try_clone().unwrap();
            let opened = match self.asked {
                AskedFor::Introduction => Pmi1::introduce(socket, 7),
                _ => Pmi1::open(socket, 1, SIZE),
            };
            self.client = Ok(opened?);
            return Ok(());
        }
        let Ok(pmi) = &mut self.client else { return Ok(()) };
        match self.asked {
            AskedFor::Put => pmi.put("key", "value"),
            AskedFor::Barrier => pmi.barrier(),
            AskedFor::Get => pmi.get("key").map(drop),
            AskedFor::Dead => pmi.dead().map(|dead| assert!(dead.iter().all(|rank| *rank < SIZE))),
            AskedFor::Spawn => pmi.spawn("cmd=spawn\n"),
            _ => pmi.ask("finalize", &[], "finalize_ack").map(drop),
        }
    }
}

impl Room for ClientRoom {
    type Situation = AskedFor;
    type Sender = ();

    fn enter(asked: AskedFor) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let [launcher, socket] = [ours, theirs].map(|end| File::from(OwnedFd::from(end)));
        let mut room = ClientRoom { asked, launcher, client: Err(socket) };
        match asked {
            AskedFor::Introduction | AskedFor::Init => {}
            AskedFor::Maxes => room.say(INIT.as_bytes()),
            AskedFor::Name => room.say([INIT, MAXES].concat().as_bytes()),
            _ => {
                room.say([INIT, MAXES, NAME].concat().as_bytes());
                room.asked = AskedFor::Init;
                room.call().unwrap();
                room.asked = asked;
            }
        }
        room
    }

    fn takes(asked: AskedFor, (): (), message: &Message) -> Legality {
        let is_due = match message.name() {
            "initack" => asked == AskedFor::Introduction,
            "init" => asked == AskedFor::Init,
            "maxes" => asked == AskedFor::Maxes,
            "name" => asked == AskedFor::Name,
            "put" => asked == AskedFor::Put,
            "barrier" => asked == AskedFor::Barrier,
            "get" => asked == AskedFor::Get,
            "dead" => asked == AskedFor::Dead,
            "spawn" => asked == AskedFor::Spawn,
            _ => asked == AskedFor::Finalize,
        };
        if is_due { Legality::Legal } else { Legality::Illegal }
    }

    fn hear(&mut self, (): (), bytes: &[u8]) -> bool {
        let behind: &[&str] = match self.asked {
            _ if self.client.is_ok() => &[],
            AskedFor::Introduction => &[INIT, MAXES, NAME],
            AskedFor::Init => &[MAXES, NAME],
            AskedFor::Maxes => &[NAME],
            _ => &[],
        };
        self.say(&answer(bytes));
        self.say(behind.concat().as_bytes());
        self.call().is_ok()
    }

    fn state(&self) -> String {
        let facts = |pmi: &Pmi1| (pmi.rank, pmi.size, pmi.maxes, pmi.kvsname.clone());
        format!("{:?}", self.client.as_ref().ok().map(facts))
    }

    /// The process knows its place, and each line that it writes has a length that every launcher
    /// reads.
    fn audit(mut self) {
        if let Ok(pmi) = &mut self.client {
            assert!(pmi.rank < pmi.size && pmi.size <= SIZE_MAX);
            let _ = pmi.put("key", &"v".repeat(pmi.value_max(3)));
            let beyond = "v".repeat(pmi.value_max(3) + 1);
            assert!(pmi.put("key", &beyond).is_err());
            let beyond = "k".repeat(wire::WRITTEN_BYTES_MAX.min(pmi.maxes.key) + 1);
            assert!(pmi.put(&beyond, "").is_err());
        }
        drop(self.client);
        // A process that another test is about to start may still have the other end.
        rustix::io::ioctl_fionbio(&self.launcher, false).unwrap();
        let mut launcher = BufReader::new(self.launcher);
        loop {
            match wire::read_line(&mut launcher, wire::WRITTEN_BYTES_MAX) {
                Ok(line) => drop(PmiLine::parse(&line).unwrap()),
                Err(WireError::Closed) => return,
                // The process has closed its end before it had read all.
                Err(WireError::Broken(error)) => {
                    return assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// An answer whose beginning has to be this. What follows, or is cut off, is open.
fn line(name: &'static str, fixed: &str, behind: &str) -> Message {
    let count = 0..=READ_BYTES_MAX - 1 - fixed.len();
    let message = Message::new(name, [fixed, behind].concat());
    let message = message.bytes_of(fixed.len(), "command", &Meaning::Fixed);
    message.rest(Rest { unit: 1, count, legality: Legality::Open })
}

/// An answer with two numbers.
fn numbers(
    name: &'static str,
    mark: &[u8],
    good: [u64; 2],
    fields: [(&'static str, Meaning); 2],
) -> Message {
    let numbers = good.map(u64::to_le_bytes).concat();
    let message = Message::new(name, [mark, &numbers].concat());
    let message = message.bytes_of(MARK_BYTES, "mark", &Meaning::Open);
    fields.into_iter().fold(message, |message, (name, meaning)| message.le(8, name, meaning))
}

#[test]
fn no_answer_of_a_launcher_does_harm() {
    let sizes = Meaning::Within(3..=SIZE_MAX.into());
    let free = |name| (name, Meaning::Free);
    let last = u64::from(SIZE) - 1;
    let messages = [
        numbers("initack", RANK_MARK, [3, 2], [("size", sizes), ("rank", Meaning::Within(0..=2))]),
        numbers("maxes", MAXES_MARK, [64, 1024], [free("keylen_max"), free("vallen_max")]),
        line("init", "cmd=response_to_init", " rc=0"),
        line("maxes", "cmd=maxes", " keylen_max=64 vallen_max=1024"),
        line("name", "cmd=my_kvsname", " kvsname=k"),
        line("put", "cmd=put_result", " rc=0"),
        line("barrier", "cmd=barrier_out", ""),
        line("get", "cmd=get_result", " rc=0 value=x"),
        line("spawn", "cmd=spawn_result", " rc=0"),
        line("finalize", "cmd=finalize_ack", ""),
    ];
    use AskedFor::{Barrier, Dead, Finalize, Get, Init, Introduction, Maxes, Name, Put, Spawn};
    let situations = [Introduction, Init, Maxes, Name, Put, Barrier, Get, Dead, Spawn, Finalize];
    try_all::<ClientRoom>(&situations, &[()], &messages);
    // The value under any other key is no list of ranks.
    let ranks = [("first", Meaning::Within(0..=5)), ("last", Meaning::Within(1..=last))];
    let dead = numbers("dead", DEAD_MARK, [1, 5], ranks);
    let others = situations.map(|asked| if asked == Get { Dead } else { asked });
    try_all::<ClientRoom>(&others, &[()], &[dead]);
}

/// A line of a launcher is short, but it may name all ranks of a large job hundreds of times.
#[test]
fn a_list_of_ranks_takes_memory_for_each_of_them_once() {
    let named = ranks(&"0-999,".repeat(400), 1000).unwrap();
    assert_eq!(named.len(), 1000);
    assert!(named.capacity() <= 2048, "{}", named.capacity());
}
