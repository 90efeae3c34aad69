//! Which processes are on which machine, as PMI-1 tells it (`PMI_process_mapping`):
//! `(vector,(0,2,4),(2,1,8))` has 4 processes on each of the machines 0 and 1, then 8 on machine 2.
//! A list that is too short for the job begins again.

/// The ranks of the processes on the machine of this rank, in ascending order. `None` if the text
/// is no mapping.
pub(super) fn neighbours(mapping: &str, rank: u32, size: u32) -> Option<Vec<u32>> {
    let blocks = blocks(mapping)?;
    let machines = blocks.iter().cycle().flat_map(|block| {
        let machines = block.first..block.first + block.machines;
        machines.flat_map(|machine| std::iter::repeat_n(machine, block.processes as usize))
    });
    let machines: Vec<u32> = machines.take(size as usize).collect();
    let own = machines.get(rank as usize)?;
    let ranks = (0..size).zip(&machines).filter(|(_, machine)| *machine == own);
    Some(ranks.map(|(rank, _)| rank).collect())
}

/// Consecutive machines, each with as many processes of consecutive ranks.
struct MachineBlock {
    first: u32,
    machines: u32,
    processes: u32,
}

/// Each block has at least one process, so a list of them comes to an end.
fn blocks(mapping: &str) -> Option<Vec<MachineBlock>> {
    let inside = mapping.strip_prefix("(vector,(")?.strip_suffix("))")?;
    let block = |text: &str| {
        let mut numbers = text.split(',').map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let block = MachineBlock { first: next()?, machines: next()?, processes: next()? };
        let has_end = block.first.checked_add(block.machines).is_some();
        let is_some = has_end && block.machines > 0 && block.processes > 0;
        (numbers.next().is_none() && is_some).then_some(block)
    };
    inside.split("),(").map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mapping: &str, rank: u32, size: u32) -> Vec<u32> {
        neighbours(mapping, rank, size).unwrap()
    }

    #[test]
    fn launchers_divide_ranks_in_blocks_or_in_turns() {
        let blocks = "(vector,(0,2,4),(2,1,8))";
        assert_eq!(of(blocks, 5, 16), [4, 5, 6, 7]);
        assert_eq!(of(blocks, 8, 14), [8, 9, 10, 11, 12, 13], "the last machine has fewer");
        // Slurm describes `-m cyclic` like this, and MPICH `-n 3` on one machine.
        let turns = "(vector,(0,2,1),(0,2,1))";
        assert_eq!((of(turns, 0, 4), of(turns, 3, 4)), (vec![0, 2], vec![1, 3]));
        assert_eq!(of("(vector,(0,1,1))", 2, 3), [0, 1, 2]);
    }

    #[test]
    fn what_is_no_mapping_tells_nothing() {
        for garbled in [
            "",
            "unknown",
            "(vector)",
            "(vector,())",
            "(vector,(0,1))",
            "(vector,(0,1,1,1))",
            "(vector,(0,0,1))",
            "(vector,(0,4294967295,0))",
            "(vector,(0,1,-1))",
            "(vector,(0,1,1),)",
        ] {
            assert_eq!(neighbours(garbled, 0, 4), None, "{garbled}");
        }
        let whole = "(vector,(4294967295,4294967295,4294967295))";
        assert_eq!(neighbours(whole, 0, 4), None, "there are no such machines");
        assert_eq!(of("(vector,(0,4294967295,4294967295))", 3, 4), [0, 1, 2, 3]);
        assert_eq!(neighbours("(vector,(0,1,4))", 4, 4), None, "there is no such rank");
    }
}
