//! Both matching lists against plain ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_soft::{
    Pattern, PostedHandle, PostedList, SourceId, Tag, TagMask, UnexpectedHandle, UnexpectedList,
};

fuzz_target!(|data: &[u8]| {
    let mut posted: PostedList<u32> = PostedList::new(1);
    let mut unexpected: UnexpectedList<u32> = UnexpectedList::new(2);
    let mut plain_posted: Vec<(PostedHandle, Pattern, u32)> = Vec::new();
    let mut plain_unexpected: Vec<(UnexpectedHandle, Tag, SourceId, u32)> = Vec::new();
    let mut gone_posted = Vec::new();
    let mut gone_unexpected = Vec::new();
    for (number, step) in (0u32..).zip(data.chunks_exact(4)) {
        let &[what, tag, mask, source] = step else { unreachable!() };
        // Few tags and sources, many masks: more classes than are indexed.
        let tag = Tag(u64::from(tag % 16));
        let source = SourceId(u32::from(source % 3));
        let mut pattern = Pattern::new(tag, TagMask(u64::from(mask % 64)));
        if what & 0x80 != 0 {
            pattern = pattern.from_source(source);
        }
        match what % 8 {
            0 | 1 => plain_posted.push((posted.post(pattern, number), pattern, number)),
            2 => {
                let at = plain_posted.iter().position(|(_, p, _)| p.matches(tag, source));
                let wanted = at.map(|at| plain_posted.remove(at));
                assert_eq!(posted.first_match(tag, source), wanted.map(|(handle, ..)| handle));
                assert_eq!(posted.take_match(tag, source), wanted.map(|(.., value)| value));
                gone_posted.extend(wanted.map(|(handle, ..)| handle));
            }
            3 if !plain_posted.is_empty() => {
                let at = usize::from(mask) % plain_posted.len();
                let (handle, _, value) = plain_posted.remove(at);
                assert_eq!(posted.cancel(handle), Ok(value));
                gone_posted.push(handle);
            }
            4 | 5 => {
                let handle = unexpected.push(tag, source, number);
                plain_unexpected.push((handle, tag, source, number));
            }
            6 => {
                let matches = |(_, t, s, _): &(_, Tag, SourceId, u32)| pattern.matches(*t, *s);
                let at = plain_unexpected.iter().position(matches);
                let wanted = at.map(|at| plain_unexpected.remove(at));
                assert_eq!(unexpected.find(&pattern), wanted.map(|(handle, ..)| handle));
                assert_eq!(unexpected.take(&pattern), wanted.map(|(.., value)| value));
                gone_unexpected.extend(wanted.map(|(handle, ..)| handle));
            }
            7 if !plain_unexpected.is_empty() => {
                let at = usize::from(mask) % plain_unexpected.len();
                let (handle, .., value) = plain_unexpected.remove(at);
                assert_eq!(unexpected.remove(handle), Ok(value));
                gone_unexpected.push(handle);
            }
            _ => {
                gone_posted.iter().for_each(|&h| assert!(posted.cancel(h).is_err()));
                gone_unexpected.iter().for_each(|&h| assert!(unexpected.remove(h).is_err()));
            }
        }
        assert_eq!((posted.len(), unexpected.len()), (plain_posted.len(), plain_unexpected.len()));
    }
    assert!(posted.iter_in_order().eq(plain_posted));
    assert!(unexpected.iter_in_order().eq(plain_unexpected));
});
