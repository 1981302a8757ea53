//! One connection of the control plane: packets in with their descriptors, answers out.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use weldfs_ciscops::limits::{ATTACH_MESSAGE_MAX, PLACEHOLDERS_MAX};

use crate::closer::{Closer, RIGHTS_MAX};
use crate::protocol::{Answer, Conversation, Making, Rider};
use crate::served::Served;

/// Packets taken from one connection before the next one gets its turn.
const PACKETS_PER_TURN: usize = 16;

/// What a connection's turn came to.
pub enum Turn {
    /// Nothing more has come.
    Stays,
    /// It is to be ended.
    Over,
    /// It asks for the end of everything.
    Stop,
    /// It asks for a session.
    Attaches,
    /// It asks for what is to be made beside.
    Makes(Making),
}

/// Whose ends a connection waits for before it gets a session.
pub struct Waits {
    /// Sessions that were there when it was last looked.
    pub sessions: Vec<u64>,
    /// When it waits no longer.
    pub until: Instant,
}

impl Waits {
    /// Whether all of them are gone.
    pub fn is_over(&mut self, served: &Served) -> bool {
        // Those that are gone are not asked for again: each look is short.
        while self.sessions.pop_if(|id| !served.has_session(*id)).is_some() {}
        self.sessions.is_empty()
    }
}

/// A socket and what is said over it.
pub struct Connection {
    /// The socket.
    pub socket: OwnedFd,
    /// What is said.
    pub talk: Conversation,
    /// Something is being made for it: its next packet waits until it has its answer.
    pub busy: bool,
    /// It has asked for a session, and does not get it yet.
    pub waits: Option<Waits>,
}

impl Connection {
    /// With a newcomer.
    pub fn new(socket: OwnedFd, talk: Conversation) -> Connection {
        Connection { socket, talk, busy: false, waits: None }
    }

    /// Ends the session, if there is one, and the connection.
    pub fn part(self, closer: &Closer) {
        let Connection { socket, talk, .. } = self;
        let uid = talk.uid();
        talk.end();
        closer.part(uid, socket);
    }

    /// Handles what has arrived: the first packet in any case, others as long as there is time.
    pub fn turn(&mut self, closer: &Closer, until: Instant) -> Turn {
        for packet in 0..PACKETS_PER_TURN {
            if packet > 0 && Instant::now() >= until {
                return Turn::Stays;
            }
            if closer.is_full(self.talk.uid()) {
                return Turn::Over;
            }
            match receive(&self.socket) {
                Ok(None) => return Turn::Stays,
                Ok(Some((bytes, mut fds))) => {
                    let answer = self.talk.packet(&bytes, &mut fds);
                    let goes_on = closer.close(self.talk.uid(), fds);
                    if answer.stop {
                        return Turn::Stop;
                    }
                    if answer.attaches {
                        return if goes_on { Turn::Attaches } else { Turn::Over };
                    }
                    if let Some(making) = answer.making {
                        return if goes_on { Turn::Makes(making) } else { Turn::Over };
                    }
                    if !answer.packet.is_empty() && send(&self.socket, &answer).is_err() {
                        return Turn::Over;
                    }
                    if answer.close || !goes_on {
                        return Turn::Over;
                    }
                }
                Err(fds) => {
                    closer.close(self.talk.uid(), fds);
                    return Turn::Over;
                }
            }
        }
        Turn::Stays
    }
}

/// A message and the descriptors that came with it.
type Packet = (Vec<u8>, Vec<OwnedFd>);

/// The next packet with its descriptors; `None` when there is none; `Err` when the peer is gone or sent nonsense, with
/// the descriptors of that. All that a packet can carry are taken: the kernel would close the others here.
fn receive(socket: &OwnedFd) -> Result<Option<Packet>, Vec<OwnedFd>> {
    let mut bytes = vec![0; ATTACH_MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(got) => got,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        Err(_) => return Err(Vec::new()),
    };
    let fds: Vec<OwnedFd> = control
        .drain()
        .flat_map(|m| match m {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
            _ => Vec::new(),
        })
        .collect();
    let cut = rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC;
    if got.bytes == 0 || got.flags.intersects(cut) {
        return Err(fds);
    }
    bytes.truncate(got.bytes);
    Ok(Some((bytes, fds)))
}

/// Sends a reply; a peer that does not read its replies is cut off.
pub fn send(socket: &OwnedFd, answer: &Answer) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PLACEHOLDERS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let riders: Vec<BorrowedFd<'_>> = answer.riders.iter().map(Rider::as_fd).collect();
    if !riders.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&riders)) {
        return Err(rustix::io::Errno::NOMEM);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(&answer.packet)], &mut control, flags).map(drop)
}
