//! One-sided operations, as `benches/peers/work.h` does them.

use tagmatch::{
    AtomicOp, AtomicType, Local, Output, Peer, Region, Remote, Request, Rights, Token, Worker,
};

use crate::case::{Outcome, RmaOperation};
use crate::memory::{Memory, SIZE_MAX};

const TOKEN: u64 = 7;

/// The region of this side, which the other side accesses, and that of the other side.
pub(crate) struct OneSided {
    pub(crate) region: Region<Local>,
    remote: Remote<Local>,
    /// The last byte of the next put.
    turn: u8,
}

impl OneSided {
    /// Both sides call it at the same time.
    pub(crate) fn new(worker: &Worker, peer: Peer) -> Outcome<Self> {
        let region = worker.expose_region(worker.buffer(SIZE_MAX), Rights::ALL)?;
        worker.inject(peer, TOKEN, &region.token().to_bytes())?;
        let mut token = [0; Token::BYTES];
        worker.recv_blocking(tagmatch::Match::tag(TOKEN).from(peer), &mut token)?;
        let remote = worker.attach(peer, &Token::from_bytes(&token)?)?;
        Ok(OneSided { region, remote, turn: 0 })
    }

    /// Half a round trip from `first` to the other side, which notices the put by its last byte.
    pub(crate) fn put_and_notice(
        &mut self,
        worker: &Worker,
        outbox: &mut Memory,
        size: usize,
        is_sender: bool,
    ) -> Outcome<()> {
        if is_sender {
            outbox.bytes_mut(size)[size - 1] = self.turn;
            return finish(self.remote.put(0, outbox.outgoing(size))).map(drop);
        }
        let mut last = [0];
        loop {
            self.region.read(size - 1, &mut last)?;
            if last[0] == self.turn {
                return Ok(());
            }
            worker.progress();
        }
    }

    /// The next round trip begins.
    pub(crate) fn next_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// A window of operations on the region of the other side.
    pub(crate) fn window(
        &self,
        operation: RmaOperation,
        memory: [&mut Memory; 2],
        size: usize,
        window: usize,
    ) -> Outcome<()> {
        let [outbox, inbox] = memory;
        match operation {
            RmaOperation::Get if window == 1 => {
                Ok(self.remote.get_blocking(0, inbox.bytes_mut(size))?)
            }
            RmaOperation::FetchAdd if window == 1 => {
                Ok(self.remote.fetch_u64(0, AtomicOp::Sum, 1).map(drop)?)
            }
            RmaOperation::Put => finish_all(window, || self.remote.put(0, outbox.outgoing(size))),
            RmaOperation::Get => finish_all(window, || self.remote.get(0, inbox.incoming(size))),
            RmaOperation::FetchAdd => finish_all(window, || {
                let one = 1u64.to_ne_bytes().to_vec();
                self.remote.fetch(0, AtomicOp::Sum, AtomicType::U64, one)
            }),
        }
    }
}

/// Begins so many operations, and waits until all have ended.
fn finish_all<T: Output>(window: usize, begin: impl Fn() -> Request<T>) -> Outcome<()> {
    if window == 1 {
        return finish(begin()).map(drop);
    }
    let under_way: Vec<_> = (0..window).map(|_| begin()).collect();
    under_way.into_iter().try_for_each(|request| finish(request).map(drop))
}

/// Polls until the operation has ended, without a pause in between, as the peers do.
#[inline]
pub(crate) fn finish<T: Output>(mut request: Request<T>) -> Outcome<T> {
    loop {
        if let Some(result) = request.test() {
            return Ok(result?);
        }
    }
}
