//! Formats numbers, sizes, times and strings for people.

use std::borrow::Cow;

/// Escapes a string for one line on a terminal: control characters, other invisible ones, and
/// bidirectional formatting.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| matches!(c, ' '..='~');
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_plain(character) {
            out.push(character);
        } else {
            out.extend(character.escape_debug());
        }
    }
    Cow::Owned(out)
}

/// Returns lines with a line feed each, of which every one is printable.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(line))).collect()
}

/// Joins the first `most` names, and counts the others.
pub(crate) fn some_names<N: AsRef<str>>(names: impl IntoIterator<Item = N>, most: usize) -> String {
    let mut names = names.into_iter();
    let shown: Vec<N> = names.by_ref().take(most).collect();
    let text = shown.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    match names.count() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// Truncates a text to this number of characters.
pub(crate) fn truncated(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Serialises a value as one line of JSON that is safe for a terminal.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut out = String::with_capacity(text.len() + 1);
    let mut units = [0; 2];
    for character in text.chars() {
        match character {
            ' '..='~' => out.push(character),
            other => other
                .encode_utf16(&mut units)
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    out.push('\n');
    out
}

/// Formats an integer with thousands separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with three digits and an SI prefix.
fn scaled(number: f64) -> String {
    let mut rest = number;
    for prefix in ["", "k", "M", "G", "T"] {
        if rest.abs() < 999.5 || prefix == "T" {
            let digits = match rest.abs() {
                x if x == 0.0 || x >= 99.95 => 0,
                x if x >= 9.995 && prefix.is_empty() => 0,
                x if x >= 9.995 => 1,
                x if prefix.is_empty() && (x - x.round()).abs() < 0.005 => 0,
                _ => 2,
            };
            let space = if prefix.is_empty() { "" } else { " " };
            return format!("{rest:.digits$}{space}{prefix}");
        }
        rest /= 1000.0;
    }
    String::new()
}

/// Formats a rate per second.
pub(crate) fn rate(number: f64) -> String {
    format!("{}/s", scaled(number))
}

/// Formats a size in bytes.
pub(crate) fn bytes(number: f64) -> String {
    let text = scaled(number);
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        format!("{text} B")
    } else {
        format!("{text}B")
    }
}

/// Formats a duration in one or two units.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    let two = |large: u64, small: u64, names: [&str; 2]| {
        if small == 0 || large >= 10 {
            format!("{large} {}", names[0])
        } else {
            format!("{large} {} {small} {}", names[0], names[1])
        }
    };
    match whole {
        0..120 => format!("{whole} s"),
        120..7_200 => two(whole / 60, whole % 60, ["min", "s"]),
        7_200..172_800 => two(whole / 3_600, whole % 3_600 / 60, ["h", "min"]),
        _ => two(whole / 86_400, whole % 86_400 / 3_600, ["d", "h"]),
    }
}

/// The seconds by which a time may be ahead of the clock. What is further ahead was noted before the clock was set back, and counts
/// as old.
const MAX_AHEAD: f64 = 10.0;

/// Returns true if something was noted within the last `age` seconds.
pub(super) fn is_recent(now: f64, at: f64, age: f64) -> bool {
    (-MAX_AHEAD..age).contains(&(now - at))
}

/// Formats the UTC time of day, with the date if it is not close to `now`.
pub(crate) fn clock(at: f64, now: f64) -> String {
    let Ok(time) = jiff::Timestamp::from_second(at as i64) else { return String::new() };
    let text = time.to_string();
    let (date, time) = text.trim_end_matches('Z').split_once('T').unwrap_or_default();
    if now - at < 43_200.0 { format!("{time} UTC") } else { format!("{date} {time} UTC") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_after_the_present_are_old() {
        let now = 1_000_000.0;
        for (at, is_new) in [
            (now, true),
            (now - 299.0, true),
            (now - 300.0, false),
            (now + 5.0, true),
            (now + 7_200.0, false),
        ] {
            assert_eq!(is_recent(now, at, 300.0), is_new, "{at}");
        }
    }

    #[test]
    fn numbers_are_abbreviated() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [
            (0.0, "0/s"),
            (0.25, "0.25/s"),
            (3.0, "3/s"),
            (12.4, "12/s"),
            (999.6, "1.00 k/s"),
            (12_345.0, "12.3 k/s"),
        ] {
            assert_eq!(rate(number), text);
        }
        assert_eq!(bytes(212_992.0), "213 kB");
        assert_eq!(bytes(12.0), "12 B");
        assert_eq!(bytes(81_400_000.0), "81.4 MB");
    }

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("plain \\ \"text\" é 日本", "plain \\ \"text\" é 日本"),
            ("\u{1b}[2J\r\n\t\u{9b}1m", "\\u{1b}[2J\\r\\n\\t\\u{9b}1m"),
            ("a\u{202e}b\u{2066}c\u{7f}", "a\\u{202e}b\\u{2066}c\\u{7f}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn times() {
        for (seconds, text) in [
            (0.0, "0 ms"),
            (0.0123, "12 ms"),
            (1.0, "1.0 s"),
            (90.0, "90 s"),
            (480.0, "8 min"),
            (500.0, "8 min 20 s"),
            (3_000.0, "50 min"),
            (7_260.0, "2 h 1 min"),
            (200_000.0, "2 d 7 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(clock(1_700_000_000.0, 1_700_000_100.0), "22:13:20 UTC");
        assert_eq!(clock(1_700_000_000.0, 1_800_000_000.0), "2023-11-14 22:13:20 UTC");
    }
}
