//! Go's duration syntax (`1h20m`, `.5s`).
//!
//! The options files, mapping rules and cron schedules of both originals use it. The command line parses flags itself,
//! since they accept more units and have Go's error texts.

/// Parses `text` like Go's `time.ParseDuration`, into nanoseconds. Returns `None` if it is not a duration, or longer
/// than 292 years.
pub fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (whole, after) = take_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => take_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let unit: u64 = match after.get(..end)? {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        rest = after.get(end..)?;
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part =
            if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse::<f64>().ok()? };
        // Below one unit, so the cast neither overflows nor sees a sign.
        let part = (part * unit as f64) as u64;
        total = total.checked_add(whole.checked_mul(unit)?)?.checked_add(part)?;
    }
    match (negative, i64::try_from(total)) {
        (false, Ok(total)) => Some(total),
        (true, Ok(total)) => Some(-total),
        (true, Err(_)) if total == 1 << 63 => Some(i64::MIN),
        _ => None,
    }
}

fn take_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let cases = [
            ("0", Some(0)),
            ("+0", Some(0)),
            ("1h1m", Some(3_660_000_000_000)),
            (".5s", Some(500_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            ("5us", Some(5_000)),
            ("5µs", Some(5_000)),
            ("5μs", Some(5_000)),
            ("-5s", Some(-5_000_000_000)),
            ("2562047h47m16.854775807s", Some(i64::MAX)),
            ("2562047h47m16.854775808s", None),
            ("-2562047h47m16.854775808s", Some(i64::MIN)),
            ("", None),
            ("-", None),
            ("5", None),
            ("1d", None),
            ("1S", None),
            ("10 s", None),
            ("1h-5m", None),
            (".s", None),
            ("s", None),
            ("00", None),
            ("99999999999999999999h", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text), want, "{text}");
        }
    }
}
