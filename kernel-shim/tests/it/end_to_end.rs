//! A device in this process, driven through the client library: what a command does from ring to medium and back.

use std::sync::Arc;

use weldfs::{AttachOptions, Client, Command, Connector, Op, Queue};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

fn device(cores: usize) -> Embedded {
    Embedded::open(&Source::Ram(64 << 20), DeviceConfig { cores, ..DeviceConfig::default() }).unwrap()
}

#[test]
fn a_thousand_nops_come_back_in_order() {
    let embedded = device(1);
    let transport: Arc<dyn weldfs::Transport> = Arc::from(embedded.attach(&AttachOptions::default()).unwrap());
    let mut queue = Queue::new(transport.new_queue(32, 1 << 16).unwrap(), transport.clone()).unwrap();
    for _ in 0..1000 {
        let cqe = queue.execute(&Command::new(0, Op::Nop)).unwrap();
        assert_eq!(cqe.status, 0);
    }
    let stats = embedded.device().stats();
    assert_eq!(stats.total.commands, 1000);
    assert_eq!(stats.total.of(0), 1000);
}

#[test]
fn files_written_are_files_read() {
    let embedded = device(2);
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    client.create_dir("/d").unwrap();
    let read_write = weldfs::OpenOptions::new().read(true).write(true).create(true);
    let file = client.open("/d/f", &read_write).unwrap();
    file.write_at(b"hello", 3).unwrap();
    let mut back = [9; 8];
    assert_eq!(file.read_at(&mut back, 0).unwrap(), 8);
    assert_eq!(&back, b"\0\0\0hello");
    drop(file);
    client.remove_file("/d/f").unwrap();
    client.remove_dir("/d").unwrap();
}
