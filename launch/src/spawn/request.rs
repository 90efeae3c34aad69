//! Requests of a process to its PMI-1 launcher: one line, or the lines of a `mcmd=spawn`.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};

use super::{BYTES_MAX, COMMAND_WORDS_MAX, END, Spawn};
use crate::wire::{PmiLine, READ_BYTES_MAX, WireError, read_line};

/// A PMI-1 request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PmiRequest {
    /// `cmd=...`, in one line.
    Line(PmiLine),
    /// `mcmd=spawn` to `endcmd`.
    Spawn(SpawnRequest),
}

/// A parsed `mcmd=spawn`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpawnRequest {
    /// The command and the number of processes. The number was not checked, and may be out of
    /// range.
    pub spawn: Spawn,
    /// Keys and values that the processes find when they start.
    pub values: Vec<(String, String)>,
    /// The number of infos beside the command. An info says, for instance, where the command is to
    /// run.
    pub infos: u32,
    /// The number of commands in the new job. Each of them comes in a request of its own.
    pub commands: u32,
    /// Which of these commands this is. The first is 1.
    pub command: u32,
}

impl PmiRequest {
    /// Reads the bytes of a request, and whether they are the last ones: they are no request, or
    /// the connection has ended. Then [`read`](Self::read) fails on them for the same reason.
    /// Blocks.
    pub(crate) fn read_text(from: &mut BufReader<impl Read>) -> (Vec<u8>, bool) {
        let mut recording = Recording { from, text: Vec::new() };
        let is_last = Self::read(&mut recording).is_err();
        (recording.text, is_last)
    }

    /// Reads a request. Blocks.
    ///
    /// # Errors
    /// The connection has ended, or the input is not a PMI-1 request.
    pub fn read(from: &mut impl BufRead) -> Result<Self, WireError> {
        let line = read_line(from, READ_BYTES_MAX)?;
        if line != b"mcmd=spawn" {
            return PmiLine::parse(&line).map(Self::Line);
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
                return SpawnRequest::parse(&fields).map(Self::Spawn);
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

/// Keeps what is read.
struct Recording<'a, R> {
    from: &'a mut BufReader<R>,
    text: Vec<u8>,
}

impl<R: Read> Read for Recording<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(bytes)?;
        self.text.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

impl<R: Read> BufRead for Recording<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.text.extend_from_slice(&self.from.buffer()[..count]);
        self.from.consume(count);
    }
}

impl SpawnRequest {
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
        Ok(SpawnRequest {
            spawn: Spawn { command, size: number("nprocs")? },
            values: values?,
            infos: optional("info_num")?,
            commands: number("totspawns")?,
            command: number("spawnssofar")?,
        })
    }
}
