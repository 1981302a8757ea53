//! Fused ops that travel as programs, end to end on an embedded device: what they do, what they refuse, at their
//! bounds, in both byte orders; and the same on the caller's processor with the same result.

use std::sync::Arc;
use weldfs::catalogue::{FieldEdit, Operand, Order, ReadFrom, SumKind, SumPlace, Summing, TreeNode};
use weldfs::template::{AppendAndRotate, AppendAndSync, Appended, ReadAppend};
use weldfs::{At, Client, Errno, File, Handle, OpenOptions, Placement, Raw, Room};
use weldfs_ciscops::functions::checksum::Kind;
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

const BOTH: [Placement; 2] = [Placement::Device, Placement::Host];
const ORDERS: [Order; 2] = [Order::Little, Order::Big];

fn device() -> (Embedded, Client) {
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).expect("device");
    let client = Client::with(Arc::new(embedded.clone())).expect("attach");
    (embedded, client)
}

fn open(client: &Client, path: &str) -> File {
    client.open(path, &OpenOptions::new().read(true).write(true).create(true)).expect("open")
}

/// A handle that may not do what it is used for.
fn read_only(client: &Client, path: &str) -> File {
    client.open(path, &OpenOptions::new().read(true)).expect("open")
}

fn raw(file: &File, placement: Placement) -> Raw<'_> {
    file.raw().placement(placement)
}

fn forms() -> Vec<Summing> {
    let mut forms = Vec::new();
    for kind in [SumKind::Crc32c, SumKind::Crc32, SumKind::Crc32cMasked] {
        for order in ORDERS {
            for place in [SumPlace::Trailer, SumPlace::Header] {
                forms.push(Summing { kind, order, place });
            }
        }
    }
    forms
}

fn function(kind: SumKind) -> Kind {
    match kind {
        SumKind::Crc32c => Kind::Crc32c,
        SumKind::Crc32 => Kind::Crc32,
        SumKind::Crc32cMasked => Kind::Crc32cMasked,
    }
}

/// What a record must look like, put together here.
fn record(form: Summing, payload: &[u8]) -> Vec<u8> {
    let sum = function(form.kind).of(payload);
    let sum = if form.order == Order::Little { sum.to_le_bytes() } else { sum.to_be_bytes() };
    match form.place {
        SumPlace::Trailer => [payload, &sum].concat(),
        SumPlace::Header => [&sum, payload].concat(),
    }
}

#[test]
fn checksummed_records_in_every_form() {
    let (_device, client) = device();
    let lens = [0usize, 1, 100, 4096, 65_536 + 1];
    for (i, form) in forms().into_iter().enumerate() {
        for placement in BOTH {
            let file = open(&client, &format!("/{i}{placement:?}"));
            let (raw, mut content) = (raw(&file, placement), Vec::new());
            for len in lens {
                let payload: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
                let done = raw.append_checksum(file.handle(), form, &payload).unwrap();
                assert_eq!((done.offset, done.checksum), (content.len() as u64, function(form.kind).of(&payload)));
                content.extend(record(form, &payload));
            }
            assert!(client.read(format!("/{i}{placement:?}")).unwrap() == content, "{form:?} {placement:?}");
            let done = raw.write_checksum(file.handle(), 1, form, &b"over"[..]).unwrap();
            assert_eq!(done.offset, 1);
            content.splice(1..9, record(form, b"over"));
            assert!(client.read(format!("/{i}{placement:?}")).unwrap() == content);
            // Each side reads what the other wrote.
            for reader in BOTH {
                let (raw, mut room) = (raw.placement(reader), [0; 4]);
                let sum = raw.verify_checksum(file.handle(), 1, 4, form, Some(Room::Bytes(&mut room))).unwrap();
                assert_eq!((sum, &room), (done.checksum, b"over"));
                assert_eq!(raw.verify_checksum(file.handle(), 1, 4, form, None), Ok(sum), "without the payload");
            }
        }
    }
}

#[test]
fn damage_and_odd_operands_are_told() {
    let (_device, client) = device();
    let file = open(&client, "/f");
    let h = file.handle();
    for form in forms() {
        for placement in BOTH {
            let raw = raw(&file, placement);
            let done = raw.append_checksum(h, form, &b"payload"[..]).unwrap();
            let at = done.offset + if form.place == SumPlace::Header { 4 } else { 0 };
            file.write_all_at(b"P", at).unwrap();
            let mut room = [0; 7];
            let verdict = raw.verify_checksum(h, done.offset, 7, form, Some(Room::Bytes(&mut room)));
            assert_eq!((verdict, &room), (Err(Errno::BADMSG), b"Payload"), "the bytes come along");
            assert_eq!(raw.verify_checksum(h, done.offset, 8, form, None), Err(Errno::NODATA), "past the end");
            let short = raw.verify_checksum(h, done.offset, 7, form, Some(Room::Bytes(&mut [0; 6])));
            assert_eq!(short, Err(Errno::INVAL), "a room of another length");
        }
    }
    let raw = raw(&file, Placement::Device);
    let form = Summing::default();
    let (size, big) = (file.metadata().unwrap().len(), vec![7; (1 << 20) + 1]);
    assert_eq!(raw.append_checksum(h, form, &big).map(|_| ()), Err(Errno::TOOBIG));
    assert_eq!(raw.write_checksum(h, i64::MAX as u64 - 3, form, &b"x"[..]).map(|_| ()), Err(Errno::FBIG));
    assert_eq!(raw.append_checksum(Handle::ROOT, form, &b"x"[..]).map(|_| ()), Err(Errno::BADF));
    let no = read_only(&client, "/f");
    assert_eq!(no.raw().append_checksum(no.handle(), form, &b"x"[..]).map(|_| ()), Err(Errno::BADF));
    assert_eq!(file.metadata().unwrap().len(), size, "what fails leaves nothing");
    raw.append_checksum(h, form, &big[1..]).unwrap();
    assert_eq!(file.metadata().unwrap().len(), size + (1 << 20) + 4, "the longest payload");
}

#[test]
fn fields_change_in_every_way() {
    let (_device, client) = device();
    for placement in BOTH {
        let path = format!("/{placement:?}");
        let file = open(&client, &path);
        let (raw, h) = (raw(&file, placement), file.handle());
        file.write_all_at(b"0123456789", 0).unwrap();
        let mut old = [0; 4];
        assert_eq!(raw.modify_field(h, 2, FieldEdit::Patch(b"abcd"), Some(&mut old)), Ok(4));
        assert_eq!(&old, b"2345");
        raw.modify_field(h, 0, FieldEdit::And(&[0xf0, 0x0f]), None).unwrap();
        assert_eq!(&client.read(&path).unwrap(), b"\x30\x01abcd6789");
        raw.modify_field(h, 0, FieldEdit::Or(&[0x0f, 0x30]), None).unwrap();
        raw.modify_field(h, 2, FieldEdit::Xor(&[0x20; 4]), None).unwrap();
        assert_eq!(&client.read(&path).unwrap(), b"\x3f\x31ABCD6789");
        let swap = |expect, new| FieldEdit::CompareSwap { expect, new };
        assert_eq!(raw.modify_field(h, 2, swap(b"XXXX", b"yyyy"), Some(&mut old)), Err(Errno::CANCELED));
        assert_eq!(&old, b"ABCD", "the old bytes come back with the refusal");
        raw.modify_field(h, 2, swap(b"ABCD", b"new!"), None).unwrap();
        assert_eq!(&client.read(&path).unwrap(), b"\x3f\x31new!6789");
        // Past the end the file grows, and what was not there is zero.
        assert_eq!(raw.modify_field(h, 9, FieldEdit::Or(b"\x01\x02"), Some(&mut [0; 2])), Ok(1));
        assert_eq!(&client.read(&path).unwrap(), b"\x3f\x31new!6789\x02");
        assert_eq!(raw.modify_field(h, 0, swap(b"a", b"ab"), None), Err(Errno::INVAL));
        assert_eq!(raw.modify_field(h, 0, FieldEdit::Patch(b"ab"), Some(&mut [0; 3])), Err(Errno::INVAL));
    }
}

#[test]
fn counters_count_in_both_byte_orders() {
    let (_device, client) = device();
    for placement in BOTH {
        for order in ORDERS {
            for width in [1u32, 2, 4, 8] {
                let file = open(&client, &format!("/{placement:?}{order:?}{width}"));
                let (raw, h) = (raw(&file, placement), file.handle());
                let bytes = |v: u64| match order {
                    Order::Little => v.to_le_bytes()[..width as usize].to_vec(),
                    Order::Big => v.to_be_bytes()[8 - width as usize..].to_vec(),
                };
                let (mut now, mask) = (0u64, u64::MAX >> (64 - 8 * width));
                for by in [1, 255, 1 << 31, u64::MAX, 0x1234_5678_9abc_def0] {
                    assert_eq!(raw.fetch_add(h, 3, by, width, order), Ok(now));
                    now = now.wrapping_add(by) & mask;
                    assert_eq!(client.read(format!("/{placement:?}{order:?}{width}")).unwrap()[3..], bytes(now));
                }
                assert_eq!(raw.fetch_add(h, 0, 1, 3, order), Err(Errno::INVAL));
            }
        }
    }
}

#[test]
fn records_grow_in_place() {
    let (_device, client) = device();
    for placement in BOTH {
        for (order, first) in [(Order::Little, [5u8, 0]), (Order::Big, [0, 5])] {
            let path = format!("/{placement:?}{order:?}");
            let file = open(&client, &path);
            let (raw, h) = (raw(&file, placement), file.handle());
            let append = |data: &'static [u8]| raw.append_to_record(h, 8, (2, order), 12, data);
            assert_eq!(append(b"first"), Ok(0), "a hole is a record of no bytes");
            assert_eq!(client.read(&path).unwrap(), [&[0; 8][..], &first, b"first"].concat());
            assert_eq!(append(b" second"), Ok(5));
            assert_eq!(append(b"!"), Err(Errno::FBIG), "it is full");
            assert_eq!(append(b""), Ok(12));
            assert_eq!(&client.read(&path).unwrap()[10..], b"first second");
            file.write_all_at(&[0xff; 2], 8).unwrap();
            assert_eq!(append(b"x"), Err(Errno::FBIG), "a length that lies is not believed");
            let odd = raw.append_to_record(h, 8, (2, order), 65_536, &b"x"[..]);
            assert_eq!(odd, Err(Errno::INVAL), "two bytes cannot say so much");
        }
    }
}

#[test]
fn new_versions_are_appended() {
    let (_device, client) = device();
    for placement in BOTH {
        let (log, copy) = (open(&client, &format!("/log{placement:?}")), open(&client, &format!("/copy{placement:?}")));
        let raw = raw(&log, placement);
        log.write_all_at(b"key=1;val=old;", 0).unwrap();
        let at = raw.modify_append(log.handle(), (0, 14), 10, FieldEdit::Patch(b"new"), log.handle()).unwrap();
        assert_eq!(
            (at, client.read(format!("/log{placement:?}")).unwrap()),
            (14, b"key=1;val=old;key=1;val=new;".to_vec())
        );
        let add = FieldEdit::Add { by: 1, width: 1, order: Order::Big };
        assert_eq!(raw.modify_append(log.handle(), (14, 14), 4, add, copy.handle()), Ok(0));
        assert_eq!(client.read(format!("/copy{placement:?}")).unwrap(), b"key=2;val=new;");
        let swap = FieldEdit::CompareSwap { expect: b"9", new: b"1" };
        let h = log.handle();
        assert_eq!(raw.modify_append(h, (0, 14), 4, swap, h), Err(Errno::CANCELED));
        assert_eq!(raw.modify_append(h, (20, 14), 4, add, h), Err(Errno::NODATA));
        assert_eq!(raw.modify_append(h, (0, 14), 14, add, h), Err(Errno::RANGE));
        assert_eq!(log.metadata().unwrap().len(), 28);
    }
}

#[test]
fn reading_and_appending_are_one_step() {
    let (_device, client) = device();
    for placement in BOTH {
        let file = open(&client, &format!("/{placement:?}"));
        let (raw, h) = (raw(&file, placement), file.handle());
        let mut room = [0; 4];
        let (n, done) = raw.read_append(h, ReadFrom::Tail, &mut room, &b"abcdef"[..]).unwrap();
        assert_eq!((n, done.offset, done.len), (0, 0, 6));
        let (n, done) = raw.read_append(h, ReadFrom::Tail, &mut room, &b"gh"[..]).unwrap();
        assert_eq!((n, &room, done.offset), (4, b"cdef", 6));
        let (n, done) = raw.read_append(h, ReadFrom::Offset(6), &mut room, &b"!"[..]).unwrap();
        assert_eq!((n, &room[..2], done.offset), (2, &b"gh"[..], 8));
        let synced = raw.append_and_sync(h, &b"durable"[..]).unwrap();
        assert_eq!((synced.offset, synced.len), (9, 7));
        assert_eq!(client.read(format!("/{placement:?}")).unwrap(), b"abcdefgh!durable");
    }
}

#[test]
fn bytes_are_copied_inside_the_device() {
    let (_device, client) = device();
    let (a, b) = (open(&client, "/a"), open(&client, "/b"));
    let data: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    a.write_all_at(&data, 0).unwrap();
    let raw = a.raw();
    assert_eq!(raw.copy_range(a.handle(), 1, 200_000, b.handle(), At::Offset(5)), Ok(200_000));
    assert_eq!(raw.copy_range(a.handle(), 299_990, 100, b.handle(), At::End), Ok(10), "short at the end");
    let whole = client.read("/b").unwrap();
    assert!(whole[5..200_005] == data[1..200_001] && whole[200_005..] == data[299_990..]);
    assert_eq!(raw.copy_range(a.handle(), 0, 10, a.handle(), At::Offset(9)), Err(Errno::INVAL), "they meet");
    assert_eq!(raw.copy_range(a.handle(), 0, 10, a.handle(), At::Offset(10)), Ok(10));
    assert_eq!(raw.copy_range(a.handle(), 0, 10, b.handle(), At::Current), Err(Errno::INVAL));
    assert_eq!(raw.copy_range(a.handle(), 400_000, 10, b.handle(), At::End), Ok(0));
    let no = read_only(&client, "/b");
    assert_eq!(raw.copy_range(a.handle(), 0, 10, no.handle(), At::End), Err(Errno::BADF));
    let (c, parts) = (open(&client, "/c"), [a.handle(), b.handle(), a.handle()]);
    c.write_all_at(b"head", 0).unwrap();
    let sizes = a.metadata().unwrap().len() * 2 + b.metadata().unwrap().len();
    assert_eq!(raw.concat(&parts, c.handle()), Ok((4, 4 + sizes)));
    let (a_now, b_now) = (client.read("/a").unwrap(), client.read("/b").unwrap());
    assert!(client.read("/c").unwrap() == [b"head", &a_now[..], &b_now, &a_now].concat());
    assert_eq!(raw.concat(&[], c.handle()), Err(Errno::INVAL));
    a.set_len(9 << 20).unwrap();
    assert_eq!(raw.concat(&[a.handle(), b.handle()], c.handle()), Err(Errno::TOOBIG), "more than its share");
    assert_eq!(c.metadata().unwrap().len(), 4 + sizes);
}

#[test]
fn long_copies_are_several_commands() {
    let (_device, client) = device();
    let (a, b) = (open(&client, "/a"), open(&client, "/b"));
    let data: Vec<u8> = (0..17u32 << 20).map(|i| (i / 4099) as u8).collect();
    a.write_all_at(&data, 0).unwrap();
    assert_eq!(a.raw().copy_range(a.handle(), 0, u64::MAX >> 1, b.handle(), At::Offset(0)), Ok(17 << 20));
    assert!(client.read("/b").unwrap() == data);
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let (_device, client) = device();
    client.write("/config", b"old").unwrap();
    let before = open(&client, "/config");
    let raw = client.raw();
    raw.atomic_replace(Handle::ROOT, b"config", b".config.new", 0o640, &b"new content"[..]).unwrap();
    assert_eq!(client.read("/config").unwrap(), b"new content");
    assert_eq!(client.metadata("/config").unwrap().body().mode & 0o7777, 0o640);
    assert!(!client.exists("/.config.new").unwrap());
    let mut old = [0; 3];
    before.read_exact_at(&mut old, 0).unwrap();
    assert_eq!(&old, b"old", "who had it open keeps what it was");
    client.write("/taken", b"").unwrap();
    let taken = raw.atomic_replace(Handle::ROOT, b"config", b"taken", 0o640, &b"x"[..]);
    assert_eq!(taken, Err(Errno::EXIST));
    client.create_dir("/dir").unwrap();
    assert_eq!(raw.atomic_replace(Handle::ROOT, b"dir", b"tmp", 0o640, &b"x"[..]), Err(Errno::ISDIR));
    assert!(!client.exists("/tmp").unwrap(), "nothing stays of what failed");
    let none = raw.atomic_replace(Handle::ROOT, b"no/such", b"no/tmp", 0o640, &b"x"[..]);
    assert_eq!(none, Err(Errno::NOENT));
    raw.atomic_replace(Handle::ROOT, b"fresh", b"tmp", 0o600, &b""[..]).unwrap();
    assert_eq!(client.read("/fresh").unwrap(), b"");
}

#[test]
fn a_tree_is_made_whole_or_not_at_all() {
    let (_device, client) = device();
    let raw = client.raw();
    let dir = |path| TreeNode::Directory { path, mode: 0o755 };
    let file = |path, content| TreeNode::File { path, mode: 0o644, content };
    let link = |path, target| TreeNode::Link { path, target };
    let tree = [dir(b"p"), dir(b"p/src"), file(b"p/src/a", b"alpha"), file(b"p/empty", b""), link(b"p/l", b"src/a")];
    raw.create_tree(Handle::ROOT, &tree).unwrap();
    assert_eq!(client.read("/p/l").unwrap(), b"alpha");
    assert_eq!(client.read("/p/empty").unwrap(), b"");
    let clash = [dir(b"q"), file(b"q/a", b"1"), file(b"p/empty", b"2")];
    assert_eq!(raw.create_tree(Handle::ROOT, &clash), Err(Errno::EXIST));
    assert!(!client.exists("/q").unwrap(), "all or nothing");
    let missing = [file(b"r/a", b"1"), dir(b"r")];
    assert_eq!(raw.create_tree(Handle::ROOT, &missing), Err(Errno::NOENT), "a directory comes before what lies in it");
    let large: Vec<TreeNode<'_>> = (0..17).map(|_| dir(b"x")).collect();
    assert_eq!(raw.create_tree(Handle::ROOT, &large), Err(Errno::TOOBIG));
}

#[test]
fn positioned_opens_have_their_own_ops() {
    use weldfs::OpenFlags;
    let (_device, client) = device();
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    // open_pwrite_close and open_pread_close: the fixed ops, at an offset.
    let done = client.open_write_close("/f", flags, 0o644, At::Offset(5), b"middle").unwrap();
    assert_eq!((done.offset, done.len, done.created), (5, 6, true));
    let mut room = [0xff; 4];
    assert_eq!(client.open_read_close("/f", OpenFlags::READ, 3, &mut room).unwrap(), 4);
    assert_eq!(&room, b"\0\0mi");
    assert_eq!(client.open_read_close("/f", OpenFlags::READ, 9, &mut room).unwrap(), 2, "short at the end");
    assert_eq!(client.open_read_close("/f", OpenFlags::READ, 11, &mut room).unwrap(), 0);
}

#[test]
fn an_operation_is_run_as_what_it_is_waited_for_or_not() {
    let (_device, client) = device();
    let file = open(&client, "/f");
    let (raw, h) = (file.raw(), file.handle());
    assert_eq!(raw.fused(&AppendAndSync { h, len: 4 }, &mut [Operand::In(b"abcd"[..].into())]), Ok(0));
    let (op, mut room) = (ReadAppend { h, from: ReadFrom::Offset(1), read: 8, len: 2 }, [9; 8]);
    let mut operands = [Operand::In(b"ef"[..].into()), Operand::Out(Room::Bytes(&mut room))];
    assert_eq!(raw.fused(&op, &mut operands), Ok((3, 4)), "bytes read, and where the others went");
    assert_eq!(room, *b"bcd\x09\x09\x09\x09\x09", "as many as a result counts");
    let queue = client.async_queue(32, 256 << 10).unwrap();
    let (pending, rooms) = queue.fused(&op, &[Some(b"gh"), None]).unwrap();
    let ran = pending.wait().unwrap();
    assert_eq!(ran.answer, (5, 6));
    assert_eq!(rooms.bytes(&ran.completed, 1), b"bcdef\0\0\0");
    // Refused at once, or by the device: the same as of any other call.
    assert_eq!(raw.fused(&op, &mut [Operand::In(b"ef"[..].into())]), Err(Errno::INVAL), "a room is missing");
    assert_eq!(queue.fused(&op, &[Some(b"gh"), Some(b"ghghghgh")]).err(), Some(Errno::INVAL), "a room is no input");
    let odd = ReadAppend { read: (1 << 20) + 1, ..op };
    assert_eq!(queue.fused(&odd, &[Some(b"gh"), None]).err(), Some(Errno::TOOBIG));
    let only = read_only(&client, "/f");
    let (pending, _) = queue.fused(&ReadAppend { h: only.handle(), ..op }, &[Some(b"gh"), None]).unwrap();
    assert_eq!(pending.wait().err(), Some(Errno::BADF));
    assert_eq!(client.read("/f").unwrap(), b"abcdefgh");
}

const LOG: AppendAndRotate<'_> =
    AppendAndRotate { base: Handle::ROOT, path: b"log", old: b"log.1", limit: 64, mode: 0o640, len: 8 };

fn log(client: &Client, op: &AppendAndRotate<'_>, line: &[u8]) -> Result<Appended, Errno> {
    client.raw().fused(&AppendAndRotate { len: line.len() as u32, ..*op }, &mut [Operand::In(line.into())])
}

#[test]
fn no_line_of_a_log_that_is_put_aside_is_lost_or_found_twice() {
    /// Lines of eight bytes from each thread; a log holds eight of them.
    const LINES: usize = 200;
    const THREADS: usize = 4;
    let (_device, client) = device();
    // Each name that a log gets is one that nothing has: what was put aside is counted, too.
    let names = std::sync::atomic::AtomicU32::new(0);
    let rotations: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|t| {
                let (client, names) = (&client, &names);
                scope.spawn(move || {
                    let lines = (0..LINES).map(|i| {
                        let old = format!("log.{}", names.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                        let op = AppendAndRotate { old: old.as_bytes(), ..LOG };
                        let done = log(client, &op, format!("{t:02} {i:04}\n").as_bytes()).unwrap();
                        assert!(
                            done.offset < 64 && done.offset.is_multiple_of(8) && !(done.rotated && done.offset != 0)
                        );
                        usize::from(done.rotated)
                    });
                    lines.sum::<usize>()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(rotations, THREADS * LINES / 8 - 1, "each log was full when it was put aside");
    let mut all = Vec::new();
    for entry in client.open_dir("/").unwrap().entries() {
        let content = client.read(std::path::Path::new("/").join(entry.unwrap().name)).unwrap();
        assert_eq!(content.len(), 64);
        all.extend(content.chunks(8).map(<[u8]>::to_vec));
    }
    all.sort();
    let lines = (0..THREADS).flat_map(|t| (0..LINES).map(move |i| format!("{t:02} {i:04}\n").into_bytes()));
    assert!(all == lines.collect::<Vec<_>>());
}

#[test]
fn a_log_that_cannot_be_put_aside_is_what_it_was() {
    let (_device, client) = device();
    let appended = |offset, rotated| Ok(Appended { offset, rotated });
    assert_eq!(log(&client, &LOG, &[b'a'; 200]), appended(0, false), "an empty log takes a payload of any length");
    assert_eq!(log(&client, &AppendAndRotate { limit: u64::MAX, ..LOG }, b"b"), appended(200, false));
    let kept = OpenOptions::new().read(true).open(&client, "/log").unwrap();
    let refused = |op: &AppendAndRotate<'_>, errno| {
        let before = client.read("/log").unwrap();
        assert_eq!(log(&client, op, b"lost"), Err(errno));
        assert!(client.read("/log").unwrap() == before);
    };
    refused(&AppendAndRotate { old: b"log", ..LOG }, Errno::EXIST);
    client.hard_link("/log", "/same").unwrap();
    refused(&AppendAndRotate { old: b"same", ..LOG }, Errno::EXIST);
    client.create_dir("/dir").unwrap();
    refused(&AppendAndRotate { old: b"dir", ..LOG }, Errno::ISDIR);
    refused(&AppendAndRotate { old: b"none/log", ..LOG }, Errno::NOENT);
    assert_eq!(log(&client, &AppendAndRotate { path: b"dir", ..LOG }, b"x"), Err(Errno::ISDIR));
    client.symlink("log", "/link").unwrap();
    assert_eq!(log(&client, &AppendAndRotate { path: b"link", ..LOG }, b"x"), Err(Errno::LOOP));
    // And when it is put aside, who has it open keeps it.
    assert_eq!(log(&client, &LOG, b"new"), appended(0, true));
    assert_eq!((kept.metadata().unwrap().len(), client.read("/log").unwrap()), (201, b"new".to_vec()));
    assert_eq!(client.read("/log.1").unwrap().len(), 201);
    assert_eq!(client.metadata("/log").unwrap().mode() & 0o7777, 0o640);
    assert_eq!(log(&client, &LOG, b""), appended(3, false));
}
