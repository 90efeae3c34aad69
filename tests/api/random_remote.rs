//! Random one-sided operations, beside the memory that they must make.

use tagmatch::{AtomicOp, AtomicType, Received, Request, Rights, Sent};
use tagmatch_testkit::random::Random;

use crate::one_sided::{LocalRegion, LocalRemote, contents, exposed, pairs};
use crate::pair::Pair;

/// A get that is under way: its place, and for each of its bytes the values that it may have.
struct Reading {
    request: Request<Received>,
    at: usize,
    allowed: Vec<Vec<u8>>,
}

/// Random operations on one region, many under way at once, beside the memory that they must make.
struct Program {
    p: Pair,
    region: LocalRegion,
    remote: LocalRemote,
    random: Random,
    memory: Vec<u8>,
    gets: Vec<Reading>,
    /// Fetches that are under way, and what they must give.
    fetches: Vec<(Request<Received>, Vec<u8>)>,
    sends: Vec<Request<Sent>>,
    /// The first get that operations which begin now are not held back for.
    unfenced: usize,
}

impl Program {
    fn place(&mut self, length_max: usize) -> (usize, usize) {
        let length = self.random.index(length_max + 1);
        (self.random.index(self.memory.len() - length + 1), length)
    }

    /// Bytes of the region get new values, by an operation that begins now.
    fn write(&mut self, at: usize, new: &[u8]) {
        for get in &mut self.gets[self.unfenced..] {
            for (offset, &byte) in new.iter().enumerate() {
                if let Some(allowed) = (at + offset).checked_sub(get.at)
                    && let Some(values) = get.allowed.get_mut(allowed)
                {
                    values.push(byte);
                }
            }
        }
        self.memory[at..at + new.len()].copy_from_slice(new);
    }

    fn step(&mut self) {
        let lengths = [0, 8, 64, 1500, 30_000];
        let length = self.random.pick(&lengths);
        match self.random.below(6) {
            0 | 1 => {
                let (at, length) = self.place(length);
                let new: Vec<u8> = (0..length).map(|_| self.random.bits() as u8).collect();
                self.write(at, &new);
                self.sends.push(self.remote.put(at as u64, new));
            }
            2 => {
                let (at, length) = self.place(length);
                let allowed = self.memory[at..at + length].iter().map(|&byte| vec![byte]).collect();
                let request = self.remote.get(at as u64, vec![0; length]);
                self.gets.push(Reading { request, at, allowed });
            }
            3 | 4 => {
                let (at, length) = self.place(length.min(6000) & !3);
                let length = length & !3;
                let old = self.memory[at..at + length].to_vec();
                let operands: Vec<u8> = (0..length).map(|_| self.random.bits() as u8).collect();
                let new: Vec<u8> = old
                    .chunks(4)
                    .zip(operands.chunks(4))
                    .flat_map(|(old, operand)| {
                        let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
                        number(old).wrapping_add(number(operand)).to_ne_bytes()
                    })
                    .collect();
                self.write(at, &new);
                let of = AtomicType::U32;
                if self.random.chance(1, 2) {
                    let fetch = self.remote.fetch(at as u64, AtomicOp::Sum, of, operands);
                    self.fetches.push((fetch, old));
                } else {
                    let sum = self.remote.atomic(at as u64, AtomicOp::Sum, of, operands);
                    self.sends.push(sum);
                }
            }
            _ => {
                self.p.a.fence(self.p.to_b).unwrap();
                self.unfenced = self.gets.len();
            }
        }
        for _ in 0..self.random.below(3) {
            self.p.a.progress();
        }
        for _ in 0..self.random.below(3) {
            self.p.b.progress();
        }
    }

    fn end(self) {
        for Reading { request, at, allowed } in self.gets {
            let got = self.p.ok(request);
            assert_eq!(got.data().len(), allowed.len());
            for (offset, byte) in got.data().iter().enumerate() {
                assert!(allowed[offset].contains(byte), "byte {} is {byte}", at + offset);
            }
        }
        for (request, old) in self.fetches {
            assert_eq!(self.p.ok(request).data(), old);
        }
        for request in self.sends {
            self.p.ok(request);
        }
        assert_eq!(contents(&self.region), self.memory);
    }
}

#[test]
fn random_operations_take_effect_in_the_order_of_the_table() {
    for (seed, p) in (0..3).flat_map(|seed| pairs().map(|p| (seed, p))) {
        let mut random = Random::new(seed);
        let memory: Vec<u8> = (0..40_000).map(|_| random.bits() as u8).collect();
        // Over shared memory, a peer does much of the second seed in the call, and messages the
        // rest.
        let mut of_worker = p.b.buffer(memory.len());
        of_worker.as_mut_slice().unwrap().copy_from_slice(&memory);
        let exposes = if seed == 1 { of_worker } else { memory.clone().into() };
        let Some((region, remote)) = exposed(&p, exposes, Rights::ALL) else { return };
        let mut program = Program {
            p,
            region,
            remote,
            random,
            memory,
            gets: Vec::new(),
            fetches: Vec::new(),
            sends: Vec::new(),
            unfenced: 0,
        };
        for _ in 0..100 {
            program.step();
        }
        program.end();
    }
}
