//! The work of an operation does not grow with the list, whatever the tags. The tests count work,
//! not time.

use tagmatch_soft::{MatchStats, Pattern, PostedList, SourceId, Tag, TagMask, UnexpectedList};

const ENTRIES: u64 = 100_000;
/// The most buckets and entries that one operation may read for each class in use. Most read one.
const MOST_ONCE: u64 = 32;
/// The most buckets and entries that an operation may read on average, in hundredths.
const MOST_ON_AVERAGE: u64 = 160;

fn low(number: u64) -> u32 {
    u32::try_from(number % 64).expect("small")
}

/// The tag of the n-th entry.
type TagOf = fn(u64) -> u64;
/// The tag and source of the n-th entry.
type KeyOf = fn(u64) -> (u64, u64);

/// Tags on which one fixed hash or another is slow.
fn adversaries() -> Vec<(&'static str, TagOf)> {
    vec![
        ("counting", |i| i),
        ("from the top", |i| !i),
        ("multiples of 1021", |i| i * 1021),
        ("low half equal to high half", |i| (i << 32) | i),
        ("in the high half", |i| i << 32),
        ("in the highest bits", |i| i.reverse_bits()),
        ("multiples of a power of two", |i| i << 20),
        ("two bits set", |i| 1u64.rotate_left(low(i)) ^ ((i / 64) << 1)),
        ("a large odd stride", |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ("its inverse", |i| i.wrapping_mul(0xf1de_83e1_9937_733d)),
        ("an even stride", |i| i.wrapping_mul(0x0001_0000_0001_0000)),
        ("MPI: rank and tag", |i| (3 << 48) | ((i % 317) << 24) | (i / 317)),
        ("squares", |i| i * i),
        ("multiples of 2^31 - 1", |i| i * 0x7fff_ffff),
    ]
}

/// Checks the work of each step, and of all steps together.
struct Meter {
    what: String,
    classes: u64,
    last: u64,
    start: u64,
    steps: u64,
}

impl Meter {
    fn new(what: impl Into<String>, classes: u64, stats: &MatchStats) -> Self {
        let now = stats.inspected;
        Meter { what: what.into(), classes, last: now, start: now, steps: 0 }
    }

    fn step(&mut self, stats: &MatchStats) {
        let work = stats.inspected - self.last;
        assert!(work <= MOST_ONCE * self.classes, "{}: {work} at once", self.what);
        self.last = stats.inspected;
        self.steps += 1;
    }

    fn finish(self, stats: &MatchStats) {
        let work = stats.inspected - self.start;
        let allowed = self.steps * self.classes * MOST_ON_AVERAGE / 100;
        assert!(work <= allowed, "{}: {work} in {} steps", self.what, self.steps);
        assert!(stats.longest_probe <= 24, "{}: {stats:?}", self.what);
        assert_eq!(stats.reseeds, 0, "{}: {stats:?}", self.what);
    }
}

/// Visits every number below `count` once: 0, then numbers far apart.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    let space = count.next_power_of_two();
    (0..space).map(move |i| i.wrapping_mul(0x9e37_79b1) & (space - 1)).filter(move |&i| i < count)
}

#[test]
fn shuffled_visits_all() {
    let mut all: Vec<_> = shuffled(1000).collect();
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[test]
fn posted_receives_with_adversarial_tags() {
    for (name, tag) in adversaries() {
        for seed in [0, 1, u64::MAX] {
            let mut list = PostedList::new(seed);
            let mut meter = Meter::new(name, 1, &list.stats());
            for i in 0..ENTRIES {
                list.post(Pattern::new(Tag(tag(i)), TagMask::EXACT), tag(i));
                meter.step(&list.stats());
            }
            for i in shuffled(ENTRIES) {
                assert_eq!(list.take_match(Tag(tag(i)), SourceId(0)), Some(tag(i)));
                meter.step(&list.stats());
            }
            meter.finish(&list.stats());
        }
    }
}

#[test]
fn unexpected_messages_with_adversarial_tags_and_sources() {
    for (name, tag) in adversaries() {
        let mut list = UnexpectedList::new(3);
        let mut meter = Meter::new(name, 1, &list.stats());
        let source = |i: u64| SourceId(u32::try_from(i % 64).expect("small") << 26);
        for i in 0..ENTRIES {
            list.push(Tag(tag(i)), source(i), i);
            meter.step(&list.stats());
        }
        for i in shuffled(ENTRIES) {
            let pattern = Pattern::new(Tag(tag(i)), TagMask::EXACT).from_source(source(i));
            let value = list.take(&pattern).expect("it is there");
            assert_eq!((tag(value), source(value)), (tag(i), source(i)));
            meter.step(&list.stats());
        }
        meter.finish(&list.stats());
    }
}

/// One tag from many sources, and many tags from one source.
#[test]
fn sources_are_hashed_as_well_as_tags() {
    let grids: [(&str, KeyOf); 4] = [
        ("sources", |i| (7, i)),
        ("sources from the top", |i| (7, !i & 0xffff_ffff)),
        ("a grid", |i| (i / 300, i % 300)),
        ("a diagonal", |i| (i, i)),
    ];
    for (name, key) in grids {
        let pattern = |i| {
            let (tag, source) = key(i);
            let source = SourceId(u32::try_from(source).expect("32 bits"));
            (Pattern::new(Tag(tag), TagMask::EXACT).from_source(source), Tag(tag), source)
        };
        let mut list = PostedList::new(11);
        let mut meter = Meter::new(name, 1, &list.stats());
        for i in 0..ENTRIES {
            list.post(pattern(i).0, i);
            meter.step(&list.stats());
        }
        for i in shuffled(ENTRIES) {
            let (_, tag, source) = pattern(i);
            assert_eq!(list.take_match(tag, source), Some(i));
            meter.step(&list.stats());
        }
        meter.finish(&list.stats());
    }
}

#[test]
fn many_receives_with_one_key_beside_others() {
    let mut list = PostedList::new(5);
    let mut meter = Meter::new("flood", 1, &list.stats());
    let pattern = |tag| Pattern::new(Tag(tag), TagMask::EXACT);
    let mut flood = Vec::new();
    for i in 0..ENTRIES {
        flood.push(list.post(pattern(1), i));
        list.post(pattern(1000 + i % 100), i);
        meter.step(&list.stats());
        meter.step(&list.stats());
    }
    for i in 0..ENTRIES {
        assert_eq!(list.take_match(Tag(1000 + i % 100), SourceId(0)), Some(i));
        meter.step(&list.stats());
    }
    // Cancels at the middle, the end and the front of the chain, in an order that has nothing to do
    // with it.
    for i in shuffled(ENTRIES).take(90_000) {
        let handle = flood[usize::try_from(i).expect("small")];
        assert_eq!(list.cancel(handle), Ok(i));
        meter.step(&list.stats());
    }
    let mut last = None;
    while let Some(taken) = list.take_match(Tag(1), SourceId(0)) {
        assert!(last < Some(taken));
        last = Some(taken);
        meter.step(&list.stats());
    }
    assert!(list.is_empty());
    meter.finish(&list.stats());
}

#[test]
fn cancels_from_either_end() {
    for backwards in [false, true] {
        for keys in [1, 2, ENTRIES] {
            let mut list = PostedList::new(5);
            let mut handles: Vec<_> = (0..ENTRIES)
                .map(|i| list.post(Pattern::new(Tag(i % keys), TagMask::EXACT), i))
                .collect();
            if backwards {
                handles.reverse();
            }
            let mut meter = Meter::new("cancel", 1, &list.stats());
            for handle in handles {
                assert!(list.cancel(handle).is_ok());
                assert!(list.cancel(handle).is_err());
                meter.step(&list.stats());
            }
            assert!(list.is_empty());
            meter.finish(&list.stats());
        }
    }
}

#[test]
fn receives_that_never_match_cost_nothing() {
    let masks = [TagMask::EXACT, TagMask(!0xff), TagMask(0xffff), TagMask(!(1 << 40))];
    let mut list = PostedList::new(8);
    for i in 0..4096u64 {
        for mask in masks {
            list.post(Pattern::new(Tag((i << 8) | 1), mask), i);
        }
    }
    let mut meter = Meter::new("never matching", 4, &list.stats());
    for i in 0..ENTRIES {
        // Every fourth message matches nothing.
        let tag = Tag(i << 32 | 0xffaa02);
        let wanted = i % 4 != 0;
        if wanted {
            list.post(Pattern::new(tag, TagMask::EXACT), i);
            meter.step(&list.stats());
        }
        assert_eq!(list.take_match(tag, SourceId(0)), wanted.then_some(i));
        meter.step(&list.stats());
    }
    meter.finish(&list.stats());
}

#[test]
fn wildcards_find_among_unexpected_messages() {
    let mut list = UnexpectedList::new(8);
    for i in 0..ENTRIES {
        list.push(Tag((i << 24) | (i % 7)), SourceId(u32::try_from(i).expect("32 bits") % 64), i);
    }
    let patterns = |i: u64| {
        let source = SourceId(u32::try_from(i).expect("32 bits") % 64);
        [
            Pattern::new(Tag(i << 24), TagMask(!0xff_ffff)),
            Pattern::new(Tag((i << 24) | (i % 7)), TagMask::EXACT),
            Pattern::new(Tag(0), TagMask::ANY).from_source(source),
        ]
    };
    // The first search of a class builds its index. Only the later ones are measured.
    for pattern in patterns(5) {
        assert!(list.find(&pattern).is_some());
    }
    assert_eq!(list.stats().builds, 3);
    let mut meter = Meter::new("wildcards", 4, &list.stats());
    for i in shuffled(ENTRIES) {
        for pattern in patterns(i) {
            let _ = list.find(&pattern);
            meter.step(&list.stats());
        }
        let value = list.take(&patterns(i)[0]);
        assert_eq!(value, Some(i));
        meter.step(&list.stats());
    }
    assert!(list.is_empty());
    meter.finish(&list.stats());
}

#[test]
fn filling_and_draining_again_costs_the_same_each_time() {
    let mut posted = PostedList::new(13);
    let mut unexpected = UnexpectedList::new(13);
    let mut costs = Vec::new();
    for round in 0..20u64 {
        let before = (posted.stats(), unexpected.stats());
        for i in 0..5000 {
            let tag = Tag(round << 40 | i);
            posted.post(Pattern::new(tag, TagMask::EXACT), i);
            unexpected.push(tag, SourceId(1), i);
        }
        for i in 0..5000 {
            let tag = Tag(round << 40 | i);
            assert_eq!(posted.take_match(tag, SourceId(1)), Some(i));
            let exact = Pattern::new(tag, TagMask::EXACT).from_source(SourceId(1));
            assert_eq!(unexpected.take(&exact), Some(i));
        }
        let after = (posted.stats(), unexpected.stats());
        costs.push(after.0.inspected - before.0.inspected);
        costs.push(after.1.inspected - before.1.inspected);
        if round > 0 {
            assert_eq!(after.0.growths, before.0.growths);
        }
    }
    assert!(costs.iter().all(|&cost| cost < 20_000), "{costs:?}");
}

/// A class that was searched once must not cost every message from then on, nor be built again and
/// again.
#[test]
fn classes_that_are_rarely_searched_lose_their_indexes() {
    let mut list = UnexpectedList::new(21);
    let exact = |i: u64| Pattern::new(Tag(i), TagMask::EXACT).from_source(SourceId(0));
    for i in 0..1000 {
        list.push(Tag(i), SourceId(0), i);
    }
    let rare = Pattern::new(Tag(u64::MAX), TagMask(!1));
    let before = list.stats();
    for i in 0..ENTRIES {
        if i % 10_000 == 0 {
            assert_eq!(list.find(&rare), None);
        }
        assert_eq!(list.take(&exact(i)), Some(i));
        list.push(Tag(i + 1000), SourceId(0), i + 1000);
    }
    let after = list.stats();
    assert_eq!(after.classes, 1);
    assert_eq!(after.builds - before.builds, 10);
    assert_eq!(after.retirements, 10);
    // Ten times the cost of building the index, and of updating it for as long as building it took.
    assert!(after.inspected - before.inspected < 2 * ENTRIES * 3 / 2 + 10 * 4 * 1100);
}

/// A search of a new class each time is a linear search at worst, once per class and period of
/// updates.
#[test]
fn more_classes_than_indexes_still_answer() {
    let mut list = UnexpectedList::new(34);
    for i in 0..100 {
        list.push(Tag(i), SourceId(0), i);
    }
    for bit in 0..60 {
        let pattern = Pattern::new(Tag(99), TagMask(0xff | 1 << bit));
        assert_eq!(list.find(&pattern).and_then(|found| list.get(found)).map(|m| m.2), Some(99));
    }
    assert_eq!(list.stats().classes, 32);
    assert!(list.stats().scans > 0);
}

/// A class without receives costs nothing, and another class can take its place.
#[test]
fn classes_come_and_go() {
    let mut list = PostedList::new(55);
    for round in 0..1000u64 {
        let mask = TagMask(round | 1 << 63);
        list.post(Pattern::new(Tag(u64::MAX), mask), round);
        assert_eq!(list.stats().classes, 1);
        assert_eq!(list.take_match(Tag(u64::MAX), SourceId(0)), Some(round));
        assert_eq!(list.stats().classes, 0);
        assert_eq!(list.stats().scanned_entries, 0);
    }
    let before = list.stats().inspected;
    assert_eq!(list.take_match(Tag(0), SourceId(0)), None);
    assert_eq!(list.stats().inspected, before);
}

/// The protocol's own data for an entry and the list's bytes together have to fit in 128 bytes,
/// slack included.
#[test]
fn bytes_per_entry_are_few_at_any_length() {
    for classes in [1, 4] {
        let mut posted = PostedList::<u32>::new(1);
        let mut unexpected = UnexpectedList::<u32>::new(1);
        let mut most_posted = 0;
        let mut most_unexpected = 0;
        for i in 0..ENTRIES {
            let mask = TagMask(!((i % classes) << 60));
            posted.post(Pattern::new(Tag(i), mask), 0);
            unexpected.push(Tag(i), SourceId(0), 0);
            if i + 1 >= 10_000 {
                let per_entry = |stats: MatchStats| stats.bytes * 10 / stats.entries;
                most_posted = most_posted.max(per_entry(posted.stats()));
                most_unexpected = most_unexpected.max(per_entry(unexpected.stats()));
            }
        }
        // In tenths of a byte: slots with a quarter of slack, and a table that has just doubled.
        assert!(most_posted <= 720, "{classes} classes: {most_posted}");
        assert!(most_unexpected <= 720, "{classes} classes: {most_unexpected}");
    }
}

/// The lists change between short and indexed, and entries of both ages are there in every state.
#[test]
fn handles_stay_good_while_a_list_becomes_long() {
    let mut posted = PostedList::new(3);
    let mut unexpected = UnexpectedList::new(3);
    for round in 0..50u64 {
        let count = round % 40 + 1;
        let pattern = |i: u64| Pattern::new(Tag(i), TagMask::EXACT).from_source(SourceId(low(i)));
        let receives: Vec<_> = (0..count).map(|i| posted.post(pattern(i), i)).collect();
        let messages: Vec<_> =
            (0..count).map(|i| unexpected.push(Tag(i), SourceId(low(i)), i)).collect();
        for (i, (&receive, &message)) in (0..).zip(receives.iter().zip(&messages)) {
            assert_eq!(posted.get(receive), Some((pattern(i), i)));
            assert_eq!(unexpected.get(message), Some((Tag(i), SourceId(low(i)), i)));
        }
        let order: Vec<_> = posted.iter_in_order().map(|(handle, ..)| handle).collect();
        assert_eq!(order, receives);
        let order: Vec<_> = unexpected.iter_in_order().map(|(handle, ..)| handle).collect();
        assert_eq!(order, messages);
        for i in shuffled(count) {
            let at = usize::try_from(i).expect("small");
            if i % 3 == 0 {
                assert_eq!(posted.take_match(Tag(i), SourceId(low(i))), Some(i));
                assert_eq!(unexpected.take(&pattern(i)), Some(i));
            } else {
                assert_eq!(posted.cancel(receives[at]), Ok(i));
                assert_eq!(unexpected.remove(messages[at]), Ok(i));
            }
            assert!(posted.cancel(receives[at]).is_err());
            assert!(unexpected.remove(messages[at]).is_err());
        }
        assert!(posted.is_empty() && unexpected.is_empty());
    }
}
