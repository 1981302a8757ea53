//! What the paper prints: facts beside which ours stand. Source of all: Z. Ruan, T. He, J. Cong, "INSIDER: Designing
//! In-Storage Computing System for Emerging High-Performance Drive", USENIX ATC 2019. Its figures 9 and 10 (speed-ups
//! and their break-down) are drawings without numbers, so there is nothing of them here.

use serde::Serialize;

/// Speed-ups in the drive over the host with POSIX, from least to greatest, as its section 1 says of section 5.2.1.
pub const SPEEDUPS: (f64, f64) = (7.0, 11.0);

/// A row of its tables 3, 5 and 6.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Facts {
    /// As the paper calls it.
    pub name: &'static str,
    /// Lines of host code, without empty lines and comments (table 3).
    pub host_lines: u32,
    /// Lines of drive code, C++ (table 3).
    pub drive_lines: u32,
    /// Bottlenecks: bypass on x8, on x16, in drive on x8, on x16 (table 5).
    pub bottlenecks: [&'static str; 4],
    /// LUT, FF, BRAM, DSP (table 6).
    pub resources: [f64; 4],
}

/// The applications, in the paper's order but for the bitmap, which its table 6 has last.
#[rustfmt::skip] // a table
pub const FACTS: [Facts; 7] = [
    Facts { name: "Grep", host_lines: 51, drive_lines: 193,
            bottlenecks: ["PCIe", "PCIe", "Drive", "Drive"], resources: [34416.0, 24108.0, 1.0, 0.0] },
    Facts { name: "KNN", host_lines: 77, drive_lines: 72,
            bottlenecks: ["PCIe", "Comp.", "Drive", "Drive"], resources: [9534.0, 11975.0, 0.5, 0.0] },
    Facts { name: "Statistics", host_lines: 65, drive_lines: 170,
            bottlenecks: ["PCIe", "PCIe", "Drive", "Drive"], resources: [14698.0, 15966.0, 0.0, 0.0] },
    Facts { name: "SQL query", host_lines: 97, drive_lines: 256,
            bottlenecks: ["PCIe", "Comp.", "Comp.", "Comp."], resources: [9684.0, 14044.0, 1.0, 0.0] },
    Facts { name: "Integration", host_lines: 41, drive_lines: 307,
            bottlenecks: ["PCIe", "PCIe", "Drive", "Drive"], resources: [40112.0, 6497.0, 14.0, 0.0] },
    Facts { name: "Feature selection", host_lines: 50, drive_lines: 632,
            bottlenecks: ["Comp.", "Comp.", "PCIe", "Drive"], resources: [41322.0, 44981.0, 24.0, 48.0] },
    Facts { name: "Bitmap decompression", host_lines: 94, drive_lines: 145,
            bottlenecks: ["PCIe", "PCIe", "Drive", "Drive"], resources: [60837.0, 13676.0, 0.0, 0.0] },
];

/// What else table 6 lists: the framework, then what the chips have.
pub const OTHERS: [(&str, [f64; 4]); 4] = [
    ("INSIDER framework", [68981.0, 120451.0, 309.0, 0.0]),
    ("DRAM and DMA IP cores", [210819.0, 245067.0, 345.5, 12.0]),
    ("chip XCVU9P", [1181768.0, 2363536.0, 2160.0, 6840.0]),
    ("chip XC7A200T", [215360.0, 269200.0, 365.0, 740.0]),
];

/// The row of a name.
pub fn of(name: &str) -> Option<&'static Facts> {
    FACTS.iter().find(|f| f.name == name)
}
