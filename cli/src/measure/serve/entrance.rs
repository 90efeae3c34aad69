//! Connections that have not proved yet that they come from a client. Each is handled by a thread
//! of its own, so a silent one holds up no other.

use std::collections::{HashSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::secret::Unproved;

/// Connections that are handled at a time. Each holds a thread.
const PENDING_MAX: usize = 64;
/// Most refusals that are remembered.
const REFUSALS_MAX: usize = 1024;

/// The connections that are pending, and the refusals that were logged.
#[derive(Default)]
pub(super) struct Entrance {
    /// The oldest one first.
    pending: Mutex<VecDeque<(IpAddr, Arc<TcpStream>)>>,
    refusals: Mutex<HashSet<(IpAddr, Discriminant<Unproved>)>>,
}

impl Entrance {
    fn pending(&self) -> MutexGuard<'_, VecDeque<(IpAddr, Arc<TcpStream>)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a connection. If there are too many, this closes the oldest one of the machine that
    /// has the most: a client needs little time, so it is seldom the oldest.
    pub(super) fn enter(&self, machine: IpAddr, stream: &Arc<TcpStream>) {
        let mut pending = self.pending();
        pending.push_back((machine, Arc::clone(stream)));
        if pending.len() <= PENDING_MAX {
            return;
        }
        let count = |machine| pending.iter().filter(|(other, _)| *other == machine).count();
        let most = pending.iter().map(|(machine, _)| count(*machine)).max();
        let crowded = pending.iter().position(|(machine, _)| Some(count(*machine)) == most);
        if let Some((_, stream)) = crowded.and_then(|at| pending.remove(at)) {
            // Its thread reads the end of the connection.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The connection is not pending any more.
    pub(super) fn leave(&self, stream: &Arc<TcpStream>) {
        self.pending().retain(|(_, other)| !Arc::ptr_eq(other, stream));
    }

    /// Whether this is the machine's first refusal for this reason. Later refusals aren't logged: a
    /// process without the secret could fill the log.
    pub(super) fn is_news(&self, machine: IpAddr, why: &Unproved) -> bool {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.len() < REFUSALS_MAX && refusals.insert((machine, discriminant(why)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_oldest_connection_of_the_machine_with_the_most_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (theirs, Arc::new(listener.accept().unwrap().0))
        };
        let machines = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let entrance = Entrance::default();
        let quiet = connect();
        entrance.enter(machines[0], &quiet.1);
        let many: Vec<_> = (0..PENDING_MAX).map(|_| connect()).collect();
        many.iter().for_each(|(_, stream)| entrance.enter(machines[1], stream));
        assert_eq!((&many[0].0).read(&mut [0]).unwrap(), 0, "closed");
        let held: Vec<_> =
            entrance.pending().iter().map(|(_, stream)| Arc::clone(stream)).collect();
        assert!(Arc::ptr_eq(&held[0], &quiet.1) && Arc::ptr_eq(&held[1], &many[1].1));
        assert_eq!(held.len(), PENDING_MAX);
        held.iter().for_each(|stream| entrance.leave(stream));
        assert!(entrance.pending().is_empty());
    }

    #[test]
    fn a_machine_is_told_of_once_for_each_reason() {
        let machine = IpAddr::from([192, 0, 2, 1]);
        let entrance = Entrance::default();
        assert!(entrance.is_news(machine, &Unproved::Garbage));
        assert!(!entrance.is_news(machine, &Unproved::Garbage));
        assert!(entrance.is_news(machine, &Unproved::AnotherSecret));
        assert!(entrance.is_news(IpAddr::from([192, 0, 2, 2]), &Unproved::Garbage));
    }
}
