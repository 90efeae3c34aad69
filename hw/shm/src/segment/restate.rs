//! How a member that waits undoes what another process has written over its words.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{Segment, Stamp};

impl Segment {
    /// Stores this member's words again where another process has written over them. `stamp` is the
    /// round in which this member waits.
    ///
    /// Otherwise two members could wait for each other for ever, after the process that has written
    /// there died: the words don't say any more what the members have published and read. The words
    /// about contents, and the contents, stay as they are.
    pub fn restate(&self, stamp: Stamp) {
        let own = self.own;
        // Words that are right are not stored again: other members have them in their caches.
        for (at, published) in self.in_slots.iter().enumerate() {
            let word = &self.memory.slot(own, at).stamp;
            if word.load(Relaxed) != published.0 {
                word.store(published.0, Release);
            }
        }
        let finished = stamp.before();
        let word = self.memory.finished(own);
        if word.load(Relaxed) != finished.0 {
            word.store(finished.0, Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Published;
    use super::*;

    #[test]
    fn a_member_that_waits_restores_its_words() {
        let (mut first, name) = Segment::create(2, 0).unwrap();
        let mut second = Segment::open(name.as_bytes(), 2, 1).unwrap();
        let old = Stamp::new(1, 0);
        let stamp = Stamp::new(2, 0);
        let next = Stamp::new(2, 1);
        for stamp in [old, stamp] {
            first.publish(stamp, false, 7);
        }
        first.finish(stamp);
        for garbage in [0, 3, u64::MAX] {
            for slot in 0..first.in_slots.len() {
                second.memory.slot(0, slot).stamp.store(garbage, Relaxed);
            }
            second.memory.finished(0).store(garbage, Relaxed);
            assert_ne!(second.look(0, stamp, 1), Published::Contents { about: 7 });
            first.restate(next);
            for stamp in [old, stamp] {
                assert_eq!(second.look(0, stamp, 1), Published::Contents { about: 7 });
            }
            assert_eq!(second.look(0, next, 1), Published::NotYet);
            assert!(second.has_ended(0, old) && !second.has_ended(0, stamp));
        }
    }
}
