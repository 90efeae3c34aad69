//! Puts to a peer, and reads of the peer, share the connection, whatever their lengths. What is
//! counted are bytes: two workers of one thread take turns.

mod common;

use tagmatch_device::{
    AccessEnd, AccessKind, Buffer, Device, Event, PeerId, PublishedRegion, ReadRequest,
    RegionAccess, RegionSpan, RemoteSpan,
};
use tagmatch_tcp::Tcp;

use common::{config, connect, tcp};

/// Operations of each kind that are under way at a time.
const WINDOW: u64 = 16;
/// Bytes that are counted.
const TOTAL: usize = 48 << 20;
const KEY: u64 = 7;

struct Pair {
    a: Tcp,
    b: Tcp,
    to_b: PeerId,
    to_a: PeerId,
    exposed: RemoteSpan,
    region: RegionSpan,
}

impl Pair {
    /// `a` puts the buffer into the region of `b`.
    fn put(&mut self, buffer: Buffer) {
        let Pair { to_b, region, .. } = *self;
        let access = RegionAccess { peer: to_b, of: region, kind: AccessKind::Write, buffer };
        assert!(self.a.access(access).is_ok());
    }

    /// `b` reads the memory that `a` has exposed.
    fn read(&mut self, into: Buffer, token: u64) {
        let Pair { to_a, exposed, .. } = *self;
        let request = ReadRequest { peer: to_a, remote: exposed, into, token };
        assert!(self.b.read(request).is_ok());
    }
}

/// How many bytes of reads and of puts of these lengths have ended when both together have
/// [`TOTAL`].
fn bytes_of_each(read: usize, put: usize) -> [usize; 2] {
    let memory = Buffer::from(vec![0; put]);
    let mut a = tcp(config());
    let mut b = tcp(config());
    let (to_b, to_a) = connect(&mut a, &mut b);
    let region = PublishedRegion {
        key: KEY,
        base: None,
        memory: &memory,
        reads: true,
        writes: true,
        changes: false,
    };
    let place = b.publish(&region);
    let region = RegionSpan { key: KEY, place, offset: 0 };
    let exposed = a.expose(to_b, Buffer::from(vec![1; read])).unwrap().span;
    let mut pair = Pair { a, b, to_b, to_a, exposed, region };
    for token in 0..WINDOW {
        pair.put(Buffer::from(vec![2; put]));
        pair.read(Buffer::zeroed(read), token);
    }
    let mut bytes = [0; 2];
    while bytes.iter().sum::<usize>() < TOTAL {
        if let Some(Event::AccessDone(AccessEnd { buffer, is_done, .. })) = pair.a.poll() {
            assert!(is_done);
            bytes[1] += put;
            pair.put(buffer);
        }
        if let Some(Event::ReadDone { token, into, result }) = pair.b.poll() {
            assert!(result.is_ok());
            bytes[0] += read;
            pair.read(into, token);
        }
    }
    pair.b.unpublish(KEY);
    bytes
}

#[test]
fn reads_and_puts_of_other_lengths_have_a_share_of_the_bytes() {
    for (read, put) in [(1 << 20, 64 << 10), (64 << 10, 1 << 20), (1 << 20, 1 << 20)] {
        let [of_reads, of_puts] = bytes_of_each(read, put);
        let share = of_reads.min(of_puts) * 100 / (of_reads + of_puts);
        assert!(share >= 25, "{read}, {put}: {of_reads} bytes of reads, {of_puts} of puts");
    }
}
