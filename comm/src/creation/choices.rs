//! The arguments that the members of a communicator pass to a split.

use super::allocating::words;
use crate::group::Group;

/// The arguments that a member passes to a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitChoice {
    pub(crate) color: Option<u32>,
    pub(crate) key: i32,
}

impl SplitChoice {
    /// The length of a choice in bytes.
    pub(crate) const BYTES: usize = 12;

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let fields = [u32::from(self.color.is_some()), self.color.unwrap_or(0), self.key as u32];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect()
    }

    fn parse([has_color, color, key]: &[u32; 3]) -> Self {
        SplitChoice { color: (*has_color != 0).then_some(*color), key: key.cast_signed() }
    }
}

/// The members of a group that have chosen a colour, ordered by key, then by rank. `all`: the
/// choices of all members, as bytes.
pub(crate) fn chosen(all: &[u8], color: u32, group: &Group) -> Group {
    let words = words(all);
    let choices = words.as_chunks().0.iter().map(SplitChoice::parse);
    let of_color = (0..).zip(choices).filter(|(_, choice)| choice.color == Some(color));
    let mut members: Vec<(i32, u32)> = of_color.map(|(rank, choice)| (choice.key, rank)).collect();
    members.sort_unstable();
    Group::new(members.iter().filter_map(|(_, rank)| group.process(*rank)))
}
