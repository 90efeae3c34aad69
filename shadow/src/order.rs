//! An index that answers: does an older receive block this candidate for the NIC's list?
//!
//! A receive that blocks younger ones is a *blocker*. It overlaps a candidate if their tags agree
//! on the bits that both masks compare. So each mask of a candidate has a *view*: all blockers,
//! grouped by the bits that their mask and the view's mask share, and each group ordered by these
//! bits of the tag and by age. One look-up per group finds the blocker. The numbers of views and
//! groups are bounded. A mask that gets no view or group of its own uses one that compares fewer
//! bits: that may find a blocker that doesn't overlap, and never misses one that does.

use std::collections::BTreeMap;

use tagmatch_soft::Pattern;

/// The most masks of candidates with a view of their own.
const VIEWS_MAX: usize = 8;
/// The most groups of one view with a mask of their own.
const GROUPS_MAX: usize = 32;

/// The blockers, indexed for look-ups by candidates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blockers {
    views: Vec<View>,
}

#[derive(Clone, Debug)]
struct View {
    mask: u64,
    groups: Vec<MaskGroup>,
}

/// Blockers whose masks share the same bits with the view's mask.
#[derive(Clone, Debug)]
struct MaskGroup {
    mask: u64,
    blockers: BTreeMap<(u64, Age), PostedPattern>,
}

/// A receive's place in the order of posting.
pub(crate) type Age = u64;

/// A receive's pattern and its place in the order of posting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedPattern {
    pub(crate) id: u32,
    pub(crate) age: Age,
    pub(crate) pattern: Pattern,
}

impl Blockers {
    pub(crate) fn insert(&mut self, blocker: PostedPattern) {
        for view in &mut self.views {
            view.insert(blocker);
        }
    }

    pub(crate) fn remove(&mut self, blocker: &PostedPattern) {
        for view in &mut self.views {
            view.remove(blocker);
        }
    }

    /// A blocker that is older than the candidate and overlaps it. `all` are the blockers; they
    /// fill the view if the candidate's mask is new.
    pub(crate) fn blocker(
        &mut self,
        candidate: &PostedPattern,
        all: impl Iterator<Item = PostedPattern>,
    ) -> Option<PostedPattern> {
        self.view(candidate.pattern.mask().0, all).oldest(candidate)
    }

    /// The view of a mask. If there are too many views, the view of mask 0, where everything
    /// overlaps.
    fn view(&mut self, mask: u64, all: impl Iterator<Item = PostedPattern>) -> &View {
        let find = |views: &[View], mask| views.iter().position(|view| view.mask == mask);
        let mask = match find(&self.views, mask) {
            None if self.views.len() >= VIEWS_MAX => 0,
            _ => mask,
        };
        let place = find(&self.views, mask).unwrap_or_else(|| {
            let mut view = View { mask, groups: Vec::new() };
            all.for_each(|blocker| view.insert(blocker));
            self.views.push(view);
            self.views.len() - 1
        });
        &self.views[place]
    }
}

impl View {
    fn insert(&mut self, blocker: PostedPattern) {
        let mask = self.mask & blocker.pattern.mask().0;
        let group = self.group_for(mask);
        group.blockers.insert((blocker.pattern.tag().0 & group.mask, blocker.age), blocker);
    }

    /// The group of a mask. If there are too many groups, an empty one is reused, or else the group
    /// of mask 0 is taken.
    fn group_for(&mut self, mask: u64) -> &mut MaskGroup {
        let find = |groups: &[MaskGroup], mask| groups.iter().position(|group| group.mask == mask);
        let place = find(&self.groups, mask).unwrap_or_else(|| {
            if self.groups.len() >= GROUPS_MAX {
                let empty = self.groups.iter().position(|group| group.blockers.is_empty());
                if let Some(place) = empty {
                    self.groups[place].mask = mask;
                    return place;
                }
                if let Some(place) = find(&self.groups, 0) {
                    return place;
                }
            }
            let mask = if self.groups.len() >= GROUPS_MAX { 0 } else { mask };
            self.groups.push(MaskGroup { mask, blockers: BTreeMap::new() });
            self.groups.len() - 1
        });
        &mut self.groups[place]
    }

    /// Removes a blocker. It is in the group of its mask, or in the group of mask 0 if its own
    /// group was made after it was inserted.
    fn remove(&mut self, blocker: &PostedPattern) {
        let own = self.mask & blocker.pattern.mask().0;
        for mask in [own, 0] {
            let group = self.groups.iter_mut().find(|group| group.mask == mask);
            let key = (blocker.pattern.tag().0 & mask, blocker.age);
            if group.is_some_and(|group| group.blockers.remove(&key).is_some()) {
                return;
            }
        }
    }

    fn oldest(&self, candidate: &PostedPattern) -> Option<PostedPattern> {
        let of_group = |group: &MaskGroup| {
            let tag = candidate.pattern.tag().0 & self.mask & group.mask;
            group.blockers.range((tag, 0)..(tag, candidate.age)).next().map(|(_, blocker)| *blocker)
        };
        self.groups.iter().filter_map(of_group).min_by_key(|blocker| blocker.age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tagmatch_soft::{Tag, TagMask};

    /// Patterns of few bits, so that overlaps are common, with more masks than views and groups.
    fn pattern() -> impl Strategy<Value = Pattern> {
        let mask = prop_oneof![
            3 => prop::sample::select(vec![u64::MAX, !0xf, !0xf0, 0]),
            1 => (0u64..256).prop_map(|bits| !bits),
        ];
        (0u64..256, mask).prop_map(|(tag, mask)| Pattern::new(Tag(tag), TagMask(mask)))
    }

    #[derive(Clone, Debug)]
    enum Action {
        Insert(Pattern),
        Remove(prop::sample::Index),
        Ask(Pattern, prop::sample::Index),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            4 => pattern().prop_map(Action::Insert),
            2 => any::<prop::sample::Index>().prop_map(Action::Remove),
            4 => (pattern(), any::<prop::sample::Index>()).prop_map(|(p, at)| Action::Ask(p, at)),
        ]
    }

    /// Compares every pair.
    fn naive(all: &[PostedPattern], candidate: &PostedPattern) -> bool {
        let overlaps = |other: &PostedPattern| other.pattern.overlaps(&candidate.pattern);
        all.iter().any(|other| other.age < candidate.age && overlaps(other))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn finds_what_comparing_every_pair_finds(plan in prop::collection::vec(action(), 1..200)) {
            let mut order = Blockers::default();
            let mut all: Vec<PostedPattern> = Vec::new();
            let mut masks = vec![];
            let mut age = 0;
            for step in plan {
                match step {
                    Action::Insert(pattern) => {
                        age += 1;
                        let blocker = PostedPattern { id: u32::try_from(age).unwrap(), age, pattern };
                        order.insert(blocker);
                        all.push(blocker);
                    }
                    Action::Remove(index) if !all.is_empty() => {
                        let removed = all.remove(index.index(all.len()));
                        order.remove(&removed);
                    }
                    Action::Remove(_) => {}
                    Action::Ask(pattern, index) => {
                        let asked = Age::try_from(index.index(usize::try_from(age).unwrap() + 2));
                        let asked = PostedPattern { id: 0, age: asked.unwrap(), pattern };
                        if !masks.contains(&pattern.mask()) {
                            masks.push(pattern.mask());
                        }
                        let found = order.blocker(&asked, all.clone().into_iter());
                        // One view more is of mask 0.
                        prop_assert!(order.views.len() <= VIEWS_MAX + 1);
                        match (found, naive(&all, &asked)) {
                            (Some(found), false) => {
                                let is_exact = masks.len() <= VIEWS_MAX
                                    && order.views.iter().all(|v| v.groups.len() < GROUPS_MAX);
                                prop_assert!(!is_exact, "{found:?} does not block {pattern:?}");
                            }
                            (found, right) => prop_assert_eq!(found.is_some(), right),
                        }
                    }
                }
            }
        }
    }
}
