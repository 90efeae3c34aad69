//! How many messages an exchange takes, and how many bytes. docs/scale.md has the table.

use std::fmt::Write as _;

use super::{Reach, Traffic, ValueStore, World};

/// What a worker on shared memory and TCP gives its job (`comm/src/net/worker.rs`), of a machine
/// with 200 processes: its address, and where it runs.
fn bytes(rank: u32) -> Vec<u8> {
    let machine = rank / 200;
    // A name without a pattern: the worker's is random.
    let name = (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let place = [&machine.to_le_bytes()[..], &[0x5a; 3]].concat();
    let port = 30_000 + u16::try_from(rank % 200).unwrap();
    let host = [&[10][..], &machine.to_be_bytes()[1..]].concat();
    let address = [&[5][..], &name, &place, &rank.to_le_bytes(), &port.to_be_bytes(), &host];
    let address = address.concat();
    let place = format!("{machine:08x}-6d1c-4c1e-9d2e-0123456789ab 0-199 4026531840/1000");
    [&[u8::try_from(address.len()).unwrap()], &address[..], place.as_bytes()].concat()
}

/// Of so many machines or more, only some have leaders that get the bundles of all others.
const MACHINES_MANY: u32 = 100;

/// What an exchange of processes on machines of `each` takes.
struct Row {
    processes: u32,
    machines: u32,
    /// A process that is no leader, if there is one; the leader with the most requests.
    traffic: [Traffic; 2],
    /// Requests of all leaders for bundles.
    for_bundles: u64,
    /// All other requests.
    others: u64,
    /// Bytes of all values that leaders put, with their keys.
    values: usize,
}

impl Row {
    fn of(processes: u32, each: u32) -> Self {
        let machines = processes.div_ceil(each);
        let mapping = format!("(vector,(0,{machines},{each}))");
        let mut world = World::new(processes, &mapping, &[], bytes);
        world.server.keep_news();
        let step = if machines < MACHINES_MANY { 1 } else { machines / 10 };
        // The result of a leader is kept for its machine only if it is one of these.
        let kept = [0, machines / 2 / step * step, (machines - 1) / step * step];
        let kept = kept.map(|machine| machine * each);
        let mut values = 0;
        for stage in 0..8 {
            for rank in 0..processes {
                if stage % 2 == 1 {
                    world.client(rank).barrier(Reach::Job, false).unwrap();
                    continue;
                }
                let is_leader = rank % each == 0;
                if stage < 6 || !is_leader || (rank / each).is_multiple_of(step) {
                    world.step(stage, rank);
                }
                if stage == 6 && is_leader && !kept.contains(&rank) {
                    world.parts[rank as usize] = None;
                }
            }
            let news = world.server.take_news();
            values += news.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        }
        for leader in kept {
            for rank in [leader, (leader + each).min(processes) - 1] {
                let Some(part) = world.parts[rank as usize].take() else { continue };
                let all = part.end(&mut world.client(rank)).unwrap();
                assert!((0..).zip(&all).all(|(rank, one)| *one == bytes(rank)));
                assert_eq!(all.len(), processes as usize);
            }
        }
        Self::count(&world.traffic, each, step as usize, values)
    }

    fn count(traffic: &[Traffic], each: u32, step: usize, values: usize) -> Self {
        // The first value of a leader with neighbours is the place of its board.
        let machines = traffic.chunks(each as usize);
        let leaders: Vec<(Traffic, u64)> = machines
            .map(|machine| (machine[0], machine[0].puts - u64::from(machine.len() > 1)))
            .collect();
        let all: u64 = leaders.iter().map(|(_, pieces)| pieces).sum();
        for (leader, pieces) in leaders.iter().step_by(step) {
            assert_eq!(leader.gets, 1 + all - pieces, "each piece of others once");
        }
        let other = traffic.get(1).filter(|_| each > 1).copied().unwrap_or_default();
        let leader = leaders.iter().map(|(leader, _)| *leader).max_by_key(|leader| leader.gets);
        let boards = (traffic.len() - leaders.len()) as u64;
        let fixed = |one: &Traffic| one.puts + one.barriers + 1;
        Row {
            processes: u32::try_from(traffic.len()).unwrap(),
            machines: u32::try_from(leaders.len()).unwrap(),
            traffic: [other, leader.unwrap_or_default()],
            for_bundles: leaders.iter().map(|(_, pieces)| all - pieces).sum(),
            others: traffic.iter().map(fixed).sum::<u64>() + boards,
            values,
        }
    }

    fn show(&self, out: &mut String) {
        let [other, leader] = self.traffic;
        let requests = |of: Traffic| of.puts + of.gets + of.barriers;
        let before = u64::from(self.processes);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {} |",
            self.processes,
            self.machines,
            requests(other),
            requests(leader),
            self.others,
            self.for_bundles,
            leader.bytes[1] as f64 / 1e3,
            self.values as f64 / 1e3,
            before * (before + 2),
        );
    }
}

#[test]
fn a_process_that_is_no_leader_sends_six_requests_at_any_size() {
    for (processes, each) in [(1, 1), (64, 64), (512, 512), (512, 64), (1000, 200), (1001, 200)] {
        let row = Row::of(processes, each);
        let other = Traffic { puts: 0, gets: 2, barriers: 4, bytes: row.traffic[0].bytes };
        if each > 1 {
            assert_eq!(row.traffic[0], other, "{processes}");
        }
        // A leader asks for each piece of the other machines once, and for nothing else.
        let leader = row.traffic[1];
        assert_eq!(leader.barriers, 4);
        let bytes = 50 * u64::from(processes) + 400 * u64::from(row.machines);
        assert!(leader.gets < 2 + 2 * u64::from(row.machines) + bytes / 900, "{leader:?}");
        assert!((row.values as u64) < bytes, "{} bytes", row.values);
    }
}

/// Prints the table of docs/scale.md.
#[test]
#[ignore = "takes half a minute with --release"]
fn meeting_table() {
    let mut out = String::new();
    let sizes = [(64, 64), (256, 256), (512, 512), (512, 128), (4096, 128), (16_384, 200)];
    for (processes, each) in sizes.into_iter().chain([(100_000, 200)]) {
        Row::of(processes, each).show(&mut out);
    }
    println!("{out}");
    let page = include_str!("../../../../docs/scale.md");
    assert!(page.contains(&out), "docs/scale.md has another table");
}
