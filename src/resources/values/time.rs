//! Times as the API writes them in JSON.
//!
//! A text goes in; unix seconds come out. Parsing follows Go's `time.Parse` for the layout of `metav1.Time`, because
//! objects can contain what it accepts beyond RFC 3339 (an hour of one digit, a comma before the fraction, offsets up to
//! 24:60), and cannot contain what it rejects. The seconds are counted here, because jiff's points in time do not cover
//! the whole range from year 0 to year 9999, offsets included.

use jiff::civil::Date;
use thiserror::Error;

/// A text that is not a time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a time like 2006-01-02T15:04:05Z")]
pub struct TimeError(String);

/// Parses a `metav1.Time` or `metav1.MicroTime`: `2006-01-02T15:04:05Z`, with an optional fraction of any length, and `Z`
/// or an offset. Returns unix seconds, rounded down, and whether they were rounded.
///
/// # Errors
///
/// The text has another form.
pub fn parse(text: &str) -> Result<(i64, bool), TimeError> {
    read(text).ok_or_else(|| TimeError(text.to_owned()))
}

const EPOCH: Date = Date::constant(1970, 1, 1);

fn read(text: &str) -> Option<(i64, bool)> {
    let mut rest = Rest(text.as_bytes());
    let year = rest.digits(4)?;
    rest.byte(b'-')?;
    let month = rest.digits(2)?;
    rest.byte(b'-')?;
    let day = rest.digits(2)?;
    let date = Date::new(year as i16, month as i8, day as i8).ok()?;
    rest.byte(b'T')?;
    let hour = rest.digits(2).or_else(|| rest.digits(1)).filter(|hour| *hour < 24)?;
    rest.byte(b':')?;
    let minute = rest.digits(2).filter(|minute| *minute < 60)?;
    rest.byte(b':')?;
    let second = rest.digits(2).filter(|second| *second < 60)?;
    let has_fraction = rest.fraction();
    let offset = rest.offset()?;
    if !rest.0.is_empty() {
        return None;
    }
    let seconds =
        date.duration_since(EPOCH).as_secs() + hour * 3600 + minute * 60 + second - offset;
    Some((seconds, has_fraction))
}

/// The unparsed rest of a text. Methods that return `None` consume nothing.
struct Rest<'t>(&'t [u8]);

impl Rest<'_> {
    /// Parses a number of exactly `count` digits.
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        let number = digits.iter().try_fold(0, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
        })?;
        self.0 = rest;
        Some(number)
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    /// Parses a fraction and returns whether it is more than 0; digits beyond the ninth are ignored.
    fn fraction(&mut self) -> bool {
        let [b'.' | b',', rest @ ..] = self.0 else { return false };
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = rest.split_at(length);
        if length > 0 {
            self.0 = rest;
        }
        digits.iter().take(9).any(|digit| *digit != b'0')
    }

    /// Parses an offset into seconds east of UTC.
    fn offset(&mut self) -> Option<i64> {
        if self.byte(b'Z').is_some() {
            return Some(0);
        }
        let sign = match self.byte(b'+') {
            Some(()) => 1,
            None => self.byte(b'-').map(|()| -1)?,
        };
        let hours = self.digits(2).filter(|hours| *hours <= 24)?;
        self.byte(b':')?;
        let minutes = self.digits(2).filter(|minutes| *minutes <= 60)?;
        Some(sign * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<i64> {
        parse(text).ok().map(|(seconds, _)| seconds)
    }

    #[test]
    fn accepted_texts() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", 0),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
            ("9999-12-31T23:59:59-24:00", 253_402_387_199),
            ("9999-12-31T23:59:59-24:60", 253_402_390_799),
            ("0000-01-01T00:00:00Z", -62_167_219_200),
            ("0000-01-01T00:00:00+24:00", -62_167_305_600),
            ("2024-01-01T5:00:00Z", 1_704_085_200),
            ("2024-01-01T05:00:00+23:60", 1_703_998_800),
            ("2024-01-01T05:00:00.123456789012Z", 1_704_085_200),
            ("2024-01-01T05:00:00,5Z", 1_704_085_200),
            ("2024-02-29T00:00:00Z", 1_709_164_800),
            ("2024-01-01T00:00:00-00:00", 1_704_067_200),
            ("1969-12-31T23:59:59.5Z", -1),
            ("0001-01-01T01:00:00+01:00", -62_135_596_800),
        ] {
            assert_eq!(seconds(text), Some(want), "{text}");
        }
    }

    #[test]
    fn rejected_texts() {
        for text in [
            "",
            "2024-01-01T05:00:00z",
            "2024-01-01t05:00:00Z",
            "2024-01-01T05:00:00+24:61",
            "2024-01-01T05:00:00+25:00",
            "2024-01-01T05:00:00+0100",
            "2024-01-01T05:00:00+1:00",
            "2024-01-01T05:00:00 01:00",
            "2024-01-01T05:00:00.Z",
            "2024-01-01T05:00:60Z",
            "2024-01-01T05:60:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T005:00:00Z",
            "2023-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2024-02-30T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-1-01T00:00:00Z",
            "2024-01-01 00:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.5",
            "2024-01-01T00:00:00ZZ",
            "2024-01-01T00:00Z",
            " 2024-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "-001-01-01T00:00:00Z",
            "+024-01-01T00:00:00Z",
            "2024-01-01T00:00:00Zé",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = parse("x").expect_err("no time").to_string();
        assert_eq!(error, "\"x\" is not a time like 2006-01-02T15:04:05Z");
    }

    #[test]
    fn fractions() {
        for (text, is_more) in [
            (".5Z", true),
            (".9999999999+01:00", true),
            (",000000001Z", true),
            (".0000000001Z", false),
            (".000000Z", false),
            ("Z", false),
        ] {
            let parsed = parse(&format!("0001-01-01T00:00:00{text}")).expect(text);
            assert_eq!(parsed.1, is_more, "{text}");
        }
    }
}
