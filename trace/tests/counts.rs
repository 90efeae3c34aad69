//! The counts of a run's observers, and the texts of errors.

use tagmatch_trace::{
    DepthCounter, FidelityCounter, Id, IndexedLists, OpResult, Trace, TraceOp, run,
};

fn parse(lines: &str) -> Result<Trace, String> {
    Trace::parse(format!("tagtrace 1\n{lines}").as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn depths_and_matches_of_each_kind_are_counted() {
    let trace = parse(
        "msg 1 0 0 1 10\nmsg 2 0 0 2 20\nmsg 3 0 0 3 30\n\
         recv 4 0 0 1 5\n\
         mprobe 5 0 0 2\nmrecv 5 7\n\
         mprobe 6 0 0 9\nprobe 0 0 9\nprobe 0 0 3\n\
         recv 7 0 0 8 0\nrecv 8 0 0 9 0\ncancel 7\ncancel 7\n\
         msg 9 0 0 9 0\nrecv 10 0 0 7 3\nmsg 11 0 0 7 4\n\
         msg 12 0 0 6 5\n",
    )
    .unwrap();
    let mut depths = DepthCounter::new(&trace);
    let mut seen = Vec::new();
    let pass = run(&trace, IndexedLists::default(), u64::MAX, |op, result| {
        depths.see(op, result);
        seen.push(depths.depths());
        Ok::<_, ()>(())
    });
    pass.unwrap();
    let expected = [
        (0, 1),
        (0, 2),
        (0, 3), // three messages wait
        (0, 2), // one is received, truncated
        (0, 1),
        (0, 1), // one is probed, and received
        (0, 1),
        (0, 1),
        (0, 1), // probes that miss, and one that finds
        (1, 1),
        (2, 1),
        (1, 1),
        (1, 1), // two receives, of which one is cancelled, and again late
        (0, 1),
        (1, 1),
        (0, 1), // both are met, the second one truncated
        (0, 2), // one more waits, and fewer bytes than once
    ];
    assert_eq!(seen, expected);
    let matches = depths.matches;
    assert_eq!((matches.posted, matches.unexpected), (2, 2));
    assert_eq!((matches.truncated, matches.cancelled, matches.late), (3, 1, 1));
    assert_eq!((depths.probes, depths.probes_missed), (4, 2));
    assert_eq!(depths.unexpected_bytes_max(), 60);
    let (posted, unexpected) = depths.summaries();
    assert_eq!((posted.searches, posted.max), (6, 1));
    assert_eq!((unexpected.searches, unexpected.max), (8, 3));
}

/// A trace that tells what the program did: with ids of messages and receives, or none.
fn recorded(trace: &mut Trace, outcomes: &[Option<u32>]) {
    trace.recorded = Some(outcomes.iter().map(|outcome| outcome.map(Id)).collect());
}

#[test]
fn each_outcome_is_compared_with_the_recorded_one() {
    let lines = "msg 1 0 0 1 0\nrecv 2 0 0 1 0\nrecv 3 0 0 2 0\ncancel 3\ncancel 3\n\
                 msg 4 0 0 5 0\nprobe 0 0 5\nmprobe 5 0 0 5\nmrecv 5 0\n\
                 recv 6 0 0 8 0\nmsg 7 0 0 8 0\n";
    let mut trace = parse(lines).unwrap();
    assert_eq!(FidelityCounter::new(&trace).fidelity(), None);
    // By position: none; the first message; none; the second receive; too late; none; the second
    // message, twice; what is not compared; none; the last receive.
    let right =
        [None, Some(0), None, Some(2), None, None, Some(3), Some(3), Some(77), None, Some(5)];
    let compare = |outcomes: &[Option<u32>], trace: &mut Trace| {
        recorded(trace, outcomes);
        let mut counter = FidelityCounter::new(trace);
        let pass = run(trace, IndexedLists::default(), u64::MAX, |op, result| {
            counter.see(op, result);
            Ok::<_, ()>(())
        });
        pass.unwrap();
        let fidelity = counter.fidelity().unwrap();
        (fidelity.compared, fidelity.differing, fidelity.first)
    };
    assert_eq!(compare(&right, &mut trace), (10, 0, 0));
    for at in [0, 1, 2, 3, 4, 5, 6, 7, 9, 10] {
        let mut wrong = right;
        wrong[at] = Some(78);
        assert_eq!(compare(&wrong, &mut trace), (10, 1, at as u64 + 1), "operation {at}");
    }
    assert_eq!(compare(&[Some(78); 8], &mut trace), (8, 8, 1));
}

#[test]
fn messages_that_are_lost_are_compared_too() {
    let mut trace = parse("msg 1 0 0 1 0\n").unwrap();
    let op = TraceOp::Lost { msg: Id(0) };
    for (lost, differing) in [(Some(Id(0)), 0), (None, 1)] {
        recorded(&mut trace, &[Some(0)]);
        let mut counter = FidelityCounter::new(&trace);
        counter.see(&op, Some(OpResult::Lost { msg: lost }));
        let fidelity = counter.fidelity().unwrap();
        assert_eq!((fidelity.compared, fidelity.differing), (1, differing));
    }
}

#[test]
fn an_error_names_what_is_there_and_what_would_be_right() {
    let error = |lines: &str| parse(lines).unwrap_err();
    let unknown = "id 9 is unknown; field 2 must be the id of a recv above";
    assert!(error("cancel 9\n").contains(unknown), "{}", error("cancel 9\n"));
    for (lines, found) in [
        ("msg 1 0 0 0 0\ncancel 1\n", "id 1 is a msg; field 2 must be the id of a recv"),
        ("mprobe 1 0 0 0\ncancel 1\n", "id 1 is a mprobe; field 2 must be the id of a recv"),
        ("recv 1 0 0 0 0\nmrecv 1 0\n", "id 1 is a recv; field 2 must be the id of an unused"),
        ("mprobe 1 0 0 0\nmrecv 1 0\nmcancel 1\n", "id 1 is used up by an mrecv or mcancel"),
    ] {
        assert!(error(lines).contains(found), "{lines}: {}", error(lines));
    }
    // A receive may be cancelled again and again.
    assert!(parse("recv 1 0 0 0 0\ncancel 1\ncancel 1\n").is_ok());
    for (header, found) in [
        ("tagtrace 9", "`tagtrace 9`"),
        ("tagtrace x", "`tagtrace x`"),
        ("tagtrace ", "`tagtrace `"),
        (&"y".repeat(32), &format!("`{}`", "y".repeat(32))),
        (&"y".repeat(33), &format!("`{}...`", "y".repeat(32))),
    ] {
        let error = Trace::parse(header.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(found), "{header}: {error}");
    }
    let of = |header: &str| Trace::parse(header.as_bytes()).unwrap_err().to_string();
    assert_eq!(of("tagtrace 9").replace('9', "?"), of("tagtrace 8").replace('8', "?"));
    assert_ne!(of("tagtrace 9").replace('9', "?"), of("tagtrace x").replace('x', "?"));
    assert_eq!(of("tagtrace x").replace('x', ""), of("tagtrace "), "no number, so no version");
}

/// Ids may be of any size and in any order.
#[test]
fn ids_are_found_again_whatever_their_size() {
    let numbers = [0, 1, 1023, 1024, 1027, 1028, 5000, u64::from(u32::MAX), u64::MAX, 7];
    let mut lines = String::new();
    for number in numbers {
        lines += &format!("recv {number} 0 0 0 0\n");
    }
    for number in numbers {
        lines += &format!("cancel {number}\n");
        let twice = format!("{lines}recv {number} 0 0 0 0\n");
        assert!(parse(&twice).unwrap_err().contains(&format!("{number}")));
    }
    let trace = parse(&lines).unwrap();
    let cancels = trace.ops[numbers.len()..].iter();
    let ids: Vec<Id> = cancels
        .map(|op| match op {
            TraceOp::Cancel { recv } => *recv,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, (0..10).map(Id).collect::<Vec<_>>());
}
