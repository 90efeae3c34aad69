//! The table of one class: from a key's hash to the first entry with that key.
//!
//! Open addressing over cells of 8 bytes, in which hash and entry stand side by side: a miss
//! touches no entry. A cell's home is the top bits of its hash, and cells are kept in the order
//! of their hashes over the whole table. So a search ends at the first larger hash, a miss costs
//! what a hit costs, and the table doubles by walking the old one once, without looking at entries.
//!
//! The table knows hashes and entry numbers only; whether an entry has the key asked for is
//! answered by a closure.

use crate::hash::HASH_BITS;

/// Hash in the upper half, entry in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell(u64);

impl Cell {
    /// Larger than any other cell, so that a search for the first cell not below a hash ends here.
    const EMPTY: Cell = Cell(u64::MAX);

    #[inline]
    fn new(hash: u32, entry: u32) -> Self {
        Cell(u64::from(hash) << 32 | u64::from(entry))
    }

    #[inline]
    fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn entry(self) -> u32 {
        self.0 as u32
    }
}

/// A place in the table: of a key's cell, or where its cell belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// Too many keys would stand too far from home: the hash is bad for these keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowded;

#[derive(Clone, Debug)]
pub(crate) struct KeyIndex {
    /// `1 << (HASH_BITS - shift)` homes, then room for what the last homes spill over. The last
    /// cell is always empty.
    cells: Vec<Cell>,
    shift: u32,
    len: usize,
    /// How far from home a cell may stand before the hash is to blame.
    reach: usize,
    /// The farthest from home that any cell has stood since the table was laid out.
    longest: usize,
}

const MIN_BITS: u32 = 4;
const FIRST_REACH: usize = 48;
const SPILL: usize = 16;

impl KeyIndex {
    /// A table that holds `keys` without growing.
    pub(crate) fn with_capacity(keys: usize) -> Self {
        let homes = (keys + keys / 2 + keys / 4).next_power_of_two();
        Self::with_bits(homes.trailing_zeros().max(MIN_BITS))
    }

    fn with_bits(bits: u32) -> Self {
        let bits = bits.min(HASH_BITS);
        KeyIndex {
            cells: vec![Cell::EMPTY; (1 << bits) + SPILL],
            shift: HASH_BITS - bits,
            len: 0,
            reach: FIRST_REACH,
            longest: 0,
        }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    fn bits(&self) -> u32 {
        HASH_BITS - self.shift
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Finds the cell with this hash for whose entry `is_key` says yes; else where it belongs.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u32,
        inspected: &mut u64,
        mut is_key: impl FnMut(u32) -> bool,
    ) -> Result<(Place, u32), Place> {
        let home = self.home(hash);
        let mut at = home;
        let target = Cell::new(hash, 0);
        while self.cells[at] < target {
            at += 1;
        }
        let found = loop {
            let cell = self.cells[at];
            if cell.hash() != hash {
                break Err(Place(at));
            }
            if is_key(cell.entry()) {
                break Ok((Place(at), cell.entry()));
            }
            at += 1;
        };
        *inspected += (at - home) as u64 + 1;
        found
    }

    /// Whether one more key asks for a larger table.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let homes = 1usize << self.bits();
        self.len >= homes / 2 + homes / 8 && self.shift > 0
    }

    /// Puts a new key's cell where [`find`](Self::find) said it belongs.
    #[inline]
    pub(crate) fn insert(&mut self, at: Place, hash: u32, entry: u32) -> Result<(), Crowded> {
        let Place(at) = at;
        let mut longest = at - self.home(hash);
        let mut end = at;
        while self.cells[end] != Cell::EMPTY {
            end += 1;
            longest = longest.max(end - self.home(self.cells[end - 1].hash()));
        }
        if longest > self.longest {
            if longest > self.reach {
                return Err(Crowded);
            }
            self.longest = longest;
        }
        if end + 1 == self.cells.len() {
            self.cells.push(Cell::EMPTY);
        }
        self.cells.copy_within(at..end, at + 1);
        self.cells[at] = Cell::new(hash, entry);
        self.len += 1;
        Ok(())
    }

    /// Makes the cell name another entry with the same key.
    #[inline]
    pub(crate) fn replace(&mut self, at: Place, entry: u32) {
        let cell = &mut self.cells[at.0];
        *cell = Cell::new(cell.hash(), entry);
    }

    /// Takes a cell out, and moves those behind it that are away from home one back.
    #[inline]
    pub(crate) fn remove(&mut self, at: Place) {
        let Place(at) = at;
        let mut end = at + 1;
        while self.cells[end] != Cell::EMPTY && self.home(self.cells[end].hash()) < end {
            end += 1;
        }
        self.cells.copy_within(at + 1..end, at);
        self.cells[end - 1] = Cell::EMPTY;
        self.len -= 1;
    }

    /// Doubles the number of homes.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow(&mut self) {
        let old = std::mem::replace(self, Self::with_bits(self.bits() + 1));
        self.lay_out(old.cells.into_iter().filter(|&cell| cell != Cell::EMPTY));
    }

    /// Lays the same entries out again under new hashes, with twice the reach: so there are at
    /// most as many rehashes between two growths as the table has bits.
    #[cold]
    #[inline(never)]
    pub(crate) fn rehash(&mut self, hash_of: impl Fn(u32) -> u32) {
        let mut fresh = Self::with_bits(self.bits());
        let old = self.cells.iter().filter(|&&cell| cell != Cell::EMPTY);
        let mut cells: Vec<_> = old
            .map(|c| Cell::new(hash_of(c.entry()), c.entry()))
            .collect();
        cells.sort_unstable();
        fresh.lay_out(cells.into_iter());
        fresh.reach = fresh.reach.max(self.reach * 2);
        *self = fresh;
    }

    /// Fills an empty table from cells in order.
    fn lay_out(&mut self, cells: impl Iterator<Item = Cell>) {
        let mut next = 0;
        for cell in cells {
            let home = self.home(cell.hash());
            let at = home.max(next);
            while at + 1 >= self.cells.len() {
                self.cells.push(Cell::EMPTY);
            }
            self.cells[at] = cell;
            self.longest = self.longest.max(at - home);
            self.len += 1;
            next = at + 1;
        }
        // Whatever stands already is no reason to rehash again: only what comes is.
        self.reach = self.reach.max(self.longest);
    }
}
