//! The control file: a program writes lines to it, each of which is a fault.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, chmod, mknodat};

/// Where a program finds the file below `/sys/class`.
pub(crate) const PATH: &str = "tagmatch-hca/control";
/// Bytes of the longest line.
const LINE_MAX: usize = 4096;

/// Makes the file: a pipe with a name.
pub(crate) fn make(class: &Path) -> io::Result<()> {
    let path = class.join(PATH);
    mknodat(CWD, &path, FileType::Fifo, Mode::empty(), 0)?;
    // All users that the program may become write to it.
    Ok(chmod(&path, Mode::from_raw_mode(0o666))?)
}

/// The device's end of the file.
#[derive(Debug)]
pub(crate) struct ControlFile {
    file: File,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl ControlFile {
    /// Opens the file as a process sees it.
    pub(crate) fn open(process: i32) -> io::Result<Self> {
        Self::at(Path::new(&format!("/proc/{process}/root/sys/class")))
    }

    fn at(class: &Path) -> io::Result<Self> {
        // Open for writing, too, so that it never ends.
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        Ok(ControlFile { file: options.open(class.join(PATH))?, rest: Vec::new() })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The lines that have come.
    pub(crate) fn take(&mut self) -> Vec<String> {
        let mut bytes = [0; LINE_MAX];
        let Ok(count) = self.file.read(&mut bytes) else { return Vec::new() };
        self.rest.extend_from_slice(&bytes[..count]);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            if self.rest.len() > LINE_MAX {
                self.rest.clear();
            }
            return Vec::new();
        };
        let rest = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, rest);
        let lines = String::from_utf8_lossy(&lines);
        lines.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn each_line_is_taken_and_a_line_without_end_is_forgotten() {
        let class = std::env::temp_dir().join(format!("tagmatch-hca-{}", std::process::id()));
        std::fs::create_dir_all(class.join("tagmatch-hca")).unwrap();
        make(&class).unwrap();
        let mut control = ControlFile::at(&class).unwrap();
        let mut program = OpenOptions::new().write(true).open(class.join(PATH)).unwrap();
        std::fs::remove_dir_all(&class).unwrap();
        assert_eq!(control.take(), [""; 0]);
        program.write_all(b"outage 1s\n\nfire\nouta").unwrap();
        assert_eq!(control.take(), ["outage 1s", "fire"]);
        program.write_all(b"ge 1s\n").unwrap();
        assert_eq!(control.take(), ["outage 1s"]);
        for _ in 0..3 {
            program.write_all(&[0xff; LINE_MAX]).unwrap();
            assert_eq!(control.take(), [""; 0]);
        }
        program.write_all(b"\noutage 1s\n").unwrap();
        assert_eq!(control.take().last().map(String::as_str), Some("outage 1s"));
    }
}
