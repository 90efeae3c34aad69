//! Memory that the processes of a machine share for one exchange.
//!
//! A board is a memfd. Its maker tells its own [`Identity`] and the descriptor's number, and other
//! processes open it as `/proc/PID/fd/NUMBER`. The kernel lets processes of the same user do that
//! (proc(5), `PTRACE_MODE_READ_FSCREDS`). They read and write it by system calls and never map it,
//! so a process that cuts it off causes an error, and no signal.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_get_seals, memfd_create};
use rustix::process::{Resource, getrlimit};

use crate::error::BYTES_MAX;
use crate::identity::Identity;
use crate::wire::{from_hex, to_hex};

/// The distance of two records. A record may be longer if no other one follows it.
const RECORD_BYTES: u64 = 4096 + BYTES_MAX as u64;
/// A record begins with its number of bytes plus one, since a board is full of zeros at first.
const LENGTH_BYTES: u64 = size_of::<u64>() as u64;

/// Memory that several processes can open.
pub(super) trait Board: Sized {
    /// Makes the board of an exchange, and the text by which others find it.
    fn make(number: u32) -> io::Result<(Self, String)>;

    /// Opens a board of an exchange; `None` if this process can't, or there is none.
    fn open(place: &str, number: u32) -> Option<Self>;

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Writes a record. Nobody reads it sooner than after a barrier, unless this process has died.
pub(super) fn write_record(board: &impl Board, record: usize, bytes: &[u8]) -> io::Result<()> {
    let at = (1 + record as u64) * RECORD_BYTES;
    // A process that is killed between the two has written no record.
    board.write(at + LENGTH_BYTES, bytes)?;
    board.write(at, &(bytes.len() as u64 + 1).to_le_bytes())
}

/// Reads a record of at most `max` bytes; `None` if there is none.
pub(super) fn read_record(board: &impl Board, record: usize, max: usize) -> Option<Vec<u8>> {
    let at = (1 + record as u64) * RECORD_BYTES;
    let mut length = [0; size_of::<u64>()];
    board.read(at, &mut length).ok()?;
    let length = usize::try_from(u64::from_le_bytes(length).checked_sub(1)?).ok()?;
    let mut bytes = vec![0; Some(length).filter(|length| *length <= max)?];
    board.read(at + LENGTH_BYTES, &mut bytes).ok()?;
    Some(bytes)
}

/// A memfd. A program that this process starts doesn't inherit it.
pub(crate) struct MemoryBoard(File);

impl Board for MemoryBoard {
    fn make(number: u32) -> io::Result<(Self, String)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("tagmatch-board", flags)?);
        let place = format!("{} {}", Identity::own()?, file.as_raw_fd());
        let board = MemoryBoard(file);
        board.write(0, &mark(number))?;
        Ok((board, to_hex(place.as_bytes())))
    }

    fn open(place: &str, number: u32) -> Option<Self> {
        let place = String::from_utf8(from_hex(place)?).ok()?;
        let (maker, descriptor) = place.rsplit_once(' ')?;
        let maker = Identity::parse(maker)?;
        let descriptor = descriptor.parse::<u16>().ok()?;
        let own = Identity::own().ok()?;
        let path = maker.descriptor(&own, descriptor)?;
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
        // A process that lives now had this number when the file was opened. Only a memfd can be
        // sealed.
        let is_memory = fcntl_get_seals(&file).is_ok_and(|seals| !seals.contains(SealFlags::SEAL));
        let mut found = mark(0);
        let is_board = is_memory && file.read_exact_at(&mut found, 0).is_ok();
        (is_board && found == mark(number) && !maker.is_gone(&own)).then_some(MemoryBoard(file))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        // To go beyond the limit raises SIGXFSZ, which ends a process that doesn't expect it.
        let end = at + bytes.len() as u64;
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| end > limit) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        self.0.write_all_at(bytes, at)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }
}

/// The first bytes of the board of an exchange.
fn mark(number: u32) -> [u8; 16] {
    let mut mark = *b"tagmatch....    ";
    mark[12..].copy_from_slice(&number.to_le_bytes());
    mark
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let (board, place) = MemoryBoard::make(7).unwrap();
        let other = MemoryBoard::open(&place, 7).unwrap();
        assert_eq!(read_record(&other, 0, BYTES_MAX), None, "nothing was written");
        for (record, bytes) in [(0, &b"abc"[..]), (1, b""), (2, &[7; BYTES_MAX])] {
            write_record(&board, record, bytes).unwrap();
            assert_eq!(read_record(&other, record, BYTES_MAX).unwrap(), bytes);
        }
        assert_eq!(read_record(&other, 2, BYTES_MAX - 1), None, "it is longer");
        assert_eq!(read_record(&other, 3, BYTES_MAX), None);
        let at = (1 + 3) * RECORD_BYTES;
        other.write(at, &u64::MAX.to_le_bytes()).unwrap();
        assert_eq!(read_record(&board, 3, BYTES_MAX), None, "nonsense");
        other.write(at, &9_u64.to_le_bytes()).unwrap();
        assert_eq!(read_record(&board, 3, BYTES_MAX), None, "it is cut off");
    }

    #[test]
    fn what_is_no_board_of_the_exchange_is_not_opened() {
        let (board, place) = MemoryBoard::make(7).unwrap();
        assert!(MemoryBoard::open(&place, 8).is_none(), "another exchange");
        let own = Identity::own().unwrap();
        let of = |maker: String, descriptor: i32| {
            MemoryBoard::open(&to_hex(format!("{maker} {descriptor}").as_bytes()), 7)
        };
        let file = File::open("/dev/null").unwrap();
        let socket = UnixStream::pair().unwrap();
        let pipe = io::pipe().unwrap();
        let plain = memfd_create("plain", MemfdFlags::CLOEXEC).unwrap();
        let others: [OwnedFd; 4] = [file.into(), socket.0.into(), pipe.0.into(), plain];
        for descriptor in others.iter().map(AsRawFd::as_raw_fd).chain([-1, 60_000, 70_000]) {
            assert!(of(own.to_string(), descriptor).is_none(), "{descriptor}");
        }
        let descriptor = board.0.as_raw_fd();
        assert!(of(own.to_string(), descriptor).is_some());
        let text = own.to_string();
        let words: Vec<&str> = text.split(' ').collect();
        let [boot, space, pid, started] = words[..] else { panic!("{text}") };
        for maker in [
            format!("elsewhere {space} {pid} {started}"),
            format!("{boot} pid:[1] {pid} {started}"),
            format!("{boot} {space} {pid} 1"),
            format!("{boot} {space} 0 {started}"),
            format!("{boot} {space} {pid}/../{pid} {started}"),
        ] {
            assert!(of(maker.clone(), descriptor).is_none(), "{maker}");
        }
        for garbled in ["", "0", "zz", "ff", &place[2..], &place[..place.len() - 1]] {
            assert!(MemoryBoard::open(garbled, 7).is_none(), "{garbled}");
        }
        drop(board);
        assert!(MemoryBoard::open(&place, 7).is_none(), "its maker has closed it");
    }
}
