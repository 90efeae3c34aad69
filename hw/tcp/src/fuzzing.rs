//! The parsers of everything that another process can send, for fuzzing. Not a part of the public
//! API.

use tagmatch_device::{
    AccessKind, Address, Buffer, PeerId, PublishedRegion, ReadRequest, RegionAccess, RegionPlace,
    RegionSpan, RemoteSpan,
};

use super::accesses::Accesses;
use super::address::TcpAddress;
use super::connection::landing_room;
use super::frame::{
    Frame, HEADER_BYTES, REGION_BYTES, REQUEST_BYTES, RegionBytes, emit_span, parse_span,
};
use super::greeting::{ANSWER_BYTES, Admission, OPENING_BYTES, Opening};
use super::puts::PutsOfPeer;
use super::reads::{EndedRead, ReadOf, ReadsFromPeer};
use super::regions::PublishedRegions;
use super::send_half::SendHalf;
use super::sources::StreamSource;

/// Reads the bytes as an address, as the steps of a handshake, and as the frames of a connection.
///
/// # Panics
/// If something that was accepted isn't written as it was read.
pub fn read(data: &[u8]) {
    if let Ok(address) = Address::from_bytes(data)
        && let Ok(mut parsed) = TcpAddress::parse(&address)
    {
        // All hosts fit, though maybe in another order.
        let written = parsed.address([0; 7]).and_then(|address| TcpAddress::parse(&address));
        parsed.hosts.sort();
        let sorted = written.map(|mut written| {
            written.hosts.sort();
            written
        });
        assert_eq!(sorted.ok(), Some(parsed));
    }
    if let Some(bytes) = data.first_chunk::<OPENING_BYTES>()
        && let Ok(opening) = Opening::parse(bytes)
    {
        assert_eq!(opening.emit(), *bytes);
    }
    if let Some(bytes) = data.first_chunk::<ANSWER_BYTES>()
        && let Ok(answer) = Admission::parse(bytes)
    {
        assert_eq!(Admission::parse(&answer.emit()), Ok(answer));
    }
    let _ = read_frames(data);
}

/// Takes frames as a device does that waits for reads of different lengths, has a region, and gets
/// from and puts into a peer's. The put is not sent: no answer to it is right.
fn read_frames(mut data: &[u8]) -> Result<(), &'static str> {
    const MESSAGE_MAX: usize = 1000;
    const LENGTHS: [usize; 4] = [0, 1, 100, 70_000];
    const KEY: u64 = 0x0101_0101_0101_0101;
    let mut reads = ReadsFromPeer::default();
    let mut out = SendHalf::default();
    for (token, length) in (0..).zip(LENGTHS) {
        let remote = RemoteSpan { address: 4096, length: length as u64, key: 1 };
        let into = Buffer::zeroed(length);
        let request = ReadRequest { peer: PeerId(1), remote, into, token };
        reads.start(&mut out, request, length);
    }
    let mut accesses = Accesses::default();
    for kind in [AccessKind::Read, AccessKind::Write] {
        let of = RegionSpan { key: KEY, place: RegionPlace::BY_KEY, offset: 0 };
        accesses.add(RegionAccess { peer: PeerId(1), of, kind, buffer: Buffer::zeroed(10) });
        accesses.begin_next(&mut out, &mut reads);
    }
    let memory = Buffer::zeroed(300);
    let mut regions = PublishedRegions::default();
    regions.publish(&PublishedRegion {
        key: KEY,
        base: None,
        memory: &memory,
        reads: true,
        writes: true,
        changes: false,
    });
    let mut puts = PutsOfPeer::default();
    while let Some((header, rest)) = data.split_first_chunk::<HEADER_BYTES>() {
        let frame = Frame::parse(header, MESSAGE_MAX)?;
        assert_eq!(frame.emit()[..5], header[..5]);
        data = rest;
        match frame {
            Frame::Message { length, .. } => {
                assert!(length <= MESSAGE_MAX);
                data = data.get(length..).unwrap_or_default();
            }
            Frame::ReadRequest { id } => {
                let Some((span, rest)) = data.split_first_chunk::<REQUEST_BYTES>() else {
                    return Ok(());
                };
                assert_eq!(emit_span(parse_span(span)), *span);
                out.take_request(id, StreamSource::Exposed(parse_span(span)))?;
                data = rest;
            }
            Frame::Get { .. } | Frame::Put => {
                let Some((bytes, rest)) = data.split_first_chunk::<REGION_BYTES>() else {
                    return Ok(());
                };
                let of = RegionBytes::parse(bytes);
                assert_eq!(of.emit(), *bytes);
                if let Frame::Get { id } = frame {
                    out.take_request(id, StreamSource::Region(of))?;
                } else {
                    puts.begin(of, &mut regions)?;
                }
                data = rest;
            }
            Frame::ReadData { length, .. } | Frame::PutData { length } => {
                if let Frame::ReadData { id, .. } = frame {
                    reads.land(id, length)?;
                } else {
                    puts.land(length)?;
                }
                let here = data.len().min(length);
                if let Some(room) = landing_room(&mut reads, &mut puts, &mut regions) {
                    assert!(room.len() >= here);
                    room.fill(&data[..here]);
                }
                if let Frame::ReadData { .. } = frame {
                    reads.advance(here);
                } else {
                    puts.advance(here, &mut out)?;
                }
                assert_eq!(reads.landing() + puts.landing(), length - here);
                data = &data[here..];
            }
            Frame::ReadEnd { id } | Frame::ReadFailed { id } => {
                let is_good = matches!(frame, Frame::ReadEnd { .. });
                let EndedRead { of, into, .. } = reads.end(&mut out, id, is_good)?;
                if let ReadOf::Exposed(token) = of {
                    let index = usize::try_from(token).unwrap_or(usize::MAX);
                    assert_eq!(LENGTHS.get(index), Some(&into.len()));
                }
            }
            Frame::PutEnd { is_done } => {
                assert!(accesses.end_put(&out, is_done).is_err());
                return Ok(());
            }
            Frame::Bye | Frame::Flush => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(data in prop::collection::vec(any::<u8>(), 0..300), kind in 1u8..14) {
            read(&data);
            let mut framed = data;
            if let Some(header) = framed.first_chunk_mut::<8>() {
                *header = [header[0] & 31, 0, 0, 0, kind, 0, 0, 0];
            }
            read(&framed);
        }
    }
}
