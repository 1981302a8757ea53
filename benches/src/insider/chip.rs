//! What kernels take of a chip: the limits that this project holds its RTL to, as `fpga/rtl/check.py resources` has
//! Yosys count it. They are a tenth above what was counted when they were written. No place and route, no timing.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const BUDGET: &str = include_str!("../../../fpga/rtl/budget.toml");

/// Parts of a chip.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Look-up tables.
    pub lut: u32,
    /// Flip-flops.
    pub ff: u32,
    /// Memories of 36 Kbit.
    pub bram: u32,
    /// Multipliers.
    pub dsp: u32,
}

/// A kernel's limits on two families of chips; nothing where Yosys did not end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Series 7.
    #[serde(default)]
    pub xc7: Option<Parts>,
    /// UltraScale+, to which the paper's XCVU9P belongs.
    #[serde(default)]
    pub xcup: Option<Parts>,
    /// Why there are none.
    #[serde(default, skip_serializing)]
    not_counted: Option<String>,
}

/// Those of a kernel that is RTL.
pub(super) fn of(kernel: &str) -> Option<Budget> {
    let all: BTreeMap<String, Budget> = toml::from_str(BUDGET).unwrap_or_default();
    all.get(kernel).filter(|b| b.not_counted.is_none()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insider::apps::APPS;

    #[test]
    fn every_application_that_is_rtl_has_limits() {
        toml::from_str::<BTreeMap<String, Budget>>(BUDGET).expect("it is of this form");
        for app in &APPS {
            assert_eq!(of(app.kernel).is_some_and(|b| b.xcup.is_some_and(|p| p.lut > 100)), app.built == "rtl");
        }
        assert!(of("aes128").is_some_and(|b| b.xc7.is_some_and(|p| p.lut > 10_000)), "also of the others");
        assert!(of("gzip").is_none(), "it is no RTL");
    }
}
