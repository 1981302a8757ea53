//! What every medium owes: bytes come back as written by any path, failures are final where they must be, and nothing
//! but an error reaches the caller when the file under a mapping goes away.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use weldfs_ciscops::SharedRegion;
use weldfs_journal::{AlignedBuf, FlushMode, IoWrite, Medium, MediumError, MediumKind};
use weldfs_media::*;

const SIZE: u64 = 1 << 20;

fn media(dir: &std::path::Path) -> Vec<Arc<dyn Medium>> {
    let kinds = [ImageKind::Block, ImageKind::Pmem, ImageKind::PmemNoFlush];
    let mut all: Vec<Arc<dyn Medium>> = vec![Arc::new(RamMedium::new(SIZE))];
    all.extend(kinds.map(|k| create(&dir.join(format!("{k:?}")), k, SIZE, false).expect("creates")));
    all.push(Arc::new(RecordingMedium::new(SIZE, CrashModel::Block)));
    all.push(Arc::new(RecordingMedium::new(SIZE, CrashModel::Pmem)));
    all.push(Arc::new(FaultyMedium::new(Arc::new(RamMedium::new(SIZE)))));
    all
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

#[test]
fn bytes_come_back_as_written_by_every_path() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for m in media(dir.path()) {
        let info = m.info();
        assert_eq!(info.len, SIZE);
        m.write(4096, &pattern(8192, 1)).expect("writes");
        m.write(100, &pattern(33, 2)).expect("writes odd ranges");
        m.store(20480, &pattern(512, 3)).expect("stores");
        let (one, two) = (AlignedBuf::from_slice(&pattern(4096, 4)), pattern(5 * 4096, 5));
        let batch = [IoWrite { off: 64 << 10, buf: &one }, IoWrite { off: 128 << 10, buf: &two }];
        m.write_batch(&batch).expect("writes a batch");
        m.persist(20480, 512).expect("persists");
        m.barrier().expect("flushes");
        let check = |off: u64, expected: &[u8]| {
            let mut buf = vec![0; expected.len()];
            m.read(off, &mut buf).expect("reads");
            assert!(buf == expected, "{:?} at {off}", info.kind);
        };
        check(4096, &pattern(8192, 1));
        check(100, &pattern(33, 2));
        check(20480, &pattern(512, 3));
        check(64 << 10, &pattern(4096, 4));
        check(128 << 10, &two);
        let past = MediumError::OutOfRange { off: SIZE - 4096, len: 8192 };
        assert_eq!(m.read(SIZE - 4096, &mut [0; 8192]), Err(past.clone()));
        assert_eq!(m.write(SIZE - 4096, &[0; 8192]), Err(past));
        assert!(m.read(u64::MAX - 10, &mut [0; 64]).is_err());
    }
}

#[test]
fn shared_memory_goes_in_and_out_with_its_checksums_in_one_pass() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let pool = SharedRegion::heap(64 << 10);
    let bytes = pattern(3 * 4096, 9);
    for m in media(dir.path()) {
        for skew in [0usize, 8, 5] {
            pool.bytes(skew, bytes.len()).expect("inside").copy_from(&bytes);
            let mut sums = [0; 3];
            m.ingest(8192, pool.bytes(skew, bytes.len()).expect("inside"), &mut sums).expect("takes in");
            let mut back = vec![0; bytes.len()];
            m.read(8192, &mut back).expect("reads");
            assert_eq!(back, bytes);
            for (i, block) in bytes.chunks(4096).enumerate() {
                assert_eq!(sums[i], weldfs_functions::crc32c(block));
                let out = pool.bytes(32768 + skew, 4096).expect("inside");
                assert_eq!(m.emit(8192 + i as u64 * 4096, out).expect("gives out"), sums[i]);
                assert_eq!(out.to_vec(), block);
            }
        }
        let odd = pool.bytes(0, 100).expect("inside");
        assert!(matches!(m.ingest(0, odd, &mut [0]), Err(MediumError::OutOfRange { .. })));
    }
}

#[test]
fn block_media_give_the_same_bytes_with_and_without_the_ring() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("image");
    drop(create(&path, ImageKind::Block, SIZE, false).expect("creates"));
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("opens");
    for ring in [true, false] {
        let m = BlockMedium::over(file.try_clone().expect("another handle"), &path, false).expect("opens");
        if !ring {
            m.without_ring();
        }
        let parts: Vec<Vec<u8>> = (0..100).map(|i| pattern(4096, i as u8 ^ u8::from(ring))).collect();
        let writes: Vec<IoWrite<'_>> =
            parts.iter().enumerate().map(|(i, buf)| IoWrite { off: 4096 * i as u64, buf }).collect();
        m.write_batch(&writes).expect("writes");
        m.barrier().expect("flushes");
        for (i, part) in parts.iter().enumerate() {
            let mut back = [0; 4096];
            m.read(4096 * i as u64, &mut back).expect("reads");
            assert!(back[..] == part[..], "block {i}, ring {ring}");
        }
        assert_eq!((m.info().kind, m.info().flush), (MediumKind::Block, FlushMode::Sync));
    }
}

#[test]
fn a_file_cut_short_under_its_mapping_poisons_the_medium_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (gone, fine) = (dir.path().join("gone"), dir.path().join("fine"));
    let gone_medium = create(&gone, ImageKind::Pmem, SIZE, false).expect("creates");
    let fine_medium = create(&fine, ImageKind::Pmem, SIZE, false).expect("creates");
    let file = std::fs::File::options().write(true).open(&gone).expect("opens");
    file.set_len(8192).expect("cuts");
    assert!(!gone_medium.is_poisoned());
    gone_medium.read(0, &mut [0; 4096]).expect("what is still there reads");
    assert_eq!(gone_medium.read(64 << 10, &mut [0; 4096]), Err(MediumError::Poisoned));
    assert!(gone_medium.is_poisoned());
    assert_eq!(gone_medium.write(0, &[1; 64]), Err(MediumError::Poisoned));
    assert_eq!(gone_medium.barrier(), Err(MediumError::Poisoned));
    fine_medium.write(64 << 10, &[1; 4096]).expect("another image is not concerned");
    assert!(!fine_medium.is_poisoned());
}

#[test]
fn planned_faults_fire_once_or_for_ever() {
    let m = FaultyMedium::new(Arc::new(RamMedium::new(SIZE)));
    let plan = FaultPlan { on: FaultOn::Write, nth: 2, kind: FaultKind::Enospc, sticky: false };
    m.plan(Some(plan));
    let write = || m.write(0, &[1; 1024]);
    assert!(write().is_ok());
    assert!(matches!(write(), Err(MediumError::Io { os: 28, .. })));
    assert!(write().is_ok() && m.fired());
    m.plan(Some(FaultPlan { kind: FaultKind::Short, sticky: true, nth: 1, ..plan }));
    assert!(m.write(0, &[2; 1024]).is_err() && m.write(0, &[2; 1024]).is_err());
    m.plan(None);
    let mut back = [0; 1024];
    m.read(0, &mut back).expect("reads");
    assert_eq!((back[511], back[512]), (2, 1), "half of a short write is there");
    m.plan(Some(FaultPlan { on: FaultOn::Flush, nth: 1, kind: FaultKind::Eio, sticky: false }));
    assert!(m.barrier().is_err());
    assert_eq!(m.barrier(), Err(MediumError::Poisoned), "a failed flush is final");
}

#[test]
fn an_image_can_be_read_by_tools_while_nobody_holds_it() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("image");
    let m = create(&path, ImageKind::Pmem, SIZE, false).expect("creates");
    m.write(4096, &[5; 4096]).expect("writes");
    drop(m);
    let mut back = [0; 4096];
    std::fs::File::open(&path).expect("opens").read_exact_at(&mut back, 4096).expect("reads");
    assert_eq!(back, [5; 4096]);
}
