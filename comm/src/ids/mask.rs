//! The ids that are free in a process.

use super::layout::IdLayout;
use crate::context_id::ContextId;
use crate::error::Error;

/// The ids that are free in one process: a set bit is a free id.
///
/// The next id is the highest set bit of the lowest word that is not 0, as in MPICH. So traces of
/// both can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdMask {
    layout: IdLayout,
    words: Vec<u32>,
}

impl IdMask {
    /// A mask in which all ids except the predefined ones are free.
    pub fn new(layout: IdLayout) -> Self {
        let mut words = vec![u32::MAX; layout.words()];
        words[0] <<= layout.predefined();
        IdMask { layout, words }
    }

    /// The layout.
    pub fn layout(&self) -> IdLayout {
        self.layout
    }

    /// The words: bit X of word W is the id with prefix `32 * W + X`.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The number of free ids.
    pub fn free_count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Takes the next id, without other processes. `None`: no id is free.
    pub fn allocate(&mut self) -> Option<ContextId> {
        let prefix = next_of(&self.words)?;
        self.take(prefix)
    }

    /// Takes the id with this prefix; `None` if the id isn't free, or there is no such id.
    pub fn take(&mut self, prefix: u32) -> Option<ContextId> {
        let id = self.layout.id(prefix)?;
        let (word, bit) = place(prefix);
        let word = &mut self.words[word];
        let was_free = *word & bit != 0;
        *word &= !bit;
        was_free.then_some(id)
    }

    /// Frees an id. Freeing a derived id frees nothing.
    ///
    /// # Errors
    /// The id is free already, or predefined.
    pub fn free(&mut self, id: ContextId) -> Result<(), Error> {
        if self.layout.is_derived(id) {
            return Ok(());
        }
        let prefix = self.layout.prefix(id);
        if prefix < self.layout.predefined() {
            return Err(Error::FreePredefined { id });
        }
        let (word, bit) = place(prefix);
        if self.words[word] & bit != 0 {
            return Err(Error::DoubleFree { id });
        }
        self.words[word] |= bit;
        Ok(())
    }
}

/// The prefix that is taken next from the words of a mask.
pub(crate) fn next_of(words: &[u32]) -> Option<u32> {
    let (at, word) = words.iter().enumerate().find(|(_, word)| **word != 0)?;
    Some(u32::try_from(at).ok()? * u32::BITS + word.ilog2())
}

/// The word of a prefix, and its bit in the word.
fn place(prefix: u32) -> (usize, u32) {
    ((prefix / u32::BITS) as usize, 1 << (prefix % u32::BITS))
}
