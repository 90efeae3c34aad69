//! Which processes of a job share processors.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::ops::RangeInclusive;
use std::thread;

/// The machine of a thread, and the processors that the thread may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The kernel's boot id: the same for all processes of a machine, also in containers.
    machine: String,
    processors: List,
}

/// Numbers as the kernel writes them: `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List(Vec<RangeInclusive<u32>>);

impl Place {
    /// The place of this thread. `None` if the kernel doesn't tell.
    pub(super) fn of_thread() -> Option<Self> {
        let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let status = fs::read_to_string("/proc/thread-self/status").ok()?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Self::parse(format!("{} {}", machine.trim(), allowed.trim()).as_bytes())
    }

    /// The place that another process has told.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (machine, processors) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Place { machine: machine.to_owned(), processors: List::parse(processors)? })
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
        Ok(())
    }
}

impl List {
    /// Parses a list. An empty list, and a range that ends before it begins, are errors.
    fn parse(text: &str) -> Option<Self> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.parse().ok()?..=last.parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        text.trim().split(',').map(range).collect::<Option<_>>().map(List)
    }

    /// How many numbers the list has, if no number is twice in it.
    fn count(&self) -> usize {
        let lengths = self.0.iter().map(|range| range.end() - range.start());
        lengths.fold(0, |sum, length| sum.saturating_add(length as usize).saturating_add(1))
    }
}

/// The number of each process's machine. A process that has told no place has a machine of its own.
pub(super) fn machines<'a>(places: &'a [Option<Place>]) -> Vec<u32> {
    let mut numbers = HashMap::new();
    let mut count = 0;
    let number = |place: &'a Option<Place>| {
        let next = count;
        let number = match place {
            Some(place) => *numbers.entry(place.machine.as_str()).or_insert(next),
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
    let online = || List::parse(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?);
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
        let count = |text| List::parse(text).map(|list| list.count());
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("0-4294967295"), Some(1 << 32));
        for wrong in ["", "3-0", "a", "0-", "-1", "0,,1", "0-1-2", "0-18446744073709551615"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_processes_of_one_machine_with_a_common_processor_share_it() {
        let own = place("a 0-3,8").unwrap();
        for (other, shares) in [
            ("a 0-3,8", true),
            ("a 3", true),
            ("a 4-7,8-9", true),
            ("a 0-100", true),
            ("a 4-7", false),
            ("a 9", false),
            ("b 0-3,8", false),
        ] {
            let other = place(other).unwrap();
            assert_eq!((own.overlaps(&other), other.overlaps(&own)), (shares, shares), "{other}");
        }
    }

    #[test]
    fn processes_are_on_one_machine_if_its_names_are_equal() {
        let places = ["b 0", "a 0-3", "b 7", "", "a 0", ""].map(place);
        assert_eq!(machines(&places), [0, 1, 0, 2, 1, 3]);
    }

    #[test]
    fn a_place_that_cannot_be_read_is_no_place() {
        for wrong in ["", "a", "a ", "a 1-0", "a x", " ", "a 0 1"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
        assert_eq!(Place::parse(&[0xff, b' ', b'0']), None);
    }

    #[test]
    fn the_own_place_is_read_back_from_its_text() {
        let own = Place::of_thread().unwrap();
        assert_eq!(place(&own.to_string()), Some(own.clone()));
        assert!(own.overlaps(&own) && own_processors() <= own.processors.count());
    }
}
