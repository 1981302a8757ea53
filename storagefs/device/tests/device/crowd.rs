//! Many clients on few slots, long programs, media that cannot be written, and devices that have no card.

use std::sync::Arc;

use crate::detect::make_image;
use crate::virt::{READ, WRITE, drain, errno, put, spec};
use weldfs::{At, Client, Direction, Errno, OpenOptions, Placement, Room};
use weldfs_ciscops::Access;
use weldfs_ciscops::program::{Builder, Bytes, Micro, Place, To, Value};
use weldfs_ciscops::virt::TO_END;
use weldfs_device::DeviceConfig;
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_kernel_shim::{Embedded, EmbeddedDir, Opened, Source};
use weldfs_media::ImageKind;

const CLIENTS: usize = 64;

fn config() -> DeviceConfig {
    let card = CardConfig { reconfigure: Reconfigure::NONE, ..CardConfig::with_slots(3) };
    DeviceConfig { card, ..DeviceConfig::default() }
}

fn device() -> (Embedded, Client) {
    let embedded = Embedded::open(&Source::Ram(96 << 20), config()).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    (embedded, client)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + seed) as u8).collect()
}

#[test]
fn sixty_four_clients_on_three_slots_are_all_answered_with_their_own_bytes() {
    let (embedded, _client) = device();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let embedded = &embedded;
            scope.spawn(move || {
                let client = Client::with(Arc::new(embedded.clone())).unwrap();
                let [real, name, log, to, into] =
                    ["f", "v", "log", "to", "into"].map(|what| format!("/{what}-{number}"));
                let input = bytes(100_000 + number, number);
                put(&client, &real, &input);
                put(&client, &to, b"");
                let read = spec("pass-through", vec![], Direction::Read, &[(&real, 0, TO_END)]);
                let write = spec("rle", vec![], Direction::Write { cut: true }, &[(&to, 0, TO_END)]);
                client.virt_register(&name, 0o644, &read).unwrap();
                client.virt_register(&into, 0o644, &write).unwrap();
                let file = client.open(&log, &OpenOptions::new().write(true).create(true)).unwrap();
                for round in 1..=3u64 {
                    assert!(drain(&client.vopen(&name, READ).unwrap(), 40_000).unwrap() == input, "{number}");
                    let raw = file.raw().placement(Placement::Slot);
                    raw.append_checksum_write(file.handle(), &input[..]).unwrap();
                    assert_eq!(client.metadata(&log).unwrap().len(), round * (input.len() as u64 + 4));
                    let stream = client.vopen(&into, WRITE).unwrap();
                    stream.vwrite(&[200, number as u8].repeat(50)).unwrap();
                    assert_eq!(stream.vclose().unwrap(), 10_000);
                    assert!(client.read(&to).unwrap() == [number as u8; 10_000]);
                }
            });
        }
    });
    let status = embedded.device().card().status();
    assert!(status.slots.iter().all(|s| s.tenant.is_none()) && status.waiting == 0, "{status:?}");
}

#[test]
fn a_program_of_as_many_kernels_as_it_may_have_of_a_mebibyte_each_does_all_of_them() {
    const LEN: u32 = 1 << 20;
    let (_embedded, client) = device();
    let input = bytes(LEN as usize, 3);
    put(&client, "/in", &input);
    put(&client, "/out", b"");
    let from = client.open("/in", &OpenOptions::new().read(true)).unwrap();
    let to = client.open("/out", &OpenOptions::new().write(true)).unwrap();
    let mut b = Builder::new();
    let (source, sink) = (b.take(from.handle(), Access::READ), b.take(to.handle(), Access::WRITE));
    let buffers = [b.buffer(LEN), b.buffer(LEN)];
    b.read(source, Value::Imm(0), Value::Imm(LEN.into()), To::Buffer(buffers[0]));
    for step in 0..weldfs_ciscops::limits::MICRO_OPS_MAX - 4 {
        // Sealed, and opened again. The other micro-ops are two handles, a read and a write.
        let params = [(step % 2) as u64, 1, 2, 3, 4].map(Value::Imm);
        b.kernel("aes128", &params, buffers[step % 2], buffers[(step + 1) % 2]);
    }
    b.write(sink, Place::End, Bytes::Buffer(buffers[0]));
    let cqe = client.raw().program(&b.finish().unwrap(), &mut [], |_, _| 0).unwrap();
    cqe.ok().unwrap();
    assert!(client.read("/out").unwrap() == input);
}

#[test]
fn an_image_that_is_only_read_streams_and_verifies_and_is_written_by_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = make_image(folder.path(), ImageKind::Block);
    let input = bytes(200_000, 1);
    {
        let embedded = Embedded::open(&Source::Image(path.clone()), config()).unwrap();
        let client = Client::with(Arc::new(embedded.clone())).unwrap();
        put(&client, "/f", &input);
        let file = client.open("/log", &OpenOptions::new().write(true).create(true)).unwrap();
        file.raw().append_checksum_write(file.handle(), &input[..]).unwrap();
        let read = spec("pass-through", vec![], Direction::Read, &[("/f", 0, TO_END)]);
        let write = spec("rle", vec![], Direction::Write { cut: false }, &[("/f", 0, TO_END)]);
        client.virt_register("/v", 0o644, &read).unwrap();
        client.virt_register("/w", 0o644, &write).unwrap();
        drop((file, client));
        embedded.close().unwrap();
    }
    let embedded = Embedded::on(Opened::open_read_only(&path, 64 << 20).unwrap(), config()).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    assert!(drain(&client.vopen("/v", READ).unwrap(), 30_000).unwrap() == input);
    let log = client.open("/log", &OpenOptions::new().read(true)).unwrap();
    let mut room = vec![0; input.len()];
    let (raw, len) = (log.raw().placement(Placement::Slot), input.len() as u32);
    raw.read_checksum_verify(log.handle(), 0, len, Some(Room::Bytes(&mut room))).unwrap();
    assert!(room == input);
    assert_eq!(errno(client.vopen("/w", WRITE)), Some(Errno::ROFS));
    let read = spec("pass-through", vec![], Direction::Read, &[("/f", 0, TO_END)]);
    assert_eq!(errno(client.virt_register("/more", 0o644, &read)), Some(Errno::ROFS));
    embedded.close().unwrap();
}

#[test]
fn a_directory_of_the_host_has_no_slots_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = EmbeddedDir::open(dir.path()).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    put(&client, "/f", b"bytes");
    let file = client.open("/f", &OpenOptions::new().read(true).write(true)).unwrap();
    let read = spec("pass-through", vec![], Direction::Read, &[("/f", 0, TO_END)]);
    assert_eq!(errno(client.virt_register("/v", 0o644, &read)), Some(Errno::OPNOTSUPP));
    assert_eq!(errno(client.virt_spec("/f")), Some(Errno::OPNOTSUPP));
    assert_eq!(file.raw().virt_params(file.handle(), &[1]), Err(Errno::OPNOTSUPP));
    let raw = file.raw().placement(Placement::Slot);
    assert_eq!(raw.append_checksum_write(file.handle(), &b"x"[..]).err(), Some(Errno::OPNOTSUPP));
    assert_eq!(raw.read_checksum_verify(file.handle(), 0, 1, None).err(), Some(Errno::OPNOTSUPP));
    let mut b = Builder::new();
    let sink = b.take(file.handle(), Access::WRITE);
    let (literal, given, made) = (b.literal(b"abc"), b.buffer(3), b.buffer(3));
    b.push(Micro::Fill { buf: given, from: literal, append: false });
    b.kernel("pass-through", &[], given, made);
    b.write(sink, Place::End, Bytes::Buffer(made));
    let done = client.raw().program(&b.finish().unwrap(), &mut [], |_, _| 0).and_then(|cqe| cqe.ok().map(drop));
    assert_eq!(done, Err(Errno::OPNOTSUPP));
    assert_eq!(errno(client.kernels_json()), Some(Errno::OPNOTSUPP));
    let mut all = [0; 9];
    assert_eq!(file.raw().read(file.handle(), At::Offset(0), &mut all[..]).unwrap(), 5);
}
