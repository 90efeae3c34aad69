//! Sets of ranks.

/// A set of ranks below a size. A set of a size up to 64 allocates no memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ranks {
    size: u32,
    words: Words,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Words {
    One([u64; 1]),
    Many(Vec<u64>),
}

impl Ranks {
    pub(crate) fn none(size: u32) -> Self {
        let words = match size.div_ceil(u64::BITS) {
            1 => Words::One([0]),
            count => Words::Many(vec![0; count as usize]),
        };
        Ranks { size, words }
    }

    pub(crate) fn all(size: u32) -> Self {
        Ranks::read(size, || Some(u64::MAX)).unwrap_or_else(|| Ranks::none(size))
    }

    pub(crate) fn of(size: u32, ranks: &[u32]) -> Self {
        let mut set = Ranks::none(size);
        for rank in ranks {
            set.insert(*rank);
        }
        set
    }

    /// Builds a set from the words of a message; `None` if there are too few. Bits above the size
    /// are dropped.
    pub(crate) fn read(size: u32, mut next: impl FnMut() -> Option<u64>) -> Option<Self> {
        let last = match size % u64::BITS {
            0 => u64::MAX,
            bits => (1 << bits) - 1,
        };
        let count = size.div_ceil(u64::BITS);
        if count == 1 {
            return Some(Ranks { size, words: Words::One([next()? & last]) });
        }
        let mut words = (0..count).map(|_| next()).collect::<Option<Vec<_>>>()?;
        if let Some(word) = words.last_mut() {
            *word &= last;
        }
        Some(Ranks { size, words: Words::Many(words) })
    }

    pub(crate) fn words(&self) -> &[u64] {
        match &self.words {
            Words::One(word) => word,
            Words::Many(words) => words,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match &mut self.words {
            Words::One(word) => word,
            Words::Many(words) => words,
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Adds a rank. Returns whether it is new. A rank that is not below the size is not added.
    pub(crate) fn insert(&mut self, rank: u32) -> bool {
        let is_new = rank < self.size && !self.contains(rank);
        if is_new {
            self.words_mut()[(rank / u64::BITS) as usize] |= 1 << (rank % u64::BITS);
        }
        is_new
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// Whether all ranks are in the set.
    pub(crate) fn is_full(&self) -> bool {
        self.words().iter().map(|word| word.count_ones()).sum::<u32>() == self.size
    }

    pub(crate) fn remove(&mut self, rank: u32) {
        if let Some(word) = self.words_mut().get_mut((rank / u64::BITS) as usize) {
            *word &= !(1 << (rank % u64::BITS));
        }
    }

    pub(crate) fn contains(&self, rank: u32) -> bool {
        let word = self.words().get((rank / u64::BITS) as usize);
        word.is_some_and(|word| word >> (rank % u64::BITS) & 1 == 1)
    }

    pub(crate) fn add(&mut self, other: &Ranks) {
        self.words_mut().iter_mut().zip(other.words()).for_each(|(word, more)| *word |= more);
    }

    pub(crate) fn keep(&mut self, other: &Ranks) {
        self.words_mut().iter_mut().zip(other.words()).for_each(|(word, others)| *word &= others);
    }
}
