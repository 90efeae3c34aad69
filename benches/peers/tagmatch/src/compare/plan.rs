//! The cases of a program in a group. `case` has their grammar, which every program reads.
//!
//! A batch is timed as a whole: round trips, windows, or calls. It takes 0.1 to 5 ms, and a sample
//! has five at least. All cases of a program take some 3 s with all starts, so each of the programs
//! has 7 samples of each case after 3 to 4 minutes at one distance, and after 12 where three occur.

/// Sizes whose half round trips are measured, and round trips in a batch.
const LATENCIES: [(&[usize], usize); 7] = [
    (&[0, 1, 2, 4, 8, 16, 24, 32, 64, 96, 128, 192, 256, 512, 768, 1024], 500),
    (&[1500, 2048, 3000, 4096, 6000], 200),
    (&[8192, 16384, 32768], 50),
    (&[65536, 131_072], 20),
    (&[262_144], 10),
    (&[524_288, 1_048_576], 4),
    (&[4_194_304], 1),
];
/// Sizes of messages whose buffers change, and for each the windows with the number of them (or of
/// round trips: window 1) in a batch.
const COLD: Windows<'_> = &[
    (8, &[(1, 200)]),
    (1024, &[(1, 200), (64, 10)]),
    (4096, &[(1, 100), (64, 4)]),
    (16384, &[(1, 40), (64, 2)]),
    (65536, &[(1, 20), (16, 4)]),
    (262_144, &[(1, 5), (16, 1)]),
    (1_048_576, &[(1, 2), (4, 1)]),
    (4_194_304, &[(1, 1), (4, 1)]),
];
const FEW_LATENCIES: [(&[usize], usize); 4] =
    [(&[8], 100), (&[4096], 50), (&[65536], 20), (&[1_048_576], 4)];

/// Sizes, and for each the windows with the number of them in a batch.
type Windows<'a> = &'a [(usize, &'a [(usize, usize)])];
const RATES: Windows<'_> = &[
    (8, &[(1, 200), (8, 50), (64, 10), (512, 2)]),
    (64, &[(8, 50), (64, 10), (512, 2)]),
    (256, &[(8, 50), (64, 10), (512, 2)]),
    (1024, &[(8, 50), (64, 10), (512, 2)]),
    (16384, &[(1, 50), (8, 10), (64, 2), (512, 1)]),
    (32768, &[(64, 1)]),
    (65536, &[(1, 20), (8, 4), (64, 1), (512, 1)]),
];
const BANDWIDTHS: Windows<'_> = &[
    (131_072, &[(1, 20), (4, 5), (16, 2)]),
    (1_048_576, &[(1, 4), (4, 1), (16, 1), (64, 1)]),
    (4_194_304, &[(1, 1), (4, 1), (16, 1)]),
];
const FEW_WINDOWS: Windows<'_> =
    &[(8, &[(64, 10)]), (4096, &[(64, 4)]), (65536, &[(16, 4)]), (1_048_576, &[(8, 1)])];

/// Sizes of one-sided operations, and for each the windows with the number of them in a batch; of
/// puts, window 1 is a round trip.
const RMA: Windows<'_> = &[
    (8, &[(1, 200), (64, 10)]),
    (4096, &[(1, 100), (64, 4)]),
    (65536, &[(1, 20), (16, 4)]),
    (1_048_576, &[(1, 2), (8, 1)]),
];

/// Depths past which the half round trips of 8 B are measured.
const DEPTHS: [usize; 5] = [16, 256, 1024, 4096, 16384];
/// Operations, and for each the sizes with the number of calls in a batch.
const COLLECTIVES: [(&str, &[(usize, usize)]); 6] = [
    ("barrier", &[(0, 50)]),
    ("bcast", &[(8, 50)]),
    ("allreduce", &[(8, 50), (16384, 20), (65536, 10), (1_048_576, 1)]),
    ("alltoall", &[(8, 50), (4096, 50), (65536, 10), (1_048_576, 1)]),
    ("allgather", &[(4096, 50), (65536, 10), (1_048_576, 1)]),
    ("dup", &[(0, 50)]),
];
/// Ranks of a job, and barriers in a batch.
const RANKS: [(u32, usize); 3] = [(4, 10), (8, 5), (16, 2)];

/// All cases that `program` measures in `group`.
pub(super) fn cases(group: &str, program: &str) -> Vec<String> {
    let is_ours = program == "tagmatch";
    let is_floor = program == "floor";
    match group {
        "rma" if is_ours || matches!(program, "ucx" | "libfabric") => one_sided(),
        // Beside shared memory, libfabric is a peer for one-sided operations alone.
        _ if program == "libfabric" && !matches!(group, "tcp" | "ofi") => Vec::new(),
        // Only the ranks of a job are started by both launchers.
        "ranks" if is_floor || program.starts_with("ucx") || is_over_provider(program) => {
            Vec::new()
        }
        "ranks" => RANKS.iter().map(|(n, batch)| format!("ranks:barrier:{n}:{batch}")).collect(),
        _ if program == "tagmatch-mpiexec" || group == "rma" => Vec::new(),
        // The floor is that of the smallest latency, and of messages that are read from the
        // sender's memory.
        "latency" if is_floor => latencies(&[(&[8], 500)]),
        "latency" => latencies(&LATENCIES),
        "tcp" => [latencies(&FEW_LATENCIES), windows(FEW_WINDOWS)].concat(),
        "bandwidth" if is_ours || is_floor => {
            let buffers = ["buffer:1048576:1:4", "buffer:4194304:1:1"].map(str::to_owned);
            [windows(BANDWIDTHS), buffers.to_vec()].concat()
        }
        "bandwidth" => windows(BANDWIDTHS),
        _ if is_floor => Vec::new(),
        "ofi" => [latencies(&FEW_LATENCIES), windows(FEW_WINDOWS)].concat(),
        "rate" => windows(RATES),
        "cold" => windows(COLD).iter().map(|case| case.replacen("window", "cold", 1)).collect(),
        "depth" => depths(),
        // Memory and collective operations over the provider are Open MPI's own.
        _ if is_over_provider(program) => Vec::new(),
        "memory" if program.starts_with("ucx-") => Vec::new(),
        "memory" => ["posted:100000", "unexpected:100000"].map(str::to_owned).to_vec(),
        "collectives" if !program.starts_with("ucx") => collectives(is_ours),
        _ => Vec::new(),
    }
}

fn is_over_provider(program: &str) -> bool {
    matches!(program, "tagmatch-libfabric" | "tagmatch-openmpi")
}

fn latencies(all: &[(&[usize], usize)]) -> Vec<String> {
    let cases = |(sizes, batch): &(&[usize], usize)| {
        let case = |size| format!("latency:{size}:exact:exact:0:{batch}");
        sizes.iter().map(case).collect::<Vec<_>>()
    };
    all.iter().flat_map(cases).collect()
}

fn windows(all: Windows<'_>) -> Vec<String> {
    let cases = |(size, windows): &(usize, &[(usize, usize)])| {
        let case = |(window, batch)| format!("window:{size}:{window}:{batch}");
        windows.iter().copied().map(case).collect::<Vec<_>>()
    };
    all.iter().flat_map(cases).collect()
}

fn one_sided() -> Vec<String> {
    let of =
        |operation| windows(RMA).into_iter().map(move |case| case.replacen("window", operation, 1));
    let fetch_adds = ["rma:fadd:8:1:200".to_owned()];
    of("rma:put").chain(of("rma:get")).chain(fetch_adds).collect()
}

fn depths() -> Vec<String> {
    let sources = ["exact", "any"];
    let mut cases = sources.map(|source| format!("latency:8:{source}:exact:0:50")).to_vec();
    for fillers in sources {
        for depth in DEPTHS {
            cases.extend(sources.map(|source| format!("latency:8:{source}:{fillers}:{depth}:50")));
        }
    }
    cases
}

fn collectives(has_agree: bool) -> Vec<String> {
    let mut cases = Vec::new();
    for (operation, sizes) in COLLECTIVES {
        let case = |(size, batch)| format!("collective:{operation}:{size}:{batch}");
        cases.extend(sizes.iter().copied().map(case));
    }
    if has_agree {
        cases.push("collective:agree:0:50".to_owned());
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    #[test]
    fn every_case_can_be_read_and_is_of_a_program_that_measures_it() {
        let count = |group: &str, program: &str| {
            let cases = cases(group, program);
            for case in &cases {
                assert!(case.parse::<Case>().is_ok(), "{case}");
            }
            cases.len()
        };
        let groups = [
            "latency",
            "rate",
            "bandwidth",
            "cold",
            "depth",
            "memory",
            "collectives",
            "ranks",
            "rma",
        ];
        let counts = |program: &str| groups.map(|group| count(group, program));
        assert_eq!(counts("tagmatch"), [30, 22, 12, 15, 22, 2, 15, 3, 17]);
        assert_eq!(counts("floor"), [1, 0, 12, 0, 0, 0, 0, 0, 0]);
        assert_eq!(counts("ucx"), [30, 22, 10, 15, 22, 2, 0, 0, 17]);
        assert_eq!(counts("ucx-fifo-4096"), [30, 22, 10, 15, 22, 0, 0, 0, 0]);
        assert_eq!(counts("mpich"), [30, 22, 10, 15, 22, 2, 14, 3, 0]);
        assert_eq!(counts("tagmatch-mpiexec"), [0, 0, 0, 0, 0, 0, 0, 3, 0]);
        assert_eq!(counts("tagmatch-libfabric"), [30, 22, 10, 15, 22, 0, 0, 0, 0]);
        assert_eq!(counts("libfabric"), [0, 0, 0, 0, 0, 0, 0, 0, 17]);
        assert_eq!((count("tcp", "floor"), count("ofi", "floor"), count("ofi", "ucx")), (8, 0, 8));
    }
}
