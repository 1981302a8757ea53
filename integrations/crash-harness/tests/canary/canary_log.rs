//! Planted bugs in how the log is read and reused, each met by an image made for it: without the bug the image recovers
//! to what it must, with the bug it does not.

use std::sync::{Arc, PoisonError};
use weldfs_ciscops::{OpenFlags, TxnMode};
use weldfs_crash_harness::hand::{Hand, fresh, small_layout, small_mount};
use weldfs_journal::canary::{self, Canary};
use weldfs_journal::{Medium, Record, Verdict, scan};
use weldfs_media::{CowImage, CowMedium, CrashModel};
use weldfs_store::fsck::fsck;
use weldfs_store::superblock::Superblock;

const LOG_BYTES: u64 = 256 << 10;
const SECTOR: u64 = 512;

/// Runs `f` with a bug planted, or with none.
fn with<T>(canary: Option<Canary>, f: impl FnOnce() -> T) -> T {
    let _turn = crate::TURN.lock().unwrap_or_else(PoisonError::into_inner);
    canary::plant(canary);
    let result = f();
    canary::plant(None);
    result
}

fn blank() -> (Arc<CowMedium>, Hand) {
    let medium = Arc::new(CowMedium::new(CowImage::new(vec![0; 4 << 20]), CrashModel::Block));
    let as_medium: Arc<dyn Medium> = medium.clone();
    let mut hand = fresh(&as_medium, &small_layout(LOG_BYTES), 5).unwrap();
    // One record per file, which the images below are cut and forged by.
    hand.mode = TxnMode::Macro;
    (medium, hand)
}

/// A device that was killed, found again.
fn again(image: CowImage) -> Result<(Arc<CowMedium>, Hand), String> {
    let medium = Arc::new(CowMedium::new(image, CrashModel::Block));
    let (store, _) = weldfs_fs::mount(medium.clone(), small_mount(77)).map_err(|e| e.to_string())?;
    let mut hand = Hand::new(store);
    hand.mode = TxnMode::Macro;
    Ok((medium, hand))
}

/// Where the records of operations lie: position in the log, byte on the medium, bytes of payload.
fn records(medium: &CowMedium) -> Vec<(u64, u64, u64)> {
    let (sb, _) = Superblock::load(medium).unwrap();
    let area = sb.geometry.log;
    let mut all = Vec::new();
    let mut visit = |r: Record<'_>| {
        all.push((r.header.lsn.0, area.physical(r.header.lsn), u64::from(r.header.length)));
        Verdict::Ok
    };
    scan(medium, &area, &sb.segments, sb.cut, &mut visit).unwrap();
    all
}

fn erase_sector(image: &mut CowImage, at: u64) {
    image.write(at, &[0; SECTOR as usize]);
}

/// Power goes in the middle of a batch of two: the first record is lost, the second is there. Recovery cuts both off.
/// The next life writes a record of just the first one's size: the second, which is a valid record of an earlier
/// segment, must not come back behind it.
fn an_old_record_stays_away(canary: Option<Canary>) -> bool {
    let (medium, mut hand) = blank();
    hand.put("a", &[1; 100]).unwrap();
    hand.sync().unwrap();
    hand.put("b", &[2; 100]).unwrap();
    hand.put("c", &[3; 100]).unwrap();
    hand.sync().unwrap();
    drop(hand);
    let lost = records(&medium)[1];
    let mut image = medium.image();
    erase_sector(&mut image, lost.1);
    with(canary, || {
        let (medium, mut hand) = again(image).unwrap();
        assert!(hand.read("b").is_err() && hand.read("c").is_err(), "the tail was cut before b");
        hand.put("d", &[4; 100]).unwrap();
        hand.sync().unwrap();
        drop(hand);
        match again(medium.image()) {
            Ok((_, mut hand)) => hand.read("d").is_ok() && hand.read("c").is_err(),
            Err(_) => false,
        }
    })
}

#[test]
fn records_of_a_segment_that_was_left_do_not_come_back() {
    assert!(an_old_record_stays_away(None));
    assert!(!an_old_record_stays_away(Some(Canary::OldSaltAccepted)));
}

/// The header of a record, as docs/MEDIA-FORMAT.md describes it, under a salt that its forger made up.
fn forged(lsn: u64) -> [u8; 64] {
    let mut h = [0; 64];
    h[..8].copy_from_slice(&[0x41; 8]);
    h[16..24].copy_from_slice(&lsn.to_le_bytes());
    (h[24], h[25]) = (3, 1);
    h[40..48].copy_from_slice(&lsn.to_le_bytes());
    let crc = crc32c::crc32c(&h);
    h[8..12].copy_from_slice(&crc.to_le_bytes());
    h
}

/// A client writes into a file what looks like a record that says all before it was durable; then the power goes in the
/// middle of that write's own record. It must keep no image from being mounted.
fn a_forged_record_is_data(canary: Option<Canary>) -> bool {
    let marker = [0x77; 3000];
    let (medium, mut hand) = blank();
    hand.put("f", &marker).unwrap();
    hand.sync().unwrap();
    drop(hand);
    let (lsn, at, len) = *records(&medium).last().unwrap();
    let mut bytes = vec![0; len as usize + 64];
    medium.image().read(at, &mut bytes);
    let data = bytes.windows(64).position(|w| w == &marker[..64]).expect("the payload lies in the record") as u64;
    // The first sector boundary within the payload.
    let place = data.next_multiple_of(SECTOR);
    let mut payload = marker;
    let skip = (place - data) as usize;
    payload[skip..skip + 64].copy_from_slice(&forged(lsn + place));
    let (medium, mut hand) = blank();
    hand.put("f", &payload).unwrap();
    hand.sync().unwrap();
    drop(hand);
    assert_eq!(records(&medium).last().map(|r| (r.0, r.1)), Some((lsn, at)), "the same place as before");
    let mut image = medium.image();
    erase_sector(&mut image, at);
    with(canary, || match again(image) {
        Ok((_, mut hand)) => hand.read("f").is_err(),
        Err(_) => false,
    })
}

#[test]
fn a_record_forged_in_a_payload_is_data() {
    assert!(a_forged_record_is_data(None));
    assert!(!a_forged_record_is_data(Some(Canary::ForgedRecordAccepted)));
}

/// Far more durable records than the log holds: each is there after a kill.
fn a_full_log_loses_nothing(canary: Option<Canary>) -> bool {
    with(canary, || {
        let (medium, mut hand) = blank();
        let mut made = 0;
        for n in 0..1200u32 {
            hand.put(&format!("f{}", n % 400), &n.to_le_bytes()).unwrap();
            hand.sync().unwrap();
            made = n + 1;
            // A log that holds more than it can has written over something: now is the time to need it.
            if n > 400 && hand.store().journal().used() > LOG_BYTES * 5 / 4 {
                break;
            }
        }
        drop(hand);
        let Ok((medium, mut hand)) = again(medium.image()) else { return false };
        let newest = made - 400..made;
        let all =
            newest.into_iter().all(|n| hand.read(&format!("f{}", n % 400)).ok() == Some(n.to_le_bytes().to_vec()));
        drop(hand);
        all && fsck(medium, small_mount(3), true).is_ok_and(|r| r.clean)
    })
}

#[test]
fn a_log_that_was_full_lost_nothing() {
    assert!(a_full_log_loses_nothing(None));
    assert!(!a_full_log_loses_nothing(Some(Canary::LogReusedEarly)));
}

/// A file is unlinked while open, then the device dies: its blocks and number come free.
fn an_orphan_goes(canary: Option<Canary>) -> bool {
    with(canary, || {
        let (medium, mut hand) = blank();
        hand.put("open", &[1; 20_000]).unwrap();
        hand.open("open", OpenFlags::READ).unwrap();
        hand.unlink("open").unwrap();
        hand.sync().unwrap();
        drop(hand);
        let medium = Arc::new(CowMedium::new(medium.image(), CrashModel::Block));
        fsck(medium, small_mount(3), true).is_ok_and(|r| r.clean && r.reclaim == 1)
    })
}

#[test]
fn a_file_unlinked_while_open_is_remembered_over_a_crash() {
    assert!(an_orphan_goes(None));
    assert!(!an_orphan_goes(Some(Canary::OrphanForgotten)));
}
