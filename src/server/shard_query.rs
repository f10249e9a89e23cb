//! Parses `shard` and `total_shards`, which limit a scrape to a virtual shard.

use super::query::{QueryError, pairs, percent_decode};
use crate::exposition::VirtualShard;

/// The maximum number of virtual shards.
const MAX_TOTAL: u32 = 64;

/// The name of the parameter with the index.
const SHARD: &str = "shard";

/// The name of the parameter with the number of shards.
const TOTAL: &str = "total_shards";

/// Returns the virtual shard to which a query limits its response, `None` if it does not.
///
/// # Errors
///
/// When a parameter is invalid, there several times, or without the other one.
pub(super) fn shard(query: &str) -> Result<Option<VirtualShard>, QueryError> {
    let (index, total) = match (only(query, SHARD)?, only(query, TOTAL)?) {
        (None, None) => return Ok(None),
        (Some(value), None) => {
            return Err(QueryError::Alone { name: SHARD, value, missing: TOTAL });
        }
        (None, Some(value)) => {
            return Err(QueryError::Alone { name: TOTAL, value, missing: SHARD });
        }
        (Some(index), Some(total)) => (index, total),
    };
    let Some(of) = number(&total).filter(|of| (1..=MAX_TOTAL).contains(of)) else {
        let wanted = format!("a number from 1 to {MAX_TOTAL}");
        return Err(QueryError::value(TOTAL, &total, &wanted));
    };
    let Some(at) = number(&index).filter(|at| *at < of) else {
        let wanted = format!("a number from 0 to {}, below {TOTAL}", of - 1);
        return Err(QueryError::value(SHARD, &index, &wanted));
    };
    Ok(Some(VirtualShard { index: at, total: of }))
}

/// Returns the only value of a parameter, `None` if there is none.
fn only(query: &str, name: &'static str) -> Result<Option<String>, QueryError> {
    // An undecodable pair would be skipped, and the limit with it.
    for pair in query.split('&') {
        let key = pair.split(['=', ';']).next().unwrap_or_default();
        if percent_decode(key).as_deref() == Some(name) && pairs(pair).next().is_none() {
            return Err(QueryError::Encoding(pair.chars().take(100).collect()));
        }
    }
    let mut values = pairs(query).filter(|(key, _)| key == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(first), Some(second)) => Err(QueryError::Repeated { name, first, second }),
        (value, _) => Ok(value),
    }
}

/// Parses decimal digits without a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_shards() {
        assert_eq!(shard("resources=pods&shards=x&total=%zz"), Ok(None));
        for (query, index, total) in [
            ("shard=0&total_shards=1", 0, 1),
            ("total_shards=64&namespace=a&shard=63", 63, 64),
            ("%73hard=1&total%5Fshards=%32", 1, 2),
        ] {
            assert_eq!(shard(query), Ok(Some(VirtualShard { index, total })), "{query}");
        }
    }

    #[test]
    fn errors_name_the_parameter_and_its_value() {
        for (query, want) in [
            ("shard=3", "shard=\"3\" is invalid without total_shards"),
            ("total_shards=3", "total_shards=\"3\" is invalid without shard"),
            ("shard=2&total_shards=2", "shard=\"2\" is invalid; it must be a number from 0 to 1"),
            ("shard=-1&total_shards=2", "shard=\"-1\" is invalid; it must be a number from 0"),
            ("shard=%2B1&total_shards=2", "shard=\"+1\" is invalid"),
            ("shard=&total_shards=2", "shard=\"\" is invalid"),
            ("shard&total_shards=2", "shard=\"\" is invalid"),
            ("shard=0x1&total_shards=2", "shard=\"0x1\" is invalid"),
            ("shard=99999999999&total_shards=2", "shard=\"99999999999\" is invalid"),
            ("shard=0&total_shards=0", "total_shards=\"0\" is invalid; it must be a number from 1"),
            ("shard=0&total_shards=65", "total_shards=\"65\" is invalid"),
            ("shard=0&total_shards=two", "total_shards=\"two\" is invalid"),
            ("shard=0&shard=1&total_shards=2", "shard is there several times, with \"0\""),
            ("shard=0&total_shards=2&total_shards=2", "total_shards is there several times"),
            ("shard=%zz&total_shards=2", "invalid encoding in \"shard=%zz\""),
            ("shard=0;&total_shards=2", "invalid encoding in \"shard=0;\""),
            ("shard;=0&total_shards=2", "invalid encoding in \"shard;=0\""),
        ] {
            let error = shard(query).expect_err(query).to_string();
            assert!(error.starts_with(want), "{query}: {error}");
        }
    }
}
