//! Files of records for fuzzing. No part of the interface.

use super::{BLOCK_BYTES, FULL, HEADER, HEADER_BYTES, Kind, flag};

const SLOTS_USED: u8 = 8;
/// The bit of the second byte that becomes `flag::SOURCE`.
const FLAGGED_SOURCE: u8 = 8;

/// A file whose header and blocks are right, and whose first records fill the slots. Each four
/// bytes make one more record, with few slots and numbers, so that records refer to each other.
#[must_use]
pub fn records(data: &[u8]) -> Vec<u8> {
    const BLOCKS_MAX: usize = 4;
    let mut blocks = vec![block(0)];
    // Half of the slots suit messages, the other half takes any source.
    let shapes = (0..SLOTS_USED).map(|slot| match slot {
        0..4 => [Kind::Shape as u8, slot | FLAGGED_SOURCE, slot % 2, slot / 2],
        _ => [Kind::Shape as u8, slot, 0, slot / 2],
    });
    for bytes in shapes.chain(data.as_chunks().0.iter().copied()) {
        let record = record(bytes);
        let number = blocks.len();
        let Some(last) = blocks.last_mut() else { break };
        if record[0] != Kind::Block as u64 && last.len() + record.len() <= BLOCK_BYTES / 8 {
            last.extend(record);
        } else if number < BLOCKS_MAX {
            blocks.push(block(number as u64));
        }
    }
    // The newest block is in the window, which comes first.
    blocks.rotate_right(1);
    let mut file = format!("{HEADER}\nfuzzed\n").into_bytes();
    file.resize(HEADER_BYTES, 0);
    for mut block in blocks {
        block.resize(BLOCK_BYTES / 8, 0);
        file.extend(block.into_iter().flat_map(u64::to_le_bytes));
    }
    file
}

/// The beginning of a block.
fn block(number: u64) -> Vec<u64> {
    vec![Kind::Block as u64, number]
}

/// A record of some kind that has no bits but those it may have, or now and then any first word.
fn record([what, slot, number, value]: [u8; 4]) -> Vec<u64> {
    let any = u64::from_le_bytes([slot, number, value, 0, 0, 0, 0, 0]);
    let Some(kind) = Kind::of(u64::from(what % 21)) else { return vec![any] };
    let value = u64::from(value);
    let flags = u64::from(slot / FLAGGED_SOURCE) * flag::SOURCE;
    let first = flags | u64::from(slot % SLOTS_USED) << 16 | u64::from(number % 4) << 32;
    let (count, bits) = kind.layout(first);
    let first = kind as u64 | first & bits & !0xff;
    let mut words = match kind {
        Kind::Shape => vec![first, value % 4, value, u64::MAX << (1 + value % 8)],
        Kind::Stopped => vec![first, FULL + value % 2],
        Kind::SourceBits => vec![first, value << 20],
        _ => vec![first, value],
    };
    words.truncate(count);
    words
}
