//! Field masks: the parts of an object that the paths of its metrics need.

use super::path::{Path, Visit};

/// The maximum number of segments of a path that may refer to both lists and maps; after that, everything is read.
const MAX_FORKS: usize = 4;

/// The maximum number of nodes of a merged mask; beyond that, everything is read.
const MAX_MERGED: usize = 4096;

/// The parts of a value to read. Scalars are always read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mask {
    /// Read the entire value.
    all: bool,
    /// Members of a map, in byte order.
    members: Vec<(Box<str>, Mask)>,
    /// Every member of a map, every element of a list.
    each: Option<Box<Mask>>,
}

/// The mask of the members of a value that is read entirely.
static WHOLE: Mask = Mask { all: true, members: Vec::new(), each: None };

impl Mask {
    /// Returns a mask that selects everything.
    #[cfg(test)]
    pub(super) fn whole() -> Self {
        WHOLE.clone()
    }

    /// True if no member of a map is selected.
    pub(super) fn skips_members(&self) -> bool {
        !self.all && self.members.is_empty() && self.each.is_none()
    }

    /// True if no element of a list is selected.
    pub(super) fn skips_elements(&self) -> bool {
        !self.all && self.each.is_none()
    }

    /// Returns the mask of a map's member; `None` if it is not selected.
    #[inline]
    pub(super) fn member(&self, key: &str) -> Option<&Mask> {
        if self.all {
            return Some(&WHOLE);
        }
        let own = self.members.iter().find(|(name, _)| **name == *key).map(|(_, mask)| mask);
        own.or(self.each.as_deref())
    }

    /// Returns the mask of a list's elements; `None` if they are not selected.
    pub(super) fn element(&self) -> Option<&Mask> {
        if self.all { Some(&WHOLE) } else { self.each.as_deref() }
    }

    /// Selects the entire value.
    pub(super) fn select_all(&mut self) {
        self.all = true;
    }

    /// Selects every member or element, and returns their mask.
    pub(super) fn select_each(&mut self) -> &mut Mask {
        self.each.get_or_insert_default()
    }

    /// Selects a member, and returns its mask.
    pub(super) fn select(&mut self, key: &str) -> &mut Mask {
        let at = match self.members.binary_search_by(|(own, _)| (**own).cmp(key)) {
            Ok(at) => at,
            Err(at) => {
                self.members.insert(at, (key.into(), Mask::default()));
                at
            }
        };
        &mut self.members[at].1
    }

    /// Selects everything that `path` visits, and calls `at_end` with the mask at its end.
    pub(super) fn follow(&mut self, path: &Path, at_end: &dyn Fn(&mut Mask)) {
        self.step(&path.visits(), MAX_FORKS, at_end);
    }

    fn step(&mut self, steps: &[Vec<Visit<'_>>], forks: usize, at_end: &dyn Fn(&mut Mask)) {
        let Some((visits, rest)) = steps.split_first() else { return at_end(self) };
        let forks = if visits.len() > 1 { forks.checked_sub(1) } else { Some(forks) };
        let Some(forks) = forks else { return self.select_all() };
        for visit in visits {
            let next = match visit {
                Visit::Key(key) => self.select(key),
                Visit::Element => self.select_each(),
                Visit::ElementWith(key) => {
                    let element = self.select_each();
                    // Scalars are always read, and only scalars are compared.
                    element.select(key);
                    element
                }
            };
            next.step(rest, forks, at_end);
        }
    }

    /// Merges the mask of every member into those of named members. Call it once, after the last path.
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
            self.select(key).merge(mask, left);
        }
        if let Some(each) = &other.each {
            self.select_each().merge(each, left);
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
            mask.follow(&path(&segments), &Mask::select_all);
            mask.follow(&path(&["[a=b]"; 40][..at.min(40)]), &|mask| {
                mask.select_each().select("y");
            });
        }
        mask.settle();
        assert!(mask.member("1").is_some());
    }

    #[test]
    fn the_mask_of_each_member_applies_to_named_members() {
        let mut mask = Mask::default();
        mask.follow(&path(&["a", "b"]), &Mask::select_all);
        mask.select_each().follow(&path(&["c"]), &Mask::select_all);
        mask.settle();
        let named = mask.member("a").expect("asked for");
        assert!(named.member("b").is_some() && named.member("c").is_some());
        let other = mask.member("z").expect("asked for");
        assert!(other.member("b").is_none() && other.member("c").is_some());
    }
}
