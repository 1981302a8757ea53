//! What goes for the control plane: connections, sessions, queue pairs, descriptors.

use crate::clients::families::{Ground, forever};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use weldfs::{AttachOptions, Client, Connector, SocketConnector};
use weldfs_ciscops::attach::{Hello, Request};

/// Bytes of a large queue pair, and how many a session has of them.
const LARGE: u32 = 64 << 20;
const LARGE_COUNT: usize = 8;
/// Connections that ask for something all the time.
const CONNECTIONS: usize = 64;
/// How long closing one of the descriptors takes that are sent along.
const LINGER: Duration = Duration::from_secs(8);

pub fn attaches(g: &Ground) -> io::Result<()> {
    forever(8, |_| Client::connect(&g.socket)?.metadata("/").map(drop))
}

pub fn churn(g: &Ground) -> io::Result<()> {
    forever(2, |_| {
        let transport = SocketConnector::new(&g.socket).attach(&AttachOptions::default())?;
        let made: Vec<_> = (0..LARGE_COUNT).map_while(|_| transport.new_queue(8, LARGE).ok()).collect();
        drop(made);
        transport.detach();
        Ok(())
    })
}

pub fn control(g: &Ground) -> io::Result<()> {
    let clients: Vec<Client> = (0..CONNECTIONS).map_while(|_| Client::connect(&g.socket).ok()).collect();
    forever(clients.len() as u32, |i| {
        let client = &clients[i as usize];
        client.stats_json()?;
        // One of the small ones that are made where requests are answered.
        client.queue(2, 4096).map(drop)
    })
}

pub fn exhaustion(g: &Ground) -> io::Result<()> {
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: Some(65_536), maximum: Some(65_536) },
    );
    forever(4, |i| {
        let mut held = Vec::new();
        while let Ok(transport) = SocketConnector::new(&g.socket).attach(&AttachOptions::default()) {
            let placeholders = transport.placeholders(16).unwrap_or_default();
            let queues: Vec<_> = (0..16).map_while(|_| transport.new_queue(2, 4096).ok()).collect();
            held.push((transport, placeholders, queues));
        }
        // Connections that never say a word, until they are cut off.
        let silent: Vec<_> = (0..64 * (i + 1)).map_while(|_| dial(g).ok()).collect();
        std::thread::sleep(Duration::from_secs(1));
        drop((held, silent));
        Ok(())
    })
}

fn dial(g: &Ground) -> io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(&g.socket)?)?;
    Ok(socket)
}

/// A connection that closing waits for: nothing reads what was sent on it.
fn lingering() -> io::Result<(OwnedFd, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nonblocking(true)?;
    // Until the other end has room for nothing more: what was sent may take a while to get there.
    while near.write(&[7; 1 << 16]).is_ok() || {
        std::thread::sleep(Duration::from_millis(5));
        near.write(&[7; 1 << 16]).is_ok()
    } {}
    rustix::net::sockopt::set_socket_linger(&near, Some(LINGER))?;
    Ok((near.into(), far))
}

pub fn descriptors(g: &Ground) -> io::Result<()> {
    forever(4, |_| {
        let (fd, far) = lingering()?;
        let socket = dial(g)?;
        let hello = Hello { version_min: 1, version_max: 1, ..Hello::default() };
        let packet = Request::Hello { hello, prefix: Vec::new() }.encode();
        let (one, mut space) = ([fd.as_fd()], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&one));
        rustix::net::sendmsg(&socket, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL)?;
        drop(fd);
        std::thread::sleep(Duration::from_millis(50));
        drop((socket, far));
        Ok(())
    })
}
