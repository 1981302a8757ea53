//! The table at the end of the demo: one row per system, with what was counted and where the bytes live.

use serde::Serialize;

/// One system doing one piece of work.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The work: "store a file", "append + checksum".
    pub work: String,
    /// Who did it: "weldfs fused", "weldfs unfused", "host NAME".
    pub system: String,
    /// Where the bytes live.
    pub medium: String,
    /// "volatile" or "durable".
    pub durability: String,
    /// Whether durable here means that it survives a power cut.
    pub power_safe: bool,
    /// Operations done.
    pub ops: u64,
    /// Mean microseconds per operation.
    pub us_per_op: f64,
    /// Commands per operation (for the host: system calls).
    pub commands: f64,
    /// Crossings of the boundary between application and file system, per operation.
    pub crossings: f64,
    /// Copies of the payload on the device's side, per operation; `None` where they cannot be counted.
    pub copies: Option<f64>,
    /// Flushes (block) or fences (pmem) that ordered commits, per operation; `None` where they cannot be counted.
    pub flushes: Option<f64>,
}

fn count(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"))
}

/// Prints the rows as a table for people.
pub fn print(rows: &[Row]) {
    println!(
        "\n{:<20} {:<16} {:<22} {:<9} {:<10} {:>7} {:>9} {:>9} {:>9} {:>7} {:>8}",
        "work", "system", "medium", "class", "power-safe", "ops", "us/op", "commands", "crossings", "copies", "flushes"
    );
    for row in rows {
        println!(
            "{:<20} {:<16} {:<22} {:<9} {:<10} {:>7} {:>9.2} {:>9.2} {:>9.2} {:>7} {:>8}",
            row.work,
            row.system,
            row.medium,
            row.durability,
            if row.power_safe { "yes" } else { "no" },
            row.ops,
            row.us_per_op,
            row.commands,
            row.crossings,
            count(row.copies),
            count(row.flushes),
        );
    }
    println!(
        "\nper operation; commands are system calls for the host; copies and flushes of the host are not counted (-)"
    );
}
