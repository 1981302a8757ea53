//! Virtual files: what is read of one is what the kernel makes of the files behind it, what is written to one goes
//! through the kernel into a file; and each way in which that can fail has its errno and harms nothing else.

use std::sync::Arc;

use weldfs::{
    AccessMask, At, Client, Direction, Errno, FallocMode, OpenFlags, OpenOptions, VirtFile, VirtRange, VirtSpec, Whence,
};
use weldfs_ciscops::limits::VIRT_AGAIN_MAX;
use weldfs_ciscops::virt::TO_END;
use weldfs_device::{DeviceConfig, Totals};
use weldfs_fpga::config::CardConfig;
use weldfs_fs::Cred;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_media::ImageKind;
use weldfs_store::mount::{MkfsOptions, format};

pub const READ: OpenFlags = OpenFlags::READ;
pub const WRITE: OpenFlags = OpenFlags::WRITE;

fn device() -> (Embedded, Client) {
    let embedded = Embedded::open(&Source::Ram(96 << 20), DeviceConfig::default()).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    (embedded, client)
}

pub fn user(embedded: &Embedded, uid: u32) -> Client {
    Client::with(Arc::new(embedded.acting_as(Cred::new(uid, uid)))).unwrap()
}

/// A needle as the kernel `grep` takes it.
fn needle(text: &str) -> Vec<u32> {
    let words = text.as_bytes().chunks(4).map(|c| c.iter().rev().fold(0, |w, b| w << 8 | u32::from(*b)));
    std::iter::once(text.len() as u32).chain(words).collect()
}

pub fn spec(kernel: &str, params: Vec<u32>, direction: Direction, ranges: &[(&str, u64, u64)]) -> VirtSpec {
    let range = |(path, offset, length): &(&str, u64, u64)| VirtRange {
        path: path.as_bytes().to_vec(),
        offset: *offset,
        length: *length,
    };
    VirtSpec { kernel: kernel.into(), params, direction, ranges: ranges.iter().map(range).collect() }
}

/// A file of lines, of which every `nth` has the needle; and what grep says of it.
fn lines(count: u32, nth: u32) -> (Vec<u8>, Vec<u8>) {
    let (mut text, mut hits) = (Vec::new(), Vec::new());
    for row in 0..count {
        let line =
            if row % nth == 0 { format!("line {row} has an error in it\n") } else { format!("line {row} is fine\n") };
        if let Some(column) = line.find("error") {
            hits.extend([row.to_le_bytes(), (column as u32).to_le_bytes()].concat());
        }
        text.extend(line.bytes());
    }
    (text, hits)
}

pub fn put(client: &Client, path: &str, bytes: &[u8]) {
    client.create(path).unwrap().write_all_at(bytes, 0).unwrap();
}

pub fn drain(file: &VirtFile, room: usize) -> std::io::Result<Vec<u8>> {
    let (mut all, mut piece) = (Vec::new(), vec![0; room]);
    loop {
        match file.vread(&mut piece[..])? {
            0 => return Ok(all),
            n => all.extend_from_slice(&piece[..n]),
        }
    }
}

pub fn errno<T>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().and_then(|e| e.raw_os_error()).map(Errno)
}

#[test]
fn reading_gives_what_the_kernel_makes_and_moves_little_over_the_link() {
    let (embedded, client) = device();
    let (text, hits) = lines(1_200_000, 2000);
    put(&client, "/log", &text);
    client
        .virt_register("/errors", 0o644, &spec("grep", needle("error"), Direction::Read, &[("/log", 0, TO_END)]))
        .unwrap();
    let totals = || embedded.device().stats().total;
    let before: Totals = totals();
    let file = client.vopen("/errors", READ).unwrap();
    assert_eq!(drain(&file, 1 << 16).unwrap(), hits);
    let after = totals();
    let moved = after.since(&before);
    let link = moved.link_bytes_in + moved.link_bytes_out;
    assert!(link * 100 < 2 * text.len() as u64, "{link} bytes crossed for a file of {}", text.len());
    assert!(moved.payload_bytes_out == hits.len() as u64 && moved.virtual_reads > 0, "{moved:?}");
    assert!(moved.slot_ns > 0 && moved.slot_bytes_in == text.len() as u64, "{moved:?}");
    assert_eq!(moved.slot_packets, 1, "a stream is a packet");
    // Of the size that a file without bytes has.
    assert_eq!(client.metadata("/errors").unwrap().len(), 0);
    // The same in pieces of any size, and again after a rewind.
    file.rewind().unwrap();
    assert_eq!(drain(&file, 13).unwrap(), hits);
    assert_eq!(drain(&file, 13).unwrap(), b"");
    assert_eq!(client.read("/errors").unwrap(), hits);
    assert_eq!(totals().since(&before).slot_packets, 3, "again after the rewind, and of the file that read opened");
}

#[test]
fn several_ranges_are_one_stream_and_parameters_may_change_between_streams() {
    let (_embedded, client) = device();
    put(&client, "/a", b"one error\nerr");
    put(&client, "/b", b"xxor\nnone\nerror");
    put(&client, "/empty", b"");
    let ranges = [("/a", 0, TO_END), ("/empty", 0, TO_END), ("/b", 2, TO_END), ("/empty", 0, TO_END)];
    client.virt_register("/v", 0o644, &spec("grep", needle("error"), Direction::Read, &ranges)).unwrap();
    let file = client.vopen("/v", READ).unwrap();
    let words =
        |bytes: Vec<u8>| -> Vec<u32> { bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect() };
    assert_eq!(words(drain(&file, 100).unwrap()), [0, 4, 1, 0, 3, 0]);
    assert_eq!(errno(file.send_params(&needle("none"))), None, "the stream is over");
    file.rewind().unwrap();
    assert_eq!(words(drain(&file, 100).unwrap()), [2, 0]);
    file.rewind().unwrap();
    file.send_params(&needle("xx")).unwrap();
    assert_eq!(file.vread(&mut [0; 4][..]).unwrap(), 0);
    // Nothing at all to stream.
    client
        .virt_register("/nothing", 0o644, &spec("pass-through", vec![], Direction::Read, &[("/empty", 0, TO_END)]))
        .unwrap();
    assert_eq!(drain(&client.vopen("/nothing", READ).unwrap(), 10).unwrap(), b"");
}

#[test]
fn offsets_go_on_go_back_a_little_or_to_the_beginning() {
    let (_embedded, client) = device();
    let bytes: Vec<u8> = (0..VIRT_AGAIN_MAX * 3).map(|i| (i * 7 + i / 251) as u8).collect();
    put(&client, "/f", &bytes);
    client.virt_register("/v", 0o644, &spec("pass-through", vec![], Direction::Read, &[("/f", 0, TO_END)])).unwrap();
    let file = OpenOptions::new().read(true).open(&client, "/v").unwrap();
    let mut room = vec![0; VIRT_AGAIN_MAX * 2];
    assert_eq!(file.read_at(&mut room[..], 5).err().and_then(|e| e.raw_os_error()), Some(Errno::SPIPE.0));
    let n = file.read_at(&mut room[..], 0).unwrap();
    assert_eq!(room[..n], bytes[..n]);
    // What was given last can be had again, and then it goes on.
    let back = n as u64 - 1000;
    assert_eq!(file.seek_to(Whence::Set, back as i64).unwrap(), back);
    let raw = client.raw().of_session(file.session());
    assert_eq!(raw.read(file.handle(), At::Current, &mut room[..600]).unwrap(), 600);
    assert_eq!(room[..600], bytes[back as usize..][..600]);
    assert_eq!(raw.read(file.handle(), At::Current, &mut room[..600]).unwrap(), 400);
    assert_eq!(raw.read(file.handle(), At::Current, &mut room[..600]).unwrap(), 600);
    assert_eq!(room[..600], bytes[n..][..600]);
    let here = n as u64 + 600;
    assert_eq!(file.seek_to(Whence::Cur, 0).unwrap(), here);
    for (whence, off) in
        [(Whence::Cur, 1), (Whence::Cur, -(VIRT_AGAIN_MAX as i64) - 1), (Whence::End, 0), (Whence::Data, 0)]
    {
        assert_eq!(errno(file.seek_to(whence, off)), Some(Errno::SPIPE), "{whence:?} {off}");
    }
    assert_eq!(errno(file.seek_to(Whence::Set, -1)), Some(Errno::INVAL));
    assert_eq!(file.seek_to(Whence::Set, 0).unwrap(), 0);
    assert_eq!(raw.read(file.handle(), At::Current, &mut room[..10]).unwrap(), 10);
    assert_eq!(room[..10], bytes[..10]);
}

#[test]
fn each_thing_that_is_wrong_with_what_it_streams_has_its_errno() {
    let (_embedded, client) = device();
    put(&client, "/f", b"0123456789");
    client.create_dir("/dir").unwrap();
    let open = |name: &str, s: &VirtSpec| {
        client.virt_register(name, 0o644, s).unwrap();
        errno(client.vopen(name, READ))
    };
    let of = |path, offset, length| spec("pass-through", vec![], Direction::Read, &[(path, offset, length)]);
    assert_eq!(open("/missing", &of("/not/there", 0, TO_END)), Some(Errno::NOENT));
    assert_eq!(open("/of-dir", &of("/dir", 0, TO_END)), Some(Errno::ISDIR));
    assert_eq!(open("/short", &of("/f", 4, 7)), Some(Errno::NODATA));
    assert_eq!(open("/behind", &of("/f", 11, TO_END)), Some(Errno::NODATA));
    assert_eq!(open("/end", &of("/f", 10, TO_END)), None);
    assert_eq!(open("/recursive", &of("/end", 0, TO_END)), Some(Errno::LOOP));
    assert_eq!(open("/itself", &of("/itself", 0, TO_END)), Some(Errno::LOOP));
    assert_eq!(open("/no-kernel", &spec("no-such", vec![], Direction::Read, &[("/f", 0, TO_END)])), Some(Errno::NOENT));
    // Parameters are the kernel's to refuse, when it is asked to begin.
    client.virt_register("/params", 0o644, &spec("grep", vec![77], Direction::Read, &[("/f", 0, TO_END)])).unwrap();
    let file = client.vopen("/params", READ).unwrap();
    assert_eq!(errno(file.vread(&mut [0; 10][..])), Some(Errno::INVAL));
    assert_eq!(errno(file.vread(&mut [0; 10][..])), Some(Errno::INVAL));
    file.rewind().unwrap();
    file.send_params(&needle("1")).unwrap();
    assert_eq!(file.vread(&mut [0; 10][..]).unwrap(), 8);
    // It is opened in its direction only, and is no content to anything else.
    assert_eq!(errno(client.vopen("/end", WRITE)), Some(Errno::PERM));
    assert_eq!(errno(client.vopen("/end", READ | WRITE)), Some(Errno::PERM));
    let mut room = [0; 4];
    let fused = client.raw().open_read_close(weldfs::Handle::ROOT, b"end", READ, 0, &mut room[..]);
    assert_eq!(fused.err(), Some(Errno::OPNOTSUPP));
    assert_eq!(client.read("/end").unwrap(), b"");
    assert_eq!(errno(client.set_len("/end", 5)), Some(Errno::OPNOTSUPP));
    let end = OpenOptions::new().read(true).open(&client, "/end").unwrap();
    assert_eq!(end.checksum(.., weldfs::ChecksumKind::Crc32c).err(), Some(Errno::OPNOTSUPP));
    // What is no virtual file has no spec; what is none cannot be registered.
    assert_eq!(errno(client.virt_spec("/f")), Some(Errno::INVAL));
    assert_eq!(errno(client.virt_register("/f", 0o644, &of("/f", 0, 1))), Some(Errno::EXIST));
    let raw = client.raw();
    assert_eq!(raw.virt_register(weldfs::Handle::ROOT, b"x", 0o644, b"\x01").err(), Some(Errno::INVAL));
    assert_eq!(raw.virt_register(weldfs::Handle::ROOT, b"x", 0o644, &[0; 5000]).err(), Some(Errno::TOOBIG));
    // Clients neither see nor set the attribute behind it.
    assert_eq!(errno(end.set_xattr("weldfs.virtual", b"\x01")), Some(Errno::OPNOTSUPP));
    assert_eq!(errno(end.xattr("weldfs.virtual")), Some(Errno::OPNOTSUPP));
    assert_eq!(raw.list_xattr(weldfs::Handle::ROOT, b"end", false, &mut []).unwrap(), 0);
}

#[test]
fn it_is_a_file_with_an_owner_and_opens_with_the_rights_of_who_opens_it() {
    let (embedded, root) = device();
    root.create_dir("/shared").unwrap();
    root.set_permissions("/shared", 0o777).unwrap();
    let (alice, bob) = (user(&embedded, 1001), user(&embedded, 1002));
    put(&alice, "/shared/private", b"alice's\n");
    alice.set_permissions("/shared/private", 0o600).unwrap();
    let s = spec("pass-through", vec![], Direction::Read, &[("/shared/private", 0, TO_END)]);
    alice.virt_register("/shared/v", 0o644, &s).unwrap();
    assert_eq!(errno(bob.virt_register("/root-owned", 0o644, &s)), Some(Errno::ACCES));
    assert_eq!(root.metadata("/shared/v").unwrap().uid(), 1001);
    assert_eq!(drain(&alice.vopen("/shared/v", READ).unwrap(), 100).unwrap(), b"alice's\n");
    assert_eq!(errno(bob.vopen("/shared/v", READ)), Some(Errno::ACCES), "the file behind it is not bob's to read");
    assert_eq!(bob.virt_spec("/shared/v").unwrap(), s);
    alice.set_permissions("/shared/v", 0o600).unwrap();
    assert_eq!(errno(bob.virt_spec("/shared/v")), Some(Errno::ACCES));
    assert_eq!(errno(bob.access("/shared/v", AccessMask::READ)), Some(Errno::ACCES));
    // Renamed, linked and removed like any other; the stream of who has it open goes on.
    alice.rename("/shared/v", "/shared/w").unwrap();
    let open = alice.vopen("/shared/w", READ).unwrap();
    alice.remove_file("/shared/w").unwrap();
    alice.remove_file("/shared/private").unwrap();
    assert_eq!(drain(&open, 3).unwrap(), b"alice's\n");
    assert_eq!(errno(alice.vopen("/shared/w", READ)), Some(Errno::NOENT));
}

#[test]
fn what_is_streamed_is_not_cut_off_while_it_is_open() {
    let (_embedded, client) = device();
    put(&client, "/f", &[b'x'; 20_000]);
    client.virt_register("/v", 0o644, &spec("pass-through", vec![], Direction::Read, &[("/f", 4096, 8192)])).unwrap();
    let file = client.open("/f", &OpenOptions::new().read(true).write(true)).unwrap();
    let stream = client.vopen("/v", READ).unwrap();
    assert_eq!(errno(file.set_len(12_287)), Some(Errno::TXTBSY));
    assert_eq!(errno(client.create("/f")), Some(Errno::TXTBSY), "emptied by an open");
    assert_eq!(errno(file.allocate(FallocMode::Punch, 8192, 4096)), Some(Errno::TXTBSY));
    assert_eq!(errno(file.allocate(FallocMode::Zero, 0, 4097)), Some(Errno::TXTBSY));
    // What is not of the range may go, and its bytes may change.
    file.set_len(12_288).unwrap();
    file.allocate(FallocMode::Punch, 0, 4096).unwrap();
    file.write_all_at(b"new", 4096).unwrap();
    let got = drain(&stream, 1000).unwrap();
    assert_eq!((got.len(), &got[..4]), (8192, &b"newx"[..]));
    drop(stream);
    file.set_len(0).unwrap();
    assert_eq!(errno(client.vopen("/v", READ)), Some(Errno::NODATA), "the file has shrunk");
}

#[test]
fn writing_goes_through_the_kernel_into_the_file() {
    let (_embedded, client) = device();
    put(&client, "/bits", b"0123456789");
    let into = |cut, offset, length| spec("rle", vec![], Direction::Write { cut }, &[("/bits", offset, length)]);
    client.virt_register("/w", 0o644, &into(false, 2, TO_END)).unwrap();
    let file = client.vopen("/w", WRITE).unwrap();
    // A pair may be cut anywhere between two writes.
    assert_eq!(file.vwrite(b"\x03a\x02").unwrap(), 3);
    assert_eq!(file.vwrite(b"b").unwrap(), 1);
    assert_eq!(file.vsync().unwrap(), 5);
    assert_eq!(client.read("/bits").unwrap(), b"01aaabb789");
    // Another packet goes behind it.
    file.vwrite(b"\x02c").unwrap();
    assert_eq!(file.vclose().unwrap(), 7);
    assert_eq!(client.read("/bits").unwrap(), b"01aaabbcc9");
    client.virt_register("/cut", 0o644, &into(true, 1, TO_END)).unwrap();
    let file = client.vopen("/cut", WRITE).unwrap();
    file.vwrite(b"\x04z").unwrap();
    assert_eq!(file.vclose().unwrap(), 4);
    assert_eq!(client.read("/bits").unwrap(), b"0zzzz");
    // Much more than one commit has, and what is wrong with it is told.
    let file = client.vopen("/cut", WRITE).unwrap();
    for _ in 0..40 {
        file.vwrite(&[255, b'q'].repeat(256)).unwrap();
    }
    assert_eq!(file.vclose().unwrap(), 40 * 256 * 255);
    assert_eq!(client.metadata("/bits").unwrap().len(), 1 + 40 * 256 * 255);
    client.virt_register("/room", 0o644, &into(false, 0, 3)).unwrap();
    let file = client.vopen("/room", WRITE).unwrap();
    file.vwrite(b"\x04z").unwrap();
    assert_eq!(errno(file.vsync()), Some(Errno::FBIG));
    assert_eq!(errno(file.vwrite(b"\x01z")), Some(Errno::FBIG), "the stream is over");
    assert_eq!(errno(file.vclose()), Some(Errno::FBIG));
    let file = client.vopen("/room", WRITE).unwrap();
    file.vwrite(b"\x01").unwrap();
    assert_eq!(errno(file.vclose()), Some(Errno::BADMSG), "half a pair");
    // Not its offset; and nothing written is nothing done.
    let file = OpenOptions::new().write(true).open(&client, "/cut").unwrap();
    assert_eq!(errno(file.write_at(b"\x01z", 7)), Some(Errno::SPIPE));
    assert_eq!(errno(file.read_at(&mut [0; 4][..], 0)), Some(Errno::BADF));
    drop(file);
    assert_eq!(client.metadata("/bits").unwrap().len(), 1 + 40 * 256 * 255);
    // As a whole file, of one command and of more.
    client.write("/cut", b"\x03y").unwrap();
    assert_eq!(client.read("/bits").unwrap(), b"zyyy", "a z of those that fitted");
    client.write("/cut", &[1, b'x'].repeat(1 << 20)).unwrap();
    assert_eq!(client.metadata("/bits").unwrap().len(), 1 + (1 << 20));
    assert_eq!(errno(client.write("/cut", b"\x01")), Some(Errno::BADMSG));
    client.virt_register("/r", 0o644, &spec("rle", vec![], Direction::Read, &[("/bits", 0, 1)])).unwrap();
    assert_eq!(errno(client.write("/r", b"")), Some(Errno::PERM));
    assert_eq!(errno(client.write("/r", &vec![0; 2 << 20])), Some(Errno::PERM));
}

#[test]
fn a_slot_is_waited_for_or_refused_as_asked_and_given_back() {
    // The only one may be had by a stream that is written.
    let config = DeviceConfig { card: CardConfig::with_slots(1), ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(96 << 20), config).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    put(&client, "/f", &vec![b'x'; 4 << 20]);
    client.virt_register("/v", 0o644, &spec("crc32c", vec![], Direction::Read, &[("/f", 0, TO_END)])).unwrap();
    client
        .virt_register("/p", 0o644, &spec("statistics", vec![1 << 20], Direction::Read, &[("/f", 0, TO_END)]))
        .unwrap();
    client
        .virt_register("/hold", 0o644, &spec("rle", vec![], Direction::Write { cut: false }, &[("/g", 0, TO_END)]))
        .unwrap();
    put(&client, "/g", b"");
    let slots = embedded.device().card().status().slots.len() - 1;
    let held: Vec<VirtFile> = (0..slots)
        .map(|_| {
            let file = client.vopen("/hold", WRITE).unwrap();
            file.vwrite(b"\x01").unwrap();
            file
        })
        .collect();
    let eager = client.vopen("/v", READ | OpenFlags::NONBLOCK).unwrap();
    assert_eq!(errno(eager.vread(&mut [0; 8][..])), Some(Errno::BUSY));
    let waiter = {
        let client = client.clone();
        std::thread::spawn(move || drain(&client.vopen("/v", READ).unwrap(), 100).unwrap())
    };
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!waiter.is_finished(), "it waits for a slot");
    held.into_iter().for_each(|file| assert_eq!(errno(file.vclose()), Some(Errno::BADMSG)));
    let sum = waiter.join().unwrap();
    assert_eq!(sum.len(), 4);
    assert_eq!(eager.vread(&mut [0; 8][..]).unwrap(), 4);
    let status = embedded.device().card().status();
    assert!(status.slots.iter().all(|s| s.tenant.is_none()), "all slots are free: {status:?}");
}

#[test]
fn two_readers_of_one_name_have_a_stream_each_and_a_remount_keeps_it() {
    let dir = std::env::temp_dir().join(format!("weldfs-virt-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let image = dir.join("disk.img");
    let (text, hits) = lines(5000, 100);
    {
        let medium = weldfs_media::create(&image, ImageKind::Pmem, 32 << 20, false).unwrap();
        format(&medium, &MkfsOptions::default(), &SystemClock, &SystemRandom).unwrap();
        // Children of other tests have the image's lock, too, until their exec.
        medium.let_go();
        drop(medium);
        let embedded = Embedded::open(&Source::Image(image.clone()), DeviceConfig::default()).unwrap();
        let client = Client::with(Arc::new(embedded.clone())).unwrap();
        put(&client, "/log", &text);
        client
            .virt_register("/v", 0o640, &spec("grep", needle("error"), Direction::Read, &[("/log", 0, TO_END)]))
            .unwrap();
        drop(client);
        embedded.close().unwrap();
    }
    let embedded = Embedded::open(&Source::Image(image), DeviceConfig::default()).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    assert_eq!(client.metadata("/v").unwrap().permissions(), 0o640);
    let (a, b) = (client.vopen("/v", READ).unwrap(), client.vopen("/v", READ).unwrap());
    let mut room = [0; 16];
    assert_eq!(a.vread(&mut room[..]).unwrap(), 16);
    assert_eq!(drain(&b, 64).unwrap(), hits);
    assert_eq!(drain(&a, 64).unwrap(), hits[16..]);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn those_of_a_tree_are_listed_with_what_may_not_be_looked_at_and_only_they_are_removed() {
    let (embedded, client) = device();
    let of = |kernel: &str| spec(kernel, vec![], Direction::Read, &[("/real", 0, TO_END)]);
    client.create_dir_all("/d/deep").unwrap();
    client.create_dir("/d/closed").unwrap();
    // More than one crossing brings.
    for n in 0..1000 {
        put(&client, &format!("/d/plain{n}"), if n % 2 == 0 { b"" } else { b"x" });
    }
    for (path, mode, kernel) in [("/d/a", 0o644, "grep"), ("/d/deep/b", 0o644, "rle"), ("/d/mine", 0o600, "sql")] {
        client.virt_register(path, mode, &of(kernel)).unwrap();
    }
    client.virt_register("/d/closed/c", 0o644, &of("knn")).unwrap();
    client.symlink("a", "/d/link").unwrap();
    client.symlink("..", "/d/deep/up").unwrap();
    client.set_permissions("/d/closed", 0o700).unwrap();
    client.set_permissions("/d/plain0", 0o600).unwrap();
    let listed = |client: &Client, top: &str| {
        let found = client.virt_list(top).map(|f| {
            let spec = f.spec.map(|s| s.kernel).map_err(|e| Errno(e.raw_os_error().unwrap()));
            (f.path.to_str().unwrap().to_owned(), spec)
        });
        let mut found: Vec<_> = found.collect();
        found.sort();
        found
    };
    let good = |path: &str, kernel: &str| (path.to_owned(), Ok(kernel.to_owned()));
    let all = [good("/d/a", "grep"), good("/d/closed/c", "knn"), good("/d/deep/b", "rle"), good("/d/mine", "sql")];
    assert_eq!(listed(&client, "/"), all);
    let other = user(&embedded, 77);
    let denied = |path: &str| (path.to_owned(), Err(Errno::ACCES));
    // Of `/d/plain0`, which it may not read either, it is told that it is none.
    let some = [good("/d/a", "grep"), denied("/d/closed"), good("/d/deep/b", "rle"), denied("/d/mine")];
    assert_eq!(listed(&other, "/d"), some);
    assert_eq!(listed(&client, "/d/a"), [good("/d/a", "grep")]);
    assert_eq!(listed(&client, "/d/link"), [good("/d/link", "grep")]);
    assert_eq!(listed(&client, "/d/plain2"), []);
    assert_eq!(listed(&client, "/none"), [("/none".to_owned(), Err(Errno::NOENT))]);
    for other in ["/d/plain0", "/d/link", "/d/deep", "/d/plain1"] {
        assert_eq!(errno(client.virt_remove(other)), Some(Errno::INVAL), "{other}");
    }
    assert_eq!(errno(client.virt_remove("/none")), Some(Errno::NOENT));
    assert_eq!(errno(other.virt_remove("/d/a")), Some(Errno::ACCES));
    // The right to remove a name is that to change its directory.
    client.set_permissions("/d", 0o777).unwrap();
    other.virt_remove("/d/mine").unwrap();
    assert_eq!(listed(&client, "/d").len(), 3);
    assert_eq!(errno(client.vopen("/d/new", WRITE | OpenFlags::CREATE)), Some(Errno::INVAL));
    assert_eq!(errno(client.metadata("/d/new")), Some(Errno::NOENT));
}

/// What a kernel makes before it fails is read, all of it and however it is asked for; then comes the error, and stays.
#[test]
fn what_was_made_before_a_fault_is_read_before_the_error() {
    let (_embedded, client) = device();
    // Pairs of a count and a value, and a count without a value.
    let pairs: Vec<u8> = (0..20_000_u32).flat_map(|i| [(i % 256) as u8, (i / 7) as u8]).collect();
    let expanded: Vec<u8> = pairs.chunks(2).flat_map(|p| vec![p[1]; p[0].into()]).collect();
    put(&client, "/odd", &[&pairs[..], &[9]].concat());
    client.virt_register("/v", 0o644, &spec("rle", vec![], Direction::Read, &[("/odd", 0, TO_END)])).unwrap();
    for room in [100_000, 4 << 20] {
        let file = client.vopen("/v", READ).unwrap();
        let (mut all, mut piece) = (Vec::new(), vec![0; room]);
        let error = loop {
            match file.vread(&mut piece[..]) {
                Ok(n) => {
                    assert!(n > 0, "no end was read, and no error: {} bytes", all.len());
                    all.extend_from_slice(&piece[..n]);
                }
                Err(e) => break e,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::BADMSG.0));
        assert!(all == expanded, "{} of {} bytes", all.len(), expanded.len());
        assert_eq!(file.vread(&mut piece[..]).unwrap_err().raw_os_error(), Some(Errno::BADMSG.0), "again");
    }
    // A writer is told at once, and nothing is committed behind what it was told of.
    put(&client, "/real", b"");
    let into = spec("rle", vec![], Direction::Write { cut: false }, &[("/real", 0, TO_END)]);
    client.virt_register("/w", 0o644, &into).unwrap();
    let file = client.vopen("/w", WRITE).unwrap();
    file.vwrite(&pairs).unwrap();
    assert_eq!(file.vsync().unwrap(), expanded.len() as u64);
    file.vwrite(&[3]).unwrap();
    assert_eq!(file.vsync().unwrap_err().raw_os_error(), Some(Errno::BADMSG.0));
    assert_eq!(file.vwrite(&pairs).unwrap_err().raw_os_error(), Some(Errno::BADMSG.0));
    drop(file);
    assert!(client.read("/real").unwrap() == expanded);
}

/// Less than a commit, more than one, and what fits of the last one: a writer's file has all that the kernel made
/// before it failed, and behind it is what it was.
#[test]
fn what_was_made_before_a_fault_is_in_the_file_that_is_written() {
    let (_embedded, client) = device();
    let pairs: Vec<u8> = (0..40_000_u32).flat_map(|i| [(i % 256) as u8, (i / 7) as u8]).collect();
    let expanded: Vec<u8> = pairs.chunks(2).flat_map(|p| vec![p[1]; p[0].into()]).collect();
    let old = vec![b'#'; 8 << 20];
    for (name, count) in [("/few", 3_000), ("/many", 40_000)] {
        let (bytes, made) = (&pairs[..2 * count], pairs[..2 * count].iter().step_by(2).map(|n| usize::from(*n)).sum());
        put(&client, name, &old);
        let into = spec("rle", vec![], Direction::Write { cut: true }, &[(name, 0, TO_END)]);
        let virt = format!("{name}-virt");
        client.virt_register(&virt, 0o644, &into).unwrap();
        for piece in [999, 1 << 20] {
            put(&client, name, &old);
            let file = client.vopen(&virt, WRITE).unwrap();
            bytes.chunks(piece).for_each(|part| assert_eq!(file.vwrite(part).unwrap(), part.len()));
            file.vwrite(&[3]).unwrap();
            assert_eq!(errno(file.vclose()), Some(Errno::BADMSG), "half a pair");
            let real = client.read(name).unwrap();
            assert!(real[..made] == expanded[..made] && real[made..] == old[made..], "{name} in pieces of {piece}");
        }
    }
    // What fits: less than a commit of it.
    let room = (1 << 20) + 77;
    client
        .virt_register("/room", 0o644, &spec("rle", vec![], Direction::Write { cut: false }, &[("/few", 5, room)]))
        .unwrap();
    put(&client, "/few", &old);
    let file = client.vopen("/room", WRITE).unwrap();
    let wrote = file.vwrite(&pairs).map(drop).and_then(|()| file.vclose().map(drop));
    assert_eq!(errno(wrote), Some(Errno::FBIG));
    let (real, room) = (client.read("/few").unwrap(), room as usize);
    assert!(real[5..][..room] == expanded[..room] && real[5 + room..] == old[5 + room..] && real[..5] == old[..5]);
}
