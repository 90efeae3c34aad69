//! A connection of the handshake: a stream that carries first proofs, then packets.
//!
//! Both ends send [`MeetingKind::magic`], the release and a challenge. The caller then sends its
//! proof and its packets; the listener checks the proof, sends its own, and answers. A packet is
//! its length in 4 bytes, so many encrypted bytes, and their tag. To a wrong proof the listener
//! answers with zeros, so that the caller knows why the connection ends.
//!
//! Until the other end has proved itself, no more bytes are received than its next step needs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use tagmatch_device::{PeerId, Release};
use tagmatch_os::peer_socket::PeerSocket;
use tagmatch_os::{fails_for_now, random, stream};

use super::hello::{PACKET_MAX, Packet};
use super::kind::MeetingKind;
use super::proof::{Challenge, Role, Secret, Session, Tag};

/// Bytes received at a time.
const PIECE: usize = 4096;
/// Length of the opening that both ends send: magic, release, challenge.
const OPENING: usize = 5 + size_of::<Challenge>();
const TAG: usize = size_of::<Tag>();
/// The listener's answer to a wrong proof.
const NO_PROOF: Tag = [0; TAG];
/// The reason for ending a connection after a wrong proof.
pub(crate) const WRONG_PROOF: &str =
    "a wrong proof: it has another address' secret, or another job's secret";
/// Length of a packet's length field.
const LENGTH: usize = 4;

#[cfg(test)]
mod hostile;

pub(crate) struct Connection {
    socket: PeerSocket,
    kind: &'static MeetingKind,
    /// The peer; `None` while the connection is pending.
    pub(crate) owner: Option<PeerId>,
    /// When a pending connection is closed.
    pub(crate) deadline: Instant,
    /// A local socket, not TCP.
    pub(crate) is_local: bool,
    /// The peer's hello was answered, and the peer has not said yet that it is ready.
    pub(crate) awaits_ready: bool,
    role: Role,
    trust: Trust,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// The error after which nothing can be sent any more.
    errno: Option<i32>,
}

/// The settings of a new connection.
pub(crate) struct NewConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) kind: &'static MeetingKind,
    /// The peer that is called; `None` for an accepted connection, whose other end has to prove
    /// that it knows the secret of this worker's address.
    pub(crate) owner: Option<PeerId>,
    pub(crate) is_local: bool,
    pub(crate) deadline: Instant,
    /// The secret of the listener's address.
    pub(crate) secret: Secret,
}

/// How far the proof has come.
enum Trust {
    /// The other end's challenge has not come. Packets wait until it has.
    None { secret: Secret, challenge: Challenge, unsaid: Vec<Packet> },
    /// The challenge has come; `is_proven` once the proof has come, too.
    Challenged { session: Session, is_proven: bool },
}

/// The result of receiving from a connection.
pub(crate) enum Heard {
    Packet(Packet),
    /// Nothing more has come.
    Nothing,
    /// The connection has ended, with the error number; 0 for an orderly end.
    End(i32),
    /// The other end broke a rule of the handshake.
    Misbehaved(&'static str),
}

impl Connection {
    /// A connection over a new stream.
    pub(crate) fn new(begin: NewConnection) -> io::Result<Self> {
        let NewConnection { socket, kind, owner, is_local, deadline, secret } = begin;
        let challenge: Challenge = random()?;
        let outbox = [&kind.magic[..], &[Release::OWN.byte()], &challenge].concat();
        let trust = Trust::None { secret, challenge, unsaid: Vec::new() };
        let inbox = Vec::new();
        Ok(Connection {
            socket: PeerSocket::new(socket),
            kind,
            owner,
            deadline,
            is_local,
            awaits_ready: false,
            role: if owner.is_some() { Role::Caller } else { Role::Listener },
            trust,
            inbox,
            outbox,
            errno: None,
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the other end has shown that it knows the secret.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self.trust, Trust::Challenged { is_proven: true, .. })
    }

    /// Sends a packet, or keeps it for [`Connection::flush`]. A caller's packet may go out before
    /// the listener has proved itself: only an end that knows the secret can read the packet.
    pub(crate) fn say(&mut self, packet: Packet) {
        match &mut self.trust {
            Trust::None { unsaid, .. } => unsaid.push(packet),
            Trust::Challenged { session, .. } => put(&mut self.outbox, session, &packet),
        }
    }

    /// Sends packets that wait; `true` if none is left. An error ends the connection, which
    /// [`Connection::hear`] reports.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match stream::send(self.socket.as_fd(), &self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if fails_for_now(&error) => return false,
                // Not connected yet.
                Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => return false,
                Err(error) => {
                    self.errno = error.raw_os_error();
                    self.outbox.clear();
                    self.socket.shut_down();
                }
            }
        }
        true
    }

    /// The next packet, or the reason why there is none.
    pub(crate) fn hear(&mut self) -> Heard {
        loop {
            match self.take() {
                Ok(Some(packet)) => return Heard::Packet(packet),
                Ok(None) => {}
                Err(what) => {
                    // The other end may wait for this end's answer.
                    self.flush();
                    return Heard::Misbehaved(what);
                }
            }
            let missing = self.step().map_or(1, |step| step - self.inbox.len());
            let mut piece = [0; PIECE];
            match stream::receive(self.socket.as_fd(), &mut piece[..missing.min(PIECE)]) {
                // The error that a send has returned is not returned by the socket again.
                Ok(0) => return Heard::End(self.errno.unwrap_or(0)),
                Ok(count) => self.inbox.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if fails_for_now(&error) => return Heard::Nothing,
                // Not connected yet, or never.
                Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                    return self.errno.map_or(Heard::Nothing, Heard::End);
                }
                Err(error) => return Heard::End(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
    }

    /// Number of bytes of the other end's next step, as far as it is known: for a packet, first its
    /// length field.
    fn step(&self) -> Result<usize, &'static str> {
        match (&self.trust, self.inbox.first_chunk()) {
            (Trust::None { .. }, _) => Ok(OPENING),
            (Trust::Challenged { is_proven: false, .. }, _) => Ok(TAG),
            (Trust::Challenged { .. }, None) => Ok(LENGTH),
            (Trust::Challenged { .. }, Some(length)) => {
                match u32::from_le_bytes(*length) as usize {
                    length @ ..=PACKET_MAX => Ok(LENGTH + length + TAG),
                    _ => Err("a handshake packet that is too long"),
                }
            }
        }
    }

    /// Carries out the other end's next step if all its bytes have come. Returns the packet if the
    /// step is one.
    fn take(&mut self) -> Result<Option<Packet>, &'static str> {
        if self.inbox.len() < self.step()? {
            return Ok(None);
        }
        let mut bytes = std::mem::take(&mut self.inbox);
        match &mut self.trust {
            Trust::None { secret, challenge, unsaid } => {
                let mut session =
                    Session::new(secret, self.role, challenge, &opening(&bytes, self.kind)?);
                if self.role == Role::Caller {
                    self.outbox.extend_from_slice(&session.proof());
                }
                unsaid.iter().for_each(|packet| put(&mut self.outbox, &mut session, packet));
                self.trust = Trust::Challenged { session, is_proven: false };
            }
            Trust::Challenged { session, is_proven: is_proven @ false } => {
                if !session.is_proof(&bytes) {
                    if self.role == Role::Listener {
                        self.outbox.extend_from_slice(&NO_PROOF);
                    }
                    return Err(WRONG_PROOF);
                }
                if self.role == Role::Listener {
                    self.outbox.extend_from_slice(&session.proof());
                }
                *is_proven = true;
            }
            Trust::Challenged { session, .. } => {
                let end = bytes.len() - TAG;
                let (packet, tag) = bytes[LENGTH..].split_at_mut(end - LENGTH);
                if !session.open(packet, tag) {
                    return Err("a handshake packet that was changed on its way");
                }
                return Packet::parse(packet, self.kind).map(Some);
            }
        }
        Ok(None)
    }
}

/// Appends a packet in the form in which it is sent.
fn put(outbox: &mut Vec<u8>, session: &mut Session, packet: &Packet) {
    let mut bytes = packet.emit();
    let tag = session.seal(&mut bytes);
    outbox.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    outbox.extend_from_slice(&bytes);
    outbox.extend_from_slice(&tag);
}

/// The challenge of an opening.
fn opening(bytes: &[u8], kind: &MeetingKind) -> Result<Challenge, &'static str> {
    let rest = bytes.strip_prefix(&kind.magic).ok_or("a handshake of another kind")?;
    let rest = rest.strip_prefix(&[Release::OWN.byte()]).ok_or("a handshake of another release")?;
    rest.try_into().map_err(|_| "an opening of another length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use crate::handshake::kind::KIND;

    const PEER: PeerId = PeerId(1);

    /// Two non-blocking sockets of one stream.
    pub(super) fn stream() -> (UnixStream, UnixStream) {
        let (one, two) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        two.set_nonblocking(true).unwrap();
        (one, two)
    }

    fn begin(socket: UnixStream, owner: Option<PeerId>, secret: Secret) -> Connection {
        let socket = socket.into();
        let deadline = Instant::now();
        let begin = NewConnection { socket, kind: &KIND, owner, is_local: true, deadline, secret };
        Connection::new(begin).unwrap()
    }

    fn caller(socket: UnixStream, secret: Secret) -> Connection {
        begin(socket, Some(PEER), secret)
    }

    pub(super) fn listener(socket: UnixStream, secret: Secret) -> Connection {
        begin(socket, None, secret)
    }

    /// The next result of receiving, after everything has been sent.
    pub(super) fn turn(connection: &mut Connection) -> Heard {
        connection.flush();
        let answer = connection.hear();
        connection.flush();
        answer
    }

    /// The opening that an end of this release sends.
    fn opening_of_this_release() -> Vec<u8> {
        [&KIND.magic[..], &[Release::OWN.byte()], b"challenge of 16!"].concat()
    }

    /// All bytes that wait in a socket.
    fn rest(mut socket: UnixStream) -> Vec<u8> {
        let mut rest = vec![0; 1 << 16];
        let length = socket.read(&mut rest).unwrap_or(0);
        rest.truncate(length);
        rest
    }

    #[test]
    fn ends_with_one_secret_hear_each_other() {
        let (one, two) = stream();
        let mut a = caller(one, [7; 16]);
        let mut b = listener(two, [7; 16]);
        a.say(Packet::Ready);
        a.say(Packet::Refusal(crate::handshake::hello::Refusal::Full));
        assert!(matches!(turn(&mut b), Heard::Nothing) && matches!(turn(&mut a), Heard::Nothing));
        assert!(!a.is_proven() && !b.is_proven());
        assert!(matches!(turn(&mut b), Heard::Packet(Packet::Ready)));
        assert!(matches!(turn(&mut b), Heard::Packet(Packet::Refusal(_))));
        b.say(Packet::Ready);
        b.flush();
        assert!(matches!(turn(&mut a), Heard::Packet(Packet::Ready)));
        drop(b);
        assert!(matches!(turn(&mut a), Heard::End(0)));
    }

    #[test]
    fn of_a_caller_without_the_secret_nothing_is_taken_after_its_proof() {
        let (mut caller, two) = stream();
        let taken = two.try_clone().unwrap();
        let mut b = listener(two, [7; 16]);
        caller.write_all(&opening_of_this_release()).unwrap();
        caller.write_all(b"a wrong proof 16the rest").unwrap();
        assert!(matches!(turn(&mut b), Heard::Misbehaved(_)));
        assert_eq!(rest(taken), b"the rest");
        let answer = rest(caller);
        assert_eq!(answer[OPENING..], NO_PROOF, "the listener doesn't prove itself");
    }

    #[test]
    fn a_caller_with_another_secret_is_told_so() {
        let (one, two) = stream();
        let mut a = caller(one, [7; 16]);
        let mut b = listener(two, [8; 16]);
        a.say(Packet::Ready);
        turn(&mut a);
        turn(&mut b);
        turn(&mut a);
        assert!(matches!(turn(&mut b), Heard::Misbehaved(WRONG_PROOF)) && !b.is_proven());
        drop(b);
        assert!(matches!(turn(&mut a), Heard::Misbehaved(WRONG_PROOF)) && !a.is_proven());
    }

    #[test]
    fn neither_secret_is_seen_on_the_way_nor_by_an_impostor() {
        let (one, mut impostor) = stream();
        let mut a = caller(one, [7; 16]);
        let own = [9; 16];
        a.say(Packet::Hello(Box::new(crate::handshake::hello::Hello {
            address: tagmatch_device::Address::from_bytes(&own).unwrap(),
            used: 1,
            source: 1,
            own_source: None,
            number: 0,
            worker: vec![3; 64],
        })));
        impostor.write_all(&opening_of_this_release()).unwrap();
        assert!(matches!(turn(&mut a), Heard::Nothing));
        let mut bytes = vec![0; 1 << 16];
        let length = impostor.read(&mut bytes).unwrap();
        bytes.truncate(length);
        assert!(bytes.len() > OPENING + TAG + 64, "the hello was sent");
        for known in [own, [7; 16], [3; 16]] {
            assert!(!bytes.windows(16).any(|part| part == known));
        }
        // A caller that sends the listener's own proof back does not get in.
        impostor.write_all(&bytes[OPENING..OPENING + TAG]).unwrap();
        assert!(matches!(turn(&mut a), Heard::Misbehaved(_)) && !a.is_proven());
    }

    #[test]
    fn a_packet_that_is_too_long_is_refused_by_its_length() {
        let (one, two) = stream();
        let mut a = caller(one.try_clone().unwrap(), [7; 16]);
        let mut b = listener(two, [7; 16]);
        for _ in 0..3 {
            turn(&mut a);
            turn(&mut b);
        }
        assert!(a.is_proven() && b.is_proven());
        for length in [PACKET_MAX + 1, u32::MAX as usize] {
            (&one).write_all(&u32::try_from(length).unwrap().to_le_bytes()).unwrap();
            assert!(matches!(
                turn(&mut b),
                Heard::Misbehaved("a handshake packet that is too long")
            ));
            b.inbox.clear();
        }
    }

    #[test]
    fn openings_of_others_are_refused() {
        let mut of_another_release = opening_of_this_release();
        of_another_release[KIND.magic.len()] ^= 1;
        for opening in [b"GET / HTTP/1.1\r\nHost:".to_vec(), of_another_release] {
            let (mut caller, two) = stream();
            caller.write_all(&opening).unwrap();
            assert!(matches!(turn(&mut listener(two, [7; 16])), Heard::Misbehaved(_)));
        }
    }
}
