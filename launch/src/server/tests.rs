use super::*;
use crate::spawn::Spawn;

fn say(server: &mut Server, rank: u32, line: &str) -> Result<Vec<(u32, String)>, Violation> {
    match server.handle_line(rank, &PmiLine::parse(line.as_bytes()).unwrap())? {
        Action::Reply(replies) => {
            Ok(replies.into_iter().map(|r| (r.to, r.line.trim_end().to_owned())).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn joined(size: u32) -> Server {
    let mut server = Server::new(size, "k", []);
    for rank in 0..size {
        let answer = say(&mut server, rank, "cmd=init pmi_version=1 pmi_subversion=1").unwrap();
        assert!(answer[0].1.ends_with("rc=0"), "{answer:?}");
    }
    server
}

fn answer(server: &mut Server, rank: u32, line: &str) -> String {
    let replies = say(server, rank, line).unwrap();
    assert_eq!((replies.len(), replies[0].0), (1, rank), "{replies:?}");
    replies[0].1.clone()
}

#[test]
fn a_process_gets_the_value_that_another_has_put() {
    let mut server = joined(2);
    let put = "cmd=put kvsname=k key=a value=b=c";
    assert_eq!(answer(&mut server, 0, put), "cmd=put_result rc=0 msg=success");
    assert_eq!(say(&mut server, 0, "cmd=barrier_in").unwrap(), []);
    let out = "cmd=barrier_out".to_owned();
    let both = say(&mut server, 1, "cmd=barrier_in").unwrap();
    assert_eq!(both, [(0, out.clone()), (1, out)]);
    let got = answer(&mut server, 1, "cmd=get kvsname=k key=a");
    assert_eq!(got, "cmd=get_result rc=0 msg=success value=b=c");
    let got = answer(&mut server, 1, "cmd=get kvsname=k key=PMI_process_mapping");
    assert!(got.ends_with("value=(vector,(0,1,2))"), "{got}");
    assert_eq!(answer(&mut server, 1, "cmd=finalize"), "cmd=finalize_ack");
    assert!(!server.is_joined(1) && server.is_joined(0));
}

#[test]
fn a_value_is_news_once_and_again_when_another_one_replaces_it() {
    let mut server = joined(1);
    server.keep_news();
    for value in ["1", "2", "2"] {
        answer(&mut server, 0, &format!("cmd=put kvsname=k key=a value={value}"));
        assert_eq!(server.take_news(), [("a".to_owned(), value.to_owned())]);
        assert_eq!(server.take_news(), []);
    }
}

#[test]
fn dead_processes_are_listed_and_not_waited_for() {
    let mut server = joined(5);
    for rank in [0, 3] {
        assert_eq!(say(&mut server, rank, "cmd=barrier_in").unwrap(), []);
    }
    assert_eq!(server.ended(1, true), []);
    assert_eq!(server.ended(2, true), []);
    let out = server.ended(4, true);
    assert_eq!(out.iter().map(|reply| reply.to).collect::<Vec<_>>(), [0, 3]);
    let dead = answer(&mut server, 0, "cmd=get kvsname=k key=PMI_dead_processes");
    assert!(dead.ends_with(" value=1-2,4"), "{dead}");
    // Another barrier, among the processes that are left.
    assert_eq!(say(&mut server, 0, "cmd=barrier_in").unwrap(), []);
    assert_eq!(say(&mut server, 3, "cmd=finalize").unwrap().len(), 2);
}

#[test]
fn a_process_that_ends_without_joining_is_not_dead_and_not_waited_for() {
    let mut server = Server::new(2, "k", []);
    say(&mut server, 0, "cmd=init pmi_version=1").unwrap();
    assert_eq!(say(&mut server, 0, "cmd=barrier_in").unwrap(), [], "rank 1 may still join");
    assert_eq!(server.ended(1, false).len(), 1);
    let dead = answer(&mut server, 0, "cmd=get kvsname=k key=PMI_dead_processes");
    assert!(dead.ends_with(" value="), "{dead}");
}

#[test]
fn invalid_requests_are_refused() {
    let mut server = joined(1);
    let long = "x".repeat(KEY_MAX);
    for put in [
        "kvsname=other key=a value=b",
        "kvsname=k key=a",
        "kvsname=k value=b",
        "kvsname=k key= value=b",
        "kvsname=k key=PMI_dead_processes value=0",
        &format!("kvsname=k key={long} value=b"),
    ] {
        let answer_line = answer(&mut server, 0, &format!("cmd=put {put}"));
        assert!(answer_line.starts_with("cmd=put_result rc=-1 msg="), "{put}: {answer_line}");
    }
    for get in ["kvsname=k key=none", "kvsname=other key=a", "kvsname=k"] {
        let answer_line = answer(&mut server, 0, &format!("cmd=get {get}"));
        assert!(answer_line.starts_with("cmd=get_result rc=-1 msg="), "{get}: {answer_line}");
    }
    assert!(matches!(say(&mut server, 0, "cmd=spawn"), Err(Violation::Unknown(_))));
    assert!(matches!(say(&mut server, 0, "cmd=init"), Err(Violation::OutOfTurn(_))));
    assert!(matches!(say(&mut server, 7, "cmd=init"), Err(Violation::OutOfTurn(_))));
    say(&mut server, 0, "cmd=finalize").unwrap();
    assert!(matches!(say(&mut server, 0, "cmd=barrier_in"), Err(Violation::OutOfTurn(_))));

    let mut server = Server::new(1, "k", []);
    let early = say(&mut server, 0, "cmd=get_maxes");
    assert!(matches!(early, Err(Violation::OutOfTurn(_))));
    assert!(answer(&mut server, 0, "cmd=init pmi_version=2").ends_with("rc=-1"));
    assert!(!server.is_joined(0));
}

#[test]
fn the_number_of_values_is_bounded() {
    let mut server = joined(1);
    let put = |server: &mut Server, key: usize| {
        answer(server, 0, &format!("cmd=put kvsname=k key={key} value=b"))
    };
    for key in 0..VALUES_MAX_PER_PROCESS {
        assert!(put(&mut server, key).contains("rc=0"));
    }
    assert!(put(&mut server, VALUES_MAX_PER_PROCESS).contains("rc=-1 msg=too_many_keys"));
    assert!(put(&mut server, 0).contains("rc=0"), "this key exists");
}

fn request(size: u32, values: &[(&str, &str)]) -> SpawnRequest {
    let values = values.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
    let spawn = Spawn { command: vec!["a".into()], size };
    SpawnRequest { spawn, values: values.collect(), infos: 0, commands: 1, command: 1 }
}

#[test]
fn a_spawned_job_finds_the_values_of_the_request() {
    let mut server = joined(2);
    let asked = request(3, &[("a", "b"), ("c", "")]);
    assert_eq!(server.handle_spawn(1, asked.clone()).unwrap(), Action::Spawn(asked.clone()));
    assert_eq!(spawn_result(1, None).line, "cmd=spawn_result rc=0\n");
    let mut new = Server::new(asked.spawn.size, "new", asked.values);
    say(&mut new, 2, "cmd=init pmi_version=1").unwrap();
    assert!(answer(&mut new, 2, "cmd=get kvsname=new key=a").ends_with(" value=b"));
    assert!(answer(&mut new, 2, "cmd=get kvsname=new key=c").ends_with(" value="));
    assert!(
        answer(&mut new, 2, "cmd=get kvsname=k key=a").contains("rc=-1"),
        "the new job has other keys"
    );
    // The old job goes on.
    assert!(answer(&mut server, 1, "cmd=get kvsname=k key=a").contains("rc=-1"));
}

#[test]
fn invalid_spawn_requests_are_refused() {
    let mut server = joined(1);
    let long = "x".repeat(VALUE_MAX);
    let several = |command| SpawnRequest { commands: 2, command, ..request(1, &[]) };
    for (refused, why) in [
        (request(0, &[]), "can't_spawn_0_processes_of"),
        (request(u32::MAX, &[]), "can't_spawn_4294967295_processes"),
        (request(1, &[("PMI_dead_processes", "0")]), "reserved_key"),
        (request(1, &[("a", "b"), ("", "b")]), "too_long"),
        (request(1, &[("a", &long)]), "too_long"),
        (request(1, &[("a", "b c")]), "invalid_character"),
        (request(1, &[("a\r", "b")]), "invalid_character"),
        (SpawnRequest { infos: 1, ..request(1, &[]) }, "infos"),
        (SpawnRequest { commands: 0, ..request(1, &[]) }, "a_job_with_several"),
        (several(2), "a_job_with_several"),
    ] {
        let Action::Reply(replies) = server.handle_spawn(0, refused).unwrap() else {
            panic!("{why}")
        };
        assert_eq!((replies.len(), replies[0].to), (1, 0));
        let reply = &replies[0].line;
        assert!(reply.starts_with(&format!("cmd=spawn_result rc=-1 msg={why}")), "{reply}");
    }
    assert_eq!(server.handle_spawn(0, several(1)).unwrap(), Action::Reply(vec![]));
    // Any reason of a refusal fits into a valid line.
    for why in ["no\nsuch file", "é\0", &"x ".repeat(5000)] {
        let stdout = spawn_result(0, Some(why)).line;
        assert!(stdout.len() <= wire::WRITTEN_BYTES_MAX, "{stdout}");
        PmiLine::parse(stdout.strip_suffix('\n').unwrap().as_bytes()).unwrap();
    }
}

#[test]
fn only_a_joined_process_may_spawn() {
    let out_of_turn = |server: &mut Server, rank| {
        matches!(server.handle_spawn(rank, request(1, &[])), Err(Violation::OutOfTurn(_)))
    };
    assert!(out_of_turn(&mut Server::new(1, "k", []), 0), "silent");
    let mut server = joined(2);
    say(&mut server, 0, "cmd=barrier_in").unwrap();
    assert!(out_of_turn(&mut server, 0), "it waits");
    say(&mut server, 1, "cmd=finalize").unwrap();
    assert!(out_of_turn(&mut server, 1), "it has left");
    assert!(out_of_turn(&mut server, 2), "there is none");
}

#[test]
fn an_abort_carries_its_exit_status() {
    let mut server = joined(1);
    let abort = PmiLine::parse(b"cmd=abort exitcode=7").unwrap();
    assert_eq!(server.handle_line(0, &abort).unwrap(), Action::Abort(7));
    let garbled = PmiLine::parse(b"cmd=abort exitcode=99999").unwrap();
    assert_eq!(server.handle_line(0, &garbled).unwrap(), Action::Abort(1));
}
