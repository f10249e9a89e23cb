//! CronJob schedules: validation, and the next run.
//!
//! A schedule's text, a time zone name and a time go in; the next run comes out. The module neither reads the clock nor
//! knows objects.
//!
//! A schedule has five fields (minute, hour, day of month, month, day of week) or is a descriptor such as `@daily` or
//! `@every 1h30m`, and may begin with `TZ=<zone> ` or `CRON_TZ=<zone> `. Unlike in classic cron, day of month and day
//! of week must both match (`0 0 13 * 5` is Friday the 13th), and ranges wrap around (`22-2`).
//!
//! The search steps through the zone's local time like the library behind kube-state-metrics does, because the result
//! near a change of the clock depends on the steps: a schedule inside a skipped hour runs in the hour after the gap at
//! the same minute, but only if the gap is one hour and the search begins before it; in a repeated hour it runs twice.

use std::borrow::Cow;
use std::sync::LazyLock;

use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};

use crate::go::strconv;

/// The maximum length of schedule and zone together.
const MAX_LEN: usize = 1024;

/// The search limit, in calendar years.
const YEARS_AHEAD: i16 = 5;

/// A schedule in a time zone.
#[derive(Debug, Clone)]
pub struct Schedule {
    times: Times,
    zone: TimeZone,
}

#[derive(Debug, Clone)]
enum Times {
    Fields(Fields),
    /// The interval between two runs, in seconds.
    Every(i64),
    /// Never runs on its own.
    Never,
}

/// The fields of a schedule, with one bit for each value that matches.
#[derive(Debug, Clone)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

impl Schedule {
    /// Parses a schedule. `zone` is the CronJob's time zone; if absent, the zone in the schedule applies, or else that
    /// of the process. `None` if one of the two is invalid.
    pub fn parse(schedule: &str, zone: Option<&str>) -> Option<Self> {
        // The CronJob's zone is prepended to the text, so a schedule that also names one is invalid.
        let text = match zone {
            Some(zone) => Cow::Owned(format!("CRON_TZ={zone} {schedule}")),
            None => Cow::Borrowed(schedule),
        };
        if text.len() > MAX_LEN {
            return None;
        }
        let prefixed = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ="));
        let (zone, times) = match prefixed.map(|rest| rest.split_once(' ').unwrap_or((rest, ""))) {
            Some((zone, times)) => (find_zone(zone)?, times.trim()),
            None => (TimeZone::system(), &*text),
        };
        let times = if times.starts_with('@') { descriptor(times)? } else { fields(times)? };
        Some(Self { times, zone })
    }

    /// Returns the next run after `base`, both in unix seconds; `None` if there is none within five calendar years.
    pub fn next(&self, base: i64) -> Option<i64> {
        match &self.times {
            Times::Fields(fields) => {
                let cycles = calendar_shift(base);
                let mut search = Search { fields, zone: &self.zone, steps: 0 };
                search.run(base - cycles)?.checked_add(cycles)
            }
            Times::Every(seconds) => base.checked_add(*seconds),
            Times::Never => None,
        }
    }
}

/// Returns the seconds, in whole cycles of the Gregorian calendar, by which to move `base` back so that the search
/// limit is within the range of the calendar library. A cycle of 400 years is a whole number of weeks, and the rules of
/// a zone for the far future are the same each year, so the result is unaffected.
fn calendar_shift(base: i64) -> i64 {
    /// The first second of year 9900.
    const END: i64 = 250_246_627_200;
    const CYCLE: i64 = 146_097 * 86_400;
    if base < END { 0 } else { ((base - END) / CYCLE + 1) * CYCLE }
}

/// Finds a zone by name, ignoring quotes around it.
fn find_zone(text: &str) -> Option<TimeZone> {
    /// The bundled database, so that the result is the same on every host.
    static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let name = quoted('"').or_else(|| quoted('\'')).unwrap_or(text);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+:-".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(allowed) {
        return None;
    }
    match name {
        "UTC" => Some(TimeZone::UTC),
        "Local" => Some(TimeZone::system()),
        _ => {
            let zone = ZONES.get(name).ok()?;
            // The database ignores case and has a name for "unknown"; Go does neither.
            (zone.iana_name() == Some(name) && !zone.is_unknown()).then_some(zone)
        }
    }
}

fn descriptor(text: &str) -> Option<Times> {
    let expanded = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        "@triggered" | "@manual" | "@none" => return Some(Times::Never),
        _ => {
            let nanos = strconv::parse_duration(text.strip_prefix("@every ")?).ok()?;
            return Some(nanos.div_euclid(1_000_000_000)).filter(|s| *s >= 1).map(Times::Every);
        }
    };
    fields(expanded)
}

fn fields(text: &str) -> Option<Times> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = fields[..] else { return None };
    let weekdays = WEEKDAYS.parse(weekdays)?;
    Some(Times::Fields(Fields {
        minutes: MINUTES.parse(minutes)?,
        hours: HOURS.parse(hours)?,
        days: DAYS.parse(days)?,
        months: MONTHS.parse(months)?,
        // Sunday is both 0 and 7.
        weekdays: weekdays & 0x7f | weekdays >> 7,
    }))
}

/// The valid values of a field.
struct Bounds {
    min: u64,
    max: u64,
    /// Names of the values, starting at `min`.
    names: &'static [&'static str],
    /// Characters that no item may contain.
    extensions: &'static [char],
}

const MINUTES: Bounds = Bounds::new(0, 59);
const HOURS: Bounds = Bounds::new(0, 23);
const DAYS: Bounds = Bounds { extensions: &['L', 'l', 'W', 'w'], ..Bounds::new(1, 31) };
const MONTHS: Bounds = Bounds {
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    ..Bounds::new(1, 12)
};
const WEEKDAYS: Bounds = Bounds {
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    extensions: &['#'],
    ..Bounds::new(0, 7)
};

impl Bounds {
    const fn new(min: u64, max: u64) -> Self {
        Self { min, max, names: &[], extensions: &[] }
    }

    /// Parses a comma-separated list of ranges into bits. Empty items are ignored.
    fn parse(&self, text: &str) -> Option<u64> {
        let items = text.split(',').filter(|item| !item.is_empty());
        items.map(|item| self.range(item)).try_fold(0, |bits, range| Some(bits | range?))
    }

    /// Parses `*`, `a` or `a-b`, each with an optional `/step`. A range whose start is above its end wraps around, and
    /// its start may then also be above the highest value.
    fn range(&self, text: &str) -> Option<u64> {
        // Unsupported extension characters, at any position.
        if text.contains(self.extensions) {
            return None;
        }
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (text, None),
        };
        let mut ends = range.split('-');
        let (start, end) = match (ends.next(), ends.next(), ends.next()) {
            // A star ignores any end of its range.
            (Some("*" | "?"), _, _) => (self.min, self.max),
            (Some(start), end, None) => {
                let start = self.value(start)?;
                let end = match end {
                    Some(end) => self.value(end)?,
                    None if step.is_some() => self.max,
                    None => start,
                };
                (start, end)
            }
            _ => return None,
        };
        let values = self.max - self.min + 1;
        let wraps = start > end;
        // A start far above the end leaves no values; the size then wraps around to a huge one, which allows every
        // step.
        let size = (if wraps { values } else { 0 }).wrapping_sub(start).wrapping_add(end + 1);
        let step = step.unwrap_or(1);
        if start < self.min || end > self.max || step == 0 || step > 1 && step >= size {
            return None;
        }
        let last = if wraps { end + values } else { end };
        let mut bits = 0;
        let mut next = Some(start);
        while let Some(value) = next.filter(|&value| value <= last) {
            bits |= 1 << if value > self.max { value - values } else { value };
            next = value.checked_add(step);
        }
        Some(bits)
    }

    fn value(&self, text: &str) -> Option<u64> {
        let named = (self.min..).zip(self.names).find(|(_, name)| name.eq_ignore_ascii_case(text));
        named.map(|(value, _)| value).or_else(|| number(text))
    }
}

/// Parses a decimal number that fits 63 bits, with an optional plus sign.
fn number(text: &str) -> Option<u64> {
    text.parse::<i64>().ok().and_then(|number| u64::try_from(number).ok())
}

/// The search for the next match, coarse units first.
struct Search<'s> {
    fields: &'s Fields,
    zone: &'s TimeZone,
    steps: u32,
}

impl Search<'_> {
    /// The maximum number of search steps, more than any schedule and zone need. It ends the search in a zone that
    /// keeps moving it back.
    const MAX_STEPS: u32 = 20_000;

    fn run(&mut self, base: i64) -> Option<i64> {
        let Fields { minutes, hours, days, months, weekdays } = *self.fields;
        if [minutes, hours, days, months, weekdays].contains(&0) {
            return None;
        }
        let mut at = base.checked_add(1)?;
        let last_year = self.local(at)?.year().checked_add(YEARS_AHEAD)?;
        // Once a unit did not match, all smaller ones start at their minimum.
        let mut aligned = false;
        'again: loop {
            let mut now = self.local(at)?;
            if now.year() > last_year {
                return None;
            }
            while months >> now.month() & 1 == 0 {
                if !aligned {
                    aligned = true;
                    now = self.local(self.unix(now.date().first_of_month().at(0, 0, 0, 0))?)?;
                }
                at = self.unix(next_month(now)?)?;
                now = self.local(at)?;
                if now.month() == 1 {
                    continue 'again;
                }
            }
            while days >> now.day() & 1 == 0 || weekdays >> weekday(now) & 1 == 0 {
                if !aligned {
                    aligned = true;
                    at = self.unix(now.date().at(0, 0, 0, 0))?;
                    now = self.local(at)?;
                }
                (at, now) = self.next_day(at, now)?;
                if now.day() == 1 {
                    continue 'again;
                }
            }
            while hours >> now.hour() & 1 == 0 {
                if !aligned {
                    aligned = true;
                    at = self.unix(now.date().at(now.hour(), 0, 0, 0))?;
                    now = self.local(at)?;
                }
                let before = now.hour();
                at = at.checked_add(3600)?;
                now = self.local(at)?;
                if now.hour() == 0 {
                    continue 'again;
                }
                if now.hour() == before + 2 && hours >> (before + 1) & 1 == 1 {
                    break;
                }
            }
            while minutes >> now.minute() & 1 == 0 {
                if !aligned {
                    aligned = true;
                    at -= at.rem_euclid(60);
                }
                at = at.checked_add(60)?;
                now = self.local(at)?;
                if now.minute() == 0 {
                    continue 'again;
                }
            }
            if now.second() != 0 {
                aligned = true;
                at = at.checked_add(60 - i64::from(now.second()))?;
                continue 'again;
            }
            return Some(at);
        }
    }

    /// Returns midnight of the next day, or the hour after it if the zone has no midnight.
    fn next_day(&mut self, at: i64, now: DateTime) -> Option<(i64, DateTime)> {
        // A zone can skip a day.
        for days in 1..=2 {
            let mut later = self.unix(now.checked_add(days.days()).ok()?)?;
            let mut then = self.local(later)?;
            let hour = i64::from(then.hour());
            if hour != 0 {
                later = if hour > 12 { later + (24 - hour) * 3600 } else { later - hour * 3600 };
                then = self.local(later)?;
            }
            if later > at {
                return Some((later, then));
            }
        }
        None
    }

    /// Returns the zone's local time.
    fn local(&mut self, unix: i64) -> Option<DateTime> {
        self.steps += 1;
        if self.steps > Self::MAX_STEPS {
            return None;
        }
        let time = Timestamp::from_second(unix).ok()?;
        Some(self.zone.to_offset(time).to_datetime(time))
    }

    /// Returns the unix time of a local time. If there are two or none, it chooses like Go's `time.Date`: by the offset
    /// in effect at the time of a first guess.
    fn unix(&self, local: DateTime) -> Option<i64> {
        let local = TimeZone::UTC.to_timestamp(local).ok()?.as_second();
        let offset = |unix| {
            let time = Timestamp::from_second(unix).ok()?;
            Some(i64::from(self.zone.to_offset(time).seconds()))
        };
        let guess = local - offset(local)?;
        Some(local - offset(guess)?)
    }
}

/// Returns the number of days since Sunday.
fn weekday(now: DateTime) -> i8 {
    now.weekday().to_sunday_zero_offset()
}

/// Returns the same day and time of the next month; a day past its end carries over into the month after.
fn next_month(now: DateTime) -> Option<DateTime> {
    let (year, month) = match now.month() {
        12 => (now.year().checked_add(1)?, 1),
        month => (now.year(), month + 1),
    };
    let first = Date::new(year, month, 1).ok()?;
    let date = first.checked_add((i64::from(now.day()) - 1).days()).ok()?;
    Some(date.to_datetime(now.time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, zone: Option<&str>, base: i64) -> Option<Option<i64>> {
        Some(Schedule::parse(schedule, zone)?.next(base))
    }

    fn unix(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    /// The recorded schedules assume that the process runs in UTC. The host's zone may differ, so schedules without a
    /// zone get UTC.
    fn utc<'s>(schedule: &str, zone: Option<&'s str>) -> Option<&'s str> {
        let named = schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=");
        match zone {
            Some("Local") => Some("UTC"),
            None if !named => Some("UTC"),
            zone => zone,
        }
    }

    #[test]
    fn recorded_schedules() {
        for case in crate::recorded::cases("ksm/cron.json", 1401) {
            let schedule = case["schedule"].as_str().unwrap();
            let zone = utc(schedule, case["timezone"].as_str());
            let next = next(schedule, zone, unix(case["after"].as_str().unwrap()));
            if case["invalid"] == true {
                assert!(next.is_none(), "{case}: {next:?}");
                continue;
            }
            assert_eq!(next.unwrap().unwrap_or(-62_135_596_800), case["next"], "{case}");
        }
    }

    fn walk(schedule: &str, after: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(schedule, None).unwrap();
        let mut at = unix(after);
        let times = std::iter::from_fn(|| {
            at = schedule.next(at)?;
            Some(Timestamp::from_second(at).unwrap().to_string())
        });
        times.take(count).collect()
    }

    #[test]
    fn skipped_and_repeated_hours() {
        let new_york = |schedule: &str| format!("TZ=America/New_York {schedule}");
        assert_eq!(
            walk(&new_york("30 2 * * *"), "2024-03-10T06:00:00Z", 2),
            ["2024-03-10T07:30:00Z", "2024-03-11T06:30:00Z"]
        );
        assert_eq!(
            walk(&new_york("30 2 * * *"), "2024-03-10T07:10:00Z", 1),
            ["2024-03-11T06:30:00Z"]
        );
        assert_eq!(
            walk(&new_york("30 1 * * *"), "2024-11-03T04:00:00Z", 3),
            ["2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z", "2024-11-04T06:30:00Z"]
        );
        let lord_howe = "TZ=Australia/Lord_Howe */15 2 * * *";
        assert_eq!(
            walk(lord_howe, "2024-10-05T12:00:00Z", 3),
            ["2024-10-05T15:30:00Z", "2024-10-05T15:45:00Z", "2024-10-06T15:00:00Z"]
        );
        assert_eq!(
            walk("TZ=America/Sao_Paulo 0 0 * * *", "2018-11-03T05:00:00Z", 1),
            ["2018-11-05T02:00:00Z"]
        );
    }

    #[test]
    fn a_zone_that_skips_a_day() {
        assert_eq!(
            walk("TZ=Pacific/Apia 30 2 30 12 *", "2011-12-29T05:00:00Z", 1),
            ["2012-12-29T12:30:00Z"]
        );
        assert_eq!(
            walk("TZ=Pacific/Apia 30 2 31 12 *", "2011-12-29T05:00:00Z", 1),
            ["2011-12-30T12:30:00Z"]
        );
    }

    #[test]
    fn ranges() {
        let values = |bounds: &Bounds, text: &str| {
            let bits = bounds.parse(text).unwrap();
            (0..64).filter(|value| bits >> value & 1 == 1).collect::<Vec<u32>>()
        };
        assert_eq!(values(&HOURS, "22-2/3"), [1, 22]);
        assert_eq!(values(&MINUTES, "50-10/20"), [10, 50]);
        assert_eq!(values(&MINUTES, "5/54"), [5, 59]);
        assert_eq!(values(&WEEKDAYS, "5-1/2"), [1, 5, 7]);
        assert_eq!(values(&WEEKDAYS, "FRI-mon"), [0, 1, 5, 6, 7]);
        assert_eq!(values(&MONTHS, "*/11"), [1, 12]);
        assert_eq!(values(&MINUTES, "*-99/30,,+7"), [0, 7, 30]);
        assert_eq!(values(&MINUTES, "60-1"), [0, 1]);
        assert_eq!(values(&HOURS, "31/8"), [7, 15, 23]);
        assert_eq!(values(&DAYS, "29-0"), [29, 30, 31]);
        assert!(values(&HOURS, "34-8/2").is_empty());
        assert!(values(&DAYS, ",").is_empty());
        for text in ["5/55", "50-10/21", "5-10/6", "1-1/2", "*/0", "5-", "-5", "*5", "1-2-3", "60"]
        {
            assert!(MINUTES.parse(text).is_none(), "{text}");
        }
        for text in ["7/2", "*/8", "monday", "jan", "8", "*-5#1"] {
            assert!(WEEKDAYS.parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn invalid_schedules() {
        for (schedule, zone) in [
            ("* * * *", None),
            ("* 24 * * *", None),
            ("* * * * *", Some("Nope")),
            ("@reboot", None),
            (&"*".repeat(1025), None),
        ] {
            assert!(Schedule::parse(schedule, zone).is_none(), "{schedule} {zone:?}");
        }
    }

    #[test]
    fn beyond_the_end_of_the_calendar() {
        for (schedule, zone, base, want) in [
            ("* * * * *", "UTC", 253_402_207_199, 253_402_207_200),
            ("* * * * *", "UTC", 253_402_300_799, 253_402_300_800),
            ("0 0 29 2 *", "UTC", 253_402_300_799, 253_407_398_400),
            ("0 0 29 2 *", "UTC", 253_370_764_799, 253_407_398_400),
            ("0 3 * * 0", "America/New_York", 253_402_300_799, 253_402_416_000),
            ("30 2 1 3 *", "Asia/Kolkata", 253_402_207_199, 253_407_474_000),
            ("@every 1h", "UTC", 253_402_300_799, 253_402_304_399),
            ("0 0 1 1 *", "Pacific/Auckland", 253_402_300_799, 253_433_876_400),
            ("0 0 1 1 *", "Pacific/Auckland", 253_281_254_400, 253_307_646_000),
            ("15 1 31 10 *", "Europe/Berlin", 253_213_084_799, 253_239_178_500),
        ] {
            assert_eq!(
                next(schedule, Some(zone), base),
                Some(Some(want)),
                "{schedule} {zone} {base}"
            );
        }
        assert_eq!(next("0 0 30 2 *", Some("UTC"), 253_402_300_799), Some(None));
        assert_eq!(calendar_shift(unix("9899-12-31T23:59:59Z")), 0);
        assert_ne!(calendar_shift(unix("9900-01-01T00:00:00Z")), 0);
    }

    #[test]
    fn times_at_the_ends_of_the_calendar() {
        for base in [i64::MIN, i64::MAX, -62_135_596_800, 253_402_300_799] {
            for schedule in ["* * * * *", "0 0 29 2 *", "@every 2562047h"] {
                for zone in ["UTC", "Asia/Kolkata", "America/New_York"] {
                    let _ = next(schedule, Some(zone), base);
                }
            }
        }
    }
}
