//! `--device tcp`: the tests over TCP, and the secret that both ends of `serve` must know.
//!
//! Two network namespaces stand for two machines, which needs root: `ci/test tcp`, with
//! `--ignored`.

mod common;
#[path = "common/machines.rs"]
mod machines;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use common::{Server, json, measured, printed, refused, tagperf, text, with_secret};
use machines::{ADDRESSES, Machines};

const FEW: &str = "--iters 50 --warmup 5 --json -";
const SECRET: &str = "the secret of these tests";

#[test]
fn every_test() {
    for args in [
        "lat --sizes 0,8,64K,1M",
        "bw --sizes 8,64K --completions queue",
        "bibw --sizes 8,64K",
        "rate --threads 2",
        "depth --drain --depths 64 --order random",
        "lat --sizes 4K --hw-tags model",
        "lat --sizes 8 --idle-peers 3",
    ] {
        // Both processes are the command's, so it makes a secret for them.
        let document =
            measured(&format!("{args} {FEW} --device tcp:127.0.0.1"), "tcp:127.0.0.1", 50);
        assert_eq!(document["matching"]["hardware"].as_u64() > Some(0), args.contains("model"));
    }
    let document = json("barrier -n 3 --device tcp --iters 20 --warmup 2 --json -");
    assert_eq!(document["device"], "tcp");
    assert!(refused("lat --sizes 8 --device tcp --hw-tags emu").contains("--device verbs"));
    assert!(refused("lat --device tcp:a/b").contains("tcp:eth0"));
    let output = tagperf("lat --sizes 8 --device tcp:nosuch0");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("no interface nosuch0") && !message.contains("TcpConfig"),
        "{message}"
    );
}

/// A measurement failed, with one line that says why.
fn failed(output: &Output, why: &str) {
    let error_text = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error_text}");
    assert!(error_text.contains(why) && error_text.lines().count() == 1, "{error_text}");
}

#[test]
fn both_ends_of_serve_prove_that_they_know_the_secret() {
    let server = Server::of(with_secret(Some(SECRET), "serve --port 0"));
    assert!(!server.next.contains(SECRET), "a secret of the environment is not shown");
    let client = |secret, more: &str| {
        let lat = format!("lat 127.0.0.1:{} --sizes 8 {FEW} {more}", server.port);
        with_secret(secret, &lat).output().unwrap()
    };
    let measured = client(Some(SECRET), "--device tcp");
    assert_eq!(measured.status.code(), Some(0), "{}", text(&measured.stderr));
    failed(&client(Some("another secret, as long"), ""), "another secret");
    failed(&client(None, ""), "TAGMATCH_SECRET");
    // A client that doesn't prove itself gets no answer to a hello.
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(b"{\"hello\":{\"tagperf\":7,\"version\":\"0\",\"boot_id\":\"\"}}\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("{\"refused\":") && !answer.contains("hello"), "{answer}");
    let log = server.log();
    assert_eq!(log.matches("not let in: ").count(), 2, "each reason once: {log}");
    assert!(log.contains("another secret") && !log.contains(SECRET), "{log}");
}

#[test]
fn silent_connections_hold_up_no_client_and_refusals_are_logged_once() {
    let mut server = Server::of(with_secret(Some(SECRET), "serve --port 0"));
    let connect = || TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    // More than are handled at a time. They say nothing.
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    let lat = format!("lat 127.0.0.1:{} --sizes 8 {FEW}", server.port);
    let measured = with_secret(Some(SECRET), &lat).output().unwrap();
    assert_eq!(measured.status.code(), Some(0), "{}", text(&measured.stderr));
    drop(silent);
    for _ in 0..5 {
        let mut stranger = connect();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = stranger.read_to_string(&mut answer);
        assert!(answer.contains("TAGMATCH_SECRET"), "{answer}");
    }
    // The process that served the client logs it at its end.
    let mut log = String::new();
    while !log.contains("served, ") {
        let line = server.logged();
        assert_ne!(line, "", "{log}");
        log += &line;
    }
    log += &server.log();
    assert_eq!(log.matches("served, ").count(), 1, "{log}");
    assert_eq!(log.matches("its first bytes did not come").count(), 1, "{log}");
    assert_eq!(log.matches("not let in: ").count(), 2, "{log}");
}

#[test]
fn a_file_to_which_a_new_secret_is_printed_is_private() {
    let path = std::env::temp_dir().join(format!("tagperf-serve-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut serve = with_secret(None, "serve --port 0 --device tcp");
    let mut serve = serve.stdout(file).stderr(Stdio::null()).spawn().unwrap();
    let printed = loop {
        let printed = std::fs::read_to_string(&path).unwrap();
        if printed.lines().any(|line| line.starts_with("next: ") && line.ends_with("tcp")) {
            break printed;
        }
        assert!(serve.try_wait().unwrap().is_none(), "{printed}");
        std::thread::yield_now();
    };
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    std::fs::remove_file(&path).unwrap();
    let (_, typed) = printed.split_once("TAGMATCH_SECRET=").unwrap();
    let (secret, typed) = typed.trim_end().split_once(' ').unwrap();
    let typed = typed.strip_prefix("tagperf ").unwrap();
    let measured = with_secret(Some(secret), typed).args(FEW.split(' ')).output().unwrap();
    serve.kill().unwrap();
    serve.wait().unwrap();
    assert_eq!(measured.status.code(), Some(0), "{}", text(&measured.stderr));
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_client_without_the_secret_is_not_let_in_on_loopback_either() {
    let server = Server::of(with_secret(None, "serve --port 0"));
    let lat = format!("lat 127.0.0.1:{} --sizes 8 {FEW}", server.port);
    failed(&with_secret(Some(SECRET), &lat).output().unwrap(), "another secret");
    failed(&with_secret(None, &lat).output().unwrap(), "TAGMATCH_SECRET");
    let measured = with_secret(Some(server.secret()), &lat).output().unwrap();
    assert_eq!(measured.status.code(), Some(0), "{}", text(&measured.stderr));
    let over_tcp = with_secret(None, &format!("{lat} --device tcp")).output().unwrap();
    assert_eq!(over_tcp.status.code(), Some(2), "{}", text(&over_tcp.stderr));
    assert!(text(&over_tcp.stderr).contains("TAGMATCH_SECRET_FILE"));
    // A secret that can't be used is an error at once.
    let short = with_secret(Some("short"), &lat).output().unwrap();
    assert_eq!(short.status.code(), Some(2), "{}", text(&short.stderr));
    assert!(text(&short.stderr).contains("16 to 1024 bytes"));
}

#[test]
fn info_tells_where_tcp_listens_and_whether_there_is_a_secret() {
    let info = |secret| {
        let output = with_secret(secret, "info").output().unwrap();
        let stdout = text(&output.stdout).to_owned();
        let from_tcp = stdout.lines().skip_while(|line| !line.starts_with("tcp ")).take(6);
        from_tcp.collect::<Vec<_>>().join("\n")
    };
    let with_one = info(Some(SECRET));
    assert!(with_one.starts_with("tcp     yes "), "{with_one}");
    assert!(with_one.contains("secret: TAGMATCH_SECRET") && !with_one.contains(SECRET));
    assert!(info(None).contains("secret: none"), "{}", info(None));
    let unusable = info(Some("short"));
    assert!(unusable.starts_with("tcp     no ") && unusable.contains("next: "), "{unusable}");
}

#[test]
fn info_says_that_tcp_learns_nothing() {
    let output = with_secret(None, "info --learned --device tcp:127.0.0.1").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("tcp:127.0.0.1 learns nothing: "), "{stdout}");
}

#[test]
fn shared_memory_is_usable_beside_a_secret_that_is_not() {
    let output = with_secret(Some("short"), "info").output().unwrap();
    let output_text = text(&output.stdout);
    assert!(
        output_text.contains("\nshm     yes ") && output_text.contains("\nmodel   yes "),
        "{output_text}"
    );
    for more in ["", "--idle-peers 2", "--hw-tags model"] {
        let lat = with_secret(Some("short"), &format!("lat --sizes 8 {FEW} --device shm {more}"));
        let output = { lat }.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{more}: {}", text(&output.stderr));
    }
    // A device that takes the secret of all others takes no wrong one.
    let auto =
        with_secret(Some("short"), &format!("lat --sizes 8 {FEW} --device auto")).output().unwrap();
    assert!(text(&auto.stderr).contains("16 to 1024 bytes"), "{}", text(&auto.stderr));
}

#[test]
#[ignore = "needs root: ci/test tcp"]
fn between_two_machines_as_serve_says() {
    let machines = Machines::new();
    let there = ADDRESSES[1];
    let server = Server::of(machines.on(1, &format!("serve --bind {there}")));
    // The client is started as the line says that `serve` has printed.
    let (variable, typed) = server.next.split_once(' ').unwrap();
    let (name, secret) = variable.split_once('=').unwrap();
    assert_eq!((name, secret.len()), ("TAGMATCH_SECRET", 64));
    let typed = typed.strip_prefix("tagperf ").unwrap();
    assert_eq!(typed, format!("lat {there}:13338 --device tcp"));
    let client = |secret: &str| {
        let mut command = machines.on(0, &format!("{typed} --sizes 8,64K,1M {FEW}"));
        command.env(name, secret).output().unwrap()
    };
    let document = printed(&client(secret));
    assert_eq!(document["validated"], true);
    assert!(document["config"]["other_side"].as_str().unwrap().contains(there));
    failed(&client(&secret.replace(|digit: char| digit.is_ascii_digit(), "x")), "another secret");
    let without = machines.on(0, &format!("lat {there} --sizes 8 {FEW} --device verbs"));
    assert_ne!({ without }.output().unwrap().status.code(), Some(0));
}
