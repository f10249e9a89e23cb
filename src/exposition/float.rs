//! Sample values as text: the shortest digits that round-trip, formatted like Go's `%g`.
//!
//! Plain notation for decimal exponents from -4 to 5, otherwise `d.ddde±XX` with a sign and at least two exponent
//! digits; `NaN`, `+Inf`, `-Inf`; both zeros print `0`. Both originals print sample values, `le` and `quantile` this
//! way.

/// Appends the text of `value` to `out`.
#[inline]
pub fn write(out: &mut Vec<u8>, value: f64) {
    if value == 0.0 {
        return out.push(b'0');
    }
    if value == 1.0 {
        return out.push(b'1');
    }
    // Below 2^53 an integer's own digits are the shortest that round-trip: any shorter decimal is at
    // least 1 away, and neighbouring doubles are at most 1 apart.
    if value.abs() < 9_007_199_254_740_992.0 && value.trunc() == value {
        return integer(out, value as i64);
    }
    if !write_six_decimals(out, value) {
        general(out, value);
    }
}

/// Appends a number with at most six decimal places in the plain notation range; returns true if `value` is one.
///
/// A decimal text is parsed to the quotient of two integers that are both exact in a double. No other text of up to 15
/// digits is parsed to the same double, so there is no shorter one.
#[inline]
fn write_six_decimals(out: &mut Vec<u8>, value: f64) -> bool {
    let magnitude = value.abs();
    if !(0.0001..1e6).contains(&magnitude) {
        return false;
    }
    let count = (magnitude * 1e6 + 0.5) as u64;
    if count as f64 / 1e6 != magnitude {
        return false;
    }
    if value < 0.0 {
        out.push(b'-');
    }
    // Both are below a million.
    let (whole, places) = ((count / 1_000_000) as u32, (count % 1_000_000) as u32);
    out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    let digit = |place: u32| b'0' + (places / place % 10) as u8;
    let digits =
        [b'.', digit(100_000), digit(10_000), digit(1_000), digit(100), digit(10), digit(1)];
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    let length = match digits.len() - zeros {
        1 => 0,
        length => length,
    };
    out.extend_from_slice(digits.get(..length).unwrap_or_default());
    true
}

/// Appends an integer with a magnitude below 2^53 in the same format.
fn integer(out: &mut Vec<u8>, value: i64) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(value.unsigned_abs());
    if value < 0 {
        out.push(b'-');
    }
    if text.len() <= 6 {
        return out.extend_from_slice(text.as_bytes());
    }
    scientific(out, text.trim_end_matches('0').as_bytes(), text.len() as i32 - 1);
}

fn general(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value.abs());
    // Reduces `ddd.ddd` with an optional `e±x` to its digits and the exponent of the first digit.
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (mantissa, exponent) = (mantissa.as_bytes(), exponent.parse().unwrap_or(0));
    let point = memchr::memchr(b'.', mantissa).unwrap_or(mantissa.len());
    let mut digits = [0u8; 40];
    let mut len = 0;
    for &byte in mantissa.iter().filter(|b| b.is_ascii_digit()).take(digits.len()) {
        digits[len] = byte;
        len += 1;
    }
    let leading = digits[..len].iter().take_while(|&&d| d == b'0').count();
    let trailing = digits[leading..len].iter().rev().take_while(|&&d| d == b'0').count();
    let significant = &digits[leading..len - trailing];
    let exponent: i32 = exponent + point as i32 - 1 - leading as i32;
    if (-4..6).contains(&exponent) {
        plain(out, significant, exponent);
    } else {
        scientific(out, significant, exponent);
    }
}

fn plain(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        return out.extend_from_slice(digits);
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.extend_from_slice(digits);
        out.extend(std::iter::repeat_n(b'0', whole - digits.len()));
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

fn scientific(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    let exponent = exponent.unsigned_abs();
    if exponent < 10 {
        out.push(b'0');
    }
    out.extend_from_slice(itoa::Buffer::new().format(exponent).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        let mut out = Vec::new();
        write(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn recorded_vectors() {
        for case in crate::recorded::cases("ksm/floats.json", 51) {
            let bits = u64::from_str_radix(case["bits"].as_str().unwrap(), 16).unwrap();
            assert_eq!(text(f64::from_bits(bits)), case["rendered"].as_str().unwrap(), "{case}");
        }
    }

    #[test]
    fn edges_of_the_plain_form() {
        for (value, want) in [
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (123_456.7, "123456.7"),
            (0.0001, "0.0001"),
            (-0.000_101, "-0.000101"),
            (0.000_099_9, "9.99e-05"),
            (999_999.999_999, "999999.999999"),
            (0.999_999_5, "0.9999995"),
            (0.000_01, "1e-05"),
            (1e21, "1e+21"),
            (-1_234_567.0, "-1.234567e+06"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_993.0, "9.007199254740992e+15"),
        ] {
            assert_eq!(text(value), want);
        }
    }

    proptest::proptest! {
        #[test]
        fn few_places_are_written_as_any_number_is(
            count in -2_000_000_000_000i64..2_000_000_000_000,
            power in 0..9,
            ulps in -1i64..=1,
        ) {
            let value = count as f64 / 10f64.powi(power);
            let value = f64::from_bits(value.to_bits().wrapping_add_signed(ulps));
            proptest::prop_assume!(value.is_finite() && value.trunc() != value);
            let mut plain = Vec::new();
            general(&mut plain, value);
            proptest::prop_assert_eq!(text(value), String::from_utf8(plain).unwrap());
        }

        #[test]
        fn every_double_round_trips(bits: u64) {
            let value = f64::from_bits(bits);
            proptest::prop_assume!(value.is_finite());
            let parsed: f64 = text(value).parse().unwrap();
            proptest::prop_assert!(parsed == value);
        }
    }
}
