//! Both lists, alone and as MPI uses them, against plain lists that are searched from the front.
//!
//! A run is a list of words; each is decoded into one operation. That draws hundreds of operations
//! as fast as numbers, and still shrinks.

use proptest::prelude::*;
use tagmatch_soft::{
    Pattern, PostedHandle, PostedList, SourceId, StaleHandle, Tag, TagMask, UnexpectedHandle,
    UnexpectedList,
};

/// A word that is taken apart.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        let drawn = self.0 % bound;
        self.0 /= bound;
        drawn
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// So few tags that most patterns overlap.
    fn tag(&mut self) -> Tag {
        Tag(self.below(3) | self.below(2) << 40)
    }

    fn source(&mut self) -> SourceId {
        [SourceId(0), SourceId(1), SourceId(u32::MAX)][self.index(3)]
    }

    /// With `many`, more masks than a list has indexes for.
    fn mask(&mut self, many: bool) -> TagMask {
        if many && self.below(4) != 0 {
            let exotic = self.below(48);
            return TagMask(exotic << 8 | exotic & 3 | (exotic & 4) << 38);
        }
        [TagMask::EXACT, TagMask::ANY, TagMask(0xff), TagMask(!0xff)][self.index(4)]
    }

    fn pattern(&mut self, many: bool) -> Pattern {
        let pattern = Pattern::new(self.tag(), self.mask(many));
        if self.below(2) == 0 { pattern } else { pattern.from_source(self.source()) }
    }
}

/// Removes the first element that is wanted.
fn take_first<E>(list: &mut Vec<E>, wanted: impl FnMut(&E) -> bool) -> Option<E> {
    list.iter().position(wanted).map(|at| list.remove(at))
}

type Posted = (PostedHandle, Pattern, usize);
type Arrived = (UnexpectedHandle, Tag, SourceId, usize);

/// What a run of posted receives begins with.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    /// Many receives, and then so many that are taken at once that the list goes on as a short one behind them.
    Many,
}

fn posted_run(
    seed: u64,
    before: Before,
    many: bool,
    calm: bool,
    words: &[u64],
) -> Result<(), TestCaseError> {
    let mut list = PostedList::new(seed);
    let mut oracle: Vec<Posted> = Vec::new();
    let mut handles = Vec::new();
    let mut last = None;
    if let Before::Many = before {
        for (number, word) in (1000..1040).zip(words.iter().cycle()) {
            let mut draw = Draw(*word);
            let mask = [TagMask::EXACT, TagMask(0xff)][draw.index(2)];
            let mut pattern = Pattern::new(draw.tag(), mask);
            if draw.below(2) == 0 {
                pattern = pattern.from_source(draw.source());
            }
            let handle = list.post(pattern, number);
            oracle.push((handle, pattern, number));
            handles.push(handle);
        }
        for number in 0..100 {
            list.post(Pattern::new(Tag(77), TagMask::EXACT), number);
            prop_assert_eq!(list.take_match(Tag(77), SourceId(0)), Some(number));
        }
    }
    for (number, &word) in words.iter().enumerate() {
        let mut draw = Draw(word);
        // A calm run lets the list grow long, the other keeps it short.
        match draw.below(if calm { 64 } else { 40 }) {
            0 => {
                let source = draw.source();
                let (dead, kept) =
                    oracle.into_iter().partition(|(_, p, _)| p.source() == Some(source));
                oracle = kept;
                let dead: Vec<Posted> = dead;
                let expected: Vec<_> = dead.iter().map(|posted| posted.2).collect();
                prop_assert_eq!(list.take_source(source), expected);
            }
            1..8 if !handles.is_empty() => {
                let handle = handles[draw.index(handles.len())];
                let expected = take_first(&mut oracle, |posted| posted.0 == handle);
                prop_assert_eq!(list.get(handle), expected.map(|(_, p, value)| (p, value)));
                let expected = expected.map(|posted| posted.2).ok_or(StaleHandle);
                prop_assert_eq!(list.cancel(handle), expected);
                prop_assert_eq!(list.get(handle), None);
            }
            8..25 => {
                let (tag, source) = (draw.tag(), draw.source());
                let expected = take_first(&mut oracle, |posted| posted.1.matches(tag, source));
                prop_assert_eq!(list.first_match(tag, source), expected.map(|posted| posted.0));
                prop_assert_eq!(list.take_match(tag, source), expected.map(|posted| posted.2));
            }
            _ => {
                // Those that are like the last one are kept together.
                let repeated = last.filter(|_| draw.below(3) != 0);
                let pattern = *last.insert(repeated.unwrap_or_else(|| draw.pattern(many)));
                let handle = list.post(pattern, number);
                prop_assert!(!handles.contains(&handle));
                oracle.push((handle, pattern, number));
                handles.push(handle);
            }
        }
        prop_assert_eq!(list.len(), oracle.len());
        prop_assert_eq!(list.is_empty(), oracle.is_empty());
    }
    prop_assert_eq!(list.iter_in_order().collect::<Vec<_>>(), oracle);
    Ok(())
}

fn unexpected_run(seed: u64, many: bool, calm: bool, words: &[u64]) -> Result<(), TestCaseError> {
    let mut list = UnexpectedList::new(seed);
    let mut oracle: Vec<Arrived> = Vec::new();
    let mut handles = Vec::new();
    for (number, &word) in words.iter().enumerate() {
        let mut draw = Draw(word);
        match draw.below(if calm { 64 } else { 40 }) {
            0..4 => {
                let pattern = draw.pattern(many);
                let oldest = oracle.iter().find(|&&(_, t, s, _)| pattern.matches(t, s));
                prop_assert_eq!(list.find(&pattern), oldest.map(|found| found.0));
            }
            4..8 if !handles.is_empty() => {
                let handle = handles[draw.index(handles.len())];
                let expected = take_first(&mut oracle, |arrived| arrived.0 == handle);
                prop_assert_eq!(list.get(handle), expected.map(|(_, t, s, v)| (t, s, v)));
                let expected = expected.map(|arrived| arrived.3).ok_or(StaleHandle);
                prop_assert_eq!(list.remove(handle), expected);
                prop_assert_eq!(list.get(handle), None);
            }
            8..20 => {
                let pattern = draw.pattern(many);
                let expected = take_first(&mut oracle, |&(_, t, s, _)| pattern.matches(t, s));
                prop_assert_eq!(list.take(&pattern), expected.map(|arrived| arrived.3));
            }
            _ => {
                let (tag, source) = (draw.tag(), draw.source());
                let handle = list.push(tag, source, number);
                prop_assert!(!handles.contains(&handle));
                oracle.push((handle, tag, source, number));
                handles.push(handle);
            }
        }
        prop_assert_eq!(list.len(), oracle.len());
        prop_assert_eq!(list.is_empty(), oracle.is_empty());
    }
    prop_assert_eq!(list.iter_in_order().collect::<Vec<_>>(), oracle);
    Ok(())
}

/// A receive asks the messages first, a message asks the receives first: no message and receive
/// that fit may ever wait side by side, and the pairs are those of MPI's rules.
fn mpi_run(seed: u64, many: bool, words: &[u64]) -> Result<(), TestCaseError> {
    let mut posted = PostedList::new(seed);
    let mut unexpected = UnexpectedList::new(seed);
    let mut receives: Vec<(Pattern, usize)> = Vec::new();
    let mut messages: Vec<(Tag, SourceId, usize)> = Vec::new();
    for (number, &word) in words.iter().enumerate() {
        let mut draw = Draw(word);
        if draw.below(2) == 0 {
            let pattern = draw.pattern(many);
            let expected = take_first(&mut messages, |&(t, s, _)| pattern.matches(t, s));
            let taken = unexpected.take(&pattern);
            prop_assert_eq!(taken, expected.map(|message| message.2));
            if taken.is_none() {
                posted.post(pattern, number);
                receives.push((pattern, number));
            }
        } else {
            let (tag, source) = (draw.tag(), draw.source());
            let expected = take_first(&mut receives, |(pattern, _)| pattern.matches(tag, source));
            let taken = posted.take_match(tag, source);
            prop_assert_eq!(taken, expected.map(|receive| receive.1));
            if taken.is_none() {
                unexpected.push(tag, source, number);
                messages.push((tag, source, number));
            }
        }
    }
    for (tag, source, _) in messages {
        prop_assert_eq!(posted.first_match(tag, source), None);
    }
    for (pattern, _) in receives {
        prop_assert_eq!(unexpected.find(&pattern), None);
    }
    Ok(())
}

fn words() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn posted_list_is_a_plain_list(seed: u64, many: bool, calm: bool, words in words()) {
        posted_run(seed, Before::Nothing, many, calm, &words)?;
    }

    #[test]
    fn posted_list_behind_a_long_one_is_a_plain_list(
        seed: u64,
        many: bool,
        calm: bool,
        words in words(),
    ) {
        posted_run(seed, Before::Many, many, calm, &words)?;
    }

    #[test]
    fn unexpected_list_is_a_plain_list(seed: u64, many: bool, calm: bool, words in words()) {
        unexpected_run(seed, many, calm, &words)?;
    }

    #[test]
    fn both_lists_pair_as_mpi_does(seed: u64, many: bool, words in words()) {
        mpi_run(seed, many, &words)?;
    }
}

#[test]
fn runs_with_many_masks_do_use_the_scanned_list() {
    let mut list = PostedList::new(1);
    for word in 0..4096u64 {
        let word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        list.post(Draw(word).pattern(true), word);
    }
    assert_eq!(list.stats().classes, 32);
    assert!(list.stats().scanned_entries > 100);
}
