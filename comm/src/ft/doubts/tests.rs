//! Questions about lost processes without a network, in many random orders of messages and losses.

use std::collections::VecDeque;

use tagmatch_testkit::random::Random;

use super::*;

enum Event {
    Doubt(Doubt),
    Lost,
}

/// The processes, and the events under way between each two of them, in order.
struct Job {
    processes: Vec<Option<Doubts>>,
    channels: BTreeMap<(u32, u32), VecDeque<Event>>,
    /// The two processes between which no message passes.
    cut: [u32; 2],
    /// A process that says of every other one that it lives.
    liar: Option<u32>,
    random: Random,
}

impl Job {
    fn new(size: u32, seed: u64) -> Self {
        let processes = (0..size).map(|own| Some(Doubts::new(ProcessId(own), size))).collect();
        let channels = BTreeMap::new();
        let random = Random::stream(seed, 0);
        Job { processes, channels, cut: [0, 0], liar: None, random }
    }

    fn push(&mut self, from: u32, to: u32, event: Event) {
        self.channels.entry((from, to)).or_default().push_back(event);
    }

    fn kill(&mut self, process: u32) {
        self.processes[process as usize] = None;
        for to in 0..u32::try_from(self.processes.len()).unwrap() {
            self.push(process, to, Event::Lost);
        }
    }

    /// Delivers everything in a random order. Returns the processes that live then.
    fn run(mut self) -> Vec<u32> {
        loop {
            self.channels.retain(|_, events| !events.is_empty());
            let Ok(count @ 1..) = u32::try_from(self.channels.len()) else { break };
            let at = self.random.below_u32(count) as usize;
            let (&(from, to), events) = self.channels.iter_mut().nth(at).unwrap();
            let event = events.pop_front().unwrap();
            let Some(process) = &mut self.processes[to as usize] else { continue };
            match event {
                Event::Doubt(Doubt::Asked(about)) if self.liar == Some(to) => {
                    self.push(to, from, Event::Doubt(Doubt::Said { about, lives: true }));
                    continue;
                }
                Event::Doubt(doubt) => process.hear(ProcessId(from), doubt),
                Event::Lost => process.lose(ProcessId(from), false),
            }
            let messages = process.take_messages();
            let goes = process.goes_for().is_some();
            for (receiver, doubt) in messages {
                if !(self.cut.contains(&to) && self.cut.contains(&receiver.0)) {
                    self.push(to, receiver.0, Event::Doubt(doubt));
                }
            }
            if goes {
                self.kill(to);
            }
        }
        let lives = |rank: &u32| self.processes[*rank as usize].is_some();
        (0..u32::try_from(self.processes.len()).unwrap()).filter(lives).collect()
    }
}

#[test]
fn of_two_that_have_lost_each_other_one_goes() {
    for (size, seed) in (3..7).flat_map(|size| (0..3000).map(move |seed| (size, seed))) {
        let mut job = Job::new(size, seed);
        let lower = job.random.below_u32(size - 1);
        job.cut = [lower, size - 1];
        job.push(lower, size - 1, Event::Lost);
        job.push(size - 1, lower, Event::Lost);
        let cut = job.cut;
        let living = job.run();
        assert_eq!(living.len() + 1, size as usize, "seed {seed}: {cut:?}, {living:?}");
        assert!(cut.iter().any(|end| !living.contains(end)), "seed {seed}: {cut:?}, {living:?}");
    }
}

#[test]
fn nobody_goes_after_a_death_though_one_process_lies() {
    for (size, seed) in (4..7).flat_map(|size| (0..1000).map(move |seed| (size, seed))) {
        let mut job = Job::new(size, seed);
        job.liar = Some(job.random.below_u32(size - 1));
        job.kill(size - 1);
        let living = job.run();
        assert_eq!(living.len() + 1, size as usize, "seed {seed}: {living:?}");
    }
}
