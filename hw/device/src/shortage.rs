//! What a process runs out of while it makes a connection.

use std::{fmt, io};

/// Something that this process, or this machine, has no more of. A shortage says nothing about the
/// peer that a connection was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// The process has as many open descriptors as it may (`EMFILE`).
    Descriptors,
    /// The machine has as many open descriptors as it may (`ENFILE`).
    DescriptorsOfMachine,
    /// There is no memory, or no address space (`ENOMEM`, `ENOBUFS`).
    Memory,
    /// A file system of memory, or a table of the kernel, is full (`ENOSPC`).
    Space,
    /// All ports to connect from are in use (`EADDRNOTAVAIL`).
    Ports,
    /// A file, also one of memory, may not be as large as that in this process (`EFBIG`).
    FileSize,
}

impl Shortage {
    /// The shortage that an error number of Linux stands for, if it stands for one: errno(3), with
    /// the numbers of x86-64 and AArch64.
    pub fn of_errno(errno: i32) -> Option<Self> {
        Some(match errno {
            24 => Shortage::Descriptors,
            23 => Shortage::DescriptorsOfMachine,
            12 | 105 => Shortage::Memory,
            28 => Shortage::Space,
            99 => Shortage::Ports,
            27 => Shortage::FileSize,
            _ => return None,
        })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shortage::Descriptors => {
                "this process has as many open descriptors as it may (RLIMIT_NOFILE, ulimit -n)"
            }
            Shortage::DescriptorsOfMachine => {
                "this machine has as many open descriptors as it may (fs.file-max)"
            }
            Shortage::Memory => {
                "this process gets no more memory (RLIMIT_AS and RLIMIT_MEMLOCK, ulimit -v and -l; \
                 vm.max_map_count; the memory of its control group)"
            }
            Shortage::Space => {
                "there is no more room in the file system of shared memory, or no more watches of \
                 epoll (fs.epoll.max_user_watches)"
            }
            Shortage::Ports => {
                "all ports to connect from are in use (net.ipv4.ip_local_port_range)"
            }
            Shortage::FileSize => {
                "this process may not make files, also of memory, as large as that (RLIMIT_FSIZE, \
                 ulimit -f)"
            }
        })
    }
}

/// An error number for a reader: its text, or that there is none.
pub fn errno_text(errno: i32) -> String {
    if errno == 0 {
        return "no error number".to_owned();
    }
    io::Error::from_raw_os_error(errno).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_that_is_a_shortage_names_the_limit_that_was_reached() {
        let named = [
            ("EMFILE", 24, "ulimit -n"),
            ("ENFILE", 23, "fs.file-max"),
            ("ENOMEM", 12, "RLIMIT_MEMLOCK"),
            ("ENOBUFS", 105, "RLIMIT_MEMLOCK"),
            ("ENOSPC", 28, "file system of shared memory"),
            ("EADDRNOTAVAIL", 99, "ip_local_port_range"),
            ("EFBIG", 27, "ulimit -f"),
        ];
        for (name, errno, limit) in named {
            let text = Shortage::of_errno(errno).unwrap().to_string();
            assert!(text.contains(limit), "{name}: {text}");
        }
    }

    #[test]
    fn other_error_numbers_are_none() {
        let refused = 111;
        for errno in [0, -1, 1, refused] {
            assert_eq!(Shortage::of_errno(errno), None);
        }
    }
}
