//! Any text as the schedule and time zone of a CronJob: rejected, or due after the given time.
//!
//! The time zone follows a line break.
#![no_main]

use kstatd::resources::values::cron::Schedule;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (i64, &str)| {
    let (base, text) = input;
    let (text, zone) =
        text.split_once('\n').map_or((text, None), |(text, zone)| (text, Some(zone)));
    let Some(schedule) = Schedule::parse(text, zone) else { return };
    for base in [base, base % 100_000_000_000, 0] {
        assert!(schedule.next(base).is_none_or(|next| next > base));
    }
});
