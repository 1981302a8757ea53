//! Workloads over the tiny tree: the language, the generator, the performer beside the model, the oracle's rules.

use weldfs_crash_harness::states::{Setup, Workload, perform};
use weldfs_storagefs::media::CrashModel;

fn setups() -> [Setup; 2] {
    [CrashModel::Block, CrashModel::Pmem].map(|m| Setup::new(m).expect("the tiny tree is made"))
}

#[test]
fn store_and_model_agree_on_a_workload_of_every_kind() {
    let line = "creat A/bar durable; mkdir C; rename A/foo C noreplace; rename A B/A over; link foo l fsync; \
        symlink foo A/l; write foo 4000 5000; append bar 700 durable checkpoint; truncate foo 100; \
        fallocate foo reserve 0 9000; fallocate foo punch 10 5000; fallocate bar zero 0 8192; hold foo; unlink foo; \
        unlink l reclaim; setxattr bar 1 30; removexattr bar 1; chmod B 700; chown bar 5 6 syncfs; utimens bar 99; \
        open_write_close foo new 0 6000 micro; open_read_write_close foo trunc 0 10 macro durable; \
        append_checksum_write bar 600 micro; read_modify_write bar add 0 8; read_modify_write bar swap 5 100 remount; \
        read_modify_write bar swap-fail 5 100; rmdir B";
    let workload = Workload::parse(line).expect("the line is well formed");
    for setup in setups() {
        let performed = perform(&setup, &workload).unwrap_or_else(|e| panic!("{:?}: {e}", setup.model));
        assert!(performed.history.points.len() > 15, "{}", performed.history.points.len());
        assert!(performed.begun < performed.recording.len());
    }
}
