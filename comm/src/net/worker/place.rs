//! Which processes of a job share processors.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::{fs, thread};

/// The machine of a thread, the processors that the thread may run on, and with whom its process
/// shares memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The kernel's boot id: the same for all processes of a machine, also in containers.
    machine: String,
    processors: NumberRanges,
    /// Network namespace and user. Workers of one machine use shared memory if they agree in both;
    /// otherwise they reach each other over a network, as if they were on two machines.
    sharing: String,
}

/// Numbers as the kernel writes them: `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NumberRanges(Vec<RangeInclusive<u32>>);

impl Place {
    /// The place of this thread. `None` if the kernel doesn't tell.
    pub(super) fn of_thread() -> Option<Self> {
        let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let network = fs::metadata("/proc/self/ns/net").ok()?.ino();
        let status = fs::read_to_string("/proc/thread-self/status").ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let allowed = field("Cpus_allowed_list:")?;
        let users = field("Uid:")?;
        // The effective user is the second one.
        let user = users.split_whitespace().nth(1)?;
        Self::parse(format!("{} {allowed} {network}/{user}", machine.trim()).as_bytes())
    }

    /// The place that another process has told.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (machine, rest) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        let (processors, sharing) = rest.split_once(' ')?;
        let machine = machine.to_owned();
        let sharing = sharing.to_owned();
        Some(Place { machine, processors: NumberRanges::parse(processors)?, sharing })
    }

    /// Whether some processor may run threads of both.
    pub(super) fn overlaps(&self, other: &Place) -> bool {
        let ranges = &other.processors.0;
        let overlaps = |range: &RangeInclusive<u32>| {
            ranges.iter().any(|other| range.start() <= other.end() && other.start() <= range.end())
        };
        self.machine == other.machine && self.processors.0.iter().any(overlaps)
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.machine)?;
        for (at, range) in self.processors.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{}-{}", range.start(), range.end())?;
        }
        write!(f, " {}", self.sharing)
    }
}

impl NumberRanges {
    /// Parses a list. An empty list, and a range that ends before it begins, are errors.
    fn parse(text: &str) -> Option<Self> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.parse().ok()?..=last.parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        text.trim().split(',').map(range).collect::<Option<_>>().map(NumberRanges)
    }

    /// How many numbers the list has, if no number is twice in it.
    fn count(&self) -> usize {
        let lengths = self.0.iter().map(|range| range.end() - range.start());
        lengths.fold(0, |sum, length| sum.saturating_add(length as usize).saturating_add(1))
    }
}

/// The number of each process's machine. Processes that don't share memory count as being on
/// different machines. A process that has told no place has a machine of its own.
pub(super) fn machines<'a>(places: &'a [Option<Place>]) -> Vec<u32> {
    let mut numbers = HashMap::new();
    let mut count = 0;
    let number = |place: &'a Option<Place>| {
        let next = count;
        let number = match place {
            Some(place) => *numbers.entry((&place.machine, &place.sharing)).or_insert(next),
            None => next,
        };
        count += u32::from(number == next);
        number
    };
    places.iter().map(number).collect()
}

/// Number of processors that this thread may use. A container's quota bounds it, too.
pub(super) fn own_processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Number of processors that the processes on this machine share, if they have not told each other
/// where they run. A process that may use one processor only was pinned by a launcher, so the other
/// processes have the other processors.
pub(super) fn processors() -> usize {
    let online =
        || NumberRanges::parse(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?);
    match own_processors() {
        1 => online().map_or(1, |online| online.count()),
        own => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Option<Place> {
        Place::parse(text.as_bytes())
    }

    #[test]
    fn lists_of_the_kernel_are_counted() {
        let count = |text| NumberRanges::parse(text).map(|list| list.count());
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("0-4294967295"), Some(1 << 32));
        for wrong in ["", "3-0", "a", "0-", "-1", "0,,1", "0-1-2", "0-18446744073709551615"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_processes_of_one_machine_with_a_common_processor_share_it() {
        let own = place("a 0-3,8 n/1").unwrap();
        for (other, shares) in [
            ("a 0-3,8 n/1", true),
            ("a 3 n/1", true),
            ("a 4-7,8-9 n/1", true),
            ("a 0-100 n/1", true),
            ("a 3 m/2", true),
            ("a 4-7 n/1", false),
            ("a 9 n/1", false),
            ("b 0-3,8 n/1", false),
        ] {
            let other = place(other).unwrap();
            assert_eq!((own.overlaps(&other), other.overlaps(&own)), (shares, shares), "{other}");
        }
    }

    #[test]
    fn processes_are_on_one_machine_if_they_share_memory() {
        let places = ["b 0 n/1", "a 0-3 n/1", "b 7 n/1", "", "a 0 n/1", ""].map(place);
        assert_eq!(machines(&places), [0, 1, 0, 2, 1, 3]);
        let places = ["a 0 n/1", "a 0 m/1", "a 0 n/2", "a 1 m/1"].map(place);
        assert_eq!(machines(&places), [0, 1, 2, 1], "other network namespaces, other users");
    }

    #[test]
    fn a_place_that_cannot_be_read_is_no_place() {
        for wrong in ["", "a", "a ", "a 0", "a 1-0 n/1", "a x n/1", " ", "  ", "a  0"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
        assert_eq!(Place::parse(&[0xff, b' ', b'0', b' ']), None);
    }

    #[test]
    fn the_own_place_is_read_back_from_its_text() {
        let own = Place::of_thread().unwrap();
        assert_eq!(place(&own.to_string()), Some(own.clone()));
        assert!(own.overlaps(&own) && own_processors() <= own.processors.count());
    }
}
