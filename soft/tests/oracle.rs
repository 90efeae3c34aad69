//! Both lists against plain lists that are searched from the front.

use proptest::prelude::*;
use tagmatch_soft::{
    Pattern, PostedHandle, PostedList, SourceId, StaleHandle, Tag, TagMask, UnexpectedHandle,
    UnexpectedList,
};

/// A tag space so small that most patterns overlap.
fn tag() -> impl Strategy<Value = Tag> {
    (0u64..4, 0u64..3).prop_map(|(low, high)| Tag(low | high << 40))
}

fn source() -> impl Strategy<Value = SourceId> {
    prop_oneof![0u32..3, Just(u32::MAX)].prop_map(SourceId)
}

/// Few masks most of the time, and now and then more than there are indexes for.
fn mask() -> impl Strategy<Value = TagMask> {
    prop_oneof![
        4 => Just(TagMask::EXACT),
        1 => Just(TagMask::ANY),
        2 => Just(TagMask(0xff)),
        1 => Just(TagMask(0xff << 40)),
        2 => (0u64..64).prop_map(|bits| TagMask(bits << 8 | bits & 3)),
    ]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (tag(), mask(), proptest::option::of(source())).prop_map(|(tag, mask, source)| {
        let pattern = Pattern::new(tag, mask);
        source.map_or(pattern, |source| pattern.from_source(source))
    })
}

#[derive(Clone, Debug)]
enum PostedOp {
    Post(Pattern),
    Arrive(Tag, SourceId),
    Cancel(usize),
    Die(SourceId),
}

fn posted_op() -> impl Strategy<Value = PostedOp> {
    prop_oneof![
        40 => pattern().prop_map(PostedOp::Post),
        30 => (tag(), source()).prop_map(|(tag, source)| PostedOp::Arrive(tag, source)),
        15 => any::<prop::sample::Index>().prop_map(|at| PostedOp::Cancel(at.index(1 << 16))),
        1 => source().prop_map(PostedOp::Die),
    ]
}

#[derive(Clone, Debug)]
enum UnexpectedOp {
    Push(Tag, SourceId),
    Find(Pattern),
    Take(Pattern),
    Remove(usize),
}

fn unexpected_op() -> impl Strategy<Value = UnexpectedOp> {
    prop_oneof![
        40 => (tag(), source()).prop_map(|(tag, source)| UnexpectedOp::Push(tag, source)),
        10 => pattern().prop_map(UnexpectedOp::Find),
        25 => pattern().prop_map(UnexpectedOp::Take),
        10 => any::<prop::sample::Index>().prop_map(|at| UnexpectedOp::Remove(at.index(1 << 16))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn posted_list_is_a_plain_list(
        seed: u64,
        ops in prop::collection::vec(posted_op(), 0..400),
    ) {
        let mut list = PostedList::new(seed);
        let mut oracle: Vec<(PostedHandle, Pattern, usize)> = Vec::new();
        let mut handles = Vec::new();
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                PostedOp::Post(pattern) => {
                    let handle = list.post(pattern, number);
                    oracle.push((handle, pattern, number));
                    handles.push(handle);
                }
                PostedOp::Arrive(tag, source) => {
                    let at = oracle.iter().position(|(_, pattern, _)| pattern.matches(tag, source));
                    prop_assert_eq!(list.first_match(tag, source), at.map(|at| oracle[at].0));
                    let expected = at.map(|at| oracle.remove(at).2);
                    prop_assert_eq!(list.take_match(tag, source), expected);
                }
                PostedOp::Cancel(pick) if !handles.is_empty() => {
                    let handle = handles[pick % handles.len()];
                    let at = oracle.iter().position(|&(known, _, _)| known == handle);
                    prop_assert_eq!(list.get(handle), at.map(|at| (oracle[at].1, oracle[at].2)));
                    let expected = at.map(|at| oracle.remove(at).2).ok_or(StaleHandle);
                    prop_assert_eq!(list.cancel(handle), expected);
                    prop_assert_eq!(list.get(handle), None);
                }
                PostedOp::Cancel(_) => {}
                PostedOp::Die(source) => {
                    let (dead, kept): (Vec<_>, Vec<_>) =
                        oracle.into_iter().partition(|(_, p, _)| p.source() == Some(source));
                    oracle = kept;
                    let expected: Vec<_> = dead.into_iter().map(|(_, _, value)| value).collect();
                    prop_assert_eq!(list.take_source(source), expected);
                }
            }
            prop_assert_eq!(list.len(), oracle.len());
            prop_assert_eq!(list.is_empty(), oracle.is_empty());
        }
        prop_assert_eq!(list.iter_in_order().collect::<Vec<_>>(), oracle);
    }

    #[test]
    fn unexpected_list_is_a_plain_list(
        seed: u64,
        ops in prop::collection::vec(unexpected_op(), 0..400),
    ) {
        let mut list = UnexpectedList::new(seed);
        let mut oracle: Vec<(UnexpectedHandle, Tag, SourceId, usize)> = Vec::new();
        let mut handles = Vec::new();
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                UnexpectedOp::Push(tag, source) => {
                    let handle = list.push(tag, source, number);
                    oracle.push((handle, tag, source, number));
                    handles.push(handle);
                }
                UnexpectedOp::Find(pattern) => {
                    let oldest = oracle.iter().find(|&&(_, t, s, _)| pattern.matches(t, s));
                    prop_assert_eq!(list.find(&pattern), oldest.map(|found| found.0));
                }
                UnexpectedOp::Take(pattern) => {
                    let at = oracle.iter().position(|&(_, t, s, _)| pattern.matches(t, s));
                    let expected = at.map(|at| oracle.remove(at).3);
                    prop_assert_eq!(list.take(&pattern), expected);
                }
                UnexpectedOp::Remove(pick) if !handles.is_empty() => {
                    let handle = handles[pick % handles.len()];
                    let at = oracle.iter().position(|&(known, ..)| known == handle);
                    let entry = at.map(|at| (oracle[at].1, oracle[at].2, oracle[at].3));
                    prop_assert_eq!(list.get(handle), entry);
                    let expected = at.map(|at| oracle.remove(at).3).ok_or(StaleHandle);
                    prop_assert_eq!(list.remove(handle), expected);
                    prop_assert_eq!(list.get(handle), None);
                }
                UnexpectedOp::Remove(_) => {}
            }
            prop_assert_eq!(list.len(), oracle.len());
            prop_assert_eq!(list.is_empty(), oracle.is_empty());
        }
        prop_assert_eq!(list.iter_in_order().collect::<Vec<_>>(), oracle);
    }
}
