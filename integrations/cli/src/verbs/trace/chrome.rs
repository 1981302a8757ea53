//! The JSON that trace viewers read: the Trace Event Format's object form.
//!
//! Process 1 is the device's cores, one thread (track) each, one complete event ("X") per slice; a counter track shows
//! how many commands were runnable when slices ended. Process 2 is kept for the slots of an accelerator. Times are in
//! microseconds since the recording's start, with three decimals.

use std::collections::BTreeMap;
use std::io::{self, Write};
use weldfs_ciscops::Opcode;
use weldfs_ciscops::trace::{Slice, slice_end, slice_flag};
use weldfs_storagefs::device::trace::TraceFacts;

/// The process of the device's cores.
const CORES: u32 = 1;

/// Nanoseconds as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Text as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn operation(opcode: u16) -> String {
    Opcode::from_wire(opcode).map_or_else(|| format!("operation {opcode}"), |op| op.spec().name.to_owned())
}

fn end(slice: &Slice) -> &'static str {
    match slice.end {
        slice_end::DONE => "done",
        slice_end::WAITS => "waits",
        slice_end::PREEMPTED => "preempted",
        slice_end::YIELDED => "yielded",
        _ => "unknown",
    }
}

/// Writes the whole file.
pub fn write(out: &mut dyn Write, facts: &TraceFacts, slices: &[Slice]) -> io::Result<()> {
    let dropped: u64 = facts.cores.iter().map(|c| c.dropped).sum();
    let other = serde_json::json!({
        "device": facts.device,
        "start_ns": facts.start_ns,
        "end_ns": facts.end_ns,
        "cores": facts.cores,
        "tenants": facts.tenants,
        "dropped": dropped,
    });
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\n\"traceEvents\":[\n")?;
    names(out, facts)?;
    spans(out, facts, slices)?;
    runnable(out, facts, slices)?;
    out.write_all(b"\n]}\n")
}

fn names(out: &mut dyn Write, facts: &TraceFacts) -> io::Result<()> {
    let device = quoted(&format!("device {}", facts.device.label));
    write!(out, "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{CORES},\"tid\":0,\"args\":{{\"name\":{device}}}}}")?;
    for core in 0..facts.cores.len() {
        let name = |what: &str, args: &str| {
            format!("{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{CORES},\"tid\":{},\"args\":{{{args}}}}}", core + 1)
        };
        write!(out, ",\n{}", name("thread_name", &format!("\"name\":\"core {core}\"")))?;
        write!(out, ",\n{}", name("thread_sort_index", &format!("\"sort_index\":{core}")))?;
    }
    Ok(())
}

fn spans(out: &mut dyn Write, facts: &TraceFacts, slices: &[Slice]) -> io::Result<()> {
    let tenants: BTreeMap<u32, String> = facts.tenants.iter().map(|(n, name)| (*n, quoted(name))).collect();
    let mut titles: BTreeMap<(u32, u16), String> = BTreeMap::new();
    for s in slices {
        let title = titles.entry((s.tenant, s.opcode)).or_insert_with(|| {
            let tenant = facts.tenants.get(&s.tenant).map_or("?", |name| name.as_str());
            quoted(&format!("{tenant}: {}", operation(s.opcode)))
        });
        write!(
            out,
            ",\n{{\"ph\":\"X\",\"cat\":\"slice\",\"name\":{title},\"pid\":{CORES},\"tid\":{},\"ts\":{},\"dur\":{},\
             \"args\":{{\"tenant\":{},\"inode\":{},\"operation\":\"{}\",\"micro_op\":{},\"cost_us\":{},\"slot\":{},\
             \"session\":{},\"end\":\"{}\",\"boosted\":{},\"corrected\":{},\"uncontended\":{},\"runnable\":{}}}}}",
            u32::from(s.core) + 1,
            Micros(s.start_ns.saturating_sub(facts.start_ns)),
            Micros(s.end_ns.saturating_sub(s.start_ns)),
            tenants.get(&s.tenant).map_or("\"?\"", |name| name.as_str()),
            s.inode,
            operation(s.opcode),
            s.micro,
            Micros(s.cost_ns),
            s.slot,
            s.session,
            end(s),
            s.flags & slice_flag::BOOSTED != 0,
            s.flags & slice_flag::CORRECTED != 0,
            s.flags & slice_flag::UNCONTENDED != 0,
            s.runnable,
        )?;
    }
    Ok(())
}

/// The counter track: a value where it changes.
fn runnable(out: &mut dyn Write, facts: &TraceFacts, slices: &[Slice]) -> io::Result<()> {
    let mut values: Vec<(u64, u32)> = slices.iter().map(|s| (s.end_ns, s.runnable)).collect();
    values.sort_unstable();
    values.dedup_by_key(|(_, n)| *n);
    for (at, n) in values {
        let ts = Micros(at.saturating_sub(facts.start_ns));
        write!(
            out,
            ",\n{{\"ph\":\"C\",\"name\":\"runnable\",\"pid\":{CORES},\"ts\":{ts},\"args\":{{\"commands\":{n}}}}}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_storagefs::device::trace::CoreTrace;

    #[test]
    fn a_file_holds_tracks_spans_counters_and_what_was_dropped() {
        let device = serde_json::from_str(
            r#"{"label":"a\"b","medium":"ram","durability":"durable","power_safe":false,"cores":2,"policy":"cfs",
                "profile":{}}"#,
        );
        let facts = TraceFacts {
            start_ns: 1_000_000,
            end_ns: 9_000_000,
            device: device.expect("facts"),
            cores: vec![
                CoreTrace { slices: 1, busy_ns: 2500, cost_ns: 0, dropped: 0 },
                CoreTrace { dropped: 3, ..CoreTrace::default() },
            ],
            tenants: [(0, "we\"ird".to_owned())].into(),
        };
        let nop = Slice { start_ns: 1_002_001, end_ns: 1_004_501, runnable: 2, micro: 1, ..Slice::default() };
        let unknown =
            Slice { start_ns: 1_005_000, end_ns: 1_005_001, core: 1, tenant: 9, opcode: 127, ..Slice::default() };
        let mut out = Vec::new();
        write(&mut out, &facts, &[nop, unknown]).expect("written to memory");
        let file: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!((&file["otherData"]["dropped"], &file["otherData"]["device"]["label"]), (&3.into(), &"a\"b".into()));
        let of = |ph: &str| -> Vec<&serde_json::Value> {
            file["traceEvents"].as_array().into_iter().flatten().filter(|e| e["ph"] == ph).collect()
        };
        assert_eq!(of("M").iter().filter(|e| e["name"] == "thread_name").count(), 2);
        let x = of("X");
        assert_eq!((x[0]["ts"].as_f64(), x[0]["dur"].as_f64(), &x[0]["tid"]), (Some(2.001), Some(2.5), &1.into()));
        assert_eq!((&x[0]["name"], &x[0]["args"]["micro_op"]), (&"we\"ird: nop".into(), &1.into()));
        assert_eq!((&x[1]["name"], &x[1]["tid"]), (&"?: operation 127".into(), &2.into()));
        let c = of("C");
        assert_eq!((c.len(), &c[0]["args"]["commands"], &c[1]["args"]["commands"]), (2, &2.into(), &0.into()));
    }
}
