//! Detectable execution end to end: what became of a command is answered to its user only, after every
//! way a device can end, and it agrees with what is in the files.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weldfs::{
    At, AttachOptions, Client, ClientOptions, Command, CommandId, Connector, Durability, Errno, Execution, Handle, Op,
    OpenFlags, OpenOptions, Queue, Raw, Tag,
};
use weldfs_device::DeviceConfig;
use weldfs_fs::Cred;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Embedded, ServeConfig, Server, Source};
use weldfs_media::{ImageKind, OpenMode};
use weldfs_store::mount::{MkfsOptions, format};

const SOCKET: &str = "WELDFS_TEST_SOCKET";
const IMAGE: &str = "WELDFS_TEST_IMAGE";
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);

fn embedded(source: &Source) -> Embedded {
    Embedded::open(source, DeviceConfig { cores: 1, ..DeviceConfig::default() }).unwrap()
}

fn client_of(connector: impl Connector + 'static, id: u8) -> Client {
    let attach = AttachOptions { client_id: [id; 16], ..AttachOptions::default() };
    Client::with_options(Arc::new(connector), ClientOptions { attach, ..ClientOptions::default() }).unwrap()
}

pub(crate) fn make_image(dir: &Path, kind: ImageKind) -> PathBuf {
    let path = dir.join("image");
    let medium = weldfs_media::create(&path, kind, 64 << 20, false).unwrap();
    format(&medium, &MkfsOptions::default(), &SystemClock, &SystemRandom).unwrap();
    // Children of other tests have the image's lock, too, until their exec.
    medium.let_go();
    path
}

fn done(client: &Client, id: CommandId) -> weldfs::Cqe {
    match client.outcome(id).unwrap() {
        Execution::Done(cqe) => cqe,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_outcome_is_what_the_completion_said_also_of_what_failed_or_changed_nothing() {
    let device = embedded(&Source::Ram(64 << 20));
    let client = client_of(device.clone(), 7);
    let tag = Tag::new();
    let raw = client.raw().detectable(&tag);
    let wrote = raw.open_write_close(Handle::ROOT, b"f", RW, 0o644, At::End, &b"12345"[..]).unwrap();
    let id = tag.id().unwrap();
    assert_eq!(id.client, [7; 16]);
    let cqe = done(&client, id);
    assert_eq!((cqe.status, cqe.result as usize, cqe.result2 >> 63), (0, wrote.len, 1));
    assert_eq!(cqe.micro_done, 3);
    // What failed.
    assert_eq!(raw.unlinkat(Handle::ROOT, b"missing"), Err(Errno::NOENT));
    assert_eq!(done(&client, tag.id().unwrap()).status, Errno::NOENT.0);
    let excl = RW | OpenFlags::EXCL;
    let again = raw.open_write_close(Handle::ROOT, b"f", excl, 0o644, At::End, &b"x"[..]);
    assert_eq!(again.unwrap_err(), Errno::EXIST);
    let cqe = done(&client, tag.id().unwrap());
    assert_eq!((cqe.status, cqe.micro_done, cqe.micro_failed), (Errno::EXIST.0, 0, 1));
    // What changed nothing.
    let mut room = [0; 16];
    assert_eq!(raw.open_read_close(Handle::ROOT, b"f", OpenFlags::READ, 1, &mut room[..]), Ok(4));
    assert_eq!(done(&client, tag.id().unwrap()).result, 4);
    // What has no transaction.
    let last = tag.id();
    assert_eq!(raw.nop(), Err(Errno::INVAL));
    assert_ne!(tag.id(), last);
    assert_eq!(client.outcome(tag.id().unwrap()).unwrap(), Execution::NotStarted);
    // Without the flag nothing is kept.
    let next = CommandId { sequence: tag.id().unwrap().sequence + 100, ..id };
    client.write("/plain", b"x").unwrap();
    assert_eq!(client.outcome(next).unwrap(), Execution::NotStarted);
}

#[test]
fn every_kind_of_command_with_a_transaction_can_be_detectable() {
    let device = embedded(&Source::Ram(64 << 20));
    let client = client_of(device.clone(), 7);
    let file = OpenOptions::new().read(true).write(true).create(true).open(&client, "/f").unwrap();
    let tag = Tag::new();
    let raw = file.raw().detectable(&tag);
    let h = file.handle();
    type Act<'a> = &'a dyn Fn(Raw<'_>) -> Result<(), Errno>;
    let acts: [Act<'_>; 8] = [
        &|r| r.write(h, At::End, &b"abc"[..]).map(drop),
        &|r| r.append_checksum_write(h, &b"payload"[..]).map(drop),
        &|r| r.read_modify_write(h, 0, weldfs::Change::Add { by: 1, width: 8 }, None),
        &|r| r.truncate(h, 3),
        &|r| r.mkdirat(Handle::ROOT, b"dir", 0o755),
        &|r| r.renameat(Handle::ROOT, b"dir", Handle::ROOT, b"other", weldfs::RenameFlags::empty()),
        &|r| r.seek(h, weldfs::Whence::Set, 1).map(drop),
        &|r| r.stat(h).map(drop),
    ];
    let mut ids = Vec::new();
    for act in acts {
        act(raw).unwrap();
        ids.push(tag.id().unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 8);
    ids.iter().for_each(|id| assert_eq!(done(&client, *id).status, 0));
}

#[test]
fn another_user_learns_nothing_not_even_that_there_is_such_a_client() {
    let device = embedded(&Source::Ram(64 << 20));
    let root = client_of(device.acting_as(Cred::root()), 7);
    root.raw().set_attr_at(Handle::ROOT, b"/", false, &mode(0o777)).unwrap();
    let (alice, bob) = (device.acting_as(Cred::new(1001, 1001)), device.acting_as(Cred::new(1002, 1002)));
    let (alice, bob) = (client_of(alice, 7), client_of(bob, 8));
    let tag = Tag::new();
    alice.raw().detectable(&tag).mkdirat(Handle::ROOT, b"hers", 0o700).unwrap();
    let id = tag.id().unwrap();
    assert!(matches!(alice.outcome(id).unwrap(), Execution::Done(_)));
    assert_eq!(bob.outcome(id).unwrap(), Execution::NotStarted);
    assert_eq!(root.outcome(id).unwrap(), Execution::NotStarted, "also the superuser asks for his own only");
    // The same id used by another user is another client.
    let thief = client_of(device.acting_as(Cred::new(1002, 1002)), 7);
    thief.raw().detectable(&tag).mkdirat(Handle::ROOT, b"his", 0o700).unwrap();
    assert!(matches!(thief.outcome(tag.id().unwrap()).unwrap(), Execution::Done(_)));
    assert_eq!(alice.outcome(tag.id().unwrap()).unwrap(), Execution::NotStarted);
    assert!(matches!(alice.outcome(id).unwrap(), Execution::Done(_)));
}

fn mode(bits: u32) -> weldfs::SetAttrBody {
    weldfs::SetAttrBody { mask: weldfs::SetAttrMask::MODE.bits(), mode: bits, ..Default::default() }
}

#[test]
fn outcomes_outlive_the_session_the_unmount_and_the_1024_that_follow_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let source = Source::Image(make_image(dir.path(), ImageKind::Pmem));
    let device = embedded(&source);
    let client = client_of(device.clone(), 7);
    let mut queue = client.queue(8, 1 << 16).unwrap();
    let path = queue.stage(b"/f").unwrap();
    let src = queue.stage(b"x").unwrap();
    let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags: RW, mode: 0o644, at: At::End, src };
    let run = |queue: &mut Queue| {
        let ticket = queue.submit(&Command::new(0, op).detectable()).unwrap();
        queue.wait(ticket).unwrap().ok().unwrap();
        CommandId { client: [7; 16], queue: queue.index() as u16, sequence: ticket.sequence() }
    };
    let ids: Vec<CommandId> = (0..1024).map(|_| run(&mut queue)).collect();
    drop(queue);
    drop(client);
    device.close().unwrap();
    drop(device);
    let device = embedded(&source);
    let client = client_of(device.clone(), 9);
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(done(&client, *id).result2 & !(1 << 63), i as u64, "where its byte went");
    }
    let again = client_of(device.clone(), 7);
    let mut queue = loop {
        // The same number of queue pair as before.
        let queue = again.queue(8, 1 << 16).unwrap();
        if queue.index() as u16 == ids[0].queue {
            break queue;
        }
    };
    queue.stage(b"/f").unwrap();
    queue.stage(b"x").unwrap();
    let id = run(&mut queue);
    assert!(id.sequence > ids[1023].sequence, "sequences grow over sessions");
    assert_eq!(client.outcome(ids[0]).unwrap(), Execution::Expired);
    assert!(matches!(client.outcome(ids[1]).unwrap(), Execution::Done(_)));
    assert!(matches!(client.outcome(id).unwrap(), Execution::Done(_)));
}

#[test]
fn where_nothing_can_be_kept_nothing_is_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), ImageKind::Pmem);
    let medium = weldfs_media::open(&path, ImageKind::Pmem, OpenMode::ReadOnly).unwrap();
    let mut options = weldfs_store::MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom));
    options.read_only = true;
    let (store, _) = weldfs_fs::mount(medium, options).unwrap();
    let device = Embedded::over(store, DeviceConfig::default()).unwrap();
    let client = client_of(device, 7);
    let tag = Tag::new();
    assert_eq!(client.raw().detectable(&tag).stat(Handle::ROOT).unwrap_err(), Errno::ROFS);
    assert_eq!(client.outcome(tag.id().unwrap()).unwrap(), Execution::NotStarted);
    client.raw().stat(Handle::ROOT).unwrap();
}

#[test]
fn commands_without_the_flag_log_not_a_byte_more() {
    let device = embedded(&Source::Ram(64 << 20));
    let client = client_of(device.clone(), 7);
    let file = OpenOptions::new().write(true).create(true).open(&client, "/f").unwrap();
    // A device that is idle for a moment may log a watermark: 64 bytes that no command asked for.
    let tail = || {
        let store = device.device().store();
        loop {
            let (tail, marks) = (store.journal().tail().0, store.journal().stats().watermark_records);
            if store.journal().tail().0 == tail {
                return tail - marks * 64;
            }
        }
    };
    let cost = |act: &dyn Fn()| {
        let before = tail();
        act();
        tail() - before
    };
    // Records are rounded up: many sizes, so that a byte shows.
    let appends = |raw: Raw<'_>| {
        for len in 100..164 {
            raw.write(file.handle(), At::Offset(0), &[1; 164][..len]).unwrap();
        }
    };
    let tag = Tag::new();
    appends(file.raw());
    let plain = cost(&|| appends(file.raw()));
    let flagged = cost(&|| appends(file.raw().detectable(&tag)));
    assert_eq!(cost(&|| appends(file.raw())), plain);
    assert!(flagged > plain && flagged <= plain + 64 * 74, "{plain}, {flagged} with outcomes");
    assert_eq!(
        cost(&|| {
            file.raw().stat(file.handle()).unwrap();
        }),
        0,
        "a read logs nothing"
    );
    let kept = device.device().store().stats().outcome_bytes;
    appends(file.raw());
    assert_eq!(device.device().store().stats().outcome_bytes, kept);
}

#[test]
#[ignore = "not a test: the device that the test below kills"]
fn a_device_in_another_process() {
    let (Ok(socket), Ok(image)) = (std::env::var(SOCKET), std::env::var(IMAGE)) else { return };
    let mut config = ServeConfig::new(Source::Image(PathBuf::from(image)), socket);
    config.device.cores = 1;
    let server = Server::bind(config).unwrap();
    println!("\nready");
    server.run().unwrap();
}

fn serve(socket: &Path, image: &Path) -> Child {
    let mut command = Process::new(std::env::current_exe().unwrap());
    command.args(["--exact", "detect::a_device_in_another_process", "--nocapture", "--ignored"]);
    command.env(SOCKET, socket).env(IMAGE, image).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().contains("ready")));
    child
}

/// One numbered record, by a single write or by fused commands of either kind.
fn record(raw: Raw<'_>, h: Handle, n: u64) -> Result<(), Errno> {
    let text = format!("<{n:06}>");
    match n % 3 {
        0 => raw.write(h, At::End, text.as_bytes()).map(drop),
        1 => raw
            .open_write_close(Handle::ROOT, format!("n{n}").as_bytes(), RW, 0o644, At::End, text.as_bytes())
            .map(drop),
        _ => raw.append_checksum_write(h, text.as_bytes()).map(drop),
    }
}

/// Whether the effect of [`record`] is there, whole.
fn stands(client: &Client, log: &[u8], n: u64) -> bool {
    let text = format!("<{n:06}>");
    match n % 3 {
        1 => client.read(format!("/n{n}")).is_ok_and(|content| content == text.as_bytes()),
        _ => log.windows(8).any(|w| w == text.as_bytes()),
    }
}

#[test]
fn after_a_device_was_killed_the_outcome_of_each_command_agrees_with_the_files() {
    for kind in [ImageKind::Pmem, ImageKind::Block] {
        let dir = tempfile::tempdir().unwrap();
        let (image, socket) = (make_image(dir.path(), kind), dir.path().join("socket"));
        let (mut n, mut sent): (u64, Vec<(CommandId, u64, bool)>) = (0, Vec::new());
        for round in 0..6 {
            let mut device = serve(&socket, &image);
            let client = Client::connect(&socket).unwrap();
            let file = client.open("/log", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
            let answered = Arc::new(AtomicU64::new(0));
            let heard = answered.clone();
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(3_000 + round * 4_300));
                // However busy the machine is, there is something to be asked about.
                while heard.load(Ordering::Relaxed) < 5 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                device.kill().unwrap();
                device.wait().unwrap();
            });
            let tag = Tag::new();
            loop {
                let raw = file.raw().durability(Durability::Durable).detectable(&tag);
                let answer = record(raw, file.handle(), n);
                sent.push((tag.id().unwrap(), n, answer.is_ok()));
                n += 1;
                answered.fetch_add(1, Ordering::Relaxed);
                if let Err(e) = answer {
                    assert!(matches!(e, Errno::IO | Errno::NODEV), "{e}");
                    break;
                }
            }
            killer.join().unwrap();
        }
        let mut device = serve(&socket, &image);
        let client = Client::connect(&socket).unwrap();
        let log = client.read("/log").unwrap();
        // How many commands of its queue pair came after it.
        let later = |id: &CommandId| sent.iter().filter(|(i, ..)| i.client == id.client && i > id).count();
        for (id, n, acknowledged) in &sent {
            let there = stands(&client, &log, *n);
            match client.outcome(*id).unwrap() {
                Execution::Done(cqe) => assert!(there && cqe.status == 0, "{n} is done"),
                Execution::NotStarted => assert!(!there && !acknowledged, "{n} is not there"),
                Execution::Expired => assert!(later(id) >= 1024, "{n} is old"),
                Execution::InProgress { .. } => panic!("recovery finishes what was begun"),
            }
        }
        assert!(sent.len() > 20, "{} commands", sent.len());
        device.kill().unwrap();
        device.wait().unwrap();
    }
}
