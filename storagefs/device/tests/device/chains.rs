//! Chains of kernels behind virtual files and in the place of a slot that a command cannot have.

use std::sync::Arc;

use weldfs::{Client, Direction, OpenFlags, VirtRange, VirtSpec};
use weldfs_ciscops::virt::TO_END;
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

#[test]
fn what_lies_compressed_is_searched_in_the_drive_and_only_hits_cross_the_link() {
    let embedded = Embedded::open(&Source::Ram(96 << 20), DeviceConfig::default()).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let row = |n: u32| if n % 1000 == 7 { format!("{n} an error\n") } else { format!("{n} {}\n", n.wrapping_mul(n)) };
    let text: String = (0..400_000).map(row).collect();
    let file = client.create("/log.lz4").unwrap();
    let mut lz4 = weldfs_kernels::make("lz4").unwrap();
    lz4.reset(&[0]).unwrap();
    let (frame, _) = weldfs_fpga::kernel::run(lz4.as_mut(), text.as_bytes(), 1 << 20, 1 << 20).unwrap();
    file.write_all_at(&frame, 0).unwrap();
    let spec = VirtSpec {
        kernel: "lz4-grep".into(),
        params: vec![5, u32::from_le_bytes(*b"erro"), u32::from(b'r')],
        direction: Direction::Read,
        ranges: vec![VirtRange { path: b"/log.lz4".to_vec(), offset: 0, length: TO_END }],
    };
    client.virt_register("/errors", 0o644, &spec).unwrap();
    let before = embedded.device().stats().total;
    let stream = client.vopen("/errors", OpenFlags::READ).unwrap();
    let (mut found, mut piece) = (Vec::new(), vec![0; 4096]);
    loop {
        match stream.vread(&mut piece[..]).unwrap() {
            0 => break,
            n => found.extend_from_slice(&piece[..n]),
        }
    }
    let moved = embedded.device().stats().total.since(&before);
    let rows: Vec<u32> = found.chunks(8).map(|hit| u32::from_le_bytes(hit[..4].try_into().unwrap())).collect();
    assert_eq!(rows, (0..400_000).filter(|n| n % 1000 == 7).collect::<Vec<_>>());
    assert_eq!(moved.slot_bytes_in, frame.len() as u64, "what lies between the stages is no input of the slot");
    let link = moved.link_bytes_in + moved.link_bytes_out;
    assert!(link * 50 < frame.len() as u64, "{link} bytes crossed for a frame of {}", frame.len());
}
