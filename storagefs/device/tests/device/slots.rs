//! Compute stages in FPGA slots: what they give is what a core gives, what fails in them fails alone, and who used them
//! pays for them.

use crate::detect::make_image;
use std::sync::Arc;
use weldfs::catalogue::{Codec, Encryption, FieldEdit, KeyKind, Order, SumKind, SumPlace, Summing};
use weldfs::{At, Client, Errno, File, OpenOptions, Placement, Queue, Room};
use weldfs_ciscops::program::{BufSlot, Builder, Bytes, Micro, Place, Value, text};
use weldfs_ciscops::{Access, ChecksumKind, Command, Handle, Op, TxnMode, program};
use weldfs_device::DeviceConfig;
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_fs::Cred;
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_media::ImageKind;

const SLOTS: [Placement; 2] = [Placement::Slot, Placement::SlotOrCore];

fn start(source: &Source, config: DeviceConfig) -> (Embedded, Client) {
    // Loading takes modelled time, which the tests of the card look at.
    let card = CardConfig { reconfigure: Reconfigure::NONE, ..config.card.clone() };
    let embedded = Embedded::open(source, DeviceConfig { card, ..config }).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    (embedded, client)
}

fn device() -> (Embedded, Client) {
    start(&Source::Ram(64 << 20), DeviceConfig::default())
}

fn open(client: &Client, path: &str) -> File {
    client.open(path, &OpenOptions::new().read(true).write(true).create(true)).unwrap()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn stats(client: &Client) -> serde_json::Value {
    serde_json::from_str(&client.stats_json().unwrap()).unwrap()
}

fn count(client: &Client, name: &str) -> u64 {
    stats(client)["total"][name].as_u64().unwrap()
}

#[test]
fn checksums_in_a_slot_are_those_of_a_core_in_every_form() {
    let (_device, client) = device();
    for kind in [SumKind::Crc32c, SumKind::Crc32cMasked] {
        for (order, place) in [(Order::Little, SumPlace::Trailer), (Order::Big, SumPlace::Header)] {
            let form = Summing { kind, order, place };
            let (core, slot) = (open(&client, "/core"), open(&client, "/slot"));
            for file in [&core, &slot] {
                file.set_len(0).unwrap();
            }
            for len in [0, 1, 63, 64, 65, 4096, 65_537, 1 << 20] {
                let payload = bytes(len);
                let expected = core.raw().append_checksum(core.handle(), form, &payload).unwrap();
                let raw = slot.raw().placement(Placement::Slot);
                assert_eq!(raw.append_checksum(slot.handle(), form, &payload).unwrap(), expected, "{form:?} {len}");
                let mut room = vec![0; len];
                let verdict =
                    raw.verify_checksum(slot.handle(), expected.offset, len as u32, form, Some(Room::Bytes(&mut room)));
                assert_eq!(verdict, Ok(expected.checksum));
                assert!(room == payload);
            }
            let raw = slot.raw().placement(Placement::Slot);
            let expected = core.raw().write_checksum(core.handle(), 9, form, &b"over"[..]).unwrap();
            assert_eq!(raw.write_checksum(slot.handle(), 9, form, &b"over"[..]).unwrap(), expected);
            assert!(client.read("/core").unwrap() == client.read("/slot").unwrap(), "{form:?}");
            slot.write_all_at(b"ruin", 9).unwrap();
            assert_eq!(raw.verify_checksum(slot.handle(), 9, 4, form, None), Err(Errno::BADMSG));
        }
    }
}

#[test]
fn the_commands_with_an_opcode_do_in_a_slot_what_they_do_on_a_core() {
    let folder = tempfile::tempdir().unwrap();
    for source in [Source::Ram(64 << 20), Source::Image(make_image(folder.path(), ImageKind::Block))] {
        let (_device, client) = start(&source, DeviceConfig::default());
        let (core, slot) = (open(&client, "/core"), open(&client, "/slot"));
        for (i, mode) in [TxnMode::Default, TxnMode::Macro, TxnMode::Micro].into_iter().enumerate() {
            let payload = bytes(5000 * (i + 1));
            let (a, b) = (core.raw().mode(mode), slot.raw().mode(mode).placement(Placement::Slot));
            let expected = a.append_checksum_write(core.handle(), &payload).unwrap();
            assert_eq!(b.append_checksum_write(slot.handle(), &payload).unwrap(), expected);
            let mut room = vec![0; payload.len()];
            let verdict = b.read_checksum_verify(
                slot.handle(),
                expected.offset,
                payload.len() as u32,
                Some(Room::Bytes(&mut room)),
            );
            assert_eq!(verdict.unwrap(), expected.checksum);
            assert!(room == payload);
        }
        assert!(client.read("/core").unwrap() == client.read("/slot").unwrap());
        let size = slot.metadata().unwrap().len();
        let (a, b) = (core.raw(), slot.raw().placement(Placement::Slot));
        assert_eq!(
            b.checksum_range(slot.handle(), 1, size, ChecksumKind::Crc32c),
            a.checksum_range(core.handle(), 1, size, ChecksumKind::Crc32c)
        );
        for file in [&core, &slot] {
            file.write_all_at(b"ruin", 100).unwrap();
        }
        let judge = |raw: weldfs::Raw<'_>, h: Handle, len| raw.read_checksum_verify(h, 0, len, None).map(|_| ());
        for len in [5000, 5001, 1 << 19] {
            assert_eq!(judge(b, slot.handle(), len), judge(a, core.handle(), len), "{len}");
        }
        assert_eq!(judge(b, slot.handle(), 5000), Err(Errno::BADMSG));
        assert!(count(&client, "slot_packets") > 6);
        assert_eq!(count(&client, "slot_fallbacks"), 0);
        let no = client.open("/slot", &OpenOptions::new().read(true)).unwrap();
        let refused = no.raw().placement(Placement::Slot).append_checksum_write(no.handle(), &b"x"[..]);
        assert_eq!(refused.map(|_| ()), Err(Errno::BADF));
    }
}

#[test]
fn lz4_frames_of_a_slot_are_those_of_a_core_to_the_last_bit() {
    let (_device, client) = device();
    let (core, slot) = (open(&client, "/core"), open(&client, "/slot"));
    let raw = slot.raw().placement(Placement::Slot);
    for len in [0, 1, 65_536, 65_537, 900_000] {
        let payload: Vec<u8> = bytes(len).into_iter().map(|b| b & 7).collect();
        let expected = core.raw().compress_write(core.handle(), At::Offset(0), Codec::Lz4, &payload).unwrap();
        let frame = raw.compress_write(slot.handle(), At::Offset(0), Codec::Lz4, &payload).unwrap();
        assert_eq!((frame.offset, frame.len), (expected.offset, expected.len));
        assert!(client.read("/core").unwrap() == client.read("/slot").unwrap(), "{len}");
        let mut room = vec![0; len];
        assert_eq!(raw.read_decompress(slot.handle(), frame, Codec::Lz4, &mut room), Ok(len));
        assert!(room == payload);
    }
    let frame = raw.compress_write(slot.handle(), At::Offset(0), Codec::Lz4, &bytes(9000)).unwrap();
    assert_eq!(raw.read_decompress(slot.handle(), frame, Codec::Lz4, &mut [0; 8999]), Err(Errno::TOOBIG));
    slot.write_all_at(&[9; 64], 8).unwrap();
    assert_eq!(raw.read_decompress(slot.handle(), frame, Codec::Lz4, &mut [0; 9000]), Err(Errno::BADMSG));
}

#[test]
fn what_no_kernel_computes_is_refused_before_anything_happens_or_done_by_a_core_and_counted() {
    let (_device, client) = device();
    let file = open(&client, "/f");
    let (h, crc32) = (file.handle(), Summing { kind: SumKind::Crc32, ..Summing::default() });
    let key = client.key(KeyKind::Gcm128, &[7; 16]).unwrap();
    for placement in SLOTS {
        let (raw, before) = (file.raw().placement(placement), count(&client, "slot_fallbacks"));
        let results = [
            raw.append_checksum(h, crc32, &b"x"[..]).map(|_| ()),
            raw.compress_write(h, At::End, Codec::Zstd, &b"x"[..]).map(|_| ()),
            raw.encrypt_write(h, At::End, Encryption::Record { key: &key }, &b"x"[..]).map(|_| ()),
        ];
        if placement == Placement::Slot {
            assert_eq!(results, [Err(Errno::OPNOTSUPP); 3]);
            assert_eq!(raw.modify_field(h, 0, FieldEdit::Patch(b"x"), None), Err(Errno::OPNOTSUPP));
            assert_eq!(file.metadata().unwrap().len(), 0, "nothing happened");
            assert_eq!(count(&client, "slot_fallbacks"), before);
        } else {
            assert_eq!(results, [Ok(()); 3]);
            assert_eq!(count(&client, "slot_fallbacks"), before + 3);
        }
    }
}

/// A program: what `kernel` makes of a literal, appended to a file.
fn run(client: &Client, name: &str, params: &[Value], input: &[u8], room: u32) -> Result<Vec<u8>, Errno> {
    let file = open(client, "/out");
    file.set_len(0).unwrap();
    let body = with_kernel(file.handle(), name, params, input, room)?;
    let cqe = client.raw().program(&body, &mut [], |_, _| 0)?;
    cqe.ok().map(|_| client.read("/out").unwrap())
}

fn with_kernel(h: Handle, name: &str, params: &[Value], input: &[u8], room: u32) -> Result<program::Body, Errno> {
    let mut b = Builder::new();
    let file = b.take(h, Access::WRITE);
    let literal = b.literal(input);
    let (given, made): (BufSlot, BufSlot) = (b.buffer(input.len() as u32), b.buffer(room));
    b.push(Micro::Fill { buf: given, from: literal, append: false });
    b.kernel(name, params, given, made);
    b.write(file, Place::End, Bytes::Buffer(made));
    Ok(b.finish()?)
}

#[test]
fn a_program_runs_a_kernel_and_what_is_wrong_with_it_has_its_errno() {
    let (embedded, client) = device();
    let grep = [Value::Imm(3), Value::Imm(u32::from_le_bytes(*b"two\0").into())];
    let found = run(&client, "grep", &grep, b"one\ntwo\nand two\n", 64).unwrap();
    let words: Vec<u32> = found.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
    assert_eq!(words, [1, 0, 2, 4], "rows and columns");
    let crc = weldfs_ciscops::functions::crc32c(b"abc");
    assert_eq!(run(&client, "crc32c:model", &[], b"abc", 4), Ok(crc.to_le_bytes().to_vec()));
    for (name, params, room, errno) in [
        ("no-such-kernel", &[][..], 64, Errno::NOENT),
        ("crc32c", &[Value::Imm(0), Value::Imm(0)], 64, Errno::INVAL),
        ("rle", &[], 256, Errno::BADMSG),
        ("pass-through", &[], 2, Errno::TOOBIG),
        ("Not a name", &[], 64, Errno::INVAL),
        ("", &[], 64, Errno::INVAL),
    ] {
        assert_eq!(run(&client, name, params, b"abc", room), Err(errno), "{name}");
        assert_eq!(client.read("/out").unwrap(), b"", "{name}: nothing is changed");
    }
    assert_eq!(run(&client, "pass-through", &[], b"abc", 3), Ok(b"abc".to_vec()), "and the slots go on");
    // Whose it is.
    let mut other = Cred::root();
    (other.uid, other.gid) = (1234, 1234);
    let other = Client::with(Arc::new(embedded.acting_as(other))).unwrap();
    assert!(other.kernels_json().unwrap().contains("pass-through"));
    let denied = |done: std::io::Result<()>| done.unwrap_err().raw_os_error();
    assert_eq!(denied(other.deactivate_kernel("grep")), Some(libc::EPERM));
    assert_eq!(denied(other.load_kernel("/nowhere").map(drop)), Some(libc::EPERM));
    client.deactivate_kernel("grep").unwrap();
    assert_eq!(run(&client, "grep", &grep, b"two", 64), Err(Errno::NODEV));
    client.activate_kernel("grep").unwrap();
    assert_eq!(run(&client, "grep", &grep, b"two", 64).map(|out| out.len()), Ok(8));
    assert_eq!(denied(client.load_kernel("/nowhere").map(drop)), Some(libc::ENOENT));
    assert_eq!(denied(client.load_kernel("nowhere").map(drop)), Some(libc::EINVAL), "a path that is not absolute");
}

#[test]
fn registers_are_parameters_and_text_says_all_of_it() {
    let (_device, client) = device();
    client.write("/in", b"123456789").unwrap();
    let text = "open /in r as f; buffer a 16; read f 0 5 -> a; buffer b 4; kernel crc32c(0) a -> b;\n\
                load b 0 u32le -> sum; read f 5 4 -> a; kernel crc32c(sum) a -> b; load b 0 u32le -> sum; result sum";
    let parsed = text::parse(text, &[]).unwrap();
    let printed = text::print(parsed.body.program());
    assert_eq!(
        text::parse(&printed, &[]).unwrap().body.program().micros(),
        parsed.body.program().micros(),
        "{printed}"
    );
    let cqe = client.raw().program(&parsed.body, &mut [], |_, _| 0).unwrap();
    assert_eq!(cqe.ok(), Ok((0xe306_9283, 0)), "the check value of CRC-32C");
}

#[test]
fn a_core_does_what_a_slot_cannot_where_that_is_allowed() {
    let (_device, client) = device();
    let file = open(&client, "/f");
    client.deactivate_kernel("crc32c").unwrap();
    let slot = file.raw().placement(Placement::Slot);
    assert_eq!(slot.append_checksum_write(file.handle(), &b"x"[..]).map(|_| ()), Err(Errno::NODEV));
    assert_eq!(file.metadata().unwrap().len(), 0, "nothing happened");
    let either = file.raw().placement(Placement::SlotOrCore);
    let record = either.append_checksum_write(file.handle(), &b"x"[..]).unwrap();
    assert_eq!(either.read_checksum_verify(file.handle(), 0, 1, None), Ok(record.checksum));
    either.append_checksum(file.handle(), Summing::default(), &b"payload"[..]).unwrap();
    assert_eq!(count(&client, "slot_fallbacks"), 3);
    assert_eq!(count(&client, "slot_packets"), 0);
}

/// Submits appends of both kinds at once to one file, from several queues.
#[test]
fn appends_in_slots_and_on_cores_beside_each_other_lose_nothing() {
    for cores in [1, 2] {
        let (_device, client) = start(&Source::Ram(64 << 20), DeviceConfig { cores, ..DeviceConfig::default() });
        open(&client, "/log");
        std::thread::scope(|s| {
            for t in 0..4u8 {
                let client = &client;
                s.spawn(move || {
                    let file = open(client, "/log");
                    let placement = if t % 2 == 0 { Placement::Slot } else { Placement::Device };
                    for _ in 0..50 {
                        let raw = file.raw().placement(placement);
                        let payload = [t; 500];
                        if t < 2 {
                            raw.append_checksum_write(file.handle(), &payload).unwrap();
                        } else {
                            raw.append_checksum(file.handle(), Summing::default(), &payload).unwrap();
                        }
                    }
                });
            }
        });
        let log = client.read("/log").unwrap();
        assert_eq!(log.len(), 4 * 50 * 504);
        let mut seen = [0; 4];
        for record in log.chunks(504) {
            let sum = weldfs_ciscops::functions::crc32c(&record[..500]);
            assert_eq!(record[500..], sum.to_le_bytes());
            seen[usize::from(record[0])] += 1;
        }
        assert_eq!(seen, [50; 4]);
    }
}

#[test]
fn slot_time_is_charged_to_who_used_it() {
    let (embedded, root) = device();
    let users: Vec<Client> = [1001, 1002]
        .map(|uid| {
            let mut cred = Cred::root();
            (cred.uid, cred.gid) = (uid, uid);
            Client::with(Arc::new(embedded.acting_as(cred))).unwrap()
        })
        .into();
    root.set_permissions("/", 0o777).unwrap();
    for (i, user) in users.iter().enumerate() {
        let file = open(user, &format!("/{i}"));
        for _ in 0..=3 * i {
            let raw = file.raw().placement(Placement::Slot);
            raw.append_checksum_write(file.handle(), &bytes(100_000)).unwrap();
        }
    }
    let card: serde_json::Value = serde_json::from_str(&root.kernels_json().unwrap()).unwrap();
    let device = stats(&root);
    let tenants = device["tenants"].as_array().unwrap();
    let (mut packets, mut busy) = (Vec::new(), 0);
    for used in card["tenants"].as_array().unwrap() {
        let tenant = tenants.iter().find(|t| t["tenant"] == used["tenant"]).unwrap();
        assert_eq!(tenant["slot_ns"], used["slot_ns"], "what was used is what is charged");
        assert_eq!((&tenant["slot_bytes_in"], &tenant["slot_bytes_out"]), (&used["bytes_in"], &used["bytes_out"]));
        busy += used["slot_ns"].as_u64().unwrap();
        packets.push(tenant["slot_packets"].as_u64().unwrap());
        assert!(tenant["vruntime_ns"].as_u64().unwrap() >= tenant["slot_ns"].as_u64().unwrap() / 2, "{tenant}");
    }
    packets.sort_unstable();
    assert_eq!(packets, [1, 4]);
    // 64 bytes a cycle at 250 MHz.
    assert_eq!(busy, 5 * 100_000u64.div_ceil(64) * 4);
    let slots = card["slots"].as_array().unwrap();
    assert_eq!(slots.iter().map(|s| s["busy_ns"].as_u64().unwrap()).sum::<u64>(), busy);
}

fn submit(queue: &mut Queue, body: &program::Body) -> weldfs::Ticket {
    let body = queue.stage(&body.bind(&[]).unwrap()).unwrap();
    let ticket = queue.submit(&Command::new(0, Op::Program { body })).unwrap();
    queue.flush();
    ticket
}

#[test]
fn a_client_that_goes_while_slots_compute_for_it_leaves_them_to_others() {
    let (embedded, client) = device();
    let gone = Client::with(Arc::new(embedded.clone())).unwrap();
    let file = open(&gone, "/gone");
    let body = with_kernel(file.handle(), "lz4", &[Value::Imm(0)], &bytes(12_000), 16_000).unwrap();
    let mut queue = gone.queue(64, 1 << 20).unwrap();
    for _ in 0..16 {
        submit(&mut queue, &body);
    }
    drop((queue, file, gone));
    assert_eq!(run(&client, "pass-through", &[], b"abc", 3), Ok(b"abc".to_vec()));
    embedded.close().unwrap();
}
