//! Numbers with a unit, as `weldfs tune` takes them: `4GB/s`, `900ns`, `1.2M`.

/// What a number may be of, with the units that are known: name and what one of it is.
pub struct Quantity {
    units: &'static [(&'static str, f64)],
    /// What the text may be, for a reader.
    pub says: &'static str,
}

/// Bytes per second.
pub fn per_second() -> Quantity {
    const UNITS: &[(&str, f64)] = &[
        ("B/s", 1.0),
        ("kB/s", 1e3),
        ("MB/s", 1e6),
        ("GB/s", 1e9),
        ("KiB/s", 1024.0),
        ("MiB/s", 1048576.0),
        ("GiB/s", 1073741824.0),
    ];
    Quantity { units: UNITS, says: "0 (unlimited) or e.g. 4GB/s, 500MiB/s" }
}

const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

/// Nanoseconds.
pub fn nanoseconds() -> Quantity {
    Quantity { units: TIMES, says: "0 or e.g. 900ns, 5us, at most 1s" }
}

/// Nanoseconds of what takes long.
pub fn long_nanoseconds() -> Quantity {
    Quantity { units: TIMES, says: "0 or e.g. 100ms, at most 60s" }
}

/// Nanoseconds of what is done very often.
pub fn short_nanoseconds() -> Quantity {
    Quantity { units: TIMES, says: "0 or e.g. 900ns, 5us, at most 1ms" }
}

/// Megahertz.
pub fn megahertz() -> Quantity {
    Quantity { units: &[("MHz", 1.0), ("GHz", 1e3)], says: "1MHz to 2GHz, e.g. 250MHz" }
}

/// Of whatever is counted.
pub fn count() -> Quantity {
    const UNITS: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("M", 1e6)];
    Quantity { units: UNITS, says: "0 (unlimited) or e.g. 500000, 1.2M" }
}

const SIZES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
    ("", 1.0),
    ("K", 1024.0),
    ("M", 1048576.0),
    ("G", 1073741824.0),
    ("T", 1099511627776.0),
];

/// Bytes of a slot's part of the card's memory.
pub fn memory_bytes() -> Quantity {
    Quantity { units: SIZES, says: "0 to 1T bytes, e.g. 1G" }
}

/// Bytes of a request to a kernel.
pub fn request_bytes() -> Quantity {
    Quantity { units: SIZES, says: "64 to 16M bytes, e.g. 64K" }
}

impl Quantity {
    /// The number that `text` says. `None`: no number of this kind; a bare 0 needs no unit, all else does (but counts
    /// and bytes, whose unit may be absent). Rounding may change it by a millionth.
    pub fn parse(&self, text: &str) -> Option<u64> {
        if text == "0" {
            return Some(0);
        }
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim_start();
        let (_, one) = self.units.iter().find(|(name, _)| *name == unit)?;
        let value = number.parse::<f64>().ok()? * one;
        // What is no whole number of the smallest unit would become another one than was asked for.
        let whole = (value - value.round()).abs() <= value / 1e6;
        (whole && value < i64::MAX as f64).then(|| value.round() as u64)
    }

    /// The number with the largest unit that leaves it whole.
    pub fn show(&self, value: u64) -> String {
        if value == 0 {
            return "0".to_owned();
        }
        let whole = |one: f64| value.is_multiple_of(one as u64);
        let units = self.units.iter().filter(|(name, one)| !name.contains('i') && whole(*one));
        let (name, one) = units.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(&self.units[0]);
        format!("{}{name}", value / *one as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        for value in [0, 1, 900, 1_000, 1_500, 4_000_000_000, 1_200_000, 123_456_789] {
            for of in [per_second(), nanoseconds(), count()] {
                assert_eq!(of.parse(&of.show(value)), Some(value), "{}", of.show(value));
            }
        }
        assert_eq!(per_second().show(4_000_000_000), "4GB/s");
        assert_eq!(nanoseconds().show(900), "900ns");
        for (value, text) in [(1 << 30, "1G"), (1 << 16, "64K"), (64, "64"), (1_000_000, "1000000"), (1 << 40, "1T")] {
            assert_eq!((memory_bytes().show(value).as_str(), memory_bytes().parse(text)), (text, Some(value)));
        }
    }

    #[test]
    fn units_are_asked_for_and_known() {
        let of = per_second();
        assert_eq!(of.parse("4GB/s"), Some(4_000_000_000));
        assert_eq!(of.parse("4.5 GiB/s"), Some(4_831_838_208));
        for text in ["4", "4GB", "4gb/s", "-1GB/s", "GB/s", "1.2.3GB/s", "", "inf", "99999999999GB/s", "1e3B/s"] {
            assert_eq!(of.parse(text), None, "{text}");
        }
        assert_eq!(nanoseconds().parse("0.9us"), Some(900));
        assert_eq!(nanoseconds().parse("5"), None, "nanoseconds, or what?");
        assert_eq!((nanoseconds().parse("0.4ns"), nanoseconds().parse("1.5ns")), (None, None));
        assert_eq!((megahertz().parse("0.5MHz"), megahertz().parse("1.5MHz")), (None, None));
        assert_eq!((megahertz().parse("1.001GHz"), megahertz().parse("2.0000004GHz")), (Some(1001), Some(2000)));
        assert_eq!(memory_bytes().parse("0.1G"), Some(107_374_182));
        let of = memory_bytes();
        assert_eq!((of.parse("1GiB"), of.parse("1.5G"), of.parse("3B")), (Some(1 << 30), Some(3 << 29), Some(3)));
        assert_eq!((of.parse("1GB/s"), of.parse("1s")), (None, None));
        assert_eq!((count().parse("1.2M"), count().parse("17")), (Some(1_200_000), Some(17)));
    }
}
