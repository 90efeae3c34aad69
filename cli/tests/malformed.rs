//! Malformed traces: exit status 2, an error that names the line, and no line of matches.

use std::path::Path;
use std::process::{Command, Output};

use tagmatch_testkit::scratch::Scratch;
use tagmatch_trace::Trace;

fn tagperf(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tagperf")).args(args).output().unwrap()
}

/// The line with the mistake, and a trace's text after its header.
const OPERATIONS: &[(u64, &[u8])] = &[
    // Unknown operations.
    (2, b"message 1 0 0 0 0\n"),
    (2, b"MSG 1 0 0 0 0\n"),
    (2, b"msg1 0 0 0 0\n"),
    (2, b"1\n"),
    (2, b"*\n"),
    (2, b"tagtrace 1\n"),
    (3, b"\nmatch 1 2\n"),
    (5, b"# one\n\n \t \nnothing\n"),
    // Too few or too many fields.
    (2, b"msg\n"),
    (2, b"msg 1 0 0 0\n"),
    (2, b"msg 1 0 0 0 # 0\n"),
    (2, b"msg 1 0 0 0 0 0\n"),
    (2, b"msg 1 0 0 0 0 0 0 0 0 0 0\n"),
    (2, b"recv 1 0 0 0\n"),
    (2, b"recv 1 0 0 0 0 x\n"),
    (3, b"recv 1 0 0 0 0\ncancel\n"),
    (3, b"recv 1 0 0 0 0\ncancel 1 1\n"),
    (2, b"probe 0 0\n"),
    (2, b"probe 0 0 0 0\n"),
    (2, b"mprobe 1 0 0\n"),
    (2, b"mprobe 1 0 0 0 0\n"),
    (3, b"mprobe 1 0 0 0\nmrecv 1\n"),
    (3, b"mprobe 1 0 0 0\nmrecv 1 2 3\n"),
    (3, b"mprobe 1 0 0 0\nmcancel\n"),
    (3, b"mprobe 1 0 0 0\nmcancel 1 0\n"),
    // Fields that are not numbers, or not plain decimal.
    (2, b"msg 01 0 0 0 0\n"),
    (2, b"msg 00 0 0 0 0\n"),
    (2, b"msg +1 0 0 0 0\n"),
    (2, b"msg -1 0 0 0 0\n"),
    (2, b"msg -0 0 0 0 0\n"),
    (2, b"msg 0x1 0 0 0 0\n"),
    (2, b"msg 1e3 0 0 0 0\n"),
    (2, b"msg 1. 0 0 0 0\n"),
    (2, b"msg 1_0 0 0 0 0\n"),
    (2, b"msg 1, 0 0 0 0\n"),
    (2, b"msg a 0 0 0 0\n"),
    (2, b"msg \xd9\xa1 0 0 0 0\n"),
    (2, b"recv 1 0 0 0 08\n"),
    (3, b"mprobe 1 0 * *\nmrecv 1 007\n"),
    // Out of range.
    (2, b"msg 18446744073709551616 0 0 0 0\n"),
    (2, b"msg 99999999999999999999999999999999999999999 0 0 0 0\n"),
    (2, b"msg 1 65536 0 0 0\n"),
    (2, b"msg 1 0 16777216 0 0\n"),
    (2, b"msg 1 0 0 16777216 0\n"),
    (2, b"msg 1 0 0 0 18446744073709551616\n"),
    (2, b"recv 1 65536 0 0 0\n"),
    (2, b"recv 1 0 16777216 * 0\n"),
    (2, b"recv 1 0 * 16777216 0\n"),
    (2, b"recv 1 0 * * 18446744073709551616\n"),
    (2, b"probe 65536 * *\n"),
    (2, b"mprobe 1 0 4294967296 *\n"),
    (3, b"mprobe 1 0 * *\nmrecv 1 18446744073709551616\n"),
    // Wildcards where none is allowed, and fields that are almost wildcards.
    (2, b"msg * 0 0 0 0\n"),
    (2, b"msg 1 * 0 0 0\n"),
    (2, b"msg 1 0 * 0 0\n"),
    (2, b"msg 1 0 0 * 0\n"),
    (2, b"msg 1 0 0 0 *\n"),
    (2, b"recv 1 * 0 0 0\n"),
    (2, b"recv 1 0 0 0 *\n"),
    (2, b"recv 1 0 ** 0 0\n"),
    (2, b"recv 1 0 *0 0 0\n"),
    (2, b"recv 1 0 -1 0 0\n"),
    (2, b"probe * 0 0\n"),
    (2, b"mprobe * 0 0 0\n"),
    // Ids that are defined twice.
    (3, b"msg 1 0 0 0 0\nmsg 1 0 0 0 0\n"),
    (3, b"recv 1 0 0 0 0\nrecv 1 0 0 0 0\n"),
    (3, b"msg 1 0 0 0 0\nrecv 1 0 0 0 0\n"),
    (3, b"recv 1 0 0 0 0\nmsg 1 0 0 0 0\n"),
    (3, b"msg 1 0 0 0 0\nmprobe 1 0 0 0\n"),
    (3, b"mprobe 1 0 0 0\nmsg 1 0 0 0 0\n"),
    (4, b"mprobe 1 0 0 0\nmcancel 1\nmprobe 1 0 0 0\n"),
    (4, b"recv 1 0 0 0 0\ncancel 1\nrecv 1 0 0 0 0\n"),
    (3, b"msg 18446744073709551615 0 0 0 0\nmsg 18446744073709551615 0 0 0 0\n"),
    // Ids that are not defined, are defined as something else, or are used up.
    (2, b"cancel 1\nrecv 1 0 0 0 0\n"),
    (3, b"recv 1 0 0 0 0\ncancel 2\n"),
    (3, b"msg 1 0 0 0 0\ncancel 1\n"),
    (3, b"mprobe 1 0 0 0\ncancel 1\n"),
    (2, b"mrecv 1 0\n"),
    (2, b"mcancel 1\n"),
    (3, b"msg 1 0 0 0 0\nmrecv 1 0\n"),
    (3, b"recv 1 0 0 0 0\nmcancel 1\n"),
    (4, b"mprobe 1 0 0 0\nmrecv 1 0\nmrecv 1 0\n"),
    (4, b"mprobe 1 0 0 0\nmrecv 1 0\nmcancel 1\n"),
    (4, b"mprobe 1 0 0 0\nmcancel 1\nmrecv 1 0\n"),
    (4, b"mprobe 1 0 0 0\nmcancel 1\nmcancel 1\n"),
    // Bytes that are not text, wrong blanks, wrong line ends.
    (2, b"msg 1 0 0 0 0\x00\n"),
    (2, b"\x00\n"),
    (2, b"\xff\xfe\n"),
    (2, b"msg\xc2\xa01 0 0 0 0\n"),
    (2, b"msg\x0b1 0 0 0 0\n"),
    (2, b"\xef\xbb\xbfmsg 1 0 0 0 0\n"),
    (2, b"msg 1 0 0 0 0\r"),
    (2, b"msg 1 0 0 0 0\r\r\n"),
    (2, b"msg 1 0 0 0 0\rmsg 2 0 0 0 0\n"),
    (2, b"msg 1 0 0\r 0 0\n"),
    (2, b"\r\r\n"),
    (3, b"\r\n\r"),
    (2, b"# old line ends\rmsg 1 0 0 0 0\r"),
    (2, b"# \xff\n"),
    (3, b"msg 1 0 0 0 0\nmsg 2 0 0 0 0 # \xc3\n"),
    (2, b"# \x00\n"),
    (2, b"msg 1 0 0 0 0 ; a comment\n"),
    (2, b"msg 1 0 0 0 0 // a comment\n"),
];

/// Whole files whose line 1 is not the header.
const HEADERS: &[&[u8]] = &[
    b"",
    b"\n",
    b"\r\n",
    b"\ntagtrace 1\n",
    b"# a comment\ntagtrace 1\n",
    b"tagtrace\n",
    b"tagtrace 0\n",
    b"tagtrace 3\n",
    b"tagtrace 10\n",
    b"tagtrace 01\n",
    b"tagtrace 1.0\n",
    b"tagtrace  1\n",
    b"tagtrace\t1\n",
    b" tagtrace 1\n",
    b"tagtrace 1 \n",
    b"tagtrace 1 # of mine\n",
    b"Tagtrace 1\n",
    b"tagtrace 1\r",
    b"tagtrace 1\r\r\n",
    b"tagtrace 1\0\n",
    b"\xef\xbb\xbftagtrace 1\n",
    b"msg 1 0 0 0 0\n",
    b"\x7fELF\x02\x01\x01",
];

fn cases() -> Vec<(u64, Vec<u8>)> {
    let mut cases: Vec<_> = HEADERS.iter().map(|text| (1, text.to_vec())).collect();
    for (line, text) in OPERATIONS {
        let text = [b"tagtrace 1\n", *text].concat();
        // Lines after the mistake change nothing, unless they make a CR a part of a CRLF.
        if text.ends_with(b"\n") {
            cases.push((*line, [&text[..], b"\nmsg 77 0 0 0 0\nbad\n"].concat()));
        }
        cases.push((*line, text));
    }
    cases
}

#[test]
fn every_mistake_names_its_line() {
    for (line, text) in cases() {
        let shown = String::from_utf8_lossy(&text).into_owned();
        let error = Trace::parse(&text[..]).expect_err(&shown);
        assert_eq!(error.line(), Some(line), "{shown:?}: {error}");
        let error = error.to_string();
        assert!(!error.contains(char::is_control), "{shown:?}: {error:?}");
        let right = ["must be", "expected"];
        assert!(right.iter().any(|right| error.contains(right)), "{shown:?}: {error}");
    }
}

#[test]
fn the_command_refuses_them_and_prints_no_match() {
    let scratch = Scratch::new("malformed");
    // These operations before the mistake have matches, which must not be printed.
    let some = b"msg 900 0 0 0 0\nrecv 901 0 * * 0\nprobe 0 * *\n";
    for (number, (line, text)) in OPERATIONS.iter().enumerate() {
        let text = [b"tagtrace 1\n", &some[..], text].concat();
        let path = scratch.file(&format!("{number}.trace"), &text);
        let output = tagperf(&["replay", &path, "--matches", "-"]);
        assert_eq!(output.status.code(), Some(2), "{}", text.escape_ascii());
        assert_eq!(output.stdout, b"", "{}", text.escape_ascii());
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.starts_with(&format!("{path}:{}: ", line + 3)), "{message}");
        assert!(message.ends_with('\n') && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn a_malformed_trace_leaves_the_files_alone() {
    let scratch = Scratch::new("untouched");
    let trace = scratch.file("bad.trace", b"tagtrace 1\nmsg 1 0 0 0 0\nmsg 1 0 0 0 0\n");
    let old = scratch.file("old.matches", b"kept\n");
    let new = scratch.path("new.matches");
    for out in [&old, &new] {
        for option in ["--matches", "--json"] {
            let output = tagperf(&["replay", &trace, option, out]);
            assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]));
        }
    }
    assert_eq!(std::fs::read(&old).unwrap(), b"kept\n");
    assert!(!Path::new(&new).exists());
}

#[test]
fn files_that_cannot_be() {
    let scratch = Scratch::new("files");
    let trace = scratch.file("good.trace", b"tagtrace 1\nmsg 1 0 0 0 0\n");
    let missing = &*scratch.path("missing/x");
    let directory = &scratch.path("");
    let within = |name: &str| scratch.path(name);
    let again = within("./good.trace");
    let new = within("new");
    let also_new = within("../files/new");
    let link = within("link");
    let chart = within("new.svg");
    std::os::unix::fs::symlink("new", &link).unwrap();
    for args in [
        &["replay", missing][..],
        &["replay", directory],
        &["replay", &trace, "--matches", missing],
        &["replay", &trace, "--matches", directory],
        &["replay", &trace, "--json", missing],
        &["replay", &trace, "--matches", &trace],
        &["replay", &trace, "--json", &again],
        &["replay", &trace, "--matches", "-", "--json", "-"],
        &["replay", &trace, "--matches", &new, "--json", &new],
        &["replay", &trace, "--matches", &new, "--json", &also_new],
        &["replay", &trace, "--matches", &new, "--json", &link],
        &["replay", &trace, "--json", &chart, "--plot", &chart],
        &["replay"],
        &["replay", "-", "-"],
        &["replay", &trace, &trace, "--matches", "-"],
        &["replay", &trace, &trace, "--plot", &chart],
        &["replay", &trace, "--nosuch"],
    ] {
        let output = tagperf(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(output.stdout, b"", "{args:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1, "{args:?}");
    }
    assert_eq!(std::fs::read(&trace).unwrap(), b"tagtrace 1\nmsg 1 0 0 0 0\n");
    assert!(!Path::new(&new).exists() && !Path::new(&chart).exists());
}

#[test]
fn output_goes_where_it_was_asked_to() {
    let scratch = Scratch::new("output");
    let trace = scratch.file("good.trace", b"tagtrace 1\nmsg 1 0 0 0 5\nrecv 2 0 * * 4");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();

    let output = tagperf(&["replay", &trace]);
    assert!(text(output.stdout).contains("verdict") && output.stderr.is_empty());

    let output = tagperf(&["replay", &trace, "--matches", "-"]);
    assert_eq!(text(output.stdout), "match 2 1 truncated\n");
    assert!(text(output.stderr).contains("verdict"));

    let output = tagperf(&["replay", &trace, "--json", "-"]);
    let json = text(output.stdout);
    assert!(json.starts_with("{\"schema\":1,\"tool\":\"tagperf\",\"version\":"), "{json}");
    assert!(json.contains("\"test\":\"replay\"") && json.ends_with("}\n"), "{json}");
    assert_eq!((json.lines().count(), output.stderr.len()), (1, 0));

    let file = scratch.path("out");
    let output = tagperf(&["replay", &trace, "--matches", &file]);
    assert_eq!(std::fs::read(file).unwrap(), b"match 2 1 truncated\n");
    assert!(text(output.stdout).contains("verdict") && output.stderr.is_empty());
    assert_eq!(output.status.code(), Some(0));

    let empty = scratch.file("empty.trace", b"tagtrace 1");
    let output = tagperf(&["replay", &empty]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(output.stdout).contains("nothing to match"));

    let full = tagperf(&["replay", &trace, "--matches", "/dev/full"]);
    assert_eq!((full.status.code(), text(full.stderr).lines().count()), (Some(1), 1));
}
