//! docs/COMMANDS.md is the specification: it has the op table's every row as the code prints it, a section for every
//! op, and the constants as they are.

use weldfs_ciscops::{OPS, attach, limits};

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/COMMANDS.md")).unwrap()
}

#[test]
fn every_op_has_its_row_and_its_section() {
    let text = document();
    let missing: Vec<String> = OPS
        .iter()
        .flat_map(|spec| [spec.to_string(), format!("**`{}`**", spec.name)])
        .filter(|wanted| !text.contains(wanted))
        .collect();
    assert!(missing.is_empty(), "docs/COMMANDS.md lacks:\n{}", missing.join("\n"));
}

#[test]
fn every_operation_of_the_catalogue_has_its_row() {
    let text = document();
    let (_, catalogue) = text.split_once("\n## 10. The catalogue").unwrap();
    let rows: Vec<&str> = catalogue.lines().filter_map(|l| l.strip_prefix("| ")?.split(" |").next()).collect();
    let named = |name: &str| rows.iter().any(|row| row.split(", ").any(|one| one == name));
    let missing: Vec<&str> = weldfs_ciscops::catalogue::NAMES.into_iter().filter(|name| !named(name)).collect();
    assert!(missing.is_empty(), "section 10 of docs/COMMANDS.md lacks {missing:?}");
}

#[test]
fn no_row_describes_an_op_that_is_gone() {
    let rows = document()
        .lines()
        .filter(|l| l.starts_with("| ") && l.contains(" | `") && l.ends_with(" |"))
        .filter(|l| l[2..].split(' ').next().is_some_and(|n| n.parse::<u16>().is_ok()))
        .filter(|l| !OPS.iter().any(|spec| spec.to_string() == *l))
        .map(str::to_owned)
        .collect::<Vec<_>>();
    assert!(rows.is_empty(), "stale rows:\n{}", rows.join("\n"));
}

#[test]
fn the_limits_stated_are_the_limits() {
    let text = document();
    for (name, value) in [
        ("ATOMIC_WRITE_MAX", limits::ATOMIC_WRITE_MAX as u64),
        ("LEASE_BLOCKS", limits::LEASE_BLOCKS.into()),
        ("LEASES_MAX", limits::LEASES_MAX as u64),
        ("NAP_NS", limits::NAP_NS),
        ("WATCHES", limits::WATCHES.into()),
        ("WATCH_NS", limits::WATCH_NS),
        ("LOOK_MAX", limits::LOOK_MAX.into()),
        ("NAME_MAX", limits::NAME_MAX as u64),
        ("PATH_MAX", limits::PATH_MAX as u64),
        ("SYMLINK_MAX", limits::SYMLINK_MAX as u64),
        ("SYMLINK_FOLLOW_MAX", limits::SYMLINK_FOLLOW_MAX as u64),
        ("PATH_COMPONENTS_MAX", limits::PATH_COMPONENTS_MAX.into()),
        ("XATTR_NAME_MAX", limits::XATTR_NAME_MAX as u64),
        ("XATTR_VALUE_MAX", limits::XATTR_VALUE_MAX as u64),
        ("MICRO_OPS_MAX", limits::MICRO_OPS_MAX as u64),
        ("BATCH_MAX", limits::BATCH_MAX as u64),
        ("TXNS_MAX", limits::TXNS_MAX as u64),
        ("TXN_WRITES_MAX", limits::TXN_WRITES_MAX as u64),
        ("TXN_BYTES_MAX", limits::TXN_BYTES_MAX),
        ("INODE_SET_MAX", limits::INODE_SET_MAX as u64),
        ("QUEUE_DEPTH_MIN", limits::QUEUE_DEPTH_MIN as u64),
        ("QUEUE_DEPTH_MAX", limits::QUEUE_DEPTH_MAX as u64),
        ("QUEUES_MAX", limits::QUEUES_MAX as u64),
        ("POOL_BYTES_MIN", limits::POOL_BYTES_MIN as u64),
        ("POOL_BYTES_MAX", limits::POOL_BYTES_MAX as u64),
        ("HANDLES_MAX", limits::HANDLES_MAX as u64),
        ("MODIFY_MAX", limits::MODIFY_MAX as u64),
        ("PROGRAM_BODY_MAX", limits::PROGRAM_BODY_MAX as u64),
        ("PROGRAM_FILES", limits::PROGRAM_FILES as u64),
        ("PROGRAM_BUFFERS", limits::PROGRAM_BUFFERS as u64),
        ("PROGRAM_REGISTERS", limits::PROGRAM_REGISTERS as u64),
        ("PROGRAM_RANGES_MAX", limits::PROGRAM_RANGES_MAX as u64),
        ("PROGRAM_STRINGS_MAX", limits::PROGRAM_STRINGS_MAX as u64),
        ("PROGRAM_SCRATCH_MAX", limits::PROGRAM_SCRATCH_MAX),
        ("PROGRAM_READ_MAX", limits::PROGRAM_READ_MAX),
        ("PROGRAM_FORESEEN_MAX", limits::PROGRAM_FORESEEN_MAX),
        ("PROGRAM_WRITE_MAX", limits::PROGRAM_WRITE_MAX),
        ("RECORD_HEAD_MAX", limits::RECORD_HEAD_MAX as u64),
        ("SCAN_RECORDS_MAX", limits::SCAN_RECORDS_MAX),
        ("KEYS_MAX", limits::KEYS_MAX as u64),
        ("SNAPSHOT_MAX", limits::SNAPSHOT_MAX),
        ("VIRT_SPEC_MAX", limits::VIRT_SPEC_MAX as u64),
        ("VIRT_RANGES_MAX", limits::VIRT_RANGES_MAX as u64),
        ("VIRT_AGAIN_MAX", limits::VIRT_AGAIN_MAX as u64),
        ("PLACEHOLDERS_MAX", limits::PLACEHOLDERS_MAX as u64),
        ("ATTACH_MESSAGE_MAX", limits::ATTACH_MESSAGE_MAX as u64),
        ("CLIENT_SLEEP_MS_MAX", limits::CLIENT_SLEEP_MS_MAX),
        ("PROTOCOL_VERSION", attach::PROTOCOL_VERSION as u64),
    ] {
        let row = format!("| {name} | {value} |");
        assert!(text.contains(&row), "docs/COMMANDS.md lacks {row}");
    }
}
