//! What a program writes for the ConnectX in software: requests of its queues, and commands.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_hca::fuzzing::{read_command, read_requests};

/// The operations of requests that the device knows.
const OPCODES: [u8; 9] = [0x00, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x28];

fuzz_target!(|data: &[u8]| {
    read_requests(data);
    let Some((first, rest)) = data.split_first() else { return };
    // A request with a known operation that is as long as it says.
    let units = (1 + rest.len() / 16).min(63);
    let opcode = OPCODES[usize::from(*first) % OPCODES.len()];
    let mut request = vec![0, 0, 1, opcode, 0, 0, 1, units as u8, 0, 0, 0, *first, 0, 0, 0, 0];
    request.extend(rest);
    request.resize(units * 16, 0);
    read_requests(&request);
    // A command with as many attributes as its head says, and data behind them.
    let count = usize::from(*first) % 8;
    let mut memory = vec![0; 24 + 16 * count];
    memory[..2].copy_from_slice(&u16::try_from(24 + 16 * count).unwrap_or(0).to_ne_bytes());
    memory[6..8].copy_from_slice(&u16::try_from(count).unwrap_or(0).to_ne_bytes());
    let known = rest.len().min(memory.len() - 24);
    memory[24..24 + known].copy_from_slice(&rest[..known]);
    memory.extend(&rest[known..]);
    read_command(&memory, 0x1000, 0x1000);
    let word = rest.get(..8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    read_command(&memory, 0x1000, word);
    read_command(data, 0x1000, 0x1000);
});
