//! ^C: the rows so far are printed, the exit status is 130, and no process is left.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process_group};
use serde_json::Value;
use tagmatch_testkit::process::{Signal, send_signal};

use common::{Server, children, command, eventually, lives, text};

fn start(line: &str) -> Child {
    start_command(command(line))
}

fn start_command(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // In a process group of its own, which a terminal's ^C would reach.
    command.process_group(0).spawn().unwrap()
}

/// Sends the signals that ^C at a terminal sends.
fn interrupt(child: &Child) {
    kill_process_group(Pid::from_child(child), Signal::INT).unwrap();
}

/// How the command ended: status, standard output, standard error.
fn end(mut child: Child, mut out: impl Read) -> (Option<i32>, String, String) {
    let mut first_line = String::new();
    let mut errors = String::new();
    out.read_to_string(&mut first_line).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (child.wait().unwrap().code(), first_line, errors)
}

/// Standard output of a command that is interrupted some time after its second process was started.
fn interrupted(line: &str) -> String {
    let mut child = start(line);
    let out = child.stdout.take().unwrap();
    assert!(eventually(|| children(child.id()).len() == 1));
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    let (status, said, errors) = end(child, out);
    assert_eq!(status, Some(130), "{errors}");
    said
}

#[test]
fn rows_so_far_are_told() {
    for line in [
        "lat --sizes 8,16,32 --duration 400ms",
        "bibw --sizes 8,16,32 --duration 400ms",
        "lat --sizes 8,16,32 --duration 400ms --threads 2",
        "lat --sizes 8,16,32 --duration 400ms --rate 1k",
        "rate --sizes 8,16,32 --duration 400ms --self",
        "depth --drain --depths 8,16,32 --duration 400ms",
    ] {
        let mut child = start(line);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        // After the first row the others are still to be measured.
        let mut head = String::new();
        while !head
            .lines()
            .last()
            .is_some_and(|line| line.trim_start().starts_with(char::is_numeric))
            && !head.lines().last().is_some_and(|line| line.trim_start().starts_with("posted   "))
        {
            assert_ne!(out.read_line(&mut head).unwrap(), 0, "{line}: {head}");
        }
        let second = children(child.id());
        interrupt(&child);
        let (status, rest, errors) = end(child, out);
        assert_eq!(status, Some(130), "{line}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{line}: {errors}");
        assert!(errors.contains("interrupted"), "{line}: {errors}");
        assert!(rest.contains("# interrupted "), "{line}: {rest}");
        assert!(rest.contains("# matched "), "{line}: {rest}");
        assert!(second.into_iter().all(|pid| !lives(pid)), "{line}");
    }
}

#[test]
fn json_is_whole_and_marked() {
    let line = interrupted("lat --sizes 8 --duration 60s --warmup 0 --json -");
    let document: Value = serde_json::from_str(&line).unwrap();
    assert!(line.ends_with(",\"interrupted\":true}\n"), "{line}");
    // On a busy machine it may not have reached the first batch.
    let rows = document["results"].as_array().unwrap();
    for row in rows {
        assert_eq!((&row["interrupted"], &row["samples"]), (&true.into(), &row["iters"]));
    }
    let iters: u64 = rows.iter().map(|row| row["iters"].as_u64().unwrap()).sum();
    assert_eq!(document["matching"]["posted"], 2 * iters);
    // A command that is not interrupted does not say so.
    let whole = common::json("lat --sizes 8 --iters 5 --json -");
    assert!(whole.get("interrupted").is_none() && whole["results"][0].get("interrupted").is_none());
}

#[test]
fn the_tour_keeps_the_tests_so_far() {
    let line = interrupted("--json -");
    let documents: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(documents.as_array().unwrap().last().unwrap()["interrupted"], true);
}

#[test]
fn a_server_goes_on() {
    let mut server = Server::start("");
    let mut child = start_command(server.client_command("lat --sizes 8 --duration 60s"));
    let out = child.stdout.take().unwrap();
    assert!(eventually(|| children(server.child.id()).len() == 1));
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    let (status, said, errors) = end(child, out);
    assert_eq!(status, Some(130), "{errors}");
    assert!(said.contains("# interrupted "), "{said}");
    // For the server this client was served like any other.
    let line = server.logged();
    assert!(line.contains("served, "), "{line}");
    assert!(eventually(|| children(server.child.id()).is_empty()));
    let output = server.client("lat --sizes 8 --iters 5");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_server_is_told_good_bye_in_a_set_up_too() {
    let mut server = Server::start("--once");
    // A million messages are under way for seconds before the measurement begins.
    let deep = "lat --sizes 8 --unexpected-depth 1M --posted-depth 1M";
    let mut child = start_command(server.client_command(deep));
    let out = child.stdout.take().unwrap();
    assert!(eventually(|| children(server.child.id()).len() == 1));
    std::thread::sleep(Duration::from_millis(700));
    interrupt(&child);
    let (status, said, errors) = end(child, out);
    assert_eq!(status, Some(130), "{errors}");
    assert!(said.contains("# interrupted "), "{said}");
    let line = server.logged();
    assert!(line.contains("served, "), "{line}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_one_ends_at_once() {
    let mut child = start("lat --sizes 8 --duration 60s");
    let out = child.stdout.take().unwrap();
    assert!(eventually(|| children(child.id()).len() == 1));
    let second = children(child.id())[0];
    std::thread::sleep(Duration::from_millis(300));
    // The other side does not answer any more, so the first ^C has no effect.
    send_signal(second, Signal::STOP);
    std::thread::sleep(Duration::from_millis(100));
    send_signal(child.id(), Signal::INT);
    std::thread::sleep(Duration::from_millis(50));
    // timeout(1) sends one ^C twice: to the process and to its group.
    send_signal(child.id(), Signal::INT);
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the other side");
    send_signal(child.id(), Signal::INT);
    let (status, _, errors) = end(child, out);
    assert_eq!(status, Some(130), "{errors}");
    assert!(eventually(|| !lives(second)), "nobody is left, not even one that is stopped");
}
