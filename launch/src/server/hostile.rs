//! Requests at the wrong time, of the wrong process, twice, and cut off.

use tagmatch_testkit::hostile::{Legality, Message, Rest, Room, try_all};

use super::*;
use crate::wire::READ_BYTES_MAX;

/// The process that sends, and one that takes part in the job beside it.
const SENDER: u32 = 0;
const BYSTANDER: u32 = 1;
/// There is no such process.
const NOBODY: u32 = 2;

struct ServerRoom {
    server: Server,
}

impl ServerRoom {
    fn say(&mut self, rank: u32, line: &str) -> Result<Action, Violation> {
        self.server.handle_line(rank, &PmiLine::parse(line.as_bytes())?)
    }

    /// Whether a process is answered this.
    fn is_answered(&mut self, rank: u32, line: &str, due: &str) -> bool {
        let Ok(Action::Reply(replies)) = self.say(rank, line) else { return false };
        replies.iter().any(|reply| reply.to == rank && reply.line.contains(due))
    }
}

impl Room for ServerRoom {
    type Situation = ProcessPhase;
    type Sender = u32;

    fn enter(phase: ProcessPhase) -> Self {
        let mut room = ServerRoom { server: Server::new(2, "k", []) };
        let init = "cmd=init pmi_version=1";
        let before: &[&str] = match phase {
            ProcessPhase::Silent => &[],
            ProcessPhase::Joined | ProcessPhase::Ended => &[init],
            ProcessPhase::Waiting => &[init, "cmd=barrier_in"],
            ProcessPhase::Left => &[init, "cmd=finalize"],
        };
        room.say(BYSTANDER, init).unwrap();
        before.iter().for_each(|line| drop(room.say(SENDER, line).unwrap()));
        if phase == ProcessPhase::Ended {
            room.server.ended(SENDER, true);
        }
        room
    }

    fn takes(phase: ProcessPhase, sender: u32, message: &Message) -> Legality {
        let is_init = message.name() == "init";
        let is_legal = match phase {
            _ if sender == NOBODY => false,
            ProcessPhase::Silent => is_init,
            ProcessPhase::Joined => !is_init,
            ProcessPhase::Waiting | ProcessPhase::Left | ProcessPhase::Ended => false,
        };
        if is_legal { Legality::Legal } else { Legality::Illegal }
    }

    fn hear(&mut self, sender: u32, bytes: &[u8]) -> bool {
        let Ok(line) = PmiLine::read(&mut &[bytes, b"\n"].concat()[..]) else { return false };
        match self.server.handle_line(sender, &line) {
            Ok(Action::Reply(replies)) => {
                let is_known = |reply: &Reply| reply.to < NOBODY && reply.line.ends_with('\n');
                assert!(replies.iter().all(is_known), "{replies:?}");
                !replies.iter().any(|reply| reply.line.contains("rc=-1"))
            }
            Ok(Action::Abort(_) | Action::Spawn(_)) => true,
            Err(_) => false,
        }
    }

    fn state(&self) -> String {
        format!("{:?}", self.server)
    }

    /// The other process is served, and its barrier ends when the first process has.
    fn audit(mut self) {
        let put = "cmd=put kvsname=k key=of_bystander value=7";
        assert!(self.is_answered(BYSTANDER, put, "rc=0"));
        let get = "cmd=get kvsname=k key=of_bystander";
        assert!(self.is_answered(BYSTANDER, get, "value=7"));
        let is_alone = self.is_answered(BYSTANDER, "cmd=barrier_in", "barrier_out");
        let ends = self.server.ended(SENDER, true);
        assert!(is_alone || ends.iter().any(|reply| reply.to == BYSTANDER), "{ends:?}");
    }
}

#[test]
fn no_request_of_a_process_does_harm() {
    // What a line becomes when it is cut off is open: it may be another request.
    let rest = Rest { unit: 1, count: 0..=READ_BYTES_MAX - 1, legality: Legality::Open };
    let messages = [
        ("init", "cmd=init pmi_version=1 pmi_subversion=1"),
        ("maxes", "cmd=get_maxes"),
        ("appnum", "cmd=get_appnum"),
        ("universe", "cmd=get_universe_size"),
        ("name", "cmd=get_my_kvsname"),
        ("put", "cmd=put kvsname=k key=a value=b"),
        ("get", "cmd=get kvsname=k key=PMI_dead_processes"),
        ("barrier", "cmd=barrier_in"),
        ("abort", "cmd=abort exitcode=3"),
        ("finalize", "cmd=finalize"),
    ];
    let messages = messages.map(|(name, line)| Message::new(name, line).rest(rest.clone()));
    use ProcessPhase::{Ended, Joined, Left, Silent, Waiting};
    let phases = [Silent, Joined, Waiting, Left, Ended];
    try_all::<ServerRoom>(&phases, &[SENDER, NOBODY], &messages);
}
