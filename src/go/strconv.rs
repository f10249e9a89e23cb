//! Parsing of flag values in Go's syntax, with the error texts of `strconv` and `time`.

use std::time::Duration;

use thiserror::Error;

use super::float::{self, GoFloatError as NumberError};

/// Quotes text like Go's `slog`: only if it would be ambiguous otherwise.
pub(crate) fn quote_if_needed(text: &str) -> String {
    let plain = |c: char| c > ' ' && c != '"' && c != '=' && c != '\\' && !c.is_control();
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { quote(text) }
}

/// Quotes text like Go's `strconv.Quote`.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                quoted.push_str(&format!("\\x{:02x}", c as u32));
            }
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The reason why a text is not a value, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// It is not a value of this kind.
    #[error("strconv.{function}: parsing {}: invalid syntax", quote(text))]
    Syntax {
        /// The function of `strconv`.
        function: &'static str,
        /// The text that was parsed.
        text: String,
    },
    /// It is too large.
    #[error("strconv.{function}: parsing {}: value out of range", quote(text))]
    Range {
        /// The function of `strconv`.
        function: &'static str,
        /// The text that was parsed.
        text: String,
    },
    /// It is not a duration, or too long a one.
    #[error("time: invalid duration {}", quote(.0))]
    Duration(String),
    /// It is a duration without a unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// It is a duration with an unknown unit.
    #[error("time: unknown unit {} in duration {}", quote(unit), quote(text))]
    UnknownUnit {
        /// The unknown unit.
        unit: String,
        /// The text that was parsed.
        text: String,
    },
}

fn error(function: &'static str, text: &str, reason: NumberError) -> ParseError {
    let text = text.to_owned();
    match reason {
        NumberError::Syntax => ParseError::Syntax { function, text },
        NumberError::Range => ParseError::Range { function, text },
    }
}

/// Parses a boolean like `strconv.ParseBool`.
///
/// # Errors
///
/// The text is not an accepted word.
pub fn parse_bool(text: &str) -> Result<bool, ParseError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(error("ParseBool", text, NumberError::Syntax)),
    }
}

/// Parses an integer like `strconv.ParseInt` with base 0: prefixes `0x`, `0b`, `0o`, `0`, and underscores between
/// digits.
///
/// # Errors
///
/// The text is not such a number or does not fit into `bits`.
pub fn parse_int(text: &str, bits: u32) -> Result<i64, ParseError> {
    signed(text, bits, magnitude)
}

/// Parses an integer like `strconv.ParseInt` with base 10: decimal digits, also after leading zeros.
///
/// # Errors
///
/// The text is not such a number or does not fit into `bits`.
pub fn parse_decimal(text: &str, bits: u32) -> Result<i64, ParseError> {
    signed(text, bits, |digits| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true if !digits.is_empty() => digits.parse().map_err(|_| NumberError::Range),
        _ => Err(NumberError::Syntax),
    })
}

fn signed(
    text: &str,
    bits: u32,
    magnitude: impl Fn(&str) -> Result<u64, NumberError>,
) -> Result<i64, ParseError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let error = |reason| error("ParseInt", text, reason);
    let magnitude = magnitude(digits).map_err(error)?;
    let limit = 1_u64 << (bits - 1);
    match (negative, magnitude) {
        (true, magnitude) if magnitude <= limit => Ok((magnitude as i64).wrapping_neg()),
        (false, magnitude) if magnitude < limit => Ok(magnitude as i64),
        _ => Err(error(NumberError::Range)),
    }
}

/// Parses an integer like `strconv.ParseUint` with base 0 and 64 bits.
///
/// # Errors
///
/// The text is not such a number.
pub fn parse_uint(text: &str) -> Result<u64, ParseError> {
    magnitude(text).map_err(|reason| error("ParseUint", text, reason))
}

fn magnitude(text: &str) -> Result<u64, NumberError> {
    let (radix, digits) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &text[2..]),
        [b'0', b'b' | b'B', ..] => (2, &text[2..]),
        [b'0', b'o' | b'O', ..] => (8, &text[2..]),
        [b'0', _, ..] => (8, &text[1..]),
        _ => (10, text),
    };
    let plain = digits.replace('_', "");
    let is_number = !plain.is_empty()
        && plain.chars().all(|digit| digit.is_digit(radix))
        && float::underscores_separate_digits(digits.as_bytes(), radix != 10);
    if !is_number {
        return Err(NumberError::Syntax);
    }
    u64::from_str_radix(&plain, radix).map_err(|_| NumberError::Range)
}

/// Parses a number like `strconv.ParseFloat`.
///
/// # Errors
///
/// The text is not a number in Go's syntax, or is too large.
pub fn parse_float(text: &str) -> Result<f64, ParseError> {
    float::parse(text.as_bytes()).map_err(|reason| error("ParseFloat", text, reason))
}

/// The units of `time.ParseDuration`, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The additional units of kingpin, in nanoseconds.
const LONG_UNITS: [(&str, u64); 2] = [("d", 86_400_000_000_000), ("w", 604_800_000_000_000)];

/// Parses a duration like `time.ParseDuration`, in nanoseconds.
///
/// # Errors
///
/// The text is empty, has no unit, has an unknown unit or does not fit into 64 bits.
pub fn parse_duration(text: &str) -> Result<i64, ParseError> {
    duration(text, &[])
}

/// Parses a duration with days and weeks, like kingpin's duration flags.
///
/// # Errors
///
/// As [`parse_duration`].
pub fn parse_long_duration(text: &str) -> Result<i64, ParseError> {
    duration(text, &LONG_UNITS)
}

fn duration(text: &str, more: &[(&str, u64)]) -> Result<i64, ParseError> {
    let invalid = || ParseError::Duration(text.to_owned());
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let unit_end = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        if unit.is_empty() {
            return Err(ParseError::MissingUnit(text.to_owned()));
        }
        let known = UNITS.iter().chain(more).find(|(name, _)| *name == unit);
        let Some((_, nanos)) = known else {
            let (unit, text) = (unit.to_owned(), text.to_owned());
            return Err(ParseError::UnknownUnit { unit, text });
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        // Go ignores digits for which the fraction as an integer would not fit.
        let (mut part, mut scale) = (0_u64, 1.0);
        for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
            let longer = part.checked_mul(10).and_then(|part| part.checked_add(digit));
            let Some(longer) = longer.filter(|longer| *longer <= 1 << 63) else { break };
            (part, scale) = (longer, scale * 10.0);
        }
        let part = part as f64 * (*nanos as f64 / scale);
        total = whole
            .checked_mul(*nanos)
            .and_then(|nanos| nanos.checked_add(part as u64))
            .and_then(|nanos| total.checked_add(nanos))
            .filter(|nanos| *nanos <= 1 << 63)
            .ok_or_else(invalid)?;
        rest = tail;
    }
    match (negative, total) {
        (true, total) => Ok((total as i64).wrapping_neg()),
        (false, total) => i64::try_from(total).map_err(|_| invalid()),
    }
}

/// Converts a Go duration to a timeout; zero and negative values mean none.
pub fn positive_duration(nanos: i64) -> Option<Duration> {
    u64::try_from(nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error<T: std::fmt::Debug>(result: Result<T, ParseError>) -> String {
        result.expect_err("an error").to_string()
    }

    #[test]
    fn integers() {
        assert_eq!(parse_int("0x10", 64), Ok(16));
        assert_eq!(parse_int("-0b11", 64), Ok(-3));
        assert_eq!(parse_int("0o7", 64), Ok(7));
        assert_eq!(parse_int("010", 64), Ok(8));
        assert_eq!(parse_int("+1_000", 64), Ok(1000));
        assert_eq!(parse_int("0x_1f", 64), Ok(31));
        assert_eq!(parse_int("-9223372036854775808", 64), Ok(i64::MIN));
        assert_eq!(
            error(parse_int("9223372036854775808", 64)),
            "strconv.ParseInt: parsing \"9223372036854775808\": value out of range"
        );
        assert_eq!(parse_int("2147483647", 32), Ok(2_147_483_647));
        assert!(parse_int("2147483648", 32).is_err_and(|e| matches!(e, ParseError::Range { .. })));
        for text in ["", "abc", "1.5", "1__0", "_1", "1_", "0x", "08", "1e3", "--1"] {
            let expected = format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
            assert_eq!(error(parse_int(text, 64)), expected);
        }
    }

    #[test]
    fn unsigned() {
        assert_eq!(parse_uint("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(error(parse_uint("-1")), "strconv.ParseUint: parsing \"-1\": invalid syntax");
        assert!(
            parse_uint("18446744073709551616")
                .is_err_and(|e| matches!(e, ParseError::Range { .. }))
        );
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("1m30s"), Ok(90_000_000_000));
        assert_eq!(parse_duration("500ms"), Ok(500_000_000));
        assert_eq!(parse_duration("-1.5h"), Ok(-5_400_000_000_000));
        assert_eq!(parse_duration(".5s"), Ok(500_000_000));
        assert_eq!(parse_duration("0"), Ok(0));
        for (text, expected) in [
            ("", "time: invalid duration \"\""),
            ("abc", "time: invalid duration \"abc\""),
            (" 1s", "time: invalid duration \" 1s\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("9999999h", "time: invalid duration \"9999999h\""),
            (".s", "time: invalid duration \".s\""),
            ("-", "time: invalid duration \"-\""),
        ] {
            assert_eq!(error(parse_duration(text)), expected, "{text}");
        }
        assert_eq!(parse_long_duration("1w1d"), Ok(8 * 86_400_000_000_000));
    }

    #[test]
    fn limits_and_units_of_durations() {
        let cases = [
            ("0", Some(0)),
            ("+0", Some(0)),
            ("1h1m", Some(3_660_000_000_000)),
            (".5s", Some(500_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            ("0.3333333333333333333h", Some(1_200_000_000_000)),
            ("0.100000000000000000000h", Some(360_000_000_000)),
            ("5us", Some(5_000)),
            ("5µs", Some(5_000)),
            ("5μs", Some(5_000)),
            ("-5s", Some(-5_000_000_000)),
            ("2562047h47m16.854775807s", Some(i64::MAX)),
            ("2562047h47m16.854775808s", None),
            ("-2562047h47m16.854775808s", Some(i64::MIN)),
            ("1S", None),
            ("10 s", None),
            ("1h-5m", None),
            ("s", None),
            ("00", None),
            ("99999999999999999999h", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse_duration(text).ok(), want, "{text}");
        }
    }

    #[test]
    fn booleans_and_floats() {
        assert_eq!(parse_bool("T"), Ok(true));
        assert!(parse_bool("yes").is_err());
        assert_eq!(parse_float("0x1p-1"), Ok(0.5));
        assert_eq!(error(parse_float("x")), "strconv.ParseFloat: parsing \"x\": invalid syntax");
    }
}
