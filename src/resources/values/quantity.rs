//! Kubernetes resource quantities (`250m`, `1.5Gi`, `12e6`) and the three numbers that metrics read from them.
//!
//! The text of a quantity goes in; an integer, a value in thousandths and an approximate double come out. Each family
//! chooses one of them.
//!
//! A quantity of up to 18 digits, which includes nearly every real one, is an integer and a power
//! of ten. Longer ones, and fractions with a binary suffix, are what the API machinery keeps as a decimal rounded up to
//! nano-units. Its arithmetic is reproduced exactly, even outside the range of an `i64`: decimal quantities wrap around
//! and binary ones are capped, so a nonsensical quantity has the same value here as there.

/// A parsed quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity(Form);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// `mantissa * 10^scale`, with `scale >= -NANO_PLACES`.
    Short { mantissa: i64, scale: i64 },
    /// Too many digits, or a binary fraction: the three numbers, computed during parsing.
    Long { integer: i64, milli: i64, approximate: f64 },
}

/// The number of digits that always fits an `i64` without the point.
const SHORT_DIGITS: usize = 18;
/// The finest unit of a quantity is 1n.
const NANO_PLACES: i64 = 9;
/// The largest integer whose thousandths fit an `i64`.
const MAX_CONVERTIBLE: i64 = i64::MAX / 1000;

const POW10: [i64; 19] = {
    let mut powers = [1i64; 19];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};

/// The multiplier of a suffix.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Suffix {
    /// `10^n`
    Decimal(i64),
    /// `2^n`
    Binary(u32),
}

impl Quantity {
    /// Parses the text form of a quantity. Digits may be missing (`.`, `-`, `Ki` are zero, `Pi` is invalid), as in the
    /// API machinery. `None` if the text is empty, is not one number with an optional suffix, or has an exponent that
    /// does not fit an `i64`.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes() {
            [] => return None,
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let (whole, rest) = split_digits(rest);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split_digits(rest),
            rest => (&[][..], rest),
        };
        let suffix = parse_suffix(rest)?;
        let has_digits = !whole.is_empty() || !fraction.is_empty();
        let zeros = whole.iter().take_while(|&&digit| digit == b'0').count();
        let whole = &whole[zeros..];

        if let Some(form) = short(negative, whole, fraction, suffix) {
            return Some(Self(form));
        }
        has_digits.then(|| Self(long(negative, whole, fraction, suffix)))
    }

    /// Returns the value rounded away from zero to an integer.
    pub fn integer(&self) -> i64 {
        match self.0 {
            Form::Short { mantissa, scale } => rescale(mantissa, scale),
            Form::Long { integer, .. } => integer,
        }
    }

    /// Returns the value rounded away from zero to thousandths, as a double. Integers above 2^63/1000, whose
    /// thousandths do not fit an `i64`, are rounded to whole units instead.
    pub fn converted(&self) -> f64 {
        let integer = self.integer();
        if integer > MAX_CONVERTIBLE {
            return integer as f64;
        }
        let milli = match self.0 {
            Form::Short { mantissa, scale } => rescale(mantissa, scale + 3),
            Form::Long { milli, .. } => milli,
        };
        milli as f64 / 1000.0
    }

    /// Returns the digits as a double, times a power of ten as a double: two roundings, so not always the double
    /// nearest to the text (`0.3Gi` is 322122547.20000005).
    pub fn approximate(&self) -> f64 {
        match self.0 {
            Form::Short { mantissa, scale: 0 } => mantissa as f64,
            Form::Short { mantissa, scale } => mantissa as f64 * pow10(scale),
            Form::Long { approximate, .. } => approximate,
        }
    }
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn parse_suffix(text: &[u8]) -> Option<Suffix> {
    Some(match text {
        b"" => Suffix::Decimal(0),
        b"n" => Suffix::Decimal(-9),
        b"u" => Suffix::Decimal(-6),
        b"m" => Suffix::Decimal(-3),
        b"k" => Suffix::Decimal(3),
        b"M" => Suffix::Decimal(6),
        b"G" => Suffix::Decimal(9),
        b"T" => Suffix::Decimal(12),
        b"P" => Suffix::Decimal(15),
        b"E" => Suffix::Decimal(18),
        b"Ki" => Suffix::Binary(10),
        b"Mi" => Suffix::Binary(20),
        b"Gi" => Suffix::Binary(30),
        b"Ti" => Suffix::Binary(40),
        b"Pi" => Suffix::Binary(50),
        b"Ei" => Suffix::Binary(60),
        [b'e' | b'E', exponent @ ..] => {
            let exponent = str::from_utf8(exponent).ok()?.parse::<i64>().ok()?;
            // The API machinery keeps the low 32 bits of an exponent.
            Suffix::Decimal(i64::from(exponent as i32))
        }
        _ => return None,
    })
}

/// Returns the form of a quantity with few digits; `None` if it has too many, or is finer than nano-units. `whole` has
/// no leading zeros.
fn short(negative: bool, whole: &[u8], fraction: &[u8], suffix: Suffix) -> Option<Form> {
    let room = match suffix {
        Suffix::Decimal(_) => SHORT_DIGITS,
        // Three digits for each factor of 1024, with a margin.
        Suffix::Binary(bits) if fraction.is_empty() => {
            14usize.checked_sub(bits as usize / 10 * 3)?
        }
        Suffix::Binary(_) => return None,
    };
    // A zero before the point counts as a digit.
    if whole.len().max(1) + fraction.len() > room {
        return None;
    }
    let mut mantissa = 0i64;
    for digit in whole.iter().chain(fraction) {
        mantissa = mantissa * 10 + i64::from(digit - b'0');
    }
    let (factor, exponent) = match suffix {
        Suffix::Decimal(exponent) => (1, exponent),
        Suffix::Binary(bits) => (1i64 << bits, 0),
    };
    let scale = exponent - fraction.len() as i64;
    if scale < -NANO_PLACES {
        return None;
    }
    mantissa *= factor;
    Some(Form::Short { mantissa: if negative { -mantissa } else { mantissa }, scale })
}

/// Returns `mantissa * 10^scale`, rounded away from zero. If the product exceeds an `i64`, it wraps around for the
/// scales that the API machinery multiplies by in one step, and is 0 for all others.
fn rescale(mantissa: i64, scale: i64) -> i64 {
    let power =
        usize::try_from(scale.unsigned_abs()).ok().and_then(|places| POW10.get(places)).copied();
    match (scale, power) {
        (0, _) => mantissa,
        (1 | 2 | 3 | 6 | 9, Some(power)) => mantissa.wrapping_mul(power),
        (1.., power) => power.and_then(|power| mantissa.checked_mul(power)).unwrap_or(0),
        (_, Some(power)) => {
            mantissa / power + if mantissa % power != 0 { mantissa.signum() } else { 0 }
        }
        (_, None) => mantissa.signum(),
    }
}

/// Returns a power of ten like the API machinery: exact up to 10^22, beyond that a product of two rounded ones.
fn pow10(exponent: i64) -> f64 {
    const BY_ONE: [f64; 32] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
    ];
    const BY_32: [f64; 10] = [1e0, 1e32, 1e64, 1e96, 1e128, 1e160, 1e192, 1e224, 1e256, 1e288];
    let magnitude = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
    let small = BY_ONE.get(magnitude % 32).copied().unwrap_or(1.0);
    match BY_32.get(magnitude / 32) {
        Some(large) if exponent >= 0 => large * small,
        Some(large) => 1.0 / large / small,
        None if exponent >= 0 => f64::INFINITY,
        None => 0.0,
    }
}

/// Computes the numbers of a quantity that is kept as a count of nano-units. Linear in the length of the text,
/// independent of the exponent.
fn long(negative: bool, whole: &[u8], fraction: &[u8], suffix: Suffix) -> Form {
    let number = match suffix {
        Suffix::Decimal(exponent) => {
            let digits = whole.iter().chain(fraction).map(|digit| digit - b'0').collect();
            Some(Decimal { digits, exponent: exponent - fraction.len() as i64 })
        }
        Suffix::Binary(bits) => Decimal::times_power_of_two(whole, fraction, bits),
    };
    number.map_or_else(|| capped(negative), |number| number.readings(negative))
}

/// Returns the form of a quantity without a sign, from the low 64 bits of its count of nano-units and of its integer
/// and milli values, and the count as a double.
fn readings(negative: bool, units: u64, integer: u64, milli: u64, magnitude: f64) -> Form {
    if !negative {
        let approximate = magnitude * 1e-9;
        return Form::Long { integer: integer as i64, milli: milli as i64, approximate };
    }
    // Any negative count is treated as fitting 64 bits, and is rounded up instead of away from zero.
    let units = (units as i64).wrapping_neg();
    let scaled = |power: i64| units / power + i64::from(units % power != 0);
    let approximate = -magnitude * 1e-9;
    Form::Long { integer: scaled(1_000_000_000), milli: scaled(1_000_000), approximate }
}

/// Returns the form of a binary quantity that is too large.
fn capped(negative: bool) -> Form {
    let integer = if negative { -i64::MAX } else { i64::MAX };
    Form::Long { integer, milli: integer.wrapping_mul(1000), approximate: integer as f64 }
}

/// `digits * 10^exponent`, an unsigned number.
struct Decimal {
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// The number of decimal places that decide a product with 2^60 in nano-units: the smallest number that rounds
    /// differently has at most 60 + 9 of them, so further ones only matter if they are not zero.
    const FRACTION_DIGITS: usize = 72;

    /// Returns `whole.fraction * 2^bits`; `None` if it exceeds the cap of an `i64`.
    fn times_power_of_two(whole: &[u8], fraction: &[u8], bits: u32) -> Option<Self> {
        if whole.len() > 19 {
            return None;
        }
        let (head, tail) = fraction.split_at(fraction.len().min(Self::FRACTION_DIGITS));
        let mut digits: Vec<u8> = whole.iter().chain(head).map(|digit| digit - b'0').collect();
        digits.push(u8::from(tail.iter().any(|&digit| digit != b'0')));
        let places = head.len() + 1;
        for _ in 0..bits / 10 {
            let mut carry = 0u32;
            for digit in digits.iter_mut().rev() {
                carry += u32::from(*digit) * 1024;
                *digit = (carry % 10) as u8;
                carry /= 10;
            }
            while carry > 0 {
                digits.insert(0, (carry % 10) as u8);
                carry /= 10;
            }
        }
        let cap = i64::MAX as u64;
        let mut value = 0u64;
        let (integer, rest) = digits.split_at(digits.len() - places);
        for &digit in integer {
            value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
        let exact = rest.iter().all(|&digit| digit == 0);
        let exponent = -(places as i64);
        (value < cap || value == cap && exact).then_some(Self { digits, exponent })
    }

    /// Rounds up to nano-units: `digits * 10^exponent` is the count of nano-units, and `exponent` is not negative.
    fn nano_units(&self) -> Self {
        let exponent = self.exponent + NANO_PLACES;
        if exponent >= 0 {
            return Self { digits: self.digits.clone(), exponent };
        }
        let dropped = usize::try_from(-exponent).unwrap_or(usize::MAX).min(self.digits.len());
        let (kept, dropped) = self.digits.split_at(self.digits.len() - dropped);
        let mut digits = kept.to_vec();
        if dropped.iter().any(|&digit| digit != 0) {
            // Trailing nines turn into zeros, with a carry into the digit before them.
            let nines = digits.iter().rev().take_while(|&&digit| digit == 9).count();
            let (head, tail) = digits.split_at_mut(kept.len() - nines);
            tail.fill(0);
            match head.last_mut() {
                Some(digit) => *digit += 1,
                None => digits.insert(0, 1),
            }
        }
        Self { digits, exponent: 0 }
    }

    /// Returns the low 64 bits of `self * 10^places`, rounded up to an integer.
    fn low_bits(&self, places: i64) -> u64 {
        let exponent = self.exponent + places;
        let dropped = usize::try_from(-exponent).unwrap_or(0).min(self.digits.len());
        let (kept, dropped) = self.digits.split_at(self.digits.len() - dropped);
        let kept = kept
            .iter()
            .fold(0u64, |low, &digit| low.wrapping_mul(10).wrapping_add(u64::from(digit)));
        if dropped.iter().any(|&digit| digit != 0) {
            return kept.wrapping_add(1);
        }
        // 10^64 has 64 trailing zero bits.
        let power = u32::try_from(exponent.clamp(0, 64)).unwrap_or(0);
        kept.wrapping_mul(10u64.wrapping_pow(power))
    }

    /// Computes the three numbers from the count of nano-units.
    fn readings(&self, negative: bool) -> Form {
        let units = self.nano_units();
        let text: String = units.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let magnitude: f64 = format!("0{text}e{}", units.exponent).parse().unwrap_or(f64::NAN);
        let units = Self { exponent: units.exponent - NANO_PLACES, ..units };
        let (integer, milli) = (units.low_bits(0), units.low_bits(3));
        readings(negative, units.low_bits(NANO_PLACES), integer, milli, magnitude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::float;

    fn text(value: f64) -> String {
        let mut out = Vec::new();
        float::write(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn recorded_quantities() {
        for case in crate::recorded::cases("ksm/quantities.json", 151) {
            let parsed = Quantity::parse(case["input"].as_str().unwrap());
            if case["error"].is_string() {
                assert!(parsed.is_none(), "{case}");
                continue;
            }
            let parsed = parsed.unwrap();
            assert_eq!(parsed.integer().to_string(), case["value"], "{case}");
            assert_eq!(text(parsed.integer() as f64), case["rendered_value"], "{case}");
            assert_eq!(text(parsed.converted()), case["rendered_converted"], "{case}");
            assert_eq!(text(parsed.approximate()), case["rendered_approximate"], "{case}");
        }
    }

    /// Unusual quantities, with the values that the API machinery reads.
    #[test]
    fn unusual_quantities() {
        for (input, integer, milli, approximate) in [
            ("123456789012345678e2", -6_101_065_172_474_983_816, 0i64, "1.2345678901234567e+19"),
            ("99999999999e8", 0, 0, "9.9999999999e+18"),
            ("99999999999e9", 7_766_279_630_452_241_920, 0, "9.9999999999e+19"),
            ("-1.5000000000000000000", 0, -1500, "-1.5"),
            ("-1.0000000001", 0, -999, "-1.000000001"),
            ("-111Ti", -2_131_891_472, -2_131_891_473_605, "-1.22045790683136e+14"),
            ("-11111111Ti", -9_223_372_036_854_775_807, 1000, "-9.223372036854776e+18"),
            (
                "1111111111111111111E",
                -8_302_026_259_966_459_904,
                -991_426_797_161_676_800,
                "1.1111111111111112e+36",
            ),
            ("1e-4294967298", 1, 10, "0.01"),
            ("0.30Ki", 308, 307_200, "307.20000000000005"),
            ("0e1000", 0, 0, "NaN"),
            ("8.972Gi", 9_633_611_645, 9_633_611_644_928, "9.633611644928001e+09"),
            ("-19.41Ki", -19_874, -19_875_840, "-19875.84"),
            ("8099699759.70", 8_099_699_760, 8_099_699_759_700, "8.0996997597e+09"),
            ("-.947840550Ki", -969, -970_587, "-970.5887232"),
        ] {
            let parsed = Quantity::parse(input).unwrap();
            assert_eq!(parsed.integer(), integer, "{input}");
            if integer <= MAX_CONVERTIBLE {
                assert_eq!(parsed.converted(), milli as f64 / 1000.0, "{input}");
            }
            assert_eq!(text(parsed.approximate()), approximate, "{input}");
        }
    }

    #[test]
    fn a_zero_may_lack_digits_unless_it_is_long() {
        for text in ["+", ".", "Ki", "E", "-E22", "e-9", ".Ti"] {
            assert_eq!(Quantity::parse(text).unwrap().integer(), 0, "{text}");
        }
        for text in ["Pi", "-Ei", "e-10"] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn long_texts_take_linear_work() {
        let digits = "7".repeat(1 << 20);
        for suffix in ["", "Ki", "E", "n", "e-2147483648", "e2147483647"] {
            for text in [format!("{digits}{suffix}"), format!("-0.{digits}{suffix}")] {
                Quantity::parse(&text).unwrap();
            }
        }
    }
}
