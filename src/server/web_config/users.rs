//! Users and passwords: HTTP basic authentication with bcrypt hashes.
//!
//! bcrypt is slow by design. Hashes are computed on separate threads, few at once, with a bounded
//! queue that is fair between client addresses, and results are cached. The correct password of
//! each user has its own cache entry: however many wrong ones arrive, a user whose password was
//! verified once does not wait. An unknown user costs as much as a known one, and comparisons take
//! constant time. Passwords are never stored: results are keyed by a keyed digest of them.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::IpAddr;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac;
use ring::rand::SystemRandom;

use super::unusable::Unusable;
use crate::server::authorisation::{Digest, RecentValues};
use crate::server::fair_queue::FairQueue;
use crate::util::lock::Lock;

/// The maximum number of hashes computed concurrently.
const MAX_CONCURRENT: usize = 2;

/// The minimum length of a hash that the original accepts.
const MIN_HASH_LENGTH: usize = 59;

/// The length of the encoded salt, which is followed by the digest.
const SALT: usize = 22;
const DIGEST: usize = 31;

/// The cost of the hash for an unknown user if there are no users.
const USUAL_COST: u32 = 10;

/// bcrypt's own base64.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::BCRYPT,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// A hash as parsed by the original: version 2 or older, with any minor version, ignoring
/// everything after the digest.
#[derive(Debug, PartialEq, Eq)]
struct Hash<'t> {
    cost: u32,
    salt: &'t [u8],
    digest: &'t [u8],
}

impl<'t> Hash<'t> {
    /// # Errors
    ///
    /// The reason why the text is not a bcrypt hash.
    fn parse(text: &'t str) -> Result<Self, String> {
        let bytes = text.as_bytes();
        if bytes.len() < MIN_HASH_LENGTH {
            let length = bytes.len();
            return Err(format!(
                "too short for a bcrypt hash: {length} bytes, at least {MIN_HASH_LENGTH} are needed"
            ));
        }
        let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
        if at(0) != b'$' {
            return Err("a bcrypt hash must begin with $".to_owned());
        }
        if at(1) > b'2' {
            return Err(format!("bcrypt version {:?} is newer than 2", char::from(at(1))));
        }
        let cost_at = if at(2) == b'$' { 3 } else { 4 };
        let cost = bytes.get(cost_at..cost_at + 2).unwrap_or_default();
        let cost = String::from_utf8_lossy(cost);
        let number: i32 = cost.parse().map_err(|_| format!("invalid cost {cost:?}"))?;
        let cost = u32::try_from(number).ok().filter(|cost| (4..=31).contains(cost));
        let cost = cost.ok_or_else(|| format!("the cost {number} is outside 4 to 31"))?;
        let rest = bytes.get(cost_at + 3..).unwrap_or_default();
        let (salt, digest) = rest.split_at(SALT.min(rest.len()));
        Ok(Self { cost, salt, digest: digest.get(..DIGEST).unwrap_or(digest) })
    }

    /// Verifies a password. Slow.
    fn fits(&self, password: &[u8]) -> bool {
        let salt = ENGINE.decode(self.salt).ok().and_then(|salt| <[u8; 16]>::try_from(salt).ok());
        let digest = digest(self.cost, salt.unwrap_or_default(), password);
        // With an invalid salt, the digest does not count.
        same(digest.as_bytes(), self.digest) & salt.is_some()
    }
}

/// Computes the encoded digest of a password.
fn digest(cost: u32, salt: [u8; 16], password: &[u8]) -> String {
    // bcrypt includes the terminating NUL, and ignores everything beyond the 72nd byte.
    let mut password: Vec<u8> = password.iter().copied().take(72).collect();
    if password.len() < 72 {
        password.push(0);
    }
    let raw = bcrypt::bcrypt(cost, salt, &password);
    // The last byte is not encoded.
    ENGINE.encode(raw.get(..23).unwrap_or_default())
}

/// Compares in constant time.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences =
        one.iter().zip(other).fold(0, |all, (one, other)| black_box(all | (one ^ other)));
    differences == 0 && one.len() == other.len()
}

/// Validates the password hashes of the file.
///
/// # Errors
///
/// The error of the first invalid hash.
pub(super) fn check(users: &BTreeMap<String, String>) -> Result<(), Unusable> {
    for (name, hash) in users {
        Hash::parse(hash).map_err(|error| format!("the hash of user {name:?}: {error}"))?;
    }
    Ok(())
}

/// The result of checking a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A user with the correct password.
    Known,
    /// An unknown user or a wrong password.
    Unknown,
    /// Too many passwords are being checked.
    Busy,
}

/// Checks passwords and caches the results.
pub(super) struct Checker {
    key: hmac::Key,
    seen: Lock<PasswordCache>,
    queue: FairQueue,
}

#[derive(Default)]
struct PasswordCache {
    /// The correct credentials by user; at most one entry per user.
    right: BTreeMap<String, Digest>,
    /// The wrong credentials.
    wrong: RecentValues<()>,
}

impl Checker {
    /// # Errors
    ///
    /// When the system has no random bytes.
    pub(super) fn new() -> Result<Self, Unusable> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Ok(Self {
            key: key.map_err(|_| "no random bytes available".to_owned())?,
            seen: Lock::default(),
            queue: FairQueue::new(MAX_CONCURRENT, MAX_CONCURRENT),
        })
    }

    /// Checks the value of an `Authorization` header, sent by `client`, against the users.
    pub(super) async fn check(
        &self,
        users: &BTreeMap<String, String>,
        authorization: Option<&[u8]>,
        client: Option<IpAddr>,
    ) -> Verdict {
        let Some(credentials) = authorization.and_then(credentials) else {
            return Verdict::Unknown;
        };
        let user = users.iter().find(|(name, _)| name.as_bytes() == credentials.user);
        let hash = user.map(|(_, hash)| hash.as_str());
        let digest = self.digest(hash, &credentials);
        if let Some(verdict) = self.seen.lock().verdict(&digest) {
            return verdict;
        }
        let Some(permit) = self.queue.acquire(client, 1).await else { return Verdict::Busy };
        // Another request may have checked the same credentials meanwhile.
        if let Some(verdict) = self.seen.lock().verdict(&digest) {
            return verdict;
        }
        let hash = hash.map(str::to_owned);
        let cost = users.values().filter_map(|hash| Hash::parse(hash).ok()).map(|hash| hash.cost);
        let cost = cost.max().unwrap_or(USUAL_COST);
        let password = credentials.password.clone();
        let is_right = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            match hash.as_deref().map(Hash::parse) {
                Some(Ok(hash)) => hash.fits(&password),
                // As slow as for a user that exists.
                _ => black_box(self::digest(cost, [0; 16], &password)).is_empty(),
            }
        });
        let is_right = is_right.await.unwrap_or(false);
        let mut seen = self.seen.lock();
        match user {
            Some((name, _)) if is_right => seen.cache_valid(users, name, digest),
            _ => seen.wrong.put(digest, ()),
        }
        if is_right { Verdict::Known } else { Verdict::Unknown }
    }

    fn digest(&self, hash: Option<&str>, credentials: &Credentials) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        let hash = hash.unwrap_or_default().as_bytes();
        for part in [hash, &credentials.user, &credentials.password] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().unwrap_or_default()
    }
}

impl PasswordCache {
    fn verdict(&self, digest: &Digest) -> Option<Verdict> {
        if self.right.values().any(|right| right == digest) {
            return Some(Verdict::Known);
        }
        self.wrong.by_digest.contains_key(digest).then_some(Verdict::Unknown)
    }

    fn cache_valid(&mut self, users: &BTreeMap<String, String>, user: &str, digest: Digest) {
        self.right.retain(|name, _| users.contains_key(name));
        self.right.insert(user.to_owned(), digest);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    user: Vec<u8>,
    password: Vec<u8>,
}

/// Parses user and password from the value of an `Authorization` header, like Go's server.
fn credentials(value: &[u8]) -> Option<Credentials> {
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let plain = STANDARD.decode(rest).ok()?;
    let colon = plain.iter().position(|byte| *byte == b':')?;
    let (user, password) = (plain.get(..colon)?.to_vec(), plain.get(colon + 1..)?.to_vec());
    Some(Credentials { user, password })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::authorisation::MAX_CACHED;

    /// Of the password `pw`.
    const HASH: &str = "$2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW";

    fn basic(user: &str, password: &str) -> Vec<u8> {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
    }

    #[test]
    fn all_bcrypt_prefixes_are_accepted() {
        let rest = &HASH[7..];
        for hash in [
            HASH.to_owned(),
            format!("$1a$04${rest}"),
            format!("$2$04${rest}"),
            format!("$2y$04${rest}"),
            format!("$2Z$+4${rest}"),
            format!("$2a$04x{rest}"),
            format!("{HASH} behind"),
        ] {
            assert!(Hash::parse(&hash).expect(&hash).fits(b"pw"), "{hash}");
            assert!(!Hash::parse(&hash).expect(&hash).fits(b"no"), "{hash}");
        }
        for hash in [HASH[..59].to_owned(), format!("$2a$04$!{}", &rest[1..])] {
            assert!(!Hash::parse(&hash).expect(&hash).fits(b"pw"), "{hash}");
        }
        for (hash, error) in [
            (
                HASH[..58].to_owned(),
                "too short for a bcrypt hash: 58 bytes, at least 59 are needed",
            ),
            (format!("#2a$04${rest}"), "a bcrypt hash must begin with $"),
            (format!("$3a$04${rest}"), "bcrypt version '3' is newer than 2"),
            (format!("$2a$03${rest}"), "the cost 3 is outside 4 to 31"),
            (format!("$2a$32${rest}"), "the cost 32 is outside 4 to 31"),
            (format!("$2a$-4${rest}"), "the cost -4 is outside 4 to 31"),
            (format!("$2a$4${rest}x"), "invalid cost \"4$\""),
            ("é".repeat(60), "a bcrypt hash must begin with $"),
        ] {
            assert_eq!(Hash::parse(&hash), Err(error.to_owned()), "{hash}");
        }
    }

    #[tokio::test]
    async fn passwords_are_checked_once_per_hash() {
        let checker = Checker::new().expect("random bytes");
        let mut users = BTreeMap::from([("alice".to_owned(), HASH.to_owned())]);
        for (user, password, want) in [
            ("alice", "pw", Verdict::Known),
            ("alice", "no", Verdict::Unknown),
            ("Alice", "pw", Verdict::Unknown),
            ("", "", Verdict::Unknown),
        ] {
            for _ in 0..2 {
                let value = basic(user, password);
                assert_eq!(
                    checker.check(&users, Some(&value), None).await,
                    want,
                    "{user}:{password}"
                );
            }
        }
        assert_eq!(checker.seen.lock().right.len(), 1);
        assert_eq!(checker.seen.lock().wrong.by_digest.len(), 3);
        assert_eq!(checker.check(&users, None, None).await, Verdict::Unknown);
        let pw = basic("alice", "pw");
        users.insert("alice".to_owned(), "secret".to_owned());
        assert_eq!(checker.check(&users, Some(&pw), None).await, Verdict::Unknown);
        users.clear();
        assert_eq!(checker.check(&users, Some(&pw), None).await, Verdict::Unknown);
        users.insert("bob".to_owned(), HASH.to_owned());
        assert_eq!(checker.check(&users, Some(&basic("bob", "pw")), None).await, Verdict::Known);
        assert_eq!(Vec::from_iter(checker.seen.lock().right.keys()), ["bob"]);
    }

    /// However many wrong passwords arrive, and even while all permits are in use.
    #[tokio::test]
    async fn a_cached_password_needs_no_permit() {
        let checker = Checker::new().expect("random bytes");
        let users = BTreeMap::from([("alice".to_owned(), HASH.to_owned())]);
        let right = basic("alice", "pw");
        assert_eq!(checker.check(&users, Some(&right), None).await, Verdict::Known);
        let permits = [checker.queue.acquire(None, 1).await, checker.queue.acquire(None, 1).await];
        assert!(permits.iter().all(Option::is_some));
        for number in 0..2 * MAX_CACHED as u64 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            checker.seen.lock().wrong.put(digest, ());
        }
        assert_eq!(checker.check(&users, Some(&right), None).await, Verdict::Known);
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut seen = PasswordCache::default();
        for number in 0..=MAX_CACHED as u64 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            seen.wrong.put(digest, ());
        }
        assert_eq!(seen.wrong.by_digest.len(), MAX_CACHED);
        assert!(!seen.wrong.by_digest.contains_key(&[0; 32]));
    }
}
