//! Output on a terminal, with colours and progress, and in a pipe, without.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use common::{command, eventually, text};

const LAT: &str = "lat --sizes 8,64 --duration 250ms";

/// The output of a command whose standard output and error are one terminal.
fn on_a_terminal(args: &str, environment: &[(&str, &str)]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let other = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = command(args);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    command.envs(environment.iter().copied());
    command.stdout(other.try_clone().unwrap()).stderr(other);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut lines = Vec::new();
    let mut chunk = [0; 4096];
    let mut terminal = File::from(terminal);
    // When the last of the other ends is closed, reading fails (EIO).
    while let Ok(read) = terminal.read(&mut chunk) {
        if read == 0 {
            break;
        }
        lines.extend_from_slice(&chunk[..read]);
    }
    assert!(child.wait().unwrap().success(), "{args}");
    String::from_utf8_lossy(&lines).into_owned()
}

/// Colours are "select graphic rendition", the escapes that end with `m`.
fn has_colour(said: &str) -> bool {
    said.split("\u{1b}[").skip(1).any(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
    })
}

#[test]
fn a_terminal_has_colours_and_progress_unless_told_otherwise() {
    let stdout = on_a_terminal(LAT, &[]);
    assert!(has_colour(&stdout), "{stdout:?}");
    assert!(stdout.contains("lat 64 B") && stdout.contains("1/2"), "no progress in {stdout:?}");
    let output_text = on_a_terminal(LAT, &[("NO_COLOR", "1")]);
    assert!(!has_colour(&output_text), "{output_text:?}");
    assert!(output_text.contains("1/2"), "no progress in {output_text:?}");
    // Set to nothing counts as not set (no-color.org).
    assert!(has_colour(&on_a_terminal(LAT, &[("NO_COLOR", "")])));
    let output_text = on_a_terminal(LAT, &[("TERM", "dumb")]);
    assert!(!output_text.contains('\u{1b}'), "{output_text:?}");
}

#[test]
fn help_and_info_obey_as_well() {
    for args in ["--help", "lat --help", "info"] {
        let output_text = on_a_terminal(args, &[("NO_COLOR", "1")]);
        assert!(!has_colour(&output_text), "{args}: {output_text:?}");
    }
    assert!(has_colour(&on_a_terminal("info", &[])));
}

#[test]
fn a_launched_process_has_no_colours_even_on_a_terminal() {
    // Open MPI's ranks write to terminals of their own, whose output may go to a file.
    for launcher in ["PMI_FD", "PMIX_NAMESPACE"] {
        let output_text = on_a_terminal("info", &[(launcher, "99")]);
        assert!(!output_text.contains('\u{1b}'), "{launcher}: {output_text:?}");
    }
}

#[test]
fn rows_for_machines_have_no_colour_anywhere() {
    for form in ["--csv", "--osu"] {
        let output_text = on_a_terminal(&format!("lat --sizes 8 --iters 50 {form}"), &[]);
        assert!(!has_colour(&output_text), "{form}: {output_text:?}");
    }
}

#[test]
fn a_pipe_has_neither() {
    for args in [LAT, "lat --sizes 8 --iters 100 --histogram", "info", "rate --iters 100"] {
        let output = command(args).env("TERM", "xterm-256color").output().unwrap();
        assert_eq!(text(&output.stderr), "", "{args}");
        assert!(!text(&output.stdout).contains(['\u{1b}', '\r']), "{args}");
        assert!(output.status.success());
    }
}

#[test]
fn a_reader_that_takes_one_line_hears_no_complaint() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/traces/hpcc-rank0of6.trace");
    for args in [
        "lat --sizes 0..64 --iters 100".to_owned(),
        "lat --sizes 0..64 --iters 100 --csv".into(),
        "lat --sizes 0..64 --iters 100 --osu".into(),
        "lat --sizes 0..64 --iters 100 --json-stream".into(),
        "lat --sizes 0..64 --iters 100 --histogram".into(),
        "rate --duration 1500ms --json-stream".into(),
        "lat --sizes 8 --iters 100 --json -".into(),
        format!("replay {trace}"),
        format!("replay {trace} --matches -"),
        "info".into(),
        "--help".into(),
        "compare --help".into(),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tagperf"))
            .args(args.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "{args}: {line}");
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{args}");
        assert_eq!(output.status.code(), Some(0), "{args}");
    }
}

#[test]
fn a_stream_that_nobody_reads_ends_the_measurement() {
    let mut child = command("lat --sizes 8 --duration 3600s --json-stream")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"record\":\"start\""), "{line}");
    let ended = eventually(|| child.try_wait().unwrap().is_some());
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    assert!(ended, "it measures for nobody");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn a_file_is_whole_whoever_reads_the_rows() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("nobody-reads.json");
    for form in ["--csv", "--osu", "--json-stream"] {
        let args = format!("lat --sizes 8,16 --duration 1200ms {form} --json {}", file.display());
        let mut child = command(&args).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{form}");
        let document: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(document["results"].as_array().unwrap().len(), 2, "{form}");
        std::fs::remove_file(&file).unwrap();
    }
}
