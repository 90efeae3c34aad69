//! Counts of the work that a list has done.

/// The contents of a list, and the work that it has done so far.
///
/// The counters count work, not time, so that tests can check a list's bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchStats {
    /// Entries in the list.
    pub entries: usize,
    /// Bytes that the list has allocated for its entries and indexes, unused ones included.
    pub bytes: usize,
    /// Mask classes that have an index now. Each costs every search (posted) or every new message
    /// (unexpected) one probe.
    pub classes: usize,
    /// Posted receives whose class has no index, since 32 others have one. Each costs every search
    /// a comparison. Always zero in an unexpected list.
    pub scanned_entries: usize,
    /// Searches that read the entries one by one, because more than 32 classes were in use or an
    /// indexed list had very few messages left.
    pub scans: u64,
    /// Buckets of an index and entries read by all operations so far. A search of a short list that
    /// found something counts as one.
    pub inspected: u64,
    /// The largest distance, in buckets, of a key from its home bucket, in any current index.
    pub longest_probe: usize,
    /// How often an index doubled its size.
    pub growths: u64,
    /// How often an index got a new hash seed, because too many keys shared a bucket.
    pub reseeds: u64,
    /// Indexes built; only in unexpected lists, at the first search of a class.
    pub builds: u64,
    /// Indexes dropped; only in unexpected lists, when their class was not searched for long.
    pub retirements: u64,
}
