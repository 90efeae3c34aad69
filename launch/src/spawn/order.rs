//! What a process says to its launcher: a line, or the lines of a `mcmd=spawn`.

use std::collections::HashMap;
use std::io::BufRead;

use super::{BYTES_MAX, COMMAND_WORDS_MAX, END, Spawn};
use crate::wire::{Line, READ_BYTES_MAX, WireError, read_line};

/// A command of PMI-1, of one line or of several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// `cmd=...`.
    Line(Line),
    /// `mcmd=spawn` to `endcmd`.
    Spawn(Order),
}

/// A `mcmd=spawn`, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// What is to be started: of a command, and of a size that may be out of bounds.
    pub spawn: Spawn,
    /// Values for the processes, with their keys.
    pub values: Vec<(String, String)>,
    /// How many infos stand beside the command, such as where it is to run.
    pub infos: u32,
    /// How many commands the new job has; the others come in orders of their own.
    pub commands: u32,
    /// Which of them this is, the first being 1.
    pub command: u32,
}

impl Request {
    /// Reads one. Blocks.
    ///
    /// # Errors
    /// The connection has ended, or what came is no command of PMI-1.
    pub fn read(from: &mut impl BufRead) -> Result<Self, WireError> {
        let line = read_line(from, READ_BYTES_MAX)?;
        if line != b"mcmd=spawn" {
            return Line::parse(&line).map(Self::Line);
        }
        let mut fields = HashMap::new();
        let mut left = BYTES_MAX;
        loop {
            let line = match read_line(from, left) {
                Err(WireError::TooLong { .. }) => {
                    return Err(WireError::TooLong { max: BYTES_MAX });
                }
                line => line?,
            };
            left -= line.len() + 1;
            if line == END.as_bytes() {
                return Order::parse(&fields).map(Self::Spawn);
            }
            let text = str::from_utf8(&line).ok().filter(|text| !text.contains('\0'));
            let Some((key, value)) = text.and_then(|text| text.split_once('=')) else {
                return Err(WireError::garbage(&line));
            };
            if fields.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(WireError::garbage(&line));
            }
        }
    }
}

impl Order {
    fn parse(fields: &HashMap<String, String>) -> Result<Self, WireError> {
        let text = |key: &str| fields.get(key).ok_or(WireError::Field { field: key.to_owned() });
        let number = |key: &str| {
            let number = text(key)?.parse::<u32>();
            number.map_err(|_| WireError::Field { field: key.to_owned() })
        };
        let optional = |key: &str| if fields.contains_key(key) { number(key) } else { Ok(0) };
        let arguments = number("argcnt")?;
        if arguments as usize >= COMMAND_WORDS_MAX {
            return Err(WireError::Field { field: "argcnt".to_owned() });
        }
        let mut command = vec![text("execname")?.into()];
        for argument in 1..=arguments {
            command.push(text(&format!("arg{argument}"))?.into());
        }
        let value = |number| {
            let key = text(&format!("preput_key_{number}"))?;
            Ok((key.clone(), text(&format!("preput_val_{number}"))?.clone()))
        };
        let values: Result<_, WireError> = (0..optional("preput_num")?).map(value).collect();
        Ok(Order {
            spawn: Spawn { command, size: number("nprocs")? },
            values: values?,
            infos: optional("info_num")?,
            commands: number("totspawns")?,
            command: number("spawnssofar")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::{PARENT, SpawnError, WORD_BYTES_MAX, check_word};
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn read(text: &str) -> Result<Request, WireError> {
        Request::read(&mut text.as_bytes())
    }

    fn spawn(words: &[&str], size: u32) -> Spawn {
        Spawn { command: words.iter().map(OsString::from).collect(), size }
    }

    #[test]
    fn a_command_there_and_back() {
        let wanted = spawn(&["a b", "", "c=d", " é\t'\" ", "-n"], 3);
        let lines = wanted.to_lines("w=1").unwrap();
        let Request::Spawn(order) = read(&lines).unwrap() else { panic!("{lines}") };
        assert_eq!(order.spawn, wanted);
        assert_eq!(order.values, [(PARENT.to_owned(), "w=1".to_owned())]);
        assert_eq!((order.infos, order.commands, order.command), (0, 1, 1));
        assert!(matches!(read("cmd=init\n"), Ok(Request::Line(line)) if line.command() == "init"));
    }

    #[test]
    fn what_lines_cannot_carry_is_refused() {
        for (words, size) in [(&[][..], 1), (&["a"], 0), (&["a"], u32::MAX), (&["a"; 901], 1)] {
            let refused = spawn(words, size).to_lines("w");
            assert!(matches!(refused, Err(SpawnError::Nothing { .. })), "{size} {}", words.len());
        }
        for word in ["a\nb", "a\0", "endcmd", "the-endcmd"] {
            let refused = spawn(&["a", word], 1).to_lines("w");
            assert!(matches!(refused, Err(SpawnError::Argument { .. })), "{word:?}");
        }
        let refused = spawn(&["", "a"], 1).to_lines("w");
        assert!(matches!(refused, Err(SpawnError::Argument { .. })));
        let bytes = OsString::from_vec(vec![0xff]);
        let refused = Spawn { command: vec![bytes], size: 1 }.to_lines("w");
        assert!(matches!(refused, Err(SpawnError::Argument { .. })));
        let refused = spawn(&["a", &"b".repeat(BYTES_MAX)], 1).to_lines("w");
        assert!(matches!(refused, Err(SpawnError::TooLong { .. })));
    }

    #[test]
    fn words_are_bounded() {
        check_word(&"w".repeat(WORD_BYTES_MAX)).unwrap();
        let long = "w".repeat(WORD_BYTES_MAX + 1);
        for word in ["", "a b", "a\n", "é", "\u{7f}", "endcmd", &long] {
            let error = check_word(word).unwrap_err().to_string();
            assert!(!error.contains(char::is_control), "{error}");
        }
    }

    const GOOD: &str = "mcmd=spawn\nnprocs=2\nexecname=x\ntotspawns=1\nspawnssofar=1\narg1=y\nargcnt=1\n\
                        preput_num=1\npreput_key_0=k\npreput_val_0=v\ninfo_num=0\nendcmd\n";

    #[test]
    fn what_is_no_command_is_an_error() {
        assert!(matches!(read(GOOD), Ok(Request::Spawn(_))));
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
        assert!(matches!(Request::read(&mut &*broken), Err(WireError::Garbage { .. })));
        assert!(matches!(read(&GOOD.replace("endcmd\n", "")), Err(WireError::Closed)));
        assert!(matches!(read("mcmd=other\n"), Err(WireError::Garbage { .. })));
    }

    /// Whatever one byte is, and wherever it ends.
    #[test]
    fn a_garbled_command_is_an_error_or_another() {
        for at in 0..GOOD.len() {
            let mut bytes = GOOD.as_bytes().to_vec();
            assert!(Request::read(&mut &bytes[..at]).is_err(), "{at}");
            for byte in [0, b'\n', b' ', b'=', b'-', b'0', b'9', 0xff] {
                bytes[at] = byte;
                if let Ok(Request::Spawn(order)) = Request::read(&mut &*bytes) {
                    assert!(
                        order.spawn.command.len() <= 10 && order.values.len() <= 1,
                        "{order:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_command_is_bounded() {
        let many: String = (0..BYTES_MAX).map(|key| format!("{key}=\n")).collect();
        let long = format!("a={}\n", "b".repeat(BYTES_MAX));
        for endless in [many, long] {
            let read = read(&format!("mcmd=spawn\n{endless}"));
            assert!(matches!(read, Err(WireError::TooLong { max: BYTES_MAX })), "{read:?}");
        }
    }
}
