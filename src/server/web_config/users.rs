//! Users and passwords: HTTP's basic authentication against bcrypt hashes.
//!
//! A hash is slow on purpose. So it is computed on threads that serve nothing else, few at once and few waiting, and
//! what came of it is remembered. Somebody who is not known costs as much as somebody who is, and what is compared is
//! compared to its end. Passwords are kept nowhere: what is remembered goes by a keyed digest of them.

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;

/// Hashes computed at once.
const AT_ONCE: usize = 2;

/// Requests that may wait for one.
const WAITING: usize = 128;

/// Answers that are remembered.
const REMEMBERED: usize = 1024;

/// The shortest hash that the original takes.
const SHORTEST: usize = 59;

/// Characters that a salt is written in, and the digest behind it.
const SALT: usize = 22;
const DIGEST: usize = 31;

/// The cost at which somebody unknown is looked up where nobody is known.
const USUAL_COST: u32 = 10;

/// bcrypt's own base64.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::BCRYPT,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Why a text is no bcrypt hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HashError {
    #[error("too short for a bcrypt hash: {0} bytes, at least {SHORTEST} are needed")]
    Short(usize),
    #[error("a bcrypt hash begins with $")]
    Prefix,
    #[error("bcrypt version {0:?} is newer than 2")]
    Version(char),
    #[error("{0:?} is no cost")]
    NoCost(String),
    #[error("the cost {0} is outside 4 to 31")]
    Cost(i32),
}

/// A hash as the original reads it: of version 2 or older, whatever the letter behind it, and without regard for
/// anything behind the digest.
#[derive(Debug, PartialEq, Eq)]
struct Hash<'t> {
    cost: u32,
    salt: &'t [u8],
    digest: &'t [u8],
}

impl<'t> Hash<'t> {
    fn parse(text: &'t str) -> Result<Self, HashError> {
        let bytes = text.as_bytes();
        if bytes.len() < SHORTEST {
            return Err(HashError::Short(bytes.len()));
        }
        let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
        if at(0) != b'$' {
            return Err(HashError::Prefix);
        }
        if at(1) > b'2' {
            return Err(HashError::Version(at(1).into()));
        }
        let cost_at = if at(2) == b'$' { 3 } else { 4 };
        let cost = bytes.get(cost_at..cost_at + 2).unwrap_or_default();
        let cost = String::from_utf8_lossy(cost);
        let number: i32 = cost.parse().map_err(|_| HashError::NoCost(cost.into_owned()))?;
        let cost = u32::try_from(number).ok().filter(|cost| (4..=31).contains(cost));
        let cost = cost.ok_or(HashError::Cost(number))?;
        let rest = bytes.get(cost_at + 3..).unwrap_or_default();
        let (salt, digest) = rest.split_at(SALT.min(rest.len()));
        Ok(Self { cost, salt, digest: digest.get(..DIGEST).unwrap_or(digest) })
    }

    /// Whether it is that of a password. Slow.
    fn fits(&self, password: &[u8]) -> bool {
        let salt = ENGINE.decode(self.salt).ok().and_then(|salt| <[u8; 16]>::try_from(salt).ok());
        let digest = digest(self.cost, salt.unwrap_or_default(), password);
        // The digest that would belong to a salt that is none does not count.
        same(digest.as_bytes(), self.digest) & salt.is_some()
    }
}

/// What stands behind the salt in a hash.
fn digest(cost: u32, salt: [u8; 16], password: &[u8]) -> String {
    // The end of the password counts as a byte of it, and nothing beyond the 72nd byte.
    let mut password: Vec<u8> = password.iter().copied().take(72).collect();
    if password.len() < 72 {
        password.push(0);
    }
    let raw = bcrypt::bcrypt(cost, salt, &password);
    // The last byte is never written.
    ENGINE.encode(raw.get(..23).unwrap_or_default())
}

/// Compares to the end whatever differs.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences =
        one.iter().zip(other).fold(0, |all, (one, other)| black_box(all | (one ^ other)));
    differences == 0 && one.len() == other.len()
}

/// Why a password hash of the file cannot be used.
///
/// # Errors
///
/// What is wrong with the first such hash.
pub(super) fn check(users: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, hash) in users {
        Hash::parse(hash).map_err(|error| format!("the hash of user {name:?}: {error}"))?;
    }
    Ok(())
}

/// What came of looking at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// One of the users.
    Known,
    /// Nobody, or not with this password.
    Unknown,
    /// Too many passwords are being looked at.
    Busy,
}

/// Looks passwords up, and remembers what came of it.
pub(super) struct Checker {
    key: hmac::Key,
    seen: Mutex<Seen>,
    threads: Arc<Semaphore>,
    waiting: Semaphore,
}

#[derive(Default)]
struct Seen {
    verdicts: BTreeMap<[u8; 32], bool>,
    /// In the order in which they came.
    order: VecDeque<[u8; 32]>,
}

impl Checker {
    /// # Errors
    ///
    /// When the system has no random bytes.
    pub(super) fn new() -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Ok(Self {
            key: key.map_err(|_| "the system gives no random bytes".to_owned())?,
            seen: Mutex::default(),
            threads: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: Semaphore::new(WAITING),
        })
    }

    /// Whether the value of an `Authorization` header is that of one of the users.
    pub(super) async fn check(
        &self,
        users: &BTreeMap<String, String>,
        authorization: Option<&[u8]>,
    ) -> Verdict {
        let Some(credentials) = authorization.and_then(credentials) else {
            return Verdict::Unknown;
        };
        let hash = users
            .iter()
            .find(|(name, _)| name.as_bytes() == credentials.user)
            .map(|(_, hash)| hash.as_str());
        let digest = self.digest(hash, &credentials);
        if let Some(known) = self.seen().verdicts.get(&digest) {
            return verdict(*known);
        }
        let Ok(_waiting) = self.waiting.try_acquire() else { return Verdict::Busy };
        let Ok(thread) = Arc::clone(&self.threads).acquire_owned().await else {
            return Verdict::Busy;
        };
        // Somebody may have asked the same meanwhile.
        if let Some(known) = self.seen().verdicts.get(&digest) {
            return verdict(*known);
        }
        let hash = hash.map(str::to_owned);
        let cost = users.values().filter_map(|hash| Hash::parse(hash).ok()).map(|hash| hash.cost);
        let cost = cost.max().unwrap_or(USUAL_COST);
        let password = credentials.password.clone();
        let known = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            match hash.as_deref().map(Hash::parse) {
                Some(Ok(hash)) => hash.fits(&password),
                // As slow as for somebody who is known.
                _ => black_box(digest_of_nobody(cost, &password)),
            }
        });
        let known = known.await.unwrap_or(false);
        self.seen().remember(digest, known);
        verdict(known)
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn digest(&self, hash: Option<&str>, credentials: &Credentials) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        let hash = hash.unwrap_or_default().as_bytes();
        for part in [hash, &credentials.user, &credentials.password] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().unwrap_or_default()
    }
}

impl Seen {
    fn remember(&mut self, digest: [u8; 32], known: bool) {
        if self.verdicts.insert(digest, known).is_none() {
            self.order.push_back(digest);
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.verdicts.remove(&oldest);
            }
        }
    }
}

fn verdict(known: bool) -> Verdict {
    if known { Verdict::Known } else { Verdict::Unknown }
}

fn digest_of_nobody(cost: u32, password: &[u8]) -> bool {
    digest(cost, [0; 16], password).is_empty()
}

#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    user: Vec<u8>,
    password: Vec<u8>,
}

/// User and password of the value of an `Authorization` header, as Go's server reads it.
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

    /// Of the password `pw`.
    const HASH: &str = "$2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW";

    fn basic(user: &str, password: &str) -> Vec<u8> {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
    }

    #[test]
    fn hashes_of_all_notations() {
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
            (HASH[..58].to_owned(), HashError::Short(58)),
            (format!("#2a$04${rest}"), HashError::Prefix),
            (format!("$3a$04${rest}"), HashError::Version('3')),
            (format!("$2a$03${rest}"), HashError::Cost(3)),
            (format!("$2a$32${rest}"), HashError::Cost(32)),
            (format!("$2a$-4${rest}"), HashError::Cost(-4)),
            (format!("$2a$4${rest}x"), HashError::NoCost("4$".to_owned())),
            ("é".repeat(60), HashError::Prefix),
        ] {
            assert_eq!(Hash::parse(&hash), Err(error), "{hash}");
        }
    }

    #[tokio::test]
    async fn passwords_are_checked_once_and_a_new_hash_anew() {
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
                assert_eq!(checker.check(&users, Some(&value)).await, want, "{user}:{password}");
            }
        }
        assert_eq!(checker.seen().order.len(), 4);
        assert_eq!(checker.check(&users, None).await, Verdict::Unknown);
        users.insert("alice".to_owned(), "secret".to_owned());
        assert_eq!(checker.check(&users, Some(&basic("alice", "pw"))).await, Verdict::Unknown);
    }

    #[tokio::test]
    async fn those_who_wait_are_bounded() {
        let checker = Checker::new().expect("random bytes");
        let users = BTreeMap::from([("alice".to_owned(), HASH.to_owned())]);
        let _all = checker.waiting.acquire_many(WAITING as u32).await.expect("open");
        assert_eq!(checker.check(&users, Some(&basic("alice", "pw"))).await, Verdict::Busy);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut seen = Seen::default();
        for number in 0..=REMEMBERED as u64 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            seen.remember(digest, true);
        }
        assert_eq!((seen.order.len(), seen.verdicts.len()), (REMEMBERED, REMEMBERED));
        assert!(!seen.verdicts.contains_key(&[0; 32]));
    }
}
