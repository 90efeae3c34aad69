//! What the launcher and its helper on another machine tell each other, as frames: the length of
//! the rest (4 bytes), the kind (1 byte), and the content. Numbers are little-endian. The two
//! directions have no kind in common: the launcher's own frames, if an agent echoes them, are
//! garbage to it.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;

use super::failure::Member;
use super::part::MachinePart;

/// The longest frame, without its length, in bytes. It bounds commands and environments.
const FRAME_BYTES_MAX: u32 = 16 << 20;
/// The most bytes of output that a helper may send beyond what the launcher has printed.
pub(super) const WINDOW_BYTES: usize = 1 << 20;
/// The first line of a helper. An agent or a shell may print other lines before it.
pub(super) const GREETING: &str =
    concat!("tagmatch-launch helper of version ", env!("CARGO_PKG_VERSION"), "\n");

/// A frame from the launcher to a helper.
pub(super) enum ToHelper {
    /// Start these processes.
    Start(MachinePart),
    /// Send a process this line of PMI-1.
    Reply(Member, Vec<u8>),
    /// Signal the process group of a process.
    Signal(Member, i32),
    /// So many more bytes of output are printed.
    Printed(u32),
    /// No more processes will be started: end when all output is sent.
    Finish,
    /// Keys and values that processes of a job have put into its key-value space, which has this
    /// name.
    Values(u32, String, Vec<(String, String)>),
}

/// A frame from a helper to the launcher.
pub(super) enum FromHelper {
    /// The processes of a job run, or can't be started for this reason.
    Started(u32, Option<String>),
    /// The bytes of a process's request. If they are no request, the connection has ended.
    Request(Member, Vec<u8>),
    /// Bytes for standard output.
    Output(Vec<u8>),
    /// Bytes for standard error.
    Error(Vec<u8>),
    /// A process has ended with this status, as wait(2) has it.
    Ended(Member, i32),
}

impl ToHelper {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Start(part) => {
                let numbers = [part.job, part.size, part.first, part.count, part.label.into()];
                let frame = numbers.iter().fold(Writer::new(1), |w, &number| w.number(number));
                let mut frame = frame.bytes(part.directory.as_os_str().as_bytes());
                frame = frame.number(length(part.command.len()));
                for word in &part.command {
                    frame = frame.bytes(word.as_bytes());
                }
                for (name, value) in &part.environment {
                    frame = frame.bytes(name.as_bytes()).bytes(value.as_bytes());
                }
                frame.end()
            }
            Self::Reply(member, line) => Writer::new(2).member(*member).rest(line),
            Self::Signal(member, signal) => {
                Writer::new(3).member(*member).rest(&signal.to_le_bytes())
            }
            Self::Printed(count) => Writer::new(4).number(*count).end(),
            Self::Finish => Writer::new(5).end(),
            Self::Values(job, name, values) => {
                let frame = Writer::new(6).number(*job).bytes(name.as_bytes());
                let with = |frame: Writer, (key, value): &(String, String)| {
                    frame.bytes(key.as_bytes()).bytes(value.as_bytes())
                };
                values.iter().fold(frame, with).end()
            }
        }
    }

    /// `None`: the frame is malformed.
    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        let mut from = Reader(rest);
        let frame = match kind {
            1 => {
                let job = from.number()?;
                let size = from.number()?;
                let first = from.number()?;
                let count = from.number()?;
                let is_in_range = first.checked_add(count).is_some_and(|end| end <= size);
                let label = from.number()? != 0;
                let directory = from.text()?.into();
                let words = from.number()?;
                let command: Option<Vec<_>> = (0..words).map(|_| from.text()).collect();
                let command = command.filter(|words| !words.is_empty() && is_in_range)?;
                let mut environment = Vec::new();
                while !from.0.is_empty() {
                    environment.push((from.text()?, from.text()?));
                }
                let is_remote = true;
                Self::Start(MachinePart {
                    job,
                    size,
                    first,
                    count,
                    command,
                    environment,
                    directory,
                    label,
                    is_remote,
                })
            }
            2 => Self::Reply(from.member()?, from.rest().to_vec()),
            3 => Self::Signal(from.member()?, from.signed()?),
            4 => Self::Printed(from.number()?),
            5 => Self::Finish,
            6 => {
                let job = from.number()?;
                let name = from.string()?;
                let mut values = Vec::new();
                while !from.0.is_empty() {
                    values.push((from.string()?, from.string()?));
                }
                Self::Values(job, name, values)
            }
            _ => return None,
        };
        from.0.is_empty().then_some(frame)
    }
}

impl FromHelper {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Started(job, refusal) => {
                let frame = Writer::new(11).number(*job).number(refusal.is_some().into());
                frame.rest(refusal.as_deref().unwrap_or_default().as_bytes())
            }
            Self::Request(member, text) => Writer::new(12).member(*member).rest(text),
            Self::Output(text) => Writer::new(13).rest(text),
            Self::Error(text) => Writer::new(14).rest(text),
            Self::Ended(member, status) => {
                Writer::new(15).member(*member).rest(&status.to_le_bytes())
            }
        }
    }

    /// `None`: the frame is malformed.
    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        let mut from = Reader(rest);
        let frame = match kind {
            11 => {
                let job = from.number()?;
                let is_refused = from.number()? != 0;
                let why = String::from_utf8_lossy(from.rest()).into_owned();
                Self::Started(job, is_refused.then_some(why))
            }
            12 => Self::Request(from.member()?, from.rest().to_vec()),
            13 => Self::Output(from.rest().to_vec()),
            14 => Self::Error(from.rest().to_vec()),
            15 => Self::Ended(from.member()?, from.signed()?),
            _ => return None,
        };
        from.0.is_empty().then_some(frame)
    }
}

/// Reads a frame; `None` at the end of the connection.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    let length = u32::from_le_bytes(length);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut frame = Vec::new();
    // The buffer grows with the bytes that come, not with the length that is announced.
    from.take(length.into()).read_to_end(&mut frame)?;
    Ok((frame.len() == length as usize).then_some(frame))
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A frame that is being written. The first 4 bytes become its length.
struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8) -> Self {
        Writer(vec![0, 0, 0, 0, kind])
    }

    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn member(self, member: Member) -> Self {
        self.number(member.job).number(member.rank)
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut frame = self.number(length(bytes.len()));
        frame.0.extend_from_slice(bytes);
        frame
    }

    fn rest(mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        self.end()
    }

    fn end(mut self) -> Vec<u8> {
        let length = length(self.0.len() - 4);
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

/// The rest of a frame that is being read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn signed(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn member(&mut self) -> Option<Member> {
        Some(Member { job: self.number()?, rank: self.number()? })
    }

    /// A text that a system call can take: it has no zero byte.
    fn text(&mut self) -> Option<OsString> {
        let length = self.number()?;
        let bytes = self.take(usize::try_from(length).ok()?)?;
        (!bytes.contains(&0)).then(|| OsStr::from_bytes(bytes).to_owned())
    }

    fn string(&mut self) -> Option<String> {
        self.text()?.into_string().ok()
    }
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choppy::Choppy;

    const MEMBER: Member = Member { job: 1, rank: 3 };

    fn part() -> MachinePart {
        MachinePart {
            job: 1,
            size: 5,
            first: 2,
            count: 2,
            command: ["app", "", "é"].map(OsString::from).into(),
            environment: vec![("A".into(), "b=c".into()), ("EMPTY".into(), "".into())],
            directory: "/tmp".into(),
            label: true,
            is_remote: true,
        }
    }

    #[test]
    fn frames_are_decoded_as_they_were_encoded() {
        let texts = [
            FromHelper::Started(7, None).encode(),
            FromHelper::Started(7, Some("why".into())).encode(),
            FromHelper::Request(MEMBER, b"cmd=init\n".to_vec()).encode(),
            FromHelper::Output(vec![0, 255]).encode(),
            FromHelper::Error(vec![]).encode(),
            FromHelper::Ended(MEMBER, -9).encode(),
        ];
        for text in texts {
            let frame = read(&mut Choppy::new(&*text)).unwrap().unwrap();
            assert_eq!(FromHelper::decode(&frame).unwrap().encode(), text);
        }
        let texts = [
            ToHelper::Start(part()).encode(),
            ToHelper::Reply(MEMBER, b"cmd=barrier_out\n".to_vec()).encode(),
            ToHelper::Signal(MEMBER, 15).encode(),
            ToHelper::Printed(70_000).encode(),
            ToHelper::Finish.encode(),
            ToHelper::Values(1, "kvs".into(), vec![("a".into(), "b".into()); 2]).encode(),
            ToHelper::Values(1, "kvs".into(), vec![]).encode(),
        ];
        for text in texts {
            let frame = read(&mut Choppy::new(&*text)).unwrap().unwrap();
            assert_eq!(ToHelper::decode(&frame).unwrap().encode(), text);
        }
    }

    /// A connection that fails.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::ConnectionReset.into())
        }
    }

    #[test]
    fn a_malformed_frame_is_refused() {
        let whole = ToHelper::Start(part()).encode();
        // The environment has no count, so the frame may end after each of its pairs.
        let refused = (4..whole.len()).filter(|&end| ToHelper::decode(&whole[4..end]).is_none());
        assert_eq!(refused.count(), whole.len() - 4 - 2);
        for end in 4..whole.len() {
            let _ = FromHelper::decode(&whole[4..end]);
            assert!(read(&mut &whole[..end]).unwrap().is_none(), "cut at {end}");
        }
        let beyond = ToHelper::Start(MachinePart { first: 4, ..part() }).encode();
        assert!(ToHelper::decode(&beyond[4..]).is_none(), "ranks beyond the size");
        let zero = ToHelper::Start(MachinePart { directory: "/t\0".into(), ..part() }).encode();
        assert!(ToHelper::decode(&zero[4..]).is_none());
        assert!(FromHelper::decode(&whole[4..]).is_none(), "an echo");
        assert!(ToHelper::decode(&[9]).is_none() && ToHelper::decode(&[]).is_none());
        assert!(read(&mut &[255; 9][..]).is_err(), "too long");
        assert!(read(&mut Broken).is_err(), "an error is no end");
    }
}
