//! Number parsing in Go's syntax.
//!
//! Both originals use Go's `strconv.ParseFloat`: the Kubernetes side for resource versions, the StatsD side for every
//! value and sampling rate. The grammar:
//!
//! * an optional sign, then decimal digits with at most one point (`5`, `5.`, `.5`) and an optional
//!   decimal exponent (`1e3`, `1E-3`);
//! * or an optional sign, `0x` and hexadecimal digits with at most one point, and then a binary exponent,
//!   which is mandatory (`0x1p4`; `0x10` is an error);
//! * an underscore is allowed between two digits, or between `0x` and a digit, nowhere else;
//! * `inf` and `infinity` in any letter case, with an optional sign; `nan` in any case, without one;
//! * no blanks around it, no digits outside ASCII. Overflow is an error, underflow is 0.

use std::borrow::Cow;

use thiserror::Error;

/// The reason why Go rejects a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GoFloatError {
    /// The text does not follow the grammar of the module's documentation.
    #[error("not a number in Go's floating-point syntax")]
    Syntax,
    /// The number is valid but exceeds the largest finite double.
    #[error("number out of the range of a double")]
    Range,
}

/// Parses `text` like Go's `strconv.ParseFloat(text, 64)`, rounding to the nearest double, ties to even.
///
/// # Errors
///
/// [`GoFloatError::Syntax`] if the text is not a number, [`GoFloatError::Range`] if it overflows. Callers that treat
/// both alike can ignore the difference.
#[inline]
pub fn parse(text: &[u8]) -> Result<f64, GoFloatError> {
    match short_decimal(text) {
        Some(value) => Ok(value),
        None => parse_any(text),
    }
}

/// The maximum number of decimal digits for which every integer is exact in a double.
const EXACT_DIGITS: usize = 15;

/// Powers of ten that are exact in a double, enough for [`EXACT_DIGITS`] decimal places.
const POW10: [f64; EXACT_DIGITS + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Parses the common case: a sign, at most 15 digits and a point. Numerator and power of ten are both exact, so one
/// division rounds correctly (W. Clinger, "How to Read Floating Point Numbers Accurately", 1990).
#[inline]
fn short_decimal(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    // The point is not a digit, hence one byte more than the digits.
    if digits.is_empty() || digits.len() > EXACT_DIGITS + 1 {
        return None;
    }
    let mut mantissa = 0u64;
    let mut places = None;
    let mut count = 0usize;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            mantissa = mantissa * 10 + u64::from(digit);
            count += 1;
        } else if byte == b'.' && places.is_none() {
            places = Some(count);
        } else {
            return None;
        }
    }
    if count == 0 || count > EXACT_DIGITS {
        return None;
    }
    let value = match places {
        None => mantissa as f64,
        Some(before) => mantissa as f64 / POW10.get(count - before)?,
    };
    Some(if negative { -value } else { value })
}

/// Parses everything that [`short_decimal`] does not handle.
#[cold]
fn parse_any(text: &[u8]) -> Result<f64, GoFloatError> {
    let (sign, rest) = match text {
        [b'-', rest @ ..] => (Some(true), rest),
        [b'+', rest @ ..] => (Some(false), rest),
        rest => (None, rest),
    };
    let magnitude = match rest {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits)?,
        _ if rest.eq_ignore_ascii_case(b"inf") => f64::INFINITY,
        _ if rest.eq_ignore_ascii_case(b"infinity") => f64::INFINITY,
        _ if sign.is_none() && rest.eq_ignore_ascii_case(b"nan") => f64::NAN,
        _ => decimal(rest)?,
    };
    Ok(if sign == Some(true) { -magnitude } else { magnitude })
}

/// Parses an unsigned decimal number. The standard library rounds correctly, and its grammar contains Go's except for
/// underscores. Letters other than the exponent's are rejected first, because the standard library accepts words.
fn decimal(text: &[u8]) -> Result<f64, GoFloatError> {
    if !text.first().is_some_and(|&byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(GoFloatError::Syntax);
    }
    let allowed = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-' | b'_');
    if !text.iter().all(allowed) {
        return Err(GoFloatError::Syntax);
    }
    let plain: Cow<'_, [u8]> = if text.contains(&b'_') {
        if !underscores_separate_digits(text, false) {
            return Err(GoFloatError::Syntax);
        }
        text.iter().copied().filter(|&byte| byte != b'_').collect()
    } else {
        text.into()
    };
    let plain = std::str::from_utf8(&plain).map_err(|_| GoFloatError::Syntax)?;
    let value: f64 = plain.parse().map_err(|_| GoFloatError::Syntax)?;
    if value.is_infinite() { Err(GoFloatError::Range) } else { Ok(value) }
}

/// The exponent at which a number is infinite or zero for every mantissa that fits into memory. Stopping here keeps the
/// sum of exponent and digit count from overflowing.
const EXPONENT_LIMIT: i64 = 1 << 40;

/// Parses the part after `0x`: hexadecimal digits with a binary exponent.
fn hexadecimal(text: &[u8]) -> Result<f64, GoFloatError> {
    let Some(split) = text.iter().position(|byte| matches!(byte, b'p' | b'P')) else {
        return Err(GoFloatError::Syntax);
    };
    let (digits, exponent) = (&text[..split], &text[split + 1..]);
    if text.contains(&b'_') && !underscores_separate_digits(text, true) {
        return Err(GoFloatError::Syntax);
    }

    // The value is `mantissa * 2^scale`, plus something smaller than the last bit when `sticky`.
    let mut mantissa = 0u64;
    let mut scale = 0i64;
    let mut sticky = false;
    let mut seen_digit = false;
    let mut seen_point = false;
    for &byte in digits {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'_' => continue,
            b'.' if !seen_point => {
                seen_point = true;
                continue;
            }
            _ => return Err(GoFloatError::Syntax),
        };
        seen_digit = true;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
            scale -= if seen_point { 4 } else { 0 };
        } else {
            sticky |= digit != 0;
            scale += if seen_point { 0 } else { 4 };
        }
    }
    if !seen_digit {
        return Err(GoFloatError::Syntax);
    }

    let (negative, exponent) = match exponent {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if !exponent.first().is_some_and(u8::is_ascii_digit) {
        return Err(GoFloatError::Syntax);
    }
    let mut power = 0i64;
    for &byte in exponent {
        match byte {
            b'0'..=b'9' => power = (power * 10 + i64::from(byte - b'0')).min(EXPONENT_LIMIT),
            b'_' => {}
            _ => return Err(GoFloatError::Syntax),
        }
    }
    scale += if negative { -power } else { power };
    assemble(mantissa, scale, sticky)
}

/// Returns the double nearest to `mantissa * 2^scale`, ties to even. `sticky` says that the exact value is slightly
/// larger.
fn assemble(mantissa: u64, scale: i64, sticky: bool) -> Result<f64, GoFloatError> {
    const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const BIAS: i64 = 1023;
    const MIN_EXPONENT: i64 = -1022;
    if mantissa == 0 {
        return Ok(0.0);
    }
    let lead = mantissa.leading_zeros();
    let mantissa = mantissa << lead;
    let exponent = scale - i64::from(lead) + 63;
    if exponent > BIAS {
        return Err(GoFloatError::Range);
    }
    let below_normal = (MIN_EXPONENT - exponent).max(0);
    // From 66 on the result is below half of the smallest double.
    let drop = (below_normal + 64 - i64::from(f64::MANTISSA_DIGITS)).min(66) as u32;
    let wide = u128::from(mantissa);
    let half = 1u128 << (drop - 1);
    let rest = wide & ((1 << drop) - 1);
    let mut kept = (wide >> drop) as u64;
    if rest > half || rest == half && (sticky || kept & 1 == 1) {
        kept += 1;
    }
    // Rounding up to the next power of two carries into the exponent field, which is what it should do,
    // also from the subnormal range into the normal one and from the largest double to infinity.
    let bits = if below_normal > 0 {
        kept
    } else {
        (((exponent + BIAS) as u64) << FRACTION_BITS) + (kept - (1 << FRACTION_BITS))
    };
    let value = f64::from_bits(bits);
    if value.is_infinite() { Err(GoFloatError::Range) } else { Ok(value) }
}

/// Checks Go's rule for underscores in a literal. `text` starts after the sign and any base prefix; a prefix counts as
/// a digit, and after it letters may be digits.
pub(super) fn underscores_separate_digits(text: &[u8], has_prefix: bool) -> bool {
    #[derive(PartialEq)]
    enum Left {
        Digit,
        Underscore,
        Other,
    }
    let mut left = if has_prefix { Left::Digit } else { Left::Other };
    for byte in text {
        left = match byte {
            b'_' if left == Left::Digit => Left::Underscore,
            b'_' => return false,
            digit if digit.is_ascii_digit() || has_prefix && digit.is_ascii_hexdigit() => {
                Left::Digit
            }
            _ if left == Left::Underscore => return false,
            _ => Left::Other,
        };
    }
    left != Left::Underscore
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> f64 {
        parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    fn failure(text: &str) -> GoFloatError {
        parse(text.as_bytes()).expect_err(text)
    }

    #[test]
    fn plain_decimals() {
        for (text, expected) in [
            ("0", 0.0),
            ("1", 1.0),
            ("42", 42.0),
            ("007", 7.0),
            ("3.15", 3.15),
            ("+7", 7.0),
            ("-3", -3.0),
            ("5.", 5.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("0.1", 0.1),
            ("123456789012345", 123456789012345.0),
            ("1234567890123456", 1234567890123456.0),
            ("0.123456789012345", 0.123456789012345),
            ("0.1234567890123456789", 0.123_456_789_012_345_68),
            ("18446744073709551615", 18446744073709551615.0),
            ("9007199254740993", 9007199254740992.0),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        assert!(value("-0").is_sign_negative());
        assert!(value("-0.0").is_sign_negative());
    }

    #[test]
    fn exponents() {
        for (text, expected) in [
            ("1e5", 1e5),
            ("1E3", 1e3),
            ("1.e2", 100.0),
            (".5e1", 5.0),
            ("1e+2", 100.0),
            ("1e-2", 0.01),
            ("1e-400", 0.0),
            ("0e999999999999999999999", 0.0),
            ("1.7976931348623157e308", f64::MAX),
            ("5e-324", f64::from_bits(1)),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn hexadecimal_needs_an_exponent() {
        for (text, expected) in [
            ("0x1p4", 16.0),
            ("0X1P4", 16.0),
            ("-0x1p-1", -0.5),
            ("0x.8p0", 0.5),
            ("0x1.8p1", 3.0),
            ("0xA.p0", 10.0),
            ("0x_1p4", 16.0),
            ("0x1_0p0", 16.0),
            ("0x1p1_0", 1024.0),
            ("0x0p99999999999999999999999", 0.0),
            ("0x1p-1074", f64::from_bits(1)),
            // Half of the smallest double ties to even, anything above it does not.
            ("0x1p-1075", 0.0),
            ("0x1.0000000000000000000001p-1075", f64::from_bits(1)),
            ("0x1.8p-1075", f64::from_bits(1)),
            ("0x1p-1076", 0.0),
            ("0x1p-99999999999999999999", 0.0),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1.fffffffffffff7p1023", f64::MAX),
            ("0x0.fffffffffffffp-1022", f64::from_bits((1 << 52) - 1)),
            ("0x0.fffffffffffff8p-1022", f64::MIN_POSITIVE),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000080000000000000001p0", 1.0 + f64::EPSILON),
            ("0x1.00000000000018p0", 1.0 + 2.0 * f64::EPSILON),
            ("0x10000000000000000000p-76", 1.0),
            ("0x00000000000000000000000000000001p0", 1.0),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        for text in [
            "0x10",
            "0x",
            "0xp1",
            "0x.p1",
            "0x1p",
            "0x1p+",
            "0x1.2.3p0",
            "0x1pa",
            "0x1p1.0",
            "0xg1p0",
        ] {
            assert_eq!(failure(text), GoFloatError::Syntax, "{text}");
        }
    }

    #[test]
    fn underscores_stand_between_digits() {
        for (text, expected) in
            [("1_000", 1000.0), ("1e1_0", 1e10), ("1_2.3_4", 12.34), ("0_1", 1.0)]
        {
            assert_eq!(value(text), expected, "{text}");
        }
        for text in [
            "_1", "1_", "1__0", "1_.5", "1._5", "1_e5", "1e_5", "1e5_", "_", "0_x1p4", "0x1_p4",
            "0x1p_4", "0x1p4_", "0x._1p4", "0x__1p4", "+_1", "_inf", "in_f",
        ] {
            assert_eq!(failure(text), GoFloatError::Syntax, "{text}");
        }
    }

    #[test]
    fn special_values() {
        for text in ["inf", "Inf", "INFINITY", "+inf", "+Infinity"] {
            assert_eq!(value(text), f64::INFINITY, "{text}");
        }
        assert_eq!(value("-infinity"), f64::NEG_INFINITY);
        for text in ["nan", "NaN", "NAN"] {
            assert!(value(text).is_nan(), "{text}");
        }
        for text in ["+nan", "-NaN", "infi", "infinit", "infinityx", "nanx", "na", "i", "n", "snan"]
        {
            assert_eq!(failure(text), GoFloatError::Syntax, "{text}");
        }
    }

    #[test]
    fn errors_tell_range_from_syntax() {
        let just_over = "0x1.fffffffffffff8p1023";
        for text in [
            "1e400",
            "-1e400",
            "1e309",
            "1e99999999999999999999",
            "0x1p1024",
            "0x1p9999999999",
            just_over,
        ] {
            assert_eq!(failure(text), GoFloatError::Range, "{text}");
        }
        for text in [
            "", "+", "-", ".", "-.", "+.", "1e", "1e+", "e5", ".e5", "1.2.3", "--1", "+-1", "-+1",
            " 5", "5 ", "0b1", "0o7", "１２", "1,5", "1e5e5", "1e5.0", "1-2", "abc", "1a", "\u{0}",
            "5\n", "1/2",
        ] {
            assert_eq!(failure(text), GoFloatError::Syntax, "{text}");
        }
        assert_eq!(parse(b"\xff\xfe"), Err(GoFloatError::Syntax));
        assert_eq!(parse(b"1\xff"), Err(GoFloatError::Syntax));
    }

    proptest! {
        #[test]
        fn every_double_reads_back(bits in any::<u64>()) {
            let double = f64::from_bits(bits);
            prop_assume!(double.is_finite());
            prop_assert_eq!(value(&format!("{double:e}")).to_bits(), bits);
        }

        #[test]
        fn short_decimals_agree_with_the_standard_library(text in "[+-]?[0-9]{0,16}(\\.[0-9]{0,16})?") {
            match text.parse::<f64>() {
                Ok(expected) => prop_assert_eq!(value(&text).to_bits(), expected.to_bits()),
                Err(_) => prop_assert_eq!(failure(&text), GoFloatError::Syntax),
            }
        }

        #[test]
        fn hexadecimal_integers_are_exact(number in 0u64..1 << 53, shift in 0u32..200) {
            let expected = number as f64 * f64::from(shift).exp2();
            prop_assert_eq!(value(&format!("{number:#x}p{shift}")), expected);
            prop_assert_eq!(value(&format!("0x{number:x}.0p+{shift}")), expected);
        }

        #[test]
        fn any_bytes_are_answered(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&text);
        }

        #[test]
        fn any_likely_text_is_answered(text in "[-+0-9._eExXpPaAfFiInN]{0,24}") {
            let _ = parse(text.as_bytes());
        }
    }
}
