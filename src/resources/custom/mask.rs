//! What of an object has to be read, so that all paths of its metrics can be followed.

use super::path::{Path, Rest, Touch};

/// A path may be meant for lists or for maps at so many places; behind more of them everything is read.
const MAX_FORKS: usize = 4;

/// So many parts of a mask may be put together from others; beyond that everything is read.
const MAX_MERGED: usize = 4096;

/// What has to be read of a value. A scalar is read in any case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mask {
    /// All of it.
    all: bool,
    /// Members of a map, in byte order.
    members: Vec<(Box<str>, Mask)>,
    /// Every member of a map, every element of a list.
    each: Option<Box<Mask>>,
}

/// What the members of a value are read with that is read as a whole.
static WHOLE: Mask = Mask { all: true, members: Vec::new(), each: None };

impl Mask {
    /// Everything.
    #[cfg(test)]
    pub(super) fn whole() -> Self {
        WHOLE.clone()
    }

    /// Whether nothing of a map is asked for.
    pub(super) fn is_blind(&self) -> bool {
        !self.all && self.members.is_empty() && self.each.is_none()
    }

    /// Whether nothing of a list is asked for.
    pub(super) fn is_blind_to_elements(&self) -> bool {
        !self.all && self.each.is_none()
    }

    /// What is asked for of a map's member; `None` for nothing.
    #[inline]
    pub(super) fn member(&self, key: &str) -> Option<&Mask> {
        if self.all {
            return Some(&WHOLE);
        }
        let own = self.members.iter().find(|(name, _)| **name == *key).map(|(_, mask)| mask);
        own.or(self.each.as_deref())
    }

    /// What is asked for of a list's elements; `None` for nothing.
    pub(super) fn element(&self) -> Option<&Mask> {
        if self.all { Some(&WHOLE) } else { self.each.as_deref() }
    }

    /// Asks for all of it.
    pub(super) fn ask_all(&mut self) {
        self.all = true;
    }

    /// Asks for every member or element, which is returned.
    pub(super) fn ask_each(&mut self) -> &mut Mask {
        self.each.get_or_insert_default()
    }

    /// Asks for a member, which is returned.
    fn ask(&mut self, key: &str) -> &mut Mask {
        let at = match self.members.binary_search_by(|(own, _)| (**own).cmp(key)) {
            Ok(at) => at,
            Err(at) => {
                self.members.insert(at, (key.into(), Mask::default()));
                at
            }
        };
        &mut self.members[at].1
    }

    /// Asks for what `path` touches, and lets `ask` say what is needed where it ends.
    pub(super) fn follow(&mut self, path: &Path, ask: &dyn Fn(&mut Mask)) {
        self.step(path.touches(), MAX_FORKS, ask);
    }

    fn step(
        &mut self,
        step: Option<(Vec<Touch<'_>>, Rest<'_>)>,
        forks: usize,
        ask: &dyn Fn(&mut Mask),
    ) {
        let Some((touches, rest)) = step else { return ask(self) };
        let forks = if touches.len() > 1 { forks.checked_sub(1) } else { Some(forks) };
        let Some(forks) = forks else { return self.ask_all() };
        for touch in touches {
            let next = match touch {
                Touch::Key(key) => self.ask(key),
                Touch::Element => self.ask_each(),
                Touch::ElementWith(key) => {
                    let element = self.ask_each();
                    // A scalar is read anyway, and only scalars are compared.
                    element.ask(key);
                    element
                }
            };
            next.step(rest.touches(), forks, ask);
        }
    }

    /// To be called once, when everything has been asked for: what is asked of every member is asked of each that is
    /// named, too.
    pub(super) fn settle(&mut self) {
        self.settle_within(&mut { MAX_MERGED });
    }

    fn settle_within(&mut self, left: &mut usize) {
        if let Some(each) = self.each.clone() {
            for (_, member) in &mut self.members {
                member.merge(&each, left);
            }
        }
        self.members.iter_mut().for_each(|(_, member)| member.settle_within(left));
        if let Some(each) = &mut self.each {
            each.settle_within(left);
        }
    }

    fn merge(&mut self, other: &Mask, left: &mut usize) {
        *left = left.saturating_sub(1);
        self.all |= other.all || *left == 0;
        if self.all {
            return;
        }
        for (key, mask) in &other.members {
            self.ask(key).merge(mask, left);
        }
        if let Some(each) = &other.each {
            self.ask_each().merge(each, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(segments: &[&str]) -> Path {
        let owned: Vec<String> = segments.iter().map(|text| (*text).to_owned()).collect();
        Path::compile(&owned).expect("valid")
    }

    #[test]
    fn ambiguous_paths_cost_no_more_than_the_object() {
        let mut mask = Mask::default();
        for at in 0..60 {
            let mut segments = vec!["1=1"; 60];
            segments[at] = "x";
            mask.follow(&path(&segments), &Mask::ask_all);
            mask.follow(&path(&["[a=b]"; 40][..at.min(40)]), &|mask| {
                mask.ask_each().ask("y");
            });
        }
        mask.settle();
        assert!(mask.member("1").is_some());
    }

    #[test]
    fn members_are_asked_for_what_every_one_is() {
        let mut mask = Mask::default();
        mask.follow(&path(&["a", "b"]), &Mask::ask_all);
        mask.ask_each().follow(&path(&["c"]), &Mask::ask_all);
        mask.settle();
        let named = mask.member("a").expect("asked for");
        assert!(named.member("b").is_some() && named.member("c").is_some());
        let other = mask.member("z").expect("asked for");
        assert!(other.member("b").is_none() && other.member("c").is_some());
    }
}
