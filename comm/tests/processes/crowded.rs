//! More processes than processors: a blocking call gives way after a few polls.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::net::{Arrived, Directory, Net, NetFailed};
use tagmatch_comm::{Runtime, forward_net};

use crate::job::{Job, say, settings, transport};

/// The yields of this process.
static YIELDS: AtomicU32 = AtomicU32::new(0);

/// A transport that counts polls and yields up to the first sleep.
struct Counting {
    net: WorkerNet,
    /// Polls while a rank waits for a message.
    polls: u32,
    has_slept: bool,
}

impl Directory for Counting {
    forward_net!(net: processes, own, name, admit);
}

impl Net for Counting {
    type Send = <WorkerNet as Net>::Send;
    type Receive = <WorkerNet as Net>::Receive;
    type Message = <WorkerNet as Net>::Message;

    forward_net!(net: send, inject, test_send, receive, receive_by_tag, cancel);
    forward_net!(net: probe, matched_probe, receive_message, is_down, watch, give_up, take_down);
    forward_net!(net: free_tag_bits, has_left, failure, progress, wait_policy, node, sleeper, sleep_max, disarm, notify);

    fn test_receive(&mut self, receive: &mut Self::Receive) -> Option<Result<Arrived, NetFailed>> {
        self.polls += 1;
        self.net.test_receive(receive)
    }

    fn pause() {
        YIELDS.fetch_add(1, Ordering::Relaxed);
        WorkerNet::<tagmatch::Local>::pause();
    }

    fn arm(&mut self) -> bool {
        if !self.has_slept {
            self.has_slept = true;
            say("sleeps", format!("{} {}", self.polls, YIELDS.load(Ordering::Relaxed)));
        }
        self.net.arm()
    }
}

/// `role`: the processor that all ranks run on. Rank 0 waits for a message; rank 1 sends it when it
/// is told to.
pub(crate) fn play(role: &str) {
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-apc", role, &own]).output().unwrap();
    assert!(pinned.status.success(), "{pinned:?}");
    let counting = Counting { net: transport(), polls: 0, has_slept: false };
    let world = Runtime::new(counting, settings()).unwrap().world();
    if world.rank() == 0 {
        let received = world.recv(1, 7, vec![0; 8]).wait().unwrap();
        assert_eq!(received.data(), [7; 8]);
    } else {
        crate::job::told();
        world.send(0, 7, vec![7; 8]).wait().unwrap();
    }
    world.barrier().wait().unwrap();
}

#[test]
fn a_rank_that_waits_on_a_shared_processor_polls_few_times_and_sleeps() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.unwrap().trim().split(['-', ',']).next().unwrap();
    let mut job = Job::start(&format!("crowded: {first}"), 2);
    let counts = job.hear(0, "sleeps");
    let counts: Vec<u32> = counts.split(' ').map(|count| count.parse().unwrap()).collect();
    job.tell(1, "");
    job.finish(&[]);
    let [polls, yields] = counts[..] else { panic!("{counts:?}") };
    assert!((1..=128).contains(&polls), "{polls} polls before the first sleep");
    assert!((1..=128).contains(&yields), "{yields} yields before the first sleep");
}
