//! Messages that matched probes took, until they are received or dropped.

use tagmatch_device::matching::HeldId;

use super::worker::Found;

/// Messages that matched probes took.
#[derive(Default)]
pub(super) struct HeldMessages {
    slots: Vec<(u32, Option<Found>)>,
    free: Vec<u32>,
}

impl HeldMessages {
    pub(super) fn hold(&mut self, found: Found) -> HeldId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(found);
        HeldId(u64::from(slot.0) << 32 | u64::from(index))
    }

    fn slot(&mut self, id: HeldId) -> Option<&mut (u32, Option<Found>)> {
        let index = usize::try_from(id.0 & u64::from(u32::MAX)).ok()?;
        let slot = self.slots.get_mut(index)?;
        (u64::from(slot.0) == id.0 >> 32).then_some(slot)
    }

    pub(super) fn find(&mut self, id: HeldId) -> Option<Found> {
        self.slot(id)?.1
    }

    /// Removes a message.
    pub(super) fn release(&mut self, id: HeldId) -> Option<Found> {
        let slot = self.slot(id)?;
        let found = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(u32::try_from(id.0 & u64::from(u32::MAX)).ok()?);
        Some(found)
    }

    /// Removes all messages.
    pub(super) fn release_all(&mut self) -> impl Iterator<Item = Found> + use<> {
        std::mem::take(self).slots.into_iter().filter_map(|(_, found)| found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_message_is_released_once() {
        let mut held = HeldMessages::default();
        let found = |tag| Found { message: std::ptr::null_mut(), tag, length: 0 };
        let (a, b) = (held.hold(found(1)), held.hold(found(2)));
        assert_eq!(held.find(a).unwrap().tag, 1);
        assert_eq!(held.release(a).unwrap().tag, 1);
        assert!(held.release(a).is_none() && held.find(a).is_none());
        let again = held.hold(found(3));
        assert!(again != a && held.release(a).is_none());
        assert!(held.release(HeldId(u64::MAX)).is_none());
        let rest: Vec<u64> = held.release_all().map(|found| found.tag).collect();
        assert_eq!(rest, [3, 2]);
        assert!(held.release(b).is_none());
    }
}
