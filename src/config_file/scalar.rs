//! Type resolution of plain scalars: YAML 1.1 as Go's library reads it.

use crate::go::strconv;

/// The resolved type of an unquoted scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Resolved {
    Null,
    Bool(bool),
    /// An integer that fits into 64 bits, signed or unsigned.
    Int(i128),
    Float(f64),
    Text,
}

/// Resolves an unquoted scalar.
pub(crate) fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Resolved::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Resolved::Text;
    }
    let digits = text.replace('_', "");
    let signed = strconv::parse_int(&digits, 64).ok().map(i128::from);
    if let Some(integer) = signed.or_else(|| strconv::parse_uint(&digits).ok().map(i128::from)) {
        return Resolved::Int(integer);
    }
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() => Resolved::Float(number),
        _ => Resolved::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars() {
        let cases = [
            ("~", Resolved::Null),
            ("On", Resolved::Bool(true)),
            ("oN", Resolved::Text),
            ("1_000", Resolved::Int(1000)),
            ("0x_1", Resolved::Int(1)),
            ("0o17", Resolved::Int(15)),
            ("017", Resolved::Int(15)),
            ("-0b11", Resolved::Int(-3)),
            ("089", Resolved::Float(89.0)),
            ("0", Resolved::Int(0)),
            ("1__0", Resolved::Int(10)),
            ("_1", Resolved::Text),
            ("18446744073709551615", Resolved::Int(u64::MAX.into())),
            ("99999999999999999999", Resolved::Float(1e20)),
            ("-9223372036854775809", Resolved::Float(-9_223_372_036_854_775_808.0)),
            ("1e3", Resolved::Float(1000.0)),
            ("1.", Resolved::Float(1.0)),
            (".5", Resolved::Float(0.5)),
            (".", Resolved::Text),
            ("1e", Resolved::Text),
            ("1e400", Resolved::Text),
            ("0x1p4", Resolved::Text),
            ("0x", Resolved::Text),
            ("inf", Resolved::Text),
            ("+inf", Resolved::Text),
            ("1:30", Resolved::Text),
            ("+.INF", Resolved::Float(f64::INFINITY)),
            ("2001-01-01", Resolved::Text),
            ("-", Resolved::Text),
        ];
        for (text, want) in cases {
            assert_eq!(resolve(text), want, "{text}");
        }
        assert!(matches!(resolve(".NaN"), Resolved::Float(number) if number.is_nan()));
    }
}
