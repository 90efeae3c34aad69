//! The two ends of a handshake, each over its socket: one step at a time, as bytes come. Neither
//! end receives a byte more than its next step needs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tagmatch_device::{Address, Outgoing};
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::{fails_for_now, random, stream};
use tagmatch_secret::{PROOF_BYTES, Role, Secret};

use super::greeting::{
    ANSWER_BYTES, Admission, CallRefusal, OPENING_BYTES, Opening, Openings, QUESTION_BYTES,
    parse_question, question,
};

/// A socket with the bytes of the current step.
pub(crate) struct Talk {
    socket: PeerSocket,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Whether the other machine has taken a byte: until then the connection is not established.
    pub(crate) is_established: bool,
    /// The error after which nothing can be sent.
    errno: Option<i32>,
}

/// Why a handshake doesn't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Bytes are missing: they come later.
    Later,
    /// The connection has ended, with the error number; 0 for an orderly end.
    End(i32),
    /// The other end is no worker, or breaks a rule.
    Wrong(&'static str),
}

impl Talk {
    fn new(socket: OwnedFd, unsent: &[u8]) -> Self {
        Talk {
            socket: PeerSocket::new(socket),
            received: Vec::new(),
            unsent: unsent.to_vec(),
            is_established: false,
            errno: None,
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn into_socket(self) -> PeerSocket {
        self.socket
    }

    /// Whether bytes wait for room in the socket.
    pub(crate) fn has_to_send(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what waits, as far as there is room.
    fn push(&mut self) {
        while !self.unsent.is_empty() {
            match stream::send(self.socket.as_fd(), &self.unsent) {
                Ok(count) => {
                    self.is_established = true;
                    self.unsent.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_not_yet(&error) => return,
                Err(error) => {
                    self.errno = error.raw_os_error();
                    self.unsent.clear();
                }
            }
        }
    }

    /// The `N` bytes of the next step, once all have come.
    fn step<const N: usize>(&mut self) -> Result<[u8; N], Halt> {
        loop {
            if let Ok(bytes) = <[u8; N]>::try_from(&self.received[..]) {
                self.received.clear();
                return Ok(bytes);
            }
            let mut piece = [0; N];
            let missing = N.saturating_sub(self.received.len());
            match stream::receive(self.socket.as_fd(), &mut piece[..missing]) {
                // The error that a send has returned is not returned by the socket again.
                Ok(0) => return Err(Halt::End(self.errno.unwrap_or(0))),
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_not_yet(&error) => {
                    return Err(self.errno.map_or(Halt::Later, Halt::End));
                }
                Err(error) => {
                    return Err(Halt::End(error.raw_os_error().unwrap_or(libc::EIO)));
                }
            }
        }
    }
}

/// Every worker receives messages that are as long as a header.
fn check_limit(message_max: u32) -> Result<(), Halt> {
    if (message_max as usize) < Outgoing::HEADER_MAX {
        return Err(Halt::Wrong("it receives no message that is long enough"));
    }
    Ok(())
}

/// The call can be made later, or the connection is not established.
fn is_not_yet(error: &io::Error) -> bool {
    fails_for_now(error) || error.raw_os_error() == Some(libc::ENOTCONN)
}

/// The end that has connected.
pub(crate) struct Caller {
    pub(crate) talk: Talk,
    own: Opening,
    /// Both openings, once the listener's has come and the proof was sent.
    openings: Option<Openings>,
}

/// How a handshake has ended for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// Both ends have proved themselves. The peer receives messages up to this length.
    Accepted {
        message_max: u32,
    },
    Refused(CallRefusal),
    /// Another worker listens there.
    Another,
}

impl Caller {
    /// Begins a handshake over a socket that may not be connected yet.
    pub(crate) fn new(socket: OwnedFd, own: Address) -> io::Result<Self> {
        let own = Opening { nonce: random()?, address: own };
        let mut talk = Talk::new(socket, &own.emit());
        talk.push();
        Ok(Caller { talk, own, openings: None })
    }

    /// Whether this end has sent its proof, so that the listener may have accepted it.
    pub(crate) fn has_asked(&self) -> bool {
        self.openings.is_some()
    }

    /// Goes on as far as bytes have come, towards the listener with the address `wanted`.
    pub(crate) fn advance(
        &mut self,
        secret: &Secret,
        wanted: &Address,
        message_max: u32,
    ) -> Result<Called, Halt> {
        self.talk.push();
        let openings = match self.openings {
            Some(openings) => openings,
            None => {
                let listener =
                    Opening::parse(&self.talk.step::<OPENING_BYTES>()?).map_err(Halt::Wrong)?;
                if listener.address != *wanted {
                    return Ok(Called::Another);
                }
                let openings = Openings { caller: self.own, listener };
                let proof = openings.proof(secret, Role::Caller);
                self.talk.unsent.extend_from_slice(&question(&proof, message_max));
                self.talk.push();
                *self.openings.insert(openings)
            }
        };
        match Admission::parse(&self.talk.step::<ANSWER_BYTES>()?).map_err(Halt::Wrong)? {
            Admission::Refused { why: CallRefusal::Proof, .. } => {
                Ok(Called::Refused(CallRefusal::Proof))
            }
            Admission::Refused { why, proof } => {
                if !openings.is_proof(secret, Role::Listener, &proof) {
                    return Err(Halt::Wrong("a refusal without a proof that it knows the secret"));
                }
                Ok(Called::Refused(why))
            }
            Admission::Accepted { proof, message_max } => {
                if !openings.is_proof(secret, Role::Listener, &proof) {
                    return Err(Halt::Wrong("its proof that it knows the secret is wrong"));
                }
                check_limit(message_max)?;
                Ok(Called::Accepted { message_max })
            }
        }
    }
}

/// The end that has accepted the connection.
pub(crate) struct Listener {
    pub(crate) talk: Talk,
    own: Opening,
    openings: Option<Openings>,
    /// When the connection is closed unless the caller has proved itself.
    pub(crate) deadline: Duration,
}

/// A caller that has asked to be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    openings: Openings,
    /// The longest message that it receives.
    pub(crate) message_max: u32,
}

impl Asking {
    /// The address that the caller has given.
    pub(crate) fn address(&self) -> &Address {
        &self.openings.caller.address
    }
}

impl Listener {
    pub(crate) fn new(socket: OwnedFd, own: Address, deadline: Duration) -> io::Result<Self> {
        let own = Opening { nonce: random()?, address: own };
        Ok(Listener { talk: Talk::new(socket, &[]), own, openings: None, deadline })
    }

    /// Goes on as far as bytes have come. Nothing is sent before the caller's opening is there.
    /// `None`: the caller's proof is wrong.
    pub(crate) fn advance(&mut self, secret: &Secret) -> Result<Option<Asking>, Halt> {
        self.talk.push();
        let openings = match self.openings {
            Some(openings) => openings,
            None => {
                let caller =
                    Opening::parse(&self.talk.step::<OPENING_BYTES>()?).map_err(Halt::Wrong)?;
                self.talk.unsent.extend_from_slice(&self.own.emit());
                self.talk.push();
                *self.openings.insert(Openings { caller, listener: self.own })
            }
        };
        let (proof, message_max) = parse_question(&self.talk.step::<QUESTION_BYTES>()?);
        if !openings.is_proof(secret, Role::Caller, &proof) {
            return Ok(None);
        }
        check_limit(message_max)?;
        Ok(Some(Asking { openings, message_max }))
    }

    /// Accepts the caller. Gives the socket, and what it didn't take of the answer; `None` if the
    /// connection is broken.
    pub(crate) fn accept(
        mut self,
        secret: &Secret,
        asking: &Asking,
        message_max: u32,
    ) -> Option<(PeerSocket, Vec<u8>)> {
        let proof = asking.openings.proof(secret, Role::Listener);
        self.answer(Admission::Accepted { proof, message_max });
        self.talk.errno.is_none().then_some((self.talk.socket, self.talk.unsent))
    }

    /// Refuses a caller whose proof is wrong.
    pub(crate) fn refuse_proof(mut self) {
        self.answer(Admission::Refused { why: CallRefusal::Proof, proof: [0; PROOF_BYTES] });
    }

    /// Refuses a caller that has proved itself.
    pub(crate) fn refuse(mut self, secret: &Secret, asking: &Asking, why: CallRefusal) {
        let proof = asking.openings.proof(secret, Role::Listener);
        self.answer(Admission::Refused { why, proof });
    }

    /// Sends an answer, as far as there is room.
    fn answer(&mut self, answer: Admission) {
        self.talk.unsent.extend_from_slice(&answer.emit());
        self.talk.push();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes(&[byte; 16]).unwrap()
    }

    fn address(byte: u8) -> Address {
        Address::from_bytes(&[byte; 20]).unwrap()
    }

    fn stream() -> (UnixStream, UnixStream) {
        let (one, two) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        two.set_nonblocking(true).unwrap();
        (one, two)
    }

    fn ends() -> (Caller, Listener) {
        let (one, two) = stream();
        let caller = Caller::new(one.into(), address(1)).unwrap();
        (caller, Listener::new(two.into(), address(2), Duration::ZERO).unwrap())
    }

    #[test]
    fn ends_with_one_secret_accept_each_other() {
        let (mut caller, mut listener) = ends();
        assert!(matches!(listener.advance(&secret(7)), Err(Halt::Later)));
        assert_eq!(caller.advance(&secret(7), &address(2), 100), Err(Halt::Later));
        let asking = listener.advance(&secret(7)).unwrap().unwrap();
        assert_eq!((*asking.address(), asking.message_max), (address(1), 100));
        let _socket = listener.accept(&secret(7), &asking, 200).unwrap();
        let answer = caller.advance(&secret(7), &address(2), 100);
        assert_eq!(answer, Ok(Called::Accepted { message_max: 200 }));
    }

    #[test]
    fn a_caller_with_another_secret_is_told_so() {
        let (mut caller, mut listener) = ends();
        let _ = listener.advance(&secret(7));
        let _ = caller.advance(&secret(8), &address(2), 100);
        assert!(listener.advance(&secret(7)).unwrap().is_none());
        listener.refuse_proof();
        let answer = caller.advance(&secret(8), &address(2), 100);
        assert_eq!(answer, Ok(Called::Refused(CallRefusal::Proof)));
    }

    #[test]
    fn a_refusal_counts_if_it_proves_the_secret() {
        for why in [CallRefusal::Crossed, CallRefusal::Known, CallRefusal::Full] {
            for (byte, is_proven) in [(7, true), (8, false)] {
                let (mut caller, mut listener) = ends();
                let _ = listener.advance(&secret(7));
                let _ = caller.advance(&secret(7), &address(2), 100);
                let asking = listener.advance(&secret(7)).unwrap().unwrap();
                listener.refuse(&secret(byte), &asking, why);
                match caller.advance(&secret(7), &address(2), 100) {
                    Ok(called) => assert!(is_proven && called == Called::Refused(why)),
                    Err(stop) => assert!(!is_proven && matches!(stop, Halt::Wrong(_))),
                }
            }
        }
    }

    #[test]
    fn a_caller_proves_nothing_to_a_listener_that_it_did_not_want() {
        let (mut caller, mut listener) = ends();
        let _ = listener.advance(&secret(7));
        assert_eq!(caller.advance(&secret(7), &address(3), 100), Ok(Called::Another));
        assert!(!caller.has_asked());
        assert!(matches!(listener.advance(&secret(7)), Err(Halt::Later)));
    }

    #[test]
    fn a_listener_without_the_secret_is_not_accepted_and_cannot_reflect_a_proof() {
        let (one, mut impostor) = stream();
        let mut caller = Caller::new(one.into(), address(1)).unwrap();
        let mut seen = [0; OPENING_BYTES];
        impostor.read_exact(&mut seen).unwrap();
        let opening = Opening { nonce: [5; 16], address: address(2) };
        impostor.write_all(&opening.emit()).unwrap();
        assert_eq!(caller.advance(&secret(7), &address(2), 100), Err(Halt::Later));
        let mut asked = [0; QUESTION_BYTES];
        impostor.read_exact(&mut asked).unwrap();
        impostor.write_all(&[0]).unwrap();
        impostor.write_all(&asked).unwrap();
        let answer = caller.advance(&secret(7), &address(2), 100);
        assert!(matches!(answer, Err(Halt::Wrong(_))), "{answer:?}");
    }

    #[test]
    fn a_greeting_that_is_played_back_is_refused_and_nothing_behind_it_is_received() {
        // Records a good handshake as the listener sees it.
        let (mut recorded, (mut caller, mut listener)) = (Vec::new(), ends());
        recorded.extend_from_slice(&caller.own.emit());
        let _ = listener.advance(&secret(7));
        let _ = caller.advance(&secret(7), &address(2), 100);
        let openings = caller.openings.unwrap();
        recorded.extend_from_slice(&question(&openings.proof(&secret(7), Role::Caller), 100));
        let (mut stranger, two) = stream();
        let taken = two.try_clone().unwrap();
        let mut later = Listener::new(two.into(), address(2), Duration::ZERO).unwrap();
        stranger.write_all(&recorded).unwrap();
        stranger.write_all(b"the rest").unwrap();
        assert!(later.advance(&secret(7)).unwrap().is_none());
        let mut rest = [0; 20];
        assert_eq!((&taken).read(&mut rest).unwrap(), 8);
        // The same bytes are a good handshake for the listener that they were made for.
        assert!(listener.advance(&secret(7)).unwrap().is_some());
    }

    #[test]
    fn a_stranger_gets_no_byte_before_its_opening_is_right() {
        let (mut stranger, two) = stream();
        let mut listener = Listener::new(two.into(), address(2), Duration::ZERO).unwrap();
        stranger.write_all(&[b'G'; OPENING_BYTES - 1]).unwrap();
        assert!(matches!(listener.advance(&secret(7)), Err(Halt::Later)));
        stranger.write_all(b"G").unwrap();
        assert!(matches!(listener.advance(&secret(7)), Err(Halt::Wrong(_))));
        assert!(stranger.read(&mut [0; 1]).is_err(), "nothing was sent");
        drop(stranger);
    }
}
