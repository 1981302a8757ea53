//! Dates for people, in the time zone of this process (TZ, else the system's).

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use weldfs::WireTime;

/// Seconds for which `ls` shows the time of day: half a year, as the field has it.
const RECENT: i64 = 31_556_952 / 2;

/// Dates of one listing: one time zone, and one now.
pub struct Dates {
    zone: TimeZone,
    now: i64,
}

impl Dates {
    /// As of this moment.
    pub fn new() -> Dates {
        Dates { zone: TimeZone::system(), now: Timestamp::now().as_second() }
    }

    fn zoned(&self, t: WireTime) -> Option<Zoned> {
        Timestamp::new(t.sec, i32::try_from(t.nsec).ok()?).ok().map(|t| t.to_zoned(self.zone.clone()))
    }

    /// As `ls -l` has it: `Nov 23 14:05`, with the year when that is half a year away, or to come.
    pub fn short(&self, t: WireTime) -> String {
        let Some(zoned) = self.zoned(t) else { return t.sec.to_string() };
        let recent = t.sec <= self.now && self.now - t.sec < RECENT;
        zoned.strftime(if recent { "%b %e %H:%M" } else { "%b %e  %Y" }).to_string()
    }

    /// As `stat` has it: `2025-11-23 14:05:09.000000001 +0100`.
    pub fn long(&self, t: WireTime) -> String {
        match self.zoned(t) {
            Some(zoned) => zoned.strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string(),
            None => format!("{}.{:09} s since 1970", t.sec, t.nsec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dates(zone: &str, now: i64) -> Dates {
        Dates { zone: TimeZone::posix(zone).expect("a zone"), now }
    }

    #[test]
    fn dates_are_local_and_show_the_time_of_day_for_half_a_year() {
        let d = dates("<+02>-2", 1_764_000_000);
        assert_eq!(d.short(WireTime::new(1_763_900_000, 0)), "Nov 23 14:13");
        assert_eq!(d.short(WireTime::new(1_735_700_000, 0)), "Jan  1  2025");
        assert_eq!(d.short(WireTime::new(1_764_000_001, 0)), "Nov 24  2025", "what is to come");
        assert_eq!(d.long(WireTime::new(1_763_900_000, 1)), "2025-11-23 14:13:20.000000001 +0200");
        assert_eq!(d.long(WireTime::new(-1, 250_000_000)), "1970-01-01 01:59:59.250000000 +0200");
    }

    #[test]
    fn a_time_that_no_calendar_has_is_shown_as_a_number() {
        let d = dates("UTC0", 0);
        assert_eq!(d.short(WireTime::new(i64::MAX, 0)), i64::MAX.to_string());
        assert_eq!(d.long(WireTime::new(i64::MIN, 7)), format!("{}.000000007 s since 1970", i64::MIN));
    }
}
