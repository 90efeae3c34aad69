//! The settings that must be equal in all processes that communicate.

use tagmatch::TagLayout;

use super::algorithms::Algorithms;
use crate::error::Error;
use crate::ids::IdLayout;

const COUNT: usize = 17;

/// The names of the settings.
pub(crate) const NAMES: [&str; COUNT] = [
    "words of ids",
    "bits of ids",
    "predefined of ids",
    "eager_words",
    "context_bits of tags",
    "source_bits of tags",
    "tag_bits of tags",
    "broadcast_long of algorithms",
    "broadcast_members of algorithms",
    "reduce_long of algorithms",
    "allreduce_long of algorithms",
    "allgather_long of algorithms",
    "alltoall_short of algorithms",
    "alltoall_members of algorithms",
    "alltoall_long of algorithms",
    "reduce_scatter_long of algorithms",
    "shared_memory",
];

/// The settings of one process, in the order of [`NAMES`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonSettings([u64; COUNT]);

/// A setting of which two processes have different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The place of the setting among [`NAMES`].
    pub(crate) setting: u32,
    pub(crate) values: [u64; 2],
}

impl CommonSettings {
    pub(crate) fn new(
        ids: IdLayout,
        eager_words: usize,
        tags: TagLayout,
        algorithms: &Algorithms,
        shared_memory: bool,
    ) -> Self {
        let Algorithms {
            broadcast_long,
            broadcast_members,
            reduce_long,
            allreduce_long,
            allgather_long,
            alltoall_short,
            alltoall_members,
            alltoall_long,
            reduce_scatter_long,
        } = *algorithms;
        CommonSettings([
            ids.words() as u64,
            ids.bits().into(),
            ids.predefined().into(),
            eager_words as u64,
            tags.context_bits().into(),
            tags.source_bits().into(),
            tags.tag_bits().into(),
            broadcast_long as u64,
            broadcast_members.into(),
            reduce_long as u64,
            allreduce_long as u64,
            allgather_long as u64,
            alltoall_short as u64,
            alltoall_members.into(),
            alltoall_long as u64,
            reduce_scatter_long as u64,
            shared_memory.into(),
        ])
    }

    pub(crate) fn values(&self) -> &[u64] {
        &self.0
    }

    /// The first setting that differs from that of another process. A process that gives fewer
    /// values has another version of this crate: the rest counts as zeros.
    pub(crate) fn difference(&self, theirs: &[u64]) -> Option<Difference> {
        let theirs = theirs.iter().copied().chain(std::iter::repeat(0));
        (0..).zip(self.0.into_iter().zip(theirs)).find_map(|(setting, (own, other))| {
            (own != other).then_some(Difference { setting, values: [own, other] })
        })
    }

    /// The error of this process when the settings of two processes differ; `None`: there is no
    /// such setting.
    pub(crate) fn error_of(&self, difference: &Difference) -> Option<Error> {
        let Difference { setting, values: [one, other] } = *difference;
        let own = *self.0.get(setting as usize)?;
        Self::error(setting, [own, if one == own { other } else { one }])
    }

    /// The error for the own value and another one of a setting.
    pub(crate) fn error(setting: u32, [own, other]: [u64; 2]) -> Option<Error> {
        let setting = *NAMES.get(setting as usize)?;
        Some(Error::UnequalSetting { setting, own, other })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_setting_that_differs_is_named_with_both_values() {
        let own = CommonSettings(std::array::from_fn(|at| at as u64));
        assert_eq!(own.difference(own.values()), None);
        let mut theirs = own;
        (theirs.0[3], theirs.0[7]) = (20, 30);
        let difference = own.difference(theirs.values()).unwrap();
        assert_eq!(difference, Difference { setting: 3, values: [3, 20] });
        let error = |own, other| Some(Error::UnequalSetting { setting: NAMES[3], own, other });
        assert_eq!(own.error_of(&difference), error(3, 20));
        // Each process sees it from its own side.
        assert_eq!(theirs.error_of(&difference), error(20, 3));
        assert_eq!(own.difference(&[0, 1]), Some(Difference { setting: 2, values: [2, 0] }));
        assert_eq!(own.error_of(&Difference { setting: 17, values: [0, 1] }), None);
    }
}
