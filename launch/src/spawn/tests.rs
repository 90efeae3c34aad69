use std::os::unix::ffi::OsStringExt;

use super::request::PmiRequest;
use super::*;
use crate::wire::WireError;

fn read(text: &str) -> Result<PmiRequest, WireError> {
    PmiRequest::read(&mut text.as_bytes())
}

fn spawn(words: &[&str], size: u32) -> Spawn {
    Spawn { command: words.iter().map(OsString::from).collect(), size }
}

#[test]
fn a_request_parses_as_it_was_built() {
    let wanted = spawn(&["a b", "", "c=d", " é\t'\" ", "-n"], 3);
    let lines = wanted.to_lines("w=1", None).unwrap();
    let PmiRequest::Spawn(request) = read(&lines).unwrap() else { panic!("{lines}") };
    assert_eq!(request.spawn, wanted);
    assert_eq!(request.values, [(PARENT_KEY.to_owned(), "w=1".to_owned())]);
    assert_eq!((request.infos, request.commands, request.command), (0, 1, 1));
    let lines = wanted.to_lines("w", Some("a-secret")).unwrap();
    let PmiRequest::Spawn(request) = read(&lines).unwrap() else { panic!("{lines}") };
    let passed = [(PARENT_KEY, "w"), (PARENT_SECRET_KEY, "a-secret")];
    assert_eq!(request.values, passed.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert!(matches!(read("cmd=init\n"), Ok(PmiRequest::Line(line)) if line.command() == "init"));
}

#[test]
fn a_command_that_lines_cannot_carry_is_refused() {
    for (words, size) in [(&[][..], 1), (&["a"], 0), (&["a"], u32::MAX), (&["a"; 901], 1)] {
        let refused = spawn(words, size).to_lines("w", None);
        assert!(matches!(refused, Err(SpawnError::OutOfRange { .. })), "{size} {}", words.len());
    }
    for word in ["a\nb", "a\0", "endcmd", "the-endcmd"] {
        let refused = spawn(&["a", word], 1).to_lines("w", None);
        assert!(matches!(refused, Err(SpawnError::Argument { .. })), "{word:?}");
    }
    let refused = spawn(&["", "a"], 1).to_lines("w", None);
    assert!(matches!(refused, Err(SpawnError::Argument { .. })));
    let bytes = OsString::from_vec(vec![0xff]);
    let refused = Spawn { command: vec![bytes], size: 1 }.to_lines("w", None);
    assert!(matches!(refused, Err(SpawnError::Argument { .. })));
    let refused = spawn(&["a", &"b".repeat(BYTES_MAX)], 1).to_lines("w", None);
    assert!(matches!(refused, Err(SpawnError::TooLong { .. })));
}

#[test]
fn strings_for_spawned_processes_are_bounded() {
    check_word(&"w".repeat(WORD_BYTES_MAX)).unwrap();
    let long = "w".repeat(WORD_BYTES_MAX + 1);
    for word in ["", "a b", "a\n", "é", "\u{7f}", "endcmd", &long] {
        let error = check_word(word).unwrap_err().to_string();
        assert!(!error.contains(char::is_control), "{error}");
    }
    assert!(check_word("a b").unwrap_err().to_string().contains("`a b`"));
}

const GOOD: &str = "mcmd=spawn\nnprocs=2\nexecname=x\ntotspawns=1\nspawnssofar=1\narg1=y\nargcnt=1\n\
                    preput_num=1\npreput_key_0=k\npreput_val_0=v\ninfo_num=0\nendcmd\n";

#[test]
fn a_malformed_request_is_an_error() {
    assert!(matches!(read(GOOD), Ok(PmiRequest::Spawn(_))));
    for line in GOOD.lines().skip(1).filter(|l| !l.contains("_num") && *l != "endcmd") {
        let without = GOOD.replace(&format!("{line}\n"), "");
        assert!(matches!(read(&without), Err(WireError::Field { .. })), "without {line}");
    }
    for (right, wrong) in [
        ("nprocs=2", "nprocs=-1"),
        ("nprocs=2", "nprocs=99999999999"),
        ("argcnt=1", "argcnt=4294967295"),
        ("argcnt=1", "argcnt=2"),
        ("preput_num=1", "preput_num=4294967295"),
        ("info_num=0", "info_num=x"),
    ] {
        let changed = read(&GOOD.replace(right, wrong));
        assert!(matches!(changed, Err(WireError::Field { .. })), "{wrong}: {changed:?}");
    }
    for wrong in ["no value", "nprocs=3", "", "a=\0", "mcmd=spawn\nmcmd=spawn"] {
        let changed = read(&GOOD.replace("info_num=0", wrong));
        assert!(matches!(changed, Err(WireError::Garbage { .. })), "{wrong:?}: {changed:?}");
    }
    let bytes = GOOD.replace("arg1=y", "arg1=é").into_bytes();
    let broken: Vec<u8> = bytes.into_iter().filter(|&byte| byte != 0xc3).collect();
    assert!(matches!(PmiRequest::read(&mut &*broken), Err(WireError::Garbage { .. })));
    assert!(matches!(read(&GOOD.replace("endcmd\n", "")), Err(WireError::Closed)));
    assert!(matches!(read("mcmd=other\n"), Err(WireError::Garbage { .. })));
}

/// For every value of one byte, and for every length.
#[test]
fn a_garbled_request_is_an_error_or_another_request() {
    for at in 0..GOOD.len() {
        let mut bytes = GOOD.as_bytes().to_vec();
        assert!(PmiRequest::read(&mut &bytes[..at]).is_err(), "{at}");
        for byte in [0, b'\n', b' ', b'=', b'-', b'0', b'9', 0xff] {
            bytes[at] = byte;
            if let Ok(PmiRequest::Spawn(request)) = PmiRequest::read(&mut &*bytes) {
                assert!(
                    request.spawn.command.len() <= 10 && request.values.len() <= 1,
                    "{request:?}"
                );
            }
        }
    }
}

#[test]
fn a_request_is_bounded() {
    let many: String = (0..BYTES_MAX).map(|key| format!("{key}=\n")).collect();
    let long = format!("a={}\n", "b".repeat(BYTES_MAX));
    for endless in [many, long] {
        let read = read(&format!("mcmd=spawn\n{endless}"));
        assert!(matches!(read, Err(WireError::TooLong { max: BYTES_MAX })), "{read:?}");
    }
}
