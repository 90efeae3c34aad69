//! `tagperf serve` with good and bad clients.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use tagmatch_testkit::scratch::Scratch;

use common::{Server, children, eventually, lives, text};

fn connect(server: &Server) -> TcpStream {
    let stream = server.proved();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// The server's answer to a client that sends `bytes`, until the server hangs up.
fn say(server: &Server, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    // The server may hang up before all bytes are sent.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn clients_one_after_the_other() {
    let mut server = Server::start("");
    for args in ["lat --sizes 0,8,64K --iters 50", "bw --sizes 8,64K --iters 50", "rate --iters 50"]
    {
        let output = server.client(args);
        assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("tagperf serve at 127.0.0.1"));
        let line = server.logged();
        assert!(line.contains("served, "), "{line}");
    }
    assert!(lives(server.child.id()));
}

#[test]
fn clients_that_come_at_once_wait_for_their_turn() {
    let server = Server::start("");
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..2).map(|_| scope.spawn(|| server.client("lat --sizes 8 --iters 5"))).collect();
        for client in clients {
            let output = client.join().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
    });
}

#[test]
fn once_is_once() {
    let mut server = Server::start("--once");
    // Neither of these is a client.
    drop(connect(&server));
    assert!(server.logged().contains("no client of tagperf"));
    say(&server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(server.logged().contains("no client of tagperf"));
    // A client that is refused does not count as served.
    let hello = "{\"hello\":{\"tagperf\":7,\"version\":\"0\",\"boot_id\":\"\"}}\n";
    let case = "{\"case\":{\"traffic\":\"stream\",\"size\":8,\"window\":0,\"batch\":8,\
               \"posted_depth\":0,\"unexpected_depth\":0,\"wildcard_percent\":0,\
               \"wildcard_recv\":false,\"validate\":true,\"address\":\"00\"}}\n";
    let mut refused = connect(&server);
    refused.write_all(format!("{hello}{case}").as_bytes()).unwrap();
    let mut answers = String::new();
    while !answers.contains("refused") {
        let mut chunk = [0; 4096];
        let read = refused.read(&mut chunk).unwrap();
        assert_ne!(read, 0, "{answers}");
        answers += text(&chunk[..read]);
    }
    drop(refused);
    assert!(server.logged().contains(": refused after 0 measurements: invalid window `0`"));
    // Nor does one that fails within a measurement.
    let mut failed = server
        .client_command("lat --sizes 8 --duration 60s")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(eventually(|| children(server.child.id()).len() == 1));
    std::thread::sleep(Duration::from_millis(300));
    failed.kill().unwrap();
    failed.wait().unwrap();
    let line = server.logged();
    assert!(line.contains("during a measurement") || line.contains("is down"), "{line}");
    let output = server.client("lat --sizes 8 --iters 50 --json -");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("{\"schema\":1,"));
    assert!(server.logged().contains(": served, 2 measurements"));
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn garbage_is_logged_in_one_line_and_ends_nothing() {
    let mut server = Server::start("");
    let deep = "[".repeat(50_000) + "\n";
    let long = "x".repeat(200_000);
    let hello = "{\"hello\":{\"tagperf\":7,\"version\":\"0\",\"boot_id\":\"\"}}\n";
    let other = "{\"hello\":{\"tagperf\":99,\"version\":\"9\\u001b[2J\",\"boot_id\":\"\"}}\n";
    let case = |what: &str| {
        let case = "{\"case\":{\"traffic\":\"stream\",\"size\":8,\"window\":4,\"batch\":8,\
                   \"posted_depth\":0,\"unexpected_depth\":0,\"wildcard_percent\":0,\
                   \"wildcard_recv\":false,\"validate\":true,\"address\":\"00\"}}\n";
        let (from, to) = what.split_once(" to ").unwrap();
        assert!(case.contains(from));
        format!("{hello}{}", case.replace(from, to))
    };
    for (bytes, answer) in [
        (&b"\n"[..], "refused"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", "refused"),
        (b"\0\0\0\0\n", "refused"),
        (b"{}\n", "refused"),
        (deep.as_bytes(), "refused"),
        (long.as_bytes(), ""),
        (other.as_bytes(), "tagperf 9"),
        (format!("{hello}{hello}").as_bytes(), "second hello"),
        (case("\"size\":8 to \"size\":1e12").as_bytes(), "refused"),
        (case("\"size\":8 to \"size\":-8").as_bytes(), "refused"),
        (case("\"size\":8 to \"size\":99999999999").as_bytes(), "size `99999999999`: expected 0 to"),
        (case("\"window\":4 to \"window\":0").as_bytes(), "window `0`: expected 1 to"),
        (case("\"batch\":8 to \"batch\":9999999").as_bytes(), "batch `9999999`: expected 1 to"),
        (case("\"posted_depth\":0 to \"posted_depth\":9999999").as_bytes(), "posted depth"),
        (case("\"unexpected_depth\":0 to \"unexpected_depth\":9999999").as_bytes(), "unexpected"),
        (case("\"wildcard_percent\":0 to \"wildcard_percent\":101").as_bytes(), "percent `101`"),
        (case("\"size\":8,\"window\":4,\"batch\":8 to \"size\":1073741824,\"window\":4,\"batch\":8")
            .as_bytes(), "4 GiB is the most"),
        (case("\"size\":8 to \"threads\":65,\"size\":8").as_bytes(), "threads `65`: expected 1 to"),
        (case("\"size\":8 to \"threads\":0,\"size\":8").as_bytes(), "threads `0`: expected 1 to"),
        (case("\"size\":8 to \"completions\":\"queue\",\"threads\":2,\"size\":8").as_bytes(),
            "use one thread"),
        (case("\"size\":8 to \"completions\":\"both\",\"size\":8").as_bytes(), "refused"),
        (case("\"size\":8 to \"idle_peers\":9999,\"size\":8").as_bytes(), "idle peers `9999`: expected 0 to"),
        (case("\"stream\" to {\"planned\":{\"interval_ps\":1}}").as_bytes(), "interval `1`: expected 1000 to"),
        (case("\"stream\" to {\"drain\":{\"queue\":\"posted\",\"order\":\"x\",\"seed\":1}}")
            .as_bytes(), "refused"),
        (case("\"validate\":true to \"validate\":true,\"device\":\"rdma\"").as_bytes(), "refused"),
        (case("\"validate\":true to \"validate\":true,\"device\":\"verbs:../../x\"").as_bytes(),
            "refused"),
        (case("\"validate\":true to \"validate\":true,\"device\":\"verbs:nosuch\"").as_bytes(),
            "verbs:nosuch: "),
        (case("\"validate\":true to \"validate\":true,\"pin\":99999").as_bytes(), "CPU 99999"),
        (case("\"address\":\"00\" to \"address\":\"zz\"").as_bytes(), "failed"),
    ] {
        // A client that hangs up after its last message may do so before the answer is written, so
        // it stays and reads the answer.
        let mut stream = connect(&server);
        let _ = stream.write_all(bytes);
        let mut first_line = String::new();
        let mut chunk = [0; 4096];
        while !first_line.contains(answer) || answer.is_empty() {
            match stream.read(&mut chunk) {
                Ok(read) if read > 0 => first_line += text(&chunk[..read]),
                _ => break,
            }
        }
        assert!(first_line.contains(answer), "{answer} in {first_line:?}");
        assert!(!first_line.chars().any(|c| c.is_control() && c != '\n'), "{first_line:?}");
        drop(stream);
        let line = server.logged();
        assert!(line.starts_with("tagperf serve: 127.0.0.1:"), "{line}");
        assert!(!line.trim_end().contains(char::is_control), "{line:?}");
    }
    let output = server.client("lat --sizes 8 --iters 50");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn connections_that_never_prove_themselves_keep_no_client_out() {
    let server = Server::start("");
    let connect = || TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    // One byte of a message, one byte of a proof, and none at all.
    let unproven: Vec<_> = (0..60)
        .map(|number| {
            let mut connection = connect();
            connection.write_all([b"{", &b"\x01"[..], b""][number % 3]).unwrap();
            connection
        })
        .collect();
    for _ in 0..3 {
        let output = server.client("lat --sizes 8 --iters 5");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    drop(unproven);
}

#[test]
fn one_client_at_a_time() {
    let mut server = Server::start("");
    let mut first = server
        .client_command("lat --duration 60s --sizes 8")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(eventually(|| children(server.child.id()).len() == 1));
    let output = server.client("lat --sizes 8 --iters 5");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("another client"), "{}", text(&output.stderr));
    assert!(server.logged().contains("turned away"));
    first.kill().unwrap();
    first.wait().unwrap();
    // Its process may take a moment to end; the next client waits for that.
    let output = server.client("lat --sizes 8 --iters 5");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // A silent client is not waited for for long.
    let _silent = connect(&server);
    let output = server.client("lat --sizes 8 --iters 5");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn neither_side_outlives_the_other() {
    let mut server = Server::start("");
    let measure = |server: &Server| {
        let client = server
            .client_command("lat --duration 60s --sizes 8")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(eventually(|| children(server.child.id()).len() == 1));
        std::thread::sleep(Duration::from_millis(300));
        (client, children(server.child.id())[0])
    };
    // The client is killed: its process exits, the server stays.
    let (mut client, peer) = measure(&server);
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(eventually(|| !lives(peer)));
    // Either the control channel or tagmatch may notice it first.
    let line = server.logged();
    assert!(line.contains("during a measurement") || line.contains("is down"), "{line}");
    // The process that serves the client is killed: the client fails, the server stays.
    let (mut client, peer) = measure(&server);
    common::kill(peer);
    assert_eq!(client.wait().unwrap().code(), Some(1));
    assert!(server.logged().contains("its process ended"));
    // The server is killed: all processes exit.
    let (mut client, peer) = measure(&server);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(eventually(|| !lives(peer)));
    assert_eq!(client.wait().unwrap().code(), Some(1));
}

/// A client whose process can't be started gives its turn back, so the next one is served at once.
#[test]
fn a_client_whose_process_cannot_be_started_holds_up_no_other() {
    let scratch = Scratch::new("unstarted");
    let program = scratch.join("tagperf");
    // By another process: a file that a thread's child has open for writing can't be executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_tagperf")).arg(&program).status();
    assert!(copied.unwrap().success());
    let allow = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
    let mut command = Command::new(&program);
    command.args(["serve", "--port", "0"]);
    command.env_remove("TAGMATCH_SECRET").env_remove("TAGMATCH_SECRET_FILE");
    let mut server = Server::of(command);
    // The server runs on, but its program can't be executed again.
    allow(0o600);
    let lat = "lat --sizes 8 --iters 50";
    assert_eq!(server.client(lat).status.code(), Some(1));
    let line = server.logged();
    assert!(line.contains("cannot start a process for it"), "{line}");
    allow(0o700);
    let output = server.client(lat);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(server.logged().contains("served, "));
}

#[test]
fn a_port_that_is_taken() {
    let server = Server::start("");
    let message = common::refused(&format!("serve --port {}", server.port));
    assert!(message.contains("cannot listen on 127.0.0.1"), "{message}");
    assert!(common::refused("serve --bind 192.0.2.1 --port 0").contains("; use "));
}
