//! How many messages an exchange takes, and how many bytes. docs/scale.md has the table.

use std::fmt::Write as _;

use super::{Traffic, World};

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

/// What an exchange of processes on machines of `each` takes.
struct Row {
    processes: u32,
    machines: u32,
    /// The process with the most requests that is no leader; a leader.
    traffic: [Traffic; 2],
    /// Requests of all processes that a launcher with one process a machine answers on its machine.
    local: u64,
    /// All other requests.
    central: u64,
    /// Bytes of the values that such a launcher hands on to each machine.
    values: u64,
}

impl Row {
    fn of(processes: u32, each: u32) -> Self {
        let machines = processes.div_ceil(each);
        let mut world =
            World::new(processes, &format!("(vector,(0,{machines},{each}))"), &[], bytes);
        world.server.keep_news();
        let mut values = 0;
        let kept = [0, machines / 2, machines - 1].map(|machine| machine * each);
        for stage in 0..8 {
            for rank in 0..processes {
                if stage % 2 == 1 {
                    super::ValueStore::barrier(&mut world.client(rank), super::Reach::Job, false)
                        .unwrap();
                    continue;
                }
                world.step(stage, rank);
                // What every leader has collected doesn't fit into the memory of one machine.
                if stage == 6 && rank % each == 0 && !kept.contains(&rank) {
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
        let leaders = || world.traffic.iter().step_by(each as usize);
        let others = (0..).zip(&world.traffic).filter(|(rank, _)| rank % each != 0);
        let most = |all: &mut dyn Iterator<Item = &Traffic>| {
            all.copied().max_by_key(|traffic| traffic.gets).unwrap_or_default()
        };
        let gets: u64 = world.traffic.iter().map(|traffic| traffic.gets).sum();
        let rest = world.traffic.iter().map(|traffic| traffic.puts + traffic.barriers);
        // The mapping was there from the start, so it is no news.
        let (local, central) = (gets - u64::from(processes), rest.sum::<u64>());
        let traffic = [most(&mut others.map(|(_, traffic)| traffic)), most(&mut leaders())];
        let central = central + u64::from(processes);
        Row { processes, machines, traffic, local, central, values: values as u64 }
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
            self.central,
            self.local,
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
        assert!(row.values < bytes, "{} bytes", row.values);
    }
}

/// Prints the table of docs/scale.md.
#[test]
#[ignore = "takes a minute; with --release"]
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
