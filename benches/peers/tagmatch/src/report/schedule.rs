//! The next turn of a run: one that is short of samples at the distance of this moment.

use super::record::{Distance, Record, Turn};

/// A distance occurs if this share of all probed samples was taken there.
const OCCURS_SHARE: f64 = 0.05;

/// The next step of a run.
#[derive(PartialEq, Debug)]
pub(crate) enum Next<'a> {
    Turn {
        program: &'a str,
        group: &'a str,
    },
    /// Nothing is short of samples at this distance, but at another one that occurs.
    Wait,
    Done,
}

pub(crate) fn next(record: &Record) -> Next<'_> {
    let now = record.samples.iter().rev().find_map(|s| s.distance.filter(|d| *d != Distance::Any));
    let short_here = record.turns.iter().filter(|turn| match now {
        Some(now) => is_short(record, turn, now),
        None => !turn.failed,
    });
    // Programs take turns: the one whose turn was the longest ago is next.
    let last_run = |turn: &&Turn| {
        record.samples.iter().rposition(|s| s.program == turn.program && s.group == turn.group)
    };
    if let Some(turn) = short_here.min_by_key(last_run) {
        return Next::Turn { program: &turn.program, group: &turn.group };
    }
    let is_short_at = |distance| record.turns.iter().any(|turn| is_short(record, turn, distance));
    if occurring(record).into_iter().any(is_short_at) { Next::Wait } else { Next::Done }
}

/// The distances that occur in this run, the nearest first.
pub(crate) fn occurring(record: &Record) -> Vec<Distance> {
    let count =
        |distance| record.samples.iter().filter(|s| s.distance == Some(distance)).count() as f64;
    let probed = record.samples.len() as f64 - count(Distance::Any);
    let occurs = |d: &Distance| *d != Distance::Any && count(*d) > OCCURS_SHARE * probed;
    Distance::ALL.into_iter().filter(occurs).collect()
}

/// Whether a case has too few samples at `distance`. What does not depend on the distance is
/// measured at whichever one it is.
fn is_short(record: &Record, turn: &Turn, distance: Distance) -> bool {
    let count =
        |distance, case| record.samples_of(distance, &turn.program, &turn.group, case).count();
    !turn.failed
        && turn.cases.iter().any(|case| {
            let name = &case.name;
            count(distance, name) + count(Distance::Any, name) < turn.enough
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "plan\tlatency\ttagmatch\t2\tlatency:8:exact:exact:0:9\n\
                        plan\tlatency\tucx\t2\tlatency:8:exact:exact:0:9\n\
                        plan\tmemory\tucx\t1\tposted:5\n";

    fn samples(of: &[(&str, u32)]) -> String {
        let line = |(program, ns): &(&str, u32)| match ns {
            0 => format!("result\t{program}\tmemory\tposted:5\t9\t9\t9\t1\t0\t0\n"),
            _ => format!(
                "result\t{program}\tlatency\tlatency:8:exact:exact:0:9\t1\t1\t1\t5\t{ns}\t{ns}\n"
            ),
        };
        of.iter().map(line).collect()
    }

    fn after(lines: &str) -> String {
        match next(&Record::parse(&format!("{PLAN}{lines}")).unwrap()) {
            Next::Turn { program, group } => format!("{program} {group}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn whoever_is_short_at_this_distance_is_next() {
        assert_eq!(after(""), "tagmatch latency");
        assert_eq!(after(&samples(&[("tagmatch", 47)])), "ucx latency");
        assert_eq!(after(&samples(&[("tagmatch", 47), ("ucx", 47)])), "ucx memory");
        let all = [("tagmatch", 47), ("ucx", 47), ("ucx", 0), ("tagmatch", 47), ("ucx", 47)];
        assert_eq!(after(&samples(&all)), "Done");
        assert_eq!(after(&samples(&all[..4])), "ucx latency");
        // Samples at another distance don't count here.
        let moved = samples(&[("ucx", 130)]);
        assert_eq!(after(&(samples(&all) + &moved)), "tagmatch latency");
        assert_eq!(after(&(samples(&all) + &moved + &samples(&all[..1]))), "Wait");
    }

    #[test]
    fn a_turn_that_failed_and_a_distance_that_hardly_occurs_are_left_out() {
        let failed = "failed\tucx\tall\tno UCX\n";
        assert_eq!(after(failed), "tagmatch latency");
        let enough: Vec<_> = [("tagmatch", 47)].repeat(30);
        assert_eq!(after(&(failed.to_owned() + &samples(&enough))), "Done");
        let rare = samples(&[("tagmatch", 18)]) + &samples(&enough);
        assert_eq!(after(&(failed.to_owned() + &rare)), "Done");
    }
}
