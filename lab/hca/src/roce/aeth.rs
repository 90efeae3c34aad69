//! AETH: what a receiver says of the requests that have come.

/// Why a request was not carried out: codes of a NAK (table 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NakCode {
    Sequence = 0,
    InvalidRequest = 1,
    RemoteAccess = 2,
    RemoteOperation = 3,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AethVerdict {
    /// The request was carried out. The credits are those of table 46, encoded.
    Done {
        credits: u8,
    },
    /// There was no buffer; the sender is to wait for this time, encoded.
    NotReady {
        timer: u8,
    },
    Refused(NakCode),
}

/// Credits that are not given: the sender need not count.
pub(crate) const NO_CREDITS: u8 = 0x1f;

impl AethVerdict {
    pub(super) fn syndrome(self) -> u8 {
        match self {
            AethVerdict::Done { credits } => credits & 0x1f,
            AethVerdict::NotReady { timer } => 0x20 | timer & 0x1f,
            AethVerdict::Refused(code) => 0x60 | code as u8,
        }
    }

    pub(super) fn parse(syndrome: u8) -> Option<Self> {
        let value = syndrome & 0x1f;
        Some(match (syndrome >> 5, value) {
            (0, credits) => AethVerdict::Done { credits },
            (1, timer) => AethVerdict::NotReady { timer },
            (3, 0) => AethVerdict::Refused(NakCode::Sequence),
            (3, 1) => AethVerdict::Refused(NakCode::InvalidRequest),
            (3, 2) => AethVerdict::Refused(NakCode::RemoteAccess),
            (3, 3) => AethVerdict::Refused(NakCode::RemoteOperation),
            _ => return None,
        })
    }
}

/// AETH: an acknowledgement, and how many messages the receiver has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aeth {
    pub(crate) verdict: AethVerdict,
    pub(crate) msn: u32,
}

/// Credits as an AETH has them: the largest number of table 46 that is not above `receives`.
pub(crate) fn encoded_credits(receives: u32) -> u8 {
    const COUNTS: [u32; 31] = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    (COUNTS.partition_point(|count| *count <= receives) - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_rounded_down() {
        let encoded = [0, 1, 4, 5, 6, 7, 8, 33, 32767, 32768, u32::MAX].map(encoded_credits);
        assert_eq!(encoded, [0, 1, 4, 4, 5, 5, 6, 10, 29, 30, 30]);
    }

    #[test]
    fn reserved_syndromes_are_refused_and_others_are_read_as_they_were_written() {
        let known = (0..=255_u8).filter(|syndrome| {
            let verdict = AethVerdict::parse(*syndrome);
            verdict.is_some_and(|verdict| verdict.syndrome() == *syndrome)
        });
        let expected = (0..0x40).chain(0x60..0x64);
        assert!(known.eq(expected));
        for syndrome in [0x40, 0x64, 0x80] {
            assert_eq!(AethVerdict::parse(syndrome), None, "{syndrome:#x}");
        }
    }
}
