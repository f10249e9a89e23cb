//! Profiles that the process keeps under a name, as a base for later ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::profile::Profile;
use crate::util::lock::Lock;

/// The maximum number of kept profiles.
const MAX_PROFILES: usize = 8;

/// The maximum size of all kept profiles, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// The maximum length of a name.
const MAX_NAME: usize = 64;

/// A kept profile.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) name: String,
    pub(super) profile: Arc<Profile>,
    pub(super) since: Instant,
}

/// The kept profiles, oldest first.
pub(super) struct KeptProfiles(Lock<VecDeque<Kept>>);

/// The kept profiles of this process.
pub(super) static KEPT: KeptProfiles = KeptProfiles(Lock::new(VecDeque::new()));

/// Returns whether a profile can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain)
}

impl KeptProfiles {
    /// Keeps a profile in place of one of the same name, and drops the oldest ones that exceed the limits. Returns
    /// false if the profile alone exceeds them.
    pub(super) fn keep(&self, name: &str, profile: Arc<Profile>) -> bool {
        if profile.size() > MAX_BYTES {
            return false;
        }
        let mut all = self.0.lock();
        all.retain(|kept| kept.name != name);
        all.push_back(Kept { name: name.to_owned(), profile, since: Instant::now() });
        let size = |all: &VecDeque<Kept>| all.iter().map(|kept| kept.profile.size()).sum::<usize>();
        while all.len() > MAX_PROFILES || size(&all) > MAX_BYTES {
            all.pop_front();
        }
        true
    }

    /// Returns the profile with this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Profile>> {
        self.all().into_iter().find(|kept| kept.name == name).map(|kept| kept.profile)
    }

    /// Returns all profiles, oldest first.
    pub(super) fn all(&self) -> Vec<Kept> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Sample;
    use super::*;

    fn profile(frames: usize) -> Arc<Profile> {
        let sample =
            Sample { stack: vec![1; frames], values: [1, 1], thread: None, of_base: false };
        Arc::new(Profile {
            kinds: [("samples", "count"), ("cpu", "nanoseconds")],
            period: ("cpu", "nanoseconds", 10),
            duration: None,
            comments: Vec::new(),
            samples: vec![sample],
        })
    }

    fn names(kept: &KeptProfiles) -> Vec<String> {
        kept.all().into_iter().map(|kept| kept.name).collect()
    }

    #[test]
    fn the_oldest_make_room_by_number_and_by_size() {
        let kept = KeptProfiles(Lock::default());
        for name in ["a", "b", "a", "c", "d", "e", "f", "g", "h", "i"] {
            assert!(kept.keep(name, profile(10)));
        }
        assert_eq!(names(&kept), ["a", "c", "d", "e", "f", "g", "h", "i"]);
        assert!(kept.find("b").is_none() && kept.find("a").is_some());
        let half = MAX_BYTES / 8 / 2;
        assert!(kept.keep("half", profile(half)));
        assert_eq!(names(&kept), ["c", "d", "e", "f", "g", "h", "i", "half"]);
        assert!(kept.keep("other", profile(half - 100)));
        assert_eq!(names(&kept).last().map(String::as_str), Some("other"));
        assert!(kept.all().iter().map(|kept| kept.profile.size()).sum::<usize>() <= MAX_BYTES);
        assert!(!kept.keep("huge", profile(2 * half)));
        assert!(kept.find("huge").is_none() && kept.find("other").is_some());
    }

    #[test]
    fn names_are_plain() {
        let long = "x".repeat(MAX_NAME);
        for name in ["before", "v1.2_b-3", &long] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "<x>", "é", &(long.clone() + "x")] {
            assert!(!is_name(name), "{name}");
        }
    }
}
