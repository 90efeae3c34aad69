//! All variants of a message.

use super::message::{Field, Legality, Meaning, Message, Rest};

/// Longer messages are not made: limits beyond are out of reach.
const LENGTH_MAX: usize = 1 << 20;

/// A good message that was changed in one way.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What was changed.
    pub what: String,
    /// The changed message.
    pub bytes: Vec<u8>,
    /// Whether a receiver may take it where it takes the good one.
    pub legality: Legality,
}

impl Message {
    /// The good message, and all that the description makes of it.
    ///
    /// # Panics
    /// The description leaves out some of the bytes.
    #[must_use]
    pub fn variants(&self) -> Vec<Variant> {
        let described = self.described_bytes();
        if self.rest.is_none() {
            let length = self.bytes.len();
            assert_eq!(described, length, "bytes of {} without a description", self.name);
        }
        let good = Variant {
            what: "as it is".to_owned(),
            bytes: self.bytes.clone(),
            legality: Legality::Legal,
        };
        let mut all = vec![good];
        all.extend(self.fields.iter().flat_map(|field| self.values_of(field)));
        all.extend(self.prefixes());
        all.extend(self.lengths());
        all
    }

    fn values_of(&self, field: &Field) -> Vec<Variant> {
        let good = field.value(&self.bytes);
        let top = field.value_max();
        let mut values =
            vec![0, 1, good.wrapping_sub(1), good.wrapping_add(1), top / 2, top / 2 + 1];
        values.extend([top - 1, top]);
        match &field.meaning {
            Meaning::Within(limits) => {
                let around = |limit: u64| [limit.wrapping_sub(1), limit, limit.wrapping_add(1)];
                values.extend([*limits.start(), *limits.end()].into_iter().flat_map(around));
            }
            Meaning::OneOf(legal) => values.extend(legal),
            // Products and sums that come back to the good length after they wrap.
            Meaning::Counts(unit) => {
                values.extend([1 << 16, 1 << 32, 1 << 63].into_iter().flat_map(|wrap: u64| {
                    [wrap.wrapping_add(good), (wrap / unit).wrapping_add(good)]
                }))
            }
            // Each bit by itself, since parsers look at masks.
            Meaning::Fixed => values.extend((0..8 * field.at.len()).map(|bit| good ^ 1 << bit)),
            Meaning::Free | Meaning::Open => {}
        }
        values.iter_mut().for_each(|value| *value &= top);
        values.sort_unstable();
        values.dedup();
        let changed = values.into_iter().filter(|value| *value != good);
        let variant = |value| {
            let mut bytes = self.bytes.clone();
            field.put(&mut bytes, value);
            let legality = match &field.meaning {
                Meaning::Fixed | Meaning::Counts(_) => Legality::Illegal,
                Meaning::Within(limits) if limits.contains(&value) => Legality::Legal,
                Meaning::OneOf(legal) if legal.contains(&value) => Legality::Open,
                Meaning::Within(_) | Meaning::OneOf(_) => Legality::Illegal,
                Meaning::Free => Legality::Legal,
                Meaning::Open => Legality::Open,
            };
            Variant { what: format!("{} is {value:#x}", field.name), bytes, legality }
        };
        changed.map(variant).collect()
    }

    fn has_count(&self) -> bool {
        self.fields.iter().any(|field| matches!(field.meaning, Meaning::Counts(_)))
    }

    /// Whether the message is legal when its length alone becomes this.
    fn of_length(&self, length: usize) -> Legality {
        if self.other_lengths.as_ref().is_some_and(|lengths| lengths.contains(&length)) {
            return Legality::Open;
        }
        let Some(Rest { unit, count, legality }) = &self.rest else { return Legality::Illegal };
        let Some(behind) = length.checked_sub(self.described_bytes()) else {
            return Legality::Illegal;
        };
        if behind % unit != 0 || !count.contains(&(behind / unit)) || self.has_count() {
            return Legality::Illegal;
        }
        *legality
    }

    fn resized(&self, length: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let unit = self.rest.as_ref().map_or(1, |rest| rest.unit);
        let good = self.bytes.len();
        let is_filled = good >= self.described_bytes() + unit;
        // Further units are copies of the last one.
        let byte =
            |at: usize| if is_filled { self.bytes[good - unit + (at - good) % unit] } else { 0 };
        bytes.truncate(length);
        bytes.extend((bytes.len()..length).map(byte));
        bytes
    }

    fn prefixes(&self) -> Vec<Variant> {
        let length_of = |length| Variant {
            what: format!("only {length} bytes"),
            bytes: self.bytes[..length].to_vec(),
            legality: self.of_length(length),
        };
        (0..self.bytes.len()).map(length_of).collect()
    }

    /// Longer messages, and counts that change together with the length.
    fn lengths(&self) -> Vec<Variant> {
        let good = self.bytes.len();
        let unit = self.rest.as_ref().map_or(8, |rest| rest.unit);
        let further = [1, 2, 3, 4, 7, 8, 12, 16, 24, unit - 1, unit, unit + 1, 2 * unit];
        let mut lengths: Vec<usize> = further.into_iter().map(|more| good + more).collect();
        let limits = self.rest.iter().flat_map(|Rest { count, .. }| {
            let around = |limit: usize| [limit.saturating_sub(1), limit, limit.saturating_add(1)];
            [*count.start(), *count.end()].into_iter().flat_map(around)
        });
        let limits: Vec<usize> = limits.collect();
        let with_units =
            |count: &usize| count.saturating_mul(unit).saturating_add(self.described_bytes());
        lengths.extend(limits.iter().map(with_units));
        lengths.sort_unstable();
        lengths.dedup();
        let is_other = |length: &usize| *length > good && *length < LENGTH_MAX;
        let mut all: Vec<_> = lengths
            .into_iter()
            .filter(is_other)
            .map(|length| Variant {
                what: format!("{length} bytes instead of {good}"),
                bytes: self.resized(length),
                legality: self.of_length(length),
            })
            .collect();
        let Some(Rest { count: legal, legality, .. }) = &self.rest else { return all };
        for field in self.fields.iter().filter(|field| matches!(field.meaning, Meaning::Counts(_)))
        {
            for count in limits.iter().filter(|count| with_units(count) < LENGTH_MAX) {
                let value = *count as u64;
                let mut bytes = self.resized(with_units(count));
                field.put(&mut bytes, value);
                let fits = legal.contains(count) && value <= field.value_max();
                let legality = if fits { *legality } else { Legality::Illegal };
                let what = format!("{} is {value}, and so many follow", field.name);
                all.push(Variant { what, bytes, legality });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legal(message: &Message) -> Vec<Vec<u8>> {
        let all = message.variants().into_iter();
        all.filter(|one| one.legality == Legality::Legal).map(|one| one.bytes).collect()
    }

    #[test]
    fn limits_decide_what_is_legal() {
        let message = Message::new("m", [7, 3, 0]).le(1, "mark", Meaning::Fixed);
        let message = message.le(2, "number", Meaning::Within(2..=256));
        let mut legal = legal(&message);
        legal.sort_unstable();
        assert_eq!(legal, [[7, 0, 1], [7, 2, 0], [7, 3, 0], [7, 4, 0], [7, 255, 0]]);
    }

    #[test]
    fn a_count_is_legal_with_as_many_units_behind_it() {
        let rest = Rest { unit: 2, count: 1..=3, legality: Legality::Legal };
        let message = Message::new("m", [0, 2, 8, 9, 5, 6]).be(2, "count", Meaning::Counts(2));
        let legal = legal(&message.rest(rest));
        let due: [&[u8]; 4] =
            [&[0, 2, 8, 9, 5, 6], &[0, 1, 8, 9], &[0, 2, 8, 9, 5, 6], &[0, 3, 8, 9, 5, 6, 5, 6]];
        assert!(due.iter().all(|one| legal.contains(&one.to_vec())));
        assert!(legal.iter().all(|one| due.contains(&&one[..])), "{legal:?}");
    }

    #[test]
    #[should_panic(expected = "without a description")]
    fn bytes_without_a_description_are_noticed() {
        let _ = Message::new("m", [1, 2]).le(1, "one", Meaning::Free).variants();
    }
}
