//! The JSON that trace viewers read: the Trace Event Format's object form.
//!
//! Process 1 is the device's cores, one thread (track) each, one complete event ("X") per slice; a counter track shows
//! how many commands were runnable when slices ended. Process 2 is the slots of its card, one track each: sessions,
//! within them the steps of kernels, and kernels that are loaded. Times are in microseconds since the recording's
//! start, with three decimals.

use std::collections::BTreeMap;
use std::io::{self, Write};
use weldfs_ciscops::Opcode;
use weldfs_ciscops::trace::{Decoded, Slice, SlotSpan, slice_end, slice_flag, slot_flag, slot_kind};
use weldfs_device::trace::TraceFacts;

/// The process of the device's cores.
const CORES: u32 = 1;
/// The process of the card's slots.
const SLOTS: u32 = 2;

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

/// What there was no room for.
pub fn dropped(facts: &TraceFacts) -> u64 {
    facts.cores.iter().map(|c| c.dropped).chain(facts.slots.iter().map(|s| s.dropped)).sum()
}

/// Writes the whole file.
pub fn write(out: &mut dyn Write, facts: &TraceFacts, trace: &Decoded<'_>) -> io::Result<()> {
    let other = serde_json::json!({
        "device": facts.device,
        "start_ns": facts.start_ns,
        "end_ns": facts.end_ns,
        "cores": facts.cores,
        "slots": facts.slots,
        "tenants": facts.tenants,
        "dropped": dropped(facts),
    });
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\n\"traceEvents\":[\n")?;
    names(out, facts)?;
    spans(out, facts, &trace.slices)?;
    in_slots(out, facts, &trace.spans)?;
    runnable(out, facts, &trace.slices)?;
    out.write_all(b"\n]}\n")
}

fn names(out: &mut dyn Write, facts: &TraceFacts) -> io::Result<()> {
    let device = quoted(&format!("device {}", facts.device.title()));
    write!(out, "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{CORES},\"tid\":0,\"args\":{{\"name\":{device}}}}}")?;
    tracks(out, CORES, "core", facts.cores.len())?;
    if !facts.slots.is_empty() {
        write!(
            out,
            ",\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{SLOTS},\"tid\":0,\"args\":{{\"name\":\"card\"}}}}"
        )?;
    }
    tracks(out, SLOTS, "slot", facts.slots.len())
}

/// Names the tracks of a process.
fn tracks(out: &mut dyn Write, process: u32, what: &str, count: usize) -> io::Result<()> {
    for track in 0..count {
        let name = |key: &str, args: &str| {
            format!("{{\"ph\":\"M\",\"name\":\"{key}\",\"pid\":{process},\"tid\":{},\"args\":{{{args}}}}}", track + 1)
        };
        write!(out, ",\n{}", name("thread_name", &format!("\"name\":\"{what} {track}\"")))?;
        write!(out, ",\n{}", name("thread_sort_index", &format!("\"sort_index\":{track}")))?;
    }
    Ok(())
}

/// What went on in slots. A session's span comes before those of its steps: viewers nest what begins at the same time
/// in the order of the file.
fn in_slots(out: &mut dyn Write, facts: &TraceFacts, spans: &[SlotSpan]) -> io::Result<()> {
    let mut sorted: Vec<&SlotSpan> = spans.iter().collect();
    sorted.sort_by_key(|s| (s.slot, s.start_ns, u64::MAX - s.end_ns, s.kind));
    for s in sorted {
        let kernel = facts.kernels.get(usize::from(s.kernel)).map_or("?", |name| name.as_str());
        let tenant = facts.tenants.get(&s.tenant).map_or("?", |name| name.as_str());
        let (category, title) = match s.kind {
            slot_kind::SESSION => ("session", format!("{tenant}: {kernel}")),
            slot_kind::LOAD => ("load", format!("loading {kernel}")),
            _ => ("step", kernel.to_owned()),
        };
        write!(
            out,
            ",\n{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":{},\"pid\":{SLOTS},\"tid\":{},\"ts\":{},\"dur\":{},\
             \"args\":{{\"kernel\":{},\"tenant\":{},\"session\":{},\"slot_us\":{},\"cycles\":{},\"bytes_in\":{},\
             \"bytes_out\":{},\"waited_us\":{},\"credit_wait_us\":{},\"failed\":{},\"taken\":{}}}}}",
            quoted(&title),
            s.slot + 1,
            Micros(s.start_ns.saturating_sub(facts.start_ns)),
            Micros(s.end_ns.saturating_sub(s.start_ns)),
            quoted(kernel),
            quoted(tenant),
            s.session,
            Micros(s.slot_ns),
            s.cycles,
            s.bytes_in,
            s.bytes_out,
            Micros(s.waited_ns),
            Micros(s.credit_wait_ns),
            s.flags & slot_flag::FAILED != 0,
            s.flags & slot_flag::TAKEN != 0,
        )?;
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
    use weldfs_device::trace::{CoreTrace, SlotTrace};

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
            slots: vec![SlotTrace::default(), SlotTrace { sessions: 1, slot_ns: 800, dropped: 4 }],
            kernels: vec!["grep".to_owned()],
            tenants: [(0, "we\"ird".to_owned())].into(),
        };
        let nop = Slice { start_ns: 1_002_001, end_ns: 1_004_501, runnable: 2, micro: 1, ..Slice::default() };
        let unknown =
            Slice { start_ns: 1_005_000, end_ns: 1_005_001, core: 1, tenant: 9, opcode: 127, ..Slice::default() };
        let mut out = Vec::new();
        let session = SlotSpan {
            kind: slot_kind::SESSION,
            flags: slot_flag::FAILED,
            slot: 1,
            session: 7,
            start_ns: 1_002_000,
            end_ns: 1_004_000,
            slot_ns: 800,
            ..SlotSpan::default()
        };
        let step = SlotSpan { kind: slot_kind::STEP, flags: 0, kernel: 9, end_ns: 1_003_000, ..session };
        // A step that was written first is shown in its session.
        let trace = Decoded { facts: "", slices: vec![nop, unknown], spans: vec![step, session] };
        write(&mut out, &facts, &trace).expect("written to memory");
        let file: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!((&file["otherData"]["dropped"], &file["otherData"]["device"]["label"]), (&7.into(), &"a\"b".into()));
        let of = |ph: &str| -> Vec<&serde_json::Value> {
            file["traceEvents"].as_array().into_iter().flatten().filter(|e| e["ph"] == ph).collect()
        };
        assert_eq!(of("M").iter().filter(|e| e["name"] == "thread_name").count(), 4);
        let x = of("X");
        assert_eq!((x[0]["ts"].as_f64(), x[0]["dur"].as_f64(), &x[0]["tid"]), (Some(2.001), Some(2.5), &1.into()));
        assert_eq!((&x[0]["name"], &x[0]["args"]["micro_op"]), (&"we\"ird: nop".into(), &1.into()));
        assert_eq!((&x[1]["name"], &x[1]["tid"]), (&"?: operation 127".into(), &2.into()));
        assert_eq!(
            (&x[2]["cat"], &x[2]["name"], &x[2]["pid"]),
            (&"session".into(), &"we\"ird: grep".into(), &2.into())
        );
        let args = &x[2]["args"];
        assert_eq!((args["slot_us"].as_f64(), &args["failed"], &args["session"]), (Some(0.8), &true.into(), &7.into()));
        assert_eq!((&x[3]["cat"], &x[3]["name"], &x[3]["tid"]), (&"step".into(), &"?".into(), &2.into()));
        let c = of("C");
        assert_eq!((c.len(), &c[0]["args"]["commands"], &c[1]["args"]["commands"]), (2, &2.into(), &0.into()));
    }
}
