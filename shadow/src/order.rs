//! C1's index: is an older receive in the way of a candidate?
//!
//! A receive in the way is a *blocker*. It overlaps a candidate iff their tags agree on the bits that
//! both look at. So for each mask of candidates there is a *view*: all blockers, grouped by what their
//! mask and the view's have in common, each group ordered by those bits of the tag and by age. One
//! look at each group finds the blocker, if there is one. Both numbers are bounded: what doesn't fit
//! goes where fewer bits are compared, which finds overlaps that are none, but misses none.

use std::collections::BTreeMap;

use tagmatch_soft::Pattern;

/// Masks of candidates with a view of their own.
const VIEWS_MAX: usize = 8;
/// Groups of one view.
const GROUPS_MAX: usize = 32;

/// Blockers, by what candidates need to know of them.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    views: Vec<View>,
}

#[derive(Clone, Debug)]
struct View {
    mask: u64,
    groups: Vec<Group>,
}

/// Blockers that share a mask with the view.
#[derive(Clone, Debug)]
struct Group {
    mask: u64,
    blockers: BTreeMap<(u64, Age), Blocker>,
}

/// Place in the order of posting.
pub(crate) type Age = u64;

/// A receive in the way of younger ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocker {
    pub(crate) id: u32,
    pub(crate) age: Age,
    pub(crate) pattern: Pattern,
}

impl Order {
    pub(crate) fn new() -> Self {
        Order { views: Vec::new() }
    }

    pub(crate) fn insert(&mut self, blocker: Blocker) {
        for view in &mut self.views {
            view.insert(blocker);
        }
    }

    pub(crate) fn remove(&mut self, age: Age, pattern: &Pattern) {
        for view in &mut self.views {
            view.remove(age, pattern);
        }
    }

    /// A blocker older than the candidate that overlaps it. `all` are the blockers, for a first view.
    pub(crate) fn blocker(
        &mut self,
        age: Age,
        pattern: &Pattern,
        all: impl Iterator<Item = Blocker>,
    ) -> Option<Blocker> {
        self.view(pattern.mask().0, all).oldest(age, pattern.tag().0)
    }

    /// The view of a mask; of mask 0, where everything overlaps, if there are too many.
    fn view(&mut self, mask: u64, all: impl Iterator<Item = Blocker>) -> &View {
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
    fn insert(&mut self, blocker: Blocker) {
        let mask = self.mask & blocker.pattern.mask().0;
        let group = self.group_for(mask);
        group.blockers.insert((blocker.pattern.tag().0 & group.mask, blocker.age), blocker);
    }

    /// The group of a mask: an emptied one serves anew, and beyond the last there is that of mask 0.
    fn group_for(&mut self, mask: u64) -> &mut Group {
        let find = |groups: &[Group], mask| groups.iter().position(|group| group.mask == mask);
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
            self.groups.push(Group { mask, blockers: BTreeMap::new() });
            self.groups.len() - 1
        });
        &mut self.groups[place]
    }

    /// It is in its mask's group, or, if that was made later, in that of mask 0.
    fn remove(&mut self, age: Age, pattern: &Pattern) {
        let own = self.mask & pattern.mask().0;
        for mask in [own, 0] {
            let group = self.groups.iter_mut().find(|group| group.mask == mask);
            let key = (pattern.tag().0 & mask, age);
            if group.is_some_and(|group| group.blockers.remove(&key).is_some()) {
                return;
            }
        }
    }

    fn oldest(&self, age: Age, tag: u64) -> Option<Blocker> {
        let of_group = |group: &Group| {
            let tag = tag & self.mask & group.mask;
            group.blockers.range((tag, 0)..(tag, age)).next().map(|(_, blocker)| *blocker)
        };
        self.groups.iter().filter_map(of_group).min_by_key(|blocker| blocker.age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tagmatch_soft::{Tag, TagMask};

    /// Few bits, so that overlaps are common, and more masks than there are views and groups.
    fn pattern() -> impl Strategy<Value = Pattern> {
        let mask = prop_oneof![
            3 => prop::sample::select(vec![u64::MAX, !0xf, !0xf0, 0]),
            1 => (0u64..256).prop_map(|bits| !bits),
        ];
        (0u64..256, mask).prop_map(|(tag, mask)| Pattern::new(Tag(tag), TagMask(mask)))
    }

    #[derive(Clone, Debug)]
    enum Do {
        Insert(Pattern),
        Remove(prop::sample::Index),
        Ask(Pattern, prop::sample::Index),
    }

    fn what() -> impl Strategy<Value = Do> {
        prop_oneof![
            4 => pattern().prop_map(Do::Insert),
            2 => any::<prop::sample::Index>().prop_map(Do::Remove),
            4 => (pattern(), any::<prop::sample::Index>()).prop_map(|(p, at)| Do::Ask(p, at)),
        ]
    }

    /// Every pair compared.
    fn naive<'a>(all: &'a [Blocker], age: Age, pattern: &Pattern) -> Option<&'a Blocker> {
        all.iter().find(|other| other.age < age && other.pattern.overlaps(pattern))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn finds_what_comparing_every_pair_finds(plan in prop::collection::vec(what(), 1..200)) {
            let mut order = Order::new();
            let mut all: Vec<Blocker> = Vec::new();
            let mut masks = vec![];
            let mut age = 0;
            for step in plan {
                match step {
                    Do::Insert(pattern) => {
                        age += 1;
                        let blocker = Blocker { id: u32::try_from(age).unwrap(), age, pattern };
                        order.insert(blocker);
                        all.push(blocker);
                    }
                    Do::Remove(index) if !all.is_empty() => {
                        let gone = all.remove(index.index(all.len()));
                        order.remove(gone.age, &gone.pattern);
                    }
                    Do::Remove(_) => {}
                    Do::Ask(pattern, index) => {
                        let asked = Age::try_from(index.index(usize::try_from(age).unwrap() + 2));
                        let asked = asked.unwrap();
                        if !masks.contains(&pattern.mask()) {
                            masks.push(pattern.mask());
                        }
                        let found = order.blocker(asked, &pattern, all.clone().into_iter());
                        let right = naive(&all, asked, &pattern);
                        match (found, right) {
                            (Some(found), None) => {
                                let is_exact = masks.len() <= VIEWS_MAX
                                    && order.views.iter().all(|v| v.groups.len() < GROUPS_MAX);
                                prop_assert!(!is_exact, "{pattern:?} is not in {found:?}'s way");
                            }
                            (found, right) => prop_assert_eq!(found.is_some(), right.is_some()),
                        }
                    }
                }
            }
        }
    }
}
