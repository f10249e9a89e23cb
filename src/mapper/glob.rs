//! The glob rules as a trie of segments.
//!
//! A node has a child for each literal segment and one for `*`. All literal edges are in one hash table keyed
//! by node and segment, so a step has the same cost for ten rules and for ten thousand. A node stores, per
//! metric type, the first rule that ends at it and the first that ends at or below it, and the number of
//! segments its rules still have. The search skips branches that cannot contain a better rule.
//!
//! Bounds: a search visits each node at most once, because a node has one parent and one depth. The worst
//! case, a rule for every combination of literal and `*`, is linear in the size of the rules: reaching `2^k`
//! nodes takes `2^k` rules.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use memchr::{memchr, memchr_iter};

use super::config::MetricType;
use crate::util::work_counter;

/// No rule, or no node.
const NONE: u32 = u32::MAX;

const TYPES: usize = MetricType::ALL.len();

/// The segment of a rule that matches any segment of a name.
const STAR: &str = "*";

/// Returns the indexes of the segments that are `*`, which are the captures.
pub(super) fn stars(pattern: &str) -> Vec<usize> {
    let segments = pattern.split('.').enumerate();
    segments.filter(|(_, segment)| *segment == STAR).map(|(at, _)| at).collect()
}

#[derive(Debug)]
struct Node {
    star: u32,
    literals: u32,
    /// The first rule that ends here, by metric type.
    here: [u32; TYPES],
    /// The first rule that ends here or below, by metric type.
    below: [u32; TYPES],
    /// The minimum and maximum number of segments below this node.
    shortest: u32,
    longest: u32,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            star: NONE,
            literals: 0,
            here: [NONE; TYPES],
            below: [NONE; TYPES],
            shortest: u32::MAX,
            longest: 0,
        }
    }
}

#[derive(Debug)]
struct Edge {
    parent: u32,
    child: u32,
    start: u32,
    length: u32,
}

/// Sets the first rule of the metric types that rule `index` is for.
fn lower(first: &mut [u32; TYPES], index: u32, kind: Option<MetricType>) {
    for (slot, of) in first.iter_mut().zip(MetricType::ALL) {
        if kind.is_none_or(|kind| kind == of) {
            *slot = (*slot).min(index);
        }
    }
}

/// Scratch space for a search, and the segments of the last name.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The end of each segment of the name.
    pub(super) ends: Vec<usize>,
    pending: Vec<(u32, usize)>,
}

impl Search {
    /// Returns segment `index` of the last name.
    pub(super) fn segment<'n>(&self, name: &'n str, index: usize) -> Option<&'n str> {
        let start = match index.checked_sub(1) {
            Some(before) => self.ends.get(before)? + 1,
            None => 0,
        };
        name.get(start..*self.ends.get(index)?)
    }
}

/// The trie of all glob rules.
#[derive(Debug, Default)]
pub(super) struct Globs {
    nodes: Vec<Node>,
    edges: HashTable<Edge>,
    text: Vec<u8>,
    /// The length of the longest literal segment in bytes. Longer segments of a name are not hashed.
    longest_literal: usize,
    hasher: FixedState,
    /// True if literal segments take precedence over `*`, from left to right; otherwise the first rule in the
    /// file wins.
    prefers_literals: bool,
}

impl Globs {
    pub(super) fn new(prefers_literals: bool) -> Self {
        Self { prefers_literals, ..Self::default() }
    }

    fn hash(hasher: &FixedState, parent: u32, segment: &[u8]) -> u64 {
        let mut hasher = hasher.build_hasher();
        hasher.write_u32(parent);
        hasher.write(segment);
        hasher.finish()
    }

    fn edge_text<'t>(text: &'t [u8], edge: &Edge) -> &'t [u8] {
        text.get(edge.start as usize..(edge.start + edge.length) as usize).unwrap_or_default()
    }

    #[inline]
    fn child(&self, parent: u32, segment: &[u8]) -> Option<u32> {
        if segment.len() > self.longest_literal {
            return None;
        }
        work_counter::add(segment.len());
        let same =
            |edge: &Edge| edge.parent == parent && Self::edge_text(&self.text, edge) == segment;
        self.edges.find(Self::hash(&self.hasher, parent, segment), same).map(|edge| edge.child)
    }

    fn add_node(&mut self) -> u32 {
        self.nodes.push(Node::default());
        // A mapping file with four billion segments does not fit into memory.
        u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
    }

    /// Adds rule `index`, whose pattern must be valid. Rules must be added in file order.
    pub(super) fn insert(&mut self, index: u32, pattern: &str, kind: Option<MetricType>) {
        if self.nodes.is_empty() {
            self.add_node();
        }
        let mut left = pattern.split('.').count() as u32;
        let mut current = 0;
        for segment in pattern.split('.') {
            self.note(current, index, left, kind);
            left -= 1;
            let child = match segment {
                STAR => Some(self.nodes[current as usize].star).filter(|&star| star != NONE),
                _ => self.child(current, segment.as_bytes()),
            };
            current = child.unwrap_or_else(|| self.add_child(current, segment));
        }
        self.note(current, index, 0, kind);
        lower(&mut self.nodes[current as usize].here, index, kind);
    }

    fn note(&mut self, id: u32, index: u32, left: u32, kind: Option<MetricType>) {
        let node = &mut self.nodes[id as usize];
        node.shortest = node.shortest.min(left);
        node.longest = node.longest.max(left);
        lower(&mut node.below, index, kind);
    }

    fn add_child(&mut self, parent: u32, segment: &str) -> u32 {
        let child = self.add_node();
        if segment == STAR {
            self.nodes[parent as usize].star = child;
            return child;
        }
        let start = self.text.len() as u32;
        self.text.extend_from_slice(segment.as_bytes());
        self.longest_literal = self.longest_literal.max(segment.len());
        let hash = Self::hash(&self.hasher, parent, segment.as_bytes());
        let edge = Edge { parent, child, start, length: segment.len() as u32 };
        let Self { edges, text, hasher, nodes, .. } = self;
        let rehash = |edge: &Edge| Self::hash(hasher, edge.parent, Self::edge_text(text, edge));
        edges.insert_unique(hash, edge, rehash);
        nodes[parent as usize].literals += 1;
        child
    }

    /// Finds the rule for a name and stores the segments of the name in `search`.
    #[inline]
    pub(super) fn find(&self, name: &str, kind: MetricType, search: &mut Search) -> Option<u32> {
        let kind = kind as usize;
        let root = self.nodes.first()?;
        let bytes = name.as_bytes();
        // Most names without a matching rule fail at the first segment.
        let first_end = memchr(b'.', bytes).unwrap_or(bytes.len());
        let first = self.child(0, bytes.get(..first_end)?);
        if (first.is_none() && root.star == NONE) || *root.below.get(kind)? == NONE {
            return None;
        }
        search.ends.clear();
        search.ends.push(first_end);
        if let Some(rest) = bytes.get(first_end + 1..) {
            for dot in memchr_iter(b'.', rest) {
                search.ends.push(first_end + 1 + dot);
                if search.ends.len() > root.longest as usize {
                    return None;
                }
            }
            search.ends.push(bytes.len());
        }
        self.walk(name, kind, first, root.star, search)
    }

    /// Searches depth first from the children of the root, literal before `*`.
    fn walk(
        &self,
        name: &str,
        kind: usize,
        literal: Option<u32>,
        star: u32,
        search: &mut Search,
    ) -> Option<u32> {
        let mut found = NONE;
        search.pending.clear();
        let (mut current, mut depth) = match literal {
            Some(literal) => {
                if star != NONE {
                    search.pending.push((star, 1));
                }
                (literal, 1)
            }
            None => (star, 1),
        };
        loop {
            let mut next = None;
            if let Some(node) = self.nodes.get(current as usize) {
                let left = (search.ends.len() - depth) as u32;
                if left == 0 {
                    found = found.min(*node.here.get(kind)?);
                    if found != NONE && self.prefers_literals {
                        return Some(found);
                    }
                } else if *node.below.get(kind)? < found
                    && (node.shortest..=node.longest).contains(&left)
                {
                    next = self.step(node, current, name, depth, search);
                }
            }
            (current, depth) = match next.or_else(|| search.pending.pop()) {
                Some(next) => next,
                None => return (found != NONE).then_some(found),
            };
        }
    }

    /// Returns the next child to visit. If there are two, the other one becomes pending.
    fn step(
        &self,
        node: &Node,
        id: u32,
        name: &str,
        depth: usize,
        search: &mut Search,
    ) -> Option<(u32, usize)> {
        let star = (node.star != NONE).then_some((node.star, depth + 1));
        if node.literals == 0 {
            return star;
        }
        let segment = search.segment(name, depth)?;
        match self.child(id, segment.as_bytes()) {
            Some(child) => {
                search.pending.extend(star);
                Some((child, depth + 1))
            }
            None => star,
        }
    }

    /// Returns the earlier rules that match everything rule `index` matches, one for each of its metric
    /// types; `None` if the rule can win for at least one type.
    pub(super) fn covered_by(
        &self,
        index: u32,
        pattern: &str,
        kind: Option<MetricType>,
    ) -> Option<Vec<u32>> {
        let segments: Vec<&str> = pattern.split('.').collect();
        let types = MetricType::ALL.into_iter().filter(|of| kind.is_none_or(|kind| kind == *of));
        let mut covering = Vec::new();
        for kind in types {
            let rule =
                self.first_covering(&segments, kind as usize).filter(|&rule| rule < index)?;
            if !covering.contains(&rule) {
                covering.push(rule);
            }
        }
        Some(covering)
    }

    fn first_covering(&self, segments: &[&str], kind: usize) -> Option<u32> {
        let mut found = NONE;
        let mut pending = vec![(0_u32, 0_usize)];
        while let Some((id, depth)) = pending.pop() {
            let node = self.nodes.get(id as usize)?;
            let Some(segment) = segments.get(depth) else {
                found = found.min(*node.here.get(kind)?);
                continue;
            };
            if *node.below.get(kind)? >= found {
                continue;
            }
            let is_star = *segment == STAR;
            let literal = if is_star { None } else { self.child(id, segment.as_bytes()) };
            // Without file order `*` only wins where there is no literal, so only a rule with the same text
            // covers a literal.
            let star =
                (node.star != NONE && (!self.prefers_literals || is_star)).then_some(node.star);
            pending.extend(star.map(|child| (child, depth + 1)));
            pending.extend(literal.map(|child| (child, depth + 1)));
        }
        (found != NONE).then_some(found)
    }
}
