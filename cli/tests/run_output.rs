//! `tagperf run`: output that is read slowly, or not at all, or that can't be written.

#[path = "common/agents.rs"]
mod agents;
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tagmatch_testkit::process::{Signal, send_signal};

use agents::{HERE, Place, are_gone};
use common::{command, eventually, text};

/// Waits for the end of a launcher.
fn ended(run: &mut Child) -> ExitStatus {
    let mut status = None;
    assert!(eventually(|| {
        status = run.try_wait().unwrap();
        status.is_some()
    }));
    status.unwrap()
}

/// Rank 0 prints for ever, and has started another process; rank 1 sleeps. Each writes the numbers
/// of its processes.
const PRINTING: &str =
    "if [ $PMI_RANK = 1 ]; then echo $$ > $0/1.new; mv $0/1.new $0/1; exec sleep 600; fi
    sleep 600 & echo $$ $! > $0/0.new; mv $0/0.new $0/0; exec yes";

impl Place {
    /// Starts two ranks that play [`PRINTING`], and returns the numbers of their processes.
    fn printing(&self, mut run: Command) -> (Child, Vec<u32>) {
        let run = run.args(["-n", "2", "--", "sh", "-c", PRINTING]).arg(&*self.0).spawn().unwrap();
        let files = ["0", "1"].map(|name| self.0.join(name));
        assert!(eventually(|| files.iter().all(|file| file.exists())));
        let texts = files.map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            fs::remove_file(file).unwrap();
            text
        });
        let pids = texts.iter().flat_map(|text| text.split_whitespace());
        (run, pids.map(|pid| pid.parse().unwrap()).collect())
    }
}

#[test]
fn a_run_ends_when_nobody_reads_its_output_any_more() {
    let place = Place::new("head", HERE);
    let here = |options: &str| {
        let mut run = command(&format!("run {options}"));
        run.stdout(Stdio::piped()).stderr(Stdio::piped());
        run
    };
    for run in [
        place.run("--hosts one,two"),
        place.run("--hosts one,two --keep-going --label"),
        here("--label"),
        here(""),
    ] {
        let (mut run, pids) = place.printing(run);
        let mut line = String::new();
        // The output is closed after this line.
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.ends_with("y\n"), "{line}");
        assert_eq!(ended(&mut run).code(), Some(128 + 13));
        assert!(are_gone(&pids));
    }
}

#[test]
fn a_run_whose_output_is_not_read_can_be_ended() {
    let place = Place::new("blocked", HERE);
    for signal in [Signal::INT, Signal::TERM] {
        // Output and errors are one pipe, as with `2>&1 | less`.
        let (read, write) = std::io::pipe().unwrap();
        let mut run = place.run("--hosts one,two");
        run.stdout(write.try_clone().unwrap()).stderr(write);
        let (mut run, pids) = place.printing(run);
        // Until the pipe is full.
        std::thread::sleep(Duration::from_millis(500));
        send_signal(run.id(), signal);
        ended(&mut run);
        assert!(are_gone(&pids));
        drop(read);
    }
}

/// `ssh` makes its standard error non-blocking.
#[test]
fn an_agent_does_what_it_likes_to_its_standard_error() {
    let agent = format!("dd if=/dev/null oflag=nonblock >&2 2> /dev/null; echo hello >&2\n{HERE}");
    let place = Place::new("nonblocking", &agent);
    let (mut read, write) = std::io::pipe().unwrap();
    let mut run = place.run("-n 1 --hosts one");
    run.stdout(write.try_clone().unwrap()).stderr(write);
    let script = "yes 0123456789012345678901234567890 | head -c 320000";
    let mut child = run.args(["--", "sh", "-c", script]).spawn().unwrap();
    drop(run);
    // Until the pipe is full.
    std::thread::sleep(Duration::from_millis(500));
    let mut bytes = Vec::new();
    read.read_to_end(&mut bytes).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", text(&bytes[bytes.len() - 200..]));
    assert_eq!(text(&bytes).lines().filter(|line| line.starts_with('0')).count(), 10_000);
    assert!(text(&bytes).contains("hello\n"));
}

#[test]
fn a_slow_reader_gets_all_output() {
    let place = Place::new("slow", HERE);
    for mut run in [place.run("-n 1 --hosts one"), {
        let mut run = command("run -n 1 --label");
        run.stdout(Stdio::piped());
        run
    }] {
        let script = "yes 0123456789012345678901234567890 | head -c 320000";
        let mut run = run.args(["--", "sh", "-c", script]).spawn().unwrap();
        let mut output = run.stdout.take().unwrap();
        let mut bytes = vec![0; 32 << 10];
        let mut count = 0;
        // The rank ends while much is still to be read.
        loop {
            match output.read(&mut bytes).unwrap() {
                0 => break,
                read => count += bytes[..read].iter().filter(|&&byte| byte == b'\n').count(),
            }
            if count > 4_000 {
                std::thread::sleep(Duration::from_millis(600));
            }
        }
        assert_eq!((count, run.wait().unwrap().code()), (10_000, Some(0)));
    }
}
