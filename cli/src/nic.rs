//! The matches that the NIC below a device counts, those of all processes that use the NIC. Only
//! libfabric's `cxi` has such counts.

use tagmatch::ofi::NicMatches;
use tagmatch_results::NicCounted;
use tagmatch_results::show::show_count;

/// A NIC, with its counts at the beginning of a test.
pub(crate) struct NicWatch {
    nic: String,
    before: NicMatches,
}

impl NicWatch {
    /// A test begins. `None` if the NIC's counts can't be read.
    pub(crate) fn begin(nic: &str) -> Option<Self> {
        NicMatches::read(nic).map(|before| Self { nic: nic.to_owned(), before })
    }

    /// The test is over: waits until the NIC's counts have all of it. `None` if they can't be read
    /// any more, or began anew during the test.
    pub(crate) fn end(self) -> Option<NicCounted> {
        std::thread::sleep(NicMatches::period());
        let matches = NicMatches::read(&self.nic)?.since(&self.before)?;
        let NicMatches { posted, unexpected, in_software } = matches;
        Some(NicCounted { nic: self.nic, posted, unexpected, in_software })
    }
}

/// The counts of a test, as a line of the report.
pub(crate) fn counted(counted: &NicCounted) -> (&'static str, String) {
    let &NicCounted { ref nic, posted, unexpected, in_software } = counted;
    let matches = NicMatches { posted, unexpected, in_software };
    ("the NIC", in_words(nic, matches, "warm-up included"))
}

/// The counts of a NIC in words. `when` says which messages they have.
pub(crate) fn in_words(nic: &str, matches: NicMatches, when: &str) -> String {
    let NicMatches { posted, unexpected, in_software } = matches;
    let all = posted.saturating_add(unexpected).saturating_add(in_software);
    let [all, posted, unexpected, in_software] =
        [all, posted, unexpected, in_software].map(show_count);
    format!(
        "{nic} counted {all} messages of all processes on it, {when}: {posted} posted, {unexpected} \
         unexpected, {in_software} in software"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_said_to_be_the_nics_and_of_all_processes() {
        let posted = 1200;
        let unexpected = 34;
        let in_software = 0;
        let of_test = NicCounted { nic: "cxi0".into(), posted, unexpected, in_software };
        let (name, line) = counted(&of_test);
        assert_eq!(name, "the NIC");
        assert_eq!(
            line,
            "cxi0 counted 1 234 messages of all processes on it, warm-up included: 1 200 posted, 34 \
             unexpected, 0 in software"
        );
        let most = NicMatches { posted: u64::MAX, unexpected: 1, in_software: u64::MAX };
        assert!(in_words("cxi0", most, "ever").contains(" unexpected, 18 446 744 "), "no overflow");
    }
}
