//! RocksDB's own tools, as the system has them, with the plug-in loaded before them.

use crate::rig::{Served, all, fsck, image, is_there, run, tool};

#[test]
fn stock_tools_work_on_an_image_and_on_a_device() {
    if !is_there("stock_tools_work_on_an_image_and_on_a_device") {
        return;
    }
    for is_served in [false, true] {
        let dir = image("256M", "block");
        let served = is_served.then(|| Served::start(dir.path()));
        let at = |name| tool(dir.path(), name, "d.img");
        for (rows, names) in [("100", "fillsync"), ("2000", "fillseq,fillrandom,compact,readrandom,multireadrandom")] {
            let mut bench = at("db_bench");
            bench.args(["--db=/db", "--threads=2"]).arg(format!("--num={rows}")).arg(format!("--benchmarks={names}"));
            // The counters are told when the process ends.
            bench.env("WELDFS_ROCKSDB_LOG", "1");
            let said = run(bench);
            for name in names.split(',') {
                let told = |line: &str| line.starts_with(name) && line.contains("micros/op");
                assert!(said.lines().any(told), "{name}: {said}");
            }
            assert!(said.contains("weldfs-rocksdb: d.img: handoffs 0"), "{said}");
        }
        let ldb = |args: &[&str]| {
            let mut ldb = at("ldb");
            ldb.arg("--db=/other").args(args);
            run(ldb)
        };
        assert!(ldb(&["put", "--create_if_missing", "key", "value"]).contains("OK"));
        assert!(ldb(&["get", "key"]).contains("value"));
        assert!(ldb(&["scan"]).contains("key : value"));
        assert!(ldb(&["checkconsistency"]).contains("OK"));
        assert!(ldb(&["manifest_dump"]).contains("next_file_number"));
        assert!(ldb(&["dump_live_files"]).contains("/other/MANIFEST"));
        let mut dump = at("sst_dump");
        dump.args(["--file=/db", "--command=verify"]);
        assert!(run(dump).contains("The file is ok"));
        drop(served);
        fsck(dir.path());
    }
}

#[test]
fn a_uri_that_leads_nowhere_is_told_by_the_tools() {
    if !is_there("a_uri_that_leads_nowhere_is_told_by_the_tools") {
        return;
    }
    let dir = image("64M", "pmem");
    for (target, cause) in [("", "an image or the socket of a device"), ("missing.img", "missing.img")] {
        let mut ldb = tool(dir.path(), "ldb", target);
        let output = ldb.args(["--db=/db", "scan"]).output().unwrap();
        assert!(!output.status.success() && all(&output).contains(cause), "{target}: {}", all(&output));
    }
}
