//! How the leaders of two groups speak to each other.

use crate::error::Error;
use crate::net::Net;
use crate::port::{Channel, Handle, Port};

/// The way to the leader of the other group.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) channel: Channel,
    /// Its rank there.
    pub(super) to: u32,
}

/// One message in each direction. Both sides go through it to the end, whatever they have to say: so the
/// next one's messages are its own.
pub(super) struct Swap {
    sending: Option<Handle>,
    receiving: Option<Handle>,
    received: Result<Vec<u8>, Error>,
}

impl Swap {
    pub(super) fn begin<N: Net>(
        port: &mut Port<'_, N>,
        Bridge { channel, to }: &Bridge,
        data: &[u8],
        room: usize,
    ) -> Self {
        let mut swap = Swap { sending: None, receiving: None, received: Ok(Vec::new()) };
        match port.receive(channel, *to, room) {
            Ok(handle) => swap.receiving = Some(handle),
            Err(error) => swap.received = Err(error),
        }
        match port.send(channel, *to, data, false) {
            Ok(handle) => swap.sending = handle,
            Err(error) => swap.received = Err(error),
        }
        swap
    }

    /// What the other one has said.
    pub(super) fn step<N: Net>(
        &mut self,
        port: &mut Port<'_, N>,
        Bridge { channel, to }: &Bridge,
    ) -> Option<Result<Vec<u8>, Error>> {
        if let Some(handle) = self.sending {
            if let Err(error) = port.test(channel, handle)? {
                self.received = Err(error);
            }
            self.sending = None;
        }
        if let Some(handle) = self.receiving {
            let ended = port.test(channel, handle)?;
            self.receiving = None;
            let received = ended.and_then(|ended| {
                let (length, due) = (ended.length, ended.data.len());
                let fits = usize::try_from(length).ok().and_then(|length| ended.data.get(..length));
                fits.map(<[u8]>::to_vec).ok_or(Error::Mismatch { rank: *to, length, due })
            });
            if self.received.is_ok() {
                self.received = received;
            }
        }
        Some(self.received.clone())
    }
}
