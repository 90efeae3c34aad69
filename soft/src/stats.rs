//! Counts of the work that a list has done.

/// What a list holds and what keeping it in order has cost so far.
///
/// The counters are of work, not of time, so that tests can hold a list to its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchStats {
    /// Entries in the list.
    pub entries: usize,
    /// Bytes that the list has allocated for its entries and indexes, unused ones included.
    pub bytes: usize,
    /// Mask classes that have an index now; each costs every lookup (posted) or every arrival
    /// (unexpected) one probe.
    pub classes: usize,
    /// Posted receives whose class got no index, since 32 others have one. Each costs every
    /// lookup a comparison. Always zero in an unexpected list.
    pub scanned_entries: usize,
    /// Searches that had to walk entries one by one, as more than 32 classes were in use or an
    /// indexed list had very few messages left.
    pub scans: u64,
    /// Buckets of an index and entries looked at by all operations so far; a look at a short list
    /// that found something counts as one.
    pub inspected: u64,
    /// The farthest that any key now in an index has stood from its home cell.
    pub longest_probe: usize,
    /// Times that an index doubled.
    pub growths: u64,
    /// Times that an index took a new hash seed, because its keys stood too close.
    pub reseeds: u64,
    /// Indexes built (unexpected lists: on the first question of a class).
    pub builds: u64,
    /// Indexes given up (unexpected lists: when nobody asked for long).
    pub retirements: u64,
}
