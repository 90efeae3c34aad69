//! Both lists, alone and as MPI uses them, compared with the oracle of `tagmatch-testkit`: plain
//! lists that are searched from the front.
//!
//! A run is a list of numbers, each of which is decoded into one operation. So proptest draws
//! hundreds of operations quickly, and can still shrink a run that fails.

use proptest::prelude::*;
use tagmatch_soft::{
    Pattern, PostedHandle, PostedList, SourceId, StaleHandle, Tag, TagMask, UnexpectedHandle,
    UnexpectedList,
};
use tagmatch_testkit::oracle::{PlainMatching, PlainPosted, PlainUnexpected};

/// A number that is decoded: each call takes a part of what is left of it.
struct Decoder(u64);

impl Decoder {
    fn below(&mut self, bound: u64) -> u64 {
        let drawn = self.0 % bound;
        self.0 /= bound;
        drawn
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// One of six tags, so that most patterns overlap.
    fn tag(&mut self) -> Tag {
        Tag(self.below(3) | self.below(2) << 40)
    }

    fn source(&mut self) -> SourceId {
        [SourceId(0), SourceId(1), SourceId(u32::MAX)][self.index(3)]
    }

    /// With `many`, one of more masks than a list has indexes for.
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

/// What the oracle keeps of a posted receive.
type Posted = (PostedHandle, Pattern, usize);
/// What the oracle keeps of an unexpected message.
type Arrived = (UnexpectedHandle, Tag, SourceId, usize);

/// What is done before a run of posted receives.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    /// Many receives are posted. Then so many are posted and matched at once that the list keeps
    /// later receives in a short list behind the many.
    LongList,
}

fn posted_run(
    seed: u64,
    before: Before,
    many: bool,
    calm: bool,
    words: &[u64],
) -> Result<(), TestCaseError> {
    let mut list = PostedList::new(seed);
    let mut oracle = PlainPosted::<Posted>::default();
    let mut handles = Vec::new();
    let mut last = None;
    if let Before::LongList = before {
        for (number, word) in (1000..1040).zip(words.iter().cycle()) {
            let mut draw = Decoder(*word);
            let mask = [TagMask::EXACT, TagMask(0xff)][draw.index(2)];
            let mut pattern = Pattern::new(draw.tag(), mask);
            if draw.below(2) == 0 {
                pattern = pattern.from_source(draw.source());
            }
            let handle = list.post(pattern, number);
            oracle.post(pattern, (handle, pattern, number));
            handles.push(handle);
        }
        for number in 0..100 {
            list.post(Pattern::new(Tag(77), TagMask::EXACT), number);
            prop_assert_eq!(list.take_match(Tag(77), SourceId(0)), Some(number));
        }
    }
    for (number, &word) in words.iter().enumerate() {
        let mut draw = Decoder(word);
        // In a calm run the list grows long. In others it stays short.
        match draw.below(if calm { 64 } else { 40 }) {
            0 => {
                let source = draw.source();
                let expected = oracle.take_all(|pattern, _| pattern.source() == Some(source));
                let expected: Vec<_> = expected.iter().map(|posted| posted.2).collect();
                prop_assert_eq!(list.take_source(source), expected);
            }
            1..8 if !handles.is_empty() => {
                let handle = handles[draw.index(handles.len())];
                let expected = oracle.take(|_, posted| posted.0 == handle);
                prop_assert_eq!(list.get(handle), expected.map(|(_, p, value)| (p, value)));
                let expected = expected.map(|posted| posted.2).ok_or(StaleHandle);
                prop_assert_eq!(list.cancel(handle), expected);
                prop_assert_eq!(list.get(handle), None);
            }
            8..25 => {
                let tag = draw.tag();
                let source = draw.source();
                let expected = oracle.take_match(tag, source);
                prop_assert_eq!(list.first_match(tag, source), expected.map(|posted| posted.0));
                prop_assert_eq!(list.take_match(tag, source), expected.map(|posted| posted.2));
            }
            _ => {
                // A list keeps alike receives together that are posted one after the other.
                let repeated = last.filter(|_| draw.below(3) != 0);
                let pattern = *last.insert(repeated.unwrap_or_else(|| draw.pattern(many)));
                let handle = list.post(pattern, number);
                prop_assert!(!handles.contains(&handle));
                oracle.post(pattern, (handle, pattern, number));
                handles.push(handle);
            }
        }
        prop_assert_eq!(list.len(), oracle.receives().len());
        prop_assert_eq!(list.is_empty(), oracle.receives().is_empty());
    }
    prop_assert!(list.iter_in_order().eq(oracle.receives().iter().map(|(_, posted)| *posted)));
    Ok(())
}

fn unexpected_run(seed: u64, many: bool, calm: bool, words: &[u64]) -> Result<(), TestCaseError> {
    let mut list = UnexpectedList::new(seed);
    let mut oracle = PlainUnexpected::<Arrived>::default();
    let mut handles = Vec::new();
    for (number, &word) in words.iter().enumerate() {
        let mut draw = Decoder(word);
        match draw.below(if calm { 64 } else { 40 }) {
            0..4 => {
                let pattern = draw.pattern(many);
                prop_assert_eq!(list.find(&pattern), oracle.find(&pattern).map(|found| found.0));
            }
            4..8 if !handles.is_empty() => {
                let handle = handles[draw.index(handles.len())];
                let expected = oracle.remove(|_, _, arrived| arrived.0 == handle);
                prop_assert_eq!(list.get(handle), expected.map(|(_, t, s, v)| (t, s, v)));
                let expected = expected.map(|arrived| arrived.3).ok_or(StaleHandle);
                prop_assert_eq!(list.remove(handle), expected);
                prop_assert_eq!(list.get(handle), None);
            }
            8..20 => {
                let pattern = draw.pattern(many);
                let expected = oracle.take(&pattern);
                prop_assert_eq!(list.take(&pattern), expected.map(|arrived| arrived.3));
            }
            _ => {
                let tag = draw.tag();
                let source = draw.source();
                let handle = list.push(tag, source, number);
                prop_assert!(!handles.contains(&handle));
                oracle.push(tag, source, (handle, tag, source, number));
                handles.push(handle);
            }
        }
        prop_assert_eq!(list.len(), oracle.messages().len());
        prop_assert_eq!(list.is_empty(), oracle.messages().is_empty());
    }
    prop_assert!(list.iter_in_order().eq(oracle.messages().iter().map(|(.., arrived)| *arrived)));
    Ok(())
}

/// Both lists as MPI uses them: a receive is posted only if no unexpected message fits, and a
/// message becomes unexpected only if no posted receive fits. The pairs must be the oracle's. At
/// the end no message and receive that fit are left.
fn mpi_run(seed: u64, many: bool, words: &[u64]) -> Result<(), TestCaseError> {
    let mut posted = PostedList::new(seed);
    let mut unexpected = UnexpectedList::new(seed);
    let mut oracle = PlainMatching::<usize, usize>::default();
    for (number, &word) in words.iter().enumerate() {
        let mut draw = Decoder(word);
        if draw.below(2) == 0 {
            let pattern = draw.pattern(many);
            let value = unexpected.take(&pattern);
            prop_assert_eq!(value, oracle.receive(pattern, number));
            if value.is_none() {
                posted.post(pattern, number);
            }
        } else {
            let tag = draw.tag();
            let source = draw.source();
            let value = posted.take_match(tag, source);
            prop_assert_eq!(value, oracle.arrive(tag, source, number));
            if value.is_none() {
                unexpected.push(tag, source, number);
            }
        }
    }
    for (tag, source, _) in oracle.unexpected.messages() {
        prop_assert_eq!(posted.first_match(*tag, *source), None);
    }
    for (pattern, _) in oracle.posted.receives() {
        prop_assert_eq!(unexpected.find(pattern), None);
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
        posted_run(seed, Before::LongList, many, calm, &words)?;
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
        list.post(Decoder(word).pattern(true), word);
    }
    assert_eq!(list.stats().classes, 32);
    assert!(list.stats().scanned_entries > 100);
}
