//! Choosing one of a port's partition keys (P_Key).
//!
//! A subnet is divided into partitions, whose keys the subnet manager writes into each port's
//! table. The highest bit of a key says whether the port is a full member of the partition or a
//! limited one. Nothing travels between two limited members (InfiniBand 10.9.3). The first row may
//! hold a limited key, or the key of another job.
//!
//! A worker's address has its key, so two workers that don't reach each other know it at once; a
//! packet with another key would be dropped in silence.

use tagmatch_device::DeviceError;
use tagmatch_rdma_core_sys as sys;

use super::context::Context;

/// The bit of a key that says that the port is a full member.
const FULL: u16 = 0x8000;
/// The key of the default partition with full membership. Ports of RoCE have no other one.
const DEFAULT_KEY: u16 = 0xffff;

/// A row of the table, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) index: u16,
    pub(super) key: u16,
}

impl Partition {
    /// Whether the row still has the key. Queue pairs follow their row, not their key. Ports of
    /// RoCE have but one key, and some have no table.
    pub(super) fn is_kept(&self, context: &Context, number: u8, port: &sys::ibv_port_attr) -> bool {
        port.link_layer == sys::IBV_LINK_LAYER_ETHERNET
            || port.pkey_tbl_len == 0
            || context.partition_key(number, self.index) == Some(self.key)
    }
}

/// Whether a key is that of a partition, whatever the membership.
pub(super) fn is_key(key: u16) -> bool {
    key & !FULL != 0
}

/// Whether workers with these keys reach each other.
pub(super) fn can_meet(one: u16, other: u16) -> bool {
    one & !FULL == other & !FULL && (one | other) & FULL != 0
}

/// The row for the wanted key, or else the best one.
///
/// # Errors
/// The port isn't in the wanted partition.
pub(super) fn choose(
    context: &Context,
    number: u8,
    port: &sys::ibv_port_attr,
    wanted: Option<u16>,
) -> Result<Partition, DeviceError> {
    let rows = (0..port.pkey_tbl_len)
        .filter_map(|index| Some(Partition { index, key: context.partition_key(number, index)? }));
    choose_from(rows, wanted)
}

fn choose_from(
    rows: impl Iterator<Item = Partition>,
    wanted: Option<u16>,
) -> Result<Partition, DeviceError> {
    let mut rows: Vec<_> = rows.filter(|row| is_key(row.key)).collect();
    if rows.is_empty() {
        // Some ports of RoCE have no table. Their driver takes row 0.
        rows.push(Partition { index: 0, key: DEFAULT_KEY });
    }
    let is_wanted = |row: &&Partition| wanted.is_none_or(|key| row.key & !FULL == key & !FULL);
    let is_full = |row: &&Partition| row.key & FULL != 0;
    let found = rows.iter().filter(is_wanted).find(is_full).or(rows.iter().find(is_wanted));
    found.copied().ok_or_else(|| DeviceError::InvalidValue {
        setting: "partition_key",
        value: format!("{:#06x}", wanted.unwrap_or(0)),
        expected: "a key of the port's table (cat /sys/class/infiniband/*/ports/*/pkeys/*)",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(keys: &[u16], wanted: Option<u16>) -> Option<(u16, u16)> {
        let rows = (0..).zip(keys).map(|(index, key)| Partition { index, key: *key });
        choose_from(rows, wanted).ok().map(|row| (row.index, row.key))
    }

    #[test]
    fn the_first_key_with_full_membership_is_chosen() {
        assert_eq!(chosen(&[0xffff], None), Some((0, 0xffff)));
        assert_eq!(chosen(&[0x7fff, 0, 0x8001, 0xffff], None), Some((2, 0x8001)));
        assert_eq!(chosen(&[0, 0x8000, 0x7fff, 0x0001], None), Some((2, 0x7fff)), "limited ones");
        assert_eq!(chosen(&[], None), Some((0, 0xffff)), "no table");
    }

    #[test]
    fn a_setting_chooses_a_key_whatever_its_membership() {
        let keys = [0x7fff, 0x8001, 0x0005, 0xffff];
        for (wanted, row) in [(0x7fff, 3), (0xffff, 3), (1, 1), (0x8001, 1), (0x8005, 2), (5, 2)] {
            assert_eq!(chosen(&keys, Some(wanted)), Some((row, keys[usize::from(row)])));
        }
        let rows = [Partition { index: 0, key: 0xffff }];
        let error = choose_from(rows.into_iter(), Some(0x8003)).unwrap_err().to_string();
        assert!(error.contains("partition_key `0x8003`"), "{error}");
    }

    #[test]
    fn two_limited_members_do_not_meet() {
        assert!(can_meet(0xffff, 0xffff) && can_meet(0x7fff, 0xffff) && can_meet(0x8001, 1));
        assert!(!can_meet(0x7fff, 0x7fff) && !can_meet(0xffff, 0x8001));
    }
}
