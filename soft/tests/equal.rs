//! Receives that equal the one before them.

use tagmatch_soft::{Pattern, PostedList, SourceId, Tag, TagMask};

#[test]
fn a_receive_that_equals_the_one_before_is_not_asked_about_until_that_is_forgotten() {
    let alike = Pattern::new(Tag(3), TagMask::EXACT);
    let mut list = PostedList::new(1);
    assert_eq!(list.post_if(alike, 0, || false), None);
    list.post(alike, 1);
    assert!(list.post_if(alike, 2, || panic!("not asked")).is_some());
    assert_eq!(list.post_if(Pattern::new(Tag(4), TagMask::EXACT), 3, || false), None);
    list.forget_latest();
    assert_eq!(list.post_if(alike, 4, || false), None);
    assert!(list.post_if(alike, 5, || true).is_some());
    let taken = std::iter::from_fn(|| list.take_match(Tag(3), SourceId(0)));
    assert_eq!(taken.collect::<Vec<_>>(), [1, 2, 5]);
}
