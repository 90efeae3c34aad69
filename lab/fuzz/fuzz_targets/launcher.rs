//! Everything that a helper of the launcher, or an agent, can send, and a launcher to a helper; and
//! what a process of a machine gives for all of them in an exchange.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_launch::launcher::fuzzing::read;

fuzz_target!(|data: &[u8]| {
    read(data);
    // Frames one after the other, each with a good header: its kind and length come from one byte.
    const KINDS: [u8; 11] = [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15];
    let mut frames = Vec::new();
    for part in data.chunks(96) {
        let (first, rest) = part.split_at(1);
        let kind = usize::from(first[0]) % KINDS.len();
        frames.extend(u32::try_from(part.len()).unwrap_or(0).to_le_bytes());
        frames.push(KINDS[kind]);
        frames.extend(rest);
    }
    read(&frames);
    // The start of processes, with numbers that fit, and texts that are as long as they say.
    let mut start = vec![1];
    let mut numbers = data.iter().copied().chain(std::iter::repeat(0));
    let mut number = |most: u8| u32::from(numbers.next().unwrap_or(0) % most);
    let job = number(3);
    let size = 8 + number(9);
    let first = number(5);
    let count = number(5);
    let label = number(2);
    for number in [job, size, first, count, label] {
        start.extend(number.to_le_bytes());
    }
    // A directory, one word, and variables with their values.
    let texts = data.chunks(7);
    for (at, text) in texts.enumerate() {
        if at == 1 {
            start.extend(1u32.to_le_bytes());
        }
        start.extend(u32::try_from(text.len()).unwrap_or(0).to_le_bytes());
        start.extend(text);
    }
    read(&start);
});
