//! Every number of a report is what was counted: random counters of random processes, and an oracle
//! that computes each number of the text anew.

use tagmatch::Counters;
use tagmatch_testkit::random::Random;

use super::job::Job;
use super::row::{COLUMNS, Row};
use super::table::Table;

/// The numbers of one worker in the order of the columns, and how the provider is given them.
fn worker(random: &mut Random) -> ([u64; 20], Row) {
    let mut number = || if random.chance(1, 4) { 0 } else { random.below(1000) };
    let counted: [u64; 20] = std::array::from_fn(|_| number());
    let by_device = number();
    let mut counters = Counters::default();
    let [_, nic, posted, unexpected, off, too_small, source, order, list_full, memory, ..] =
        counted;
    let [.., slices, phase, eager, rendezvous, truncated, cancelled, faults, deep, late, bugs] =
        counted;
    counters.hardware = nic;
    counters.posted = posted;
    counters.unexpected = unexpected;
    counters.by_device = by_device;
    counters.not_offloaded.off = off;
    counters.not_offloaded.too_small = too_small;
    counters.not_offloaded.source = source;
    counters.not_offloaded.order = order;
    counters.not_offloaded.list_full = list_full;
    counters.not_offloaded.memory = memory;
    counters.not_offloaded.slices = slices;
    counters.not_offloaded.phase = phase;
    counters.eager_sent = eager;
    counters.rendezvous_sent = rendezvous;
    counters.truncated = truncated;
    counters.cancelled = cancelled;
    counters.peer_faults = faults;
    counters.bugs = bugs;
    let mut numbers = counted;
    numbers[0] = nic + posted + unexpected + by_device;
    (numbers, Row::of(&counters, deep, late))
}

/// What two workers, or two processes, have together: depths and bugs are those of one of them.
fn together(some: [u64; 20], others: [u64; 20]) -> [u64; 20] {
    std::array::from_fn(|at| match COLUMNS[at] {
        "posted_max" | "unexpected_max" | "bugs" => some[at].max(others[at]),
        _ => some[at] + others[at],
    })
}

fn numbers(words: &[&str]) -> Vec<u64> {
    words.iter().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn each_number_of_a_report_is_what_the_processes_have_counted() {
    for seed in 0..300 {
        let mut random = Random::stream(seed, 0);
        let size = 1 + random.below(6);
        let here = 1 + random.below(size);
        let launcher = random.pick(&["pmix", "ompi", "hydra", "slurm"]);
        let mut text = String::new();
        let mut sum = [0; 20];
        let mut rows = Vec::new();
        for rank in 0..size {
            let job = job(launcher, rank, size, here);
            assert_eq!(job.size, Some(size), "{seed} {launcher}");
            // Slurm and PMIx alone don't tell how many processes a machine has.
            let knows_here = ["ompi", "hydra"].contains(&launcher);
            let local_size = if knows_here { here } else { size };
            assert_eq!(job.local_size, Some(local_size), "{seed} {launcher}");
            let (mut counted, mut row) = worker(&mut random);
            for _ in 0..random.below(3) {
                let (more, other) = worker(&mut random);
                counted = together(counted, more);
                row.add(&other);
            }
            sum = if rank == 0 { counted } else { together(sum, counted) };
            rows.push(counted);
            let mut table = Table::parse(&text, &job.name);
            table.add(job.process(), row);
            text = table.render(&job.name, job.size);
            check(&text, &rows, sum, size);
        }
    }
}

/// A job as a launcher tells it to one of its processes, of which `here` are on this machine.
fn job(launcher: &str, rank: u64, size: u64, here: u64) -> Job {
    let variable = |name: &str| match (launcher, name) {
        ("pmix", "PMIX_RANK") | ("ompi", "OMPI_COMM_WORLD_RANK") => Some(rank.to_string()),
        ("hydra", "PMI_RANK") | ("slurm", "SLURM_PROCID") => Some(rank.to_string()),
        ("pmix" | "slurm", "SLURM_NTASKS") => Some(size.to_string()),
        ("ompi", "OMPI_COMM_WORLD_SIZE") | ("hydra", "PMI_SIZE") => Some(size.to_string()),
        ("ompi", "OMPI_COMM_WORLD_LOCAL_SIZE") => Some(here.to_string()),
        ("hydra", "MPI_LOCALNRANKS") => Some(here.to_string()),
        ("pmix", "PMIX_NAMESPACE") => Some("some".into()),
        ("ompi", "OMPI_MCA_ess_base_jobid") => Some("17".into()),
        ("slurm", "SLURM_JOB_ID") => Some("9".into()),
        _ => None,
    };
    Job::read(variable)
}

fn check(text: &str, rows: &[[u64; 20]], sum: [u64; 20], size: u64) {
    assert!(text.contains(&format!("ended so far: {} of {size}.", rows.len())), "{text}");
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    let heading = lines.iter().position(|line| line.first() == Some(&"rank")).unwrap();
    assert_eq!(lines[heading][3..], COLUMNS);
    for (rank, row) in rows.iter().enumerate() {
        let line = &lines[heading + 1 + rank];
        assert_eq!(line[0], rank.to_string());
        assert_eq!(numbers(&line[3..]), row, "{text}");
    }
    let line = &lines[heading + 1 + rows.len()];
    assert_eq!((line[0], numbers(&line[3..])), ("sum", sum.to_vec()), "{text}");
    advice(text, sum);
}

/// Checks the sentences below the table against its sum.
fn advice(text: &str, sum: [u64; 20]) {
    let of = |column: &str| sum[COLUMNS.iter().position(|name| *name == column).unwrap()];
    let received = of("received");
    if received == 0 {
        return assert!(text.contains("No message was received."), "{text}");
    }
    let sentence = text.lines().find(|line| line.starts_with("Of ")).unwrap();
    let shares: Vec<f64> =
        sentence.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(shares.len(), 4, "{sentence}");
    let parts = [received, of("nic"), of("posted"), of("unexpected")];
    assert!(shares[0] == received as f64, "{sentence}");
    for (shown, part) in shares.into_iter().zip(parts).skip(1) {
        let share = part as f64 / received as f64 * 100.0;
        assert!((shown - share).abs() < 0.0501, "{sentence}: {share}");
    }
    let is_late = of("unexpected") as f64 > received as f64 / 2.0;
    assert_eq!(text.contains("Most messages came before their receive"), is_late, "{text}");
    for column in &COLUMNS[4..12] {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("  {column} ")));
        let shown = line.and_then(|line| line.split(':').next()).map(|word| word.parse().unwrap());
        assert_eq!(shown, Some(of(column)).filter(|count| *count > 0), "{column}: {text}");
    }
    let reasons = text.lines().filter(|line| line.starts_with("  "));
    let counts = reasons.filter_map(|line| {
        let mut words = line.split_whitespace();
        COLUMNS[4..12].contains(&words.next()?).then_some(())?;
        words.next()?.trim_end_matches(':').parse::<u64>().ok()
    });
    assert!(counts.collect::<Vec<_>>().iter().rev().is_sorted(), "{text}");
    let faults = format!("{} peers went down without leaving", of("peer_faults"));
    assert_eq!(text.contains(&faults), of("peer_faults") > 0, "{text}");
    let bugs = format!("can't be, {} at one process", of("bugs"));
    assert_eq!(text.contains(&bugs), of("bugs") > 0, "{text}");
}
