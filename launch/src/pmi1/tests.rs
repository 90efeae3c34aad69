use std::io::{BufRead, Read};
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;
use crate::spawn::Spawn;

/// Plays a launcher that gives these answers, one for each line it reads. Returns the lines it
/// read.
fn with_answers<T: Send>(
    answers: &[&str],
    client: impl FnOnce(File) -> T + Send,
) -> (T, Vec<String>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(move || client(File::from(OwnedFd::from(theirs))));
        let mut reader = BufReader::new(ours);
        let mut messages = Vec::new();
        for answer in answers {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 {
                break;
            }
            messages.push(line.trim_end().to_owned());
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
        reader.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        messages.extend(rest.lines().map(str::to_owned));
        (client.join().unwrap(), messages)
    })
}

const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
const KVSNAME: &str = "cmd=my_kvsname kvsname=kvs_1\n";

#[test]
fn a_session_of_hydra() {
    let answers = [
        INIT,
        MAXES,
        KVSNAME,
        "cmd=put_result rc=0 msg=success\n",
        "cmd=barrier_out\n",
        "cmd=get_result rc=0 msg=success value=00ff\n",
        "cmd=get_result rc=-1 msg=key_b_not_found value=unknown\n",
        "cmd=get_result rc=0 msg=success value=1,3-5\n",
        "cmd=finalize_ack\n",
    ];
    let (result, heard) = with_answers(&answers, |socket| {
        let mut pmi = Pmi1::open(socket, 1, 8)?;
        assert_eq!(pmi.kvsname(), "kvs_1");
        pmi.put("a", "00ff")?;
        pmi.barrier()?;
        assert_eq!(pmi.get("a")?.as_deref(), Some("00ff"));
        assert_eq!(pmi.get("b")?, None);
        assert_eq!(pmi.dead()?, [1, 3, 4, 5]);
        pmi.finalize()
    });
    result.unwrap();
    assert_eq!(heard[0], "cmd=init pmi_version=1 pmi_subversion=1");
    assert_eq!(heard[3], "cmd=put kvsname=kvs_1 key=a value=00ff");
    assert_eq!(heard[5], "cmd=get kvsname=kvs_1 key=a");
    assert_eq!(heard[8], "cmd=finalize");
}

const ROLE: &str = "TAGMATCH_LAUNCH_TEST_PARENT";

/// Tells what the environment's launcher would be asked for.
#[test]
fn role() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let answers = [INIT, MAXES, KVSNAME, "cmd=get_result rc=0 msg=success value=word\n"];
    let (parent, heard) = with_answers(&answers, |socket| Pmi1::open(socket, 0, 1)?.parent());
    println!("@{:?} {}", parent.unwrap(), heard.len());
}

#[test]
fn only_a_spawned_process_asks_for_its_parent() {
    for (spawned, told) in [("", "@None 3"), ("0", "@None 3"), ("1", "@Some(\"word\") 4")] {
        let mut command = std::process::Command::new(env::current_exe().unwrap());
        command.args(["--exact", "pmi1::tests::role", "--nocapture"]).env(ROLE, "1");
        command.env_remove("PMI_SPAWNED");
        if !spawned.is_empty() {
            command.env("PMI_SPAWNED", spawned);
        }
        let stdout = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(stdout.contains(told), "{spawned}: {stdout}");
    }
}

#[test]
fn a_process_that_connects_introduces_itself() {
    let answers = ["cmd=initack rc=0\ncmd=set size=3\ncmd=set rank=2\ncmd=set debug=0\n"];
    let answers = [answers[0], INIT, MAXES, KVSNAME];
    let introduce = |socket| Pmi1::introduce(socket, 7).map(|pmi| (pmi.rank(), pmi.size()));
    let (introduced, heard) = with_answers(&answers, introduce);
    assert_eq!(introduced.unwrap(), (2, 3));
    assert_eq!(heard[0], "cmd=initack pmiid=7");
    let beyond = ["cmd=initack\ncmd=set size=3\ncmd=set rank=3\ncmd=set debug=0\n"];
    let (refused, _) = with_answers(&beyond, |socket| Pmi1::introduce(socket, 7).map(drop));
    assert!(matches!(refused, Err(Pmi1Error::Field { field: "rank", .. })));
}

#[test]
fn a_spawn_request_has_the_lines_that_mpich_reads() {
    let spawn = Spawn { command: ["app", "-n", "a b"].map(Into::into).into(), size: 2 };
    let lines = spawn.to_lines("word", None).unwrap();
    for (answer, is_right) in
        [("cmd=spawn_result rc=0\n", true), ("cmd=spawn_result rc=-1 msg=no_such_file\n", false)]
    {
        let (result, heard) = with_answers(&[INIT, MAXES, KVSNAME, answer], |socket| {
            Pmi1::open(socket, 0, 1)?.spawn(&lines)
        });
        match result {
            Ok(()) => assert!(is_right),
            Err(error) => {
                assert!(!is_right && error.to_string().ends_with(": no_such_file"), "{error}");
            }
        }
        let expected = "mcmd=spawn nprocs=2 execname=app totspawns=1 spawnssofar=1 arg1=-n arg2=a b argcnt=2 \
                    preput_num=1 preput_key_0=TAGMATCH_PARENT preput_val_0=word info_num=0 endcmd";
        assert_eq!(heard[3..].join(" "), expected);
    }
}

#[test]
fn an_invalid_answer_of_the_launcher_is_an_error() {
    let open = |answers: &[&str]| {
        let (opened, _) = with_answers(answers, |socket| Pmi1::open(socket, 0, 1).map(drop));
        opened.unwrap_err()
    };
    assert!(matches!(open(&[]), Pmi1Error::Wire(WireError::Closed)));
    assert!(matches!(open(&["HTTP/1.1 400\n"]), Pmi1Error::Wire(WireError::Garbage { .. })));
    assert!(matches!(open(&[MAXES]), Pmi1Error::Answer { wanted: "response_to_init", .. }));
    let refused = open(&["cmd=response_to_init rc=-1\n"]);
    assert!(matches!(refused, Pmi1Error::Refused { asked: "init", .. }), "{refused}");
    let field = open(&[INIT, "cmd=maxes keylen_max=x vallen_max=9\n"]);
    assert!(matches!(field, Pmi1Error::Field { field: "keylen_max", .. }), "{field}");
    assert!(matches!(open(&[INIT, MAXES, "cmd=my_kvsname\n"]), Pmi1Error::Field { .. }));
}

#[test]
fn lengths_are_bounded_by_the_launcher_and_by_the_line() {
    let room = |socket| Pmi1::open(socket, 0, 1).map(|pmi| pmi.value_max(10));
    let (room, _) = with_answers(&[INIT, MAXES, KVSNAME], room);
    let room = room.unwrap();
    let line = wire::line(
        "put",
        &[("kvsname", "kvs_1"), ("key", &"k".repeat(10)), ("value", &"v".repeat(room))],
    );
    assert_eq!(line.unwrap().len(), wire::WRITTEN_BYTES_MAX);
    let small = "cmd=maxes kvsname_max=256 keylen_max=4 vallen_max=9\n";
    let (results, heard) = with_answers(&[INIT, small, KVSNAME], |socket| {
        let mut pmi = Pmi1::open(socket, 0, 1).unwrap();
        assert_eq!(pmi.value_max(3), 8);
        [pmi.put("long", "v"), pmi.put("k", "123456789")]
    });
    for (result, wrong) in results.iter().zip(["key", "value"]) {
        assert!(matches!(result, Err(Pmi1Error::TooLong { what, .. }) if *what == wrong));
    }
    assert_eq!(heard.len(), 3, "neither was sent");
}

#[test]
fn lists_of_ranks() {
    assert_eq!(ranks("", 4).unwrap(), []);
    assert_eq!(ranks("3,0-1,1", 4).unwrap(), [0, 1, 3]);
    for garbled in ["4", "x", "1-", "2-1", "0-4294967295", "-1"] {
        assert_eq!(ranks(garbled, 4), None, "{garbled}");
    }
}
