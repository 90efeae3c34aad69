//! Sets of ranks.

/// A set of ranks of a communicator of some size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ranks {
    size: u32,
    words: Vec<u64>,
}

impl Ranks {
    pub(crate) fn none(size: u32) -> Self {
        Ranks { size, words: vec![0; size.div_ceil(u64::BITS) as usize] }
    }

    pub(crate) fn of(size: u32, ranks: &[u32]) -> Self {
        let mut set = Ranks::none(size);
        for rank in ranks {
            set.insert(*rank);
        }
        set
    }

    /// Words from elsewhere; `None` if there are too few or too many.
    pub(crate) fn parse(size: u32, words: Vec<u64>) -> Option<Self> {
        let mut set = Ranks { size, words };
        let fits = set.words.len() == size.div_ceil(u64::BITS) as usize;
        if let Some(last) = set.words.last_mut().filter(|_| !size.is_multiple_of(u64::BITS)) {
            *last &= (1 << (size % u64::BITS)) - 1;
        }
        fits.then_some(set)
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Whether it was not in the set. A rank that there isn't is not put in.
    pub(crate) fn insert(&mut self, rank: u32) -> bool {
        let is_new = rank < self.size && !self.contains(rank);
        if is_new {
            self.words[(rank / u64::BITS) as usize] |= 1 << (rank % u64::BITS);
        }
        is_new
    }

    pub(crate) fn contains(&self, rank: u32) -> bool {
        let word = self.words.get((rank / u64::BITS) as usize);
        word.is_some_and(|word| word >> (rank % u64::BITS) & 1 == 1)
    }

    pub(crate) fn add(&mut self, other: &Ranks) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word |= more);
    }

    pub(crate) fn keep(&mut self, other: &Ranks) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, others)| *word &= others);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.size).filter(|rank| self.contains(*rank))
    }
}
